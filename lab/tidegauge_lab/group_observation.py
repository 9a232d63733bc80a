"""The consumer groups that one broker coordinates, whether or not it has the lab's services.

Rules:
    1. The Lab service comes first: it responds whatever faults are in force, and uses up none.
    2. A broker without it is asked over Kafka's protocol, as any admin client asks it: it shows assignments of a Stable
       group alone, and no generation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import grpc
import grpc.aio

from tidegauge.errors import TidegaugeError
from tidegauge.groups import partition_of
from tidegauge.kafka import apis
from tidegauge.kafka.messages.describe_groups import DescribedGroup, DescribeGroupsRequest
from tidegauge.kafka.messages.list_groups import ListGroupsRequest
from tidegauge.kafka.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponseGroup
from tidegauge.v1 import lab_pb2, lab_service_pb2_grpc
from tidegauge_client.channels import Channels
from tidegauge_client.kafka_offsets import FIRST_WITH_SEVERAL_GROUPS
from tidegauge_client.kafka_wire import KafkaWire

if TYPE_CHECKING:
    from tidegauge.v1.lab_service_pb2_grpc import LabServiceAsyncStub

DEADLINE_SECONDS = 1.0


async def observed_groups(
    channels: Channels, address: str, kafka: KafkaWire, kafka_address: str | None, offsets_partitions: int
) -> Sequence[lab_pb2.ObservedGroup] | None:
    """Return the groups of one broker; None if it does not respond.

    Args:
        channels: to the broker, over gRPC.
        address: the broker's.
        kafka: sends requests over Kafka's protocol.
        kafka_address: where the broker serves that; None: it does not.
        offsets_partitions: number of partitions of __consumer_offsets, by which groups are assigned to partitions.
    """
    lab = cast("LabServiceAsyncStub", lab_service_pb2_grpc.LabServiceStub(channels.channel(address)))
    try:
        response = await lab.ObserveGroups(lab_pb2.ObserveGroupsRequest(), timeout=DEADLINE_SECONDS)
        return list(response.groups)
    except grpc.aio.AioRpcError as problem:
        if problem.code() is not grpc.StatusCode.UNIMPLEMENTED or kafka_address is None:
            return None

    async def ask(key: int, request: Any, at_least: int = 0) -> Any:
        return await kafka.ask(kafka_address, key, request, DEADLINE_SECONDS * 1000, at_least=at_least)

    try:
        ids = [one.group_id for one in (await ask(apis.LIST_GROUPS, ListGroupsRequest())).groups]
        if not ids:
            return []
        described = (await ask(apis.DESCRIBE_GROUPS, DescribeGroupsRequest(ids))).groups
        wanted = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(one, topics=None) for one in ids])
        fetched = (await ask(apis.OFFSET_FETCH, wanted, FIRST_WITH_SEVERAL_GROUPS)).groups
    except TidegaugeError:
        return None
    offsets = {one.group_id: one for one in fetched}
    return [_observed(one, offsets[one.group_id], offsets_partitions) for one in described]


def _observed(
    group: DescribedGroup, fetched: OffsetFetchResponseGroup, offsets_partitions: int
) -> lab_pb2.ObservedGroup:
    description = lab_pb2.GroupDescription(
        state=group.group_state,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_data,
        members=[
            lab_pb2.GroupMember(
                member_id=one.member_id,
                group_instance_id=one.group_instance_id or "",
                client_id=one.client_id,
                client_host=one.client_host,
                metadata=bytes(one.member_metadata),
                assignment=bytes(one.member_assignment),
            )
            for one in group.members
        ],
        generation=-1,
    )
    offsets = [
        lab_pb2.CommittedOffset(
            topic=topic.name,
            partition=one.partition_index,
            offset=one.committed_offset,
            leader_epoch=one.committed_leader_epoch,
            metadata=one.metadata or "",
        )
        for topic in fetched.topics
        for one in topic.partitions
    ]
    partition = partition_of(group.group_id, offsets_partitions) if offsets_partitions else 0
    return lab_pb2.ObservedGroup(group_id=group.group_id, description=description, partition=partition, offsets=offsets)
