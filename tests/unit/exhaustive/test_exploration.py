"""Every schedule of a small cluster: the exploration is right about the core, and about the rules.

The twin plays every schedule from its first step on brokers that are never frozen or remembered; it must find the same
states. docs/results/explorations.md compares each rule with the reports of the public TLA+ models; its claims for
small bounds are held here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import permutations
from random import Random
from typing import Any

import pytest

from tidegauge_proof.exhaustive.breadth_first import Exploration
from tidegauge_proof.exhaustive.broker_machine import BrokerMachine
from tidegauge_proof.exhaustive.cluster import KAFKA, Action, Bounds, Cluster, ClusterState
from tidegauge_proof.exhaustive.explorer import Explorer, Namer, survives
from tidegauge_proof.exhaustive.frozen import Cells, Exchange, Letter
from tidegauge_proof.exhaustive.judge import Judge
from tidegauge_proof.exhaustive.live import Live, Played
from tidegauge_proof.exhaustive.memo import Memo
from tidegauge_proof.exhaustive.words import picture, tell

PAIR = Bounds(replicas=2, records=2, elections=2)
RULES = ("high-watermark", "kip-101", "kip-279", "kip-320")


def explore(bounds: Bounds, rule: str = "kip-320", **options: Any) -> Exploration:
    return Explorer(bounds, rule, **options).run()


def steps_to(result: Exploration) -> dict[str, int]:
    return {found.invariant: len(found.schedule) for found in result.found}


# The exploration itself


def by_replay(bounds: Bounds, rule: str) -> set[bytes]:
    """All states, found by playing each schedule from its beginning."""
    namer, cells = Namer(bounds), Cells()
    start = Played(bounds, rule, [], cells).states[0]
    seen = {namer.key(start)}
    waiting: deque[tuple[list[Action], ClusterState]] = deque([([], start)])
    while waiting:
        schedule, state = waiting.popleft()
        for action in Cluster(bounds, Live(bounds, rule, cells)).actions(state):
            played = Played(bounds, rule, [*schedule, action], cells)
            if len(played.states) == len(schedule) + 1:
                continue  # beyond the bounds
            key = namer.key(played.states[-1])
            if key not in seen:
                seen.add(key)
                waiting.append(([*schedule, action], played.states[-1]))
    return seen


@pytest.mark.parametrize(
    "bounds",
    [
        pytest.param(Bounds(replicas=2, records=0, elections=1), id="model"),
        pytest.param(
            Bounds(replicas=2, records=1, elections=1, controller=KAFKA, power_cuts=1),
            id="power",
            marks=pytest.mark.long,
        ),
    ],
)
def test_brokers_that_live_on_reach_the_same_states(bounds: Bounds):
    explorer = Explorer(bounds, "kip-320")
    explorer.run()
    assert by_replay(bounds, "kip-320") == explorer.keys()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "bounds",
    [
        Bounds(replicas=3, records=3, elections=3),
        Bounds(replicas=3, records=3, elections=3, as_model=True),
        Bounds(replicas=2, records=3, elections=3, messages=2),
        Bounds(replicas=3, records=3, elections=9, controller=KAFKA, crashes=2, power_cuts=1, sessions=2, messages=1),
    ],
    ids=["model", "as-model", "messages", "kafka"],
)
def test_brokers_that_live_on_go_the_same_ways(bounds: Bounds, rule: str):
    """Long schedules, chosen by chance: frozen, thawed and remembered, a broker does what it would have done."""
    memo = Memo(bounds, rule)
    for seed in range(3):
        random = Random(seed)
        live, frozen = Cluster(bounds, Live(bounds, rule, memo.cells)), Cluster(bounds, memo)
        state = frozen.begin()
        assert live.begin() == state
        for _ in range(50):
            action = random.choice(list(frozen.actions(state)))
            try:
                reached = frozen.apply(state, action)
            except AssertionError:
                with pytest.raises(AssertionError):
                    live.apply(state, action)
                break
            if reached is None:
                break
            assert live.apply(state, action) == reached
            state = reached


def test_a_checkpoint_is_a_part_of_the_state():
    """Chance seldom comes by a crash after a checkpoint: the new process begins with that high watermark."""
    bounds = Bounds(replicas=2, records=1, elections=3, controller=KAFKA, crashes=1)
    memo = Memo(bounds, "kip-320")
    live, frozen = Cluster(bounds, Live(bounds, "kip-320", memo.cells)), Cluster(bounds, memo)
    state = frozen.begin()
    assert live.begin() == state
    rounds = [("round", 2, False, True)] * 2
    letters = [("leader_and_isr", letter) for letter in state.mail.value]
    dies = [("checkpoint", 1), ("kill", 1), ("start", 1), ("look",)]
    for action in [*letters, ("produce", 1), *rounds, *dies]:
        assert action in set(frozen.actions(state))
        state = play(live, frozen, state, action)
    (letter,) = (letter for letter in state.mail.value if letter.broker == 1)
    state = play(live, frozen, state, ("leader_and_isr", letter))
    assert state.brokers[0].value.replica.high_watermark == 1


def play(live: Cluster, frozen: Cluster, state: ClusterState, action: Action) -> ClusterState:
    reached = frozen.apply(state, action)
    assert reached is not None
    assert live.apply(state, action) == reached
    return reached


def test_a_frozen_broker_is_the_broker_it_was():
    """Every broker of every state within small bounds: thawed and frozen again it is equal."""
    bounds = Bounds(replicas=2, records=2, elections=1, messages=1)
    setting = bounds.setting("kip-279")
    memo = Memo(bounds, "kip-279")
    cluster = Cluster(bounds, memo)
    waiting, seen = [cluster.begin()], {cluster.begin()}
    while waiting and len(seen) < 1000:
        state = waiting.pop(0)
        for broker, cell in enumerate(state.brokers, 1):
            assert BrokerMachine.thaw(broker, setting, cell.value).freeze() == cell.value
        for action in cluster.actions(state):
            reached = cluster.apply(state, action)
            if reached is not None and reached not in seen:
                seen.add(reached)
                waiting.append(reached)
    assert len(seen) >= 1000


def renamed(action: Action, names: Mapping[int, int]) -> Action:
    """The same action among brokers of other names."""

    def other(value: Any) -> Any:
        match value:
            case bool() | str() | None:
                return value
            case int():
                return names[value]
            case Letter():
                isr = tuple(sorted(names[member] for member in value.isr))
                return value._replace(broker=names[value.broker], leader=names[value.leader], isr=isr)
            case Exchange():
                question = value.request._replace(leader=names[value.request.leader])
                return value._replace(follower=names[value.follower], request=question)
            case _:
                return tuple(sorted(other(member) for member in value))

    return tuple(other(value) for value in action)


def test_states_that_differ_in_names_only_are_one():
    """KafkaTruncateToHighWatermark has six states for each of ours, unless brokers are alike."""
    bounds = Bounds(replicas=3, records=2, elections=1, messages=1)
    explorer = Explorer(bounds, "high-watermark", max_states=3000)
    explorer.run()
    namer = Namer(bounds)
    schedule = explorer.schedule_to(2999)
    assert len(schedule) > 4
    keys = set()
    for others in permutations((1, 2, 3)):
        names = dict(enumerate(others, 1))
        played = Played(bounds, "high-watermark", [renamed(action, names) for action in schedule])
        keys.add(namer.key(played.states[-1]))
    assert len(keys) == 1


def test_equal_bounds_give_equal_states():
    """Another number means that the core does something else, or that more is distinguished."""
    bounds = Bounds(replicas=3, records=1, elections=0)
    first, second = explore(bounds), explore(bounds)
    assert first == second
    assert first.complete
    assert first.digest != explore(bounds, "high-watermark").digest


def test_it_stops_where_it_should():
    result = explore(PAIR, max_states=100)
    assert (result.states, result.complete) == (100, False)


# Records that the rules lose


@pytest.mark.parametrize(
    ("rule", "states", "broken"),
    [
        (
            "high-watermark",
            5069,
            {"EpochsMonotone": 9, "WeakIsr": 10, "StrongIsr": 10, "FollowerPrefixOfLeader": 10, "LogMatchingHw": 12},
        ),
        ("kip-101", 5068, {"EpochsMonotone": 9, "WeakIsr": 12, "StrongIsr": 12}),
        pytest.param("kip-279", 5068, {"EpochsMonotone": 9, "WeakIsr": 12, "StrongIsr": 12}, marks=pytest.mark.long),
        ("kip-320", 4815, {}),
    ],
)
def test_two_replicas_two_records_three_epochs(rule: str, states: int, broken: dict[str, int]):
    """All of them: high-watermark loses and diverges, what came after it loses, kip-320 does neither."""
    result = explore(PAIR, rule)
    assert (result.states, result.complete) == (states, True)
    assert steps_to(result) == broken


@pytest.mark.long
def test_the_third_record_makes_them_diverge():
    """Bounds are everything: with two records KIP-101 and KIP-279 lose, but no two high watermarks disagree."""
    bounds = Bounds(replicas=2, records=3, elections=2)
    for rule in ("kip-101", "kip-279"):
        assert steps_to(explore(bounds, rule, max_states=12_000))["LogMatchingHw"] == 13


def test_crashes_break_nothing_under_kip_320():
    """Kafka's controller, a crash at any moment, checkpoints that are late, messages that are late or lost."""
    for bounds in (
        Bounds(replicas=2, records=2, elections=3, controller=KAFKA, crashes=1),
        Bounds(replicas=2, records=0, elections=2, controller=KAFKA, crashes=1, messages=1),
        Bounds(replicas=2, records=2, elections=3, controller=KAFKA, power_cuts=1),
    ):
        result = explore(bounds)
        assert result.complete
        assert result.states > 500
        assert steps_to(result) == {}


