"""The handlers of what controller and brokers send each other: the service's door gets plain values, as over gRPC."""

from __future__ import annotations

from typing import Any

from tests.unit.server.kafka_service import FakeService, ask, versions

from tidegauge.control import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlHeader,
    IsrProposal,
    IsrVerdict,
    PartitionsResponse,
)
from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidegauge.kafka.messages.alter_partition import AlterPartitionRequest as AlterPartition
from tidegauge.kafka.messages.alter_partition import BrokerState, PartitionData, TopicData
from tidegauge.kafka.messages.controlled_shutdown import ControlledShutdownRequest
from tidegauge.kafka.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from tidegauge.kafka.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from tidegauge.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.partition import TopicPartition

AT = TopicPartition("orders", 1)
TOPIC_ID = "zF9BRDkxRxeQQK4qlhtlVQ"


def responding(response: Any) -> Any:
    async def respond(*_arguments: Any) -> Any:
        return response

    return respond


async def test_roles_are_taken_by_the_replicas_and_their_errors_come_back_by_topic_id() -> None:
    service = FakeService(leader_and_isr=responding(PartitionsResponse(partitions={AT: ErrorCode.KAFKA_STORAGE_ERROR})))
    state = LeaderAndIsrPartitionState("", 1, 3, 0, 4, [0, 1], 5, [0, 1])
    topics = [LeaderAndIsrTopicState("orders", topic_id_bytes(TOPIC_ID), [state])]
    response = await ask(service, "LeaderAndIsr", 7, LeaderAndIsrRequest(0, False, 3, 9, topic_states=topics))
    (request,) = service.calls[0][1]
    assert request.header == ControlHeader(0, 3, 9)
    assert [(one.state.topic_partition, one.state.topic_id) for one in request.partitions] == [(AT, TOPIC_ID)]
    (topic,) = response.topics
    assert topic.topic_id == topic_id_bytes(TOPIC_ID)
    assert [(one.partition_index, one.error_code) for one in topic.partition_errors] == [(1, 56)]


async def test_replicas_are_stopped_and_their_errors_come_back() -> None:
    errors = {AT: ErrorCode.FENCED_LEADER_EPOCH}
    service = FakeService(stop_replica=responding(PartitionsResponse(partitions=errors)))
    topics = [StopReplicaTopicState("orders", [StopReplicaPartitionState(1, 4, True)])]
    response = await ask(service, "StopReplica", 4, StopReplicaRequest(0, False, 3, 9, topic_states=topics))
    assert [(one.topic_name, one.partition_index, one.error_code) for one in response.partition_errors] == [
        ("orders", 1, 74)
    ]


async def test_metadata_has_the_addresses_of_the_listener_that_brokers_use() -> None:
    service = FakeService(update_metadata=lambda _: ErrorCode.STALE_CONTROLLER_EPOCH, control_plane_listener="INTERNAL")
    listeners = [UpdateMetadataEndpoint(1, "a", "PLAINTEXT"), UpdateMetadataEndpoint(2, "b", "INTERNAL")]
    request = UpdateMetadataRequest(live_brokers=[UpdateMetadataBroker(4, endpoints=listeners)])
    assert (await ask(service, "UpdateMetadata", 8, request)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    (received,) = service.calls[0][1]
    assert received.live_brokers[0].address == "b:2"


async def test_a_broker_that_stops_learns_what_it_still_leads_in_every_version() -> None:
    service = FakeService(controlled_shutdown=responding((ErrorCode.NONE, [AT])))
    for version in versions("ControlledShutdown"):
        response = await ask(service, "ControlledShutdown", version, ControlledShutdownRequest(2, 7))
        assert [(one.topic_name, one.partition_index) for one in response.remaining_partitions] == [("orders", 1)]
    assert [arguments for _, arguments, _ in service.calls] == [(2, -1), (2, -1), (2, 7), (2, 7)]


async def test_a_leaders_proposal_names_its_topic_by_id() -> None:
    async def judge(request: AlterPartitionRequest) -> AlterPartitionResponse:
        assert request.partitions == [IsrProposal(AT, TOPIC_ID, 4, (0, 1), 6, joiner_epoch=77)]
        return AlterPartitionResponse(partitions=[IsrVerdict(AT, ErrorCode.NONE, 0, 4, (0, 1), 7)])

    service = FakeService(alter_partition=judge, controlled_topic_names=responding({TOPIC_ID: "orders"}))
    members = [BrokerState(0), BrokerState(1, 77)]
    partition = PartitionData(1, 4, new_isr_with_epochs=members, partition_epoch=6)
    topics = [TopicData(topic_id=topic_id_bytes(TOPIC_ID), partitions=[partition])]
    response = await ask(service, "AlterPartition", 3, AlterPartition(0, 5, topics))
    (verdict,) = response.topics[0].partitions
    assert (verdict.error_code, verdict.isr, verdict.partition_epoch) == (0, (0, 1), 7)


async def test_a_broker_that_is_not_the_controller_says_so_and_not_that_it_knows_no_topic_id() -> None:
    service = FakeService(controlled_topic_names=responding(None))
    topics = [TopicData(topic_id=topic_id_bytes(TOPIC_ID), partitions=[PartitionData(1, 4)])]
    response = await ask(service, "AlterPartition", 3, AlterPartition(0, 5, topics))
    assert (response.error_code, response.topics) == (ErrorCode.NOT_CONTROLLER, [])
    assert service.calls == [("controlled_topic_names", ({TOPIC_ID},), {})]


async def test_a_block_of_producer_ids() -> None:
    service = FakeService(allocate_producer_ids=responding((ErrorCode.NONE, 3000, 1000)))
    response = await ask(service, "AllocateProducerIds", 0, AllocateProducerIdsRequest(1, 5))
    assert (response.error_code, response.producer_id_start, response.producer_id_len) == (0, 3000, 1000)
