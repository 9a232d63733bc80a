"""The requests of one member of a consumer group, over Kafka's protocol."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tidegauge.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tidegauge.kafka.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tidegauge.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidegauge.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_client.cluster import Cluster
from tidegauge_client.coordinators import GROUP, find_coordinator
from tidegauge_client.group.consumer_protocol import PROTOCOL_TYPE
from tidegauge_client.group.effects import Generation
from tidegauge_client.group.membership import MembershipSettings
from tidegauge_client.kafka_offsets import (
    FIRST_WITH_SEVERAL_GROUPS,
    OffsetAndMetadata,
    errors_of,
    fetched,
    to_fetch,
    topics_to_commit,
)

JOIN_GRACE_MS = 5_000
"""How much longer than the rebalance timeout a JoinGroup may take (AbstractCoordinator.JOIN_GROUP_TIMEOUT_LAPSE)."""
_FIRST_WITH_MEMBERS = 3
_OF_REBALANCES = "rebalance"
"""Purpose of the channel for JoinGroup and SyncGroup, which wait at the coordinator."""


@dataclass(frozen=True, slots=True)
class GroupRequests:
    """Sends a member's requests to the coordinator.

    Each method raises ``TidegaugeError``, NETWORK_EXCEPTION or REQUEST_TIMED_OUT, when there is no response.
    """

    cluster: Cluster
    group_id: str
    settings: MembershipSettings
    request_timeout_ms: float

    async def find(self) -> str:
        """Return the coordinator's address for Kafka clients, by any broker.

        Raises:
            TidegaugeError: COORDINATOR_NOT_AVAILABLE, or another error of the broker; no broker responds;
                ``NoKafkaListener``.
        """
        return (await find_coordinator(self.cluster, self.cluster.info, GROUP, self.group_id)).address

    async def _ask(self, address: str, key: int, request: Any, timeout_ms: float = 0, *, at_least: int = 0) -> Any:
        limit_ms = timeout_ms or self.request_timeout_ms
        return await self.cluster.kafka.ask(address, key, request, limit_ms, purpose="group", at_least=at_least)

    async def _ask_to_rebalance(self, address: str, key: int, request: Any) -> Any:
        limit_ms = max(self.request_timeout_ms, self.settings.max_poll_interval_ms + JOIN_GRACE_MS)
        return await self.cluster.kafka.ask(address, key, request, limit_ms, purpose=_OF_REBALANCES)

    async def join(
        self, address: str, sent: Generation, protocols: Mapping[str, bytes], reason: str
    ) -> JoinGroupResponse:
        """Send JoinGroup; the response comes when the join phase has ended."""
        request = JoinGroupRequest(
            self.group_id,
            self.settings.session_timeout_ms,
            self.settings.max_poll_interval_ms,
            sent.member_id,
            self.settings.group_instance_id,
            PROTOCOL_TYPE,
            [JoinGroupRequestProtocol(name, data) for name, data in protocols.items()],
            reason,
        )
        response: JoinGroupResponse = await self._ask_to_rebalance(address, apis.JOIN_GROUP, request)
        return response

    async def synchronise(self, address: str, sent: Generation, assignments: Mapping[str, bytes]) -> bytes:
        """Send SyncGroup, a leader's with all assignments; return the member's own.

        Raises:
            TidegaugeError: the coordinator's error.
        """
        request = SyncGroupRequest(
            self.group_id,
            sent.number,
            sent.member_id,
            self.settings.group_instance_id,
            PROTOCOL_TYPE,
            sent.protocol,
            [SyncGroupRequestAssignment(member, data) for member, data in assignments.items()],
        )
        response: SyncGroupResponse = await self._ask_to_rebalance(address, apis.SYNC_GROUP, request)
        if response.error_code:
            raise TidegaugeError(ErrorCode.of(response.error_code))
        return bytes(response.assignment)

    async def heartbeat(self, address: str, sent: Generation) -> ErrorCode:
        """Send a heartbeat; return its error."""
        request = HeartbeatRequest(self.group_id, sent.number, sent.member_id, self.settings.group_instance_id)
        response: HeartbeatResponse = await self._ask(address, apis.HEARTBEAT, request)
        return ErrorCode.of(response.error_code)

    async def leave(self, address: str, sent: Generation, reason: str, timeout_ms: float) -> None:
        """Send LeaveGroup; what the coordinator says does not matter any more."""
        request = LeaveGroupRequest(self.group_id, members=[MemberIdentity(sent.member_id, reason=reason)])
        await self._ask(address, apis.LEAVE_GROUP, request, timeout_ms, at_least=_FIRST_WITH_MEMBERS)

    async def commit(
        self, address: str, sent: Generation, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, tuple[ErrorCode, str]]:
        """Send OffsetCommit; return each partition's error, and its sentence."""
        request = OffsetCommitRequest(
            self.group_id,
            sent.number,
            sent.member_id,
            self.settings.group_instance_id,
            topics=topics_to_commit(offsets, OffsetCommitRequestTopic, OffsetCommitRequestPartition),
        )
        response: OffsetCommitResponse = await self._ask(address, apis.OFFSET_COMMIT, request)
        return {at: (code, "") for at, code in errors_of(response.topics).items()}

    async def committed(
        self, address: str, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | TidegaugeError | None]:
        """Send OffsetFetch for stable offsets: none that a commit in flight is about to change (KIP-447).

        Raises:
            TidegaugeError: of the whole group.
        """
        request = to_fetch(self.group_id, partitions, require_stable=True)
        return dict(fetched(await self._ask(address, apis.OFFSET_FETCH, request, at_least=FIRST_WITH_SEVERAL_GROUPS)))
