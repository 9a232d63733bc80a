"""The group requests of clients, in plain values: what a broker does before and around its group coordinator.

Rules:
    1. The coordinator of a group is the leader of the partition of __consumer_offsets to which the group's id hashes.
       Any broker names it, by its own metadata; without the topic, without a live leader or with a leader that lacks
       the client's listener the error is COORDINATOR_NOT_AVAILABLE, and nothing says why. The first such request
       creates the topic, regardless of ``auto.create.topics.enable``.
    2. Partitions that this broker's metadata lacks get UNKNOWN_TOPIC_OR_PARTITION in OffsetCommit and OffsetDelete. If
       nothing is left of an OffsetCommit the coordinator is not asked, so that no error of the group shows.
    3. Stable offsets (KIP-447) are given only by a coordinator whose broker is proven to lead still
       (``LeadershipProof``), else NOT_COORDINATOR. Kafka also gives the offsets of a replaced coordinator.

Source: KafkaApis.handleFindCoordinatorRequest, getCoordinator, handleOffsetCommitRequest, handleOffsetDeleteRequest.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import overload

from tidegauge.consumer_groups import (
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    DescribeConsumerGroup,
    DescribeConsumerGroupResult,
)
from tidegauge.control import NO_LEADER, Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    OFFSETS_TOPIC,
    DeleteGroup,
    DeleteGroupResult,
    DescribeGroup,
    DescribeGroupResult,
    GroupRequest,
    GroupResult,
    Heartbeat,
    HeartbeatResult,
    JoinGroup,
    JoinGroupResult,
    LeaveGroup,
    LeaveGroupResult,
    ListGroups,
    ListGroupsResult,
    OffsetCommit,
    OffsetCommitResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchResult,
    SyncGroup,
    SyncGroupResult,
    TxnOffsetCommit,
    TxnOffsetCommitResult,
    partition_of,
)
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import (
    SHARE_STATE_TOPIC,
    AlterShareOffsets,
    AlterShareOffsetsResult,
    DeleteShareOffsets,
    DeleteShareOffsetsResult,
    DescribeShareGroup,
    DescribeShareGroupResult,
    ShareGroupHeartbeat,
    ShareGroupHeartbeatResult,
)
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_broker.server.coordinators.group_runner import GroupRunner
from tidegauge_broker.server.coordinators.leadership_proof import needs_proof
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.share_group_service import ShareGroupService, is_key
from tidegauge_broker.server.service.transaction_service import TransactionService


class KeyType(IntEnum):
    """Kafka's numbers for types of coordinators (FindCoordinatorRequest.CoordinatorType)."""

    GROUP = 0
    TRANSACTION = 1
    SHARE = 2


@dataclass(frozen=True, slots=True)
class FoundCoordinator:
    """The coordinator of a key: an endpoint on the caller's listener, or an error."""

    key: str
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    endpoint: Endpoint | None = None


