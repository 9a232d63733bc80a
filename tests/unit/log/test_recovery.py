"""Loading after a clean stop, and recovery after a kill (LogLoader)."""

import os

import pytest
from tests.unit.log.crash_disk import Crash, Fate, JournalDisk

from tidegauge.record_batch import iterate_headers
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.log import recovery
from tidegauge_broker.log.searching import carried_out
from tidegauge_broker.replica.messages import EpochEntry


def bases(log):
    found, at = [], log.log_start_offset
    while data := log.read(at, log.log_end_offset, 1 << 20, at_least_one_batch=True):
        found += [header.base_offset for header in iterate_headers(data)]
        at = list(iterate_headers(data))[-1].next_offset
    return found


def newest_log(bench):
    return bench.partition_directory / bench.files(".log")[-1]


def test_nothing_is_lost_by_a_kill_of_the_process(bench, batch):
    """Written records are in the page cache; no fsync is needed for that."""
    bench.settings["log.segment.bytes"] = "300"
    for _ in range(7):
        bench.append(batch(2))
    log = bench.restart(clean=False)
    assert bases(log) == [0, 2, 4, 6, 8, 10, 12]
    assert (log.log_end_offset, log.recovery_point) == (14, 0)


def test_after_a_clean_stop_nothing_is_scanned(bench, batch, monkeypatch):
    for _ in range(3):
        bench.append(batch(2))
    bench.stop()
    monkeypatch.setattr(recovery, "scan_segment", lambda *_arguments: pytest.fail("scanned"))
    log = bench.log()
    assert (log.log_end_offset, log.recovery_point, log.topic_id) == (6, 6, "topicidtopicidtopicidt")


@pytest.mark.parametrize("cut_bytes", [1, 40, 75])
def test_a_torn_last_batch_is_truncated(bench, batch, cut_bytes):
    for _ in range(3):
        bench.append(batch(2))
    bench.stop(clean=False)
    path = newest_log(bench)
    size = path.stat().st_size
    os.truncate(path, size - cut_bytes)
    log = bench.log()
    assert bases(log) == [0, 2]
    assert log.log_end_offset == 4
    assert path.stat().st_size == 2 * len(batch(2))
    bench.append(batch(2))
    assert bases(bench.restart(clean=False)) == [0, 2, 4]


@pytest.mark.parametrize("garbage", [b"\0" * 5, b"\0" * 500, b"\xff" * 100])
def test_garbage_at_the_end_is_truncated(bench, batch, garbage):
    """Zeros are what a file system may leave after a power loss."""
    bench.append(batch(2))
    bench.stop(clean=False)
    with newest_log(bench).open("ab") as file:
        file.write(garbage)
    log = bench.log()
    assert (bases(log), log.log_end_offset) == ([0], 2)
    assert newest_log(bench).stat().st_size == len(batch(2))


def test_the_log_ends_at_the_first_bad_batch_and_later_segments_go(bench, batch):
    size = len(batch(2))
    bench.settings["log.segment.bytes"] = str(2 * size)
    for _ in range(6):
        bench.append(batch(2))
    bench.stop(clean=False)
    path = bench.partition_directory / "00000000000000000004.log"
    data = bytearray(path.read_bytes())
    data[size + 70] ^= 1
    path.write_bytes(data)
    log = bench.log()
    assert bases(log) == [0, 2, 4]
    assert log.log_end_offset == 6
    assert bench.files(".log") == [f"{offset:020d}.log" for offset in (0, 4)]
    assert bench.files(".index") == [f"{offset:020d}.index" for offset in (0, 4)]


def test_only_what_lies_above_the_recovery_point_is_scanned(bench, batch, monkeypatch):
    size = len(batch(2))
    bench.settings["log.segment.bytes"] = str(2 * size)
    for _ in range(6):
        bench.append(batch(2))
    manager = bench.open() if bench.manager is None else bench.manager
    manager.flush_dirty()
    manager.write_recovery_points()
    bench.stop(clean=False)
    scanned = []
    scan = recovery.scan_segment

    def note(segment, *arguments, **options):
        scanned.append(segment.base_offset)
        return scan(segment, *arguments, **options)

    monkeypatch.setattr(recovery, "scan_segment", note)
    log = bench.log()
    assert scanned == [8]
    assert (log.log_end_offset, log.recovery_point) == (12, 8)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("damage", ["index", "timeindex", "cut", "preallocated"])
