"""Rules for requests of Kafka's clients: which they mean, how they count, what they hold."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.rules import SCHEMA, Rule, read_rule
from tidegauge.partition import TopicPartition
from tidegauge.v1 import lab_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab import tally
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.lab.rule_messages import from_rule
from tidegauge_broker.server.lab.rules import JOURNAL_ENTRIES, RuleTable, SetRule, described
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, GatedRequest, InjectedError

CLIENT = Caller("client", "127.0.0.1", None)
ORDERS = [TopicPartition("orders", 0), TopicPartition("orders", 1)]


def request(api: str = "Produce", **fields: Any) -> GatedRequest:
    return GatedRequest(api, **({"caller": CLIENT, "partitions": ORDERS, "is_of_kafka": True} | fields))


def table(*rules: dict[str, Any], broker_id: int = 1) -> RuleTable:
    made = RuleTable(broker_id)
    made.set([SetRule(str(place), read_rule(rule)) for place, rule in enumerate(rules)])
    return made


def is_affected(rules: RuleTable, one: GatedRequest) -> bool:
    return rules.take(one, 0) is not None


ERROR = {"keys": ["Produce"], "error": "NOT_ENOUGH_REPLICAS", "count": -1}


@pytest.mark.parametrize(
    ("narrowed", "one", "means"),
    [
        ({}, request(), True),
        ({}, request("Fetch"), False),
        ({"keys": [0, "Fetch"]}, request("Fetch"), True),
        ({"nodes": [1]}, request(), True),
        ({"nodes": [0, 2]}, request(), False),
        ({"topic": "orders"}, request(), True),
        ({"topic": "payments"}, request(), False),
        ({"topic": "orders", "partitions": [1]}, request(), True),
        ({"topic": "orders", "partitions": [2]}, request(), False),
        ({"topic": "orders", "partitions": [2]}, request(partitions=[TopicPartition("orders", -1)]), True),
        ({"client_id": "app"}, request(client_id="app"), True),
        ({"client_id": "app"}, request(client_id="other"), False),
        ({"group": "g"}, request(group="g"), True),
        ({"group": "g"}, request(group="h"), False),
        ({"txn_id": "t"}, request(group="g", transactional_id="t"), True),
        ({"txn_id": "t"}, request(group="g"), False),
        ({"resource": "orders"}, request(resources=["orders"]), True),
        ({"resource": "orders"}, request(), False),
        ({}, request(is_of_kafka=False), True),
        ({"resource": "orders"}, request(is_of_kafka=False, resources=["orders"]), False),
        ({}, request(is_of_kafka=False, is_of_lab=True), False),
        ({}, request(caller=Caller("broker", "127.0.0.1", 2)), False),
    ],
)
def test_every_field_that_is_given_must_fit(narrowed: dict[str, Any], one: GatedRequest, means: bool):
    """A rule means both wires; the lab's own requests and brokers' are no client's."""
    assert is_affected(table(ERROR | narrowed), one) == means


def test_nth_and_count_are_those_of_the_requests_that_it_means():
    rules = table(ERROR | {"nth": 2, "count": 2})
    assert [is_affected(rules, one) for one in [request(), request("Fetch"), *[request()] * 4]] == [
        False, False, True, True, False, False,
    ]  # fmt: skip


def test_chances_come_from_the_seed_and_the_number_of_the_request():
    """The same at every broker, and after a restart: no state but the count."""
    rule = read_rule(ERROR | {"probability": 0.5, "seed": 7})
    chances = [rule.is_affected(seen, 0) for seen in range(1, 400)]
    assert chances == [rule.is_affected(seen, 9) for seen in range(1, 400)]
    assert 150 < sum(chances) < 250
    other = read_rule(ERROR | {"probability": 0.5, "seed": 8})
    assert chances != [other.is_affected(seen, 0) for seen in range(1, 400)]


def test_brokers_share_one_count(tmp_path: Path):
    """`count: 1` is one request of the cluster, whichever broker it reaches."""
    path = tmp_path / "7-0"
    tally.create(path)
    rule = read_rule(ERROR | {"count": 1})
    brokers = [RuleTable(0), RuleTable(1)]
    for one in brokers:
        one.set([SetRule("7.0", rule, path)])
    assert [is_affected(one, request()) for one in brokers * 2] == [True, False, False, False]
    assert tally.read(path) == (4, 1)
    path.unlink()
    assert not is_affected(brokers[0], request()), "a rule that is being deleted affects nothing"


