"""What must be found in a replica after a crash: a twin made of lists, and the comparison with what was found. Pure.

Rules:
    1. After a kill a replica holds what was written; where a step was in progress, what was there before it or
       what comes of it, or a prefix of either that has all that the two share.
    2. After a loss of power it holds a prefix of that, or of what stood there before a truncation that was not
       synced; nothing below ``flushed`` is lost.
    3. The log start offset is at or above the one last written to a checkpoint, and at most the one that was set.
    4. Leader epochs and producers are those of the batches that are left. Of a producer whose batches lie below
       the log start nothing need be known.
    5. Of a compacted log every record above ``touched_to`` is there, and below it the last one of each key, unless
       that is a tombstone; then the key is not there at all, or its last record is the tombstone.
    6. A reader of committed data gets all of the committed records that are left and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

Row = tuple[int, bytes | None, bytes | None]
"""A record: offset, key, value."""


class Batch(NamedTuple):
    """A batch as it stands in the log; ``outcome`` is that of a marker, which has no rows: commit or abort."""

    base_offset: int
    data: bytes
    rows: tuple[Row, ...]
    epoch: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    last_sequence: int = -1
    is_transactional: bool = False
    outcome: str = ""

    @property
    def end_offset(self) -> int:
        return self.base_offset + max(1, len(self.rows))


class Producer(NamedTuple):
    """What a log knows of a producer; ``last_sequence`` is -1 where no batch is kept."""

    producer_epoch: int
    last_sequence: int
    transaction_start: int | None


@dataclass(frozen=True)
class Twin:
    """One replica of one incarnation of a topic.

    Attributes:
        batches: all that were appended and not truncated, those below the log start too.
        flushed: below this a loss of power takes nothing.
        former: what stood there before truncations that may not be synced yet.
        start_written: the log start offset that a checkpoint or the files had in the end.
        high_watermark_written: the high watermark that a checkpoint has.
        touched_to: no compaction has looked beyond this offset.
        was_emptied: the log began again, which may not be synced yet.
        were_aborted: batches whose abort marker was there before a crash: a compaction may have counted it.
    """

    topic_id: str
    is_compacted: bool
    batches: tuple[Batch, ...] = ()
    start: int = 0
    end: int = 0
    start_written: int = 0
    flushed: int = 0
    high_watermark: int = 0
    high_watermark_written: int = 0
    epoch: int = 0
    touched_to: int = 0
    former: tuple[tuple[Batch, ...], ...] = ()
    was_emptied: bool = False
    were_aborted: frozenset[Batch] = frozenset()

    def appended(self, batch: Batch) -> Twin:
        return replace(self, batches=(*self.batches, batch), end=batch.end_offset)

    def truncated(self, to_offset: int) -> Twin:
        """Truncate at an offset; a batch that reaches over it goes as a whole."""
        if to_offset >= self.end:
            return self
        left_out = [batch.base_offset for batch in self.batches if batch.base_offset < to_offset < batch.end_offset]
        return replace(
            self,
            batches=tuple(batch for batch in self.batches if batch.end_offset <= to_offset),
            end=to_offset,
            start=min(self.start, to_offset),
            start_written=min(self.start_written, to_offset),
            flushed=min(self.flushed, to_offset, *left_out),
            high_watermark=min(self.high_watermark, to_offset),
            high_watermark_written=min(self.high_watermark_written, to_offset),
            former=(*self.former, self.batches),
        )

    def emptied(self, start: int) -> Twin:
        return replace(
            self.truncated(0),
            start=start,
            end=start,
            start_written=0,
            high_watermark=0,
            high_watermark_written=0,
            flushed=0,
            former=(*self.former, self.batches),
            was_emptied=True,
        )

    def synced(self) -> Twin:
        """All of it is on the disk."""
        return replace(self, flushed=self.end, former=(), was_emptied=False)

    def producers(self, end_offset: int) -> dict[int, Producer]:
        found: dict[int, Producer] = {}
        for batch in self.batches:
            if batch.producer_id < 0 or batch.end_offset > end_offset:
                continue
            known = found.get(batch.producer_id, Producer(batch.producer_epoch, -1, None))
            if known.producer_epoch != batch.producer_epoch:
                known = Producer(batch.producer_epoch, -1, known.transaction_start)
            if batch.outcome:
                known = known._replace(transaction_start=None)
            else:
                begins = batch.is_transactional and known.transaction_start is None
                known = known._replace(
                    last_sequence=batch.last_sequence,
                    transaction_start=batch.base_offset if begins else known.transaction_start,
                )
            found[batch.producer_id] = known
        return found

    def last_stable_offset(self, end_offset: int) -> int:
        starts = [one.transaction_start for one in self.producers(end_offset).values()]
        return min((start for start in starts if start is not None), default=end_offset)

    def aborted(self, end_offset: int) -> set[int]:
        """Return the base offsets of the batches of aborted transactions whose markers lie below an offset."""
        open_batches: dict[int, list[int]] = {}
        found: set[int] = set()
        for batch in self.batches:
            if batch.end_offset > end_offset or not batch.is_transactional:
                continue
            if not batch.outcome:
                open_batches.setdefault(batch.producer_id, []).append(batch.base_offset)
                continue
            ended = open_batches.pop(batch.producer_id, [])
            if batch.outcome == "abort":
                found.update(ended)
        return found


@dataclass
class Found:
    """A replica as it was found after a start.

    Attributes:
        rows: its records.
        batches: its batches' bytes.
        ends: where its batches end.
        committed: for some offsets, what a reader of committed data got from there on, up to the last stable offset.
    """

    topic_id: str
    start: int
    end: int
    high_watermark: int
    epochs: list[tuple[int, int]]
    producers: dict[int, Producer]
    rows: list[Row]
    batches: list[bytes]
    bases: list[int]
    committed: dict[int, list[Row]] = field(default_factory=dict)


def differences(found: Found, before: Twin, after: Twin | None, *, power_lost: bool) -> list[str]:
    """Return why a replica can't be what was left of a twin; empty: it can.

    Args:
        found: the replica.
        before: the twin, without the step that was in progress.
        after: with it; None if there was none.
        power_lost: whether there was a loss of power, not only a kill.
    """
    last = after or before
    if found.topic_id and found.topic_id != before.topic_id:
        return [f"it is of topic id {found.topic_id}, not {before.topic_id}"]
    shared = _shared_end(before.batches, last.batches)
    floor = min(before.flushed, last.flushed, shared) if power_lost else shared
    candidates = [before.batches, last.batches]
    if power_lost:
        candidates += [*before.former, *last.former]
    emptied = before.was_emptied or last.was_emptied
    reasons = []
    for batches in dict.fromkeys(candidates):
        twin = replace(before, batches=batches, touched_to=last.touched_to)
        reason = next(_against(found, twin, floor, before, last, emptied=emptied), None)
        if reason is None:
            return []
        reasons.append(reason)
    return reasons


def adopted(found: Found, before: Twin, after: Twin | None) -> Twin:
    """Return the twin to go on with: what was found, and what the disk has of it."""
    last = after or before
    candidates = [last.batches, before.batches, *last.former, *before.former]
    wanted = set(found.bases)
    batches = max(
        candidates,
        key=lambda one: (wanted <= {b.base_offset for b in one} and _holds(found, one), one is last.batches),
    )
    kept = tuple(batch for batch in batches if batch.end_offset <= found.end)
    aborted = before.aborted(before.end)
    return replace(
        last,
        batches=kept,
        start=found.start,
        end=found.end,
        start_written=min(found.start, last.start_written),
        flushed=min(before.flushed, last.flushed, found.end),
        high_watermark=found.high_watermark,
        high_watermark_written=min(found.high_watermark, before.high_watermark_written, last.high_watermark_written),
        former=(*before.former, *last.former, before.batches, last.batches),
        was_emptied=before.was_emptied or last.was_emptied,
        were_aborted=last.were_aborted | {batch for batch in before.batches if batch.base_offset in aborted},
    )


def _holds(found: Found, batches: Sequence[Batch]) -> bool:
    rows = {row for batch in batches for row in batch.rows}
    return all(row in rows for row in found.rows)


def _shared_end(one: Sequence[Batch], other: Sequence[Batch]) -> int:
    """Return where the part ends that two logs share."""
    end = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        end = left.end_offset
    return end


def _against(found: Found, twin: Twin, floor: int, before: Twin, last: Twin, *, emptied: bool) -> Iterator[str]:
    """Yield why what was found can't be a prefix of ``twin``."""
    there = [batch for batch in twin.batches if batch.end_offset <= found.end]
    if found.end < floor:
        yield f"it ends at {found.end}, and has lost what was kept up to {floor}"
    borders = {0, before.end, last.end, found.start} | {batch.end_offset for batch in twin.batches}
    if found.end not in borders:
        yield f"it ends at {found.end}, where no batch ends"
    lowest = min(before.start_written, last.start_written)
    if found.rows and not lowest <= found.start <= max(before.start, last.start):
        yield f"it starts at {found.start}, not in {lowest}..{max(before.start, last.start)}"
    if not found.rows and not emptied and not twin.is_compacted and found.end < lowest:
        yield f"it is empty at {found.end}, and began at {lowest}"
    visible = [batch for batch in there if batch.end_offset > found.start]
    if twin.is_compacted:
        yield from _against_compacted(found, twin, visible)
    elif found.batches != [batch.data for batch in visible]:
        yield f"it holds batches at {found.bases}, not at {[batch.base_offset for batch in visible]} (or other bytes)"
    if found.rows and not twin.is_compacted and found.epochs != _epochs(there, found.start):
        yield f"its epochs are {found.epochs}, not {_epochs(there, found.start)}"
    yield from _against_producers(found, twin, visible)
    highest = max(before.high_watermark, before.high_watermark_written, last.high_watermark)
    lowest = min(before.high_watermark_written, last.high_watermark_written)
    if emptied:
        highest = found.end
    low, high = (max(found.start, min(one, found.end)) for one in (lowest, highest))
    if not low <= found.high_watermark <= high:
        yield f"its high watermark is {found.high_watermark}, not in {low}..{high}"
    aborted = twin.aborted(found.end)
    open_ones = [one.transaction_start for one in found.producers.values()]
    stable = min((start for start in open_ones if start is not None), default=found.end)
    left = set(found.rows)
    for offset, got in found.committed.items():
        wanted = [
            row
            for batch in there
            if batch.base_offset not in aborted
            for row in batch.rows
            if offset <= row[0] < stable and row in left
        ]
        if got != wanted:
            yield f"a reader of committed data gets {got} from {offset} on, not {wanted}"


