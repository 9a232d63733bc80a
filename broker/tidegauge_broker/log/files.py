"""Files, durably: write all, sync, replace atomically; and what an I/O error becomes.

Contract: functions here raise OSError; ``PartitionLog`` and ``LogManager`` turn it into ``StorageError`` and take
the folder offline, because after a failed write or fsync nobody knows what the disk holds.

Rules:
    1. A write that stops half-way is cut off again, so that a file grows by whole appends or not at all.
    2. A file that is replaced is written to ``<name>.tmp``, synced, renamed, and its folder is synced: a reader
       sees the old content or the new one (Kafka's ``Utils.atomicMoveWithFallback``; kafka-behaviour 5.1).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError

Buffer = bytes | bytearray | memoryview


class StorageError(TidegaugeError):
    """KAFKA_STORAGE_ERROR: a folder failed, and is offline from now on."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, message)


def append_all(descriptor: int, parts: Sequence[Buffer], size_bytes: int, end_position: int) -> None:
    """Append the parts at the end of a file that is ``end_position`` bytes long.

    Raises:
        OSError: the disk refused; the file has been cut back to ``end_position`` as far as the disk allows.
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


def sync_file(path: Path) -> None:
    """Bring a file's bytes to the disk, whoever wrote them.

    The file is opened anew: a pool thread may sync it while the event loop closes its own descriptor.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_directory(path: Path) -> None:
    """Bring a folder's entries (created, renamed, removed files) to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Replace a file's content; with ``sync`` it is on disk when this returns.

    Only one writer at a time may replace the same file: the temporary name is fixed, as in Kafka.
    """
    temporary = path.with_name(path.name + ".tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        append_all(descriptor, (data,), len(data), 0)
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    temporary.replace(path)
    if sync:
        sync_directory(path.parent)
