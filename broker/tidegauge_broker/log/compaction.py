"""Compaction: which log, which part of it, and what of each batch stays (LogCleanerManager, Cleaner; KIP-58, KIP-354).

Rules:
    1. A log is clean below its cleaner checkpoint. Above it, it may be cleaned up to the first segment that is the
       active one, holds the last stable offset or something above it, or has a record younger than
       min.compaction.lag.ms.
    2. It is worth cleaning when the share of bytes to be cleaned exceeds min.cleanable.dirty.ratio, or when a segment
       above the checkpoint began more than max.compaction.lag.ms ago. The dirtiest log is cleaned first.
    3. Of each key the record with the largest offset stays; the offsets of records never change. Records without a
       key are removed. Records above the mapped part stay as they are.
    4. A tombstone (null value) stays until delete.retention.ms after the compaction that first met it; that time is
       written into its batch.
    5. Each idempotent producer's last batch stays, if need be empty: it holds the producer's sequence.
    6. The batch that ends the part that could be cleaned stays, if need be empty: else a replica that fetches the log
       from its beginning would never reach the log end offset (KAFKA-17076). The next compaction removes it. Of other
       batches nothing is left, and of a segment without records an empty file.
    7. Data of aborted transactions go, and markers after them (``cleaned_transactions.py``): the compaction that first
       finds a marker without data stamps the delete horizon on it, as on a tombstone. A marker that is the last thing
       known of a producer stays, if need be empty: it holds the producer's epoch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tidegauge.record_batch import BatchHeader, Buffer
from tidegauge_broker.formats.records import decode_records
from tidegauge_broker.log.log_state import LogSettings
from tidegauge_broker.log.rewrite import empty_batch, rewrite_batch
from tidegauge_broker.log.segment import MAX_RELATIVE_OFFSET, LogSegment

_SLOT_BYTES = 24
"""Size of an entry in Kafka's map: an MD5 and an offset. It decides how many keys fit in the buffer."""
_LOAD_FACTOR = 0.9


@dataclass(frozen=True, slots=True)
class CleanablePart:
    """The part of a log that could be cleaned now."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """Share of the bytes that are to be cleaned."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_worth_it(self, min_dirty_ratio: float) -> bool:
        """Rule 2."""
        return self.cleanable_bytes > 0 and (self.is_overdue or self.dirty_ratio > min_dirty_ratio)


def cleanable_part(
    segments: Sequence[LogSegment],
    settings: LogSettings,
    *,
    first_dirty_offset: int,
    last_stable_offset: int,
    now_ms: int,
) -> CleanablePart:
    """Rules 1 and 2; ``first_dirty_offset`` lies within the log.

    Raises:
        OSError: the disk refused.
    """
    rolled = segments[:-1]
    first_dirty = _floor(segments, first_dirty_offset)
    limit = min(last_stable_offset, segments[-1].base_offset)
    if settings.min_compaction_lag_ms > 0:
        youngest_ms = now_ms - settings.min_compaction_lag_ms
        for segment in rolled[first_dirty:]:
            if segment.retention_ms > youngest_ms:
                limit = min(limit, segment.base_offset)
                break
    end = min(_floor(segments, limit), len(rolled))
    is_overdue = False
    if settings.max_compaction_lag_ms > 0:
        oldest_ms = now_ms - settings.max_compaction_lag_ms
        is_overdue = any(0 < segment.first_timestamp_ms < oldest_ms for segment in rolled[first_dirty:])
    return CleanablePart(
        first_dirty_offset=first_dirty_offset,
        first_uncleanable_offset=segments[end].base_offset,
        clean_bytes=sum(segment.size_bytes for segment in segments if segment.base_offset < first_dirty_offset),
        cleanable_bytes=sum(segment.size_bytes for segment in segments[min(first_dirty, end) : end]),
        is_overdue=is_overdue,
    )


def _floor(segments: Sequence[LogSegment], offset: int) -> int:
    """Index of the segment that holds, or would hold, an offset."""
    at = 0
    while at + 1 < len(segments) and segments[at + 1].base_offset <= offset:
        at += 1
    return at


