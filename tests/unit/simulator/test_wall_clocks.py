"""Wall clocks of simulated brokers: wrong in one of ten histories, and the same for the same seed."""

from __future__ import annotations

import itertools

from tidegauge.wall_time import WallTime
from tidegauge_proof.simulator.wall_clocks import MAX_SKEW_MS, WallClocks, wall_clocks_of

BROKERS = (1, 2, 3)


def course(seed: int) -> list[tuple[int, ...]]:
    """Return how far the clocks are ahead over 2,000 steps of 100 ms."""
    clocks = {broker_id: WallTime() for broker_id in BROKERS}
    made, found = WallClocks(seed, clocks), []
    for _ in range(2_000):
        made.pass_time(100)
        found.append(tuple(clock.ahead_ms for clock in clocks.values()))
    return found


def test_clocks_are_skewed_set_back_and_frozen_each_broker_for_itself() -> None:
    steps = course(5)
    changes = {
        (new - old, place)
        for former, after in itertools.pairwise(steps)
        for place, (old, new) in enumerate(zip(former, after, strict=True))
    }
    assert {place for change, place in changes if change == -100} == {0, 1, 2}, "a clock stands still"
    assert any(change < -100 for change, _ in changes), "a clock is set back"
    assert any(change > 0 for change, _ in changes), "a clock is set ahead"
    assert any(len(set(ahead)) == len(BROKERS) for ahead in steps), "each broker has a time of its own"
    assert all(abs(ms) <= MAX_SKEW_MS + 2_000 * 100 for ahead in steps for ms in ahead)


def test_a_seed_decides_about_the_clocks() -> None:
    assert course(7) == course(7)
    assert course(7) != course(8)


def test_few_histories_have_such_clocks() -> None:
    """The others keep the histories that they have had."""
    share = sum(wall_clocks_of(seed, {1: WallTime()}) is not None for seed in range(1_000))
    assert 50 < share < 150