def test_crashes_make_high_watermark_lose():
    """KAFKA-1211: a crash, a restart, and the ISR has lost committed records."""
    bounds = Bounds(replicas=2, records=2, elections=4, controller=KAFKA, crashes=2)
    found = explore(bounds, "high-watermark", fail_fast=True).found
    assert [one.invariant for one in found] == ["WeakIsr"]


def test_unclean_elections_lose_by_design():
    """M10 as a setting: and that is a fault, not a rule."""
    bounds = Bounds(replicas=2, records=1, elections=4, controller=KAFKA, crashes=2, unclean=True)
    assert "CommittedInIsr" in steps_to(explore(bounds, max_states=6000))


PRIVATE_EPOCH = """
the controller elects 1: leader 1 epoch 0 ISR 1,2
1 hears that it leads in epoch 0, ISR 1,2
2 hears that it follows 1 in epoch 0, ISR 1,2
produce at 1 -> 1 [| m1@0]
produce at 1 -> 1 [| m1@0 m2@0]
2 fetches from 1 -> 2 [| m1@0]
the controller elects 2: leader 2 epoch 1 ISR 1,2
2 hears that it leads in epoch 1, ISR 1,2
produce at 2 -> 2 [| m1@0 m3@1]
the controller elects 1: leader 1 epoch 2 ISR 1,2
1 hears that it leads in epoch 2, ISR 1,2
2 hears that it follows 1 in epoch 2, ISR 1,2
produce at 1 -> 1 [| m1@0 m2@0 m4@2]
2 asks 1 where its latest epoch ends
2 fetches from 1 -> 1 [m1@0 m2@0 | m4@2], 2 [| m1@0 m3@1 m4@2]
""".strip().splitlines()
"""Story S4: an epoch that only one replica knows. KIP-101's response, the start of the next one, truncates nothing."""


