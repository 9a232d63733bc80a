"""The common part of ShareFetch and ShareAcknowledge: names of topics, acknowledgements, and leaders in responses.

Source: ``KafkaApis`` (handleAcknowledgements, validateAcknowledgementBatches, getCurrentLeader) of Kafka 4.3.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge.with_turns import with_turns
from tidegauge_broker.server.share.hosted import Outcome
from tidegauge_broker.server.share.service import ShareService
from tidegauge_broker.server.wire.kafka.handlers.common import endpoint_of
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.turns import ITEMS_PER_TURN
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.requests import are_valid
from tidegauge_broker.share.sessions import PartitionId, SessionKey

FIRST_WITH_RENEWALS = 2
NAMES_LEADER = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})
"""Errors with which a response names the leader of a partition, and its address."""
_NO_LEADER = -1

Outcomes = dict[PartitionId, Outcome]


class Names:
    """The names of topics as this broker knows them at the time of a request.

    Args:
        context: of the request.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._names: dict[bytes, str | None] = {}

    def of(self, topic_id: bytes) -> str | None:
        """Return a topic's name by its id; None if unknown here."""
        if topic_id not in self._names:
            self._names[topic_id] = self._context.service.topic_name(topic_id_text(topic_id))
        return self._names[topic_id]

    def refusal(self, one: PartitionId) -> ErrorCode:
        """Return why a member may not use a partition, or NONE."""
        name, may_read = self.of(one.topic_id), self._context.may_read
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        if may_read is not None and not may_read(name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if not self._context.service.knows(TopicPartition(name, one.partition)):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NONE

    def partition(self, one: PartitionId) -> TopicPartition:
        """Return a partition by its topic's name, which must be known."""
        return TopicPartition(self.of(one.topic_id) or "", one.partition)


def service_of(context: Context) -> ShareService:
    """Return the service for members of share groups, which this broker has."""
    share = context.service.share
    assert share is not None, "the API is served"
    return share


async def named(topics: Iterable[Any]) -> dict[PartitionId, Any]:
    """Return the named partitions with their entries; long lists take turns."""
    found: dict[PartitionId, Any] = {}
    async for topic_id, one in with_turns(_named(topics), ITEMS_PER_TURN):
        found[PartitionId(topic_id, one.partition_index)] = one
    return found


def _named(topics: Iterable[Any]) -> Iterator[tuple[bytes, Any]]:
    for topic in topics:
        topic_id = bytes(topic.topic_id)
        for one in topic.partitions:
            yield topic_id, one


class Acknowledging(NamedTuple):
    """The acknowledgements of a request, which are being written.

    Attributes:
        outcomes: of the partitions whose acknowledgements were refused, or are not loaded here.
        futures: of the others.
    """

    outcomes: Outcomes
    futures: Mapping[PartitionId, asyncio.Future[Outcome]]

    async def settled(self) -> Outcomes:
        """Return the outcomes of all, when they are there."""
        if self.futures:
            await asyncio.wait(self.futures.values())
        return self.outcomes | {one: future.result() for one, future in self.futures.items()}


async def acknowledge(
    key: SessionKey, partitions: Mapping[PartitionId, Any], names: Names, context: Context, *, renews: bool
) -> Acknowledging:
    """Take the acknowledgements of a request; many partitions, or records, take several turns.

    A partition without any has a result only if another one has some that are accepted for a look, as in Kafka.
    """
    service = service_of(context)
    service.refresh_settings(key.group_id)
    outcomes: Outcomes = {}
    empty: Outcomes = {}
    futures: dict[PartitionId, asyncio.Future[Outcome]] = {}
    is_any_wanted, room = False, ITEMS_PER_TURN
    for one, of_it in partitions.items():
        batches = [
            Acknowledgement(batch.first_offset, batch.last_offset, tuple(batch.acknowledge_types))
            for batch in of_it.acknowledgement_batches
        ]
        error = _refusal(one, batches, names, renews=renews)
        if error is not ErrorCode.NONE:
            outcomes[one] = error, None
        elif not batches:
            empty[one] = ErrorCode.NONE, None
        else:
            is_any_wanted = True
            future = service.acknowledge(key, one, batches)
            if future is None:
                outcomes[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _NOT_HERE
            else:
                futures[one] = future
        room -= 1 + sum(len(batch.types) for batch in batches)
        if room <= 0:
            room = ITEMS_PER_TURN
            await asyncio.sleep(0)
    return Acknowledging(outcomes | empty if is_any_wanted else outcomes, futures)


def _refusal(one: PartitionId, batches: Sequence[Acknowledgement], names: Names, *, renews: bool) -> ErrorCode:
    """Return why a partition's acknowledgements are refused by their form, or NONE."""
    if names.of(one.topic_id) is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return names.refusal(one) if are_valid(batches, renews=renews) else ErrorCode.INVALID_REQUEST


_NOT_HERE = "This server does not host this topic-partition."


class Leaders:
    """The leaders that a response names, and their addresses.

    Args:
        names: of topics.
        context: of the request.

    Attributes:
        endpoints: by broker.
    """

    def __init__(self, names: Names, context: Context) -> None:
        self._names = names
        self._context = context
        self.endpoints: dict[int, Endpoint] = {}

    def of(self, one: PartitionId) -> tuple[int, int]:
        """Return a partition's leader and epoch (or -1, -1), noting its address."""
        hint = service_of(self._context).leader_hint(self._names.partition(one))
        if hint is None:
            return _NO_LEADER, _NO_LEADER
        at = endpoint_of(self._context, hint.leader)
        if at is not None:
            self.endpoints[hint.leader] = at
        return hint.leader, hint.leader_epoch
