"""The consumer groups that one broker coordinates, whether or not it has the lab's services.

Rules:
    1. The Lab service comes first: it responds whatever faults are in force, and uses up none.
    2. A broker without it is asked as any admin client asks it: it shows assignments of a Stable group alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import grpc
import grpc.aio

from tidegauge.groups import partition_of
from tidegauge.v1 import groups_pb2, lab_pb2, lab_service_pb2_grpc
from tidegauge_client.channels import Channels

if TYPE_CHECKING:
    from tidegauge.v1.group_service_pb2_grpc import GroupServiceAsyncStub
    from tidegauge.v1.lab_service_pb2_grpc import LabServiceAsyncStub

DEADLINE_SECONDS = 1.0


async def observed_groups(
    channels: Channels, address: str, offsets_partitions: int
) -> Sequence[lab_pb2.ObservedGroup] | None:
    """Return the groups of one broker; None where it does not respond.

    Args:
        channels: to the broker.
        address: the broker's.
        offsets_partitions: number of partitions of __consumer_offsets, by which groups are assigned to partitions.
    """
    lab = cast("LabServiceAsyncStub", lab_service_pb2_grpc.LabServiceStub(channels.channel(address)))
    try:
        response = await lab.ObserveGroups(lab_pb2.ObserveGroupsRequest(), timeout=DEADLINE_SECONDS)
        return list(response.groups)
    except grpc.aio.AioRpcError as problem:
        if problem.code() is not grpc.StatusCode.UNIMPLEMENTED:
            return None
    stub = channels.groups(address)
    try:
        listed = await stub.ListGroups(groups_pb2.ListGroupsRequest(own_groups_only=True), timeout=DEADLINE_SECONDS)
        return await asyncio.gather(*(_described(stub, one.group_id, offsets_partitions) for one in listed.groups))
    except grpc.aio.AioRpcError:
        return None


async def _described(stub: GroupServiceAsyncStub, group_id: str, offsets_partitions: int) -> lab_pb2.ObservedGroup:
    describe = groups_pb2.DescribeGroupRequest(group_id=group_id, forwarded=True)
    fetch = groups_pb2.FetchOffsetsRequest(group_id=group_id, all_partitions=True, forwarded=True)
    description, fetched = await asyncio.gather(
        stub.DescribeGroup(describe, timeout=DEADLINE_SECONDS), stub.FetchOffsets(fetch, timeout=DEADLINE_SECONDS)
    )
    partition = partition_of(group_id, offsets_partitions) if offsets_partitions else 0
    return lab_pb2.ObservedGroup(
        group_id=group_id, description=description, partition=partition, offsets=fetched.offsets
    )
