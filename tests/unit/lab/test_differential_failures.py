"""Failures beside Apache Kafka (``make differential``): which scenarios are played there, and what passes as equal."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path
from typing import Any

import pytest
from tests.wire_responses.batches import TRANSACTIONAL, batch
from tests.wire_responses.probe import response

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_lab.scenario import Scenario, load, shipped_names
from tidegauge_lab.scenario.facts import Facts, Replica
from tidegauge_lab.scenario.loader import parse
from tidegauge_lab.scenario.readers import NO_LEADER, LoggedRecord

BENCH = Path(__file__).parents[3] / "bench"
PLAYED = {
    "commit-failed",
    "crash-before-commit",
    "divergence-cured",
    "fenced-controller",
    "hanging-found",
    "hanging-transaction",
    "last-replica-standing",
    "min-insync-replicas",
    "one-offsets-replica",
    "producer-fencing",
    "restart-within-session",
    "static-members",
    "unclean-election",
    "zombie-leader",
    "zombie-producer",
}
PLAYED_IN_KRAFT_ALONE = {
    "elr-all-unclean",
    "elr-off-loses",
    "elr-saves",
    "quorum-leader-removed",
    "quorum-lost-disk",
    "quorum-majority-lost",
    "share-aborted-data",
    "share-count-forgotten",
    "share-lock-ends",
    "share-poison-record",
    "share-reset-surprises",
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


def test_in_kraft_mode_those_are_played_that_need_no_switch_inside_of_a_process(rules: Any) -> None:
    reasons = {name: rules.why_not_in_kraft(load(name)) for name in shipped_names()}
    needed = {"fenced-controller", "zombie-leader"}
    assert {name for name, why in reasons.items() if not why} == PLAYED - needed | PLAYED_IN_KRAFT_ALONE
    assert reasons["zombie-leader"] == "heal, isolate would need a gate between each node and the controllers"
    assert reasons["fenced-controller"] == "it is a story of ZooKeeper mode"


def test_the_page_says_why_each_of_the_others_is_not_played_in_kraft_mode(rules: Any) -> None:
    """docs/fidelity.md: a row names the scenarios of one cause."""
    page = (BENCH.parent / "docs/fidelity.md").read_text(encoding="utf-8")
    of_kraft = page.partition("| in KRaft mode not played | why |")[2].partition("\n\n")[0]
    named = {name for name in shipped_names() if f"`{name}`" in of_kraft}
    assert named == {name for name in shipped_names() if rules.why_not_in_kraft(load(name))}
    assert of_kraft.count("`") == 2 * len(named), "each is named once, and nothing else is"


def test_a_historical_rule_is_not_played(rules: Any) -> None:
    why = rules.why_not(scenario("kill: 1", settings="{replica.truncation.rule: kip-101}"))
    assert why == "its rule is kip-101, which Apache Kafka does not have any more"
    assert rules.why_not(scenario("kill: 1", settings="{replica.truncation.rule: kip-320}")) == ""


def test_what_happens_inside_of_a_broker_is_not_played_and_what_clients_do_is(rules: Any) -> None:
    inside = rules.why_not(scenario("hold_fetch: 2", "step_fetch: 2"))
    assert inside == "no switch inside of a broker of Apache Kafka does what hold_fetch, step_fetch do"
    assert rules.why_not(scenario("start_consumer: {consumer: a, group: g}", "kill_consumer: a")) == ""
    assert rules.why_not(scenario("mark: here")) == "mark can't be played on Apache Kafka"


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


AT = TopicPartition("story", 0)
RUNNING, DONE = 7, 8
"""Producer ids: of a transaction that its coordinator has, and of one that it has finished with."""


class Eyes:
    """Brokers 0 and 1 of a cluster, in which broker 1 leads and coordinates."""

    responding = (0, 1)

    def __init__(self, responses: dict[str, Any]) -> None:
        self.asked: list[Any] = []
        self._responses = responses

    def state(self, _: TopicPartition) -> tuple[int, int, tuple[int, ...]]:
        return 1, 0, (1,)

    def ask(self, broker_id: int, _: int, request: Any) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.asked.append((broker_id, name, request))
        found = self._responses[name]
        return found(request) if callable(found) else found


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that looks at groups and transactions."""
    monkeypatch.syspath_prepend(str(BENCH))
    pytest.importorskip("kazoo")
    return importlib.import_module("differential_failures_clients")