def test_a_missing_or_unsound_index_is_rebuilt(bench, batch, clean, damage):
    bench.settings["log.index.interval.bytes"] = "200"
    for at in range(20):
        bench.append(batch(2, time_ms=1000 * at))
    log = bench.log()
    expected = (log.segments[0].index.entries(), log.segments[0].time_index.entries())
    log.segments[0].index.write_out()
    bench.stop(clean=clean)
    index = bench.partition_directory / "00000000000000000000.index"
    if damage == "index":
        index.unlink()
    elif damage == "timeindex":
        index.with_suffix(".timeindex").unlink()
    elif damage == "cut":
        os.truncate(index, index.stat().st_size - 3)
    else:
        os.truncate(index, 4096)
    log = bench.log()
    assert len(expected[0]) > 3
    assert log.segments[0].index.entries()[0][1] > 0
    assert len(log.segments[0].index.entries()) >= len(expected[0]) - 1
    assert log.segments[0].time_index.entries()[-1] == (19001, 39)
    assert bases(log) == list(range(0, 40, 2))
    assert carried_out(log.search_by_time(7001, 40)) == (15, 7001)


@pytest.mark.parametrize("name", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_corrupt_checkpoint_counts_as_empty(bench, batch, name):
    for _ in range(3):
        bench.append(batch(2))
    bench.stop()
    (bench.directory / name).write_text("garbage\n")
    (bench.directory / ".kafka_cleanshutdown").unlink()
    log = bench.log()
    assert (log.log_start_offset, log.log_end_offset) == (0, 6)
    assert bases(log) == [0, 2, 4]


def test_a_corrupt_high_watermark_checkpoint_counts_as_empty(bench, batch):
    bench.append(batch(4))
    assert bench.manager is not None
    bench.manager.note_high_watermarks({bench.name: 3})
    bench.manager.write_high_watermarks()
    assert bench.manager.loaded(bench.name).high_watermark == 3
    bench.stop()
    (bench.directory / "replication-offset-checkpoint").write_text("0\n7\n")
    bench.log()
    assert bench.manager.loaded(bench.name).high_watermark == 0


def test_the_leader_epochs_of_a_corrupt_checkpoint_come_from_the_batches(bench, batch):
    for epoch in (1, 1, 3):
        bench.append(batch(2), epoch=epoch)
    bench.log().write_epochs([EpochEntry(1, 0), EpochEntry(3, 4)], sync=True)
    bench.stop()
    (bench.partition_directory / "leader-epoch-checkpoint").write_text("?\n")
    assert bench.log().epochs == [EpochEntry(1, 0), EpochEntry(3, 4)]
    assert (bench.partition_directory / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n3 4\n"


def test_recovery_takes_leader_epochs_from_the_batches_it_scans(bench, batch):
    """LogSegment.recover assigns the epochs that the file lacks; those above the end are dropped."""
    bench.append(batch(2), epoch=1)
    bench.append(batch(2), epoch=2)
    bench.log().write_epochs([EpochEntry(1, 0)], sync=True)
    assert bench.restart(clean=False).epochs == [EpochEntry(1, 0), EpochEntry(2, 2)]
    bench.log().write_epochs([EpochEntry(1, 0), EpochEntry(2, 2), EpochEntry(5, 4)], sync=True)
    assert bench.restart(clean=False).epochs == [EpochEntry(1, 0), EpochEntry(2, 2)]


def test_after_an_unclean_shutdown_the_newest_epoch_is_known_though_its_records_are_lost(bench, batch):
    """A process refuses to lead an epoch that the one before it has led (LoadedLog.former_epoch)."""
    bench.append(batch(0), epoch=1)
    bench.log().write_epochs([EpochEntry(1, 0), EpochEntry(5, 1)], sync=True)
    assert bench.restart(clean=False).former_epoch == 5
    assert bench.manager.loaded(bench.name).former_epoch == 5
    bench.log().write_epochs([EpochEntry(1, 0), EpochEntry(6, 1)], sync=True)
    assert bench.restart().former_epoch == -1


@pytest.mark.parametrize("clean", [True, False])
def test_the_producer_state_is_the_same_after_a_restart(bench, batch, clean):
    """From snapshot and batches; a snapshot keeps only the newest batch of a producer, as in Kafka."""
    bench.settings["log.segment.bytes"] = "400"
    for at in range(9):
        bench.append(batch(2, producer_id=5, sequence=2 * at, epoch=1))
        bench.append(batch(1, producer_id=6, sequence=at))
    before = {entry.producer_id: entry for entry in bench.log().producer_state.entries()}
    after = {entry.producer_id: entry for entry in bench.restart(clean=clean).producer_state.entries()}
    assert before.keys() == after.keys() == {5, 6}
    for producer_id, entry in before.items():
        assert after[producer_id].producer_epoch == entry.producer_epoch
        assert after[producer_id].batches[-1] == entry.batches[-1]
        assert after[producer_id].last_timestamp_ms == entry.last_timestamp_ms


def test_a_truncated_log_does_not_keep_the_producers_of_what_was_removed(bench, batch):
    bench.append(batch(2, producer_id=5, sequence=0))
    bench.append(batch(2, producer_id=6, sequence=0))
    bench.stop(clean=False)
    os.truncate(newest_log(bench), newest_log(bench).stat().st_size - 1)
    assert [entry.producer_id for entry in bench.log().producer_state.entries()] == [5]


def test_idle_producers_are_forgotten_at_start(bench, batch):
    bench.settings["producer.id.expiration.ms"] = "1000"
    bench.append(batch(1, producer_id=5, sequence=0))
    bench.now_ms += 1000
    assert bench.restart().producer_state.entries() == []


def test_a_log_that_ends_below_its_start_is_emptied(bench, batch):
    for _ in range(3):
        bench.append(batch(2))
    bench.log().advance_log_start(5)
    assert bench.manager is not None
    bench.manager.write_log_start_offsets()
    assert (bench.directory / "log-start-offset-checkpoint").read_text() == "0\n1\norders 0 5\n"
    assert bench.restart(clean=False).log_start_offset == 5
    bench.stop(clean=False)
    os.truncate(newest_log(bench), len(batch(2)))
    log = bench.log()
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)
    assert bench.files(".log") == ["00000000000000000005.log"]


def test_leftovers_of_unfinished_work_are_removed(bench, batch):
    bench.append(batch(2))
    bench.stop()
    directory = bench.partition_directory
    leftovers = ["00000000000000000009.index", "00000000000000000000.log.deleted", "00000000000000000000.log.cleaned"]
    leftovers.append("leader-epoch-checkpoint.tmp")
    for name in leftovers:
        (directory / name).write_bytes(b"12345678")
    bench.log()
    assert not [name for name in leftovers if (directory / name).exists()]


def test_index_entries_that_a_kill_loses_are_made_again(bench, batch):
    """Entries of the active segment are written together (rule 4 of the indexes); recovery reads that segment whole."""
    bench.settings["log.index.interval.bytes"] = "200"
    for at in range(20):
        bench.append(batch(2, time_ms=1000 * at))
    expected = bench.log().segments[0].index.entries()
    bench.stop(clean=False)
    assert (bench.partition_directory / "00000000000000000000.index").stat().st_size < 8 * len(expected)
    found = bench.log().segments[0].index.entries()
    assert len(found) >= len(expected) - 1
    assert carried_out(bench.log().search_by_time(7001, 40)) == (15, 7001)


def test_a_log_that_was_flushed_to_its_end_needs_no_index_entry_to_be_read(bench, batch):
    """A recovery point at the log end leaves the index as short as the kill left it: reads begin further in front."""
    bench.settings["log.index.interval.bytes"] = "200"
    for at in range(20):
        bench.append(batch(2, time_ms=1000 * at))
    bench.log().flush()
    bench.manager.write_recovery_points()
    bench.stop(clean=False)
    log = bench.log()
    assert bases(log) == list(range(0, 40, 2))
    assert carried_out(log.search_by_time(7001, 40)) == (15, 7001)
    assert log.segments[0].largest_timestamp == (19001, 39)


@pytest.mark.parametrize("synced", [0, 2])
def test_a_segment_that_lost_its_unsynced_end_ends_the_log(bench, batch, tmp_path, synced):
    """A loss of power may leave the segment after it. Offsets that are missing must not lie within the log.

    A replica would never fetch them again, and as a leader it would pass over them. Nor may the segments that recovery
    has removed come back with the next power loss, behind later appends.
    """
    bench.disk = disk = JournalDisk(bench.directory, tmp_path / "attic")
    bench.settings["log.segment.bytes"] = "300"
    bench.log().write_epochs([EpochEntry(0, 0)], sync=True)
    for at in range(4):
        bench.append(batch(2))
        if at + 1 == synced:
            bench.manager.sync(bench.name)
    first, second = bench.log().segments
    bench.stop(clean=False)
    disk.sync_directory(bench.partition_directory)
    os.truncate(first.path, synced * len(batch(2)))
    log = bench.log()
    assert bases(log) == [0, 2][:synced]
    assert log.log_end_offset == 2 * synced
    assert not second.path.exists()
    bench.stop(clean=False)
    disk.lose_power(NoUnsyncedNameStays())
    assert not second.path.exists()


def abort_a_transaction(bench, batch):
    bench.append(batch(1, producer_id=8, sequence=0, transactional=True))
    bench.append(make_marker(TransactionMarker(8, 0, Outcome.ABORT, 0), bench.now_ms))


def aborted_producers(log):
    return [one.producer_id for segment in log.segments for one in segment.transaction_index.entries()]


def starts_killed_at_each_change(bench, disk, prepare):
    """Prepare the files and start, killed before one change of them; yield its number, until a start is whole."""
    changes, is_whole = 0, False
    while not is_whole:
        prepare()
        disk.fate = Fate(changes)
        try:
            bench.open()
            is_whole = True
        except Crash:
            pass
        disk.fate = Fate()
        bench.stop(clean=False)
        yield changes
        changes += 1


class NoUnsyncedByteStays:
    """For ``JournalDisk.lose_power``: files keep their names, and lose their unsynced bytes."""

    def choice(self, options):
        return options[0]

    def randint(self, low, _high):
        return low


class NoUnsyncedNameStays(NoUnsyncedByteStays):
    """All that may be lost is lost."""

    def choice(self, options):
        return options[1]


def test_the_aborted_transactions_that_recovery_lists_survive_a_loss_of_power(bench, batch, tmp_path):
    """The segment ends at the recovery point. When the next one is there, it is not scanned any more."""
    bench.disk = disk = JournalDisk(bench.directory, tmp_path / "attic")
    abort_a_transaction(bench, batch)
    bench.manager.sync(bench.name)
    log = bench.restart(clean=False)
    log._roll(log.log_end_offset)
    bench.append(batch(1))
    bench.stop(clean=False)
    disk.lose_power(NoUnsyncedByteStays())
    log = bench.log()
    assert log.log_end_offset >= 2
    assert aborted_producers(log) == [8]


def test_a_kill_while_indexes_are_built_again_loses_no_aborted_transaction(bench, batch, tmp_path):
    """Of a segment that is not scanned: once its other indexes are there, nothing says that the list is not."""
    bench.disk = disk = JournalDisk(bench.directory, tmp_path / "attic")
    abort_a_transaction(bench, batch)
    log = bench.log()
    log._roll(log.log_end_offset)
    bench.append(batch(1))
    bench.stop()
    index = log.segments[0].index.path
    changes = 0
    for changes in starts_killed_at_each_change(bench, disk, lambda: index.unlink(missing_ok=True)):
        assert aborted_producers(bench.log()) == [8], f"killed at change {changes}"
        bench.stop()
    assert changes >= 10


def test_a_kill_while_a_damaged_log_is_truncated_leaves_no_gap_in_it(bench, batch, tmp_path):
    """Later segments go first: behind a truncated one they would look sound."""
    bench.settings["log.segment.bytes"] = "300"
    bench.disk = disk = JournalDisk(bench.directory, tmp_path / "attic")
    for _ in range(8):
        bench.append(batch(2))
    segments = bench.log().segments
    bench.stop(clean=False)
    files = {path: path.read_bytes() for path in bench.partition_directory.iterdir()}
    files[segments[0].path] = files[segments[0].path][:-1]

    def damage() -> None:
        for path, data in files.items():
            path.write_bytes(data)

    changes = 0
    for changes in starts_killed_at_each_change(bench, disk, damage):
        log = bench.log()
        assert bases(log) == list(range(0, log.log_end_offset, 2)), f"killed at change {changes}"
        bench.stop(clean=False)
    assert changes >= 10
