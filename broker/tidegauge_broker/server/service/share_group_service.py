"""The requests about states and offsets of share groups, in plain values: the service around the coordinators.

Rules:
    1. The share coordinator of a share partition is the leader of the partition of __share_group_state to which its key
       hashes. The first request that needs one creates the topic.
    2. A state that was read is given out only by a coordinator whose broker is proven to lead still
       (``LeadershipProof``), else NOT_COORDINATOR. Kafka also gives the states of a replaced coordinator, unless the
       read writes the reader's leader epoch.
    3. The offsets of a share group are the start offsets of its share partitions' states. Its lag is the distance from
       the start offset to the high watermark, less the completed records there; without a start offset it is -1, and a
       state that cannot be read is like one without. A group that does not exist has no offsets, without an error.
    4. States are read only of share partitions that can exist. A request for others, such as partition -1, fails for
       the whole group with UNKNOWN_SERVER_ERROR as in Kafka, and no coordinator is looked up for it.

Source: KafkaApis.handleFindCoordinatorRequest, GroupCoordinatorService (describeShareGroupOffsets,
describeShareGroupAllOffsets, computeShareGroupLagAndBuildResponse), DefaultStatePersister.validate.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tidegauge.control import NO_LEADER, Endpoint
from tidegauge.errors import ERROR_TABLE, ErrorCode
from tidegauge.groups import partition_of
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import (
    NO_COUNT,
    NO_START_OFFSET,
    SHARE_STATE_TOPIC,
    ListSharePartitions,
    ListSharePartitionsResult,
    ReadShareState,
    ReadShareSummary,
    SharePartitionKey,
    ShareStateRequest,
    ShareStateResult,
)
from tidegauge_broker.server.coordinators.group_runner import GroupRunner
from tidegauge_broker.server.coordinators.share_runner import ShareRunner
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.share.persister_port import StatePersister

NO_LAG = -1
NO_TOPIC_ID = bytes(16)
_TOPIC_ID_BYTES = 16
_NUMBER = re.compile(r"[+-]?[0-9]{1,10}")


def key_of(text: str) -> SharePartitionKey:
    """Return a coordinator key's share partition: ``group:topicId:partition``, the id in base64.

    Raises:
        ValueError: it names none (SharePartitionKey.validate).
    """
    group_id, topic, partition = text.rsplit(":", 2)
    if not group_id.strip():
        raise ValueError("GroupId must not be empty")
    try:
        topic_id = base64.urlsafe_b64decode(topic + "=" * (-len(topic) % 4))
    except binascii.Error as problem:
        raise ValueError(f"Invalid topic ID: {topic}") from problem
    if len(topic_id) != _TOPIC_ID_BYTES:
        raise ValueError(f"Invalid topic ID: {topic}")
    if _NUMBER.fullmatch(partition) is None:
        raise ValueError(f"Invalid partition: {partition}")
    return SharePartitionKey(group_id, topic_id, int(partition))


def is_key(text: str) -> bool:
    """Return whether a text is a coordinator key; see ``key_of``."""
    try:
        key_of(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ShareOffset:
    """The offset of a share partition."""

    partition: int
    start_offset: int = NO_START_OFFSET
    leader_epoch: int = 0
    lag: int = NO_LAG
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@dataclass(frozen=True, slots=True)
class TopicShareOffsets:
    """The offsets of a share group in a topic."""

    topic: str
    topic_id: bytes
    partitions: Sequence[ShareOffset]


@dataclass(frozen=True, slots=True)
class ShareOffsets:
    """The offsets of a share group."""

    error: ErrorCode = ErrorCode.NONE
    topics: Sequence[TopicShareOffsets] = field(default_factory=list[TopicShareOffsets])
    message: str | None = None


class Latest(NamedTuple):
    """The end of a partition for consumers: its high watermark; -1 with an error."""

    offset: int
    error: ErrorCode = ErrorCode.NONE


class Ends(Protocol):
    """Finds where partitions end."""

    async def of(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Latest]:
        """Return the end of each partition, or why it is not known."""
        ...


class ShareGroupService:
    """The service for states and offsets of share groups.

    Args:
        runner: this broker's share coordinator.
        groups: its group coordinator.
        metadata: this broker's view of the cluster.
        create_topic: begins to create an internal topic.
        still_leads: returns whether this broker is proven to lead a partition.
        own_latest: returns the end of a partition that this broker leads.
        kafka_listener: the listener at which brokers reach one another over Kafka's protocol; empty: there is none.

    Attributes:
        persister: asks share coordinators; set before the first request.
        latest: finds the ends of partitions; set before the first request.
    """

    persister: StatePersister
    latest: Ends

    def __init__(
        self,
        runner: ShareRunner,
        groups: GroupRunner,
        metadata: MetadataCache,
        create_topic: Callable[[str], None],
        still_leads: Callable[[TopicPartition], Awaitable[bool]],
        own_latest: Callable[[TopicPartition], Latest],
        kafka_listener: str,
    ) -> None:
        self.runner = runner
        self._groups = groups
        self._metadata = metadata
        self._create_topic = create_topic
        self._still_leads = still_leads
        self._own_latest = own_latest
        self._kafka_listener = kafka_listener

    # Coordinators; rule 1

    def partition_of(self, key: SharePartitionKey) -> TopicPartition:
        """Return the partition of __share_group_state that holds a share partition."""
        known = len(self._metadata.partitions(SHARE_STATE_TOPIC))
        return TopicPartition(SHARE_STATE_TOPIC, partition_of(str(key), known or self.runner.partitions))

    def coordinator_of(self, key: SharePartitionKey) -> int | None:
        """Return the broker that coordinates a share partition, or None now."""
        if not self._metadata.knows_topic(SHARE_STATE_TOPIC):
            self._create_topic(SHARE_STATE_TOPIC)
            return None
        return self.leader_of(self.partition_of(key))

    def coordinator_endpoint(self, caller: Caller, key: str) -> Endpoint | None:
        """Return a coordinator's address on the caller's listener, or None.

        Raises:
            ValueError: the key names no share partition.
        """
        leader = self.coordinator_of(key_of(key))
        endpoint = None if leader is None else self._metadata.endpoint(leader)
        return None if endpoint is None else endpoint.through(caller.listener)

    def leader_of(self, at: TopicPartition) -> int | None:
        """Return a partition's leader; None: there is none at the moment."""
        leader = self._metadata.leader_of(at)
        return None if leader == NO_LEADER else leader

    def address_of(self, broker_id: int) -> str | None:
        """Return a broker's address for requests over Kafka's protocol; None: it has none."""
        endpoint = self._metadata.endpoint(broker_id)
        through = endpoint.through(self._kafka_listener) if endpoint is not None and self._kafka_listener else None
        return None if through is None else through.address

    def own_latest(self, at: TopicPartition) -> Latest:
        """Return the end of a partition that this broker leads."""
        return self._own_latest(at)

    def topic_name(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id."""
        return self._metadata.named(topic_id)

    def topic_id(self, topic: str) -> bytes:
        """Return the id of the topic with this name; zero: there is none."""
        return self._metadata.id_of(topic)

    def metadata_updated(self, changed: Collection[str]) -> None:
        """Take up that the metadata cache has changed.

        Args:
            changed: the topics that the controller has sent.
        """
        self.runner.topic_seen(len(self._metadata.partitions(SHARE_STATE_TOPIC)))
        self.runner.topics_sent({topic: self._metadata.description(topic) for topic in changed})

    # States; rule 2

    async def ask(self, request: ShareStateRequest) -> ShareStateResult:
        """Hand a request to this broker's share coordinator, which rejects the partitions of other brokers."""
        result = await self.runner.request(request)
        if not isinstance(request, ReadShareState) or result.error is not ErrorCode.NONE:
            return result
        is_proven = await self._still_leads(self.partition_of(request.key))
        return result if is_proven else ShareStateResult(ErrorCode.NOT_COORDINATOR)

    # Offsets; rules 3 and 4

    async def describe_offsets(self, group_id: str, wanted: Mapping[str, Sequence[int]] | None) -> ShareOffsets:
        """Return the offsets of a group.

        Args:
            group_id: of the group; this broker need not coordinate it unless all partitions are requested.
            wanted: partitions by topic; None: all that are initialized.
        """
        unknown: list[TopicShareOffsets] = []
        known: dict[tuple[str, bytes], Sequence[int]] = {}
        if wanted is None:
            listed = await self._groups.request(ListSharePartitions(group_id))
            assert isinstance(listed, ListSharePartitionsResult)
            if listed.error is not ErrorCode.NONE:
                return ShareOffsets(listed.error)
            for topic_id, partitions in listed.partitions.items():
                name = self._metadata.named(topic_id)
                if name is not None:
                    known[name, topic_id] = sorted(partitions)
        else:
            for topic, ones in wanted.items():
                if any(known_id := self.topic_id(topic)):
                    known[topic, known_id] = ones
                else:
                    unknown.append(TopicShareOffsets(topic, NO_TOPIC_ID, [ShareOffset(one) for one in ones]))
        impossible = _impossible(group_id, known)
        if impossible is not None:
            return ShareOffsets(ErrorCode.UNKNOWN_SERVER_ERROR, message=impossible)
        return ShareOffsets(topics=[*await self._described(group_id, known), *unknown])

    async def _described(
        self, group_id: str, wanted: Mapping[tuple[str, bytes], Sequence[int]]
    ) -> list[TopicShareOffsets]:
        keys = {
            TopicPartition(name, one): SharePartitionKey(group_id, topic_id, one)
            for (name, topic_id), ones in wanted.items()
            for one in ones
        }
        states = await asyncio.gather(*(self.persister.read_summary(ReadShareSummary(key)) for key in keys.values()))
        summaries = dict(zip(keys, states, strict=True))
        ends = await self.latest.of([at for at, state in summaries.items() if _has_lag(state)])
        return [
            TopicShareOffsets(name, topic_id, [_offset(at, summaries[at], ends.get(at)) for at in _parts(name, ones)])
            for (name, topic_id), ones in wanted.items()
        ]


def _impossible(group_id: str, wanted: Mapping[tuple[str, bytes], Sequence[int]]) -> str | None:
    """Return why such share partitions can't exist; None: they may (rule 4)."""
    if not wanted:
        return None
    if not group_id:
        return "A share group has a name; the request has an empty one."
    for (topic, _), partitions in wanted.items():
        if not partitions:
            return f"The request names no partition of the topic {topic}."
        if min(partitions) < 0:
            return (
                f"Partition numbers begin with 0; the request names partition {min(partitions)} of the topic {topic}."
            )
    return None


def _parts(topic: str, partitions: Sequence[int]) -> list[TopicPartition]:
    return [TopicPartition(topic, one) for one in partitions]


def _has_lag(state: ShareStateResult) -> bool:
    has_start = state.start_offset != NO_START_OFFSET and state.complete_count != NO_COUNT
    return state.error is ErrorCode.NONE and has_start


def _offset(at: TopicPartition, state: ShareStateResult, end: Latest | None) -> ShareOffset:
    if state.error is not ErrorCode.NONE:
        return ShareOffset(at.partition)
    if end is None:
        return ShareOffset(at.partition, state.start_offset, state.leader_epoch)
    if end.error is not ErrorCode.NONE:
        return ShareOffset(at.partition, 0, 0, NO_LAG, end.error, ERROR_TABLE[end.error].meaning)
    lag = end.offset - state.start_offset - state.complete_count
    return ShareOffset(at.partition, state.start_offset, state.leader_epoch, lag)
