"""The positions that were committed for one group and partition, to be asked what a read of them must find."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from tidegauge_lab.accountant.transactions.model import NEVER_US, Place, SendOffsets


class CommitsOfPlace:
    """Commits of one group's position in one partition.

    A soak of an hour reads and commits ten thousands of positions: each question costs a search, not a walk over all.

    Args:
        place: the partition.
        commits: with the time in us at which each was acknowledged as committed; None: it was not.
    """

    def __init__(self, place: Place, commits: Iterable[tuple[SendOffsets, int | None]]) -> None:
        self._by_offset: dict[int, list[SendOffsets]] = defaultdict(list)
        settled: list[tuple[int, SendOffsets]] = []
        for one, settled_us in commits:
            self._by_offset[one.offsets[place]].append(one)
            if settled_us is not None and settled_us > NEVER_US:
                settled.append((settled_us, one))
        settled.sort(key=lambda pair: pair[0])
        self._settled_us = [settled_us for settled_us, _ in settled]
        self._newest: list[SendOffsets] = []  # of those that were settled until then, the one that was asked for last
        for _, one in settled:
            before = self._newest[-1] if self._newest else one
            self._newest.append(max(before, one, key=lambda commit: commit.invoked_us))

    def of(self, offset: int) -> Sequence[SendOffsets]:
        """Return the commits of one offset."""
        return self._by_offset.get(offset, ())

    def newest(self, before_us: int) -> SendOffsets | None:
        """Return, of the commits that were acknowledged before a time, the one that was asked for last."""
        count = bisect_left(self._settled_us, before_us)
        return self._newest[count - 1] if count else None
