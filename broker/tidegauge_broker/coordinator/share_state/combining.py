"""Combines the states of records that were written one after the other into a list without overlaps.

Contract: of two states of an offset the one with the higher delivery count is right, of equal counts the one with the
higher state: a late write of an earlier delivery never counts. States below the start offset are left out.

The list is Kafka's, batch by batch, and not always the shortest one: a batch that overlaps no later one is final, and
is not joined with an equal neighbour that a later overlap brings about. A leader that reads the state keeps its batches
apart, so that members acquire them apart.
Source: PersisterStateBatchCombiner.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tidegauge.share_groups import StateBatch

_Span = tuple[int, int, int, int]
"""First offset, last offset, delivery count and state: in Kafka's order (PersisterStateBatch.compareTo)."""


def combined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return each offset's state, in ascending batches.

    Args:
        batches: in any order; they may overlap. One that ends before it begins, as a record read from a log may say,
            has no offset and is left out: Kafka's combiner would never end.
        start_offset: below it nothing is kept; -1: everything is.
    """
    left = [
        (max(one.first_offset, start_offset), one.last_offset, one.delivery_count, one.state)
        for one in batches
        if one.last_offset >= max(one.first_offset, start_offset)
    ]
    heapq.heapify(left)
    found: list[StateBatch] = []
    while left:
        first = heapq.heappop(left)
        if left and _meet(first, left[0]):
            for one in _resolved(first, heapq.heappop(left)):
                heapq.heappush(left, one)
        else:
            found.append(StateBatch(first[0], first[1], first[3], first[2]))
    return tuple(found)


def _meet(former: _Span, later: _Span) -> bool:
    """Whether two spans overlap, or are contiguous and equal."""
    return later[0] <= former[1] or (former[1] + 1 == later[0] and former[2:] == later[2:])


def _resolved(former: _Span, later: _Span) -> list[_Span]:
    """Return two spans that meet without an overlap.

    The later one does not begin before the former one.
    """
    first, last = former[:2]
    if former[2:] == later[2:]:
        return [(first, max(last, later[1]), *former[2:])]
    if later[2:] < former[2:]:
        return [former, *_span(last + 1, later)]
    before = [(first, later[0] - 1, *former[2:])] if first < later[0] else []
    return [*before, later, *_span(later[1] + 1, former)]


def _span(first_offset: int, of: _Span) -> list[_Span]:
    """Return the part of a span from an offset on, if any."""
    return [(first_offset, *of[1:])] if first_offset <= of[1] else []
