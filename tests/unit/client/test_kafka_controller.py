"""The admin client at a controller that is an Apache Kafka broker: Kafka's requests, and the results of gRPC's."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import CREATE_PARTITIONS, CREATE_TOPICS, DELETE_TOPICS
from tidegauge.kafka.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from tidegauge.kafka.messages.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from tidegauge.kafka.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from tidegauge.kafka.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from tidegauge.kafka.messages.elect_leaders import ElectLeadersResponse, PartitionResult, ReplicaElectionResult
from tidegauge.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge.security import PLAIN
from tidegauge_client.admin import Admin
from tidegauge_client.kafka_controller import KafkaController
from tidegauge_client.metadata import BrokerInfo, ClusterInfo
from tidegauge_client.ongoing_reassignment import OngoingReassignment

TOPIC_ID = "QUk6P647QOi_KbeBZ5nLHg"
ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Peer:
    """A Kafka broker: responds with given responses, keeps the requests."""

    def __init__(self) -> None:
        self.response: Any = None
        self.requests: list[tuple[int, Any, int]] = []

    async def request(self, key: int, message: Any, timeout_seconds: float, *, at_least: int = 0) -> Any:
        assert timeout_seconds > 0
        self.requests.append((key, message, at_least))
        return self.response


@pytest.fixture
def peer(monkeypatch: pytest.MonkeyPatch) -> Peer:
    made = Peer()
    monkeypatch.setattr(KafkaChannel, "request", lambda _, *words, **named: made.request(*words, **named))
    return made


@pytest.fixture
def kafka() -> KafkaController:
    return KafkaController("127.0.0.1:9094", PLAIN)


async def test_a_topic_is_created_by_counts_by_defaults_or_placed(peer: Peer, kafka: KafkaController) -> None:
    """-1 leaves a count to the controller (KIP-464), and comes with an assignment, as in KafkaAdminClient."""
    peer.response = CreateTopicsResponse(topics=[CreatableTopicResult("orders", topic_id_bytes(TOPIC_ID))])
    assert await kafka.create_topic("orders", 6, None, (), {"retention.ms": "5"}, 1_000) == TOPIC_ID
    assert await kafka.create_topic("orders", None, None, [[0, 1], [1, 2]], {}, 1_000) == TOPIC_ID
    (key, counted, at_least), (_, placed, _) = peer.requests
    assert (key, at_least) == (CREATE_TOPICS, 4)
    [topic] = counted.topics
    assert (topic.num_partitions, topic.replication_factor, topic.assignments) == (6, -1, [])
    assert [(one.name, one.value) for one in topic.configs] == [("retention.ms", "5")]
    [topic] = placed.topics
    assert (topic.num_partitions, topic.replication_factor) == (-1, -1)
    assert [(one.partition_index, one.broker_ids) for one in topic.assignments] == [(0, [0, 1]), (1, [1, 2])]


async def test_an_error_of_the_controller_is_raised_with_its_words(peer: Peer, kafka: KafkaController) -> None:
    peer.response = CreateTopicsResponse(topics=[CreatableTopicResult("orders", error_code=36, error_message="exists")])
    with pytest.raises(TidegaugeError, match="exists") as raised:
        await kafka.create_topic("orders", 1, 1, (), {}, 1_000)
    assert raised.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    peer.response = DeleteTopicsResponse(responses=[DeletableTopicResult("orders", error_code=41)])
    with pytest.raises(TidegaugeError) as raised:
        await kafka.delete_topic("orders", 1_000)
    assert raised.value.code is ErrorCode.NOT_CONTROLLER
    assert [(key, at_least) for key, _, at_least in peer.requests] == [(CREATE_TOPICS, 4), (DELETE_TOPICS, 6)]


async def test_partitions_are_added_placed_or_not(peer: Peer, kafka: KafkaController) -> None:
    peer.response = CreatePartitionsResponse(results=[CreatePartitionsTopicResult("orders")])
    await kafka.create_partitions("orders", 4, (), 1_000)
    await kafka.create_partitions("orders", 4, [[1, 2]], 1_000)
    (key, free, _), (_, placed, _) = peer.requests
    assert (key, free.topics[0].count, free.topics[0].assignments) == (CREATE_PARTITIONS, 4, None)
    assert [one.broker_ids for one in placed.topics[0].assignments] == [[1, 2]]


async def test_elections_have_an_outcome_for_each_partition(peer: Peer, kafka: KafkaController) -> None:
    results = [ReplicaElectionResult("orders", [PartitionResult(0), PartitionResult(1, 84, "not needed")])]
    peer.response = ElectLeadersResponse(replica_election_results=results)
    outcomes = await kafka.elect_leaders([ORDERS_0, ORDERS_1], unclean=True, timeout_ms=1_000)
    problem = outcomes[ORDERS_1]
    assert outcomes[ORDERS_0] is None
    assert problem is not None
    assert (problem.code, problem.message) == (ErrorCode.ELECTION_NOT_NEEDED, "not needed")
    await kafka.elect_leaders(None, unclean=False, timeout_ms=1_000)
    (_, named, at_least), (_, everything, _) = peer.requests
    assert (named.election_type, at_least) == (1, 1)
    assert [(one.topic, one.partitions) for one in named.topic_partitions] == [("orders", [0, 1])]
    assert (everything.election_type, everything.topic_partitions) == (0, None)
    peer.response = ElectLeadersResponse(error_code=41)
    with pytest.raises(TidegaugeError):
        await kafka.elect_leaders(None, unclean=False, timeout_ms=1_000)


async def test_reassignments_begin_end_and_are_listed(peer: Peer, kafka: KafkaController) -> None:
    """A partition without replicas is cancelled (KIP-455)."""
    results = [
        ReassignableTopicResponse("orders", [ReassignablePartitionResponse(0), ReassignablePartitionResponse(1, 85)])
    ]
    peer.response = AlterPartitionReassignmentsResponse(responses=results)
    outcomes = await kafka.alter_reassignments({ORDERS_0: [2, 0], ORDERS_1: None}, 1_000)
    assert outcomes[ORDERS_0] is None
    assert getattr(outcomes[ORDERS_1], "code", None) is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    [topic] = peer.requests[0][1].topics
    assert [(one.partition_index, one.replicas) for one in topic.partitions] == [(0, [2, 0]), (1, None)]
    ongoing = OngoingTopicReassignment("orders", [OngoingPartitionReassignment(0, [2, 0, 1], [2], [1])])
    peer.response = ListPartitionReassignmentsResponse(topics=[ongoing])
    assert await kafka.list_reassignments(None, 1_000) == {ORDERS_0: ((2, 0, 1), (2,), (1,))}


async def test_the_admin_client_asks_a_kafka_controller_and_looks_again_when_it_moves(
    peer: Peer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NOT_CONTROLLER is retried at its successor, of whichever kind (AdminBase, rules 1 and 2)."""
    info = ClusterInfo(controller_id=2, kafka_brokers={2: BrokerInfo(2, "127.0.0.1", 9094)})

    async def metadata(*_: object) -> ClusterInfo:
        peer.response = ListPartitionReassignmentsResponse(
            error_code=0 if peer.requests else 41,
            topics=[OngoingTopicReassignment("orders", [OngoingPartitionReassignment(0, [2, 0], [2], [])])],
        )
        return info

    monkeypatch.setattr(Admin, "metadata", metadata)
    async with Admin("127.0.0.1:19092", retry_backoff_ms=1) as admin:
        found = await admin.list_partition_reassignments()
    assert found == {ORDERS_0: OngoingReassignment((2, 0), (2,), ())}
    assert len(peer.requests) == 2
