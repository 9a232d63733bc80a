"""Combines the states of records that were written one after the other into the shortest list that says the same.

Contract: of two states of an offset the one with the higher delivery count is right, of equal counts the one with the
higher state: a late write of an earlier delivery never counts. States below the start offset are left out.
Source: PersisterStateBatchCombiner.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from tidegauge.share_groups import StateBatch


def combined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return each offset's state, in ascending batches merged with equal neighbours.

    Args:
        batches: in any order; they may overlap.
        start_offset: below it nothing is kept; -1: everything is.
    """
    kept = sorted(
        one._replace(first_offset=max(one.first_offset, start_offset))
        for one in batches
        if one.last_offset >= start_offset
    )
    found: list[StateBatch] = []
    open_batches: list[tuple[int, int, int]] = []
    position, following = 0, 0
    while open_batches or following < len(kept):
        if not open_batches:
            position = kept[following].first_offset
        while following < len(kept) and kept[following].first_offset <= position:
            one = kept[following]
            heapq.heappush(open_batches, (-one.delivery_count, -one.state, one.last_offset))
            following += 1
        count, state, last_offset = open_batches[0]
        if last_offset < position:
            heapq.heappop(open_batches)
            continue
        end = last_offset
        if following < len(kept):
            end = min(end, kept[following].first_offset - 1)
        _append(found, StateBatch(position, end, -state, -count))
        position = end + 1
    return tuple(found)


def _append(found: list[StateBatch], batch: StateBatch) -> None:
    """Add a batch, or make the last one longer if it is contiguous and equal."""
    last = found[-1] if found else None
    if last is not None and last.last_offset + 1 == batch.first_offset and last[2:] == batch[2:]:
        found[-1] = last._replace(last_offset=batch.last_offset)
    else:
        found.append(batch)
