"""Append, read, roll, truncation and search of one partition's log (UnifiedLog, LocalLog)."""

import os
import struct
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tidegauge.record_batch import crc_matches, iterate_headers, patch, read_header
from tidegauge_broker.log.files import Disk, StorageError
from tidegauge_broker.log.searching import carried_out
from tidegauge_broker.log.segment import LogSegment
from tidegauge_broker.log.synced_disk import SyncedDisk
from tidegauge_broker.replica.messages import EpochEntry
from tidegauge_broker.replica.producer_state import BatchSpan


def everything(log, from_offset=0, upper_bound=None, max_bytes=1 << 30):
    """All batches' headers, by repeated reads."""
    found = []
    bound = log.log_end_offset if upper_bound is None else upper_bound
    while data := log.read(from_offset, bound, max_bytes, at_least_one_batch=True):
        found += iterate_headers(data)
        from_offset = found[-1].next_offset
    return found


def test_a_leader_sets_offset_and_epoch_and_nothing_else(bench, batch):
    records = batch(3)
    bench.append(records, epoch=4)
    bench.append(records, epoch=5)
    data = bench.log().read(0, 6, 1 << 20, at_least_one_batch=True)
    first, second = iterate_headers(data)
    assert (first.base_offset, first.leader_epoch) == (0, 4)
    assert (second.base_offset, second.leader_epoch) == (3, 5)
    assert crc_matches(data, first)
    assert crc_matches(data, second)
    assert data[16 : len(records)] == records[16:]
    assert (bench.partition_directory / "00000000000000000000.log").read_bytes() == data


def test_log_append_time_is_stamped_with_a_right_crc(bench, batch):
    """DefaultRecordBatch.setMaxTimestamp: bit 3, the max timestamp, a new CRC."""
    bench.append(batch(2), append_time_ms=1_800_000_000_000)
    data = bench.log().read(0, 2, 1 << 20, at_least_one_batch=True)
    header = read_header(data)
    assert header.attributes & 0x08
    assert header.max_timestamp_ms == 1_800_000_000_000
    assert crc_matches(data, header)
    assert carried_out(bench.log().search_by_time(1_700_000_000_001, 2)) == (0, 1_800_000_000_000)


def test_a_follower_writes_the_leaders_bytes(bench, batch):
    bench.append(batch(2), epoch=1)
    bench.append(batch(3), epoch=2)
    data = bench.log().read(0, 5, 1 << 20, at_least_one_batch=True)
    bench.log().truncate_fully(0)
    bench.log().append_as_follower(data, list(iterate_headers(data)))
    assert bench.log().log_end_offset == 5
    assert bench.log().read(0, 5, 1 << 20, at_least_one_batch=True) == data


def test_an_empty_follower_begins_at_the_leaders_batch_and_keeps_its_start(bench, batch):
    """UnexpectedAppendOffsetException is forgiven where the follower's log is empty."""
    data = batch(5, producer_id=7, sequence=0)
    log = bench.log()
    log.truncate_fully(3)
    held_by_the_core = log.producer_state
    log.append_as_follower(data, list(iterate_headers(data)))
    assert log.producer_state is held_by_the_core
    assert [entry.producer_id for entry in held_by_the_core.entries()] == [7]
    assert (log.log_start_offset, log.log_end_offset) == (3, 5)
    assert log.read(3, 5, 1 << 20, at_least_one_batch=True) == data


def test_a_read_gives_whole_batches_below_the_bound(bench, batch):
    size = len(batch(2))
    for _ in range(4):
        bench.append(batch(2))
    log = bench.log()

    def lengths(from_offset, bound, max_bytes, *, at_least_one=True):
        return len(log.read(from_offset, bound, max_bytes, at_least_one_batch=at_least_one)) / size

    assert lengths(0, 8, 10 * size) == 4
    assert lengths(0, 8, 2 * size + 1) == 2
    assert lengths(0, 8, 2 * size) == 2
    assert lengths(3, 8, 10 * size) == 3, "from the batch that holds the offset"
    assert lengths(0, 4, 10 * size) == 2
    assert lengths(0, 5, 10 * size) == 2, "a batch that reaches over the bound is not committed"
    assert lengths(0, 1, 10 * size) == 0
    assert lengths(0, 8, 1) == 1, "the first batch may exceed the limit"
    assert lengths(0, 8, 1, at_least_one=False) == 0
    assert lengths(8, 8, 10 * size) == 0
    assert lengths(4, 1000, 10 * size) == 2


