"""A power loss leaves exactly the last synced length of every file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge_broker.log.files import DISK
from tidegauge_broker.log.synced_disk import SyncedDisk, restore_synced


def put(disk, path, data):
    descriptor = disk.create(path) if not path.exists() else disk.open(path)
    disk.append(descriptor, (data,), len(data), path.stat().st_size)
    os.close(descriptor)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path


@pytest.fixture
def disk(directory):
    made = SyncedDisk()
    made.begin(directory)
    yield made
    made.end()


def test_what_was_appended_after_the_last_sync_goes(disk, directory):
    path = directory / "a"
    put(disk, path, b"12345")
    disk.sync(path)
    put(disk, path, b"678")
    assert disk.synced_length(path) == 5
    assert restore_synced(directory) == {path: (8, 5)}
    assert path.read_bytes() == b"12345"
    assert restore_synced(directory) == {}


def test_a_file_that_was_never_synced_is_empty_afterwards(disk, directory):
    put(disk, directory / "a", b"123")
    restore_synced(directory)
    assert (directory / "a").read_bytes() == b""


def test_a_truncation_lowers_what_is_synced(disk, directory):
    path = directory / "a"
    put(disk, path, b"12345")
    disk.sync(path)
    disk.truncate(path, 2)
    put(disk, path, b"abcd")
    restore_synced(directory)
    assert path.read_bytes() == b"12"


def test_a_power_loss_during_a_sync_leaves_only_what_was_synced_before(disk, directory, monkeypatch):
    path = directory / "a"
    put(disk, path, b"12345")
    fsync = os.fsync

    def cut_then_sync(descriptor):
        disk.truncate(path, 2)
        put(disk, path, b"abcd")
        fsync(descriptor)

    with monkeypatch.context() as patched:
        patched.setattr("tidegauge_broker.log.files.os.fsync", cut_then_sync)
        disk.sync(path)
    assert disk.synced_length(path) == 0


def test_names_take_their_lengths_along(disk, directory):
    (directory / "t-0").mkdir()
    put(disk, directory / "t-0" / "a", b"123")
    disk.sync(directory / "t-0" / "a")
    disk.rename(directory / "t-0" / "a", directory / "t-0" / "b")
    disk.rename(directory / "t-0", directory / "t-0-delete")
    put(disk, directory / "t-0-delete" / "b", b"4")
    restore_synced(directory)
    assert (directory / "t-0-delete" / "b").read_bytes() == b"123"


def test_a_replaced_file_has_its_new_content_or_nothing(disk, directory):
    disk.replace(directory / "kept", b"old")
    disk.replace(directory / "kept", b"newer")
    disk.replace(directory / "lost", b"old")
    disk.replace(directory / "lost", b"newer", sync=False)
    restore_synced(directory)
    assert (directory / "kept").read_bytes() == b"newer"
    assert (directory / "lost").read_bytes() == b""


def test_an_emptied_file_is_a_new_one(disk, directory):
    path = directory / "a"
    put(disk, path, b"123")
    disk.sync(path)
    os.close(disk.create(path))
    put(disk, path, b"1234")
    restore_synced(directory)
    assert path.read_bytes() == b""


def test_the_note_outlives_its_process_and_a_restart(disk, directory):
    """Rule 2: what a SIGKILL left unsynced is not synced by starting again."""
    path = directory / "a"
    put(disk, path, b"123")
    disk.sync(path)
    put(disk, path, b"45")
    other = SyncedDisk()  # the next process; the first one ended without a word
    other.begin(directory)
    assert other.synced_length(path) == 3
    put(other, path, b"6")
    restore_synced(directory)
    assert path.read_bytes() == b"123"
    other.end()


def test_files_from_before_count_as_synced(directory):
    (directory / "a").write_bytes(b"123")
    disk = SyncedDisk()
    disk.begin(directory)
    put(disk, directory / "a", b"4")
    disk.end()
    restore_synced(directory)
    assert (directory / "a").read_bytes() == b"123"


def test_a_run_that_notes_nothing_makes_the_note_void(disk, directory):
    put(disk, directory / "a", b"123")
    disk.end()
    DISK.begin(directory)
    with pytest.raises(TidegaugeError, match=r"lab\.enable=true"):
        restore_synced(directory)


def test_a_long_note_is_written_again(disk, directory, monkeypatch):
    monkeypatch.setattr("tidegauge_broker.log.synced_disk._REWRITE_ENTRIES", 10)
    for number in range(50):
        disk.replace(directory / f"f{number % 3}", b"x" * (number + 1))
    put(disk, directory / "f0", b"tail")
    assert (directory / ".synced-lengths").stat().st_size <= 70 * 16
    restore_synced(directory)
    assert [(directory / f"f{at}").stat().st_size for at in range(3)] == [49, 50, 48]


def test_a_directory_in_use_is_refused(bench, batch):
    bench.disk = SyncedDisk()
    bench.append(batch(2))
    with pytest.raises(TidegaugeError, match="A broker process is using"):
        restore_synced(bench.directory)


def test_after_a_power_loss_a_log_holds_what_was_synced(bench, batch):
    """Logs, indexes, checkpoints and snapshots alike; a flushed log loses nothing, and no replica fails."""
    bench.disk = SyncedDisk()
    bench.settings |= {"log.segment.bytes": "400", "log.index.interval.bytes": "0"}
    for index in range(6):
        bench.append(batch(3, producer_id=9, sequence=3 * index))
    bench.log().flush()
    bench.manager.write_recovery_points()
    for index in range(6, 10):
        bench.append(batch(3, producer_id=9, sequence=3 * index))
    bench.stop(clean=False)
    cut = restore_synced(bench.directory)
    assert {path.suffix for path in cut} >= {".log", ".index", ".timeindex", ".snapshot"}
    log = bench.log()
    assert log.log_end_offset == 18
    (entry,) = log.producer_state.entries()
    assert entry.batches[-1].last_sequence == 17
    bench.append(batch(3, producer_id=9, sequence=18))
    assert bench.restart().log_end_offset == 21


def test_the_clean_mark_does_not_come_back(bench, batch):
    bench.disk = SyncedDisk()
    bench.append(batch(1))
    bench.restart(clean=True)
    bench.append(batch(1))
    bench.stop(clean=False)
    restore_synced(bench.directory)
    log = bench.log()
    assert not log.log_directory.was_clean
    assert log.log_end_offset == 1
