"""Verbs in a mixed cluster: Apache Kafka's brokers live, lead, and can't be asked (docs/mixed-clusters.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, metadata_pb2
from tidegauge_client.cli.delete_topic import waits_for
from tidegauge_client.cli.describe import Filter, broker_rows
from tidegauge_client.cli.wait import Said, contradiction, hw_condition, in_sync_condition, isr_condition
from tidegauge_client.explanation import explain
from tidegauge_client.explanation_facts import Facts
from tidegauge_client.group_explanation import GroupFacts, OffsetsPartition, explain_group
from tidegauge_client.kafka_brokers import OnKafkaBroker, no_leader, note, on_kafka_brokers
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, from_response
from tidegauge_client.partitioner import StickyPartitioner
from tidegauge_client.topic_description import replica_states

AT = TopicPartition("orders", 2)
KAFKA = BrokerInfo(2, "127.0.0.1", 9094)


def cluster(leader_of_1: int | None = 1) -> ClusterInfo:
    """Brokers 0 and 1 are Tidegauge's, 2 is Apache Kafka's; each leads the partition of its number."""
    response = metadata_pb2.MetadataResponse(
        controller_id=2,
        brokers=[common_pb2.BrokerEndpoint(broker_id=one, host="127.0.0.1", port=19092 + one) for one in (0, 1)],
        brokers_without_listener=[common_pb2.BrokerEndpoint(broker_id=2, host="127.0.0.1", port=9094)],
    )
    topic = response.topics.add(name="orders", topic_id="id")
    for index, leader in enumerate((0, leader_of_1, 2)):
        topic.partitions.add(partition=index, leader_id=leader, leader_epoch=4, replicas=[2, 0, 1], isr=[2, 0, 1])
    return from_response(response)


def part(index: int) -> PartitionInfo:
    """A partition of that cluster."""
    return cluster().topics["orders"].partitions[index]


def test_a_kafka_broker_is_alive_and_no_address_to_ask() -> None:
    info = cluster()
    assert (sorted(info.brokers), info.kafka_brokers) == ([0, 1], {2: KAFKA})
    assert info.live == {0, 1, 2}
    assert info.leader(AT) is None
    assert on_kafka_brokers(info) == {AT: KAFKA}
    assert on_kafka_brokers(info, ["others"]) == {}


def test_what_a_kafka_broker_leads_is_refused_at_once_with_its_address() -> None:
    problem = no_leader(cluster(), AT)
    assert isinstance(problem, OnKafkaBroker)
    assert (problem.code, problem.retriable) == (ErrorCode.LISTENER_NOT_FOUND, False)
    assert "orders-2 is led by broker 2 at 127.0.0.1:9094, an Apache Kafka broker" in problem.message
    other = no_leader(cluster(leader_of_1=None), TopicPartition("orders", 1))
    assert (other.code, other.retriable) == (ErrorCode.LEADER_NOT_AVAILABLE, True)


def test_the_note_names_one_or_several() -> None:
    assert note({2: KAFKA}, "x").startswith("Broker 2 (127.0.0.1:9094) is an Apache Kafka broker and has no gRPC")
    two = note({2: KAFKA, 1: replace(KAFKA, id=1)}, "x")
    assert two.startswith("Brokers 1 (127.0.0.1:9094), 2 (127.0.0.1:9094) are Apache Kafka brokers and have no gRPC")


@pytest.mark.parametrize(("wanted", "shown"), [(Filter(unavailable=True), False), (Filter(under_min_isr=True), False)])
def test_filters_count_a_kafka_leader_as_a_leader(wanted: Filter, shown: bool) -> None:
    assert wanted.shows(part(2), cluster().live, 2) is shown


def test_filters_still_show_a_partition_without_a_leader() -> None:
    leaderless = cluster(leader_of_1=None).topics["orders"].partitions[1]
    assert Filter(unavailable=True).shows(leaderless, cluster().live, 2)


def test_describe_cluster_has_a_state_of_its_own_for_it() -> None:
    rows = {row.id: (row.state, row.address, row.leaders) for row in broker_rows(cluster(), ())}
    assert rows[2] == ("kafka", "127.0.0.1:9094", 1)
    assert rows[0][0] == "up"


def test_a_deletion_does_not_wait_for_it() -> None:
    info = cluster()
    assert waits_for(info.topics["orders"], info.live) == []


def test_its_replica_has_no_numbers_and_says_whose_it_is() -> None:
    info = cluster()
    states = replica_states(info.topics["orders"], {0: [], 1: []}, info.kafka_brokers)[2]
    assert [(state.broker, state.role, state.shown_role, state.leo) for state in states] == [
        (2, "unknown", "kafka", None),
        (0, "unknown", "unknown", None),
        (1, "unknown", "unknown", None),
    ]


def follower(hw: int, epoch: int = 4, role: str = "follower") -> dict[TopicPartition, metadata_pb2.ReplicaDescription]:
    """Return a Tidegauge broker's report of its replica."""
    return {AT: metadata_pb2.ReplicaDescription(role=role, leader_epoch=epoch, high_watermark=hw)}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({0: follower(5), 1: follower(7)}, None),
        ({0: follower(5), 1: follower(6)}, "at its follower 1 the high watermark of orders-2 is 6"),
        ({0: follower(9, epoch=3), 1: None}, "no Tidegauge broker follows it"),
    ],
)
def test_a_high_watermark_is_confirmed_by_followers_in_the_leaders_epoch(said: Said, words: str | None) -> None:
    problem = contradiction(hw_condition(AT, 7), part(2), said, {2})
    assert problem is None if words is None else words in str(problem)


