"""wire.py: each control message survives its way over the wire, in both directions."""

from __future__ import annotations

import pytest

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import (
    NO_LEADER,
    AlterPartitionRequest,
    AlterPartitionResponse,
    ControlHeader,
    Endpoint,
    IsrProposal,
    IsrVerdict,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaPartition,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge.v1 import control_pb2
from tidegauge_controller import wire

HEADER = ControlHeader(2, 7, 2**40)
AT = TopicPartition("orders", 3)
ENDPOINTS = [Endpoint(0, "127.0.0.1", 19092), Endpoint(1, "127.0.0.1", 19093, "r1")]


def state(leader: int, *, recovering: bool = False) -> PartitionState:
    return PartitionState(AT, "A" * 22, 6, leader, 4, (2, 0, 1), 9, (0, 1, 2), (1,), (2,), recovering)


@pytest.mark.parametrize("leader", [0, 2, NO_LEADER])
async def test_leader_and_isr_keeps_leader_none_orders_and_flags(leader: int) -> None:
    request = LeaderAndIsrRequest(
        HEADER, [LeaderAndIsrPartition(state(leader, recovering=True), is_new=True)], ENDPOINTS
    )
    sent = control_pb2.LeaderAndIsrRequest.FromString((await wire.to_leader_and_isr(request)).SerializeToString())
    assert await wire.from_leader_and_isr(sent) == request


@pytest.mark.parametrize("leader", [0, NO_LEADER])
@pytest.mark.parametrize("deleted", [False, True])
async def test_update_metadata_keeps_leader_none_and_deletion(leader: int, deleted: bool) -> None:
    request = UpdateMetadataRequest(HEADER, [ReportedPartition(state(leader), (1, 0), deleted)], ENDPOINTS)
    sent = control_pb2.UpdateMetadataRequest.FromString((await wire.to_update_metadata(request)).SerializeToString())
    assert await wire.from_update_metadata(sent) == request


@pytest.mark.parametrize("complete", [False, True])
async def test_update_metadata_says_whether_the_start_is_over(complete: bool) -> None:
    request = UpdateMetadataRequest(HEADER, [], ENDPOINTS, complete)
    sent = control_pb2.UpdateMetadataRequest.FromString((await wire.to_update_metadata(request)).SerializeToString())
    assert await wire.from_update_metadata(sent) == request


@pytest.mark.parametrize("leader_epoch", [None, 0, 5])
@pytest.mark.parametrize("delete", [False, True])
async def test_stop_replica_distinguishes_no_epoch_from_epoch_zero(leader_epoch: int | None, delete: bool) -> None:
    request = StopReplicaRequest(HEADER, [StopReplicaPartition(AT, leader_epoch, delete)])
    sent = control_pb2.StopReplicaRequest.FromString((await wire.to_stop_replica(request)).SerializeToString())
    assert await wire.from_stop_replica(sent) == request


async def test_responses_of_brokers_keep_every_error() -> None:
    response = PartitionsResponse(ErrorCode.NONE, {AT: ErrorCode.STALE_CONTROLLER_EPOCH})
    assert await wire.from_partitions_response(await wire.to_leader_and_isr_response(response)) == response
    assert await wire.from_partitions_response(await wire.to_stop_replica_response(response)) == response
    refused = PartitionsResponse(ErrorCode.STALE_BROKER_EPOCH)
    assert await wire.from_partitions_response(await wire.to_leader_and_isr_response(refused)) == refused


def test_alter_partition_and_its_response() -> None:
    request = AlterPartitionRequest(1, 77, [IsrProposal(AT, "B" * 22, 4, (2, 0), 3, recovering=True)])
    sent = control_pb2.AlterPartitionRequest.FromString(wire.to_alter_partition(request).SerializeToString())
    assert wire.from_alter_partition(sent) == request
    joins = AlterPartitionRequest(1, 77, [IsrProposal(AT, "B" * 22, 4, (2, 0), 3, joiner_epoch=0)])
    sent = control_pb2.AlterPartitionRequest.FromString(wire.to_alter_partition(joins).SerializeToString())
    assert wire.from_alter_partition(sent) == joins
    response = AlterPartitionResponse(
        ErrorCode.NONE,
        [
            IsrVerdict(AT, ErrorCode.NONE, 0, 4, (0, 2), 4),
            IsrVerdict(TopicPartition("orders", 4), ErrorCode.FENCED_LEADER_EPOCH),
        ],
    )
    received = control_pb2.AlterPartitionResponse.FromString(
        wire.to_alter_partition_response(response).SerializeToString()
    )
    assert wire.from_alter_partition_response(received) == response


async def test_controlled_shutdown_names_what_is_still_led() -> None:
    made = await wire.to_remaining_partitions(ErrorCode.NONE, [AT, TopicPartition("x", 0)])
    assert wire.from_remaining_partitions(made) == (ErrorCode.NONE, [AT, TopicPartition("x", 0)])


def test_an_unknown_error_number_is_an_unknown_server_error() -> None:
    assert wire.from_error(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert all(wire.from_error(wire.to_error(code)) is code for code in ErrorCode)
