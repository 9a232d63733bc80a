"""Where recovery begins, and the producer snapshots that it needs and leaves (UnifiedLog, LogLoader)."""

from __future__ import annotations

import pytest

from tidegauge_broker.log import producer_snapshot, recovery
from tidegauge_broker.log.files import DISK
from tidegauge_broker.log.synced_disk import SyncedDisk, restore_synced


def recovery_points(bench):
    return (bench.directory / "recovery-point-offset-checkpoint").read_text()


def log_starts(bench):
    return (bench.directory / "log-start-offset-checkpoint").read_text()


def snapshots(bench):
    return producer_snapshot.snapshot_offsets(bench.partition_directory)


def fill(bench, batch, segments):
    """Segments of two batches, of two records each; the last has only one batch."""
    bench.settings["log.segment.bytes"] = str(2 * len(batch(2, producer_id=7, sequence=0)))
    for at in range(2 * segments - 1):
        bench.append(batch(2, producer_id=7, sequence=2 * at))


# The recovery point


def test_the_recovery_point_moves_with_the_log_start(bench, batch):
    """UnifiedLog.updateLogStartOffset: DeleteRecords, and a follower that takes its leader's log start."""
    for _ in range(3):
        bench.append(batch(2))
    log = bench.log()
    log.advance_log_start(3)
    assert log.recovery_point == 3
    log.flush()
    log.advance_log_start(5)
    assert log.recovery_point == 6, "it never goes back"


def test_the_recovery_point_moves_with_the_log_start_that_retention_moves(bench, batch):
    bench.settings["log.retention.bytes"] = "1"
    fill(bench, batch, 3)
    assert bench.log().delete_old_segments(10, 0)
    assert bench.log().log_start_offset == bench.log().recovery_point > 0


def test_a_log_that_is_loaded_has_no_recovery_point_below_its_start(bench, batch):
    for _ in range(3):
        bench.append(batch(2))
    bench.log().advance_log_start(5)
    bench.manager.write_log_start_offsets()
    (bench.directory / "recovery-point-offset-checkpoint").unlink()
    log = bench.restart(clean=False)
    assert (log.log_start_offset, log.recovery_point) == (5, 5)


def test_a_truncation_below_the_log_start_lowers_the_recovery_point_too(bench, batch):
    for _ in range(3):
        bench.append(batch(2))
    log = bench.log()
    log.advance_log_start(5)
    log.truncate_to(2)
    assert (log.log_start_offset, log.recovery_point) == (2, 2)


def test_the_log_start_that_took_the_recovery_point_along_is_written_before_it(bench, batch):
    """Else a log could begin, after a power loss, below records that are never checked."""
    for _ in range(3):
        bench.append(batch(2))
    bench.log().advance_log_start(5)
    bench.manager.write_recovery_points()
    assert recovery_points(bench) == "0\n1\norders 0 5\n"
    assert log_starts(bench) == "0\n1\norders 0 5\n"


def test_what_the_log_start_took_along_is_still_synced(bench, batch):
    """The recovery point says that there is nothing to recover, not that it is on the disk."""
    disk = bench.disk = SyncedDisk()
    fill(bench, batch, 3)
    log = bench.log()
    log.advance_log_start(log.log_end_offset)
    assert log.recovery_point == log.log_end_offset
    assert log.is_dirty
    bench.manager.flush_dirty()
    assert not log.is_dirty
    rolled = log.segments[:-1]
    assert rolled
    assert [disk.synced_length(segment.path) for segment in rolled] == [segment.size_bytes for segment in rolled]
    log.flush()
    assert disk.synced_length(log.segments[-1].path) == log.segments[-1].size_bytes


@pytest.mark.parametrize("to_offset", [3, 5, 10])
def test_a_power_loss_after_records_were_deleted_leaves_a_log_without_holes(bench, batch, to_offset):
    bench.disk = SyncedDisk()
    fill(bench, batch, 3)
    bench.log().advance_log_start(to_offset)
    bench.manager.write_recovery_points()
    bench.stop(clean=False)
    restore_synced(bench.directory)
    log = bench.log()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (to_offset, to_offset, 0)


# Snapshots of producers


def test_recovery_leaves_a_snapshot_at_each_scanned_segment_and_at_the_end(bench, batch):
    """LogLoader.recoverSegment and UnifiedLog.rebuildProducerState take them."""
    fill(bench, batch, 4)
    assert snapshots(bench) == [4, 8, 12]
    bench.stop(clean=False)
    for path in bench.partition_directory.glob("*.snapshot"):
        path.unlink()
    log = bench.log()
    assert snapshots(bench) == [4, 8, 12, 14]
    state = log.producer_state.entries()
    assert [span.last_offset for span in state[0].batches] == [5, 7, 9, 11, 13]
    for at in (4, 8, 12, 14):
        found = producer_snapshot.newest_snapshot(bench.partition_directory, 0, at, DISK)
        assert found is not None
        assert found[0] == at
        assert [entry.batches[-1].last_offset for entry in found[1]] == [at - 1]


