"""The expected content of a replica after a crash: a twin made of lists, and the comparison. Pure.

Rules:
    1. After a kill a replica holds all that was written. If a step was in progress, it holds the state before it or
       after it, or a prefix of either that has all that the two share.
    2. After a power loss it holds a prefix of that, or of the log before a truncation that was not
       synced; nothing below ``flushed`` is lost.
    3. The log start offset is at or above the one last written to a checkpoint, and at most the one that was set.
    4. Leader epochs and producers are those of the remaining batches. Of a producer whose batches lie below
       the log start nothing need be known.
    5. Of a compacted log every record is there that no compaction may have removed (``Twin.compacted``); the last one
       of each key is, unless it is a tombstone. No record of a key is left that is older than a removed one.
       So it is after a crash, too: a compaction depends on nothing that a power loss could take.
    6. A reader of committed data gets all of the committed records that are left and no other.
    7. Records that a truncation removes from a part that was compacted (as after an unclean election) may be why some
       before them were removed. So records that could have been removed until then may be missing or unknown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

Row = tuple[int, bytes | None, bytes | None]
"""A record: offset, key, value."""


class Batch(NamedTuple):
    """A batch of the log; ``outcome`` is a marker's (commit or abort), which has no rows."""

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
    """The state of a producer in a log; ``last_sequence`` is -1 without a batch."""

    producer_epoch: int
    last_sequence: int
    transaction_start: int | None


@dataclass(frozen=True)
class Twin:
    """One replica of one incarnation of a topic.

    Attributes:
        batches: all that were appended and not truncated, those below the log start too.
        flushed: below this a loss of power takes nothing.
        former: the batches before truncations that may not be synced yet.
        start_written: the log start offset that a checkpoint or the files had in the end.
        high_watermark_written: the high watermark that a checkpoint has.
        truncations: how many there were.
        was_emptied: the log began again, which may not be synced yet.
        removable: the records that a compaction may have removed, and the batches of producers.
        excused: the ones among them before a truncation (rule 7).
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
    former: tuple[tuple[Batch, ...], ...] = ()
    truncations: int = 0
    was_emptied: bool = False
    removable: frozenset[Row | Batch] = frozenset()
    excused: frozenset[Row | Batch] = frozenset()

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
            truncations=self.truncations + 1,
            excused=self.excused | self.removable,
        )

    def compacted(self, end_offset: int, mapped_end: int) -> Twin:
        """Compact what lies below an offset, by what lies below another one.

        Removable: a record that another one of its key follows, an aborted one, and a tombstone; of a producer all but
        its last batch of records.
        """
        aborted = self.aborted(self.end)
        newest: dict[bytes | None, Row] = {}
        kept: dict[int, Batch] = {}
        for batch in self.batches:
            if not batch.outcome:
                kept[batch.producer_id] = batch
            if batch.base_offset not in aborted:
                newest.update((row[1], row) for row in batch.rows if row[0] < mapped_end)
        below = [batch for batch in self.batches if batch.base_offset < end_offset]
        removed = {
            row
            for batch in below
            for row in batch.rows
            if batch.base_offset in aborted or row[2] is None or newest[row[1]] != row
        }
        left_out = {batch for batch in below if batch.producer_id >= 0 and kept[batch.producer_id] != batch}
        return replace(self, removable=self.removable | removed | left_out)

    def sure_end(self, offset: int) -> int:
        """Return the end of the records that must be there.

        It is at most the given offset; rule 7 excuses the last batches.

        A compacted log whose last batch was truncated behind a gap ends before the gap when it is loaded.
        """
        if self.is_compacted and self.batches:
            offset = min(offset, self.batches[-1].end_offset)
        end = 0
        for batch in self.batches:
            if batch.end_offset <= offset and not self.excused.issuperset(batch.rows or [batch]):
                end = batch.end_offset
        return end if self.excused else offset

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
            truncations=self.truncations + 1,
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
        """Return the base offsets of batches aborted below an offset."""
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
    """Return why a replica can't be a twin's remnant; empty: it can.

    Args:
        found: the replica.
        before: the twin, without the step that was in progress.
        after: with it; None if there was none.
        power_lost: whether there was a loss of power, not only a kill.
    """
    if found.topic_id and found.topic_id != before.topic_id:
        return [f"it is of topic id {found.topic_id}, not {before.topic_id}"]
    reasons = []
    for _, reason in _judged(found, before, after, power_lost=power_lost):
        if reason is None:
            return []
        reasons.append(reason)
    return reasons


def _judged(
    found: Found, before: Twin, after: Twin | None, *, power_lost: bool
) -> Iterator[tuple[tuple[Batch, ...], str | None]]:
    """Yield the logs of which it may be the remnant, the newest first, and why it can't be; None: it can."""
    last = after or before
    shared = _shared_end(before.batches, last.batches)
    floor = min(before.flushed, last.flushed, shared) if power_lost else shared
    candidates = [last.batches, before.batches]
    if power_lost:
        candidates += [*reversed(last.former), *reversed(before.former)]
    emptied = before.was_emptied or last.was_emptied
    for batches in dict.fromkeys(candidates):
        twin = replace(before, batches=batches, removable=last.removable, excused=last.excused)
        yield batches, next(_against(found, twin, floor, before, last, emptied=emptied), None)


