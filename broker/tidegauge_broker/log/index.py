"""The two sparse indexes of a segment, held in memory and appended to their files.

``.index``: 8 bytes an entry, relative offset i32 and file position i32. ``.timeindex``: 12 bytes an entry,
timestamp i64 and relative offset i32. Both rise; big endian. Source: Kafka's OffsetIndex and TimeIndex.

Rules:
    1. An offset entry holds the last offset of a batch and its position (up to Kafka 3.9.0: of a set of batches that
       were appended together). So the batch that holds any offset lies at or after the position that ``floor`` gives.
    2. A time entry holds the largest timestamp so far and its batch's last offset; it is written only if both
       grow. Its last slot is kept for the entry that a roll or a close writes.
    3. Kafka preallocates the active segment's indexes and trims them on roll; here the files only ever have the
       length of their entries, which is what a trimmed one looks like. A preallocated file that a crash of
       another broker left is not sound, and is rebuilt.
    4. Entries are written ``WRITTEN_TOGETHER`` at a time, and the rest when the segment is sealed or truncated: a write
       for each would cost a large batch's append more than the batch's own checks. Entries that a kill loses of the
       active segment's indexes are made again by recovery, since it reads that segment as a whole (``recovery.py``).
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import ClassVar

from tidegauge_broker.log.files import DISK, Disk

WRITTEN_TOGETHER = 64
"""Entries that one write brings to an index file."""
_SWAP = sys.byteorder == "little"


class _IndexFile:
    """A file of fixed-size entries that is read once and then only appended to or truncated."""

    ENTRY: ClassVar[struct.Struct]

    def __init__(self, path: Path, max_bytes: int, disk: Disk = DISK) -> None:
        self.path = path
        self._disk = disk
        self.max_entries = max_bytes // self.ENTRY.size
        self._descriptor = -1
        self._loaded = False
        self._unwritten: list[bytes] = []

    def create(self) -> None:
        """Make the file, empty; an existing one is replaced."""
        self._unwritten.clear()
        self.close()
        os.close(self._disk.create(self.path))
        self._fill(b"")
        self._loaded = True

    def _load(self) -> None:
        if not self._loaded:
            data = self.path.read_bytes()
            self._fill(data[: len(data) - len(data) % self.ENTRY.size])
            self._loaded = True

    def _fill(self, data: bytes) -> None:
        raise NotImplementedError

    def _append(self, *entry: int) -> None:
        """Hold an entry, which is in memory already, for the file; rule 4."""
        self._unwritten.append(self.ENTRY.pack(*entry))
        if len(self._unwritten) >= WRITTEN_TOGETHER:
            self.write_out()

    def write_out(self) -> None:
        """Write the entries that only memory has."""
        count = len(self._unwritten)
        if count == 0:
            return
        if self._descriptor < 0:
            self._descriptor = self._disk.open(self.path)
        size = self.ENTRY.size
        assert count <= len(self), f"{self.path}: entries that memory does not have"
        self._disk.append(self._descriptor, (b"".join(self._unwritten),), count * size, (len(self) - count) * size)
        self._unwritten.clear()

    def __len__(self) -> int:
        raise NotImplementedError

    def _truncate_file(self, entries: int) -> None:
        self.write_out()
        self._disk.truncate(self.path, entries * self.ENTRY.size)

    def sync(self) -> None:
        """Bring the entries that have been written to the disk; another thread may append meanwhile."""
        self._disk.sync(self.path)

    def close(self) -> None:
        """Close the descriptor; the index can still be read, and appended to again. Writes nothing (``write_out``)."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OffsetIndex(_IndexFile):
    """Offsets to file positions. All offsets here are relative to the segment's base."""

    ENTRY = struct.Struct(">ii")
    _offsets: array[int]
    _positions: array[int]

    def _fill(self, data: bytes) -> None:
        both = array("i", data)
        if _SWAP:
            both.byteswap()
        self._offsets, self._positions = both[0::2], both[1::2]
        assert len(self._offsets) == len(self._positions), f"{self.path}: part of an entry"

    def __len__(self) -> int:
        self._load()
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether no entry fits any more."""
        if not self._loaded:
            self._load()
        return len(self._offsets) >= self.max_entries

    def entries(self) -> list[tuple[int, int]]:
        """All entries."""
        self._load()
        return list(zip(self._offsets, self._positions, strict=True))

    def floor(self, offset: int) -> int:
        """Position of the entry with the largest offset not above this one; 0 if there is none."""
        self._load()
        at = bisect_right(self._offsets, offset)
        return self._positions[at - 1] if at else 0

    def floor_position(self, position: int) -> int:
        """Return the largest entry position not above this one, or 0."""
        self._load()
        at = bisect_right(self._positions, position)
        return self._positions[at - 1] if at else 0

    def offset_at_or_after(self, position: int) -> int | None:
        """Return the offset of the first entry from a position on.

        None: there is none.

        Source: OffsetIndex.fetchUpperBoundOffset.
        """
        self._load()
        at = bisect_left(self._positions, position)
        return self._offsets[at] if at < len(self._positions) else None

    def last_position(self) -> int:
        """Position of the last entry; 0 if there is none."""
        self._load()
        return self._positions[-1] if self._positions else 0

    def last_offset(self) -> int:
        """Offset of the last entry; -1 if there is none."""
        self._load()
        return self._offsets[-1] if self._offsets else -1

    def append(self, offset: int, position: int) -> None:
        """Add an entry; offsets must rise."""
        if not self._loaded:
            self._load()
        assert not self._offsets or offset > self._offsets[-1], f"{self.path}: {offset} after {self._offsets[-1]}"
        self._offsets.append(offset)
        self._positions.append(position)
        self._append(offset, position)

    def truncate_to(self, offset: int) -> None:
        """Keep only entries below an offset."""
        self._load()
        keep = bisect_left(self._offsets, offset)
        if keep < len(self._offsets):
            self._truncate_file(keep)
            del self._offsets[keep:], self._positions[keep:]

    def is_sound(self, log_bytes: int) -> bool:
        """Whether the file can be one that belongs to a log of this size (reads its last entry only)."""
        size = self.path.stat().st_size
        if size % self.ENTRY.size:
            return False
        if size == 0:
            return True
        offset, position = self.ENTRY.unpack(_tail(self.path, size, self.ENTRY.size))
        return bool(offset > 0 and 0 < position < log_bytes)


class TimeIndex(_IndexFile):
    """Timestamps to offsets (relative to the segment's base)."""

    ENTRY = struct.Struct(">qi")
    _timestamps: array[int]
    _offsets: array[int]

    def _fill(self, data: bytes) -> None:
        self._timestamps, self._offsets = array("q"), array("i")
        for timestamp_ms, offset in self.ENTRY.iter_unpack(data):
            self._timestamps.append(timestamp_ms)
            self._offsets.append(offset)

    def __len__(self) -> int:
        self._load()
        return len(self._offsets)

    @property
    def is_full(self) -> bool:
        """Whether only the slot kept for the last entry is left."""
        if not self._loaded:
            self._load()
        return len(self._offsets) >= self.max_entries - 1

    def entries(self) -> list[tuple[int, int]]:
        """All entries."""
        self._load()
        return list(zip(self._timestamps, self._offsets, strict=True))

    def last(self) -> tuple[int, int]:
        """Return the last entry (timestamp, offset); (-1, 0) if there is none."""
        self._load()
        return (self._timestamps[-1], self._offsets[-1]) if self._offsets else (-1, 0)

    def floor(self, timestamp_ms: int) -> int:
        """Offset of the entry with the largest timestamp not above this one; 0 if there is none."""
        self._load()
        at = bisect_right(self._timestamps, timestamp_ms)
        return self._offsets[at - 1] if at else 0

    def maybe_append(self, timestamp_ms: int, offset: int, *, last: bool = False) -> None:
        """Add an entry if timestamp and offset grow; ``last`` may use the slot that is kept."""
        if not self._loaded:
            self._load()
        offsets = self._offsets
        if offsets and (timestamp_ms <= self._timestamps[-1] or offset < offsets[-1]):
            return
        if timestamp_ms < 0 or len(offsets) >= (self.max_entries if last else self.max_entries - 1):
            return
        self._timestamps.append(timestamp_ms)
        self._offsets.append(offset)
        self._append(timestamp_ms, offset)

    def truncate_to(self, offset: int) -> None:
        """Keep only entries below an offset."""
        self._load()
        keep = bisect_left(self._offsets, offset)
        if keep < len(self._offsets):
            self._truncate_file(keep)
            del self._timestamps[keep:], self._offsets[keep:]

    def is_sound(self) -> bool:
        """Whether the file can be a time index (reads its last entry only)."""
        size = self.path.stat().st_size
        if size % self.ENTRY.size:
            return False
        if size == 0:
            return True
        timestamp_ms, offset = self.ENTRY.unpack(_tail(self.path, size, self.ENTRY.size))
        return bool(timestamp_ms >= 0 and offset >= 0)


def _tail(path: Path, size: int, count: int) -> bytes:
    with path.open("rb") as file:
        file.seek(size - count)
        return file.read(count)
