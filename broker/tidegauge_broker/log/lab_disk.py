"""The lab's Disk: records syncs (``SyncedDisk``), and is slow or fails on request.

Contract: all log directories of a broker share one ``DiskFaults``; its owner adds and removes faults at any time, from
any thread. A fault meets operations before they happen; a delay passes in the thread that asked, so a slow append
holds up the event loop - and with it the whole broker, as a disk that hangs in ``write`` does.

Rules:
    1. ``append`` with ENOSPC writes half of its bytes first, which ``Disk.append`` truncates again: a full disk.
    2. ``replace`` is one operation; the steps it is made of are not met one by one.
    3. After a failure the log directory is offline until the process restarts, whether the fault is removed or not
       (LogDirFailureChannel, KafkaStorageException); faults do not outlive the process.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tidegauge.faults.table import DISK_OPERATIONS
from tidegauge.near_names import did_you_mean
from tidegauge_broker.log.files import Buffer
from tidegauge_broker.log.synced_disk import SyncedDisk

_UNKNOWN_FILE = Path()


@dataclass(slots=True, eq=False)
class DiskFault:
    """A disk's fault for the operations it meets: they take ``delay_ms`` longer, or fail with an errno.

    Attributes:
        operation: one of DISK_OPERATIONS; empty for each of them.
        path_contains: only files whose path contains this.
        delay_ms: how much longer.
        errno_name: ``EIO``, ``ENOSPC``, ...; empty for none.
        skip: number of operations that pass first.
        times: maximum number of operations met; 0 for no limit.
        met: number of operations met so far.
    """

    operation: str = ""
    path_contains: str = ""
    delay_ms: int = 0
    errno_name: str = ""
    skip: int = 0
    times: int = 0
    met: int = 0
    passed: int = 0


class DiskFaults:
    """The faults in force on a broker's disks."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep) -> None:
        self._sleep = sleep
        self._lock = threading.Lock()
        self._faults: list[DiskFault] = []

    def add(self, fault: DiskFault) -> None:
        """Put a fault in force.

        Raises:
            ValueError: its operation or its errno does not exist.
        """
        if fault.operation and fault.operation not in DISK_OPERATIONS:
            raise ValueError(f"{fault.operation} is no operation of a disk; there are {', '.join(DISK_OPERATIONS)}")
        if fault.errno_name and not isinstance(getattr(errno, fault.errno_name, None), int):
            hint = did_you_mean(fault.errno_name, errno.errorcode.values())
            raise ValueError(f"{fault.errno_name} is no error of the operating system{hint}")
        with self._lock:
            self._faults.append(fault)

    def remove(self, fault: DiskFault) -> None:
        """End a fault; nothing happens if it was not in force."""
        with self._lock, suppress(ValueError):
            self._faults.remove(fault)

    @property
    def in_force(self) -> Sequence[DiskFault]:
        """All that were added and not removed; a used-up one is among them."""
        with self._lock:
            return list(self._faults)

    @property
    def are_in_force(self) -> bool:
        """Whether there is any fault."""
        return bool(self._faults)

    def meet(self, operation: str, path: Path) -> OSError | None:
        """Apply the faults to an operation: wait out their delays, and return the error, if one fails it."""
        met: list[DiskFault] = []
        with self._lock:
            for fault in self._faults:
                if fault.operation not in {"", operation} or fault.path_contains not in str(path):
                    continue
                if fault.passed < fault.skip:
                    fault.passed += 1
                elif not fault.times or fault.met < fault.times:
                    fault.met += 1
                    met.append(fault)
        for fault in met:
            if fault.delay_ms:
                self._sleep(fault.delay_ms / 1000)
        name = next((fault.errno_name for fault in met if fault.errno_name), "")
        if not name:
            return None
        number = int(getattr(errno, name))
        return OSError(number, os.strerror(number))


class LabDisk(SyncedDisk):
    """A Disk that is slow or fails on request (module docstring)."""

    def __init__(self, faults: DiskFaults) -> None:
        super().__init__()
        self._faults = faults
        self._paths: dict[int, Path] = {}
        self._replacing = threading.local()

    def _meet(self, operation: str, path: Path) -> None:
        if getattr(self._replacing, "now", False):
            return
        failure = self._faults.meet(operation, path)
        if failure is not None:
            raise failure

    def open(self, path: Path) -> int:
        """Remember which file the descriptor belongs to."""
        descriptor = super().open(path)
        self._paths[descriptor] = path
        return descriptor

    def create(self, path: Path) -> int:
        """Remember the new file's descriptor."""
        descriptor = super().create(path)
        self._paths[descriptor] = path
        return descriptor

    def append(self, descriptor: int, parts: Sequence[Buffer], size_bytes: int, end_position: int) -> None:
        """Apply rule 1."""
        if not self._faults.are_in_force:  # each append of a broker with the lab comes through here
            SyncedDisk.append(self, descriptor, parts, size_bytes, end_position)
            return
        try:
            self._meet("append", self._paths.get(descriptor, _UNKNOWN_FILE))
        except OSError as failure:
            if failure.errno == errno.ENOSPC:
                os.write(descriptor, b"".join(parts)[: size_bytes // 2])
                os.ftruncate(descriptor, end_position)
            raise
        super().append(descriptor, parts, size_bytes, end_position)

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Met as ``truncate``."""
        self._meet("truncate", path)
        super().truncate(path, size_bytes)

    def sync(self, path: Path) -> None:
        """Met as ``sync``."""
        self._meet("sync", path)
        super().sync(path)

    def sync_directory(self, path: Path) -> None:
        """Met as ``sync``."""
        self._meet("sync", path)
        super().sync_directory(path)

    def replace(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Apply rule 2."""
        self._meet("replace", path)
        self._replacing.now = True
        try:
            super().replace(path, data, sync=sync)
        finally:
            self._replacing.now = False

    def rename(self, path: Path, to: Path) -> None:
        """Met as ``rename``."""
        self._meet("rename", path)
        super().rename(path, to)

    def remove(self, path: Path) -> None:
        """Met as ``remove``."""
        self._meet("remove", path)
        super().remove(path)

    def remove_directory(self, path: Path) -> None:
        """Met as ``remove``."""
        self._meet("remove", path)
        super().remove_directory(path)