def test_bytes_between_counts_the_bytes_a_read_would_give(bench, batch):
    size = len(batch(2))
    bench.settings["log.segment.bytes"] = str(3 * size)
    for _ in range(8):
        bench.append(batch(2))
    log = bench.log()
    assert len(log.segments) == 3
    for start in range(17):
        for end in range(17):
            expected = sum(size for base in range(0, 16, 2) if base + 2 > start and base + 2 <= end)
            assert log.bytes_between(start, end) == (expected if start < end else 0), (start, end)
    assert log.size_bytes == 8 * size


def test_a_segment_is_rolled_when_the_append_would_exceed_its_size(bench, batch):
    """Names are 20 digits of the base offset; each new base has a snapshot of the producers."""
    size = len(batch(5))
    bench.settings["log.segment.bytes"] = str(2 * size)
    for _ in range(5):
        bench.append(batch(5))
    assert bench.files(".log") == [f"{offset:020d}.log" for offset in (0, 10, 20)]
    assert bench.files(".snapshot") == [f"{offset:020d}.snapshot" for offset in (10, 20)]
    assert [header.base_offset for header in everything(bench.log())] == [0, 5, 10, 15, 20]


def test_a_batch_larger_than_a_segment_does_not_roll_an_empty_one(bench, batch):
    bench.settings["log.segment.bytes"] = "100"
    bench.append(batch(5, value=b"x" * 100))
    bench.append(batch(5, value=b"x" * 100))
    assert bench.files(".log") == [f"{offset:020d}.log" for offset in (0, 5)]


def test_a_segment_is_rolled_by_the_records_time(bench, batch):
    """LogSegment.timeWaitedForRoll: from the first append's timestamp to this one's, not the clock's."""
    bench.settings["log.roll.ms"] = "1000"
    bench.append(batch(1, time_ms=1_700_000_000_000))
    bench.now_ms += 10_000
    bench.append(batch(1, time_ms=1_700_000_001_000))
    assert len(bench.log().segments) == 1
    bench.append(batch(1, time_ms=1_700_000_001_001))
    assert len(bench.log().segments) == 2


def test_a_full_index_rolls(bench, batch):
    """36 bytes are three time entries, one of which is kept for the roll: the fourth append finds two, and rolls."""
    bench.settings.update({"log.index.interval.bytes": "0", "log.index.size.max.bytes": "36"})
    for at in range(3):
        bench.append(batch(1, time_ms=1000 + at))
    assert len(bench.log().segments) == 1
    bench.append(batch(1, time_ms=2000))
    assert len(bench.log().segments) == 2


def test_index_files_hold_kafkas_entries(bench, batch):
    """An entry holds the last offset of an append and its position; the first batch has none (rule 1)."""
    bench.settings["log.index.interval.bytes"] = str(len(batch(2)))
    for at in range(5):
        bench.append(batch(2, time_ms=1_700_000_000_000 + 10 * at))
    size = len(batch(2))
    bench.log().segments[0].index.write_out()
    bench.log().segments[0].time_index.write_out()
    index = (bench.partition_directory / "00000000000000000000.index").read_bytes()
    assert list(struct.iter_unpack(">ii", index)) == [(5, 2 * size), (9, 4 * size)]
    time_index = (bench.partition_directory / "00000000000000000000.timeindex").read_bytes()
    assert list(struct.iter_unpack(">qi", time_index)) == [(1_700_000_000_021, 5), (1_700_000_000_041, 9)]


def test_a_follower_indexes_each_batch_of_an_append(bench, batch):
    """LogSegment.append since 3.9.1: an entry names a batch, also where several were appended together."""
    bench.settings["log.index.interval.bytes"] = str(len(batch(2)))
    size = len(batch(2))
    records = bytearray()
    for at in range(7):
        one = bytearray(batch(2, time_ms=1_700_000_000_000 + 10 * at))
        patch(one, 0, 2 * at, 0)
        records += one
    bench.log().append_as_follower(bytes(records), list(iterate_headers(bytes(records))))
    assert bench.log().segments[0].index.entries() == [(5, 2 * size), (9, 4 * size), (13, 6 * size)]
    assert [offset for _, offset in bench.log().segments[0].time_index.entries()] == [5, 9, 13]
    for offset in range(14):
        read = bench.log().read(offset, 14, 1, at_least_one_batch=True)
        assert read_header(read).base_offset == offset // 2 * 2