def test_a_log_without_records_and_one_that_was_stopped_get_no_snapshot_when_they_are_loaded(bench, batch):
    bench.log()
    bench.restart(clean=False)
    assert snapshots(bench) == []
    bench.append(batch(2, producer_id=7, sequence=0))
    bench.stop()
    assert snapshots(bench) == [2]
    before = (bench.partition_directory / f"{2:020d}.snapshot").stat().st_mtime_ns
    bench.log()
    assert snapshots(bench) == [2]
    assert (bench.partition_directory / f"{2:020d}.snapshot").stat().st_mtime_ns == before


def test_snapshots_above_the_first_segment_that_is_scanned_are_not_trusted(bench, batch):
    """They may tell of batches that a power loss took."""
    fill(bench, batch, 3)
    bench.stop(clean=False)
    producer_snapshot.write_snapshot(bench.partition_directory, 8, [], sync=False)
    log = bench.log()
    assert [span.last_offset for span in log.producer_state.entries()[0].batches] == [1, 3, 5, 7, 9]


def test_recovery_begins_at_the_snapshot_of_the_segment_with_the_recovery_point(bench, batch, monkeypatch):
    """Batches before it need not be read again."""
    fill(bench, batch, 4)
    bench.log().flush_rolled()
    bench.manager.write_recovery_points()
    bench.stop(clean=False)
    read = []
    replay = recovery._replay
    monkeypatch.setattr(
        recovery,
        "_replay",
        lambda state, segment, at: read.append(segment.base_offset) or replay(state, segment, at),
    )
    bench.log()
    assert read == [12]
    assert snapshots(bench) == [4, 8, 12, 14]


def test_after_two_kills_the_last_five_batches_are_still_known(bench, batch):
    """A snapshot keeps one batch of a producer; recovery reads the scanned segments, not the end's snapshot."""
    for at in range(6):
        bench.append(batch(2, producer_id=7, sequence=2 * at))
    bench.restart(clean=False)
    assert snapshots(bench) == [12]
    (entry,) = bench.restart(clean=False).producer_state.entries()
    assert [span.last_offset for span in entry.batches] == [3, 5, 7, 9, 11]


def test_recovery_knows_the_producers_of_a_scanned_segment_below_the_log_start_too(bench, batch):
    """LogSegment.recover reads the segment from its beginning."""
    bench.append(batch(2, producer_id=7, sequence=0))
    bench.append(batch(2, producer_id=8, sequence=0))
    bench.log().advance_log_start(3)
    bench.manager.write_log_start_offsets()
    log = bench.restart(clean=False)
    assert sorted(entry.producer_id for entry in log.producer_state.entries()) == [7, 8]


def test_a_snapshot_of_recovery_has_idle_producers_that_the_log_forgets(bench, batch):
    """Kafka drops who is idle when it reads a snapshot, not when it writes one."""
    bench.settings["producer.id.expiration.ms"] = "1000"
    bench.append(batch(2, producer_id=7, sequence=0))
    bench.now_ms += 5000
    assert bench.restart(clean=False).producer_state.entries() == []
    found = producer_snapshot.newest_snapshot(bench.partition_directory, 0, 2, DISK)
    assert found is not None
    assert [entry.producer_id for entry in found[1]] == [7]
    bench.append(batch(2, producer_id=8, sequence=0, time_ms=bench.now_ms))
    bench.stop(clean=False)
    log = bench.log()
    assert [entry.producer_id for entry in log.producer_state.entries()] == [8]


def test_snapshots_of_recovery_are_synced_with_the_first_flush(bench, batch):
    """Not before: thousands of logs that were recovered must not keep the disk busy."""
    disk = bench.disk = SyncedDisk()
    bench.append(batch(2, producer_id=7, sequence=0))
    log = bench.restart(clean=False)
    path = producer_snapshot.snapshot_path(bench.partition_directory, 2)
    assert disk.synced_length(path) == 0
    assert not log.is_dirty
    log.flush()
    assert disk.synced_length(path) == path.stat().st_size


def test_a_snapshot_up_to_the_log_start_goes(bench, batch):
    """ProducerStateManager.truncateAndReload."""
    fill(bench, batch, 3)
    bench.log().advance_log_start(4)
    bench.restart()
    assert snapshots(bench) == [8, 10]


def test_a_truncation_leaves_a_snapshot_at_the_new_end(bench, batch):
    """UnifiedLog.truncateTo rebuilds the producer state, which ends with a snapshot."""
    for at in range(3):
        bench.append(batch(2, producer_id=7, sequence=2 * at))
    bench.append(batch(2))
    log = bench.log()
    log.truncate_to(6)
    assert snapshots(bench) == [6], "though no producer lost a batch"
    log.truncate_to(4)
    assert snapshots(bench) == [4]