def private_epoch(bounds: Bounds) -> list[Action]:
    letters = {
        (broker, epoch): Letter(broker, 1, leader, epoch, (1, 2), epoch + 1)
        for epoch, leader in enumerate((1, 2, 1))
        for broker in (1, 2)
    }
    return [
        ("elect", 1),
        ("leader_and_isr", letters[1, 0]),
        ("leader_and_isr", letters[2, 0]),
        ("produce", 1),
        ("produce", 1),
        ("round", 2, False, True),
        ("elect", 2),
        ("leader_and_isr", letters[2, 1]),
        ("produce", 2),
        ("elect", 1),
        ("leader_and_isr", letters[1, 2]),
        ("leader_and_isr", letters[2, 2]),
        ("produce", 1),
        ("round", 2, False, True),
        ("round", 2, False, True),
    ]


def test_a_private_epoch_convicts_kip_101_and_acquits_kip_279():
    """KAFKA-6361: by the same schedule and the same checks."""
    bounds = Bounds(replicas=2, records=4, elections=2)
    schedule = private_epoch(bounds)
    played = Played(bounds, "kip-101", schedule)
    assert tell(schedule, played.states) == PRIVATE_EPOCH
    assert picture(played.states[-1]) == "1: [m1@0 m2@0 | m4@2]  2: [| m1@0 m3@1 m4@2]  (leader 1 epoch 2 ISR 1,2)"
    assert {"StrongIsr", "LogMatchingRaft"} <= set(Judge().broken(played.states[-1]))
    for rule in ("kip-279", "kip-320"):
        # Under KIP-320 the last two steps are fetches, and the first of them tells where the logs part.
        assert survives(Cluster(bounds, Memo(bounds, rule)), Judge(), schedule)


@pytest.mark.long
def test_the_private_epoch_is_the_shortest_that_distinguishes_them():
    bounds = Bounds(replicas=2, records=4, elections=2)
    result = explore(bounds, "kip-101", acquits="kip-279")
    assert (result.states, result.complete) == (38931, True)
    assert steps_to(result) == {
        "FollowerPrefixOfLeader": 14,
        "WeakIsr": 15,
        "StrongIsr": 15,
        "LogMatchingRaft": 15,
        "LogMatchingHw": 16,
    }
    assert result.found[2].schedule == private_epoch(bounds)


@pytest.mark.long
def test_three_replicas_under_kip_320():
    for bounds, states in (
        (Bounds(replicas=3, records=2, elections=1), 42029),
        (Bounds(replicas=2, records=3, elections=3), 56554),
    ):
        result = explore(bounds)
        assert (result.states, result.complete, result.found) == (states, True, [])
