"""The methods of ``group_service.proto``: what members and administrators of consumer groups send.

Any broker may be asked, and forwards a request to the group's coordinator (``forwarding``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import grpc.aio

from tidegauge import groups
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.v1 import group_service_pb2_grpc, groups_pb2
from tidegauge_broker.coordinator.views import CommittedOffsetView, GroupView
from tidegauge_broker.server.replication.peers import Peers
from tidegauge_broker.server.service import BrokerService
from tidegauge_broker.server.service.group_service import KeyType
from tidegauge_broker.server.wire.grpc import merged_lists
from tidegauge_broker.server.wire.grpc.callers import caller_of, host_of
from tidegauge_broker.server.wire.grpc.forwarding import Forwardable, Forwarding, to_status

Context = grpc.aio.ServicerContext[Any, Any]


class _OfGroup(Forwardable, Protocol):
    group_id: str


Response = TypeVar("Response")


def to_committed_offset(
    at: TopicPartition, one: groups.FetchedOffset | CommittedOffsetView, error: ErrorCode | None = None
) -> groups_pb2.CommittedOffset:
    """Convert the committed offset of a partition; without ``error`` the message says nothing of one."""
    status = None if error is None else to_status(error)
    return groups_pb2.CommittedOffset(
        topic=at.topic,
        partition=at.partition,
        offset=one.offset,
        leader_epoch=one.leader_epoch,
        metadata=one.metadata,
        status=status,
    )


class GroupServicer(group_service_pb2_grpc.GroupServiceServicer):
    """See the module.

    Args:
        service: the broker's.
        peers: channels to the other brokers.
        listener: name of the listener that serves.
    """

    def __init__(self, service: BrokerService, peers: Peers, listener: str) -> None:
        self._service = service
        self._groups = service.groups
        self._peers = peers
        self._listener = listener
        self._forwarding = Forwarding(service, peers.groups, listener)

    async def FindCoordinator(
        self, request: groups_pb2.FindCoordinatorRequest, context: Context
    ) -> groups_pb2.FindCoordinatorResponse:
        """Name the coordinator of a group."""
        caller = caller_of(context, self._listener)
        found = self._groups.find_coordinator(caller, KeyType.GROUP, request.group_id)
        at = found.endpoint
        return groups_pb2.FindCoordinatorResponse(
            status=to_status(ErrorCode.NONE)
            if at is not None
            else self._forwarding.not_found(caller, KeyType.GROUP, request.group_id, found),
            broker_id=-1 if at is None else at.broker_id,
            address="" if at is None else at.address,
            partition=self._groups.partition_of(request.group_id).partition,
        )

    async def JoinGroup(self, request: groups_pb2.JoinGroupRequest, context: Context) -> groups_pb2.JoinGroupResponse:
        """Join; the response comes when the join phase has ended."""
        if not request.client_host:
            request.client_host = f"/{host_of(context.peer())}"  # as Java prints it
        forwarded = await self._forwarded("JoinGroup", request, groups_pb2.JoinGroupResponse, context)
        if forwarded is not None:
            return forwarded
        result = await self._groups.ask(
            groups.JoinGroup(
                group_id=request.group_id,
                member_id=request.member_id,
                session_timeout_ms=request.session_timeout_ms,
                rebalance_timeout_ms=request.rebalance_timeout_ms,
                protocol_type=request.protocol_type,
                protocols=tuple(groups.Protocol(one.name, one.metadata) for one in request.protocols),
                group_instance_id=request.group_instance_id or None,
                client_id=request.client_id,
                client_host=request.client_host,
                reason=request.reason or None,
            )
        )
        return groups_pb2.JoinGroupResponse(
            status=to_status(result.error),
            generation=result.generation,
            protocol_name=result.protocol_name or "",
            leader=result.leader,
            member_id=result.member_id,
            skip_assignment=result.skip_assignment,
            members=[
                groups_pb2.JoinedMember(
                    member_id=one.member_id, group_instance_id=one.group_instance_id or "", metadata=one.metadata
                )
                for one in result.members
            ],
        )

    async def SyncGroup(self, request: groups_pb2.SyncGroupRequest, context: Context) -> groups_pb2.SyncGroupResponse:
        """Synchronise; the response comes when the assignment is committed."""
        forwarded = await self._forwarded("SyncGroup", request, groups_pb2.SyncGroupResponse, context)
        if forwarded is not None:
            return forwarded
        result = await self._groups.ask(
            groups.SyncGroup(
                group_id=request.group_id,
                generation=request.generation,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id or None,
                protocol_type=request.protocol_type or None,
                protocol_name=request.protocol_name or None,
                assignments=tuple((one.member_id, one.assignment) for one in request.assignments),
            )
        )
        return groups_pb2.SyncGroupResponse(status=to_status(result.error), assignment=result.assignment)

    async def Heartbeat(self, request: groups_pb2.HeartbeatRequest, context: Context) -> groups_pb2.HeartbeatResponse:
        """Restart the member's session timer."""
        forwarded = await self._forwarded("Heartbeat", request, groups_pb2.HeartbeatResponse, context)
        if forwarded is not None:
            return forwarded
        instance = request.group_instance_id or None
        result = await self._groups.ask(
            groups.Heartbeat(request.group_id, request.generation, request.member_id, instance)
        )
        return groups_pb2.HeartbeatResponse(status=to_status(result.error))

    async def LeaveGroup(
        self, request: groups_pb2.LeaveGroupRequest, context: Context
    ) -> groups_pb2.LeaveGroupResponse:
        """Remove members."""
        forwarded = await self._forwarded("LeaveGroup", request, groups_pb2.LeaveGroupResponse, context)
        if forwarded is not None:
            return forwarded
        leaving = tuple(
            groups.LeavingMember(one.member_id, one.group_instance_id or None, one.reason or None)
            for one in request.members
        )
        result = await self._groups.ask(groups.LeaveGroup(request.group_id, leaving))
        return groups_pb2.LeaveGroupResponse(
            status=to_status(result.error),
            members=[
                groups_pb2.LeftMember(
                    member_id=one.member_id, group_instance_id=one.group_instance_id or "", status=to_status(one.error)
                )
                for one in result.members
            ],
        )

    async def CommitOffsets(
        self, request: groups_pb2.CommitOffsetsRequest, context: Context
    ) -> groups_pb2.CommitOffsetsResponse:
        """Store offsets; the response comes when they are committed."""
        forwarded = await self._forwarded("CommitOffsets", request, groups_pb2.CommitOffsetsResponse, context)
        if forwarded is not None:
            return forwarded
        wanted = tuple(
            groups.OffsetToCommit(
                TopicPartition(one.topic, one.partition), one.offset, one.leader_epoch, one.metadata or None
            )
            for one in request.offsets
        )
        result = await self._groups.commit_offsets(
            groups.OffsetCommit(
                group_id=request.group_id,
                offsets=wanted,
                generation=request.generation,
                member_id=request.member_id,
                group_instance_id=request.group_instance_id or None,
            )
        )
        return groups_pb2.CommitOffsetsResponse(
            offsets=[
                groups_pb2.CommittedOffset(
                    topic=one.topic_partition.topic,
                    partition=one.topic_partition.partition,
                    offset=one.offset,
                    status=to_status(result.partitions[one.topic_partition]),
                )
                for one in wanted
            ]
        )

    async def FetchOffsets(
        self, request: groups_pb2.FetchOffsetsRequest, context: Context
    ) -> groups_pb2.FetchOffsetsResponse:
        """Return committed offsets."""
        forwarded = await self._forwarded("FetchOffsets", request, groups_pb2.FetchOffsetsResponse, context)
        if forwarded is not None:
            return forwarded
        wanted = None if request.all_partitions else _partitions(request.partitions)
        result = await self._groups.fetch_offsets(groups.OffsetFetch(request.group_id, wanted, request.require_stable))
        return groups_pb2.FetchOffsetsResponse(
            status=to_status(result.error),
            offsets=[to_committed_offset(at, one, one.error) for at, one in sorted(result.offsets.items())],
        )

    async def DeleteOffsets(
        self, request: groups_pb2.DeleteOffsetsRequest, context: Context
    ) -> groups_pb2.DeleteOffsetsResponse:
        """Delete committed offsets."""
        forwarded = await self._forwarded("DeleteOffsets", request, groups_pb2.DeleteOffsetsResponse, context)
        if forwarded is not None:
            return forwarded
        wanted = groups.OffsetDelete(request.group_id, _partitions(request.partitions))
        result = await self._groups.delete_offsets(wanted)
        return groups_pb2.DeleteOffsetsResponse(
            status=to_status(result.error),
            offsets=[
                groups_pb2.CommittedOffset(topic=at.topic, partition=at.partition, offset=-1, status=to_status(error))
                for at, error in sorted(result.partitions.items())
            ],
        )

    async def DescribeGroup(
        self, request: groups_pb2.DescribeGroupRequest, context: Context
    ) -> groups_pb2.DescribeGroupResponse:
        """Describe a group, with what Kafka's own request lacks: its generation and why it rebalances."""
        forwarded = await self._forwarded("DescribeGroup", request, groups_pb2.DescribeGroupResponse, context)
        if forwarded is not None:
            return forwarded
        found = await self._groups.ask(groups.DescribeGroup(request.group_id))
        coordinator = self._groups.runner.coordinator
        refusal = "" if found.error is ErrorCode.NONE else coordinator.refusal_of(request.group_id)
        response = groups_pb2.DescribeGroupResponse(
            status=to_status(found.error, refusal and f"the group is out of service: {refusal}"),
            state=found.state,
            protocol_type=found.protocol_type,
            protocol_name=found.protocol_name,
            members=[
                groups_pb2.GroupMember(
                    member_id=one.member_id,
                    group_instance_id=one.group_instance_id or "",
                    client_id=one.client_id,
                    client_host=one.client_host,
                    metadata=one.metadata,
                    assignment=one.assignment,
                )
                for one in found.members
            ],
            coordinator=self._service.broker_id,
            generation=-1,
        )
        view = coordinator.group_view(request.group_id)
        if found.error is ErrorCode.NONE and view is not None:
            _add_view(response, view, self._groups.runner.time_ms, self._groups.runner.wall_ms)
        expiration = coordinator.expiration_of(request.group_id)
        if found.error is ErrorCode.NONE and expiration is not None:
            response.expired_age_ms = max(0, self._groups.runner.time_ms - expiration.at_ms)
            response.expired_partitions.extend(map(str, expiration.partitions))
        return response

    async def ListGroups(
        self, request: groups_pb2.ListGroupsRequest, context: Context
    ) -> groups_pb2.ListGroupsResponse:
        """List the groups of this broker, or of all live brokers."""
        result = await self._groups.ask(groups.ListGroups(tuple(request.states)))
        own = groups_pb2.ListGroupsResponse(
            status=to_status(result.error),
            groups=[
                groups_pb2.ListedGroup(
                    group_id=one.group_id,
                    protocol_type=one.protocol_type,
                    state=one.state,
                    group_type=one.group_type,
                    coordinator=self._service.broker_id,
                )
                for one in result.groups
            ],
        )
        if request.own_groups_only:
            return own
        own_only = groups_pb2.ListGroupsRequest(states=request.states, own_groups_only=True)
        parts, status = await merged_lists.gather(
            (self._service.broker_id, own),
            self._groups.other_brokers(self._service.broker_id),
            lambda address: self._peers.groups(address).ListGroups,
            own_only,
            context,
            "groups",
            self._groups.leaderless(groups.OFFSETS_TOPIC),
        )
        listed = [one for part in parts for one in part.groups]
        return groups_pb2.ListGroupsResponse(status=status, groups=sorted(listed, key=lambda one: one.group_id))

    async def DeleteGroup(
        self, request: groups_pb2.DeleteGroupRequest, context: Context
    ) -> groups_pb2.DeleteGroupResponse:
        """Delete a group without members."""
        forwarded = await self._forwarded("DeleteGroup", request, groups_pb2.DeleteGroupResponse, context)
        if forwarded is not None:
            return forwarded
        result = await self._groups.ask(groups.DeleteGroup(request.group_id))
        return groups_pb2.DeleteGroupResponse(status=to_status(result.error))

    async def _forwarded(
        self, method: str, request: _OfGroup, response: type[Response], context: Context
    ) -> Response | None:
        return await self._forwarding.response((KeyType.GROUP, request.group_id), method, request, response, context)


def _add_view(response: groups_pb2.DescribeGroupResponse, view: GroupView, now_ms: int, wall_ms: int) -> None:
    """Add what Kafka's response lacks: why the group rebalances, whom it waits for, and how long."""
    response.generation, response.reason, response.leader = view.generation, view.reason, view.leader or ""
    response.parked_members.extend(one.member_id for one in view.members if one.parked)
    response.pending_members.extend(view.pending_members)
    response.in_initial_delay = view.in_initial_delay
    if view.state_since_ms >= 0:
        response.state_age_ms = max(0, wall_ms - view.state_since_ms)
    if view.phase_deadline_ms is not None:
        response.phase_left_ms = max(0, view.phase_deadline_ms - now_ms)
    described = {one.member_id: one for one in response.members}
    for member in view.members:
        one = described.get(member.member_id)
        if one is None:
            continue
        one.parked = member.parked
        if member.session_deadline_ms is not None:
            one.session_left_ms = max(0, member.session_deadline_ms - now_ms)


def _partitions(wanted: Sequence[groups_pb2.GroupPartition]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(one.topic, one.partition) for one in wanted)
