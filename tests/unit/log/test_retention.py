"""Rolling by time with jitter, and what goes by size, time and log start."""

import os
import threading
from pathlib import Path

import pytest

from tidegauge_broker.log.files import DISK, Disk, StorageError
from tidegauge_broker.log.manager import LogManager

HOUR_MS = 3_600_000


@pytest.fixture
def five_segments(bench, batch):
    """Make five segments with one batch of ten records each, an hour apart; the bench's clock shows the last hour."""
    bench.settings["log.segment.bytes"] = "300"
    for index in range(5):
        bench.append(batch(10, time_ms=bench.now_ms + index * HOUR_MS))
    bench.now_ms += 4 * HOUR_MS
    assert [segment.base_offset for segment in bench.log().segments] == [0, 10, 20, 30, 40]
    return bench


def starts(bench, high_watermark=50):
    found = bench.manager.housekeeping({bench.name: high_watermark})
    return found.get(bench.name)


def reopen_with(bench, **settings):
    bench.settings.update({name.replace("_", "."): str(value) for name, value in settings.items()})
    return bench.restart()


def test_by_time_whole_segments_go_from_the_oldest_on(five_segments):
    log = reopen_with(five_segments, log_retention_ms=int(2.5 * HOUR_MS))
    assert starts(five_segments) == 20
    assert log.log_start_offset == log.segments[0].base_offset == 20
    assert five_segments.files(".log") == [f"{offset:020d}.log" for offset in (20, 30, 40)]
    assert starts(five_segments) is None


def test_the_age_must_be_above_the_limit_not_at_it(five_segments):
    """A segment's age counts from its largest timestamp: 9 ms after its first record's here."""
    reopen_with(five_segments, log_retention_ms=4 * HOUR_MS - 9)
    assert starts(five_segments) is None
    five_segments.now_ms += 1
    assert starts(five_segments) == 10


def test_by_size_what_remains_is_never_below_the_limit(five_segments):
    size = five_segments.log().segments[0].size_bytes
    log = reopen_with(five_segments, log_retention_bytes=3 * size - 1)
    assert starts(five_segments) == 20
    assert log.size_bytes == 3 * size
    reopen_with(five_segments, log_retention_bytes=2 * size)
    assert starts(five_segments) == 30


def test_minus_one_is_unlimited(five_segments):
    reopen_with(five_segments, log_retention_ms=-1, log_retention_bytes=-1)
    five_segments.now_ms *= 2
    assert starts(five_segments) is None


def test_nothing_at_or_above_the_high_watermark_goes(five_segments):
    reopen_with(five_segments, log_retention_ms=1)
    five_segments.now_ms += HOUR_MS
    assert starts(five_segments, high_watermark=29) == 20
    assert starts(five_segments, high_watermark=29) is None


def test_when_all_go_an_empty_segment_at_the_end_is_left(five_segments, batch):
    log = reopen_with(five_segments, log_retention_ms=1)
    five_segments.now_ms += HOUR_MS
    assert starts(five_segments) == 50
    assert [segment.base_offset for segment in log.segments] == [50]
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (50, 50, 0)
    assert starts(five_segments) is None, "the empty active segment stays"
    five_segments.append(batch(3))
    assert log.log_end_offset == 53
    log = five_segments.restart(clean=False)
    assert (log.log_start_offset, log.log_end_offset) == (50, 53)


def test_segments_below_the_log_start_go_whatever_their_age(five_segments):
    log = reopen_with(five_segments, log_retention_ms=-1)
    log.advance_log_start(25)
    assert starts(five_segments) is None, "the log start offset itself does not move"
    assert [segment.base_offset for segment in log.segments] == [20, 30, 40]
    assert log.log_start_offset == 25


def test_a_compacted_log_is_not_aged_by_housekeeping(five_segments):
    """Logs with compact in their policy are the cleaner's (LogManager.cleanupLogs)."""
    log = reopen_with(five_segments, log_retention_ms=1, log_cleanup_policy="compact")
    five_segments.now_ms += HOUR_MS
    log.advance_log_start(25)
    assert starts(five_segments) is None
    assert len(log.segments) == 5


def test_records_without_a_time_age_by_their_file(bench, batch):
    """LogSegment.largestTimestamp falls back to the file's modification time."""
    bench.settings |= {"log.retention.ms": "1000"}
    bench.append(batch(1, time_ms=-1))
    seconds = bench.now_ms / 1000
    os.utime(bench.log().segments[0].path, (seconds, seconds))
    assert starts(bench, high_watermark=1) is None
    bench.now_ms += 1001
    assert starts(bench, high_watermark=1) == 1


def test_files_are_renamed_at_once_and_removed_after_the_delay(five_segments):
    reopen_with(five_segments, log_retention_ms=int(3.5 * HOUR_MS), log_segment_delete_delay_ms=1000)
    assert starts(five_segments) == 10
    names = [f"{0:020d}{suffix}.deleted" for suffix in (".index", ".log", ".timeindex")]
    assert five_segments.files(".deleted") == names
    five_segments.now_ms += 999
    five_segments.manager.remove_deleted()
    assert five_segments.files(".deleted") == names
    five_segments.now_ms += 1
    five_segments.manager.remove_deleted()
    assert five_segments.files(".deleted") == []