def _epochs(batches: Iterable[Batch], start: int) -> list[tuple[int, int]]:
    entries: list[tuple[int, int]] = []
    for batch in batches:
        if not entries or batch.epoch > entries[-1][0]:
            entries.append((batch.epoch, batch.base_offset))
    at = max((index for index, entry in enumerate(entries) if entry[1] <= start), default=0)
    return [(epoch, max(offset, start)) for epoch, offset in entries[at:]]


def _against_producers(found: Found, twin: Twin, visible: Sequence[Batch]) -> Iterator[str]:
    wanted = twin.producers(found.end)
    for producer_id, producer in found.producers.items():
        if wanted.get(producer_id) != producer and not _is_partly_known(producer, wanted.get(producer_id), found.start):
            yield f"producer {producer_id} is {producer}, not {wanted.get(producer_id)}"
    needed = {batch.producer_id for batch in visible if batch.producer_id >= 0}
    if not needed <= found.producers.keys():
        yield f"producers {sorted(needed - found.producers.keys())} are not known"


def _is_partly_known(found: Producer, wanted: Producer | None, log_start: int) -> bool:
    """Whether what differs lay below the log start: the begin of a transaction, or all batches before a marker."""
    if wanted is None or found.producer_epoch != wanted.producer_epoch:
        return False
    if found.last_sequence not in {wanted.last_sequence, -1}:
        return False
    start = wanted.transaction_start
    return found.transaction_start == start or (start is not None and start < log_start)


