"""Files that a disk, an editor or an attacker has changed: a broker starts or says why, and serves only sound batches.

With any damage to a log directory's small files, its .log files lose nothing except below the
log start offset that they name. With any damage to a .log file, its log ends at the first bad batch.
"""

from __future__ import annotations

import random
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import crc_matches, iterate_headers, patch, read_header
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge_broker.log.checkpoints import CorruptCheckpoint, EpochCheckpoint, OffsetCheckpoint
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.producer_snapshot import CorruptSnapshot, decode_snapshot
from tidegauge_broker.log.searching import carried_out

AT = TopicPartition("t", 0)
CLUSTER = "abcdefghijklmnopqrstuv"
NOW_MS = 1_700_000_000_000
BATCHES = 60
SMALL_FILES = (
    "replication-offset-checkpoint",
    "recovery-point-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
    ".lock",
    "t-0/leader-epoch-checkpoint",
    "t-0/partition.metadata",
)
"""Nothing depends on the content of these but time."""
LOG_SUFFIXES = (".log", ".index", ".timeindex", ".snapshot")
TRIED_ALONE = ("log-start-offset-checkpoint", "meta.properties")


def opened(directory: Path) -> LogManager:
    broker, _ = parse_broker_settings({"log.segment.bytes": "16384", "log.index.interval.bytes": "500"})
    return LogManager.open(
        [directory],
        broker_id=1,
        cluster_id=CLUSTER,
        broker=broker,
        topic_values=lambda _topic: parse_topic_settings({}, broker),
        now_ms=lambda: NOW_MS,
    )


