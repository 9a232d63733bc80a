"""The requests of one member of a consumer group over gRPC."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, groups_pb2
from tidegauge_client.admin_groups import OffsetAndMetadata, to_committed
from tidegauge_client.channels import call
from tidegauge_client.cluster import PROBE_TIMEOUT_MS, Cluster
from tidegauge_client.group.consumer_protocol import PROTOCOL_TYPE
from tidegauge_client.group.effects import Generation
from tidegauge_client.group.membership import MembershipSettings

JOIN_GRACE_MS = 5_000
"""How much longer than the rebalance timeout a JoinGroup may take (AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE)."""

ErrorAndMessage = tuple[ErrorCode, str]


class CommittedOffsets(NamedTuple):
    """The response to a fetch of committed offsets: an error of the group, or an offset or error of each partition."""

    error: ErrorAndMessage
    offsets: Mapping[TopicPartition, OffsetAndMetadata | None]
    errors: Mapping[TopicPartition, ErrorAndMessage]


@dataclass(frozen=True, slots=True)
class GroupRequests:
    """Sends a member's requests to the coordinator itself, which forwards none of them (NOT_COORDINATOR).

    Each method raises ``TidegaugeError``, NETWORK_EXCEPTION or REQUEST_TIMED_OUT, when there is no response.
    """

    cluster: Cluster
    group_id: str
    client_id: str
    settings: MembershipSettings
    request_timeout_ms: float

    async def find(self) -> str:
        """Return the coordinator's address: ask the brokers in turn until one responds.

        Raises:
            TidegaugeError: COORDINATOR_NOT_AVAILABLE, or another error of the broker; no broker responds.
        """
        request = groups_pb2.FindCoordinatorRequest(group_id=self.group_id)
        problem = TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker responds")
        for address in self.cluster.addresses():
            ask = self.cluster.channels.groups(address).FindCoordinator
            try:
                found = await call(ask, request, timeout_ms=PROBE_TIMEOUT_MS, address=address)
            except TidegaugeError as error:
                self.cluster.note_failure(address)
                problem = error
                continue
            code, message = error_of(found.status)
            if code is not ErrorCode.NONE:
                raise TidegaugeError(code, message)
            return found.address
        raise problem

    async def join(
        self, address: str, sent: Generation, protocols: Mapping[str, bytes], reason: str
    ) -> groups_pb2.JoinGroupResponse:
        """Send JoinGroup; the response comes when the join phase has ended."""
        request = groups_pb2.JoinGroupRequest(
            group_id=self.group_id,
            member_id=sent.member_id,
            group_instance_id=self.settings.group_instance_id or "",
            session_timeout_ms=self.settings.session_timeout_ms,
            rebalance_timeout_ms=self.settings.max_poll_interval_ms,
            protocol_type=PROTOCOL_TYPE,
            protocols=[groups_pb2.GroupProtocol(name=name, metadata=data) for name, data in protocols.items()],
            client_id=self.client_id,
            reason=reason,
            forwarded=True,
        )
        limit_ms = max(self.request_timeout_ms, self.settings.max_poll_interval_ms + JOIN_GRACE_MS)
        ask = self.cluster.channels.groups(address).JoinGroup
        return await call(ask, request, timeout_ms=limit_ms, address=address)

    async def synchronise(
        self, address: str, sent: Generation, assignments: Mapping[str, bytes]
    ) -> groups_pb2.SyncGroupResponse:
        """Send SyncGroup, a leader's with all assignments."""
        request = groups_pb2.SyncGroupRequest(
            group_id=self.group_id,
            generation=sent.number,
            member_id=sent.member_id,
            group_instance_id=self.settings.group_instance_id or "",
            protocol_type=PROTOCOL_TYPE,
            protocol_name=sent.protocol,
            assignments=[
                groups_pb2.MemberAssignment(member_id=member, assignment=data) for member, data in assignments.items()
            ],
            forwarded=True,
        )
        limit_ms = max(self.request_timeout_ms, self.settings.max_poll_interval_ms + JOIN_GRACE_MS)
        ask = self.cluster.channels.groups(address).SyncGroup
        return await call(ask, request, timeout_ms=limit_ms, address=address)

    async def heartbeat(self, address: str, sent: Generation) -> ErrorAndMessage:
        """Send a heartbeat."""
        request = groups_pb2.HeartbeatRequest(
            group_id=self.group_id,
            generation=sent.number,
            member_id=sent.member_id,
            group_instance_id=self.settings.group_instance_id or "",
            forwarded=True,
        )
        ask = self.cluster.channels.groups(address).Heartbeat
        response = await call(ask, request, timeout_ms=self.request_timeout_ms, address=address)
        return error_of(response.status)

    async def leave(self, address: str, sent: Generation, reason: str, timeout_ms: float) -> None:
        """Send LeaveGroup; what the coordinator says does not matter any more."""
        leaving = groups_pb2.LeavingMember(member_id=sent.member_id, reason=reason)
        request = groups_pb2.LeaveGroupRequest(group_id=self.group_id, members=[leaving], forwarded=True)
        ask = self.cluster.channels.groups(address).LeaveGroup
        await call(ask, request, timeout_ms=timeout_ms, address=address)

    async def commit(
        self, address: str, sent: Generation, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, ErrorAndMessage]:
        """Send OffsetCommit; return each partition's error."""
        request = groups_pb2.CommitOffsetsRequest(
            group_id=self.group_id,
            generation=sent.number,
            member_id=sent.member_id,
            group_instance_id=self.settings.group_instance_id or "",
            offsets=to_committed(offsets),
            forwarded=True,
        )
        ask = self.cluster.channels.groups(address).CommitOffsets
        response = await call(ask, request, timeout_ms=self.request_timeout_ms, address=address)
        whole = error_of(response.status)
        if whole[0] is not ErrorCode.NONE:
            return dict.fromkeys(offsets, whole)
        return {TopicPartition(one.topic, one.partition): error_of(one.status) for one in response.offsets}

    async def committed(self, address: str, partitions: Collection[TopicPartition]) -> CommittedOffsets:
        """Send OffsetFetch for stable offsets: none that a commit in flight is about to change (KIP-447)."""
        request = groups_pb2.FetchOffsetsRequest(
            group_id=self.group_id,
            partitions=[groups_pb2.GroupPartition(topic=at.topic, partition=at.partition) for at in partitions],
            require_stable=True,
            forwarded=True,
        )
        ask = self.cluster.channels.groups(address).FetchOffsets
        response = await call(ask, request, timeout_ms=self.request_timeout_ms, address=address)
        return _committed(error_of(response.status), response.offsets)


def _committed(error: ErrorAndMessage, found: Sequence[groups_pb2.CommittedOffset]) -> CommittedOffsets:
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    errors: dict[TopicPartition, ErrorAndMessage] = {}
    for one in found:
        at = TopicPartition(one.topic, one.partition)
        problem = error_of(one.status)
        if problem[0] is not ErrorCode.NONE:
            errors[at] = problem
        else:
            has_offset = one.offset >= 0
            offsets[at] = OffsetAndMetadata(one.offset, one.leader_epoch, one.metadata) if has_offset else None
    return CommittedOffsets(error, offsets, errors)


def error_of(status: common_pb2.Status) -> ErrorAndMessage:
    """Return the error of a status, and its sentence."""
    return ErrorCode.of(status.error), status.message