@pytest.mark.parametrize("name", ["9" * 300, "nul\0", ".", "short"])
def test_a_file_that_cannot_hold_the_numbers_of_a_rule_is_refused(tmp_path: Path, name: str):
    """Before a rule is in force: later it would fail each request that asks for the rules."""
    (tmp_path / "short").write_bytes(b"1")
    message = lab_pb2.RequestRule(rule_id="1", rule_json=json.dumps(ERROR), tally_file=str(tmp_path / name))
    with pytest.raises(TidegaugeError, match="has no numbers of a rule") as refused:
        from_rule(message)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_rule_that_observes_counts_and_lets_the_next_one_decide(tmp_path: Path):
    path = tmp_path / "1-0"
    tally.create(path)
    rules = RuleTable(1)
    observing, failing = read_rule({"keys": ["Produce"], "observe": True, "count": -1}), read_rule(ERROR)
    rules.set([SetRule("1.0", observing, path), SetRule("1.1", failing)])
    taken = rules.take(request(client_id="app"), 42)
    assert taken is not None
    assert taken.rule is failing
    assert tally.read(path) == (1, 1)
    [entry] = rules.after(0)
    assert (entry.time_ms, entry.request.client_id, entry.rules, entry.done) == (42, "app", ["1.0", "1.1"], "error 19")
    assert rules.after(entry.number) == []


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"keys": ["Produce"]}, "give an effect"),
        ({"keys": ["Produce"], "error": "NONE"}, "NONE is no error"),
        ({"keys": ["Produce"], "error": "NO_SUCH"}, "no error 'NO_SUCH'"),
        ({"keys": ["Produced"], "error": "NOT_ENOUGH_REPLICAS"}, "no API 'Produced'"),
        ({"keys": [999], "observe": True}, "no API 999"),
        ({"error": "NOT_ENOUGH_REPLICAS"}, "needs keys"),
        ({"observe": True, "hold": True}, "not both"),
        ({"keys": ["Fetch"], "error": 19, "disconnect": True}, "carries no error"),
        ({"partitions": [1], "disconnect": True}, "give the topic"),
        ({"keys": ["Fetch"], "disconnect": True, "top_level": True}, "top_level"),
        ({"keys": ["Fetch"], "disconnect": True, "count": 0}, "count is 1 or more"),
        ({"keys": ["Fetch"], "hold": True, "freeze": True}, "not both"),
        ({"keys": ["Fetch"], "disconnect": True, "freeze": True}, "sends no response"),
        ({"keys": ["Fetch"], "disconnect": True, "throttle_time_ms": 5}, "sends no response"),
    ],
)
def test_rules_that_mean_nothing_are_refused(wrong: dict[str, Any], named: str):
    with pytest.raises(TidegaugeError) as refused:
        read_rule(wrong)
    assert named in refused.value.message


def test_every_field_of_the_schema_is_one_of_a_rule():
    fields = set(Rule.__dataclass_fields__)
    assert set(SCHEMA["properties"]) == fields | {"topic_id"}, "topic_id becomes the topic before a broker sees it"


def gate_with(*rules: dict[str, Any]) -> tuple[LabGate, RuleTable]:
    made = table(*rules)
    return LabGate(FaultTable(1, DiskFaults()), made), made


async def test_a_response_is_parked_until_its_rule_is_no_longer_there():
    """`hold` is a barrier: deleting the rule releases what it holds (rule 2 of lab/rules.py)."""
    gate, rules = gate_with({"keys": ["JoinGroup"], "hold": True})
    one = request("JoinGroup")
    assert await gate.admit(one) is None, "the request takes effect"
    hold = gate.hold_of(one)
    assert hold is not None
    parked = asyncio.ensure_future(hold.wait())
    await asyncio.sleep(0)
    assert rules.held() == {"0": 1}
    rules.set([SetRule("0", read_rule({"keys": ["JoinGroup"], "hold": True}))])
    await asyncio.sleep(0)
    assert not parked.done(), "a rule whose id stays keeps what it holds"
    rules.set([])
    await parked
    assert gate.is_open
    assert gate.hold_of(request("JoinGroup")) is None


async def test_errors_and_closed_connections_come_before_or_after_the_effect():
    gate, _ = gate_with(
        {"keys": ["Produce"], "error": "NOT_ENOUGH_REPLICAS"},
        {"keys": ["Produce"], "error": "REQUEST_TIMED_OUT", "after_effect": True, "top_level": True},
        {"keys": ["Produce"], "disconnect": True},
        {"keys": ["Produce"], "disconnect": True, "after_effect": True},
    )
    assert await gate.admit(request()) == InjectedError(19)
    assert await gate.admit(request()) == InjectedError(7, after_effect=True, top_level=True)
    with pytest.raises(CallRefused):
        await gate.admit(request())
    assert await gate.admit(request()) == InjectedError(0, after_effect=True, status="UNAVAILABLE")
    assert await gate.admit(request()) is None, "each rule's count is used up"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"keys": ["Fetch"], "error": 3}, "error 3"),
        ({"keys": ["Fetch"], "error": 3, "topic": "t", "partitions": [2, 0]}, "error 3 of t-0, 2"),
        ({"keys": ["Fetch"], "error": 3, "topic": "t", "after_effect": True}, "error 3 of t after its effect"),
        ({"delay_ms": 5, "disconnect": True}, "delayed by 5 ms, connection closed"),
        ({"bytes_per_second": 9, "throttle_time_ms": 7}, "sent at 9 bytes a second, throttle_time_ms 7"),
        ({"freeze": True}, "connection frozen"),
        ({"hold": True, "after_effect": True}, "response held after its effect"),
    ],
)
def test_the_journal_says_what_a_rule_does(rule: dict[str, Any], words: str):
    assert described(read_rule(rule)) == words