def batch(offset: int) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=7, producer_epoch=0, base_sequence=offset,
        batch_size=4096,
    )  # fmt: skip
    builder.append(0, NOW_MS + offset, b"k", b"v" * 400, [])
    data = bytearray(builder.build())
    patch(data, 0, offset, offset // 20)
    return bytes(data)


@pytest.fixture(scope="module")
def sound_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of three epochs in two segments, as a clean stop leaves it."""
    directory = tmp_path_factory.mktemp("sound")
    manager = opened(directory)
    log = manager.get_or_create(AT, "topicidtopicidtopicidt", is_new=True)
    for offset in range(BATCHES):
        data = batch(offset)
        log.append_as_follower(data, [read_header(data)])
    manager.close({AT: BATCHES})
    assert len(list((directory / "t-0").glob("*.log"))) > 1
    return directory


def offsets_in(log_bytes: bytes) -> list[int]:
    headers = list(iterate_headers(log_bytes))
    assert all(crc_matches(log_bytes, header) for header in headers)
    return [header.base_offset for header in headers]


def served(directory: Path) -> list[int]:
    """Open the directory and read all of it, as a follower would; offsets of the batches, each of which is sound."""
    manager = opened(directory)
    try:
        log = manager.logs[AT]
        found: list[int] = []
        position = log.log_start_offset
        while position < log.log_end_offset:
            part = offsets_in(log.read(position, log.log_end_offset, 5_000, at_least_one_batch=True))
            assert part, f"nothing to read at {position} below {log.log_end_offset}"
            found += [offset for offset in part if offset >= position]
            position = found[-1] + 1
        for offset in reversed(found):  # from the index: a sequential reader needs none
            (first, *_) = offsets_in(log.read(offset, log.log_end_offset, 1, at_least_one_batch=True))
            assert first == offset
        for timestamp_ms in (NOW_MS, NOW_MS + 31):
            carried_out(log.search_by_time(timestamp_ms, log.log_end_offset))
        manager.loaded(AT)
        return found
    finally:
        manager.close({})


def fresh(sound_log: Path, scratch: str, *, clean: bool) -> Path:
    directory = Path(scratch) / "log"
    shutil.copytree(sound_log, directory)
    if not clean:
        (directory / ".kafka_cleanshutdown").unlink()
    return directory


def test_every_file_of_a_log_directory_is_filled_with_rubbish_by_a_test(sound_log: Path) -> None:
    """A new kind of file must be known here."""
    there = {str(path.relative_to(sound_log)) for path in sound_log.rglob("*") if path.is_file()}
    names = {name for name in there if not name.startswith("t-0/") or not name.endswith(LOG_SUFFIXES)}
    assert names == {*SMALL_FILES, *TRIED_ALONE}
    assert {Path(name).suffix for name in there - names} == set(LOG_SUFFIXES)


texts = st.one_of(
    st.binary(max_size=40),
    st.lists(
        st.sampled_from(
            ["0", "1", "2", "t", "-1", "99999999999999999999", "5", " ", "\n", "\n", "x", "\N{FULLWIDTH DIGIT SEVEN}"]
        )
    ).map(lambda words: " ".join(words).encode()),
)


@settings(max_examples=examples(60), print_blob=True, deadline=None)
@given(st.sampled_from(SMALL_FILES), texts, st.booleans())
@example("t-0/leader-epoch-checkpoint", b"0\n2\n5 0\n3 9\n", True)
@example("t-0/leader-epoch-checkpoint", b"0\n2\n-5 0\n3 -9\n", False)
@example("recovery-point-offset-checkpoint", b"0\n1\nt 0 -7\n", False)
@example("replication-offset-checkpoint", b"0\n1\nt 0 99999999999999999999\n", True)
def test_rubbish_in_a_small_file_loses_no_record(sound_log: Path, name: str, content: bytes, clean: bool) -> None:
    """Rule 4 of the log directory: a corrupt checkpoint costs a longer recovery, never a record."""
    with tempfile.TemporaryDirectory() as scratch:
        directory = fresh(sound_log, scratch, clean=clean)
        (directory / name).write_bytes(content)
        assert served(directory) == list(range(BATCHES))


@settings(max_examples=examples(40), print_blob=True, deadline=None)
@given(texts)
@example(b"0\n1\nt 0 99999999999999999999\n")
@example(b"0\n1\nt 0 -4\n")
def test_a_log_start_checkpoint_says_a_sound_offset_or_is_ignored(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "log-start-offset-checkpoint"
        path.write_bytes(content)
        try:
            found = OffsetCheckpoint(path).read()
        except CorruptCheckpoint:
            return
        assert all(0 <= offset < 2**63 for offset in found.values())


@settings(max_examples=examples(60), print_blob=True, deadline=None)
@given(st.binary(max_size=120))
def test_any_producer_snapshot_and_epoch_file_is_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "leader-epoch-checkpoint"
        path.write_bytes(content)
        with suppress(CorruptSnapshot):
            decode_snapshot(content)
        with suppress(CorruptCheckpoint):
            assert all(min(entry) >= 0 for entry in EpochCheckpoint(path).read())


@settings(max_examples=examples(40), print_blob=True, deadline=None)
@given(st.binary(max_size=60))
@example(b"version=0\nbroker.id=x\n")
@example(b"version=99999999999999999999999999\n")
@example(b"\xff")
def test_rubbish_in_meta_properties_is_refused_in_a_sentence(sound_log: Path, content: bytes) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = fresh(sound_log, scratch, clean=True)
        (directory / "meta.properties").write_bytes(content)
        reported = ""
        try:
            opened(directory).close({})
        except TidegaugeError as refusal:
            reported = refusal.message
        assert not reported or ("meta.properties" in reported and "\n" not in reported)


@settings(max_examples=examples(80), print_blob=True, deadline=None)
@example(4194303, ".index", True)
@example(2763931, ".log", False)
@example(183, ".log", False)
@given(st.integers(0, 2**32), st.sampled_from(LOG_SUFFIXES), st.booleans())
def test_a_mutilated_file_of_a_log_is_found_or_does_no_harm(
    sound_log: Path, seed: int, suffix: str, clean: bool
) -> None:  # fmt: skip
    """Bits flipped, bytes removed, zeros, rubbish appended; after a crash, and after a clean stop for the indexes.

    After a clean stop Kafka, too, believes the .log files; so they are mutilated after a crash only. A batch's base
    offset is outside its CRC, and compaction leaves gaps: one that was raised is believed, as in Kafka. So is a
    segment that ends between two batches: the next begins after a gap, as after compaction (LogLoader.recoverLog).
    """
    random_ = random.Random(seed)
    clean = clean and suffix != ".log"
    with tempfile.TemporaryDirectory() as scratch:
        directory = fresh(sound_log, scratch, clean=clean)
        if not clean:
            (directory / "recovery-point-offset-checkpoint").write_bytes(b"")
        path = random_.choice(sorted((directory / "t-0").glob("*" + suffix)))
        before = path.read_bytes()
        after = mutilated(before, random_)
        path.write_bytes(after)
        found = served(directory)
        assert found == sorted(set(found)), f"seed {seed}"
        raised = offsets_moved(before, after) if suffix == ".log" else set()
        removed = batches_removed(before, after) if suffix == ".log" else set()
        kept = [offset for offset in found if offset not in raised]
        end = kept[-1] + 1 if kept else 0
        assert kept == [offset for offset in range(end) if offset not in removed], f"seed {seed}"
        if suffix != ".log":
            assert len(found) == BATCHES, f"seed {seed}"


def offsets_moved(before: bytes, after: bytes) -> set[int]:
    """The base offsets of batches that say another one now, and nothing else of whose header changed."""
    found = set()
    for header in iterate_headers(before):
        (position, end) = (header.position, header.position + header.size_bytes)
        (was, now) = (before[position:end], after[position:end])
        if was[8:] == now[8:] and was != now:
            found.add(read_header(now).base_offset)
    return found


def batches_removed(before: bytes, after: bytes) -> set[int]:
    """The base offsets of the batches that are missing from a file that now ends between two batches."""
    headers = list(iterate_headers(before))
    if not before.startswith(after) or len(after) not in {header.position for header in headers}:
        return set()
    return {header.base_offset for header in headers if header.position >= len(after)}


def mutilated(data: bytes, random_: random.Random) -> bytes:
    match random_.randrange(5):
        case 0:
            return data[: random_.randrange(len(data) + 1)]
        case 1:
            return data + random_.randbytes(random_.randrange(1, 100))
        case 2:
            return random_.randbytes(len(data))
        case 3:
            return bytes(len(data))
        case _:
            changed = bytearray(data)
            for _ in range(random_.randrange(1, 4)):
                if changed:
                    changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
            return bytes(changed)