def test_leader_and_isr_are_as_the_metadata_says() -> None:
    assert contradiction(isr_condition(AT, [0, 1, 2]), part(2), {}, {2}) is None
    assert "does not respond" in str(contradiction(isr_condition(AT, [0, 1, 2]), part(2), {}, ()))


@pytest.mark.parametrize(
    ("index", "said", "words"),
    [
        (2, {0: follower(1), 1: follower(1)}, None),
        (
            2,
            {0: follower(1), 1: follower(1, epoch=3)},
            "broker 1 is in the ISR of orders-2, but does not follow broker 2",
        ),
        (2, {0: follower(1), 1: None}, "broker 1 is in the ISR of orders-2, but does not respond"),
    ],
)
def test_in_sync_asks_the_followers_that_can_be_asked(index: int, said: Said, words: str | None) -> None:
    problem = contradiction(in_sync_condition("orders"), part(index), said, {2})
    assert problem is None if words is None else words in str(problem)


def sentences(*explained: Sequence[object]) -> str:
    """All their texts."""
    return "\n".join(str(getattr(one, "text", "")) for some in explained for one in some)


def test_explain_names_a_kafka_leader_and_what_followers_have() -> None:
    facts = Facts(AT, (2, 0, 1), (2, 0, 1), 2, 4, frozenset({0, 1, 2}), own_hws={0: 5}, kafka=frozenset({2}))
    text = sentences(explain(facts))
    assert "Broker 2, an Apache Kafka broker, leads in epoch 4" in text
    assert "Broker 0 follows it, and has the HW at 5." in text
    assert "does not lead yet" not in text


def test_explain_names_a_kafka_coordinator() -> None:
    held = OffsetsPartition(TopicPartition("__consumer_offsets", 0), 2, 0, (2, 0, 1), (2, 0, 1), 1)
    facts = GroupFacts("g", held, frozenset({0, 1, 2}), problem=ErrorCode.LISTENER_NOT_FOUND)
    text = sentences(explain_group(facts))
    assert "it is the coordinator. It is an Apache Kafka broker without a gRPC listener" in text
    assert "does not coordinate" not in text


def test_records_without_a_key_leave_a_partition_that_a_kafka_broker_leads() -> None:
    """Producer.send leaves the sticky partition as soon as its leader is out of reach."""
    sticky = StickyPartitioner(1_000, draw=lambda _: 0)
    assert sticky.partition([0, 2], lambda _: True, lambda _: 0) == 0
    sticky.leave()
    assert sticky.partition([0, 2], lambda index: index == 2, lambda _: 0) == 2