def _against_compacted(found: Found, twin: Twin, visible: Sequence[Batch]) -> Iterator[str]:
    # A marker that a loss of power has taken may have counted when the log was compacted.
    aborted = twin.aborted(max((batch.end_offset for batch in twin.batches), default=0))
    rows = [row for batch in visible for row in batch.rows if row[0] >= found.start]
    strange = set(found.rows) - {row for batch in visible for row in batch.rows}
    if strange:
        yield f"it holds records that were never written there: {sorted(strange)}"
    if [row[0] for row in found.rows] != sorted({row[0] for row in found.rows}):
        yield "its offsets do not rise"
    left = set(found.rows)
    missing = [row for row in rows if row[0] >= twin.touched_to and row not in left]
    if missing:
        yield f"records are missing that no compaction had looked at: {missing}"
    left_out = {batch for batch in visible if batch.base_offset in aborted} | twin.were_aborted
    sound = {row for batch in visible if batch not in left_out for row in batch.rows}
    wanted = {row[1]: row for row in rows if row in sound}
    newest = {row[1]: row for row in found.rows if row in sound and row[0] >= found.start}
    for key, row in wanted.items():
        got = newest.get(key)
        if got != row and not (got is None and row[2] is None):
            yield f"the last record of key {key!r} is {got}, not {row}"
