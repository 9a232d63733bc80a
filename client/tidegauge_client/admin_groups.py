"""Requests about consumer groups: list, describe, delete, and their committed offsets.

Rules:
    1. Any broker forwards a request to the group's coordinator. If a broker does not respond, the next one is asked.
    2. While there is no coordinator, or it loads its groups, the request is retried until the timeout
       (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS).
    3. A commit whose response was lost is sent again: the same offsets once more change nothing.
    4. A list that lacks what a broker coordinates, or what a partition without a leader holds, is requested again, as
       KafkaAdminClient.listConsumerGroups requests a broker's part again that does not come, or comes with
       COORDINATOR_LOAD_IN_PROGRESS: an election takes a moment. What is missing at the end is named.

Source: KafkaAdminClient.describeConsumerGroups and its siblings, CoordinatorStrategy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, groups_pb2
from tidegauge_client.admin_base import AdminBase, raise_for
from tidegauge_client.channels import call
from tidegauge_client.cluster import now_ms
from tidegauge_client.group.consumer_protocol import decode_assignment

_MOVING = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
}
_MISSING_PARTS = {ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
"""Errors of a list that has what the other brokers list."""
_ATTEMPT_MS = 5_000.0
"""Timeout of one attempt at one broker."""
_LEAST_ATTEMPT_MS = 1_000.0
"""Time that one more attempt at a list needs: in less, brokers that live would be called silent."""


class _WithStatus(Protocol):
    @property
    def status(self) -> common_pb2.Status: ...


Response = TypeVar("Response", bound=_WithStatus)


class ListedGroup(NamedTuple):
    """One group of a list; ``protocol_type`` is empty for a group that only holds offsets."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group; the assignment is that of a consumer, and empty unless the group is Stable.

    Attributes:
        parked: API of its parked request, JoinGroup or SyncGroup; empty: none is parked.
        session_left_ms: time until it is removed unless it is heard of; None: it cannot expire now.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    host: str
    assignment: tuple[TopicPartition, ...]
    parked: str = ""
    session_left_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as its coordinator has it; an unknown group has the state Dead.

    Attributes:
        coordinator: id of the broker that coordinates it.
        reason: why the last rebalance began; empty if none has since the coordinator loaded the group.
        parked_members: those whose JoinGroup or SyncGroup waits for its response.
        leader: member id of the leader; empty without one.
        state_age_ms: how long the group has been in its state; None: unknown.
        phase_left_ms: time until the join or sync phase ends at the latest; None: the group is in neither.
        in_initial_delay: whether that is the initial delay, which nothing ends early.
        pending_members: ids that were given with MEMBER_ID_REQUIRED and have not joined yet.
        expired_age_ms: how long ago committed offsets of the group expired for the last time; None: not since the
            coordinator loaded it.
        expired_partitions: the partitions whose offsets expired then, as topic-partition.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol_name: str
    members: tuple[MemberDescription, ...]
    coordinator: int
    generation: int
    reason: str
    parked_members: tuple[str, ...]
    leader: str = ""
    state_age_ms: int | None = None
    phase_left_ms: int | None = None
    in_initial_delay: bool = False
    pending_members: tuple[str, ...] = ()
    expired_age_ms: int | None = None
    expired_partitions: tuple[str, ...] = ()


