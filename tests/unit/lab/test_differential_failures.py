"""Failures beside Apache Kafka (``make differential``): which scenarios are played there, and what passes as equal."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest

from tidegauge_lab.scenario import Scenario, load, shipped_names
from tidegauge_lab.scenario.facts import Facts, Replica
from tidegauge_lab.scenario.loader import parse
from tidegauge_lab.scenario.readers import NO_LEADER, LoggedRecord

BENCH = Path(__file__).parents[3] / "bench"
PLAYED = {
    "divergence-cured",
    "fenced-controller",
    "last-replica-standing",
    "min-insync-replicas",
    "restart-within-session",
    "unclean-election",
    "zombie-leader",
}


@pytest.fixture
def rules(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that decides."""
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("differential_failures_rules")


def scenario(*steps: str, settings: str = "{}") -> Scenario:
    """Return a scenario with these steps."""
    lines = [
        "title: a story",
        f"cluster: {{brokers: 3, settings: {settings}}}",
        "topics: [{name: story, assignment: [1, 2]}]",
        "steps:",
        *(f"  - {step}" for step in steps),
    ]
    return parse("\n".join(lines), "story.yaml")


def test_every_shipped_scenario_is_played_or_has_a_reason(rules: Any) -> None:
    played, reasons = rules.sorted_out([load(name) for name in shipped_names()])
    assert {one.name for one in played} == PLAYED
    assert PLAYED | reasons.keys() == set(shipped_names())
    assert not PLAYED & reasons.keys()
    assert all(reasons.values())


def test_a_historical_rule_is_not_played(rules: Any) -> None:
    why = rules.why_not(scenario("kill: 1", settings="{replica.truncation.rule: kip-101}"))
    assert why == "its rule is kip-101, which Apache Kafka 3.9 does not have any more"
    assert rules.why_not(scenario("kill: 1", settings="{replica.truncation.rule: kip-320}")) == ""


def test_what_happens_inside_of_a_broker_or_a_client_is_not_played(rules: Any) -> None:
    inside = rules.why_not(scenario("hold_fetch: 2", "step_fetch: 2"))
    assert inside == "no switch inside of a broker of Apache Kafka does what hold_fetch, step_fetch do"
    clients = rules.why_not(scenario("start_consumer: {consumer: a, group: g}", "kill_consumer: a"))
    assert clients.startswith("it is about clients (kill_consumer, start_consumer)")


def test_brokers_are_partitioned_from_zookeeper_alone(rules: Any) -> None:
    assert rules.why_not(scenario("isolate: {broker: 1, from: zookeeper}")) == ""
    for plane in ("brokers", "clients", "[2]"):
        assert rules.why_not(scenario(f"isolate: {{broker: 1, from: {plane}}}"))


def test_verbs_that_look_at_tidegauge_alone_are_passed_over_and_keep_nothing_out(rules: Any) -> None:
    assert rules.why_not(scenario("wait_event: {broker: 1, kind: truncation}", "verify: {}")) == ""
    assert not rules.PLAYED & rules.LEFT_OUT.keys()


FACTS = Facts(
    leader=1,
    epoch=2,
    isr=(1,),
    replicas={1: Replica("leader", 2, 3, 2, ((0, 0), (2, 1)), {}, 1)},
    logs={1: (LoggedRecord("m1", 0), LoggedRecord("m2", 2)), 2: (LoggedRecord("m1", 0),)},
    assigned=(1, 2),
)


def test_all_of_a_partition_is_compared_also_what_no_scenario_expects(rules: Any) -> None:
    assert rules.fields_of(FACTS, {"m1": "ack"}, ["m1"]) == {
        "leader": "1",
        "leader epoch": "2",
        "ISR": "1",
        "readable": "m1",
        "broker 1: log": "[m1@0, m2@2]",
        "broker 1: role": "leader",
        "broker 1: leader epoch": "2",
        "broker 1: LEO": "3",
        "broker 1: HW": "2",
        "broker 1: LSO": "1",
        "broker 1: epoch cache": "[Epoch=0, Offset=0] [Epoch=2, Offset=1]",
        "broker 2: log": "[m1@0]",
        "broker 2: role": "does not respond, or has no replica",
        "response to m1": "ack",
    }


def test_nothing_readable_and_no_leader_are_two_things(rules: Any) -> None:
    without = dataclasses.replace(FACTS, leader=NO_LEADER)
    assert rules.fields_of(without, {}, None)["leader"] == "none"
    assert rules.fields_of(without, {}, None)["readable"] != rules.fields_of(FACTS, {}, [])["readable"]


def test_a_difference_is_reported_with_its_moment_and_both_values(rules: Any) -> None:
    theirs = {"s, step 3": {"leader": "1", "ISR": "1,2"}}
    verdict = rules.compared(theirs, {"s, step 3": {"leader": "2", "ISR": "1,2"}})
    assert verdict.compared == 2
    assert verdict.differences == ["s, step 3: leader\n    Kafka:     1\n    Tidegauge: 2"]


def test_a_moment_or_field_that_one_side_lacks_is_a_difference(rules: Any) -> None:
    whole = {"s, step 3": {"leader": "1"}, "s, step 5": {"leader": "1"}}
    lacking = {"s, step 3": {"leader": "1"}}
    assert rules.compared(whole, lacking).differences == [
        "s, step 5: leader\n    Kafka:     1\n    Tidegauge: not there"
    ]
    assert rules.compared(lacking, whole).differences == [
        "s, step 5: leader\n    Kafka:     not there\n    Tidegauge: 1"
    ]


def test_an_explanation_holds_for_its_name_and_both_values_alone(rules: Any) -> None:
    explained = [rules.Explained("s, .*: start of broker 1", "refused", "started", "because")]

    def verdict(name: str, theirs: str, ours: str) -> Any:
        return rules.compared({"s, step 1": {name: theirs}}, {"s, step 1": {name: ours}}, explained)

    known = verdict("start of broker 1", "refused", "started")
    assert (known.differences, known.explained) == ([], {"because": 1})
    assert verdict("start of broker 2", "refused", "started").differences
    assert verdict("start of broker 1", "started", "refused").differences
    assert verdict("start of broker 1", "refused twice", "started").differences
    assert verdict("start of broker 1", "started", "started").explained == {}


def test_verdicts_of_several_scenarios_add_up(rules: Any) -> None:
    total = rules.Verdict()
    total.add(rules.Verdict(3, ["a"], {"because": 1}))
    total.add(rules.Verdict(2, ["b"], {"because": 2, "since": 1}))
    assert (total.compared, total.differences) == (5, ["a", "b"])
    assert total.explained == {"because": 3, "since": 1}
