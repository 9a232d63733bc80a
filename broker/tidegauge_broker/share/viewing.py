"""A share partition's view for the lab: the state of each record. Pure; it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise

from tidegauge_broker.share.partition import PartitionState, SharePartition
from tidegauge_broker.share.states import Delivery, RecordState
from tidegauge_broker.share.window import Window


class Whereabouts(Enum):
    """The place of a record of the window: the states, and two for offsets that have none.

    UNKNOWN is a hole in the state that was read: it is not known whether its records were delivered, so they are, once
    more. NONE is any other hole: an offset that compaction or a marker of a transaction has left without a record.
    """

    AVAILABLE = "available"
    ACQUIRED = "acquired"
    ACKNOWLEDGED = "acknowledged"
    ARCHIVED = "archived"
    UNKNOWN = "unknown"
    NONE = "none"


_OF_STATE = {one: Whereabouts[one.name] for one in RecordState}


@dataclass(frozen=True, slots=True)
class RecordsView:
    """Records with consecutive offsets that are alike.

    Attributes:
        last_offset: inclusive.
        member_id: the member that has them, or had them before a transition that is being written; None: none.
        deadline_ms: when its lock ends; None: there is none.
        is_being_written: whether the state waits for its write, and does not count yet.
        is_archived_by_log: whether they are archived because their log, or their transaction, has no such records.
    """

    first_offset: int
    last_offset: int
    where: Whereabouts
    delivery_count: int = 0
    member_id: str | None = None
    deadline_ms: int | None = None
    is_being_written: bool = False
    is_archived_by_log: bool = False

    def continues(self, other: RecordsView) -> bool:
        """Return whether the records follow others, and are like them."""
        moved = replace(self, first_offset=other.first_offset, last_offset=other.last_offset)
        return self.first_offset == other.last_offset + 1 and moved == other


@dataclass(frozen=True, slots=True)
class ShareView:
    """A share partition.

    Attributes:
        end_offset: exclusive: the first record that was never acquired.
        complete_count: records in terminal states at or after the start offset.
        records: from the start to the end offset, and those before the start that a member still has.
    """

    state: PartitionState
    leader_epoch: int
    state_epoch: int
    start_offset: int
    end_offset: int
    complete_count: int
    records: tuple[RecordsView, ...]


def viewed(share: SharePartition) -> ShareView:
    """Return what a share partition has in flight, now."""
    window = share.window
    has_records = len(window.in_flight) > 0
    return ShareView(
        share.state,
        share.leader_epoch,
        share.state_epoch,
        window.start_offset,
        window.end_offset + 1 if has_records else window.start_offset,
        window.complete_count,
        tuple(ranges_of(share)),
    )


def ranges_of(share: SharePartition) -> Iterator[RecordsView]:
    """Yield the records of a share partition's window, in the fewest ranges."""
    if len(share.window.in_flight):
        yield from _joined(_runs(share.window))


def _runs(window: Window) -> Iterator[RecordsView]:
    following = window.start_offset
    for batch in window.in_flight:
        yield from _hole(window, following, batch.first_offset)
        for first_offset, last_offset, delivery in batch.runs():
            if last_offset >= window.start_offset or delivery.holder_id is not None:
                yield _records(first_offset, last_offset, delivery)
        following = max(following, batch.last_offset + 1)
    yield from _hole(window, following, window.end_offset + 1)


def _hole(window: Window, first_offset: int, end_offset: int) -> Iterator[RecordsView]:
    """Yield the offsets of a hole (the end is exclusive), divided at the edges of the active gap."""
    gap = window.active_gap
    cuts = [] if gap is None else [gap.first_offset, gap.end_offset + 1]
    edges = sorted({first_offset, end_offset, *(one for one in cuts if first_offset < one < end_offset)})
    for begin, end in pairwise(edges if first_offset < end_offset else ()):
        is_unknown = gap is not None and gap.first_offset <= begin <= gap.end_offset
        yield RecordsView(begin, end - 1, Whereabouts.UNKNOWN if is_unknown else Whereabouts.NONE)


def _records(first_offset: int, last_offset: int, delivery: Delivery) -> RecordsView:
    lock = delivery.lock
    return RecordsView(
        first_offset,
        last_offset,
        _OF_STATE[delivery.state],
        delivery.delivery_count,
        delivery.holder_id,
        None if lock is None else lock.deadline_ms,
        delivery.is_in_transition,
        delivery.is_archived_for_good,
    )


def _joined(runs: Iterator[RecordsView]) -> Iterator[RecordsView]:
    """Yield the same records in as few ranges as say it."""
    last: RecordsView | None = None
    for one in runs:
        if last is not None and one.continues(last):
            last = replace(last, last_offset=one.last_offset)
            continue
        if last is not None:
            yield last
        last = one
    if last is not None:
        yield last
