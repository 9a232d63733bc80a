"""Files that were truncated or damaged: after a clean stop the broker starts and the log heals; a read returns what it
can.

In Kafka LogLoader takes a log as it is after a clean stop, and reads end at the first batch that is not whole; a log
that can't be loaded is its directory's concern (LogManager.loadLogs). Rules: ``recovery.py`` and ``loading.py``.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers, read_header
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge_broker.log import loading
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.replica.messages import EpochEntry

BATCHES = 30
SEGMENT = {"log.segment.bytes": "1000", "log.index.interval.bytes": "150"}
PARTITION_FILES = (
    "first.log",
    "last.log",
    "first.index",
    "last.index",
    "first.timeindex",
    "last.timeindex",
    "last.snapshot",
    "leader-epoch-checkpoint",
    "partition.metadata",
)
DIRECTORY_FILES = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


def gone(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def without_last_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def halved(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def flipped(path: Path) -> None:
    """A bit in every seventh byte."""
    data = bytearray(path.read_bytes())
    for at in range(3, len(data), 7):
        data[at] ^= 1 << (at % 8)
    path.write_bytes(data)


def garbage(path: Path) -> None:
    path.write_bytes(random.Random(7).randbytes(path.stat().st_size + 100))


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\x00" * 100)


DAMAGES = (gone, emptied, without_last_byte, halved, flipped, garbage, longer)


def filled(bench, batch) -> None:
    """A log of several segments, with a producer and two epochs, closed in order."""
    bench.settings |= SEGMENT
    for number in range(BATCHES):
        bench.append(batch(2, value=b"x" * 20, producer_id=5, sequence=2 * number), epoch=number // 20)
    bench.log().write_epochs([EpochEntry(0, 0), EpochEntry(1, 40)], sync=True)
    bench.manager.close({bench.name: 60})
    bench.manager = None


def file_named(bench, name: str) -> Path:
    if name in DIRECTORY_FILES:
        return bench.directory / name
    which, _, suffix = name.partition(".")
    if which in {"first", "last"} and suffix in {"log", "index", "timeindex", "snapshot"}:
        found = sorted(bench.partition_directory.glob(f"*.{suffix}"))
        return found[0] if which == "first" else found[-1]
    return bench.partition_directory / name


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", PARTITION_FILES + DIRECTORY_FILES)
def test_the_broker_starts_whatever_happened_to_a_file_after_a_clean_stop(
    bench, batch, name: str, damage: Callable[[Path], None]
) -> None:
    """And the log is a log: what it claims to hold can be read, and it takes appends."""
    filled(bench, batch)
    path = file_named(bench, name)
    damage(path)
    log = bench.log()
    assert bench.manager.offline_directories == []
    assert log.log_end_offset <= 2 * BATCHES
    if not name.startswith("first."):
        assert everything(log) == list(range(log.log_start_offset, log.log_end_offset))
    if ".log" not in name:
        assert log.log_end_offset == 2 * BATCHES, "no record is lost over a file that can be made again"
    end = log.log_end_offset
    header = bench.append(batch(2), epoch=1)
    assert header.base_offset == end
    assert offsets(log.read(end, end + 2, 1 << 20, at_least_one_batch=True)) == [end, end + 1]
    assert all(entry.epoch <= 1 and entry.start_offset <= end for entry in log.epochs)
    again = bench.restart()
    assert again.log_end_offset == end + 2


def everything(log) -> list[int]:
    found: list[int] = []
    at = log.log_start_offset
    while at < log.log_end_offset:
        read = offsets(log.read(at, log.log_end_offset, 1 << 20, at_least_one_batch=True))
        found += [offset for offset in read if offset >= at]
        at = found[-1] + 1
    return found


def offsets(data: bytes) -> list[int]:
    return [offset for header in iterate_headers(data) for offset in range(header.base_offset, header.next_offset)]


@pytest.mark.parametrize("cut_bytes", [1, 30, 61, 100, 300])
def test_a_log_that_was_truncated_after_a_clean_stop_ends_at_its_last_sound_batch(bench, batch, cut_bytes) -> None:
    """And it says that it may lack records, so that no state of the process before makes it leader or in sync."""
    filled(bench, batch)
    path = file_named(bench, "last.log")
    data = path.read_bytes()
    path.write_bytes(data[:-cut_bytes])
    log = bench.log()
    assert log.log_end_offset == int(path.stem) + len(offsets_of_sound(data[:-cut_bytes]))
    assert everything(log) == list(range(log.log_end_offset))
    assert bench.manager.loaded(bench.name).high_watermark == log.log_end_offset
    assert log.former_epoch == 1
    assert log.producer_state.entries()[0].last_sequence == log.log_end_offset - 1


def offsets_of_sound(data: bytes) -> list[int]:
    found: list[int] = []
    try:
        for header in iterate_headers(data):
            found += range(header.base_offset, header.next_offset)
    except TidegaugeError:
        pass
    return found


def test_a_log_whose_last_segments_are_missing_is_noticed(bench, batch) -> None:
    """The recovery point says where a log ended that was closed in order."""
    filled(bench, batch)
    last = file_named(bench, "last.log")
    for suffix in (".log", ".index", ".timeindex"):
        last.with_suffix(suffix).unlink()
    log = bench.log()
    assert log.log_end_offset == int(last.stem)
    assert log.former_epoch >= 0


def test_a_log_as_it_was_closed_is_not_taken_for_damaged(bench, batch) -> None:
    filled(bench, batch)
    assert bench.log().former_epoch == -1
    bench.log().truncate_to(33)
    assert bench.restart().log_end_offset in {32, 33}


def test_a_log_that_cannot_be_loaded_takes_its_own_directory_offline(tmp_path, batch, monkeypatch) -> None:
    broker, _ = parse_broker_settings({})

    def open_both() -> LogManager:
        return LogManager.open(
            [tmp_path / "a", tmp_path / "b"],
            broker_id=1,
            cluster_id="abcdefghijklmnopqrstuv",
            broker=broker,
            topic_values=lambda _topic: parse_topic_settings({}, broker),
            now_ms=lambda: 1,
        )

    manager = open_both()
    for number in range(2):
        manager.get_or_create(TopicPartition("t", number), "topicidtopicidtopicidt", is_new=True)
    homes = {at: log.directory.parent for at, log in manager.logs.items()}
    manager.close({})
    load = loading.load_log

    def refuse(directory, *rest):
        if directory.name == "t-1":
            raise ValueError("a defect")
        return load(directory, *rest)

    monkeypatch.setattr(loading, "load_log", refuse)
    manager = open_both()
    try:
        assert manager.offline_directories == [homes[TopicPartition("t", 1)]]
        assert list(manager.logs) == [TopicPartition("t", 0)]
    finally:
        manager.close({}, clean=False)


# Damage while the broker runs


def damaged_length(bench, offset: int, length: int) -> None:
    """Give the batch that begins at an offset another length, in the file."""
    for path in sorted(bench.partition_directory.glob("*.log")):
        data = bytearray(path.read_bytes())
        for header in list(iterate_headers(bytes(data))):
            if header.base_offset == offset:
                struct.pack_into(">i", data, header.position + 8, length)
                path.write_bytes(data)
                return
    raise AssertionError(offset)


LENGTHS = [0, 7, 61, 80, 200, 5000, 1 << 30, -1]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_reader_gets_the_sound_batches_before_a_damaged_length(bench, batch, length) -> None:
    """One segment, whose batches were not looked for yet: the reader walks over them from the index."""
    bench.settings |= {"log.index.interval.bytes": "300"}
    for _ in range(20):
        bench.append(batch(1, value=b"x" * 20))
    bench.restart()
    damaged_length(bench, 10, length)
    log = bench.log()
    for start in range(10):
        for limit in (1 << 20, 250, 1):
            read = offsets_of_sound(log.read(start, 15, limit, at_least_one_batch=True))
            assert read[:1] == [start], (start, limit)
            assert read == list(range(start, start + len(read)))
    assert log.read(17, 20, 1 << 20, at_least_one_batch=True), "an index entry behind the damage leads there"


def test_a_bound_behind_the_damage_does_not_hide_the_sound_batches(bench, batch) -> None:
    """No index entry leads to the high watermark: the walk to it meets the damage."""
    for _ in range(20):
        bench.append(batch(1))
    bench.restart()
    damaged_length(bench, 10, 1 << 30)
    assert offsets(bench.log().read(6, 15, 1 << 20, at_least_one_batch=True)) == [6, 7, 8, 9]


def test_a_batch_whose_offset_falls_back_is_damaged(bench, batch) -> None:
    """The base offset is outside the CRC, so nothing but the order of the batches tells."""
    for _ in range(20):
        bench.append(batch(1))
    log = bench.restart()
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    struct.pack_into(">q", data, list(iterate_headers(bytes(data)))[10].position, 3)
    path.write_bytes(data)
    assert offsets(log.read(6, 15, 1 << 20, at_least_one_batch=True)) == [6, 7, 8, 9]
    with pytest.raises(TidegaugeError):
        log.read(12, 20, 1 << 20, at_least_one_batch=True)


def test_an_index_that_names_offsets_beyond_the_log_is_made_again(bench, batch) -> None:
    """Else the next entry would lie below it, and the append that writes it would fail."""
    bench.settings |= {"log.index.interval.bytes": "150"}
    for _ in range(10):
        bench.append(batch(2, value=b"x" * 20))
    bench.stop()
    path = file_named(bench, "last.index")
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, len(data) - 8, 1000)
    path.write_bytes(data)
    assert bench.log().log_end_offset == 20
    for _ in range(10):
        bench.append(batch(2, value=b"x" * 20))
    assert everything(bench.log()) == list(range(40))


def test_a_read_behind_the_damage_and_before_the_next_index_entry_says_corrupt(bench, batch) -> None:
    for _ in range(20):
        bench.append(batch(1))
    bench.restart()
    damaged_length(bench, 10, 1 << 30)
    with pytest.raises(TidegaugeError) as caught:
        bench.log().read(12, 20, 1 << 20, at_least_one_batch=True)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert bench.manager.bytes_between(bench.name, 12, 20) is None, (
        "the core is told that it can't be read, by no exception"
    )
    assert bench.manager.offline_directories == []


def test_a_damaged_batch_at_an_index_entry_hides_no_other_entry(bench, batch) -> None:
    bench.settings |= {"log.index.interval.bytes": "100"}
    for _ in range(20):
        bench.append(batch(1, value=b"x" * 20))
    log = bench.restart()
    entries = log.segments[0].index.entries()
    offset, position = entries[len(entries) // 2]
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    data[position + 16] = 9  # the magic
    path.write_bytes(data)
    with pytest.raises(TidegaugeError):
        log.read(offset, 20, 1 << 20, at_least_one_batch=True)
    assert offsets(log.read(entries[-1][0], 20, 1 << 20, at_least_one_batch=True))[0] == entries[-1][0]
    assert len(log.segments[0].index) == len(entries)


def test_appends_retention_and_closing_go_on_over_a_damaged_batch(bench, batch) -> None:
    bench.settings |= {"log.segment.bytes": "1500", "log.retention.bytes": "1500", "log.index.interval.bytes": "100000"}
    for _ in range(15):
        bench.append(batch(1, value=b"x" * 20))
    bench.restart()
    damaged_length(bench, 7, 1 << 30)
    log = bench.log()
    for _ in range(60):
        bench.append(batch(1, value=b"x" * 20))
    assert bench.manager.housekeeping({bench.name: log.log_end_offset}) == {bench.name: log.log_start_offset}
    assert log.log_start_offset > 15
    bench.stop()
    assert (bench.directory / ".kafka_cleanshutdown").exists()


def test_one_log_that_retention_cannot_judge_does_not_keep_it_from_the_others(bench, batch, monkeypatch) -> None:
    bench.settings |= {"log.segment.bytes": "200", "log.retention.bytes": "100"}
    for _ in range(10):
        bench.append(batch(1, value=b"x" * 100))
    first = bench.log()
    other = bench.manager.get_or_create(TopicPartition("other", 0), "topicidtopicidtopicidt", is_new=True)
    for number in range(10):
        records = batch(1, value=b"x" * 100)
        other.append_as_leader(records, read_header(records)._replace(base_offset=number, leader_epoch=0))
    monkeypatch.setattr(first, "delete_old_segments", lambda _hw, _wall_ms: 1 // 0)
    moved = bench.manager.housekeeping({bench.name: 10, other.topic_partition: 10})
    assert list(moved) == [other.topic_partition]


def test_a_directory_that_fails_is_reported_by_whoever_meets_it(bench, batch, monkeypatch) -> None:
    bench.append(batch(1))
    heard: list[Path] = []
    bench.manager.on_directory_failure = heard.append
    monkeypatch.setattr("os.pread", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    log = bench.log()
    log.segments[0]._last_append = (-1, 0)
    for _ in range(2):
        with pytest.raises(TidegaugeError):
            log.read(0, 1, 100, at_least_one_batch=True)
    assert heard == [bench.directory]


@pytest.mark.parametrize(("base_offset", "is_sound"), [(3, True), (2, False), (0, False)])
def test_a_batch_begins_at_no_offset_of_the_batch_before(bench, batch, base_offset: int, is_sound: bool) -> None:
    bench.append(batch(3))
    second = bench.log().segments[0].size_bytes
    bench.append(batch(3))
    segment = bench.log().segments[0]
    with segment.path.open("r+b") as file:
        file.seek(second)
        file.write(struct.pack(">q", base_offset))
    if is_sound:
        assert [spot.base_offset for spot in segment.spots(0)] == [0, 3]
        return
    with pytest.raises(TidegaugeError) as caught:
        list(segment.spots(0))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
