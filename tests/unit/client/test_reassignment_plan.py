"""reassign-partitions: its files, moves and sentences (ReassignPartitionsCommand)."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client import reassignment_plan as plan
from tidegauge_client.cli.reassign_partitions import reassign_partitions
from tidegauge_client.metadata import BrokerInfo
from tidegauge_client.ongoing_reassignment import OngoingReassignment

AT = TopicPartition("orders", 0)
NEXT = TopicPartition("orders", 1)


def reassignment(*entries: object, **more: object) -> bytes:
    return json.dumps({"version": 1, "partitions": list(entries), **more}).encode()


def entry(partition: int = 0, replicas: object = (1, 2), **more: object) -> dict[str, object]:
    return {"topic": "orders", "partition": partition, "replicas": replicas, **more}


def test_a_file_that_was_printed_can_be_read_again():
    targets = {AT: (1, 2), NEXT: (3, 1, 2)}
    printed = plan.compact(plan.document_of(targets))
    assert printed == (
        '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
        '{"topic":"orders","partition":1,"replicas":[3,1,2],"log_dirs":["any","any","any"]}]}'
    )
    assert plan.parse_reassignment(printed.encode()) == targets


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{", "is not valid JSON"),
        (b"[]", "is no JSON object"),
        (reassignment(version=2), "Not supported version field value 2"),
        (reassignment(), "Partition reassignment list cannot be empty"),
        (reassignment(entry(), entry()), "Partition reassignment contains duplicate topic partitions: orders-0"),
        (reassignment(entry(replicas=[1, 2, 1])), "orders-0 contains multiple entries for 1"),
        (reassignment(entry(), entry(1, replicas=[])), "Partition replica list cannot be empty: orders-1"),
        (reassignment(entry(replicas=["1"])), "does not name topic, partition and replicas"),
        (reassignment(entry(replicas=[2**31])), "does not name topic, partition and replicas"),
        (reassignment(entry(partition=2**31)), "does not name topic, partition and replicas"),
        (reassignment({"topic": "orders"}), "does not name topic, partition and replicas"),
        (reassignment(entry(log_dirs=["any"])), "Size of replicas list"),
        (reassignment(entry(log_dirs=["any", "/a"])), "log_dirs must be any"),
    ],
)
def test_a_bad_reassignment_file_is_refused(text: bytes, words: str):
    with pytest.raises(TidegaugeError, match=words):
        plan.parse_reassignment(text)


def test_topics_and_brokers():
    assert plan.parse_topics(b'{"topics":[{"topic":"a"},{"topic":"b"}],"version":1}') == ["a", "b"]
    assert plan.parse_broker_list("3, 1") == [3, 1]
    with pytest.raises(TidegaugeError, match="List of topics to reassign contains duplicate entries: a"):
        plan.parse_topics(b'{"topics":[{"topic":"a"},{"topic":"a"}]}')
    with pytest.raises(TidegaugeError, match="Broker list contains duplicate entries: 1"):
        plan.parse_broker_list("1,1")
    with pytest.raises(TidegaugeError, match="must be ids"):
        plan.parse_broker_list("1,x")


def brokers(*racks: str | None) -> list[BrokerInfo]:
    return [BrokerInfo(number, "h", 1, rack) for number, rack in enumerate(racks)]


def test_a_proposal_keeps_counts_and_uses_only_the_brokers_given():
    current = {TopicPartition("orders", index): (5, 6) for index in range(4)}
    proposed = plan.propose(current, brokers(None, None, None), [(0, 0)], rack_aware=True)
    assert proposed == {
        TopicPartition("orders", index): replicas for index, replicas in enumerate([(0, 1), (1, 2), (2, 0), (0, 2)])
    }


def test_a_proposal_with_racks_on_some_brokers_only():
    with pytest.raises(TidegaugeError, match="Add --disable-rack-aware in command line"):
        plan.propose({AT: (5, 6)}, brokers("a", None), [(0, 0)], rack_aware=True)
    assert plan.propose({AT: (5, 6)}, brokers("a", None), [(0, 0)], rack_aware=False) == {AT: (0, 1)}


def test_too_few_brokers():
    with pytest.raises(TidegaugeError, match="Replication factor: 2 larger than available brokers: 1"):
        plan.propose({AT: (5, 6)}, brokers(None), [(0, 0)], rack_aware=True)


def test_what_is_throttled():
    """Sources at the leaders, destinations at the followers, what runs already included (calculateLeaderThrottles)."""
    ongoing = {NEXT: OngoingReassignment((4, 1, 2), (4,), (2,))}
    moves = plan.moves_of(ongoing, {AT: (1, 2)}, {AT: (2, 3)})
    assert moves == {
        AT: plan.Move(frozenset({1, 2}), frozenset({3})),
        NEXT: plan.Move(frozenset({1, 2}), frozenset({4})),
    }
    assert plan.throttled_replicas(moves) == {
        "orders": {plan.LEADER_REPLICAS: "0:1,0:2,1:1,1:2", plan.FOLLOWER_REPLICAS: "0:3,1:4"}
    }
    assert plan.moving_brokers(moves) == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (plan.State((1, 2), (1, 2), True), "Reassignment of partition orders-0 is completed."),
        (plan.State((1, 2, 3), (1, 2), False), "Reassignment of partition orders-0 is still in progress."),
        (
            plan.State((1, 2), (2, 3), True),
            "There is no active reassignment of partition orders-0, but replica set is 1,2 rather than 2,3.",
        ),
    ],
)
def test_the_sentences_of_verify(state: plan.State, words: str):
    assert plan.state_line(AT, state) == words


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (OngoingReassignment((1, 2, 3), (3,), (1,)), "orders-0: replicas: 1,2,3. adding: 3. removing: 1."),
        (OngoingReassignment((1, 2), (), (2,)), "orders-0: replicas: 1,2. removing: 2."),
    ],
)
def test_the_lines_of_list(one: OngoingReassignment, words: str):
    assert plan.ongoing_line(AT, one) == words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "Command must include exactly one action"),
        (["--list", "--verify"], "Command must include exactly one action"),
        (["--list", "--throttle", "5"], 'Option "[throttle]" can\'t be used with action "[list]"'),
        (["--generate", "--broker-list", "1"], 'Missing required argument "[topics-to-move-json-file]"'),
        (["--execute"], 'Missing required argument "[reassignment-json-file]"'),
    ],
)
def test_one_action_with_its_own_options(arguments: list[str], words: str):
    """A usage error, before anything is contacted."""
    result = CliRunner().invoke(reassign_partitions, arguments)
    assert result.exit_code == 2
    assert words in result.output