class OffsetAndMetadata(NamedTuple):
    """A committed offset: the next one to read."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupAdmin(AdminBase):
    """Requests about consumer groups."""

    async def list_groups(
        self, states: Collection[str] = (), *, timeout_ms: float | None = None, missing_ms: float | None = None
    ) -> list[ListedGroup]:
        """Return the groups of all live brokers, by id.

        Args:
            states: only those in one of these states, such as Stable; none: all.
            timeout_ms: how long to retry.
            missing_ms: how long to retry where a part is missing (rule 4); None: until the timeout; 0: not at all.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, a broker does not respond: its groups would be missing.
        """
        response = await self._list_groups(states, timeout_ms, missing_ms)
        raise_for(response.status)
        return _listed_groups(response)

    async def list_groups_there(
        self, states: Collection[str] = (), *, timeout_ms: float | None = None, missing_ms: float | None = None
    ) -> tuple[list[ListedGroup], str]:
        """Return the groups of the brokers that respond, by id, and what is missing; empty: nothing.

        Args:
            states: only those in one of these states, such as Stable; none: all.
            timeout_ms: how long to retry.
            missing_ms: how long to retry where a part is missing (rule 4); None: until the timeout; 0: not at all.
        """
        response = await self._list_groups(states, timeout_ms, missing_ms)
        return _listed_groups(response), missing_parts(response.status)

    async def _list_groups(
        self, states: Collection[str], timeout_ms: float | None, missing_ms: float | None
    ) -> groups_pb2.ListGroupsResponse:
        request = groups_pb2.ListGroupsRequest(states=states)
        made = groups_pb2.ListGroupsResponse
        return await self._ask_list(
            lambda left_ms: self._ask_group("ListGroups", request, made, left_ms), timeout_ms, missing_ms
        )

    async def find_coordinator(self, group_id: str, *, timeout_ms: float | None = None) -> int:
        """Return the broker that coordinates a group; the first such request creates __consumer_offsets."""
        request = groups_pb2.FindCoordinatorRequest(group_id=group_id)
        response = await self._ask_group("FindCoordinator", request, groups_pb2.FindCoordinatorResponse, timeout_ms)
        raise_for(response.status)
        return response.broker_id

    async def describe_group(self, group_id: str, *, timeout_ms: float | None = None) -> GroupDescription:
        """Return a group's state and members; an unknown group is Dead."""
        request = groups_pb2.DescribeGroupRequest(group_id=group_id)
        found = await self._ask_group("DescribeGroup", request, groups_pb2.DescribeGroupResponse, timeout_ms)
        raise_for(found.status)
        return _description(group_id, found)

    async def delete_group(self, group_id: str, *, timeout_ms: float | None = None) -> None:
        """Delete a group without members, and its offsets.

        Raises:
            TidegaugeError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, ...
        """
        request = groups_pb2.DeleteGroupRequest(group_id=group_id)
        raise_for((await self._ask_group("DeleteGroup", request, groups_pb2.DeleteGroupResponse, timeout_ms)).status)

    async def remove_members(
        self, group_id: str, members: Collection[MemberDescription], *, timeout_ms: float | None = None
    ) -> None:
        """Remove members from a group, as if each had left it (KafkaAdminClient.removeMembersFromConsumerGroup).

        Raises:
            TidegaugeError: of the whole request; a member that has left by itself is none.
        """
        request = groups_pb2.LeaveGroupRequest(
            group_id=group_id,
            members=[
                groups_pb2.LeavingMember(
                    member_id=one.member_id, group_instance_id=one.group_instance_id or "", reason="removed by an admin"
                )
                for one in members
            ],
        )
        response = await self._ask_group("LeaveGroup", request, groups_pb2.LeaveGroupResponse, timeout_ms)
        raise_for(response.status)

    async def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, of some partitions or (None) of all; those without one are left out."""
        request = groups_pb2.FetchOffsetsRequest(
            group_id=group_id, partitions=_named(partitions or ()), all_partitions=partitions is None
        )
        response = await self._ask_group("FetchOffsets", request, groups_pb2.FetchOffsetsResponse, timeout_ms)
        raise_for(response.status)
        for one in response.offsets:
            raise_for(one.status)
        return {
            TopicPartition(one.topic, one.partition): OffsetAndMetadata(one.offset, one.leader_epoch, one.metadata)
            for one in response.offsets
            if one.offset >= 0
        }

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Set offsets of a group without members; return for each partition why it failed, or None."""
        request = groups_pb2.CommitOffsetsRequest(
            group_id=group_id,
            generation=-1,
            offsets=to_committed(offsets),
        )
        response = await self._ask_group("CommitOffsets", request, groups_pb2.CommitOffsetsResponse, timeout_ms)
        raise_for(response.status)
        return _outcomes(response.offsets)

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Delete committed offsets of a group; return for each partition why it failed, or None."""
        request = groups_pb2.DeleteOffsetsRequest(group_id=group_id, partitions=_named(partitions))
        response = await self._ask_group("DeleteOffsets", request, groups_pb2.DeleteOffsetsResponse, timeout_ms)
        raise_for(response.status)
        return _outcomes(response.offsets)

    async def _ask_group(
        self, method: str, request: Any, response: type[Response], timeout_ms: float | None
    ) -> Response:
        return await self._ask_coordinator(self._cluster.channels.groups, method, request, response, timeout_ms)

    async def _ask_list(
        self,
        ask: Callable[[float], Awaitable[Response]],
        timeout_ms: float | None,
        missing_ms: float | None,
    ) -> Response:
        """Request a list that one broker makes of those of all, again while a part is missing (rule 4).

        Args:
            ask: requests it once, within a time in ms.
            timeout_ms: of all attempts; None: the client's request timeout.
            missing_ms: how long to retry where a part is missing; None: until the timeout; 0: not at all.

        Returns:
            The whole list, else the last one that there was.
        """
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        begin_ms = now_ms()
        until_ms = begin_ms + (limit_ms if missing_ms is None else min(missing_ms, limit_ms))
        found: Response | None = None
        while True:
            try:
                found = await ask(max(1.0, begin_ms + limit_ms - now_ms()))
            except TidegaugeError:
                if found is None:
                    raise
            if (
                ErrorCode.of(found.status.error) not in _MISSING_PARTS
                or now_ms() + self._retry_backoff_ms + _LEAST_ATTEMPT_MS > until_ms
            ):
                return found
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _ask_coordinator(
        self,
        stub_of: Callable[[str], Any],
        method: str,
        request: Any,
        _response: type[Response],
        timeout_ms: float | None,
    ) -> Response:
        """Send a request to a broker after the other, until one responds and the coordinator is known (rules 1, 2)."""
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        deadline_ms = now_ms() + limit_ms
        while True:
            response: Response | None = None
            problem: TidegaugeError | None = None
            for address in [broker.address for broker in (await self.metadata([])).brokers.values()]:
                left_ms = max(1.0, min(_ATTEMPT_MS, deadline_ms - now_ms()))
                ask: Callable[..., Any] = getattr(stub_of(address), method)
                try:
                    response = await call(ask, request, timeout_ms=left_ms, address=address)  # type: ignore[arg-type]  # by name
                except TidegaugeError as error:
                    problem = error
                    continue
                break
            if response is not None and not any(error in _MOVING for error in _errors_of(response)):
                return response
            if now_ms() >= deadline_ms:
                if response is not None:
                    return response
                raise problem or TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker responds")
            await asyncio.sleep(self._retry_backoff_ms / 1000)


def missing_parts(status: common_pb2.Status) -> str:
    """Return what a list lacks that several brokers have made; empty: nothing.

    Raises:
        TidegaugeError: the list failed, and not only a part of it.
    """
    if ErrorCode.of(status.error) not in _MISSING_PARTS:
        raise_for(status)
    return status.message


def _listed_groups(response: groups_pb2.ListGroupsResponse) -> list[ListedGroup]:
    return [
        ListedGroup(one.group_id, one.protocol_type, one.state, one.group_type, one.coordinator)
        for one in response.groups
    ]


def _description(group_id: str, found: groups_pb2.DescribeGroupResponse) -> GroupDescription:
    is_consumer = found.protocol_type == "consumer"
    return GroupDescription(
        group_id,
        found.state,
        found.protocol_type,
        found.protocol_name,
        tuple(
            MemberDescription(
                one.member_id,
                one.group_instance_id or None,
                one.client_id,
                one.client_host,
                assigned_partitions(one.assignment) if is_consumer else (),
                one.parked,
                one.session_left_ms if one.HasField("session_left_ms") else None,
            )
            for one in found.members
        ),
        found.coordinator,
        found.generation,
        found.reason,
        tuple(found.parked_members),
        found.leader,
        found.state_age_ms if found.HasField("state_age_ms") else None,
        found.phase_left_ms if found.HasField("phase_left_ms") else None,
        found.in_initial_delay,
        tuple(found.pending_members),
        found.expired_age_ms if found.HasField("expired_age_ms") else None,
        tuple(found.expired_partitions),
    )


def _errors_of(response: Any) -> list[ErrorCode]:
    """Return the errors of a response and of its partitions."""
    parts = getattr(response, "offsets", ())
    return [ErrorCode.of(status.error) for status in (response.status, *(one.status for one in parts))]


def _named(partitions: Iterable[TopicPartition]) -> list[groups_pb2.GroupPartition]:
    return [groups_pb2.GroupPartition(topic=at.topic, partition=at.partition) for at in partitions]


def to_committed(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> list[groups_pb2.CommittedOffset]:
    """Return the offsets as requests that commit them have them."""
    return [
        groups_pb2.CommittedOffset(
            topic=at.topic, partition=at.partition, offset=offset, leader_epoch=leader_epoch, metadata=metadata
        )
        for at, (offset, leader_epoch, metadata) in offsets.items()
    ]


def _outcomes(results: Sequence[groups_pb2.CommittedOffset]) -> dict[TopicPartition, TidegaugeError | None]:
    outcomes: dict[TopicPartition, TidegaugeError | None] = {}
    for one in results:
        code = ErrorCode.of(one.status.error)
        problem = None if code is ErrorCode.NONE else TidegaugeError(code, one.status.message)
        outcomes[TopicPartition(one.topic, one.partition)] = problem
    return outcomes


def assigned_partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a consumer's assignment; none if it cannot be read."""
    try:
        return tuple(sorted(decode_assignment(assignment)))
    except TidegaugeError:
        return ()
