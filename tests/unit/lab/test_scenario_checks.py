"""Comparisons of a scenario, and the walk-through's table (docs/scenarios.md): each difference is convicted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tidegauge_lab.scenario.checks import differences, divergence, same_records
from tidegauge_lab.scenario.facts import Facts, Replica
from tidegauge_lab.scenario.readers import NO_LEADER, LoggedRecord
from tidegauge_lab.scenario.state_steps import Expect
from tidegauge_lab.scenario.table import HEADER, Rounds, lines, rows

M1, M2, M3 = LoggedRecord("m1", 0), LoggedRecord("m2", 0), LoggedRecord("m3", 3)
FACTS = Facts(
    leader=1,
    epoch=3,
    isr=(1, 2),
    replicas={
        1: Replica("leader", 3, 2, 2, ((0, 0), (3, 1)), {2: 2}),
        2: Replica("follower", 3, 2, 1, ((0, 0),)),
    },
    logs={1: (M1, M3), 2: (M1, M3)},
    assigned=(1, 2),
)


def reported(facts: Facts = FACTS, given: dict[str, str] | None = None, **wanted: Any) -> list[str]:
    return differences(Expect(line=1, **wanted), facts, given or {}, lambda: ["m1"])


def test_what_is_so_has_no_differences() -> None:
    assert reported(leader=1, epoch=3, isr=(1, 2), leo={1: 2, 2: 2}, hw={1: 2, 2: 1}, remote_leo={2: 2}) == []
    assert reported(log={1: (M1, LoggedRecord("m3")), 2: (M1, M3)}, epochs={1: ((0, 0), (3, 1))}, diverged=False) == []
    assert reported(isr=(2, 1)) == [], "an ISR is a set; the modes list it in different orders"
    assert reported(answers={"m1": "ack"}, readable=("m1",)) == ["the response to m1 is none, not ack"]
    assert reported(FACTS, {"m1": "ack"}, answers={"m1": "ack"}) == []


@pytest.mark.parametrize(
    ("wanted", "difference"),
    [
        ({"leader": 2}, "the leader is 1, not 2"),
        ({"leader": NO_LEADER}, "the leader is 1, not none"),
        ({"epoch": 2}, "the leader epoch is 3, not 2"),
        ({"isr": (2, 1, 0)}, "the ISR is 1,2, not 2,1,0"),
        ({"isr": ()}, "the ISR is 1,2, not -"),
        ({"leo": {1: 3}}, "the LEO of broker 1 is 2, not 3"),
        ({"hw": {2: 2}}, "the HW of broker 2 is 1, not 2"),
        ({"hw": {0: 2}}, "broker 0 does not respond, or has no replica"),
        ({"remote_leo": {2: 1}}, "the leader's remote LEO of broker 2 is 2, not 1"),
        ({"epochs": {2: ((3, 1),)}}, "the epoch cache of broker 2 is [Epoch=0, Offset=0], not [Epoch=3, Offset=1]"),
        ({"log": {1: (M1,)}}, "the log of broker 1 is [m1@0, m3@3], not [m1@0]"),
        ({"log": {1: (M1, LoggedRecord("m3", 2))}}, "the log of broker 1 is [m1@0, m3@3], not [m1@0, m3@2]"),
        ({"readable": ("m1", "m3")}, "a consumer reads m1, not m1, m3"),
        ({"diverged": True}, "the logs of the in-sync replicas agree below their high watermarks; they were to differ"),
    ],
)
def test_each_difference_is_a_sentence(wanted: dict[str, Any], difference: str) -> None:
    assert reported(**wanted) == [difference]


def test_a_leader_that_does_not_know_it_is_reported() -> None:
    facts = replace(FACTS, replicas={1: Replica("follower", 2, 2, 2)})
    assert reported(facts, leader=1) == ["broker 1 does not say that it leads"]


def test_divergence_is_what_lies_below_both_high_watermarks_of_in_sync_replicas() -> None:
    apart = replace(FACTS, logs={1: (M1, M3), 2: (M1, M2)})
    assert divergence(apart) == "", "offset 1 is not below broker 2's high watermark of 1"
    committed = replace(apart, replicas={**apart.replicas, 2: Replica("follower", 3, 2, 2)})
    assert divergence(committed) == "offset 1 is m3@3 on broker 1 and m2@0 on broker 2, both in the ISR"
    assert reported(committed, diverged=True) == []
    assert reported(committed, diverged=False) == [divergence(committed)]
    assert divergence(replace(committed, isr=(1,))) == "", "a replica out of sync is no second truth"


def test_the_same_value_under_another_epoch_is_another_record() -> None:
    apart = replace(FACTS, isr=(1, 2), logs={1: (M1, M3), 2: (LoggedRecord("m1", 2), M3)})
    assert divergence(apart) == "offset 0 is m1@0 on broker 1 and m1@2 on broker 2, both in the ISR"
    assert same_records([M1], [LoggedRecord("m1")])
    assert not same_records([M1], [LoggedRecord("m1", 2)])
    assert not same_records([M1], [M1, M3])


def state(leo: int, hw: int, remote: dict[int, int], followers: dict[int, tuple[int, int]]) -> Facts:
    replicas = {0: Replica("leader", 0, leo, hw, remote_leos=remote)}
    replicas |= {broker: Replica("follower", 0, *values) for broker, values in followers.items()}
    return Facts(0, 0, tuple(replicas), replicas, {}, tuple(replicas))


def test_the_third_phase_of_two_replicas_reads_as_row_w13_says() -> None:
    before = state(1, 0, {1: 0}, {1: (1, 0)})
    after = state(1, 1, {1: 1}, {1: (1, 1)})
    found = rows("second", before, after, 0, (1,), {1: Rounds((0, 1), 1)})
    assert [(row.attribute, row.old, row.new, row.note) for row in found] == [
        ("Leader LEO", 1, 1, "no new data written"),
        ("Remote LEO", 0, 1, "the second fetch carried offset 1"),
        ("Leader HW", 0, 1, "min(LeaderLEO=1, RemoteLEO=1)=1"),
        ("Follower LEO", 1, 1, "no new data written"),
        ("Follower HW", 0, 1, "min(LeaderHW=1, FollowerLEO=1)=1"),
    ]
    text = lines(found)
    assert [cell.strip() for cell in text[0].strip("|").split("|")] == list(HEADER)
    assert len({len(line) for line in text}) == 1
    assert len(text) == 2 + 5


def test_the_first_phase_has_no_fetch_yet() -> None:
    before, after = state(0, 0, {1: 0}, {1: (0, 0)}), state(1, 0, {1: 0}, {1: (0, 0)})
    found = rows("produce", before, after, 0, (1,), {})
    assert [(row.old, row.new, row.note) for row in found] == [
        (0, 1, "1 record written"),
        (0, 0, "no fetch yet"),
        (0, 0, "min(LeaderLEO=1, RemoteLEO=0)=0"),
        (0, 0, "no fetch yet"),
        (0, 0, "min(LeaderHW=0, FollowerLEO=0)=0"),
    ]


def test_with_two_followers_each_has_rows_and_the_minimum_is_over_all() -> None:
    before = state(1, 0, {1: 1, 2: 0}, {1: (1, 0), 2: (1, 0)})
    after = state(1, 1, {1: 1, 2: 1}, {1: (1, 0), 2: (1, 1)})
    found = rows("third", before, after, 0, (1, 2), {1: Rounds((0, 1), 0), 2: Rounds((0, 1), 1)})
    assert [(row.attribute, row.old, row.new, row.note) for row in found] == [
        ("Leader LEO", 1, 1, "no new data written"),
        ("Remote LEO (1)", 1, 1, "the second fetch carried offset 1"),
        ("Remote LEO (2)", 0, 1, "the second fetch carried offset 1"),
        ("Leader HW", 0, 1, "min(LeaderLEO=1, RemoteLEO(1)=1, RemoteLEO(2)=1)=1"),
        ("Follower LEO (1)", 1, 1, "no new data written"),
        ("Follower LEO (2)", 1, 1, "no new data written"),
        ("Follower HW (1)", 0, 0, "min(LeaderHW=0, FollowerLEO=1)=0"),
        ("Follower HW (2)", 0, 1, "min(LeaderHW=1, FollowerLEO=1)=1"),
    ]


def test_the_state_in_one_line_is_leo_slash_hw_with_a_star_for_the_leader() -> None:
    assert FACTS.line == "1: 2/2*  2: 2/1   ISR 1,2  epoch 3  leader 1"
    gone = replace(FACTS, leader=NO_LEADER, replicas={2: FACTS.replicas[2]}, isr=(1,))
    assert gone.line == "1: -  2: 2/1   ISR 1  epoch 3  leader none"
    assert FACTS.log_lines == ["1: [m1@0, m3@3]", "2: [m1@0, m3@3]"]
