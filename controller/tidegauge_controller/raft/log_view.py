"""The bounds of a node's metadata log, as Raft decides by them; the bytes are the shell's (RaftLog, KafkaRaftLog)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from tidegauge_controller.raft.values import Batch, OffsetAndEpoch


class Match(Enum):
    """The relation of a follower's log end to the leader's log (ValidOffsetAndEpoch.Kind)."""

    VALID = "valid"
    DIVERGING = "diverging"
    SNAPSHOT = "snapshot"


@dataclass(slots=True)
class LogView:
    """Start, end, flushed end, epochs and snapshots of a metadata log.

    Attributes:
        start_offset: the first offset of the log; 0, or the end of a snapshot that exists.
        end_offset: the log end offset (exclusive).
        flushed_offset: everything below it is on the disk and survives a power loss.
        epochs: each epoch that has records, or is initialised by its leader, with its first offset; both rise.
        snapshots: the snapshots that exist, ascending. The one with the id (0, 0) holds the voters of a formatted
            node and no records.
    """

    start_offset: int = 0
    end_offset: int = 0
    flushed_offset: int = 0
    epochs: list[OffsetAndEpoch] = field(default_factory=list[OffsetAndEpoch])
    snapshots: list[OffsetAndEpoch] = field(default_factory=list[OffsetAndEpoch])
    _last_flush: int = 0
    _oldest_valid_flush: int = 1

    @property
    def is_flushed(self) -> bool:
        """Whether the whole log is on the disk."""
        return self.flushed_offset == self.end_offset

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, of the newest snapshot if the log is empty, else 0."""
        if self.epochs:
            return self.epochs[-1].epoch
        return self.snapshots[-1].epoch if self.snapshots else 0

    @property
    def end(self) -> OffsetAndEpoch:
        """The log end offset with the epoch of the last record."""
        return OffsetAndEpoch(self.end_offset, self.last_epoch)

    @property
    def newest_snapshot(self) -> OffsetAndEpoch | None:
        """The newest snapshot of records; None if there is none but the one of the formatted voters."""
        return self.snapshots[-1] if self.snapshots and self.snapshots[-1] != (0, 0) else None

    @property
    def oldest_snapshot(self) -> OffsetAndEpoch | None:
        """The oldest snapshot, the formatted voters' included."""
        return self.snapshots[0] if self.snapshots else None

    def begin_epoch(self, epoch: int) -> None:
        """Note that ``epoch`` begins at the log's end (RaftLog.initializeLeaderEpoch)."""
        self._note_epoch(epoch, self.end_offset)

    def append(self, batch: Batch) -> None:
        """Move the end behind ``batch``.

        Raises:
            ValueError: the batch does not begin at the log's end.
        """
        if batch.base_offset != self.end_offset:
            raise ValueError(f"a batch at {batch.base_offset} does not follow the log's end {self.end_offset}")
        self._note_epoch(batch.epoch, batch.base_offset)
        self.end_offset = batch.end_offset

    def request_flush(self) -> int:
        """Return the number of a new flush up to the log's end."""
        self._last_flush += 1
        return self._last_flush

    def flushed(self, number: int, end_offset: int) -> None:
        """Note that flush ``number`` has put everything below ``end_offset`` on the disk.

        A flush that was requested before a truncation says nothing about the records that replaced the old ones.
        """
        if number >= self._oldest_valid_flush:
            self.flushed_offset = max(self.flushed_offset, min(end_offset, self.end_offset))

    def truncate(self, end_offset: int) -> None:
        """Make ``end_offset`` the log's end and forget what lay beyond."""
        self.end_offset = end_offset
        self.flushed_offset = min(self.flushed_offset, end_offset)
        self._oldest_valid_flush = self._last_flush + 1
        while self.epochs and self.epochs[-1].offset >= end_offset:
            self.epochs.pop()

    def restart_at(self, snapshot: OffsetAndEpoch) -> None:
        """Drop all records: the log begins, empty, at the end of ``snapshot`` (truncateToLatestSnapshot)."""
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.offset
        self.epochs.clear()
        self.snapshots = [snapshot]
        self._oldest_valid_flush = self._last_flush + 1

    def add_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        """Note that a snapshot exists."""
        if snapshot not in self.snapshots:
            self.snapshots = sorted([*self.snapshots, snapshot])

    def move_start(self, start_offset: int) -> None:
        """Delete the records and the older snapshots below ``start_offset``, the end of a snapshot that exists."""
        self.start_offset = max(self.start_offset, start_offset)
        self.snapshots = [snapshot for snapshot in self.snapshots if snapshot.offset >= self.start_offset]
        keep = max(0, self._index_of(self.start_offset))
        kept = self.epochs[keep:]
        if kept and kept[0].offset < self.start_offset:
            kept[0] = OffsetAndEpoch(self.start_offset, kept[0].epoch)
        self.epochs = [entry for entry in kept if entry.offset < self.end_offset or entry is kept[-1]]

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch of the record at an offset, or None."""
        if not self.start_offset <= offset < self.end_offset:
            return None
        index = self._index_of(offset)
        return self.epochs[index].epoch if index >= 0 else None

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Return the end of the largest epoch that is not above ``epoch``.

        An epoch above all known ones ends at the log's end, with the last epoch. One below all known ones ends at the
        start of the first, with the requested epoch, or with the id of the oldest snapshot if that ends there.
        Source: KafkaRaftLog.endOffsetForEpoch.
        """
        if not self.epochs or epoch > self.epochs[-1].epoch:
            return self.end
        if epoch == self.epochs[-1].epoch:
            return OffsetAndEpoch(self.end_offset, epoch)
        index = bisect_right([entry.epoch for entry in self.epochs], epoch)
        found = OffsetAndEpoch(self.epochs[index].offset, self.epochs[index - 1].epoch if index else epoch)
        oldest = self.oldest_snapshot
        return oldest if oldest is not None and found == (oldest.offset, epoch) else found

    def match(self, offset: int, epoch: int) -> tuple[Match, OffsetAndEpoch]:
        """Judge a follower's end of log (RaftLog.validateOffsetAndEpoch).

        Returns:
            VALID with the end itself; DIVERGING with the end of the largest epoch here that is not above ``epoch``; or
            SNAPSHOT with the id of the newest snapshot, which the follower must load first.
        """
        asked = OffsetAndEpoch(offset, epoch)
        if self.start_offset == 0 and offset == 0:
            return Match.VALID, asked
        oldest, newest = self.oldest_snapshot, self.newest_snapshot
        if oldest is not None and newest is not None:
            before = offset < self.start_offset or epoch < oldest.epoch
            other = offset == self.start_offset and epoch != oldest.epoch
            if before or other:
                return Match.SNAPSHOT, newest
        end = self.end_of_epoch(epoch)
        if end.epoch == epoch and offset <= end.offset:
            return Match.VALID, asked
        return Match.DIVERGING, end

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Return where to truncate after a diverging response (RaftLog.truncateToEndOffset).

        ``diverging`` is the leader's end of an epoch. If this log has the epoch, the common part ends at the smaller
        end of both; else at the end of this log's largest epoch below it.
        """
        local = self.end_of_epoch(diverging.epoch)
        return min(local.offset, diverging.offset) if local.epoch == diverging.epoch else local.offset

    def _note_epoch(self, epoch: int, offset: int) -> None:
        if self.epochs and epoch <= self.epochs[-1].epoch:
            if epoch < self.epochs[-1].epoch:
                raise ValueError(
                    f"epoch {epoch} at offset {offset} is below the log's last epoch {self.epochs[-1].epoch}"
                )
            return
        if self.epochs and self.epochs[-1].offset == offset:
            self.epochs.pop()
        self.epochs.append(OffsetAndEpoch(offset, epoch))

    def _index_of(self, offset: int) -> int:
        return bisect_right([entry.offset for entry in self.epochs], offset) - 1


def loaded(batches: Sequence[Batch], *, snapshots: Sequence[OffsetAndEpoch] = (), start_offset: int = 0) -> LogView:
    """Return the view of a log from the disk, all of it flushed.

    Args:
        batches: the batches of the log, in order.
        snapshots: the snapshots that exist.
        start_offset: where the log begins.

    Raises:
        ValueError: the batches are not contiguous, or their epochs fall.
    """
    view = LogView(start_offset, start_offset, start_offset, snapshots=sorted(snapshots))
    for batch in batches:
        view.append(batch)
    view.flushed_offset = view.end_offset
    return view
