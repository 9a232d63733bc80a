"""Links to leaders over Kafka's protocol: Fetch with a replica id, OffsetForLeaderEpoch, ListOffsets.

One request is in flight at a time, on a connection of the link's own. Topics are named by id (Fetch version 13 on) if
all of a round have one, else by name, in version 12. The records stay as the leader sent them.
A Fetch that begins a session says the follower's cluster and ``replica.truncation.rule``; a Tidegauge leader refuses
others than its own (``header_tags``; Apache Kafka's leaders do not look).
For a partition whose offset is out of the leader's range, the leader's log end is looked up, and if that is not below
the follower's, its log start: Fetch does not report them (AbstractFetcherThread.fetchOffsetAndTruncate).
Source: ``RemoteLeaderEndPoint``, ``BrokerBlockingSender``, ``ReplicaFetcherThread``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, cast

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tidegauge.kafka.messages import fetch as wire
from tidegauge.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from tidegauge.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tidegauge.kafka.records import Buffer
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge_broker.replica.messages import (
    EpochEnd,
    EpochEndResult,
    EpochLookup,
    EpochRound,
    FetchedPartition,
    FetchPartition,
    FetchRound,
    LeaderHint,
)
from tidegauge_broker.server.replication.follower_session import FollowerSession, Named, SessionFetch
from tidegauge_broker.server.replication.leader_link import FetcherIdentity, LeaderLink, RoundFailed

_LATEST, _EARLIEST = -1, -2
_LAST_WITH_NAMES = 12
_SESSION_LOST = {ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH}
_FIRST_WITH_TRUNCATION = 12
_FIRST_WITH_REPLICA_ID = 3
_REFUSALS = {
    ErrorCode.INCONSISTENT_CLUSTER_ID: "it belongs to another cluster (INCONSISTENT_CLUSTER_ID)",
    ErrorCode.INVALID_REQUEST: "its replica.truncation.rule is not this broker's (INVALID_REQUEST)",
}


class KafkaLinks:
    """All links of a broker.

    Args:
        address_of: returns a broker's address for brokers; None: it is not alive.
        open_channel: opens a channel to an address, for a client id.
        identity: what requests say of their sender.
        settings: broker settings.
        topic_id_of: returns the id of a hosted partition's topic; empty: it has none.
    """

    def __init__(
        self,
        address_of: Callable[[int], str | None],
        open_channel: Callable[[str, str], KafkaChannel],
        identity: FetcherIdentity,
        settings: Values,
        topic_id_of: Callable[[TopicPartition], str],
    ) -> None:
        self.address_of = address_of
        self.open_channel = open_channel
        self.identity = identity
        self.settings = settings
        self.topic_id_of = topic_id_of
        # None of these can be altered while a broker runs.
        self.max_wait_ms = settings.integer("replica.fetch.wait.max.ms")
        self.min_bytes = settings.integer("replica.fetch.min.bytes")
        self.max_bytes = settings.integer("replica.fetch.response.max.bytes")
        self.timeout_seconds = settings.integer("replica.socket.timeout.ms") / 1000

    def open(self, leader: int) -> LeaderLink:
        """Return a link to this broker; nothing is sent yet."""
        return _KafkaLink(leader, self)


class _KafkaLink:
    """A leader over Kafka's protocol; see ``LeaderLink``."""

    def __init__(self, leader: int, links: KafkaLinks) -> None:
        self._leader = leader
        self._links = links
        self._channel: KafkaChannel | None = None
        self._session = FollowerSession()
        self._topics: dict[bytes, str] = {}
        """The topics that the session names by their ids."""

    async def fetch(self, chosen: FetchRound) -> Sequence[FetchedPartition]:
        """Send a Fetch; one whose session the leader has given up is sent once more, in full."""
        response = await self._send(chosen)
        if response.error_code in _SESSION_LOST:
            self._session.failed(is_lost=True)
            response = await self._send(chosen)
        error = ErrorCode.of(response.error_code)
        if error is not ErrorCode.NONE:
            self._session.failed()
            raise RoundFailed(error, f"the leader refuses the fetch: {_REFUSALS.get(error, error.name)}")
        self._session.responded(response.session_id)
        return await self._with_offsets(chosen, list(self._fetched(response)))

    def _fetched(self, response: wire.FetchResponse) -> Iterator[FetchedPartition]:
        """Yield what a response says of the round's partitions; what it names besides is ignored."""
        for topic in response.responses:
            name = topic.topic or self._topics.get(topic.topic_id, "")
            for one in topic.partitions:
                at = TopicPartition(name, one.partition_index)
                if at in self._session:
                    yield _partition(at, one)

    async def ask_epochs(self, chosen: EpochRound) -> Sequence[EpochEndResult]:
        """Send an OffsetForLeaderEpoch."""
        topics = [
            OffsetForLeaderTopic(topic, [_epoch_question(one) for one in of_topic])
            for topic, of_topic in _by_topic(chosen.partitions, lambda one: one.topic_partition.topic)
        ]
        request = OffsetForLeaderEpochRequest(self._links.identity.broker_id, topics)
        response: OffsetForLeaderEpochResponse = await self._ask(
            OFFSET_FOR_LEADER_EPOCH, request, at_least=_FIRST_WITH_REPLICA_ID
        )
        return [
            EpochEndResult(
                TopicPartition(topic.topic, one.partition),
                ErrorCode.of(one.error_code),
                EpochEnd(one.leader_epoch, one.end_offset),
            )
            for topic in response.topics
            for one in topic.partitions
        ]

    def drop(self) -> None:
        """Close the connection; the next fetch closes the session that was."""
        self._session.failed()
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    async def _send(self, chosen: FetchRound) -> wire.FetchResponse:
        asked = self._session.next_round(chosen, self._links.topic_id_of)
        if asked.is_full:
            self._topics.clear()
        at_most = None if asked.uses_ids else _LAST_WITH_NAMES
        rule = self._links.settings.text("replica.truncation.rule") if asked.is_full else ""
        response: wire.FetchResponse = await self._ask(
            FETCH, self._request(asked), at_most=at_most, at_least=_FIRST_WITH_TRUNCATION + asked.uses_ids, rule=rule
        )
        return response

    def _request(self, asked: SessionFetch) -> wire.FetchRequest:
        links, identity = self._links, self._links.identity
        topics: list[wire.FetchTopic] = []
        latest: tuple[str, str] | None = None
        partitions: list[wire.FetchPartition] = []
        for named, item in asked.wanted:  # a loop and not ``_by_topic``: it runs for each record, mostly once
            of_topic = _topic_of(named)
            if of_topic != latest:
                latest, partitions = of_topic, []
                topic = wire.FetchTopic(of_topic[0], topic_id_bytes(of_topic[1]), partitions)
                self._topics[topic.topic_id] = topic.topic
                topics.append(topic)
            partitions.append(_wanted(item))
        forgotten = [
            wire.ForgottenTopic(topic, topic_id_bytes(topic_id), [one.topic_partition.partition for one in of_topic])
            for (topic, topic_id), of_topic in (_by_topic(asked.forgotten, _topic_of) if asked.forgotten else ())
        ]
        return wire.FetchRequest(
            cluster_id=identity.cluster_id if asked.is_full else None,
            replica_id=identity.broker_id,
            replica_state=wire.ReplicaState(identity.broker_id, identity.broker_epoch()),
            max_wait_ms=links.max_wait_ms,
            min_bytes=links.min_bytes,
            max_bytes=links.max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    async def _with_offsets(self, chosen: FetchRound, found: list[FetchedPartition]) -> Sequence[FetchedPartition]:
        """Add the leader's log end, or log start, to those whose offset is out of range."""
        lost = {one.topic_partition: one for one in found if one.error is ErrorCode.OFFSET_OUT_OF_RANGE}
        if not lost:
            return found
        asked = {one.topic_partition: one for one in chosen.partitions}
        beyond: list[FetchPartition] = []
        for at, error, offset in await self._offsets([asked[at] for at in lost], _LATEST):
            lost[at].log_end_offset = offset
            if error is not ErrorCode.NONE:
                lost[at].error = error
            elif offset >= asked[at].fetch_offset:
                beyond.append(asked[at])
        for at, error, offset in await self._offsets(beyond, _EARLIEST) if beyond else ():
            lost[at].log_start_offset = offset
            if error is not ErrorCode.NONE:
                lost[at].error = error
        return found

    async def _offsets(
        self, partitions: Sequence[FetchPartition], timestamp: int
    ) -> list[tuple[TopicPartition, ErrorCode, int]]:
        """Return each partition's offset of a special timestamp, or its error."""
        topics = [
            ListOffsetsTopic(
                topic,
                [
                    ListOffsetsPartition(one.topic_partition.partition, _number(one.current_leader_epoch), timestamp)
                    for one in of_topic
                ],
            )
            for topic, of_topic in _by_topic(partitions, lambda one: one.topic_partition.topic)
        ]
        response: ListOffsetsResponse = await self._ask(
            LIST_OFFSETS, ListOffsetsRequest(self._links.identity.broker_id, topics=topics)
        )
        return [
            (TopicPartition(topic.name, one.partition_index), ErrorCode.of(one.error_code), one.offset)
            for topic in response.topics
            for one in topic.partitions
        ]

    async def _ask(
        self, key: int, message: Any, *, at_most: int | None = None, at_least: int = 0, rule: str = ""
    ) -> Any:
        """Send a request, on a connection to where the leader is now.

        Raises:
            RoundFailed: no response within ``replica.socket.timeout.ms``, or no connection.
        """
        links = self._links
        address = links.address_of(self._leader)
        if address is None:
            raise RoundFailed(ErrorCode.BROKER_NOT_AVAILABLE, f"leader {self._leader} is not among the live brokers")
        if self._channel is None:
            client_id = f"broker-{links.identity.broker_id}-fetcher-0"
            self._channel = links.open_channel(address, client_id)
        try:
            return await self._channel.request(
                key, message, links.timeout_seconds, at_most=at_most, at_least=at_least, truncation_rule=rule
            )
        except TidegaugeError as problem:
            raise RoundFailed(problem.code, problem.message) from None


def _by_topic(items: Iterable[Any], topic_of: Callable[[Any], Any]) -> Iterator[tuple[Any, list[Any]]]:
    """Group items that follow one another by their topic."""
    return ((topic, list(of_topic)) for topic, of_topic in groupby(items, topic_of))


def _topic_of(named: Named) -> tuple[str, str]:
    return named.topic_partition.topic, named.topic_id


def _number(epoch: int | None) -> int:
    return -1 if epoch is None else epoch


def _wanted(item: FetchPartition) -> wire.FetchPartition:
    return wire.FetchPartition(
        item.topic_partition.partition,
        _number(item.current_leader_epoch),
        item.fetch_offset,
        _number(item.last_fetched_epoch),
        item.log_start_offset,
        item.max_bytes,
    )


def _epoch_question(lookup: EpochLookup) -> OffsetForLeaderPartition:
    return OffsetForLeaderPartition(
        lookup.topic_partition.partition, _number(lookup.current_leader_epoch), lookup.leader_epoch
    )


def _partition(at: TopicPartition, one: wire.PartitionData) -> FetchedPartition:
    diverging, hint = one.diverging_epoch, one.current_leader
    return FetchedPartition(
        at,
        ErrorCode.of(one.error_code),
        one.high_watermark,
        one.log_start_offset,
        diverging=EpochEnd(diverging.epoch, diverging.end_offset) if diverging and diverging.epoch >= 0 else None,
        leader_hint=LeaderHint(hint.leader_id, hint.leader_epoch) if hint and hint.leader_id >= 0 else None,
        records=bytes(cast("Buffer", one.records or b"")),  # decoded ones are one buffer
    )