class GroupService:
    """The service for groups.

    Args:
        runner: this broker's group coordinator.
        transactions: finds the coordinators of transactional ids.
        metadata: this broker's view of the cluster.
        create_topic: begins to create an internal topic.
        still_leads: returns whether this broker is proven to lead a partition.
        shares: the share coordinator, and the offsets of share groups.
    """

    def __init__(
        self,
        runner: GroupRunner,
        transactions: TransactionService,
        metadata: MetadataCache,
        create_topic: Callable[[str], None],
        still_leads: Callable[[TopicPartition], Awaitable[bool]],
        shares: ShareGroupService,
    ) -> None:
        self.runner = runner
        self.shares = shares
        self._still_leads = still_leads
        self._metadata = metadata
        self._create_topic = create_topic
        self._finders: dict[int, Callable[[Caller, str], Endpoint | None]] = {
            KeyType.GROUP: self.coordinator_endpoint,
            KeyType.TRANSACTION: transactions.coordinator_endpoint,
            KeyType.SHARE: shares.coordinator_endpoint,
        }

    @property
    def serves_consumer_groups(self) -> bool:
        """Whether groups of the consumer protocol (KIP-848) are served, which no broker of 3.9 does in this mode."""
        return self.runner.serves_consumer_groups

    @property
    def serves_share_groups(self) -> bool:
        """Whether groups of the share protocol (KIP-932) are served, which no broker of 3.9 does in this mode."""
        return self.runner.serves_share_groups

    @property
    def has_group_settings(self) -> bool:
        """Whether groups have settings of their own: the consumer and the share protocol have such."""
        return self.serves_consumer_groups or self.serves_share_groups

    def partition_of(self, group_id: str) -> TopicPartition:
        """Return the partition of __consumer_offsets that holds a group."""
        known = len(self._metadata.partitions(OFFSETS_TOPIC))
        return TopicPartition(OFFSETS_TOPIC, partition_of(group_id, known or self.runner.partitions))

    def find_coordinator(self, caller: Caller, key_type: int, key: str) -> FoundCoordinator:
        """Return a key's coordinator; rule 1, for all internal topics.

        The key is a group, a transactional id or a share partition.
        """
        if key_type not in _TOPICS or (key_type == KeyType.SHARE and not self.serves_share_groups):
            return FoundCoordinator(key, ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}.")
        if key_type == KeyType.SHARE and not is_key(key):
            return FoundCoordinator(key, ErrorCode.INVALID_REQUEST, _INVALID_KEY)
        topic = _TOPICS[key_type]
        if not self._metadata.knows_topic(topic):
            self._create_topic(topic)
            return FoundCoordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE)
        endpoint = self._finders[key_type](caller, key)
        if endpoint is None:
            return FoundCoordinator(key, ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE)
        return FoundCoordinator(key, endpoint=endpoint)

    def coordinator_endpoint(self, caller: Caller, group_id: str) -> Endpoint | None:
        """Return a group coordinator's address on the caller's listener, or None."""
        endpoint = self._leader_of(self.partition_of(group_id))
        return None if endpoint is None else endpoint.through(caller.listener)

    def _leader_of(self, at: TopicPartition) -> Endpoint | None:
        leader = self._metadata.leader_of(at)
        return None if leader is None or leader == NO_LEADER else self._metadata.endpoint(leader)

    @overload
    async def ask(self, request: JoinGroup) -> JoinGroupResult: ...
    @overload
    async def ask(self, request: SyncGroup) -> SyncGroupResult: ...
    @overload
    async def ask(self, request: Heartbeat) -> HeartbeatResult: ...
    @overload
    async def ask(self, request: LeaveGroup) -> LeaveGroupResult: ...
    @overload
    async def ask(self, request: OffsetCommit) -> OffsetCommitResult: ...
    @overload
    async def ask(self, request: OffsetFetch) -> OffsetFetchResult: ...
    @overload
    async def ask(self, request: OffsetDelete) -> OffsetDeleteResult: ...
    @overload
    async def ask(self, request: TxnOffsetCommit) -> TxnOffsetCommitResult: ...
    @overload
    async def ask(self, request: DescribeGroup) -> DescribeGroupResult: ...
    @overload
    async def ask(self, request: ListGroups) -> ListGroupsResult: ...
    @overload
    async def ask(self, request: DeleteGroup) -> DeleteGroupResult: ...
    @overload
    async def ask(self, request: ConsumerGroupHeartbeat) -> ConsumerGroupHeartbeatResult: ...
    @overload
    async def ask(self, request: DescribeConsumerGroup) -> DescribeConsumerGroupResult: ...
    @overload
    async def ask(self, request: ShareGroupHeartbeat) -> ShareGroupHeartbeatResult: ...
    @overload
    async def ask(self, request: DescribeShareGroup) -> DescribeShareGroupResult: ...
    @overload
    async def ask(self, request: AlterShareOffsets) -> AlterShareOffsetsResult: ...
    @overload
    async def ask(self, request: DeleteShareOffsets) -> DeleteShareOffsetsResult: ...
    async def ask(self, request: GroupRequest) -> GroupResult:
        """Hand a request to this broker's coordinator, which rejects the groups of other brokers (NOT_COORDINATOR)."""
        return await self.runner.request(request)

    async def fetch_offsets(self, request: OffsetFetch) -> OffsetFetchResult:
        """Return committed offsets; rule 3."""
        result = await self.ask(request)
        if request.group_id is None or not needs_proof(request, result):
            return result
        is_proven = await self._still_leads(self.partition_of(request.group_id))  # so the result was the latest
        return result if is_proven else OffsetFetchResult(ErrorCode.NOT_COORDINATOR)

    async def commit_offsets(self, request: OffsetCommit) -> OffsetCommitResult:
        """Commit offsets; rule 2."""
        known = [one for one in request.offsets if self._metadata.knows(one.topic_partition)]
        results = {one.topic_partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in request.offsets}
        if known:
            result = await self.ask(dataclasses.replace(request, offsets=tuple(known)))
            results |= result.partitions
        return OffsetCommitResult(results)

    async def commit_offsets_in_transaction(self, request: TxnOffsetCommit) -> TxnOffsetCommitResult:
        """Commit offsets that count when their transaction is committed; rule 2."""
        known = [one for one in request.offsets if self._metadata.knows(one.topic_partition)]
        results = {one.topic_partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in request.offsets}
        if known:
            result = await self.ask(dataclasses.replace(request, offsets=tuple(known)))
            results |= result.partitions
        return TxnOffsetCommitResult(results)

    async def delete_offsets(self, request: OffsetDelete) -> OffsetDeleteResult:
        """Delete committed offsets; rule 2."""
        known = [at for at in request.partitions if self._metadata.knows(at)]
        result = await self.ask(dataclasses.replace(request, partitions=tuple(known)))
        if result.error is not ErrorCode.NONE:
            return result
        unknown = dict.fromkeys(request.partitions, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return OffsetDeleteResult(partitions={**unknown, **result.partitions})

    # Updates from the controller

    def metadata_updated(
        self,
        deleted: Sequence[TopicPartition],
        changed: Collection[str] = (),
        topic_ids: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """Take up that the metadata cache has changed.

        Args:
            deleted: partitions of deleted topics.
            topic_ids: ids of these topics, by name.
            changed: the topics that the controller has sent.
        """
        self.runner.topic_seen(len(self._metadata.partitions(OFFSETS_TOPIC)))
        self.shares.metadata_updated(changed if self.serves_share_groups else ())
        if self.has_group_settings:
            self.runner.topics_sent({topic: self._metadata.description(topic) for topic in changed})
        if deleted:
            self.runner.partitions_deleted(deleted, topic_ids)


_TOPICS: dict[int, str] = {
    KeyType.GROUP: OFFSETS_TOPIC,
    KeyType.TRANSACTION: TRANSACTION_TOPIC,
    KeyType.SHARE: SHARE_STATE_TOPIC,
}
_INVALID_KEY = "A share partition is named as group:topicId:partition, the topic's id in base64."
_NOT_AVAILABLE = "The coordinator is not available."
