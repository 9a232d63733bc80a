"""A follower over Kafka's protocol: its sessions (KIP-227), and what the leader's responses become for the core."""

from __future__ import annotations

from typing import Any

import pytest
from tests.memory_peer import MemoryPeer

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from tidegauge.kafka.messages import fetch as wire
from tidegauge.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidegauge.kafka.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings
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
from tidegauge_broker.server.replication.follower_session import LAST_EPOCH, FollowerSession, Named
from tidegauge_broker.server.replication.kafka_links import KafkaLinks
from tidegauge_broker.server.replication.leader_link import FetcherIdentity, LeaderLink, RoundFailed

A, B, C = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": topic_id_text(b"a" * 16), "b": topic_id_text(b"b" * 16)}
LEADER, OWN_ID, BROKER_EPOCH = 1, 2, 77


def wants(at: TopicPartition, offset: int = 5, epoch: int | None = 3, last: int | None = 2) -> FetchPartition:
    return FetchPartition(at, offset, 1_000, epoch, last, 1)


# The session, pure


def names(fetch: Any) -> tuple[int, int, list[TopicPartition], list[Named]]:
    return fetch.session_id, fetch.epoch, [named.topic_partition for named, _ in fetch.wanted], list(fetch.forgotten)


def test_the_first_fetch_is_full_and_the_next_ones_name_what_changed() -> None:
    """FetchSessionHandler.Builder.build: added, altered and removed partitions since the last request."""
    session = FollowerSession()
    assert names(session.next([wants(A), wants(B)], IDS)) == (0, 0, [A, B], [])
    session.responded(9)
    assert names(session.next([wants(A), wants(B)], IDS)) == (9, 1, [], [])
    session.responded(9)
    assert names(session.next([wants(A, 8), wants(C)], IDS)) == (9, 2, [A, C], [Named(B, IDS["a"])])


def test_a_leader_that_gives_no_session_is_asked_in_full_again() -> None:
    """A full cache gives session id 0."""
    session = FollowerSession()
    session.next([wants(A)], IDS)
    session.responded(0)
    assert names(session.next([wants(A)], IDS)) == (0, 0, [A], [])


def test_after_a_failure_a_full_fetch_closes_the_session_that_was() -> None:
    """FetchMetadata.nextCloseExisting: epoch 0 with the old session's id."""
    session = FollowerSession()
    session.next([wants(A)], IDS)
    session.responded(9)
    session.failed()
    assert names(session.next([wants(A)], IDS)) == (9, 0, [A], [])
    session.responded(10)
    session.failed(is_lost=True)
    assert names(session.next([wants(A)], IDS)) == (0, 0, [A], [])


def test_a_session_is_about_ids_or_about_names() -> None:
    """A topic without an id takes all to version 12; FETCH_SESSION_TOPIC_ID_ERROR would be the leader's response."""
    session = FollowerSession()
    session.next([wants(A)], IDS)
    session.responded(9)
    fetch = session.next([wants(A), wants(C)], {"a": IDS["a"], "b": ""})
    assert (names(fetch), fetch.uses_ids) == ((9, 0, [A, C], []), False)
    session.responded(10)
    fetch = session.next([wants(A), wants(C)], IDS)
    assert (names(fetch), fetch.uses_ids) == ((10, 0, [A, C], []), True)


def test_a_topic_that_was_created_again_is_forgotten_by_its_old_id() -> None:
    """FetchSessionHandler: replaced partitions (version 13 on)."""
    session = FollowerSession()
    session.next([wants(A)], IDS)
    session.responded(9)
    fetch = session.next([wants(A)], {"a": IDS["b"]})
    assert fetch.wanted == [(Named(A, IDS["b"]), wants(A))]
    assert fetch.forgotten == [Named(A, IDS["a"])]


def test_a_partition_that_began_to_follow_again_ends_the_session_if_it_asks_the_same() -> None:
    """Else the leader would not repeat a high watermark that the new following has not seen."""
    session = FollowerSession()
    session.next([wants(A), wants(B)], IDS)
    session.responded(9)
    assert names(session.next([wants(A, epoch=4), wants(B)], IDS, [A])) == (9, 1, [A], [])
    session.responded(9)
    assert names(session.next([wants(A, epoch=4), wants(B)], IDS, [A])) == (9, 0, [A, B], [])


def test_the_epoch_after_the_largest_is_1() -> None:
    """FetchMetadata.nextEpoch."""
    session = FollowerSession(_id=9, _epoch=LAST_EPOCH, _uses_ids=True)
    session.responded(9)
    assert session.next([wants(A)], IDS).epoch == 1


