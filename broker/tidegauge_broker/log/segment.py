"""One segment of a log: batches in a ``.log`` file, with an offset index and a time index beside it.

A segment with markers of aborted transactions has a third, ``transaction_index.py``.

Contract: appends are ``os.writev``, reads ``os.pread``; only batch headers are looked at, never records. All
offsets here are absolute. One thread appends, reads and truncates; another may call ``sync`` at the same time.
Functions raise OSError, and TidegaugeError CORRUPT_MESSAGE where the file holds no sound batch.

Rules (LogSegment.append, shouldRoll and truncateTo):
    1. A batch has an index entry, its last offset and its position, if more than index.interval.bytes were appended
       since the last one: so the first batch of a segment never has one. (Since 3.9.1; before, an append of several
       batches had one entry at most.)
    2. A segment is rolled by size, age (less its own random jitter), a full index, or an offset that does not fit
       in 31 bits above the base.
    3. A truncation removes whole batches, from the first whose last offset is at or above the target.
    4. A batch that compaction left without records counts for no timestamp: neither for the largest one, by which
       searches, retention and the time index go, nor for the first one, by which a segment is rolled. (Kafka counts it,
       so that a search finds the segment, and then nothing in it.)
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, MAGIC, BatchHeader, read_header
from tidegauge.transaction_marker import TransactionMarker, read_marker
from tidegauge_broker.log.files import DISK, Buffer, Disk
from tidegauge_broker.log.index import OffsetIndex, TimeIndex
from tidegauge_broker.log.transaction_index import TRANSACTION_INDEX_SUFFIX, TransactionIndex

LOG_SUFFIX = ".log"
INDEX_SUFFIX = ".index"
TIME_INDEX_SUFFIX = ".timeindex"
DELETED_SUFFIX = ".deleted"
MAX_RELATIVE_OFFSET = 2**31 - 1
NO_TIMESTAMP = -1

_SPAN = struct.Struct(">qi4xb6xi8xq")
"""Base offset, batch length, magic, last offset delta, max timestamp: what a walk over batches needs."""
_logger = logging.getLogger(__name__)
_SCAN_BYTES = 8192
_CURSORS = 64
_UNSOUND_ENTRIES = 8
"""Maximum number of unsound index entries in a row before the index is given up: a damaged batch makes one so."""


def file_name(offset: int) -> str:
    """Return an offset as file names have it: 20 digits."""
    return f"{offset:020d}"


class BatchSpot(NamedTuple):
    """The position of a batch in its file, and the offsets that it covers."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int

    @property
    def has_records(self) -> bool:
        """Whether compaction has left a record in it."""
        return self.size_bytes > HEADER_BYTES


