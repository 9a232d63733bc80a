"""PartitionLog: the records of one partition on disk, as a row of segments, with its producer state.

Contract: one thread (the event loop) appends, reads, truncates and deletes; ``flush`` and ``flush_rolled`` may run in a
pool thread at the same time. Decisions about records (offsets, epochs, high watermark) are the core's; the log
takes what it is given. Appends and reads move bytes and look at headers only. I/O errors become StorageError,
after which the whole log directory is offline. Sources: UnifiedLog, LocalLog and LogSegment of Kafka 3.9.

Rules:
    1. Offsets rise from batch to batch; an append begins at the log end offset or, after a gap, above it.
    2. The producer state is updated by every append, on leader and follower. A truncation rebuilds it from the newest
       snapshot at or below the new end, and the batches after that; then a snapshot is written at the new end.
    3. No append is synced, unless flush.messages says so. A rolled segment is synced later (``flush_rolled``);
       the recovery point, below which everything is on disk, then moves to its end. A log start that moves above
       the recovery point takes it along, synced or not: below, there is nothing to recover.
    4. A truncation lowers the recovery point and writes the log directory's checkpoint at once.
    5. Deleted segments are renamed to ``.deleted`` now; the log directory removes the files after file.delete.delay.ms.
"""

from __future__ import annotations

import random
import threading
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from pathlib import Path

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import HEADER_BYTES, NO_PRODUCER_ID, BatchHeader, patch
from tidegauge.transaction_marker import Outcome, TransactionMarker, read_marker
from tidegauge_broker.log import checkpoints, searching
from tidegauge_broker.log.empty_batches import begins_empty, read_on
from tidegauge_broker.log.epoch_file import EpochFile
from tidegauge_broker.log.files import Buffer, StorageError
from tidegauge_broker.log.log_directory import LogDirectory
from tidegauge_broker.log.log_state import LogSettings, LogState
from tidegauge_broker.log.producer_snapshots import ProducerSnapshots
from tidegauge_broker.log.records import stamp_append_time
from tidegauge_broker.log.retention import count_deletable
from tidegauge_broker.log.segment import MAX_RELATIVE_OFFSET, LogSegment, largest_timestamp
from tidegauge_broker.log.swap import SWAP_SUFFIX
from tidegauge_broker.log.transaction_index import aborted
from tidegauge_broker.replica.messages import EpochEntry
from tidegauge_broker.replica.open_transactions import AbortedTransaction
from tidegauge_broker.replica.producer_state import ProducerState

_base_offset = attrgetter("base_offset")