def test_the_last_time_entry_is_written_on_roll_and_on_close(bench, batch):
    bench.settings["log.segment.bytes"] = str(len(batch(2)))
    bench.append(batch(2))
    bench.append(batch(2, time_ms=1_700_000_000_500))
    first = (bench.partition_directory / "00000000000000000000.timeindex").read_bytes()
    assert list(struct.iter_unpack(">qi", first)) == [(1_700_000_000_001, 1)]
    bench.stop()
    second = (bench.partition_directory / "00000000000000000002.timeindex").read_bytes()
    assert list(struct.iter_unpack(">qi", second)) == [(1_700_000_000_501, 1)]


@pytest.mark.parametrize("codec", [0, 1, 4])
def test_a_search_by_time_finds_the_first_record_of_that_time_or_later(bench, batch, codec):
    size = len(batch(3, codec=codec))
    bench.settings.update({"log.segment.bytes": str(3 * size), "log.index.interval.bytes": "0"})
    for at in range(8):
        bench.append(batch(3, time_ms=1000 * at, codec=codec))
    log = bench.log()
    assert carried_out(log.search_by_time(0, 24)) == (0, 0)
    assert carried_out(log.search_by_time(2, 24)) == (2, 2)
    assert carried_out(log.search_by_time(3, 24)) == (3, 1000)
    assert carried_out(log.search_by_time(4001, 24)) == (13, 4001)
    assert carried_out(log.search_by_time(4001, 13)) is None, "not committed yet"
    assert carried_out(log.search_by_time(7003, 24)) is None
    log.advance_log_start(14)
    assert carried_out(log.search_by_time(0, 24)) == (14, 4002)


def test_the_largest_timestamp_is_the_first_record_that_has_it_in_the_whole_log(bench, batch):
    """ListOffsets with -3 (UnifiedLog.fetchOffsetByTimestamp): committed or not, the whole log is looked at."""
    bench.settings["log.segment.bytes"] = "300"
    assert carried_out(bench.log().search_largest_timestamp(0)) is None
    for at in (5000, 9000, 1000, 9000, 2000):
        bench.append(batch(3, time_ms=at))
    assert carried_out(bench.log().search_largest_timestamp(15)) == (5, 9002)
    assert carried_out(bench.log().search_largest_timestamp(5)) is None, "not committed yet, and nothing else is told"
    assert carried_out(bench.restart().search_largest_timestamp(15)) == (5, 9002)


def test_the_largest_timestamp_is_looked_for_at_and_above_the_log_start(bench, batch):
    """Also inside a segment, and inside a batch: what lies below can't be read (Kafka gives it all the same)."""
    bench.settings["log.segment.bytes"] = "300"
    for at in (9000, 5000, 7000, 1000, 2000):
        bench.append(batch(3, time_ms=at))
    log = bench.log()
    assert [segment.base_offset for segment in log.segments] == [0, 6, 12]
    found = {}
    for start in (0, 2, 3, 7, 8, 9, 12, 14):
        log.advance_log_start(start)
        found[start] = carried_out(log.search_largest_timestamp(15))
    assert found == {
        0: (2, 9002),
        2: (2, 9002),
        3: (8, 7002),
        7: (8, 7002),
        8: (8, 7002),
        9: (14, 2002),
        12: (14, 2002),
        14: (14, 2002),
    }
    log.advance_log_start(15)
    assert carried_out(log.search_largest_timestamp(15)) is None


def test_a_truncation_removes_whole_batches_and_index_entries(bench, batch):
    """UnifiedLog.truncateTo: a batch that contains the target is removed completely; the end becomes the target."""
    size = len(batch(4))
    bench.settings.update({"log.segment.bytes": str(2 * size), "log.index.interval.bytes": "0"})
    for _ in range(5):
        bench.append(batch(4))
    log = bench.log()
    log.truncate_to(14)
    assert log.log_end_offset == 14
    assert [header.base_offset for header in everything(log)] == [0, 4, 8]
    assert bench.files(".log") == [f"{offset:020d}.log" for offset in (0, 8)]
    assert len(log.segments[-1].index) == 0
    bench.append(batch(4))
    assert [header.base_offset for header in everything(log)] == [0, 4, 8, 14]
    log.truncate_to(8)
    assert log.log_end_offset == 8
    assert [header.base_offset for header in everything(log)] == [0, 4]
    assert log.truncate_to(100) is log.producer_state
    assert log.log_end_offset == 8