# The link


class Leader(MemoryPeer):
    """A leader of which a test says what it responds; opens session 9."""

    def __init__(self) -> None:
        super().__init__({FETCH: self._fetch, LIST_OFFSETS: self._list, OFFSET_FOR_LEADER_EPOCH: self._epochs})
        self.gives: dict[TopicPartition, wire.PartitionData] = {}
        self.errors: list[ErrorCode] = []
        self.offsets: dict[tuple[int, TopicPartition], tuple[ErrorCode, int]] = {}
        self.ends: dict[TopicPartition, tuple[ErrorCode, EpochEnd]] = {}

    def _fetch(self, request: wire.FetchRequest, version: int) -> wire.FetchResponse:
        del request
        if self.errors:
            return wire.FetchResponse(error_code=self.errors.pop(0))
        topics = [
            wire.FetchableTopicResponse(topic=at.topic, partitions=[data])
            if version < 13
            else wire.FetchableTopicResponse(topic_id=at.topic.encode() * 16, partitions=[data])
            for at, data in self.gives.items()
        ]
        return wire.FetchResponse(session_id=9, responses=topics)

    def _list(self, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        assert (request.replica_id, version) == (OWN_ID, 9)
        topics = []
        for topic in request.topics:
            found = []
            for one in topic.partitions:
                assert one.current_leader_epoch == 3
                error, offset = self.offsets[one.timestamp, TopicPartition(topic.name, one.partition_index)]
                found.append(ListOffsetsPartitionResponse(one.partition_index, error, offset=offset))
            topics.append(ListOffsetsTopicResponse(topic.name, found))
        return ListOffsetsResponse(topics=topics)

    def _epochs(self, request: OffsetForLeaderEpochRequest, version: int) -> OffsetForLeaderEpochResponse:
        assert (request.replica_id, version) == (OWN_ID, 4)
        topics = []
        for topic in request.topics:
            found = []
            for one in topic.partitions:
                error, end = self.ends[TopicPartition(topic.topic, one.partition)]
                found.append(EpochEndOffset(error, one.partition, end.epoch, end.end_offset))
            topics.append(OffsetForLeaderTopicResult(topic.topic, found))
        return OffsetForLeaderEpochResponse(topics=topics)

    def fetches(self) -> list[Any]:
        return [asked for asked in self.requests if asked.header.key == FETCH]


@pytest.fixture
def leader() -> Leader:
    return Leader()


def link_to(leader: Leader, ids: dict[str, str] | None = None, address: str | None = "h:9092") -> LeaderLink:
    known = IDS if ids is None else ids
    settings, _ = parse_broker_settings({"replica.fetch.wait.max.ms": "400", "replica.fetch.min.bytes": "3"})
    links = KafkaLinks(
        lambda broker_id: address if broker_id == LEADER else None,
        lambda at, client_id: KafkaChannel(at, client_id, leader.dial),
        FetcherIdentity(OWN_ID, "cluster", lambda: BROKER_EPOCH),
        settings,
        lambda at: known[at.topic],
    )
    return links.open(LEADER)


def fetch_of(*partitions: FetchPartition) -> FetchRound:
    return FetchRound(1, LEADER, partitions)


async def test_a_fetch_says_who_follows_and_from_where(leader: Leader) -> None:
    """Version 17 by topic ids, with the replica's state (KIP-903); partitions of a topic together, in order."""
    await link_to(leader).fetch(fetch_of(wants(A), wants(B, 7), wants(C, epoch=None, last=None)))
    (asked,) = leader.fetches()
    assert (asked.header.version, asked.header.client_id) == (17, f"broker-{OWN_ID}-fetcher-0")
    request = asked.message
    assert request.replica_state == wire.ReplicaState(OWN_ID, BROKER_EPOCH)
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == (400, 3, 10_485_760)
    assert (request.session_id, request.session_epoch, request.isolation_level, request.rack_id) == (0, 0, 0, "")
    assert (request.cluster_id, asked.header.tags.truncation_rule) == ("cluster", "kip-320")
    assert [(topic.topic_id, list(topic.partitions)) for topic in request.topics] == [
        (b"a" * 16, [wire.FetchPartition(0, 3, 5, 2, 1, 1_000), wire.FetchPartition(1, 3, 7, 2, 1, 1_000)]),
        (b"b" * 16, [wire.FetchPartition(0, -1, 5, -1, 1, 1_000)]),
    ]


async def test_topics_without_ids_are_named_in_version_12(leader: Leader) -> None:
    """RemoteLeaderEndPoint.buildFetch: version 12 if the topic ids can't be used."""
    leader.gives[C] = wire.PartitionData(0, high_watermark=4)
    (found,) = await link_to(leader, {"a": IDS["a"], "b": ""}).fetch(fetch_of(wants(A), wants(C)))
    (asked,) = leader.fetches()
    assert (asked.header.version, asked.message.replica_id) == (12, OWN_ID)
    assert [topic.topic for topic in asked.message.topics] == ["a", "b"]
    assert (found.topic_partition, found.high_watermark) == (C, 4)


async def test_what_a_response_says_reaches_the_core(leader: Leader) -> None:
    """Records untouched; a diverging epoch (KIP-320) and the leader's hint (KIP-951) if they are given."""
    leader.gives = {
        A: wire.PartitionData(0, 0, 12, 11, 2, records=b"batch"),
        B: wire.PartitionData(1, 0, 12, 11, 2, wire.EpochEndOffset(1, 6), records=b""),
        C: wire.PartitionData(
            0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, current_leader=wire.LeaderIdAndEpoch(4, 8), records=b""
        ),
        TopicPartition("z", 0): wire.PartitionData(0, records=b""),
    }
    found = await link_to(leader).fetch(fetch_of(wants(A), wants(B), wants(C)))
    assert found == [
        FetchedPartition(A, ErrorCode.NONE, 12, 2, records=b"batch"),
        FetchedPartition(B, ErrorCode.NONE, 12, 2, diverging=EpochEnd(1, 6)),
        FetchedPartition(C, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, leader_hint=LeaderHint(4, 8)),
    ]


async def test_rounds_of_a_session_name_what_changed(leader: Leader) -> None:
    """The transcript of three rounds."""
    link = link_to(leader)
    await link.fetch(fetch_of(wants(A), wants(C)))
    await link.fetch(fetch_of(wants(A, 6), wants(C)))
    await link.fetch(fetch_of(wants(A, 6)))
    said = [
        (
            asked.message.session_id,
            asked.message.session_epoch,
            [topic.topic_id[:1] for topic in asked.message.topics],
            [(topic.topic_id[:1], list(topic.partitions)) for topic in asked.message.forgotten_topics_data],
        )
        for asked in leader.fetches()
    ]
    assert said == [(0, 0, [b"a", b"b"], []), (9, 1, [b"a"], []), (9, 2, [], [(b"b", [0])])]
    assert len(leader.connections) == 1


@pytest.mark.parametrize("error", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH])
async def test_a_session_that_the_leader_gave_up_costs_one_more_request(leader: Leader, error: ErrorCode) -> None:
    """FetchSessionHandler.handleResponse: the next fetch is full, and no partition is delayed."""
    link = link_to(leader)
    await link.fetch(fetch_of(wants(A)))
    leader.errors = [error]
    leader.gives[A] = wire.PartitionData(0, high_watermark=4, records=b"")
    (found,) = await link.fetch(fetch_of(wants(A)))
    assert found.high_watermark == 4
    assert [(one.message.session_id, one.message.session_epoch) for one in leader.fetches()] == [(0, 0), (9, 1), (0, 0)]


