"""The leader epoch cache of one replica: which epoch wrote from which offset on.

Invariant I3: epochs and start offsets both rise strictly from entry to entry. ``assign`` keeps it by removing
what contradicts the newcomer; an epoch without a record is therefore replaced by the next one.
Source: LeaderEpochFileCache of Kafka 3.9, KIP-101, KIP-279.
"""

from __future__ import annotations

from collections.abc import Iterable

from tidegauge_broker.replica.messages import UNDEFINED_EPOCH_END, EpochEnd, EpochEntry


class EpochCache:
    """Epoch entries, oldest first. Changing methods say whether something changed."""

    __slots__ = ("_entries",)

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self._entries: list[EpochEntry] = []
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def entries(self) -> list[EpochEntry]:
        """A copy of all entries."""
        return list(self._entries)

    @property
    def latest_epoch(self) -> int | None:
        """The newest epoch; None where the cache is empty."""
        return self._entries[-1].epoch if self._entries else None

    @property
    def first_epoch(self) -> int | None:
        """The oldest epoch; None where the cache is empty."""
        return self._entries[0].epoch if self._entries else None

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that an epoch begins at an offset.

        Only acts if the cache is empty, the epoch is not the latest, or the start is lower than the latest's.
        Assigning an epoch lower than the latest removes the higher ones.
        """
        assert epoch >= 0, f"epoch {epoch}"
        assert start_offset >= 0, f"start offset {start_offset}"
        entries = self._entries
        if entries and entries[-1].epoch == epoch and start_offset >= entries[-1].start_offset:
            return False
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        self._append(EpochEntry(epoch, start_offset))
        return True

    def _append(self, entry: EpochEntry) -> None:
        """Add the newest entry."""
        if self._entries:
            latest = self._entries[-1]
            assert latest.epoch < entry.epoch, "I3"
            assert latest.start_offset < entry.start_offset, "I3"
        self._entries.append(entry)

    def assign_newer(self, epoch: int, start_offset: int) -> bool:
        """Note an epoch as Kafka did from 0.11 to 2.0: only a newer one that begins above the latest; nothing goes.

        (Equal starts were allowed there. They need an epoch noted before its first record, which no rule here that
        uses this does.)
        """
        assert epoch >= 0, f"epoch {epoch}"
        latest = self._entries[-1] if self._entries else EpochEntry(-1, -1)
        if epoch <= latest.epoch or start_offset <= latest.start_offset:
            return False
        self._append(EpochEntry(epoch, start_offset))
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return where an epoch ends in this log, as LeaderEpochFileCache.endOffsetFor does."""
        entries = self._entries
        if epoch == UNDEFINED_EPOCH_END.epoch or not entries:
            return UNDEFINED_EPOCH_END
        if epoch == entries[-1].epoch:
            return EpochEnd(epoch, log_end_offset)
        if epoch > entries[-1].epoch:
            return UNDEFINED_EPOCH_END
        if epoch < entries[0].epoch:
            return EpochEnd(epoch, entries[0].start_offset)
        largest = entries[0]
        for entry in entries:
            if entry.epoch > epoch:
                return EpochEnd(largest.epoch, entry.start_offset)
            largest = entry
        raise AssertionError("the latest epoch was returned above")

    def epoch_at(self, offset: int) -> int | None:
        """Return the epoch of the record at an offset, or None.

        None: the first known epoch begins later.

        Source: LeaderEpochFileCache.epochForOffset.
        """
        found = None
        for entry in self._entries:
            if entry.start_offset > offset:
                break
            found = entry.epoch
        return found

    def truncate_from_end(self, end_offset: int) -> bool:
        """Drop entries that begin at or above the new end of the log."""
        before = len(self._entries)
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
        return len(self._entries) != before

    def truncate_from_start(self, start_offset: int) -> bool:
        """Drop entries at or below the new start; the epoch in force there now begins there."""
        removed = [entry for entry in self._entries if entry.start_offset <= start_offset]
        if not removed or removed == [EpochEntry(removed[-1].epoch, start_offset)]:
            return False
        kept = self._entries[len(removed) :]
        assert not kept or kept[0].start_offset > start_offset, "I3"
        self._entries = [EpochEntry(removed[-1].epoch, start_offset), *kept]
        return True

    def clear(self) -> bool:
        """Drop all entries (full truncation)."""
        had = bool(self._entries)
        self._entries = []
        return had
