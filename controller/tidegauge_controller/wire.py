"""The control plane's messages on the wire: ``tidegauge.control`` <-> ``control.proto``, both directions.

Nothing is decided here. ``NO_LEADER`` and an unchecked leader epoch are absent fields on the wire; every order of
replicas is kept. ``to_*`` builds the protobuf message, ``from_*`` the plain value. An error number that this version
does not know is read as UNKNOWN_SERVER_ERROR. Messages that may name all partitions of a cluster are converted with
turns of the event loop after every ``PARTITIONS_PER_TURN``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

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
from tidegauge.listeners import Listener
from tidegauge.metadata_update import ReportedPartition
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, control_pb2
from tidegauge.with_turns import with_turns

PARTITIONS_PER_TURN = 250


def to_error(error: ErrorCode) -> common_pb2.ErrorCode.ValueType:
    """Return an error's number on the wire."""
    return cast("common_pb2.ErrorCode.ValueType", int(error))


def from_error(error: int) -> ErrorCode:
    """Return the error with this number."""
    return ErrorCode.of(error)


def _to_leader(leader: int) -> int | None:
    return None if leader == NO_LEADER else leader


def to_endpoint(endpoint: Endpoint) -> common_pb2.BrokerEndpoint:
    """Convert a broker's endpoint for sending."""
    return common_pb2.BrokerEndpoint(
        broker_id=endpoint.broker_id,
        host=endpoint.host,
        port=endpoint.port,
        rack=endpoint.rack,
        listeners=[
            common_pb2.ListenerAddress(name=one.name, host=one.host, port=one.port) for one in endpoint.listeners
        ],
    )


def from_endpoint(message: common_pb2.BrokerEndpoint) -> Endpoint:
    """Convert a received endpoint of a broker."""
    return Endpoint(
        message.broker_id,
        message.host,
        message.port,
        message.rack if message.HasField("rack") else None,
        tuple(Listener(one.name, one.host, one.port) for one in message.listeners),
    )


def _to_header(header: ControlHeader) -> control_pb2.ControlHeader:
    return control_pb2.ControlHeader(
        controller_id=header.controller_id,
        controller_epoch=header.controller_epoch,
        broker_epoch=header.broker_epoch,
    )


def _from_header(message: control_pb2.ControlHeader) -> ControlHeader:
    return ControlHeader(message.controller_id, message.controller_epoch, message.broker_epoch)


def _to_state(state: PartitionState) -> dict[str, Any]:
    """Return a state's fields that LeaderAndIsr and UpdateMetadata have in common."""
    return {
        "topic": state.topic_partition.topic,
        "topic_id": state.topic_id,
        "partition": state.topic_partition.partition,
        "controller_epoch": state.controller_epoch,
        "leader_id": _to_leader(state.leader),
        "leader_epoch": state.leader_epoch,
        "isr": state.isr,
        "partition_epoch": state.partition_epoch,
        "replicas": state.replicas,
        "adding_replicas": state.adding_replicas,
        "removing_replicas": state.removing_replicas,
    }


def _from_state(
    entry: control_pb2.LeaderAndIsrPartition | control_pb2.UpdateMetadataPartition, *, recovering: bool
) -> PartitionState:
    return PartitionState(
        TopicPartition(entry.topic, entry.partition),
        entry.topic_id,
        entry.controller_epoch,
        entry.leader_id if entry.HasField("leader_id") else NO_LEADER,
        entry.leader_epoch,
        tuple(entry.isr),
        entry.partition_epoch,
        tuple(entry.replicas),
        tuple(entry.adding_replicas),
        tuple(entry.removing_replicas),
        recovering,
    )