async def test_the_cluster_and_the_rule_are_said_once_for_a_session(leader: Leader) -> None:
    link = link_to(leader)
    for offset in (5, 6):
        await link.fetch(fetch_of(wants(A, offset)))
    said = [(asked.message.cluster_id, asked.header.tags.truncation_rule) for asked in leader.fetches()]
    assert said == [("cluster", "kip-320"), (None, "")]


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ErrorCode.INCONSISTENT_CLUSTER_ID, "it belongs to another cluster"),
        (ErrorCode.INVALID_REQUEST, "its replica.truncation.rule is not this broker's"),
    ],
)
async def test_a_leader_that_refuses_the_follower_is_reported_in_words(
    leader: Leader, error: ErrorCode, sentence: str
) -> None:
    leader.errors = [error]
    with pytest.raises(RoundFailed, match=sentence):
        await link_to(leader).fetch(fetch_of(wants(A)))


async def test_an_error_of_the_whole_fails_the_round(leader: Leader) -> None:
    """Among them a second lost session; the next fetch is full."""
    link = link_to(leader)
    leader.errors = [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR]
    with pytest.raises(RoundFailed) as failed:
        await link.fetch(fetch_of(wants(A)))
    assert failed.value.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    await link.fetch(fetch_of(wants(A)))
    assert leader.fetches()[-1].message.session_epoch == 0


