"""The end offsets of partitions, from their leaders, for the lag of share groups: ListOffsets, as a consumer asks.

A leader that cannot be reached is asked again five times, after 2, 4, 8, 16 and 30 seconds with a jitter of a fifth.
Source: ``NetworkPartitionMetadataClient``.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import LIST_OFFSETS
from tidegauge.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidegauge.partition import TopicPartition, partitions_by_topic
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.list_offsets import LATEST
from tidegauge_broker.replica.messages import CONSUMER, OffsetLookup, OffsetResult
from tidegauge_broker.server.replication.kafka_peers import KafkaPeers
from tidegauge_broker.server.service.share_group_service import Latest

LOG = logging.getLogger("tidegauge.share")
_READS_UNCOMMITTED = 0
_REQUEST_SECONDS = 30.0
_MAX_RETRIES = 5
_LAST_BACKOFF_SECONDS = 30.0
_PASSING = frozenset({ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT})


def own_latest(core: BrokerCore, at: TopicPartition) -> Latest:
    """Return the end of a partition that this broker leads."""
    found = core.list_offset(OffsetLookup(at, LATEST))
    assert isinstance(found, OffsetResult), "no time is looked up"
    return Latest(found.offset if found.error is ErrorCode.NONE else -1, found.error)


class Around(Protocol):
    """The parts of this broker that are needed."""

    def leader_of(self, at: TopicPartition) -> int | None:
        """Return a partition's leader; None: there is none at the moment."""
        ...

    def address_of(self, broker_id: int) -> str | None:
        """Return a broker's address for requests over Kafka's protocol; None: it has none."""
        ...

    def own_latest(self, at: TopicPartition) -> Latest:
        """Return the end of a partition that this broker leads."""
        ...


class LatestOffsets:
    """Looks up the latest offsets of partitions, for the lag of share groups.

    Args:
        broker_id: this broker.
        around: the rest of it.
        peers: channels to the others.
        sleep: waits some seconds.
    """

    def __init__(
        self,
        broker_id: int,
        around: Around,
        peers: KafkaPeers,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._broker_id = broker_id
        self._around = around
        self._peers = peers
        self._sleep = sleep

    async def of(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, Latest]:
        """Return the end of each partition, or why it is not known."""
        found: dict[TopicPartition, Latest] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for at in partitions:
            leader = self._around.leader_of(at)
            if leader is None:
                found[at] = Latest(-1, ErrorCode.LEADER_NOT_AVAILABLE)
            elif leader == self._broker_id:
                found[at] = self._around.own_latest(at)
            else:
                by_leader.setdefault(leader, []).append(at)
        for found_there in await asyncio.gather(*(self._ask(leader, ats) for leader, ats in by_leader.items())):
            found |= found_there
        return found

    async def _ask(self, leader: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Latest]:
        request = ListOffsetsRequest(
            CONSUMER,
            _READS_UNCOMMITTED,
            [
                ListOffsetsTopic(topic, [ListOffsetsPartition(one, -1, LATEST) for one in ones])
                for topic, ones in partitions_by_topic(partitions).items()
            ],
        )
        attempts = 0
        while True:
            try:
                response = await self._sent(leader, request)
            except TidegaugeError as problem:
                LOG.info("ListOffsets to broker %d: %s", leader, problem.message)
                if problem.code not in _PASSING or attempts >= _MAX_RETRIES:
                    error = problem.code if problem.code in _PASSING else ErrorCode.UNKNOWN_SERVER_ERROR
                    return dict.fromkeys(partitions, Latest(-1, error))
                attempts += 1
                await self._sleep(min(2**attempts * random.uniform(0.8, 1.2), _LAST_BACKOFF_SECONDS))
                continue
            unknown = Latest(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return dict.fromkeys(partitions, unknown) | {
                TopicPartition(topic.name, one.partition_index): Latest(one.offset, ErrorCode.of(one.error_code))
                for topic in response.topics
                for one in topic.partitions
            }

    async def _sent(self, leader: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        address = self._around.address_of(leader)
        if address is None:
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, f"broker {leader} has no listener for this one")
        channel = self._peers.channel(address, "partition-metadata")
        response: ListOffsetsResponse = await channel.request(LIST_OFFSETS, request, _REQUEST_SECONDS, at_least=1)
        return response