async def test_a_delay_after_the_effect_goes_with_a_hold():
    gate, rules = gate_with({"keys": ["JoinGroup"], "hold": True, "delay_ms": 1, "after_effect": True})
    one = request("JoinGroup")
    assert await gate.admit(one) is None
    hold = gate.hold_of(one)
    assert hold is not None
    parked = asyncio.ensure_future(hold.wait())
    rules.set([])
    await parked, "it ends though the rule holds nothing more"


def faulty(*faults: lab_pb2.LabFault) -> tuple[LabGate, FaultTable, RuleTable]:
    """Return a gate with faults in force, and no rule."""
    known, rules = FaultTable(1, DiskFaults()), table()
    for fault in faults:
        known.set(fault)
    return LabGate(known, rules), known, rules


async def test_the_journal_has_what_a_fault_affects_without_any_rule():
    """Arrivals, and the effects of any fault on them. A request that no fault affects needs a rule."""
    away = lab_pb2.NetworkFault(plane=lab_pb2.LAB_PLANE_CLIENTS, direction=lab_pb2.LAB_DIRECTION_IN)
    gate, known, rules = faulty(
        lab_pb2.LabFault(error=lab_pb2.ErrorFault(rpc="Produce", error=19, times=1, skip=1)),
        lab_pb2.LabFault(error=lab_pb2.ErrorFault(rpc="Fetch", error=6, after_effect=True)),
    )
    assert await gate.admit(request()) is None
    assert await gate.admit(request()) == InjectedError(19)
    assert await gate.admit(request("Fetch")) == InjectedError(6, after_effect=True)
    assert await gate.admit(request("Fetch", caller=Caller("peer", "INTERNAL", 2))) is not None, (
        "a broker's is affected, and no entry"
    )
    known.set(lab_pb2.LabFault(network=lab_pb2.NetworkFault(**fields_of(away), delay_ms=1)))
    assert await gate.admit(request("Metadata")) is None
    known.set(lab_pb2.LabFault(network=lab_pb2.NetworkFault(**fields_of(away), partitioned=True)))
    with pytest.raises(CallRefused):
        await gate.admit(request("Metadata"))
    assert [(entry.request.api, entry.done) for entry in rules.after(0)] == [
        ("Produce", "error NOT_ENOUGH_REPLICAS (fault 1)"),
        ("Fetch", "error NOT_LEADER_OR_FOLLOWER after its effect (fault 2)"),
        ("Metadata", "delayed by 1 ms (fault 3)"),
        ("Metadata", "delayed by 1 ms (fault 3), connection closed (fault 4)"),
    ]


def fields_of(fault: lab_pb2.NetworkFault) -> dict[str, Any]:
    return {"plane": fault.plane, "direction": fault.direction}


async def test_one_entry_says_what_a_hold_a_rule_and_a_hold_of_the_response_do():
    gate, known, rules = faulty(
        lab_pb2.LabFault(hold=lab_pb2.HoldFault(rpc="EndTxn")),
        lab_pb2.LabFault(hold=lab_pb2.HoldFault(rpc="EndTxn", after_effect=True)),
    )
    rules.set([SetRule("7", read_rule({"keys": ["EndTxn"], "throttle_time_ms": 5}))])
    one = request("EndTxn")
    admitted = asyncio.ensure_future(gate.admit(one))
    await asyncio.sleep(0)
    assert [entry.done for entry in rules.after(0)] == ["request held (fault 1)"], "it is there while it waits"
    known.clear([1])
    await admitted
    assert gate.hold_of(one) is not None
    (entry,) = rules.after(0)
    assert (entry.rules, entry.done) == (["7"], "request held (fault 1), throttle_time_ms 5, response held (fault 2)")


def test_the_journal_keeps_the_last_requests_and_forgets_none_of_their_entries():
    rules = table({"observe": True, "count": -1})
    for _ in range(JOURNAL_ENTRIES + 3):
        rules.take(request(), 0)
    numbers = [entry.number for entry in rules.after(0)]
    assert (len(numbers), numbers[0], numbers[-1]) == (JOURNAL_ENTRIES, 4, JOURNAL_ENTRIES + 3)