def test_positions_that_readers_left_are_forgotten_by_a_truncation(bench, batch):
    for _ in range(4):
        bench.append(batch(2))
    log = bench.log()
    for offset in (2, 4, 6):
        log.read(0, offset, 1 << 20, at_least_one_batch=True)
    log.truncate_to(2)
    for _ in range(6):
        bench.append(batch(1, value=b"longer than before"))
    for offset in range(2, 8):
        data = log.read(offset, 8, 1 << 20, at_least_one_batch=True)
        assert [header.base_offset for header in iterate_headers(data)] == list(range(offset, 8))


def test_positions_behind_a_gap_are_forgotten_by_a_truncation_too(bench, batch):
    """A truncation into a batch leaves a gap at the log's end; another one, into the gap, removes no batch."""
    bench.append(batch(10))
    bench.append(batch(10))
    log = bench.log()
    log.truncate_to(15)
    log.read(0, 15, 1 << 20, at_least_one_batch=True)
    log.truncate_to(12)
    for _ in range(3):
        bench.append(batch(3))
    data = log.read(15, 21, 1 << 20, at_least_one_batch=True)
    assert [header.base_offset for header in iterate_headers(data)] == [15, 18]


def test_a_truncated_time_index_stays_truncated_on_disk(bench, batch):
    """A clean stop must not bring back the times of records that were truncated."""
    bench.settings["log.index.interval.bytes"] = "0"
    for at in range(5):
        bench.append(batch(1, time_ms=1000 * at))
    bench.log().truncate_to(3)
    bench.append(batch(1, time_ms=2500))
    log = bench.restart()
    assert log.segments[0].time_index.entries() == [(1000, 1), (2000, 2), (2500, 3)]
    assert carried_out(log.search_by_time(2100, 4)) == (3, 2500)
    assert carried_out(log.search_by_time(2501, 4)) is None


def test_snapshots_above_a_truncation_are_removed(bench, batch):
    """They hold producers whose batches were truncated, at offsets that others hold now."""
    bench.settings["log.segment.bytes"] = "400"
    for at in range(6):
        bench.append(batch(2, producer_id=7, sequence=2 * at))
    assert bench.files(".snapshot")
    log = bench.log()
    log.truncate_to(0)
    log.settings = replace(log.settings, segment_bytes=1_000_000)
    for at in range(8):
        bench.append(batch(2, producer_id=8, sequence=2 * at))
    assert [entry.producer_id for entry in bench.log().truncate_to(14).entries()] == [8]
    assert [entry.producer_id for entry in bench.restart(clean=False).producer_state.entries()] == [8]


def test_a_truncation_below_the_first_segment_empties_the_log(bench, batch):
    log = bench.log()
    log.truncate_fully(100)
    bench.append(batch(4))
    log.truncate_to(50)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (50, 50, 0)
    assert bench.files(".log") == ["00000000000000000050.log"]
    assert bench.files(".index") == ["00000000000000000050.index"]


def test_a_truncation_lowers_the_recovery_point_and_writes_it_at_once(bench, batch):
    """LogManager.truncateTo."""
    for _ in range(3):
        bench.append(batch(2))
    log = bench.log()
    log.flush()
    assert log.recovery_point == 6
    log.truncate_to(2)
    assert log.recovery_point == 2
    assert (bench.directory / "recovery-point-offset-checkpoint").read_text() == "0\n1\norders 0 2\n"


def test_the_producer_state_follows_appends_and_truncations(bench, batch):
    """Rule 2: rebuilt from the snapshot at the segment's base, and the batches after it."""
    bench.settings["log.segment.bytes"] = str(2 * len(batch(2, producer_id=7, sequence=0)))
    for at in range(5):
        bench.append(batch(2, producer_id=7, sequence=2 * at))
    log = bench.log()
    (entry,) = log.producer_state.entries()
    assert [span.last_offset for span in entry.batches] == [1, 3, 5, 7, 9]
    state = log.truncate_to(8)
    assert state is log.producer_state
    (entry,) = state.entries()
    assert [span.last_offset for span in entry.batches] == [7], "of the snapshot at 8"
    (entry,) = log.truncate_to(6).entries()
    assert list(entry.batches)[-1] == BatchSpan(4, 5, 5, 1, 1_700_000_000_001)
    assert log.truncate_to(0).entries() == []


