"""The cleaner: compacts one log at a time, in steps that block and steps that belong to the event loop.

Contract: ``CleanerManager.next_to_clean`` and ``Cleaning.replace`` are the loop's; ``Cleaning.map_keys`` and
``Cleaning.write`` block and belong into a pool thread. Between the steps the log is in use: appends do not matter, they
go to the active segment; a truncation, a deletion, retention (``PartitionLog.layout_version``), a move to another log
directory or a cleanup.policy without `compact` makes the rest of the compaction void (``Cleaning.is_void``), and
the replaced segments stay. The files that a step reads may be renamed under it then, which is no failure of the disk.
Sources: LogCleaner, LogCleanerManager. The rules are in ``compaction.py``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import HEADER_BYTES, BatchHeader, crc_matches, read_header
from tidegauge.transaction_marker import read_marker
from tidegauge_broker.log.cleaned_transactions import CleanedTransactions
from tidegauge_broker.log.compaction import CleanablePart, OffsetMap, Retention, group_by_size
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.log.searching import aborted_between
from tidegauge_broker.log.segment import LogSegment
from tidegauge_broker.log.swap import CLEANED_SUFFIX

_READ_BYTES = 1 << 20


class CompactionVoid(Exception):
    """The log has changed while it was compacted, so that the compaction must end; nothing has failed."""


class Cleaning:
    """One compaction of one log.

    Args:
        log: the log to compact.
        part: of it.
        offsets: room for the keys of the dirty part.
        now_ms: wall clock.
        is_moving: whether the log is being copied to another log directory, so that nothing may be replaced in it: a
            copy that began before is not compacted, and must not count as clean (LogManager.abortAndPauseCleaning).
    """

    def __init__(
        self, log: PartitionLog, part: CleanablePart, offsets: OffsetMap, now_ms: int, is_moving: Callable[[], bool]
    ) -> None:
        self.log = log
        self.part = part
        self._is_moving = is_moving
        self._offsets = offsets
        self._now_ms = now_ms
        self._layout_version = log.layout_version
        self._segments = [one for one in log.segments[:-1] if one.base_offset < part.first_uncleanable_offset]
        self._retention = Retention(
            offsets,
            {
                entry.producer_id: entry.batches[-1].last_offset
                for entry in log.producer_state.entries()
                if entry.batches
            },
            log.settings.delete_retention_ms,
            now_ms,
            {entry.producer_id: entry.producer_epoch for entry in log.producer_state.entries() if not entry.batches},
            part.first_uncleanable_offset,
        )
        self._transactions = CleanedTransactions()

    @property
    def end_offset(self) -> int:
        """All below is clean when the compaction is done."""
        return self._offsets.end_offset

    @property
    def is_void(self) -> bool:
        """Whether the log has changed so that the compaction must stop.

        Source: LogManager.truncateTo, asyncDelete and updateTopicConfig, which abort a cleaning.
        """
        log = self.log
        return (
            log.layout_version != self._layout_version
            or log.is_closed
            or self._is_moving()
            or not log.settings.compacts
        )

    @contextmanager
    def _storage(self) -> Iterator[None]:
        """Do as ``PartitionLog.storage``; failures by a changed log, other than the disk's, become CompactionVoid."""
        with self.log.storage("compacting"):
            try:
                yield
            except Exception as problem:
                is_of_the_disk = isinstance(problem, OSError) and not isinstance(problem, FileNotFoundError)
                if is_of_the_disk or not self.is_void:
                    raise
                raise CompactionVoid(f"Compacting {self.log.topic_partition} ends: its log has changed") from None

    def map_keys(self) -> list[list[LogSegment]]:
        """Read the dirty part; returns the groups of segments to be rewritten. Blocks.

        All that the compaction depends on is synced first: newer records, markers, each producer's last batch,
        which may be in the active segment. Else a loss of power could take them after what they replace was removed.
        The recovery point is written, too: below it a segment without batches is one that a compaction has left, above
        it one whose batches a loss of power has taken (``recovery.py``).

        Raises:
            CompactionVoid: the log has changed meanwhile.
            StorageError: the disk refused; the log directory is offline.
            TidegaugeError: CORRUPT_MESSAGE, a segment does not hold what it should.
        """
        start = self.part.first_dirty_offset
        end = self.part.first_uncleanable_offset
        transactions = CleanedTransactions()
        self.log.flush()
        self.log.log_directory.write_recovery_points()
        with self._storage():
            dirty = [one for one in self._segments if self._end_of(one) > start]
            transactions.expect(aborted_between(self.log.segments, start, end))
            if all(self._map_segment(segment, start, transactions) for segment in dirty):
                self._offsets.end_offset = end
            wanted = [one for one in self._segments if one.base_offset < self.end_offset]
            return group_by_size(wanted, self.log.settings, end)

    def _map_segment(self, segment: LogSegment, start: int, transactions: CleanedTransactions) -> bool:
        for header, batch in _batches(segment, self._end_of(segment)):
            is_aborted = False
            if header.is_control:
                transactions.end(header, read_marker(batch, header))
            else:
                is_aborted = transactions.is_aborted(header)
            if header.next_offset > start and not self._offsets.add_batch(batch, header, start, is_aborted=is_aborted):
                return False
        return True

    def write(self, group: Sequence[LogSegment]) -> LogSegment:
        """Write what stays of a group of segments into a new one, synced. Blocks.

        Raises:
            CompactionVoid: the log has changed meanwhile.
            StorageError: the disk refused; the log directory is offline.
            TidegaugeError: CORRUPT_MESSAGE, a segment does not hold what it should.
        """
        with self._storage():
            return self._write(group)

    def _write(self, group: Sequence[LogSegment]) -> LogSegment:
        log = self.log
        cleaned = LogSegment.create(
            log.directory,
            group[0].base_offset,
            index_max_bytes=log.settings.segment_index_bytes,
            created_ms=self._now_ms,
            disk=log.log_directory.disk,
            suffix=CLEANED_SUFFIX,
        )
        try:
            self._fill(cleaned, group)
        except Exception:
            cleaned.delete()
            raise
        return cleaned

    def _fill(self, cleaned: LogSegment, group: Sequence[LogSegment]) -> None:
        for segment in group:
            end = self._end_of(segment)
            self._transactions.expect(aborted_between(self.log.segments, segment.base_offset, end))
            for header, batch in _batches(segment, end):
                self._keep(cleaned, header, batch)
        cleaned.seal()
        cleaned.sync()
        modified = group[-1].path.stat().st_mtime
        os.utime(cleaned.path, (modified, modified))

    def _end_of(self, segment: LogSegment) -> int:
        """Return the next segment's base offset, or the first uncleanable offset."""
        at = self._segments.index(segment)
        if at + 1 < len(self._segments):
            return self._segments[at + 1].base_offset
        return self.part.first_uncleanable_offset

    def _keep(self, cleaned: LogSegment, header: BatchHeader, batch: bytes) -> None:
        if header.is_control:
            may_go, entry = self._transactions.end(header, read_marker(batch, header))
            if entry is not None:
                cleaned.transaction_index.append(entry)
            kept = self._retention.filter_marker(batch, header, may_go=may_go)
        else:
            is_aborted = self._transactions.is_aborted(header)
            kept = self._retention.filter_batch(batch, header, is_aborted=is_aborted)
        if kept:
            changed = read_header(kept)
            cleaned.append((kept,), len(kept), (changed,), self.log.settings.index_interval_bytes)

    def replace(self, group: Sequence[LogSegment], cleaned: LogSegment) -> bool:
        """Put the new segment in the old ones' place; False if the compaction is void.

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        log = self.log
        if self.is_void:
            with log.storage("dropping a compaction of"):
                # Under other names: the next compaction of these segments may begin before the files are removed.
                log.log_directory.delete_later(cleaned.mark_deleted(), 0)
            return False
        log.replace_segments(group, cleaned)
        self._layout_version = log.layout_version
        return True


def _batches(segment: LogSegment, end_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """All batches of a segment's file, read through a descriptor of its own.

    A damaged one must not be written again, with a right CRC; nor at an offset of another (the CRC does not cover it).
    """
    next_offset = segment.base_offset
    with segment.path.open("rb", buffering=_READ_BYTES) as file:
        size_bytes = os.fstat(file.fileno()).st_size
        position = 0
        while position < size_bytes:
            head = file.read(HEADER_BYTES)
            header = read_header(head)
            batch = head + file.read(header.size_bytes - HEADER_BYTES)
            is_in_place = next_offset <= header.base_offset <= header.last_offset < end_offset
            if not is_in_place or len(batch) < header.size_bytes or not crc_matches(batch, header):
                raise TidegaugeError(
                    ErrorCode.CORRUPT_MESSAGE, f"{segment.path} holds no sound batch at byte {position}"
                )
            position += header.size_bytes
            next_offset = header.next_offset
            yield header, batch
