"""A Disk for the lab and tests that keeps, for every file, the length last fsynced: what a loss of power leaves.

Contract: ``SyncedDisk`` behaves as ``Disk``. Beside that it notes each file's synced length in ``.synced-lengths`` of
the log directory, so that the note survives a SIGKILL of the broker. ``restore_synced`` truncates all files of a
directory that no process uses to these lengths, as if the power had failed at the moment when the broker ended
(``start --after-power-cut``, docs/faults.md). It is one rule for logs, indexes, checkpoints and snapshots alike.

Rules:
    1. A new or emptied file has length 0. A sync notes the length that the file had when the sync began. A truncation
       lowers the noted length. Files go by their inode: so a rename takes the length along, and a replaced file has the
       length of its new content (0, if that was not synced).
    2. Files that are there when a directory is used for the first time with such a Disk count as synced; so do all if
       a broker without one has used it in between (``Disk.begin`` removes the note). A restart with one keeps
       the note: what a kill left unsynced is still unsynced.
    3. Names are taken as durable at once: created files stay (empty), renamed and removed ones stay so.

The note is a row of 16-byte entries, inode and length, of which the last one of an inode holds.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.log.checkpoints import LOCK_FILE
from tidegauge_broker.log.files import SYNCED_LENGTHS_FILE, TEMPORARY_SUFFIX, Disk

_ENTRY = struct.Struct(">QQ")
_REWRITE_ENTRIES = 65_536
_NOT_RESTORED = (LOCK_FILE, SYNCED_LENGTHS_FILE, SYNCED_LENGTHS_FILE + TEMPORARY_SUFFIX)


class SyncedDisk(Disk):
    """The file system, with the length last synced of each file; one for each log directory."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lengths: dict[int, int] = {}
        self._truncations: dict[int, int] = {}
        self._directory = Path()
        self._note = -1
        self._entries = 0

    def begin(self, directory: Path) -> None:
        """Take up the record of the last run, or begin one; operations in progress in this process continue."""
        if self._note >= 0 and directory == self._directory:
            return
        self._directory = directory
        known = _read_note(directory) or {}
        statuses = [path.stat() for path in _files(directory)]
        self._lengths = {one.st_ino: min(known.get(one.st_ino, one.st_size), one.st_size) for one in statuses}
        with self._lock:
            self._truncations = {}
            self._rewrite()

    def end(self) -> None:
        """Keep the note as it is."""
        with self._lock:
            if self._note >= 0:
                os.close(self._note)
                self._note = -1

    def synced_length(self, path: Path) -> int:
        """Return the length of a file that a loss of power would leave."""
        return self._lengths.get(path.stat().st_ino, 0)

    # Changes

    def create(self, path: Path) -> int:
        """Create a file, noted with length 0."""
        descriptor = super().create(path)
        with self._lock:
            inode = os.fstat(descriptor).st_ino
            self._truncations[inode] = self._truncations.get(inode, 0) + 1
            self._set(inode, 0)
        return descriptor

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Truncate a file; that lowers the noted length."""
        super().truncate(path, size_bytes)
        with self._lock:
            inode = path.stat().st_ino
            self._truncations[inode] = self._truncations.get(inode, 0) + 1
            if self._lengths.get(inode, 0) > size_bytes:
                self._set(inode, size_bytes)

    def _fsync(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        inode = status.st_ino
        with self._lock:
            truncations = self._truncations.get(inode, 0)
        super()._fsync(descriptor)
        with self._lock:
            # After a truncation in the meantime it is unknown which bytes the sync has covered.
            if self._truncations.get(inode, 0) == truncations:
                self._set(inode, status.st_size)

    # The note

    def _set(self, inode: int, length: int) -> None:
        if self._lengths.get(inode) == length:
            return
        self._lengths[inode] = length
        if self._note < 0:
            return
        os.write(self._note, _ENTRY.pack(inode, length))
        self._entries += 1
        if self._entries > _REWRITE_ENTRIES:
            self._rewrite()

    def _rewrite(self) -> None:
        """Rewrite the note, with one entry for each file. (Entries of removed files are dropped at the next start.)"""
        path = self._directory / SYNCED_LENGTHS_FILE
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        temporary.write_bytes(b"".join(_ENTRY.pack(*item) for item in self._lengths.items()))
        temporary.replace(path)
        if self._note >= 0:
            os.close(self._note)
        self._note = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._entries = 0


def restore_synced(directory: Path) -> dict[Path, tuple[int, int]]:
    """Truncate every file of a log directory to the length last synced, as a loss of power would have.

    Args:
        directory: a log directory (an entry of log.dirs) that a broker with ``lab.enable=true`` has used, and that no
            process uses now.

    Returns:
        The files that were truncated, each with its size before and after.

    Raises:
        TidegaugeError: KAFKA_STORAGE_ERROR: a process uses the directory, it has no note, or it can't be changed.
    """
    try:
        lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        lengths = _read_note(directory)
        if lengths is None:
            raise TidegaugeError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"There is no record of syncs in {directory}: its broker ran without lab.enable=true",
            )
        return _truncate_files(directory, lengths)
    except BlockingIOError:
        raise TidegaugeError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"A broker process is using {directory}; kill it first"
        ) from None
    except OSError as error:
        raise TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, f"{directory} cannot be changed: {error}") from None
    finally:
        os.close(lock)


def _truncate_files(directory: Path, lengths: dict[int, int]) -> dict[Path, tuple[int, int]]:
    truncated: dict[Path, tuple[int, int]] = {}
    for path in _files(directory):
        status = path.stat()
        length = min(lengths.get(status.st_ino, status.st_size), status.st_size)
        if length < status.st_size:
            os.truncate(path, length)
            truncated[path] = (status.st_size, length)
    return truncated


def _read_note(directory: Path) -> dict[int, int] | None:
    try:
        data = (directory / SYNCED_LENGTHS_FILE).read_bytes()
    except FileNotFoundError:
        return None
    return dict(_ENTRY.iter_unpack(data[: len(data) - len(data) % _ENTRY.size]))


def _files(directory: Path) -> Iterator[Path]:
    """Yield all files of a log directory, but its lock and the note."""
    for path in directory.rglob("*"):
        if path.is_file() and path.name not in _NOT_RESTORED:
            yield path