async def to_leader_and_isr(request: LeaderAndIsrRequest) -> control_pb2.LeaderAndIsrRequest:
    """Convert LeaderAndIsr for sending."""
    message = control_pb2.LeaderAndIsrRequest(
        header=_to_header(request.header), live_leaders=[to_endpoint(endpoint) for endpoint in request.live_leaders]
    )
    async for entry in with_turns(request.partitions, PARTITIONS_PER_TURN):
        message.partitions.add(**_to_state(entry.state), is_new=entry.is_new, recovering=entry.state.recovering)
    return message


async def from_leader_and_isr(message: control_pb2.LeaderAndIsrRequest) -> LeaderAndIsrRequest:
    """Convert a received LeaderAndIsr."""
    return LeaderAndIsrRequest(
        _from_header(message.header),
        [
            LeaderAndIsrPartition(_from_state(entry, recovering=entry.recovering), entry.is_new)
            async for entry in with_turns(message.partitions, PARTITIONS_PER_TURN)
        ],
        [from_endpoint(endpoint) for endpoint in message.live_leaders],
    )


async def _to_partition_errors(errors: Mapping[TopicPartition, ErrorCode]) -> list[control_pb2.PartitionError]:
    return [
        control_pb2.PartitionError(topic=at.topic, partition=at.partition, error=to_error(error))
        async for at, error in with_turns(errors.items(), PARTITIONS_PER_TURN)
    ]


async def to_leader_and_isr_response(response: PartitionsResponse) -> control_pb2.LeaderAndIsrResponse:
    """Convert the response to LeaderAndIsr for sending."""
    return control_pb2.LeaderAndIsrResponse(
        error=to_error(response.error), partitions=await _to_partition_errors(response.partitions)
    )


async def to_stop_replica_response(response: PartitionsResponse) -> control_pb2.StopReplicaResponse:
    """Convert the response to StopReplica for sending."""
    return control_pb2.StopReplicaResponse(
        error=to_error(response.error), partitions=await _to_partition_errors(response.partitions)
    )


async def from_partitions_response(
    message: control_pb2.LeaderAndIsrResponse | control_pb2.StopReplicaResponse,
) -> PartitionsResponse:
    """Convert a received response to LeaderAndIsr or StopReplica."""
    return PartitionsResponse(
        from_error(message.error),
        {
            TopicPartition(entry.topic, entry.partition): from_error(entry.error)
            async for entry in with_turns(message.partitions, PARTITIONS_PER_TURN)
        },
    )


async def to_update_metadata(request: UpdateMetadataRequest) -> control_pb2.UpdateMetadataRequest:
    """Convert UpdateMetadata for sending."""
    message = control_pb2.UpdateMetadataRequest(
        header=_to_header(request.header),
        live_brokers=[to_endpoint(endpoint) for endpoint in request.live_brokers],
        startup_complete=request.startup_complete,
    )
    async for entry in with_turns(request.partitions, PARTITIONS_PER_TURN):
        message.partitions.add(**_to_state(entry.state), offline_replicas=entry.offline_replicas, deleted=entry.deleted)
    return message


async def from_update_metadata(message: control_pb2.UpdateMetadataRequest) -> UpdateMetadataRequest:
    """Convert a received UpdateMetadata. It does not carry whether a leader still recovers."""
    return UpdateMetadataRequest(
        _from_header(message.header),
        [
            ReportedPartition(_from_state(entry, recovering=False), tuple(entry.offline_replicas), entry.deleted)
            async for entry in with_turns(message.partitions, PARTITIONS_PER_TURN)
        ],
        [from_endpoint(endpoint) for endpoint in message.live_brokers],
        message.startup_complete,
    )


async def to_stop_replica(request: StopReplicaRequest) -> control_pb2.StopReplicaRequest:
    """Convert StopReplica for sending."""
    message = control_pb2.StopReplicaRequest(header=_to_header(request.header))
    async for entry in with_turns(request.partitions, PARTITIONS_PER_TURN):
        message.partitions.add(
            topic=entry.topic_partition.topic,
            partition=entry.topic_partition.partition,
            leader_epoch=entry.leader_epoch,
            delete_partition=entry.delete,
        )
    return message