def group_by_size(segments: Sequence[LogSegment], settings: LogSettings, end_offset: int) -> list[list[LogSegment]]:
    """Segments that together give one new segment: not larger than a segment and its indexes may be.

    Raises:
        OSError: the disk refused.
    """
    if not segments:
        return []
    groups: list[list[LogSegment]] = []
    size_bytes = index_bytes = time_index_bytes = 0
    ends = [*(segment.base_offset for segment in segments[1:]), end_offset]
    for segment, end in zip(segments, ends, strict=True):
        sizes = tuple(path.stat().st_size for path in segment.paths[:3])
        size_bytes, index_bytes, time_index_bytes = (
            size_bytes + sizes[0],
            index_bytes + sizes[1],
            time_index_bytes + sizes[2],
        )
        if (
            groups
            and size_bytes <= settings.segment_bytes
            and max(index_bytes, time_index_bytes) <= settings.segment_index_bytes
            and (segment.size_bytes == 0 or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size_bytes, index_bytes, time_index_bytes = sizes
    return groups


@dataclass(slots=True)
class OffsetMap:
    """The largest offset of each key in the part that is cleaned.

    Attributes:
        capacity: maximum number of keys.
        end_offset: all below it, from the first dirty offset on, has been mapped.
    """

    capacity: int
    end_offset: int
    _offsets: dict[bytes, int] = field(default_factory=dict)

    @classmethod
    def of_size(cls, buffer_bytes: int, first_dirty_offset: int) -> OffsetMap:
        """Make a map as large as Kafka's in a buffer of this size."""
        return cls(int(buffer_bytes // _SLOT_BYTES * _LOAD_FACTOR), first_dirty_offset)

    def add_batch(
        self, batch: bytes, header: BatchHeader, first_dirty_offset: int, *, is_aborted: bool = False
    ) -> bool:
        """Map a batch's keys; False when they do not fit any more: then the batch does not count as mapped."""
        if not header.is_control and not is_aborted:
            for record in decode_records(batch):
                if record.key is None or record.offset < first_dirty_offset:
                    continue
                if len(self._offsets) >= self.capacity:
                    return False
                self._offsets[_digest(record.key)] = record.offset
        self.end_offset = max(self.end_offset, header.next_offset)
        return True

    def latest(self, key: bytes) -> int:
        """Return the largest offset of a key; -1 if it was not met."""
        return self._offsets.get(_digest(key), -1)


def _digest(key: bytes) -> bytes:
    return hashlib.md5(key, usedforsecurity=False).digest()


@dataclass(frozen=True, slots=True)
class Retention:
    """Decides which records and batches stay during one compaction.

    Attributes:
        last_offsets: the last data offset of each producer that is known and has one, by producer id.
        delete_retention_ms: how long a tombstone, or a marker without data, stays after it was first met.
        marker_epochs: the epochs of the producers of which a marker alone is known, by producer id.
        round_end_offset: the end of the part that could be cleaned (rule 6); -1 keeps no batch for its sake.
    """

    offsets: OffsetMap
    last_offsets: Mapping[int, int]
    delete_retention_ms: int
    now_ms: int
    marker_epochs: Mapping[int, int] = field(default_factory=dict)
    round_end_offset: int = -1

    def filter_marker(self, batch: bytes, header: BatchHeader, *, may_go: bool) -> bytes:
        """Return what compaction keeps of a control batch: rule 7.

        Args:
            batch: its bytes.
            header: its header.
            may_go: whether nothing is left of its transaction.
        """
        if not may_go or header.base_offset >= self.offsets.end_offset:
            return batch
        if header.record_count:
            horizon_ms = header.delete_horizon_ms
            if horizon_ms is None:
                return rewrite_batch(header, list(decode_records(batch)), self.now_ms + self.delete_retention_ms)
            if self.now_ms < horizon_ms:
                return batch
        keeps_epoch = self.marker_epochs.get(header.producer_id) == header.producer_epoch
        return self._without_records(header, is_needed=keeps_epoch)

    def filter_batch(self, batch: bytes, header: BatchHeader, *, is_aborted: bool = False) -> bytes:
        """Return a compacted batch: itself, a smaller one, a header, or nothing.

        Args:
            batch: its bytes.
            header: its header.
            is_aborted: whether its transaction was aborted (rule 7).
        """
        if header.base_offset >= self.offsets.end_offset:
            return batch
        horizon_ms = header.delete_horizon_ms
        records = [] if is_aborted else list(decode_records(batch))
        kept = [record for record in records if self._stays(record.offset, record.key, record.value, horizon_ms)]
        if not kept:
            keeps_producer = self.last_offsets.get(header.producer_id) == header.last_offset
            return self._without_records(header, is_needed=keeps_producer)
        if horizon_ms is None and any(record.value is None for record in kept):
            return rewrite_batch(header, kept, self.now_ms + self.delete_retention_ms)
        return batch if len(kept) == len(records) else rewrite_batch(header, kept, horizon_ms)

    def _without_records(self, header: BatchHeader, *, is_needed: bool) -> bytes:
        """Return a batch without records: its header if a rule keeps it."""
        return empty_batch(header) if is_needed or header.next_offset == self.round_end_offset else b""

    def _stays(self, offset: int, key: bytes | None, value: Buffer | None, horizon_ms: int | None) -> bool:
        if offset >= self.offsets.end_offset:
            return True
        if key is None:
            return False
        if offset < self.offsets.latest(key):
            return False
        return value is not None or horizon_ms is None or self.now_ms < horizon_ms