def adopted(found: Found, before: Twin, after: Twin | None, *, power_lost: bool) -> Twin:
    """Return the next twin, if ``differences`` finds none, from the remnant."""
    last = after or before
    judged = _judged(found, before, after, power_lost=power_lost)
    batches = next(batches for batches, reason in judged if reason is None)
    kept = tuple(batch for batch in batches if batch.end_offset <= found.end)
    return replace(
        last,
        batches=kept,
        epoch=last.epoch + (found.end < max(before.end, last.end)),  # records written there now are another leader's
        start=found.start,
        end=found.end,
        start_written=min(found.start, last.start_written),
        flushed=min(before.flushed, last.flushed, found.end),
        high_watermark=found.high_watermark,
        high_watermark_written=min(found.high_watermark, before.high_watermark_written, last.high_watermark_written),
        former=(*before.former, *last.former, before.batches, last.batches),
        was_emptied=before.was_emptied or last.was_emptied,
    )


def _shared_end(one: Sequence[Batch], other: Sequence[Batch]) -> int:
    """Return where the part ends that two logs share."""
    end = 0
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        end = left.end_offset
    return end


def _against(found: Found, twin: Twin, floor: int, before: Twin, last: Twin, *, emptied: bool) -> Iterator[str]:
    """Yield why the replica can't be a prefix of ``twin``."""
    there = [batch for batch in twin.batches if batch.end_offset <= found.end]
    floor = twin.sure_end(floor)
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
        known = wanted.get(producer_id)
        if known != producer and not (
            _is_partly_known(producer, known, found.start) or _is_excused(producer_id, known, found, twin)
        ):
            yield f"producer {producer_id} is {producer}, not {known}"
    needed = {batch.producer_id for batch in visible if batch.producer_id >= 0}
    unknown = {one for one in needed - found.producers.keys() if not _is_excused(one, wanted.get(one), found, twin)}
    if unknown:
        yield f"producers {sorted(unknown)} are not known"


def _is_excused(producer_id: int, wanted: Producer | None, found: Found, twin: Twin) -> bool:
    """Whether rule 7 holds for what a producer is known by: its last batches, and its open transaction."""
    if wanted is None:
        return False
    its = [batch for batch in twin.batches if batch.producer_id == producer_id and batch.end_offset <= found.end]
    with_records = [batch for batch in its if not batch.outcome]
    start = its[-1].base_offset if wanted.transaction_start is None else wanted.transaction_start
    known_by = {batch for batch in its if batch.base_offset >= start} | set(with_records[-1:])
    return not known_by.isdisjoint(twin.excused)


def _is_partly_known(found: Producer, wanted: Producer | None, log_start: int) -> bool:
    """Whether what differs lay below the log start: the begin of a transaction, or all batches before a marker."""
    if wanted is None or found.producer_epoch != wanted.producer_epoch:
        return False
    if found.last_sequence not in {wanted.last_sequence, -1}:
        return False
    start = wanted.transaction_start
    return found.transaction_start == start or (start is not None and start < log_start)


def _against_compacted(found: Found, twin: Twin, visible: Sequence[Batch]) -> Iterator[str]:
    """Rule 5."""
    rows = [row for batch in visible for row in batch.rows if row[0] >= found.start]
    strange = set(found.rows) - set(rows)
    if strange:
        yield f"it holds records that were never written there: {sorted(strange)}"
    if [row[0] for row in found.rows] != sorted({row[0] for row in found.rows}):
        yield "its offsets do not rise"
    left = set(found.rows)
    missing = [row for row in rows if row not in left and row not in twin.removable]
    if missing:
        yield f"records are missing that no compaction may have removed: {missing}"
    aborted = twin.aborted(found.end)
    of_keys: dict[bytes | None, list[Row]] = {}
    for batch in visible:
        if batch.base_offset not in aborted:
            for row in batch.rows:
                if row[0] >= found.start and (row in left or row not in twin.excused):
                    of_keys.setdefault(row[1], []).append(row)
    for key, its in of_keys.items():
        if its[-1] not in left and its[-1][2] is not None:
            yield f"the last record of key {key!r} is missing: {its[-1]}"
        removed = max((row for row in its if row not in left), default=None)
        older = [row for row in its if row in left and removed is not None and row[0] < removed[0]]
        if older:
            yield f"{removed} was removed, and what is older of key {key!r} is left: {older}"