def test_a_truncation_that_touches_no_kept_batch_leaves_the_state(bench, batch):
    bench.append(batch(2, producer_id=7, sequence=0))
    bench.append(batch(2))
    before = bench.log().producer_state
    assert bench.log().truncate_to(2) is before


def test_flushing_moves_the_recovery_point(bench, batch):
    """Rolled segments are synced later; the recovery point follows (UnifiedLog.roll)."""
    size = len(batch(2))
    disk = bench.disk = SyncedDisk()
    bench.settings["log.segment.bytes"] = str(2 * size)
    log = bench.log()
    assert not log.is_dirty
    for _ in range(5):
        bench.append(batch(2))
    assert log.recovery_point == 0
    assert log.is_dirty
    assert bench.manager is not None
    bench.manager.flush_dirty()
    assert log.recovery_point == 8
    assert not log.is_dirty
    assert [disk.synced_length(segment.path) for segment in log.segments] == [2 * size, 2 * size, 0]
    log.flush()
    assert log.recovery_point == 10
    assert disk.synced_length(log.segments[-1].path) == size


def test_flush_messages_bounds_what_is_not_on_disk(bench, batch):
    bench.settings["log.flush.interval.messages"] = "4"
    bench.append(batch(3))
    assert bench.log().recovery_point == 0
    bench.append(batch(1))
    assert bench.log().recovery_point == 4


def test_flush_ms_bounds_how_long_records_are_not_on_disk(bench, batch):
    bench.settings["log.flush.interval.ms"] = "1000"
    log = bench.log()
    bench.append(batch(2))
    bench.now_ms += 999
    bench.manager.flush_due()
    assert log.recovery_point == 0
    bench.now_ms += 1
    bench.manager.flush_due()
    assert log.recovery_point == 2
    bench.append(batch(1))
    bench.manager.flush_due()
    assert log.recovery_point == 2, "the time begins anew with each flush"


def test_a_truncation_while_a_pool_thread_flushes_is_not_forgotten(bench, batch, monkeypatch):
    """The synced bytes have been truncated: the recovery point must not jump above the new end."""
    bench.append(batch(10))
    log = bench.log()
    sync = LogSegment.sync

    def cut_then_sync(segment):
        log.truncate_to(0)
        bench.append(batch(1))
        sync(segment)

    monkeypatch.setattr(LogSegment, "sync", cut_then_sync)
    log.flush()
    assert log.recovery_point == 0
    assert log.log_end_offset == 1


def test_a_flush_that_begins_in_the_middle_of_a_truncation_does_not_know_the_old_end(bench, batch):
    """The recovery point must not jump above the new end: records appended there would count as synced."""
    syncing, truncated = threading.Event(), threading.Event()

    class Held(Disk):
        def truncate(self, path: Path, size_bytes: int) -> None:
            if path.suffix == ".log":
                flusher.start()
                assert syncing.wait(10)
            super().truncate(path, size_bytes)

        def sync(self, path: Path) -> None:
            syncing.set()
            assert truncated.wait(10)
            super().sync(path)

    bench.disk = Held()
    bench.append(batch(10))
    bench.append(batch(10))
    log = bench.log()
    flusher = threading.Thread(target=log.flush)
    log.truncate_to(10)
    truncated.set()
    flusher.join()
    assert (log.recovery_point, log.log_end_offset) == (0, 10)
    log.flush()
    assert log.recovery_point == 10


def test_epochs_that_need_no_sync_are_written_with_the_next_flush(bench):
    """KAFKA-16541: no half-written epoch file may ever be all that a power loss leaves."""
    disk = bench.disk = SyncedDisk()
    log = bench.log()
    path = bench.partition_directory / "leader-epoch-checkpoint"
    log.write_epochs([EpochEntry(0, 0)], sync=True)
    assert not log.is_dirty
    log.write_epochs([EpochEntry(0, 0), EpochEntry(1, 5)], sync=False)
    assert log.is_dirty
    assert path.read_text() == "0\n1\n0 0\n"
    log.flush_rolled()
    assert path.read_text() == "0\n2\n0 0\n1 5\n"
    assert disk.synced_length(path) == path.stat().st_size
    log.write_epochs([EpochEntry(0, 0)], sync=False)
    log.write_epochs([EpochEntry(2, 0)], sync=True)
    assert not log.is_dirty


