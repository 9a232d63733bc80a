"""The cost of our path beside a plain one that does the least of the same work, in one process.

CPU time of this thread, never the clock on the wall; both by turns, the best of each: what else the machine does falls
out. Only the ratio means something, so a guard may be tight where a duration could not be asserted at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable

ROUNDS = 15


def _cost_seconds(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began


def cost_ratio(ours: Callable[[], object], plain: Callable[[], object], rounds: int = ROUNDS) -> float:
    """How many times as much CPU ``ours`` needs; both must take some milliseconds at least."""
    ours()
    plain()
    pairs = [(_cost_seconds(ours), _cost_seconds(plain)) for _ in range(rounds)]
    return min(own for own, _ in pairs) / min(reference for _, reference in pairs)
