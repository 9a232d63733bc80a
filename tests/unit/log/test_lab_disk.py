"""Disks that are slow or fail on demand: the directory goes offline, and acknowledged records are there afterwards."""

from __future__ import annotations

import errno

import pytest

from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.lab_disk import DiskFault, DiskFaults, LabDisk


@pytest.fixture
def waited():
    return []


@pytest.fixture
def faults(waited):
    return DiskFaults(waited.append)


@pytest.fixture
def lab_bench(bench, faults):
    bench.disk = LabDisk(faults)
    return bench


@pytest.mark.parametrize(("name", "words"), [("ENOSPC", "No space left on device"), ("EIO", "Input/output error")])
def test_an_append_that_fails_takes_the_directory_offline_and_loses_nothing(lab_bench, batch, faults, name, words):
    """A full disk writes half of a batch; nothing of it may stay."""
    lab_bench.append(batch(2))
    size = lab_bench.log().size_bytes
    fault = DiskFault("append", ".log", errno_name=name)
    faults.add(fault)
    with pytest.raises(StorageError, match=words):
        lab_bench.append(batch(5))
    assert lab_bench.manager.offline_directories == [lab_bench.directory]
    faults.remove(fault)
    with pytest.raises(StorageError, match="already offline"):
        lab_bench.append(batch(1))
    log = lab_bench.restart(clean=False)
    assert (log.log_end_offset, log.size_bytes) == (2, size)


@pytest.mark.parametrize(
    ("operation", "act"),
    [
        ("sync", lambda bench: bench.log().flush()),
        ("truncate", lambda bench: bench.log().truncate_to(1)),
        ("replace", lambda bench: bench.manager.write_recovery_points()),
        ("replace", lambda bench: bench.log().write_epochs([], sync=True)),
        ("rename", lambda bench: bench.manager.delete(bench.name)),
        ("rename", lambda bench: bench.log().truncate_fully(0)),
    ],
)
def test_any_operation_that_fails_takes_the_directory_offline(lab_bench, batch, faults, operation, act):
    for _ in range(3):
        lab_bench.append(batch(1))
    faults.add(DiskFault(operation, errno_name="EIO"))
    with pytest.raises(StorageError):
        act(lab_bench)
    assert lab_bench.manager.offline_directories == [lab_bench.directory]
    for fault in faults.in_force:
        faults.remove(fault)
    assert lab_bench.restart(clean=False).log_end_offset in {0, 1, 3}


def test_a_slow_disk_only_takes_longer(lab_bench, batch, faults, waited):
    lab_bench.log()
    faults.add(DiskFault("append", delay_ms=250))
    lab_bench.append(batch(1))
    assert waited == [0.25]
    assert lab_bench.log().log_end_offset == 1


def test_only_the_files_named_are_met_and_only_as_often_as_set(faults, tmp_path):
    fault = DiskFault(path_contains="orders-1", errno_name="EIO", skip=1, times=2)
    faults.add(fault)
    met = [faults.meet("sync", tmp_path / f"orders-{at}") is not None for at in (0, 1, 1, 0, 1, 1)]
    assert met == [False, False, True, False, True, False]
    assert fault.met == 2
    assert fault in faults.in_force


def test_the_error_is_the_one_named(faults, tmp_path):
    faults.add(DiskFault(errno_name="ENOSPC"))
    failure = faults.meet("rename", tmp_path)
    assert failure is not None
    assert failure.errno == errno.ENOSPC


@pytest.mark.parametrize("fault", [DiskFault("write"), DiskFault(errno_name="ENOTHING")])
def test_unknown_words_are_refused(faults, fault):
    with pytest.raises(ValueError, match="is no"):
        faults.add(fault)


def test_a_slow_disk_still_notes_what_is_synced(lab_bench, batch):
    lab_bench.append(batch(2))
    path = lab_bench.log().segments[0].path
    lab_bench.log().flush()
    lab_bench.append(batch(2))
    assert 0 < lab_bench.disk.synced_length(path) < path.stat().st_size