def transactions(clients: Any) -> tuple[Any, Eyes]:
    """Return connections to a cluster with two open transactions, one known to the coordinator."""

    def described(request: Any) -> Any:
        [name] = request.transactional_ids
        state = {"transactional_id": name, "transaction_state": "Ongoing", "producer_id": int(name)}
        topics = [{"topic": "story", "partitions": [0]}] if int(name) == RUNNING else []
        return response("DescribeTransactions", transaction_states=[state | {"topics": topics}])

    producers = [
        {"producer_id": RUNNING, "producer_epoch": 3, "coordinator_epoch": 5, "current_txn_start_offset": 10},
        {"producer_id": DONE, "producer_epoch": 4, "coordinator_epoch": -1, "current_txn_start_offset": 20},
        {"producer_id": 9, "producer_epoch": 0, "coordinator_epoch": -1, "current_txn_start_offset": -1},
    ]
    partitions = [{"partition_index": 0, "active_producers": producers}]
    listed = [{"transactional_id": str(one), "producer_id": one} for one in (RUNNING, DONE)]
    written = [{"name": "story", "partitions": [{"partition_index": 0}]}]
    eyes = Eyes(
        {
            "FindCoordinator": response("FindCoordinator", node_id=1),
            "DescribeProducers": response("DescribeProducers", topics=[{"name": "story", "partitions": partitions}]),
            "ListTransactions": response("ListTransactions", transaction_states=listed),
            "DescribeTransactions": described,
            "WriteTxnMarkers": response("WriteTxnMarkers", markers=[{"producer_id": DONE, "topics": written}]),
        }
    )
    return clients.KafkaConnections(eyes, None), eyes


def test_a_transaction_hangs_whose_coordinator_does_not_have_the_partition_in_it(clients: Any) -> None:
    """TransactionsCommand.FindHangingTransactionsCommand (KIP-664)."""
    connections, _ = transactions(clients)
    assert connections.open_transactions(AT) == [10, 20]
    assert connections.hanging_transactions(AT) == [20]


def test_a_hanging_transaction_is_aborted_by_a_marker_of_its_producer_at_the_leader(clients: Any) -> None:
    """TransactionsCommand.AbortTransactionCommand: an unknown coordinator epoch is sent as 0."""
    connections, eyes = transactions(clients)
    connections.abort_hanging(AT, 20)
    broker_id, name, request = eyes.asked[-1]
    [marker] = request.markers
    assert (broker_id, name) == (1, "WriteTxnMarkers")
    assert (marker.producer_id, marker.producer_epoch, marker.coordinator_epoch) == (DONE, 4, 0)
    assert not marker.transaction_result
    with pytest.raises(TidegaugeError, match="no transaction of story-0 begins at 15"):
        connections.abort_hanging(AT, 15)


def test_readers_of_committed_data_get_no_records_of_an_aborted_transaction(clients: Any) -> None:
    first = batch((b"a",), producer_id=RUNNING, epoch=0, sequence=0, attributes=TRANSACTIONAL)
    second = batch((b"b",))
    fields = {"partition_index": 0, "records": first + (1).to_bytes(8, "big") + second[8:]}
    aborted = [{"producer_id": RUNNING, "first_offset": 0}]
    topics = [{"topic": "story", "partitions": [fields | {"aborted_transactions": aborted}, fields]}]
    [committed, everything] = response("Fetch", responses=topics).responses[0].partitions
    assert clients.values_of(committed) == ["b"]
    assert clients.values_of(everything) == ["a", "b"]
