"""Wall clocks of simulated brokers: wrong in one of ten histories, and the same for the same seed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.runtime import Runtime
from tidegauge_proof.simulator.coordinator_history import History
from tidegauge_proof.simulator.exactly_once.joint_history import joint_history_of
from tidegauge_proof.simulator.groups.group_checker import GroupChecker
from tidegauge_proof.simulator.groups.group_history import group_history_of
from tidegauge_proof.simulator.transactions.transaction_history import transaction_history_of
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


def odd_seeds(count: int) -> list[int]:
    """Return the first seeds whose histories have such clocks."""
    found = (seed for seed in itertools.count() if wall_clocks_of(seed, {1: WallTime()}) is not None)
    return list(itertools.islice(found, count))


HISTORIES: dict[str, Callable[[int], History]] = {
    "groups": lambda seed: group_history_of(seed, 300),
    "transactions": lambda seed: transaction_history_of(seed, 300),
    "exactly once": lambda seed: joint_history_of(seed, 300),
}


@pytest.mark.parametrize("kind", HISTORIES)
def test_coordinators_with_such_clocks_keep_their_invariants(kind: str) -> None:
    """Sessions, rebalances and open transactions end, and nothing that was acknowledged is missing."""
    for seed in odd_seeds(12):
        history = HISTORIES[kind](seed)
        assert history.violation is None, f"seed {seed}, step {history.steps}: {history.violation}"


def test_coordinators_store_the_time_of_their_own_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A state of a group begins at the wall-clock time of the broker that coordinates it (GroupMetadata)."""
    ahead: set[int] = set()
    look = GroupChecker.look

    def noting(checker: GroupChecker, cluster: Any) -> None:
        for process in cluster.processes.values():
            for view in process.coordinator.group_views():
                ahead.add(view.state_since_ms - cluster.world.now_ms)
        look(checker, cluster)

    monkeypatch.setattr(GroupChecker, "look", noting)
    for seed in odd_seeds(4):
        group_history_of(seed, 300)
    assert min(ahead) < -3_600_000, "a clock is behind"
    assert max(ahead) > 3_600_000, "a clock is ahead"


def test_timers_that_go_by_a_wall_clock_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that is set ahead ends sessions, and one that is set back keeps a rebalance open (G9)."""
    begin = Runtime.begin

    def by_the_wall_clock(runtime: Runtime, now_ms: int, cause: str) -> None:
        begin(runtime, now_ms, cause)
        runtime.now_ms = runtime.wall_ms

    monkeypatch.setattr(Runtime, "begin", by_the_wall_clock)
    found = [group_history_of(seed, 300).violation for seed in odd_seeds(12)]
    assert {violation.invariant for violation in found if violation is not None} & {"G9", "Rest"}
