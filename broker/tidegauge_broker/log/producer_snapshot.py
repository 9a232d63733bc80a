"""``<offset>.snapshot``: the producer state of a partition as of an offset, in Kafka's version 1.

Layout (big endian; Kafka's ProducerStateManager.writeSnapshot)::

    0 version i16 = 1 | 2 crc u32, CRC-32C of byte 6 to the end | 6 count i32 | 10 entries of 46 bytes:
    producerId i64 | epoch i16 | lastSequence i32 | lastOffset i64 | offsetDelta i32 | timestamp i64
    coordinatorEpoch i32 | currentTxnFirstOffset i64

Rules:
    1. Only the newest batch of a producer is stored, as in Kafka: after a restart an older retry is out of order.
    2. A file that is truncated, or whose CRC is wrong, is corrupt: it is removed and an older one is taken.
    3. The coordinator epoch is that of the last marker, -1 without one; the first offset that of the open transaction,
       -1 if none is open. So loading opens it again; a completed one that is not replicated yet is not in the file.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable
from pathlib import Path

from tidegauge.checksum import crc32c
from tidegauge.record_batch import MAX_SEQUENCE
from tidegauge_broker.log.files import DISK, Disk
from tidegauge_broker.log.segment import file_name
from tidegauge_broker.replica.producer_state import BatchSpan, ProducerEntry

SNAPSHOT_SUFFIX = ".snapshot"
VERSION = 1
NONE = -1

_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")

_logger = logging.getLogger(__name__)


class CorruptSnapshot(Exception):
    """A snapshot file cannot be used; the text says why."""


def snapshot_path(directory: Path, offset: int) -> Path:
    """Where the snapshot of an offset stands."""
    return directory / (file_name(offset) + SNAPSHOT_SUFFIX)


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """Return the bytes of a snapshot file."""
    rows = []
    for entry in entries:
        newest = entry.batches[-1] if entry.batches else BatchSpan(NONE, NONE, NONE, 0, NONE)
        rows.append(
            _ENTRY.pack(
                entry.producer_id,
                entry.producer_epoch,
                newest.last_sequence,
                newest.last_offset,
                newest.offset_delta,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                NONE if entry.transaction_start is None else entry.transaction_start,
            )
        )
    body = _COUNT.pack(len(rows)) + b"".join(rows)
    return _HEAD.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """Return the entries of a snapshot file.

    Raises:
        CorruptSnapshot: version, length or CRC is wrong.
    """
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptSnapshot(f"{len(data)} bytes are too few")
    version, crc = _HEAD.unpack_from(data)
    if version != VERSION:
        raise CorruptSnapshot(f"version {version}, expected {VERSION}")
    body = memoryview(data)[_HEAD.size :]
    if crc32c(body) != crc:
        raise CorruptSnapshot("the stored CRC does not match the content")
    (count,) = _COUNT.unpack_from(body)
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptSnapshot(f"{len(body)} bytes do not hold {count} entries")
    return [_entry(row) for row in _ENTRY.iter_unpack(body[_COUNT.size :])]


def _entry(row: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, coordinator_epoch, start = row
    entry = ProducerEntry(
        producer_id,
        epoch,
        last_timestamp_ms=timestamp_ms,
        coordinator_epoch=coordinator_epoch,
        transaction_start=start if start >= 0 else None,
    )
    if last_offset >= 0:
        first_sequence = _decrement_sequence(last_sequence, offset_delta)
        entry.batches.append(BatchSpan(first_sequence, last_sequence, last_offset, offset_delta, timestamp_ms))
    return entry


def _decrement_sequence(sequence: int, by: int) -> int:
    """Inverse of ``increment_sequence``: before 0 stands 2147483647 (DefaultRecordBatch.decrementSequence)."""
    if sequence < by:
        return MAX_SEQUENCE - (by - sequence) + 1
    return sequence - by


def write_snapshot(
    directory: Path, offset: int, entries: Iterable[ProducerEntry], *, sync: bool, disk: Disk = DISK
) -> Path:
    """Write the state as of an offset."""
    path = snapshot_path(directory, offset)
    disk.replace(path, encode_snapshot(entries), sync=sync)
    return path


def snapshot_offsets(directory: Path) -> list[int]:
    """Offsets of the snapshots of a partition, rising."""
    stems = (path.name.removesuffix(SNAPSHOT_SUFFIX) for path in directory.glob("*" + SNAPSHOT_SUFFIX))
    return sorted(int(stem) for stem in stems if stem.isdecimal())


def newest_snapshot(
    directory: Path, log_start_offset: int, end_offset: int, disk: Disk = DISK
) -> tuple[int, list[ProducerEntry]] | None:
    """Return the newest sound snapshot above the log start and not above ``end_offset``; corrupt ones are removed."""
    for offset in reversed(snapshot_offsets(directory)):
        if not log_start_offset < offset <= end_offset:
            continue
        path = snapshot_path(directory, offset)
        try:
            return offset, decode_snapshot(path.read_bytes())
        except CorruptSnapshot as problem:
            _logger.warning("Failed to load producer snapshot %s: %s; it is removed", path, problem)
            disk.remove(path)
    return None


def remove_snapshots(directory: Path, *, above: int, up_to: int = -1, disk: Disk = DISK) -> None:
    """Remove the snapshots above an offset, whose records were truncated, and those up to the log's start."""
    for offset in snapshot_offsets(directory):
        if offset > above or offset <= up_to:
            disk.remove(snapshot_path(directory, offset))


def remove_stray_snapshots(directory: Path, segment_offsets: Iterable[int], disk: Disk = DISK) -> None:
    """Keep the snapshots at a segment's base, and the newest of the others if it is newer than those."""
    kept = set(segment_offsets)
    stray = [offset for offset in snapshot_offsets(directory) if offset not in kept]
    if stray and stray[-1] > max(kept, default=-1):
        del stray[-1]
    for offset in stray:
        disk.remove(snapshot_path(directory, offset))