async def from_stop_replica(message: control_pb2.StopReplicaRequest) -> StopReplicaRequest:
    """Convert a received StopReplica."""
    return StopReplicaRequest(
        _from_header(message.header),
        [
            StopReplicaPartition(
                TopicPartition(entry.topic, entry.partition),
                entry.leader_epoch if entry.HasField("leader_epoch") else None,
                entry.delete_partition,
            )
            async for entry in with_turns(message.partitions, PARTITIONS_PER_TURN)
        ],
    )


def to_alter_partition(request: AlterPartitionRequest) -> control_pb2.AlterPartitionRequest:
    """Convert AlterPartition for sending."""
    return control_pb2.AlterPartitionRequest(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        partitions=[
            control_pb2.AlterPartitionItem(
                topic=proposal.topic_partition.topic,
                topic_id=proposal.topic_id,
                partition=proposal.topic_partition.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr=proposal.new_isr,
                partition_epoch=proposal.partition_epoch,
                recovering=proposal.recovering,
                joiner_epoch=proposal.joiner_epoch if proposal.joiner_epoch >= 0 else None,
            )
            for proposal in request.partitions
        ],
    )


def from_alter_partition(message: control_pb2.AlterPartitionRequest) -> AlterPartitionRequest:
    """Convert a received AlterPartition."""
    return AlterPartitionRequest(
        message.broker_id,
        message.broker_epoch,
        [
            IsrProposal(
                TopicPartition(entry.topic, entry.partition),
                entry.topic_id,
                entry.leader_epoch,
                tuple(entry.new_isr),
                entry.partition_epoch,
                entry.recovering,
                entry.joiner_epoch if entry.HasField("joiner_epoch") else -1,
            )
            for entry in message.partitions
        ],
    )


def to_alter_partition_response(response: AlterPartitionResponse) -> control_pb2.AlterPartitionResponse:
    """Convert the response to AlterPartition for sending."""
    return control_pb2.AlterPartitionResponse(
        error=to_error(response.error),
        partitions=[
            control_pb2.AlterPartitionResult(
                topic=verdict.topic_partition.topic,
                partition=verdict.topic_partition.partition,
                error=to_error(verdict.error),
                leader_id=_to_leader(verdict.leader),
                leader_epoch=verdict.leader_epoch,
                isr=verdict.isr,
                partition_epoch=verdict.partition_epoch,
                recovering=verdict.recovering,
            )
            for verdict in response.partitions
        ],
    )


def from_alter_partition_response(message: control_pb2.AlterPartitionResponse) -> AlterPartitionResponse:
    """Convert a received response to AlterPartition."""
    return AlterPartitionResponse(
        from_error(message.error),
        [
            IsrVerdict(
                TopicPartition(entry.topic, entry.partition),
                from_error(entry.error),
                entry.leader_id if entry.HasField("leader_id") else NO_LEADER,
                entry.leader_epoch,
                tuple(entry.isr),
                entry.partition_epoch,
                entry.recovering,
            )
            for entry in message.partitions
        ],
    )


async def to_remaining_partitions(
    error: ErrorCode, remaining: list[TopicPartition]
) -> control_pb2.ControlledShutdownResponse:
    """Convert the response to ControlledShutdown for sending: the partitions that the broker still leads."""
    return control_pb2.ControlledShutdownResponse(
        error=to_error(error),
        remaining_partitions=await _to_partition_errors(dict.fromkeys(remaining, ErrorCode.NONE)),
    )


def from_remaining_partitions(
    message: control_pb2.ControlledShutdownResponse,
) -> tuple[ErrorCode, list[TopicPartition]]:
    """Convert a received response to ControlledShutdown."""
    remaining = [TopicPartition(entry.topic, entry.partition) for entry in message.remaining_partitions]
    return from_error(message.error), remaining
