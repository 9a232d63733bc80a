"""Every change of a broker's files goes through a ``Disk``; I/O errors become ``StorageError``.

Contract: methods raise OSError; ``PartitionLog`` and ``LogManager`` turn it into ``StorageError`` and take the
log directory offline, because after a failed write or fsync the disk's content is unknown. Reads need no Disk. The
lab and the crash tests put another Disk in its place (``synced_disk.py``, ``lab_disk.py``), so no code
bypasses it.

Rules:
    1. A write that stops half-way is truncated again, so that a file grows by whole appends or not at all.
    2. A file that is replaced is written to ``<name>.tmp``, synced, renamed, and its directory is synced: a reader
       sees the old content or the new one (Kafka's ``CheckpointFile.write`` and ``Utils.atomicMoveWithFallback``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError

Buffer = bytes | bytearray | memoryview
TEMPORARY_SUFFIX = ".tmp"
SYNCED_LENGTHS_FILE = ".synced-lengths"
"""The file with the lengths that the lab's Disk would keep at a power loss (``synced_disk.py``)."""


class StorageError(TidegaugeError):
    """KAFKA_STORAGE_ERROR: a log directory failed, and is offline from now on."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


class Disk:
    """The file system as it is. Stateless, so that one serves all log directories and threads."""

    def begin(self, directory: Path) -> None:
        """Start to use a log directory that has been locked; drop what a lab's Disk noted of it before."""
        self.remove(directory / SYNCED_LENGTHS_FILE)

    def end(self) -> None:
        """Stop using the log directory."""

    def open(self, path: Path) -> int:
        """Open a file to read and append, and return its descriptor; OSError if there is none."""
        return os.open(path, os.O_RDWR | os.O_APPEND)

    def create(self, path: Path) -> int:
        """Create or empty a file to read and append, and return its descriptor."""
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC, 0o644)

    def append(self, descriptor: int, parts: Sequence[Buffer], size_bytes: int, end_position: int) -> None:
        """Append the parts at the end of a file that is ``end_position`` bytes long.

        Raises:
            OSError: the disk refused; the file has been truncated to ``end_position`` as far as the disk allows.
        """
        try:
            written = os.writev(descriptor, parts)
            if written < size_bytes:
                rest = memoryview(b"".join(parts))
                while written < size_bytes:
                    written += os.write(descriptor, rest[written:])
        except OSError:
            with suppress(OSError):
                os.ftruncate(descriptor, end_position)
            raise

    def truncate(self, path: Path, size_bytes: int) -> None:
        """Truncate a file."""
        os.truncate(path, size_bytes)

    def sync(self, path: Path) -> None:
        """Sync a file's bytes, also those that other code wrote.

        The file is opened again: a pool thread may sync it while the event loop closes its own descriptor.
        """
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self._fsync(descriptor)
        finally:
            os.close(descriptor)

    def _fsync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def sync_directory(self, path: Path) -> None:
        """Sync a directory's entries (created, renamed, removed files) to the disk."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        """Replace a file's content; with ``sync`` it is on disk when this returns.

        Only one writer at a time may replace the same file: the temporary name is fixed, as in Kafka.
        """
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        descriptor = self.create(temporary)
        try:
            self.append(descriptor, (data,), len(data), 0)
            if sync:
                self._fsync(descriptor)
        finally:
            os.close(descriptor)
        self.rename(temporary, path)
        if sync:
            self.sync_directory(path.parent)

    def rename(self, path: Path, to: Path) -> None:
        """Rename a file or a directory; a file of that name is replaced."""
        path.replace(to)

    def remove(self, path: Path) -> None:
        """Remove a file, if it is there."""
        path.unlink(missing_ok=True)

    def remove_directory(self, path: Path) -> None:
        """Remove a directory with all that is in it; OSError if it does not exist."""
        shutil.rmtree(path)


DISK = Disk()