def test_a_flush_in_progress_writes_no_epochs_into_the_log_of_a_new_topic(bench, batch):
    """The topic is deleted and made again while a pool thread syncs; its epochs begin at 0 again.

    With them on the disk the replica would find its log beyond its leader's, at the next start.
    """

    class Meanwhile(Disk):
        def sync(self, path: Path) -> None:
            super().sync(path)
            if bench.log() is log:
                bench.manager.delete(bench.name)
                bench.append(batch(1), epoch=0)
                bench.log().write_epochs([EpochEntry(0, 0)], sync=True)

    bench.disk = Meanwhile()
    log = bench.log()
    bench.append(batch(1), epoch=7)
    log.write_epochs([EpochEntry(7, 0)], sync=False)
    log.flush()
    assert bench.restart(clean=False).epochs == [EpochEntry(0, 0)]


def test_a_disk_that_refuses_takes_the_directory_offline(bench, batch, monkeypatch):
    """KAFKA_STORAGE_ERROR, and nothing of the append stays."""
    bench.append(batch(2))
    log = bench.log()

    def refuse(descriptor, parts):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched, pytest.raises(StorageError, match="No space left on device"):
        patched.setattr("tidegauge_broker.log.files.os.writev", refuse)
        bench.append(batch(2))
    assert log.log_end_offset == 2
    for attempt in (
        lambda: bench.append(batch(2)),
        lambda: log.read(0, 2, 100, at_least_one_batch=True),
        lambda: log.truncate_to(0),
        lambda: log.write_epochs([], sync=True),
    ):
        with pytest.raises(StorageError, match="offline"):
            attempt()
    assert bench.manager is not None
    assert bench.manager.logs[bench.name].log_directory.offline


def test_a_half_written_append_is_truncated(bench, batch, monkeypatch):
    """files, rule 1: a file grows by whole appends or not at all."""
    bench.append(batch(2))
    log, writev = bench.log(), os.writev

    def half(descriptor, parts):
        writev(descriptor, [bytes(parts[0])[:30]])
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patched, pytest.raises(StorageError):
        patched.setattr("tidegauge_broker.log.files.os.writev", half)
        bench.append(batch(2))
    assert log.segments[0].path.stat().st_size == log.size_bytes == len(batch(2))


def test_a_short_write_is_completed(bench, batch, monkeypatch):
    writev = os.writev
    with monkeypatch.context() as patched:
        patched.setattr("tidegauge_broker.log.files.os.writev", lambda fd, parts: writev(fd, [bytes(parts[0])[:7]]))
        bench.append(batch(2))
    assert [header.base_offset for header in everything(bench.log())] == [0]
    data = bench.log().read(0, 2, 1 << 20, at_least_one_batch=True)
    assert crc_matches(data, read_header(data))


def test_a_segment_is_rolled_when_an_offset_does_not_fit_31_bits_above_its_base(bench, batch):
    """LogSegment.canConvertToRelativeOffset: the indexes hold 32 bits; a compacted leader may have such gaps."""
    log = bench.log()
    last = 2**31 - 1
    for base_offset in (0, last, last + 1):
        data = bytearray(batch(1))
        patch(data, 0, base_offset, 0)
        log.append_as_follower(bytes(data), list(iterate_headers(data)))
    assert bench.files(".log") == [f"{offset:020d}.log" for offset in (0, last + 1)]
    assert [header.base_offset for header in everything(bench.restart(clean=False))] == [0, last, last + 1]


def test_a_closed_log_has_no_open_files(bench, batch):
    """Each segment's files are closed, not the active one's alone."""
    bench.settings["log.segment.bytes"] = "100"
    log = bench.log()
    for _ in range(3):
        bench.append(batch(1))
    everything(log)
    bench.stop()
    descriptors = Path("/proc/self/fd")
    names = [str(one.readlink()) for one in descriptors.iterdir() if one.is_symlink()]
    assert not [name for name in names if str(log.directory) in name]