class LogSegment:
    """A segment; see the module. ``size_bytes`` is the length of the ``.log`` file."""

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        index_max_bytes: int,
        created_ms: int,
        disk: Disk = DISK,
        suffix: str = "",
    ) -> None:
        name = file_name(base_offset)
        self.base_offset = base_offset
        self.path = directory / (name + LOG_SUFFIX + suffix)
        self.index = OffsetIndex(directory / (name + INDEX_SUFFIX + suffix), index_max_bytes, disk)
        self.time_index = TimeIndex(directory / (name + TIME_INDEX_SUFFIX + suffix), index_max_bytes, disk)
        self.transaction_index = TransactionIndex(directory / (name + TRANSACTION_INDEX_SUFFIX + suffix), disk)
        self.disk = disk
        self.size_bytes = 0
        self.roll_jitter_ms = 0
        self._created_ms = created_ms
        self._descriptor = -1
        self._bytes_since_index_entry = 0
        self._largest: tuple[int, int] | None = None
        self._roll_from_ms: int | None = None
        self._last_append = (-1, 0)
        self._cursors: dict[int, int] = {}

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        *,
        index_max_bytes: int,
        created_ms: int,
        disk: Disk = DISK,
        suffix: str = "",
    ) -> LogSegment:
        """Create an empty segment; files of that name are emptied."""
        segment = cls(
            directory, base_offset, index_max_bytes=index_max_bytes, created_ms=created_ms, disk=disk, suffix=suffix
        )
        segment._descriptor = disk.create(segment.path)
        segment.index.create()
        segment.time_index.create()
        segment.transaction_index.reset()
        segment._largest = (NO_TIMESTAMP, base_offset)
        return segment

    @classmethod
    def load(
        cls, directory: Path, base_offset: int, *, index_max_bytes: int, created_ms: int, disk: Disk = DISK
    ) -> LogSegment:
        """Load a segment from disk; its file is opened when it is first needed."""
        segment = cls(directory, base_offset, index_max_bytes=index_max_bytes, created_ms=created_ms, disk=disk)
        segment.size_bytes = segment.path.stat().st_size
        return segment

    @property
    def descriptor(self) -> int:
        """The file, open for reading and appending."""
        if self._descriptor < 0:
            self._descriptor = self.disk.open(self.path)
        return self._descriptor

    # Appending

    def append(
        self,
        parts: Sequence[Buffer],
        size_bytes: int,
        headers: Sequence[BatchHeader],
        index_interval_bytes: int,
    ) -> None:
        """Append whole batches, given as buffers that follow each other, and index them."""
        position = self.size_bytes
        last_offset = headers[-1].last_offset
        assert 0 <= last_offset - self.base_offset <= MAX_RELATIVE_OFFSET, f"{self.path}: offset {last_offset}"
        assert headers[0].base_offset >= self.base_offset, f"{self.path}: offset {headers[0].base_offset}"
        largest = self._largest or self.largest_timestamp
        descriptor = self._descriptor if self._descriptor >= 0 else self.descriptor
        self.disk.append(descriptor, parts, size_bytes, position)
        self.size_bytes = position + size_bytes
        if position == 0:
            self._roll_from_ms = largest_timestamp(headers)[0] if headers[0].record_count else None
        self._last_append = (headers[0].base_offset, position)
        for header in headers:
            if header.max_timestamp_ms > largest[0] and header.record_count:
                largest = self._largest = (header.max_timestamp_ms, header.last_offset)
            if self._bytes_since_index_entry > index_interval_bytes and not self.index.is_full:
                self.index.append(header.last_offset - self.base_offset, position)
                self._index_largest_timestamp()
                self._bytes_since_index_entry = 0
            batch_bytes = LENGTH_PREFIX_BYTES + header.batch_length
            position += batch_bytes
            self._bytes_since_index_entry += batch_bytes
        assert position == self.size_bytes, f"{self.path}: the headers do not match the bytes"

    def _index_largest_timestamp(self, *, last: bool = False) -> None:
        timestamp_ms, offset = self.largest_timestamp
        self.time_index.maybe_append(timestamp_ms, offset - self.base_offset, last=last)

    def should_roll(
        self, size_bytes: int, timestamp_ms: int, last_offset: int, now_ms: int, *, max_bytes: int, max_ms: int
    ) -> bool:
        """Whether an append of this size, largest timestamp and last offset must begin a new segment."""
        if self.size_bytes > max_bytes - size_bytes or last_offset - self.base_offset > MAX_RELATIVE_OFFSET:
            return self.size_bytes > 0 or last_offset - self.base_offset > MAX_RELATIVE_OFFSET
        if self.size_bytes == 0:
            return False
        return (
            self._waited_ms(timestamp_ms, now_ms) > max_ms - self.roll_jitter_ms
            or self.index.is_full
            or self.time_index.is_full
        )

    def _waited_ms(self, timestamp_ms: int, now_ms: int) -> int:
        """Age for rolling: from the first append's timestamp to this one's, or since creation without one."""
        first_ms = self.first_timestamp_ms if self._roll_from_ms is None else self._roll_from_ms
        return timestamp_ms - first_ms if first_ms >= 0 else now_ms - self._created_ms

    @property
    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first append of records; -1 if it has none, or there was none."""
        if self._roll_from_ms is None:
            first = next((spot for spot in self._spots_until_damage(0) if spot.has_records), None)
            if first is None:
                return NO_TIMESTAMP
            self._roll_from_ms = first.max_timestamp_ms
        return self._roll_from_ms

    def seal(self) -> None:
        """Write the last time entry, and close the index files: nothing is appended for now."""
        if self.size_bytes:
            self._index_largest_timestamp(last=True)
        self.index.write_out()
        self.time_index.write_out()
        self.index.close()
        self.time_index.close()
        self.transaction_index.close()

    # Walking over batches

    def spots(self, position: int, end: int | None = None) -> Iterator[BatchSpot]:
        """Yield the batches from a position on, which must be the start of one, up to ``end`` or the file's end.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, the bytes are no batch, its offsets do not follow, or it is incomplete.
        """
        end = self.size_bytes if end is None else end
        chunk, start = b"", position
        next_offset = self.base_offset
        while position < end:
            at = position - start
            if at + _SPAN.size > len(chunk):
                chunk, start, at = os.pread(self.descriptor, _SCAN_BYTES, position), position, 0
                if len(chunk) < HEADER_BYTES:
                    raise self._corrupt(position)
            base_offset, length, magic, last_offset_delta, max_timestamp_ms = _SPAN.unpack_from(chunk, at)
            size_bytes = LENGTH_PREFIX_BYTES + length
            if (
                size_bytes < HEADER_BYTES
                or magic != MAGIC
                or last_offset_delta < 0
                or base_offset < next_offset
                or position + size_bytes > self.size_bytes
            ):
                raise self._corrupt(position)
            next_offset = base_offset + last_offset_delta + 1
            yield BatchSpot(position, size_bytes, base_offset, base_offset + last_offset_delta, max_timestamp_ms)
            position += size_bytes

    def _spots_until_damage(self, position: int) -> Iterator[BatchSpot]:
        """Yield the batches up to the first damaged one, for estimates."""
        try:
            yield from self.spots(position)
        except TidegaugeError as problem:
            _logger.warning("%s", problem.message)

    def headers(self, position: int = 0) -> Iterator[BatchHeader]:
        """Whole headers from a position on; their ``position`` is that in the file.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, as ``spots``.
        """
        chunk, start = b"", position
        while position < self.size_bytes:
            at = position - start
            if at + HEADER_BYTES > len(chunk):
                chunk, start, at = os.pread(self.descriptor, _SCAN_BYTES, position), position, 0
            header = read_header(chunk, at)._replace(position=position)
            if position + header.size_bytes > self.size_bytes:
                raise self._corrupt(position)
            yield header
            position += header.size_bytes

    def marker_of(self, header: BatchHeader) -> TransactionMarker | None:
        """Return the marker in a control batch of ``headers``; None if empty.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, as ``read_marker``.
        """
        return read_marker(os.pread(self.descriptor, header.size_bytes, header.position), header.alone())

    def _corrupt(self, position: int) -> TidegaugeError:
        return TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"{self.path} holds no whole batch at byte {position}")

    def position_of(self, offset: int) -> int | None:
        """Return the position of the first batch that reaches ``offset``, or None."""
        if offset == self._last_append[0]:
            return self._last_append[1]
        known = self._cursors.get(offset)
        if known is not None:
            return known if known < self.size_bytes else None
        for spot in self.spots(self._sound_floor(offset)):
            if spot.last_offset >= offset:
                self._remember(offset, spot.position)
                return spot.position
        return None

    def _sound_floor(self, offset: int) -> int:
        """Return the index's position for an offset, checked."""
        return self._sound(self.index.floor(offset - self.base_offset), offset)

    def _sound(self, position: int, offset: int) -> int:
        """Return a checked position from the index; 0 without a sound one.

        A batch that can precede ``offset`` begins there.

        At load only the last entry of an index is looked at, as in Kafka. One that lies would let a reader skip
        records; so an earlier entry is taken: the walk from there finds the offset, or the damage. If several lie, the
        index is emptied, and the segment is searched from its beginning from then on.
        """
        for _ in range(_UNSOUND_ENTRIES):
            if position == 0 or self._begins_batch(position, offset):
                return position
            position = self.index.floor_position(position - 1)
        _logger.warning("%s: the index names byte %d, but no batch begins there; it is emptied", self.path, position)
        self.index.create()
        return 0

    def _begins_batch(self, position: int, offset: int) -> bool:
        """Whether a batch that can come before ``offset``, or holds it, begins at a position."""
        try:
            header = read_header(os.pread(self.descriptor, HEADER_BYTES, position))
        except TidegaugeError:
            return False
        return self.base_offset <= header.base_offset <= offset and position + header.size_bytes <= self.size_bytes

    def _remember(self, offset: int, position: int) -> None:
        """Keep a position, so that a sequential reader need not search."""
        cursors = self._cursors
        if len(cursors) >= _CURSORS and offset not in cursors:
            del cursors[next(iter(cursors))]
        cursors[offset] = position

    def next_offset(self) -> int:
        """Return the offset after the last record, or the base offset."""
        found = self.base_offset
        for spot in self.spots(self._sound(self.index.last_position(), self.base_offset + MAX_RELATIVE_OFFSET)):
            found = spot.last_offset + 1
        return found

    @property
    def largest_timestamp(self) -> tuple[int, int]:
        """The largest timestamp and its batch's last offset; (-1, base offset) if there is none.

        Batches behind a damaged one do not count: neither an append nor retention may fail over it.
        """
        if self._largest is None:
            timestamp_ms, offset = self.time_index.last()
            found = (timestamp_ms, self.base_offset + offset)
            for spot in self._spots_until_damage(self._sound_floor(found[1])):
                if spot.max_timestamp_ms > found[0] and spot.has_records:
                    found = (spot.max_timestamp_ms, spot.last_offset)
            self._largest = found
        return self._largest

    @property
    def retention_ms(self) -> int:
        """The time for retention and min.compaction.lag.ms: the largest timestamp, or the file's time if there is none.

        Source: LogSegment.largestTimestamp.
        """
        timestamp_ms, _ = self.largest_timestamp
        return timestamp_ms if timestamp_ms >= 0 else int(self.path.stat().st_mtime * 1000)

    # Reading

    def read(self, start: int, upper_bound: int, max_bytes: int, *, whole: bool, at_least_one_batch: bool) -> bytes:
        """Whole batches from a position on, those that end below ``upper_bound``.

        Args:
            start: a batch's beginning.
            upper_bound: exclusive; not above the end of this segment.
            max_bytes: limit of the read.
            whole: ``upper_bound`` is the end of this segment, so there is nothing to search.
            at_least_one_batch: the first batch may exceed the limit.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, no sound batch begins at ``start``. If a damaged one follows sound ones,
                those before it are given.
        """
        try:
            bound = None if whole else self.position_of(upper_bound)
        except TidegaugeError:
            bound = self._sound_end(start, upper_bound)
        end = self.size_bytes if bound is None else bound
        if end - start > max_bytes:
            end = self._last_border(start, start + max(max_bytes, 0), at_least_one_batch=at_least_one_batch)
        else:
            self._remember(upper_bound, end)
        if end <= start:
            return b""
        assert 0 <= start < end <= self.size_bytes, f"{self.path}: bytes {start} to {end} of {self.size_bytes}"
        data = os.pread(self.descriptor, end - start, start)
        if len(data) != end - start:
            raise self._corrupt(start)
        return data

    def _last_border(self, start: int, limit: int, *, at_least_one_batch: bool) -> int:
        """Return the last batch border at or before ``limit``, reached from ``start``."""
        border = max(start, self._sound(self.index.floor_position(limit), self.base_offset + MAX_RELATIVE_OFFSET))
        if border > max(start, limit - HEADER_BYTES):
            return border  # no further batch fits
        try:
            for spot in self.spots(border):
                if spot.position + spot.size_bytes > limit and (spot.position > start or not at_least_one_batch):
                    break
                border = spot.position + spot.size_bytes
                self._remember(spot.last_offset + 1, border)
                if border > limit:
                    break
        except TidegaugeError:
            if border == start:
                raise
        return border

    def _sound_end(self, start: int, upper_bound: int) -> int:
        """Return where the sound batches below ``upper_bound`` end, before a damaged one."""
        end = start
        try:
            for spot in self.spots(start):
                if spot.last_offset >= upper_bound:
                    break
                end = spot.position + spot.size_bytes
        except TidegaugeError:
            if end == start:
                raise
        return end

    def from_time(self, timestamp_ms: int, from_offset: int) -> Iterator[BatchSpot]:
        """Yield the batches in order, none left out that may hold a record of this time or later, from an offset on."""
        relative = max(self.time_index.floor(timestamp_ms), from_offset - self.base_offset)
        yield from self.spots(self._sound_floor(self.base_offset + relative))

    def batch_bytes(self, spot: BatchSpot) -> bytes:
        """Return the bytes of one batch."""
        return os.pread(self.descriptor, spot.size_bytes, spot.position)

    # Truncating, syncing, closing

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Remove the batches that reach an offset or lie above it."""
        position = self.position_of(offset)
        self._cursors.clear()
        self.index.truncate_to(offset - self.base_offset)
        self.time_index.truncate_to(offset - self.base_offset)
        self.transaction_index.truncate_to(offset)
        if position is not None:
            self.truncate_file(position)
        if self.size_bytes == 0:
            self._created_ms, self._roll_from_ms = now_ms, None
        self._bytes_since_index_entry = 0

    def truncate_file(self, size_bytes: int) -> None:
        """Truncate the ``.log`` file, and drop its caches."""
        assert 0 <= size_bytes <= self.size_bytes, f"{self.path}: {size_bytes} bytes of {self.size_bytes}"
        self.disk.truncate(self.path, size_bytes)
        self.size_bytes = size_bytes
        self._last_append = (-1, 0)
        self._cursors.clear()
        self._largest = None

    def begin_rebuild(self) -> None:
        """Empty the indexes of offsets and times; recovery writes them again."""
        self.index.create()
        self.time_index.create()
        self._cursors.clear()
        self._largest = (NO_TIMESTAMP, self.base_offset)

    def note_recovered(self, header: BatchHeader, indexed_until: int, index_interval_bytes: int) -> int:
        """Index a batch that recovery found sound; returns the position of the newest index entry."""
        if header.max_timestamp_ms > self.largest_timestamp[0] and header.record_count:
            self._largest = (header.max_timestamp_ms, header.last_offset)
        if header.position - indexed_until <= index_interval_bytes or self.index.is_full:
            return indexed_until
        self.index.append(header.last_offset - self.base_offset, header.position)
        self._index_largest_timestamp()
        return header.position

    def sync(self) -> None:
        """Bring all files to the disk. Safe beside an appending thread: what it adds meanwhile may miss it."""
        self.disk.sync(self.path)
        self.index.sync()
        self.time_index.sync()
        self.transaction_index.sync()

    def close(self) -> None:
        """Let go of all descriptors."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
        self.index.close()
        self.time_index.close()
        self.transaction_index.close()

    @property
    def paths(self) -> tuple[Path, Path, Path, Path]:
        """Its files, the ``.log`` first: indexes without a log are taken for leftovers. The last may not exist."""
        return self.path, self.index.path, self.time_index.path, self.transaction_index.path

    def delete(self) -> None:
        """Close and remove all files."""
        self.close()
        for path in self.paths:
            self.disk.remove(path)

    def rename_files(self, suffix: str) -> None:
        """Give all files another suffix behind their proper one ("": none), in the order of Kafka's LogSegment.

        A file that already has it is left; so what a crash interrupted can be done again.
        """
        names = (
            (self, LOG_SUFFIX),
            (self.index, INDEX_SUFFIX),
            (self.time_index, TIME_INDEX_SUFFIX),
            (self.transaction_index, TRANSACTION_INDEX_SUFFIX),
        )
        for owner, proper in names:
            renamed = owner.path.with_name(file_name(self.base_offset) + proper + suffix)
            if owner.path != renamed and owner.path.exists():
                self.disk.rename(owner.path, renamed)
            owner.path = renamed

    def moved_to(self, directory: Path) -> None:
        """Note that the directory was renamed. Close the segment first; it is opened again when used."""
        for owner in (self, self.index, self.time_index, self.transaction_index):
            owner.path = directory / owner.path.name

    def mark_deleted(self) -> list[Path]:
        """Close, and rename all files to ``.deleted``; returns what they are called now."""
        self.close()
        renamed = []
        for path in self.paths:
            if path.exists():
                renamed.append(path.with_name(path.name + DELETED_SUFFIX))
                self.disk.rename(path, renamed[-1])
        return renamed


def largest_timestamp(headers: Sequence[BatchHeader]) -> tuple[int, int]:
    """Return some batches' largest timestamp, and that batch's last offset.

    Of batches with the same timestamp it is the first.

    Batches without records have none (rule 4).
    """
    if len(headers) == 1 and headers[0].record_count:
        return headers[0].max_timestamp_ms, headers[0].last_offset
    best = max(headers, key=lambda header: header.max_timestamp_ms if header.record_count else NO_TIMESTAMP)
    if not best.record_count:
        return NO_TIMESTAMP, best.last_offset
    return best.max_timestamp_ms, best.last_offset