class PartitionLog:
    """The log of one partition. Offsets are absolute; the end is exclusive."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        log_directory: LogDirectory,
        state: LogState,
        settings: LogSettings,
        now_ms: Callable[[], int],
    ) -> None:
        self.topic_partition = topic_partition
        self.directory = directory
        self.log_directory = log_directory
        self.topic_id = state.topic_id
        self.settings = settings
        self.log_start_offset = state.log_start_offset
        self.log_end_offset = state.log_end_offset
        self.recovery_point = max(state.recovery_point, state.log_start_offset)
        self.producer_state = state.producer_state
        self.former_epoch = state.former_epoch
        self._segments = state.segments
        self._now_ms = now_ms
        self._epoch_file = EpochFile(directory, log_directory.disk, state.epochs, is_owed=state.epochs_owed)
        self._snapshots = ProducerSnapshots(directory, log_directory.disk, state.snapshots_owed)
        self._synced_offset = state.recovery_point  # what a flush has reached; the log start does not move it
        # Guards what the loop and a flushing thread share: the recovery point, and the layout version.
        self._lock = threading.Lock()
        self._flush_lock = threading.Lock()
        self._layout_version = 0
        self._flushed_ms = now_ms()
        self._closed = False
        self._check_offsets()

    def _check_offsets(self) -> None:
        """Assert the order of the log's offsets, after a change of any of them."""
        lower = max(self.log_start_offset, self.recovery_point, self._segments[-1].base_offset)
        assert 0 <= self.log_start_offset <= lower <= self.log_end_offset, f"{self.topic_partition}: {lower}"

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size_bytes for segment in self._segments)

    @property
    def segments(self) -> Sequence[LogSegment]:
        """The segments, oldest first; the last is the active one."""
        return self._segments

    @property
    def starts_inside_a_segment(self) -> bool:
        """Whether the log start offset differs from the first segment's base."""
        first = self._segments[:1]  # none while the event loop empties the log, and another thread asks
        return bool(first) and self.log_start_offset > first[0].base_offset

    @property
    def is_dirty(self) -> bool:
        """Whether ``flush_rolled`` has something to do. A snapshot alone can wait: lost, it costs a longer recovery."""
        last = self._segments[-1:]  # none while the event loop empties the log, and another thread asks
        return self._epoch_file.is_owed or (bool(last) and self._synced_offset < last[0].base_offset)

    @property
    def epochs(self) -> Sequence[EpochEntry]:
        """The leader epoch cache, oldest entry first."""
        return self._epoch_file.entries

    @contextmanager
    def storage(self, what: str) -> Iterator[None]:
        """Turn an I/O error into StorageError and take the log directory offline."""
        self.log_directory.check_online()
        try:
            yield
        except OSError as error:
            if isinstance(error, FileNotFoundError) and self._closed:
                raise StorageError(f"{self.topic_partition} was deleted or moved to another log directory") from None
            raise self.log_directory.failed(error, f"{what} {self.topic_partition}") from error

    # Appending

    def append_as_leader(self, records: Buffer, header: BatchHeader, log_append_time_ms: int = -1) -> None:
        """Append one producer batch.

        Args:
            records: the batch as the producer made it.
            header: its header, with the base offset and the leader epoch that it gets.
            log_append_time_ms: if not negative, the time that all its records get.

        Raises:
            StorageError: the disk refused; nothing was appended, and the log directory is offline.
        """
        assert header.base_offset >= self.log_end_offset, "offsets rise along the log (the core's I6)"
        head = bytearray(records[:HEADER_BYTES])
        rest = memoryview(records)[HEADER_BYTES:]
        patch(head, 0, header.base_offset, header.leader_epoch)
        if log_append_time_ms >= 0:
            header = stamp_append_time(head, rest, header, log_append_time_ms)
        self._append((head, rest), records, (header,))

    def append_as_follower(self, records: bytes, headers: Sequence[BatchHeader]) -> None:
        """Append the leader's batches unchanged.

        An empty log that ends above the first batch starts again at that batch, and keeps its log start offset
        (Partition.appendRecordsToFollowerOrFutureReplica).

        Raises:
            StorageError: the disk refused; nothing was appended, and the log directory is offline.
        """
        first_offset = headers[0].base_offset
        if first_offset < self.log_end_offset == self.log_start_offset:
            log_start_offset, producer_state = self.log_start_offset, self.producer_state
            self.truncate_fully(first_offset)
            # The core does not know of this truncation: it keeps the object that it holds, emptied.
            producer_state.clear()
            self.log_start_offset, self.producer_state = log_start_offset, producer_state
        self._append((records,), records, headers)

    def _append(self, parts: Sequence[Buffer], records: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Append the parts, which are ``records`` with their offsets and times set."""
        size_bytes, first_offset, last_offset = len(records), headers[0].base_offset, headers[-1].last_offset
        assert first_offset >= self.log_end_offset, f"{self.topic_partition}: offset {first_offset} below the end"
        self.log_directory.check_online()
        settings = self.settings
        try:
            segment = self._segments[-1]
            if segment.should_roll(
                size_bytes,
                largest_timestamp(headers)[0],
                last_offset,
                self._now_ms(),
                max_bytes=settings.segment_bytes,
                max_ms=settings.max_segment_ms,
            ):
                segment = self._roll(self._base_of_next(first_offset, last_offset))
            segment.append(parts, size_bytes, headers, settings.index_interval_bytes)
            for header in headers:
                if header.producer_id == NO_PRODUCER_ID:
                    continue
                if header.is_control:
                    self._end_transaction(segment, header, read_marker(records, header))
                else:
                    self.producer_state.update(header)
        except OSError as error:
            raise self.log_directory.failed(error, f"appending to {self.topic_partition}") from error
        self.log_end_offset = last_offset + 1
        if self.log_end_offset - self.recovery_point >= settings.flush_messages:
            self.flush()

    def _end_transaction(self, segment: LogSegment, header: BatchHeader, marker: TransactionMarker | None) -> None:
        """Note a marker; the segment that holds it lists the transaction if it was aborted."""
        if marker is None:
            return
        completed = self.producer_state.update_marker(header, marker)
        if completed is not None and marker.outcome is Outcome.ABORT:
            segment.transaction_index.append(aborted(completed, self.producer_state.transactions))

    def _base_of_next(self, first_offset: int, last_offset: int) -> int:
        """Return a new segment's base: the log end offset, despite a gap.

        The leader's compaction leaves gaps. At the end of a segment recovery could not distinguish one from batches
        that a loss of power has taken (``recovery.py``, rule 9). Kafka begins the segment behind the gap.
        """
        fits = last_offset - self.log_end_offset <= MAX_RELATIVE_OFFSET
        return self.log_end_offset if fits else first_offset

    def _roll(self, base_offset: int) -> LogSegment:
        """Begin a new segment; the producer state as of its base is kept for recovery."""
        self._segments[-1].seal()
        self._snapshots.take(base_offset, self.producer_state)
        assert base_offset >= self._segments[-1].base_offset, "segments rise"
        segment = self._new_segment(base_offset)
        self._segments.append(segment)
        return segment

    def _new_segment(self, base_offset: int) -> LogSegment:
        segment = LogSegment.create(
            self.directory,
            base_offset,
            index_max_bytes=self.settings.segment_index_bytes,
            created_ms=self._now_ms(),
            disk=self.log_directory.disk,
        )
        jitter_ms = min(self.settings.segment_jitter_ms, self.settings.max_segment_ms)
        if jitter_ms:
            segment.roll_jitter_ms = random.randrange(jitter_ms)
        return segment

    # Reading

    def _at(self, offset: int) -> int:
        """Index of the segment that holds, or would hold, an offset."""
        if offset >= self._segments[-1].base_offset:
            return len(self._segments) - 1
        return max(0, bisect_right(self._segments, offset, key=_base_offset) - 1)

    def _end_of(self, at: int) -> int:
        """Return the next segment's base offset, or the log end offset."""
        return self._segments[at + 1].base_offset if at + 1 < len(self._segments) else self.log_end_offset

    def read(self, from_offset: int, upper_bound: int, max_bytes: int, *, at_least_one_batch: bool) -> bytes:
        """Whole batches, from the one that holds ``from_offset``, that end at or below a bound.

        They are of one segment, as in Kafka (LocalLog.read); but batches that compaction has left without records are
        not given alone if others follow: many clients never get past such a response (``empty_batches.py``).

        Args:
            from_offset: at or above the log start offset.
            upper_bound: exclusive: the high watermark for a consumer, the log end offset for a follower.
            max_bytes: limit; what remains comes with the next read, as does the next segment.
            at_least_one_batch: the first batch with records may exceed the limit, so that a reader always gets on.

        Raises:
            StorageError: the disk refused; the log directory is offline.
            TidegaugeError: CORRUPT_MESSAGE, the file does not hold what its index says.
        """
        upper_bound = min(upper_bound, self.log_end_offset)
        if from_offset >= upper_bound:
            return b""
        self.log_directory.check_online()
        try:
            found = self._read(from_offset, max_bytes, upper_bound=upper_bound, at_least_one_batch=at_least_one_batch)
            if begins_empty(found):
                read = partial(self._read, upper_bound=upper_bound, at_least_one_batch=at_least_one_batch)
                return read_on(found, max_bytes, read, may_exceed=at_least_one_batch)
        except OSError as error:
            raise self.log_directory.failed(error, f"reading {self.topic_partition}") from error
        return found

    def _read(self, from_offset: int, max_bytes: int, *, upper_bound: int, at_least_one_batch: bool) -> bytes:
        """Return complete batches of the first segment with some, as ``read`` does."""
        for at in range(self._at(from_offset), len(self._segments)):
            segment = self._segments[at]
            if segment.base_offset >= upper_bound:
                break
            start = segment.position_of(from_offset)
            if start is None:
                continue
            end_offset = self._end_of(at)
            return segment.read(
                start,
                min(upper_bound, end_offset),
                max_bytes,
                whole=upper_bound >= end_offset,
                at_least_one_batch=at_least_one_batch,
            )
        return b""

    def place_of(self, offset: int) -> tuple[str, int]:
        """Return an offset's file and byte, or the log's end; see ``read``."""
        with self.storage("reading"):
            for segment in self._segments[self._at(offset) :]:
                position = segment.position_of(offset)
                if position is not None:
                    return str(segment.path), position
        return str(self._segments[-1].path), self._segments[-1].size_bytes

    def bytes_between(self, from_offset: int, end_offset: int) -> int:
        """Bytes of the batches from the one that holds ``from_offset`` up to ``end_offset`` (exclusive)."""
        end_offset = min(end_offset, self.log_end_offset)
        if from_offset >= end_offset:
            return 0
        self.log_directory.check_online()
        segments, first, last = self._segments, self._at(from_offset), self._at(end_offset)
        try:  # not ``storage``: it costs as much as the rest, and each parked fetch asks at each append
            start = segments[first].position_of(from_offset)
            end = None if end_offset == self.log_end_offset else segments[last].position_of(end_offset)
        except OSError as error:
            raise self.log_directory.failed(error, f"reading {self.topic_partition}") from error
        size = segments[last].size_bytes if end is None else end
        size -= segments[first].size_bytes if start is None else start
        return size if first == last else size + sum(segment.size_bytes for segment in segments[first:last])

    def search_by_time(self, timestamp_ms: int, upper_bound: int) -> searching.Search:
        """Search the first record of this time or later, below a bound; valid while ``layout_version`` stays."""
        with self.storage("searching"):
            start, segments = self.log_start_offset, list(self._segments)
            return (yield from searching.first_at_or_after(segments, timestamp_ms, start, upper_bound))

    def search_largest_timestamp(self, upper_bound: int) -> searching.Search:
        """Search the first record with the largest timestamp, below a bound; valid while ``layout_version`` stays."""
        with self.storage("searching"):
            return (yield from searching.with_largest_timestamp(self.segments, self.log_start_offset, upper_bound))

    def aborted_transactions(self, from_offset: int, size_bytes: int) -> list[AbortedTransaction]:
        """Find the aborted transactions that overlap the bytes ``read`` gave from an offset; raises as ``read``."""
        if not size_bytes:
            return []
        with self.storage("searching"):
            segments = self._segments[self._at(from_offset) :]
            return searching.aborted_transactions(segments, from_offset, size_bytes, self.log_end_offset)

    # Truncating

    def truncate_to(self, to_offset: int) -> ProducerState:
        """Truncate the log so that ``to_offset`` is its end; a batch that reaches over it is removed as a whole.

        Returns:
            The producer state as of the new end.
        """
        if to_offset >= self.log_end_offset:
            return self.producer_state
        if to_offset < self._segments[0].base_offset:
            return self.truncate_fully(to_offset)
        with self.storage("truncating"):
            keep = self._at(to_offset) + 1
            self._drop_segments(keep)
            self._segments[-1].truncate_to(to_offset, self._now_ms())
            self._snapshots.remove_above(to_offset)
            self.log_start_offset = min(self.log_start_offset, to_offset)
            self.producer_state = self._snapshots.state_before(
                to_offset, self.log_start_offset, self.producer_state, self._segments
            )
            self._snapshots.take_missing(to_offset, self.log_start_offset, self.producer_state)
            self._end_at(to_offset)
        return self.producer_state

    def truncate_fully(self, start_offset: int) -> ProducerState:
        """Empty the log and start again at an offset; returns the (empty) producer state."""
        with self.storage("truncating"):
            self._drop_segments(0)
            self._segments.append(self._new_segment(start_offset))
            self._snapshots.remove_above(-1)
            self.log_start_offset = start_offset
            self.producer_state = ProducerState()
            self._end_at(start_offset)
        return self.producer_state

    def _drop_segments(self, keep: int) -> None:
        with self._lock:
            self._layout_version += 1
            dropped = self._segments[keep:]
            del self._segments[keep:]
        for segment in reversed(dropped):
            self._discard(segment.mark_deleted())

    def _discard(self, renamed: Sequence[Path]) -> None:
        self.log_directory.delete_later(renamed, self._now_ms() + self.settings.file_delete_delay_ms)

    def _end_at(self, offset: int) -> None:
        """Lower the recovery point and the synced offset to the new log end."""
        with self._lock:
            self._layout_version += 1  # a flush that began in the middle of the truncation knows the old end
            self.log_end_offset = offset
            lowered = self.recovery_point > offset
            self.recovery_point = min(self.recovery_point, offset)
            self._synced_offset = min(self._synced_offset, offset)
        self._check_offsets()
        if lowered:
            self.log_directory.write_recovery_points()
        self.log_directory.lower_cleaned(self.topic_partition, offset)

    def advance_log_start(self, to_offset: int) -> None:
        """Raise the log start offset; files go when retention looks at them."""
        assert to_offset <= self.log_end_offset, f"{self.topic_partition}: log start {to_offset} above the end"
        self.log_directory.check_online()
        self._start_at(to_offset)

    def _start_at(self, offset: int) -> None:
        """Raise the log start offset, unless it is higher already (UnifiedLog.updateLogStartOffset)."""
        with self._lock:
            self.log_start_offset = max(self.log_start_offset, offset)
            self.recovery_point = max(self.recovery_point, offset)
        self._check_offsets()

    def delete_old_segments(self, high_watermark: int, wall_ms: int) -> bool:
        """Let old segments go as the settings say (``retention.py``); the log start offset follows.

        If all go, a new, empty one is begun at the log end offset first.

        Args:
            high_watermark: nothing above it goes.
            wall_ms: the wall-clock time, with which the records' times are compared.

        Returns:
            Whether the log start offset has moved.

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        with self.storage("deleting old segments of"):
            count = count_deletable(
                self._segments,
                self.settings,
                log_start_offset=self.log_start_offset,
                log_end_offset=self.log_end_offset,
                high_watermark=high_watermark,
                now_ms=wall_ms,
            )
            if not count:
                return False
            if count == len(self._segments):
                self._roll(self.log_end_offset)
            self._remove_oldest(count)
            start = self._segments[0].base_offset
            assert start <= high_watermark, f"{self.topic_partition}: uncommitted records stay"
            moved = start > self.log_start_offset
            self._start_at(start)
            return moved

    def _remove_oldest(self, count: int) -> None:
        with self._lock:
            self._layout_version += 1
            dropped = self._segments[:count]
            del self._segments[:count]
        for segment in dropped:
            self._discard(segment.mark_deleted())
            self._discard(self._snapshots.mark_deleted(segment.base_offset))

    @property
    def is_closed(self) -> bool:
        """Whether its files have been let go."""
        return self._closed

    @property
    def layout_version(self) -> int:
        """Return a number that each truncation, deletion, replacement or rename of segments raises."""
        return self._layout_version

    def replace_segments(self, old: Sequence[LogSegment], cleaned: LogSegment) -> None:
        """Put a compacted segment, whose files are ``.cleaned`` and synced, in the place of those that it holds.

        At every moment either the old files or the new ones are found when the log is loaded (``swap.py``).

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        with self.storage("replacing segments of"):
            cleaned.rename_files(SWAP_SUFFIX)
            with self._lock:
                self._layout_version += 1
                at = self._segments.index(old[0])
                assert self._segments[at : at + len(old)] == list(old)
                assert at + len(old) < len(self._segments), "the active segment is not compacted"
                assert cleaned.base_offset == old[0].base_offset
                self._segments[at : at + len(old)] = [cleaned]
            for segment in old:
                self._discard(segment.mark_deleted())
                if segment.base_offset != cleaned.base_offset:
                    self._discard(self._snapshots.mark_deleted(segment.base_offset))
            with self._lock:
                self._layout_version += 1  # a flush that has begun meanwhile may know the files by their names of now
            cleaned.rename_files("")
            self.log_directory.disk.sync_directory(self.directory)

    # Keeping

    def write_epochs(self, entries: Sequence[EpochEntry], *, sync: bool) -> None:
        """Replace leader-epoch-checkpoint; with ``sync`` it is on disk when this returns.

        Without, it is written with the next flush (``epoch_file``).

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        with self.storage("writing the leader epochs of"):
            self._epoch_file.replace(entries, sync=sync)

    def write_owed_epochs(self) -> None:
        """Write leader-epoch-checkpoint if it was changed without ``sync``. Blocks; a pool thread may do it.

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        with self.storage("writing the leader epochs of"):
            if not self._closed:
                self._epoch_file.write_owed()

    def write_topic_id(self, topic_id: str) -> None:
        """Write partition.metadata, once."""
        with self.storage("writing partition.metadata of"):
            checkpoints.write_topic_id(self.directory, topic_id, self.log_directory.disk)
            self.topic_id = topic_id

    def flush(self) -> None:
        """Bring everything to the disk; the recovery point moves to the log end offset."""
        self._flush(active=True)

    def flush_if_due(self) -> None:
        """Sync everything if flush.ms has passed since the last flush of any kind. Blocks."""
        if self.log_end_offset > self.recovery_point and self._now_ms() - self._flushed_ms >= self.settings.flush_ms:
            self.flush()

    def flush_rolled(self) -> None:
        """Bring all but the active segment to the disk; the recovery point moves to the active one's base."""
        self._flush(active=False)

    def _flush(self, *, active: bool) -> None:
        with self._flush_lock:
            with self._lock:
                version, synced_offset = self._layout_version, self._synced_offset
                segments = list(self._segments)
                ends = [*(segment.base_offset for segment in segments[1:]), self.log_end_offset]
            if not active:
                ends.pop()
            pending = [segment for segment, end in zip(segments, ends, strict=False) if end > synced_offset]
            owes_files = self._epoch_file.is_owed or self._snapshots.has_unsynced
            if not (pending or owes_files) or self._closed:
                return
            self.log_directory.check_online()
            try:
                self._sync(pending)
            except OSError as error:
                if isinstance(error, FileNotFoundError) and self._has_changed_since(version):
                    return  # truncated or deleted while it was synced
                raise self.log_directory.failed(error, f"flushing {self.topic_partition}") from error
            self._flushed_ms = self._now_ms()
            with self._lock:
                if pending and version == self._layout_version:
                    assert ends[-1] <= self.log_end_offset, "the log was not truncated meanwhile"
                    self._synced_offset = max(self._synced_offset, ends[-1])
                    self.recovery_point = max(self.recovery_point, ends[-1])

    def _has_changed_since(self, version: int) -> bool:
        return self._closed or version != self._layout_version

    def _sync(self, segments: Sequence[LogSegment]) -> None:
        for segment in segments:
            segment.sync()
        self._epoch_file.write_owed()
        self._snapshots.sync()
        self.log_directory.disk.sync_directory(self.directory)

    # Ending

    def close(self) -> None:
        """Close cleanly: last index entries, everything to the disk, a snapshot of the producers at the end.

        Raises:
            StorageError: the disk refused; the log is not cleanly closed.
        """
        with self.storage("closing"):
            self._segments[-1].seal()
            self._snapshots.take_missing(self.log_end_offset, self.log_start_offset, self.producer_state)
            self.flush()
        self.abandon()

    def give_up(self) -> None:
        """Let go of a log that can't be trusted: its directory is recovered at the next start."""
        self.log_directory.is_trusted = False
        self.abandon()

    def abandon(self) -> None:
        """Let go of all files as they are."""
        self._closed = True
        self._epoch_file.close()
        for segment in self._segments:
            segment.close()
