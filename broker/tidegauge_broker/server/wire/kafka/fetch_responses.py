"""The response to a Fetch, from the read of each partition.

A partition with an error has -1 for all offsets and no records, never null ones (KAFKA-18646). The leader is named
with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH, with its address, from version 16 on (KIP-951).
Source: ``FetchResponse``, ``KafkaApis.handleFetchRequest``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from tidegauge_broker.replica import messages as core
from tidegauge_broker.server.wire.kafka.handlers.common import endpoint_of
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.sessions import Place, Topic

_FIRST_WITH_LEADERS = 16
_NONE = -1
_NO_ERROR = ErrorCode.NONE  # a member of an enumeration takes long to look up
_NOT_OF_THE_LOG = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.UNSUPPORTED_VERSION,
}
"""Errors from before the log is looked at, or after that: Kafka's aborted transactions are then empty, else null."""
_NAMES_LEADER = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH}


class Read(NamedTuple):
    """One partition's part of the response."""

    place: Place
    result: core.FetchResult
    records: bytes


def response_of(reads: Iterable[Read], context: Context, session_id: int) -> FetchResponse:
    """Return the response that names these partitions."""
    response = FetchResponseInParts(context)
    response.add(reads)
    return response.message(session_id)


class FetchResponseInParts:
    """A response in the making, part by part.

    Args:
        context: of the request.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._leaders: dict[int, NodeEndpoint] = {}
        self._topics: list[FetchableTopicResponse] = []
        self._partitions: list[PartitionData] = []
        self._latest: Topic | None = None

    def add(self, reads: Iterable[Read]) -> None:
        """Add partitions; consecutive ones of one topic share an entry."""
        for read in reads:
            topic = read.place.topic
            if topic != self._latest:
                self._latest, self._partitions = topic, []
                if isinstance(topic, str):
                    self._topics.append(FetchableTopicResponse(topic=topic, partitions=self._partitions))
                else:
                    self._topics.append(FetchableTopicResponse(topic_id=topic, partitions=self._partitions))
            self._partitions.append(_partition(read, self._context, self._leaders))

    def message(self, session_id: int) -> FetchResponse:
        """Return the whole response."""
        leaders = list(self._leaders.values())
        return FetchResponse(session_id=session_id, responses=self._topics, node_endpoints=leaders)


def _partition(read: Read, context: Context, leaders: dict[int, NodeEndpoint]) -> PartitionData:
    result = read.result
    if result.error is not _NO_ERROR:
        aborted = () if result.error in _NOT_OF_THE_LOG else None
        response = PartitionData(read.place.partition, result.error, -1, aborted_transactions=aborted)
        hint = result.leader_hint
        if context.version >= _FIRST_WITH_LEADERS and result.error in _NAMES_LEADER and hint is not None:
            response.current_leader = LeaderIdAndEpoch(hint.leader, hint.leader_epoch)
            at = endpoint_of(context, hint.leader)
            if at is not None:
                leaders[hint.leader] = NodeEndpoint(at.broker_id, at.host, at.port, at.rack)
        return response
    diverging = result.diverging
    return PartitionData(
        read.place.partition,
        0,
        result.high_watermark,
        result.last_stable_offset,
        result.log_start_offset,
        None if diverging is None else EpochEndOffset(diverging.epoch, diverging.end_offset),
        aborted_transactions=_aborted(result),
        preferred_read_replica=_NONE if result.preferred_read_replica is None else result.preferred_read_replica,
        records=read.records,
    )


def _aborted(result: core.FetchResult) -> list[AbortedTransaction] | None:
    aborted = result.aborted_transactions
    return None if aborted is None else [AbortedTransaction(one.producer_id, one.first_offset) for one in aborted]
