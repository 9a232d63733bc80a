"""Requests about consumer groups: list, describe, delete, and their committed offsets.

Rules:
    1. A request is sent to the group's coordinator, over Kafka's protocol; any broker says which one that is.
    2. While there is no coordinator, or it loads its groups, the request is retried until the timeout
       (COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS).
    3. A commit whose response was lost is sent again: the same offsets once more change nothing.
    4. A list that lacks what a broker coordinates, or what a partition without a leader holds, is requested again, as
       KafkaAdminClient.listConsumerGroups requests a broker's part again that does not come, or comes with
       COORDINATOR_LOAD_IN_PROGRESS: an election takes a moment. Parts that are missing at the end are named.
    5. Facts in no response of Kafka's (the generation, why a group rebalances, whom it waits for) come from the
       coordinator's Lab service, and are absent if there is none, or if the caller may not see it.

Source: KafkaAdminClient.describeConsumerGroups and its siblings, CoordinatorStrategy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC, GroupState
from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_share_group_offsets import AlterShareGroupOffsetsResponse
from tidegauge.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from tidegauge.kafka.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from tidegauge.kafka.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from tidegauge.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from tidegauge.kafka.messages.list_groups import ListGroupsRequest
from tidegauge.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tidegauge.kafka.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tidegauge.kafka.messages.offset_fetch import OffsetFetchResponse
from tidegauge.partition import TopicPartition, partitions_by_topic
from tidegauge.v1 import lab_pb2, lab_service_pb2_grpc
from tidegauge_client.admin_base import AdminBase
from tidegauge_client.cluster import now_ms
from tidegauge_client.coordinators import GROUP, Coordinator, find_coordinator
from tidegauge_client.group_descriptions import (
    GroupDescription,
    MemberDescription,
    classic_group,
    consumer_group_of,
    seen_group,
)
from tidegauge_client.kafka_offsets import (
    FIRST_WITH_SEVERAL_GROUPS,
    OffsetAndMetadata,
    fetched,
    outcomes_of,
    to_fetch,
    topics_to_commit,
)
from tidegauge_client.kafka_wire import raise_for
from tidegauge_client.merged_lists import MergedList, merged
from tidegauge_client.share_groups import (
    ShareOffset,
    altered_share_offsets,
    described_share_group,
    described_share_offsets,
    to_alter_share_offsets,
)

if TYPE_CHECKING:
    from tidegauge.v1.lab_service_pb2_grpc import LabServiceAsyncStub

__all__ = ["GroupAdmin", "GroupDescription", "ListedGroup", "MemberDescription", "OffsetAndMetadata"]

_MOVING = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.BROKER_NOT_AVAILABLE,
}
_ATTEMPT_MS = 5_000.0
"""Timeout of one attempt at one broker."""
_LEAST_ATTEMPT_MS = 1_000.0
"""Time that one more attempt at a list needs: in less, brokers that live would be called silent."""
_PART_OF_TIME = 0.6
"""Part of the time for a list that each broker has for its own: the list is there before the caller stops waiting."""
_VIEW_SECONDS = 1.0
_FIRST_WITH_STATES = 4
_FIRST_WITH_MEMBERS = 3

Result = TypeVar("Result")


class ListedGroup(NamedTuple):
    """One group of a list; ``protocol_type`` is empty for a group that only holds offsets."""

    group_id: str
    protocol_type: str
    state: str
    group_type: str
    coordinator: int


class GroupAdmin(AdminBase):
    """Requests about consumer groups."""

    async def list_groups(
        self, states: Collection[str] = (), *, timeout_ms: float | None = None, missing_ms: float | None = None
    ) -> list[ListedGroup]:
        """Return the groups of all live brokers, by id.

        Args:
            states: only those in one of these states, such as Stable; none: all.
            timeout_ms: how long to retry.
            missing_ms: how long to retry if a part is missing (rule 4); None: until the timeout, 0: not at all.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, a broker does not respond: its groups would be missing.
        """
        return _listed_groups((await self._list_groups(states, timeout_ms, missing_ms)).whole())

    async def list_groups_there(
        self, states: Collection[str] = (), *, timeout_ms: float | None = None, missing_ms: float | None = None
    ) -> tuple[list[ListedGroup], str]:
        """Return the groups of responding brokers, by id, and the missing parts.

        Args:
            states: only those in one of these states, such as Stable; none: all.
            timeout_ms: how long to retry.
            missing_ms: how long to retry if a part is missing (rule 4); None: until the timeout, 0: not at all.
        """
        found = await self._list_groups(states, timeout_ms, missing_ms)
        return _listed_groups(found.parts), found.missing()

    async def _list_groups(
        self, states: Collection[str], timeout_ms: float | None, missing_ms: float | None
    ) -> MergedList:
        at_least = _FIRST_WITH_STATES if states else 0
        request = ListGroupsRequest(list(states))
        return await self._ask_list(
            lambda left_ms: self._each_list(
                apis.LIST_GROUPS, request, ("groups", OFFSETS_TOPIC), left_ms, at_least=at_least
            ),
            timeout_ms,
            missing_ms,
        )

    async def find_coordinator(self, group_id: str, *, timeout_ms: float | None = None) -> int:
        """Return the broker that coordinates a group; the first such request creates __consumer_offsets."""

        async def found(at: Coordinator, left_ms: float) -> int:
            del left_ms
            return at.broker_id

        return await self._at_coordinator(GROUP, group_id, found, timeout_ms)

    async def describe_group(self, group_id: str, *, timeout_ms: float | None = None) -> GroupDescription:
        """Return a group's state and members; an unknown group is Dead.

        Raises:
            TidegaugeError: as the coordinator responds; UNKNOWN_SERVER_ERROR says why a group is out of service, where
                the coordinator has the Lab service.
        """

        async def described(at: Coordinator, left_ms: float) -> GroupDescription:
            request = DescribeGroupsRequest([group_id])
            response: DescribeGroupsResponse = await self._cluster.kafka.ask(
                at.address, apis.DESCRIBE_GROUPS, request, left_ms
            )
            [group] = response.groups
            view = await self._view_of(group_id, at.broker_id)
            if view is not None and view.out_of_service:
                raise_for(group.error_code, f"the group is out of service: {view.out_of_service}")
            raise_for(group.error_code)
            if view is not None and view.description.state != GroupState.DEAD.value:
                return seen_group(view, at.broker_id)
            if group.group_state == GroupState.DEAD.value:
                found = None if view is not None else await self._consumer_group(group_id, at, left_ms)
                found = found or await described_share_group(self._cluster.kafka, group_id, at, left_ms)
                if found is not None:
                    return found
            return classic_group(group, at.broker_id) if view is None else seen_group(view, at.broker_id)

        return await self._at_coordinator(GROUP, group_id, described, timeout_ms)

    async def _consumer_group(self, group_id: str, at: Coordinator, left_ms: float) -> GroupDescription | None:
        """Return a group of the consumer protocol (KIP-848), if there is one.

        Raises:
            TidegaugeError: as the coordinator responds.
        """
        request = ConsumerGroupDescribeRequest([group_id])
        try:
            response: ConsumerGroupDescribeResponse = await self._cluster.kafka.ask(
                at.address, apis.CONSUMER_GROUP_DESCRIBE, request, left_ms
            )
            [group] = response.groups
            raise_for(group.error_code, group.error_message)
        except TidegaugeError as problem:
            if problem.code in {ErrorCode.UNSUPPORTED_VERSION, ErrorCode.GROUP_ID_NOT_FOUND}:
                return None
            raise
        return consumer_group_of(group, at.broker_id)

    async def _view_of(self, group_id: str, broker_id: int) -> lab_pb2.ObservedGroup | None:
        """Return a group by its coordinator's Lab service, if shown (rule 5)."""
        broker = (await self.metadata([])).brokers.get(broker_id)
        if broker is None:
            return None
        channel = self._cluster.channels.channel(broker.address)
        lab = cast("LabServiceAsyncStub", lab_service_pb2_grpc.LabServiceStub(channel))
        try:
            seen = await lab.ObserveGroups(lab_pb2.ObserveGroupsRequest(group_ids=[group_id]), timeout=_VIEW_SECONDS)
        except grpc.aio.AioRpcError:
            return None
        return next((one for one in seen.groups if one.group_id == group_id), None)

    async def share_offsets(
        self, group_id: str, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, ShareOffset]:
        """Return start offset and lag of a share group's initialized partitions (KIP-932)."""

        async def described(at: Coordinator, left_ms: float) -> dict[TopicPartition, ShareOffset]:
            return await described_share_offsets(self._cluster.kafka, group_id, at, left_ms)

        return await self._at_coordinator(GROUP, group_id, described, timeout_ms)

    async def alter_share_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Begin partitions of a share group without members again, at these offsets; the group need not exist.

        Returns:
            For each partition why it failed, or None.

        Raises:
            TidegaugeError: of the whole request, such as NON_EMPTY_GROUP.
        """

        def outcomes(response: AlterShareGroupOffsetsResponse) -> dict[TopicPartition, TidegaugeError | None]:
            raise_for(response.error_code, response.error_message)
            return altered_share_offsets(response)

        request = to_alter_share_offsets(group_id, offsets)
        return await self._ask_group(group_id, apis.ALTER_SHARE_GROUP_OFFSETS, request, outcomes, timeout_ms)

    async def delete_group(self, group_id: str, *, timeout_ms: float | None = None) -> None:
        """Delete a group without members, and its offsets.

        Raises:
            TidegaugeError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, ...
        """

        def deleted(response: DeleteGroupsResponse) -> None:
            raise_for(response.results[0].error_code)

        await self._ask_group(group_id, apis.DELETE_GROUPS, DeleteGroupsRequest([group_id]), deleted, timeout_ms)

    async def remove_members(
        self, group_id: str, members: Collection[MemberDescription], *, timeout_ms: float | None = None
    ) -> None:
        """Remove members from a group, as if each had left it (KafkaAdminClient.removeMembersFromConsumerGroup).

        Raises:
            TidegaugeError: of the whole request; a member that has left by itself is none.
        """
        leaving = [MemberIdentity(one.member_id, one.group_instance_id, "removed by an admin") for one in members]

        def left(response: LeaveGroupResponse) -> None:
            raise_for(response.error_code)

        request = LeaveGroupRequest(group_id, members=leaving)
        await self._ask_group(group_id, apis.LEAVE_GROUP, request, left, timeout_ms, at_least=_FIRST_WITH_MEMBERS)

    async def committed_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None = None, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return a group's committed offsets, of some partitions or (None) all."""

        def offsets(response: OffsetFetchResponse) -> dict[TopicPartition, OffsetAndMetadata]:
            found = {}
            for at, one in fetched(response):
                if isinstance(one, TidegaugeError):
                    raise one
                if one is not None:
                    found[at] = one
            return dict(sorted(found.items()))

        request = to_fetch(group_id, partitions)
        at_least = FIRST_WITH_SEVERAL_GROUPS
        return await self._ask_group(group_id, apis.OFFSET_FETCH, request, offsets, timeout_ms, at_least=at_least)

    async def commit_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Set offsets of a group without members; return for each partition why it failed, or None."""
        topics = topics_to_commit(offsets, OffsetCommitRequestTopic, OffsetCommitRequestPartition)

        def outcomes(response: OffsetCommitResponse) -> dict[TopicPartition, TidegaugeError | None]:
            return _unless_moving(outcomes_of(response.topics))

        request = OffsetCommitRequest(group_id, topics=topics)
        return await self._ask_group(group_id, apis.OFFSET_COMMIT, request, outcomes, timeout_ms)

    async def delete_offsets(
        self, group_id: str, partitions: Collection[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, TidegaugeError | None]:
        """Delete committed offsets of a group; return for each partition why it failed, or None."""
        topics = [
            OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(index) for index in indexes])
            for topic, indexes in partitions_by_topic(partitions).items()
        ]

        def outcomes(response: OffsetDeleteResponse) -> dict[TopicPartition, TidegaugeError | None]:
            raise_for(response.error_code)
            return _unless_moving(outcomes_of(response.topics))

        request = OffsetDeleteRequest(group_id, topics)
        return await self._ask_group(group_id, apis.OFFSET_DELETE, request, outcomes, timeout_ms)

    async def _ask_group(
        self,
        group_id: str,
        key: int,
        request: Any,
        read: Callable[[Any], Result],
        timeout_ms: float | None,
        *,
        at_least: int = 0,
    ) -> Result:
        """Send a request to a group's coordinator; return what ``read`` makes of its response, or raises."""

        async def attempt(at: Coordinator, left_ms: float) -> Result:
            return read(await self._cluster.kafka.ask(at.address, key, request, left_ms, at_least=at_least))

        return await self._at_coordinator(GROUP, group_id, attempt, timeout_ms)

    async def _at_coordinator(
        self,
        key_type: int,
        key: str,
        attempt: Callable[[Coordinator, float], Awaitable[Result]],
        timeout_ms: float | None,
    ) -> Result:
        """Run an attempt at the coordinator of a key, and again while it moves (rules 1, 2).

        Args:
            key_type: of the key, GROUP or TRANSACTION.
            key: the group or transactional id.
            attempt: takes the coordinator, and the ms that it may take.
            timeout_ms: for all attempts; None: the client's request timeout.

        Raises:
            TidegaugeError: the last attempt's.
        """
        deadline_ms = now_ms() + (self._request_timeout_ms if timeout_ms is None else timeout_ms)
        while True:
            info = await self.metadata([])
            try:
                at = await find_coordinator(self._cluster, info, key_type, key)
                return await attempt(at, max(1.0, min(_ATTEMPT_MS, deadline_ms - now_ms())))
            except TidegaugeError as problem:
                if problem.code not in _MOVING or now_ms() >= deadline_ms:
                    raise
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _ask_list(
        self,
        ask: Callable[[float], Awaitable[MergedList]],
        timeout_ms: float | None,
        missing_ms: float | None,
    ) -> MergedList:
        """Request a list of all brokers, again while a part is missing (rule 4).

        Args:
            ask: requests it once, within a time in ms.
            timeout_ms: of all attempts; None: the client's request timeout.
            missing_ms: how long to retry if a part is missing; None: until the timeout, 0: not at all.

        Returns:
            The whole list, else the last one that there was.
        """
        limit_ms = self._request_timeout_ms if timeout_ms is None else timeout_ms
        begin_ms = now_ms()
        until_ms = begin_ms + (limit_ms if missing_ms is None else min(missing_ms, limit_ms))
        found: MergedList | None = None
        while True:
            try:
                found = await ask(max(1.0, begin_ms + limit_ms - now_ms()))
            except TidegaugeError:
                if found is None:
                    raise
            if not found.lacks_parts or now_ms() + self._retry_backoff_ms + _LEAST_ATTEMPT_MS > until_ms:
                return found
            await asyncio.sleep(self._retry_backoff_ms / 1000)

    async def _each_list(
        self, key: int, request: Any, of: tuple[str, str], left_ms: float, *, at_least: int = 0
    ) -> MergedList:
        """Return the lists of all live brokers.

        Args:
            key: the API's.
            request: asks a broker for its own list.
            of: the things listed, in plural, and the internal topic that holds them.
            left_ms: for all brokers.
            at_least: lowest version that can say what the request says.
        """
        what, topic = of
        info = await self.metadata([topic])
        self._cluster.kafka.reachable(info)
        limit_ms = min(_ATTEMPT_MS, left_ms * _PART_OF_TIME)

        async def own(broker_id: int) -> Any:
            try:
                address = self._cluster.kafka.address(info, broker_id)
                return await self._cluster.kafka.ask(address, key, request, limit_ms, at_least=at_least)
            except TidegaugeError as problem:
                return problem

        ids = sorted(info.live)
        found = await asyncio.gather(*map(own, ids))
        partitions = info.topics[topic].partitions.values() if topic in info.topics else ()
        leaderless = [one.topic_partition for one in partitions if one.leader_id is None]
        return merged(dict(zip(ids, found, strict=True)), what, leaderless)


def _unless_moving(
    outcomes: dict[TopicPartition, TidegaugeError | None],
) -> dict[TopicPartition, TidegaugeError | None]:
    """Return the outcomes, or raise a retriable error (rules 2 and 3)."""
    for problem in outcomes.values():
        if problem is not None and problem.code in _MOVING:
            raise problem
    return outcomes


def _listed_groups(parts: Sequence[tuple[int, Any]]) -> list[ListedGroup]:
    found = [
        ListedGroup(one.group_id, one.protocol_type, one.group_state, one.group_type, broker_id)
        for broker_id, part in parts
        for one in part.groups
    ]
    return sorted(found)