def test_the_snapshot_of_a_segment_goes_with_it(five_segments):
    assert f"{10:020d}.snapshot" in five_segments.files(".snapshot")
    reopen_with(five_segments, log_retention_ms=int(2.5 * HOUR_MS))
    starts(five_segments)
    assert f"{10:020d}.snapshot" not in five_segments.files(".snapshot")
    assert f"{30:020d}.snapshot" in five_segments.files(".snapshot")


def test_a_flush_that_meets_a_snapshot_that_goes_with_its_segment_is_no_failure(bench, batch):
    """A pool thread is about to sync it."""
    syncing, removed = threading.Event(), threading.Event()

    class Held(Disk):
        def rename(self, path: Path, to: Path) -> None:
            if to.name.endswith(".log.deleted") and not syncing.is_set():
                flusher.start()
                assert syncing.wait(10)
            super().rename(path, to)

        def sync(self, path: Path) -> None:
            if path.suffix == ".snapshot":
                syncing.set()
                assert removed.wait(10)
            super().sync(path)

    bench.settings |= {"log.segment.bytes": "300", "log.retention.bytes": "0"}
    bench.disk = Held()
    for at in range(3):
        bench.append(batch(10, producer_id=7, sequence=10 * at))
    log = bench.log()
    flusher = threading.Thread(target=log.flush_rolled)
    assert starts(bench, 30) == 30
    removed.set()
    flusher.join()
    assert bench.manager.offline_directories == []


def test_a_restart_removes_what_was_marked(five_segments):
    reopen_with(five_segments, log_retention_ms=int(3.5 * HOUR_MS))
    starts(five_segments)
    log = five_segments.restart(clean=False)
    assert five_segments.files(".deleted") == []
    assert log.log_start_offset == 10


def test_a_truncation_keeps_its_segments_for_the_delay_too(five_segments):
    five_segments.log().truncate_to(25)
    assert five_segments.files(".log.deleted") == [f"{offset:020d}.log.deleted" for offset in (30, 40)]


def test_a_disk_that_refuses_the_rename_takes_its_directory_offline(five_segments, batch, monkeypatch):
    reopen_with(five_segments, log_retention_ms=int(3.5 * HOUR_MS))
    monkeypatch.setattr(type(DISK), "rename", lambda *_: (_ for _ in ()).throw(OSError(5, "Input/output error")))
    assert starts(five_segments) is None
    assert five_segments.manager.offline_directories == [five_segments.directory]
    with pytest.raises(StorageError, match="already offline"):
        five_segments.append(batch(1))


def test_a_roll_comes_earlier_by_the_jitter_of_the_segment(bench, batch, monkeypatch):
    """segment.jitter.ms spreads the rolls of many logs: a random time below it, drawn for each segment."""
    monkeypatch.setattr("tidegauge_broker.log.partition_log.random.randrange", lambda limit: limit - 1)
    bench.settings |= {"log.roll.ms": "1000", "log.roll.jitter.ms": "400", "log.segment.bytes": "100000"}
    log = bench.log()
    log.truncate_fully(0)  # a segment of its own making, not the loader's
    bench.append(batch(1, time_ms=bench.now_ms))
    bench.append(batch(1, time_ms=bench.now_ms + 601))
    assert len(log.segments) == 1
    bench.append(batch(1, time_ms=bench.now_ms + 602))
    assert len(log.segments) == 2


def test_the_jitter_is_at_most_the_age_itself(bench, batch, monkeypatch):
    drawn = []
    monkeypatch.setattr("tidegauge_broker.log.partition_log.random.randrange", lambda n: drawn.append(n) or 0)
    bench.settings |= {"log.roll.ms": "100", "log.roll.jitter.ms": "400"}
    bench.log().truncate_fully(0)
    assert drawn == [100]


def test_a_full_index_begins_a_segment(bench, batch):
    bench.settings |= {"log.index.size.max.bytes": "24", "log.index.interval.bytes": "0"}
    for _ in range(12):
        bench.append(batch(1))
    sizes = [len(segment.index.entries()) for segment in bench.log().segments]
    assert max(sizes) <= 3
    assert len(sizes) > 2


def test_housekeeping_leaves_partitions_alone_that_the_core_does_not_know(five_segments):
    reopen_with(five_segments, log_retention_ms=1)
    five_segments.now_ms += HOUR_MS
    manager: LogManager = five_segments.manager
    assert manager.housekeeping({}) == {}


def test_ages_count_by_the_wall_clock(five_segments):
    """UnifiedLog.deleteRetentionMsBreachedSegments: time.milliseconds() minus the segment's largest timestamp."""
    reopen_with(five_segments, log_retention_ms=10 * HOUR_MS)
    assert starts(five_segments) is None
    five_segments.wall.ahead_ms = 8 * HOUR_MS
    assert starts(five_segments) == 20
    five_segments.wall.ahead_ms = -1000 * HOUR_MS
    assert starts(five_segments) is None