async def test_beyond_the_leaders_end_the_response_says_where_it_ends(leader: Leader) -> None:
    """AbstractFetcherThread.fetchOffsetAndTruncate: LATEST, as replicas see it; the log start is not asked then."""
    leader.gives[A] = wire.PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, records=b"")
    leader.offsets = {(-1, A): (ErrorCode.NONE, 4)}
    (found,) = await link_to(leader).fetch(fetch_of(wants(A, 5)))
    assert (found.error, found.log_end_offset, found.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 4, -1)


async def test_below_the_leaders_start_the_response_says_where_it_begins(leader: Leader) -> None:
    """EARLIEST of those alone whose end is not below the follower's; others of the round keep their results."""
    out = ErrorCode.OFFSET_OUT_OF_RANGE
    leader.gives = {
        A: wire.PartitionData(0, out, -1, records=b""),
        B: wire.PartitionData(1, 0, 12, records=b"batch"),
        C: wire.PartitionData(0, out, -1, records=b""),
    }
    leader.offsets = {(-1, A): (ErrorCode.NONE, 90), (-1, C): (ErrorCode.NONE, 2), (-2, A): (ErrorCode.NONE, 80)}
    found = await link_to(leader).fetch(fetch_of(wants(A), wants(B), wants(C)))
    assert [(one.error, one.log_start_offset, one.log_end_offset) for one in found] == [
        (out, 80, 90),
        (ErrorCode.NONE, -1, -1),
        (out, -1, 2),
    ]


@pytest.mark.parametrize("timestamp", [-1, -2])
async def test_a_leader_that_does_not_say_its_offsets_delays_the_partition(leader: Leader, timestamp: int) -> None:
    """The error of ListOffsets takes the place of OFFSET_OUT_OF_RANGE: the core backs off and truncates nothing."""
    leader.gives[A] = wire.PartitionData(0, ErrorCode.OFFSET_OUT_OF_RANGE, -1, records=b"")
    leader.offsets = {(-1, A): (ErrorCode.NONE, 90), (-2, A): (ErrorCode.NONE, 80)}
    leader.offsets[timestamp, A] = (ErrorCode.FENCED_LEADER_EPOCH, -1)
    (found,) = await link_to(leader).fetch(fetch_of(wants(A)))
    assert found.error is ErrorCode.FENCED_LEADER_EPOCH


async def test_where_epochs_end_is_asked_by_the_older_rules(leader: Leader) -> None:
    """OffsetForLeaderEpoch 4 with the replica's id (KIP-101, KIP-279)."""
    leader.ends = {A: (ErrorCode.NONE, EpochEnd(2, 6)), C: (ErrorCode.UNKNOWN_LEADER_EPOCH, EpochEnd(-1, -1))}
    found = await link_to(leader).ask_epochs(EpochRound(1, LEADER, (EpochLookup(A, 2), EpochLookup(C, 5, 3))))
    assert found == [
        EpochEndResult(A, ErrorCode.NONE, EpochEnd(2, 6)),
        EpochEndResult(C, ErrorCode.UNKNOWN_LEADER_EPOCH, EpochEnd(-1, -1)),
    ]


async def test_a_broken_connection_fails_the_round_and_the_next_begins_with_a_full_fetch(leader: Leader) -> None:
    """The fetcher drops the link after a failure; the new connection's first fetch closes the session that was."""
    link = link_to(leader)
    await link.fetch(fetch_of(wants(A)))
    leader.refuses = ConnectionRefusedError(111, "Connection refused")
    leader.connections[0].connection_lost(None)
    with pytest.raises(RoundFailed, match="Connection refused") as failed:
        await link.fetch(fetch_of(wants(A)))
    assert failed.value.error is ErrorCode.NETWORK_EXCEPTION
    link.drop()
    leader.refuses = None
    await link.fetch(fetch_of(wants(A)))
    request = leader.fetches()[-1].message
    assert (request.session_id, request.session_epoch, len(request.topics)) == (9, 0, 1)


async def test_a_leader_that_is_not_live_is_not_asked(leader: Leader) -> None:
    """As over gRPC."""
    with pytest.raises(RoundFailed, match="leader 1 is not among the live brokers") as failed:
        await link_to(leader, address=None).fetch(fetch_of(wants(A)))
    assert failed.value.error is ErrorCode.BROKER_NOT_AVAILABLE
