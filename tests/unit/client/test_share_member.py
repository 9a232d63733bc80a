"""A member of a share group whose requests are made one by one (share_member.py), against a test's brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages import metadata, share_acknowledge, share_fetch
from tidegauge.partition import TopicPartition
from tidegauge_client import share_member
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_client.share_member import Delivered, Says, ShareMember

AT = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
Respond = Callable[[str, int, Any], Any]


class Channel:
    """A connection; the test responds."""

    respond: Respond
    opened: list[Channel]

    def __init__(self, address: str, *_: Any) -> None:
        self.address = address
        self.is_closed = False
        Channel.opened.append(self)

    async def request(self, key: int, message: Any, limit_seconds: float) -> Any:
        assert limit_seconds > 0
        found = Channel.respond(self.address, key, message)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        self.is_closed = True


class Brokers:
    """Two brokers: the leader by each one's metadata, and what the leaders respond."""

    def __init__(self) -> None:
        self.leaders = {"b:0": (0, 1), "b:1": (0, 1)}
        self.asked: list[tuple[str, Any]] = []
        self.fetches: list[Any] = []
        self.acknowledgements: list[Any] = []

    def __call__(self, address: str, key: int, message: Any) -> Any:
        if key == apis.METADATA:
            leader, epoch = self.leaders[address]
            at = [metadata.MetadataResponseBroker(node_id=one, host="b", port=one) for one in (0, 1)]
            part = metadata.MetadataResponsePartition(partition_index=0, leader_id=leader, leader_epoch=epoch)
            topic = metadata.MetadataResponseTopic(name="orders", topic_id=TOPIC_ID, partitions=[part])
            return metadata.MetadataResponse(brokers=at, topics=[topic])
        self.asked.append((address, message))
        return (self.fetches if key == apis.SHARE_FETCH else self.acknowledgements).pop(0)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers()
    Channel.respond, Channel.opened = staticmethod(made), []  # type: ignore[assignment] # it takes no self
    monkeypatch.setattr(share_member, "KafkaChannel", Channel)
    return made


def member() -> ShareMember:
    return ShareMember(lambda: ["b:0", "b:1"], "q", "a", AT)


def fetched(*acquired: tuple[int, int, int], values: tuple[str, ...] = (), base: int = 0, error: int = 0) -> Any:
    batch = encode_batch([NewRecord(one.encode(), None, 1) for one in values]) if values else b""
    data = share_fetch.PartitionData(
        0,
        error,
        records=at_offset(batch, base),
        acquired_records=[share_fetch.AcquiredRecords(*one) for one in acquired],
    )
    return share_fetch.ShareFetchResponse(responses=[share_fetch.ShareFetchableTopicResponse(TOPIC_ID, [data])])


def at_offset(batch: bytes, base: int) -> bytes:
    """Return a batch whose base offset, which no checksum covers, is another one."""
    return base.to_bytes(8, "big") + batch[8:] if batch else b""


def acknowledged(error: ErrorCode = ErrorCode.NONE, whole: ErrorCode = ErrorCode.NONE) -> Any:
    part = share_acknowledge.PartitionData(0, error)
    topic = share_acknowledge.ShareAcknowledgeTopicResponse(TOPIC_ID, [part])
    return share_acknowledge.ShareAcknowledgeResponse(error_code=whole, responses=[] if whole else [topic])


async def test_only_what_is_acquired_is_delivered_and_both_requests_share_the_epoch(brokers: Brokers) -> None:
    """A response has whole batches of the log; the session's epoch counts fetches and acknowledgements."""
    brokers.fetches = [fetched((6, 7, 2), values=("x", "y", "z"), base=5), fetched()]
    brokers.acknowledgements = [acknowledged()]
    one = member()
    assert await one.fetch(2, 100) == [Delivered(6, "y", 2), Delivered(7, "z", 2)]
    await one.acknowledge({6: Says.ACCEPT, 7: Says.RELEASE})
    assert await one.fetch(2, 100) == []
    (_, first), (_, second), (_, third) = brokers.asked
    assert [first.share_session_epoch, second.share_session_epoch, third.share_session_epoch] == [0, 1, 2]
    assert (len(first.topics), len(third.topics)) == (1, 0)
    assert (first.max_records, first.share_acquire_mode) == (2, 1)
    (batch,) = second.topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset, list(batch.acknowledge_types)) == (6, 7, [1, 2])


async def test_offsets_without_a_record_are_acknowledged_as_gaps(brokers: Brokers) -> None:
    """Markers and holes among acquired offsets are gaps; the next acknowledgement says so."""
    brokers.fetches = [fetched((0, 3, 1), values=("x",))]
    brokers.acknowledgements = [acknowledged(), acknowledged()]
    one = member()
    assert await one.fetch(9, 100) == [Delivered(0, "x", 1)]
    await one.acknowledge({0: Says.ACCEPT})
    (batch,) = brokers.asked[1][1].topics[0].partitions[0].acknowledgement_batches
    assert list(batch.acknowledge_types) == [1, 0, 0, 0]
    await one.acknowledge({0: Says.RENEW})
    assert brokers.asked[2][1].is_renew_ack
    (batch,) = brokers.asked[2][1].topics[0].partitions[0].acknowledgement_batches
    assert (batch.first_offset, batch.last_offset) == (0, 0), "they are said once"


async def test_after_another_leader_was_elected_the_newest_one_is_asked_in_a_session_of_its_own(
    brokers: Brokers,
) -> None:
    brokers.fetches = [fetched(), fetched(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), fetched()]
    one = member()
    await one.fetch(1, 100)
    old = Channel.opened[-1]
    with pytest.raises(TidegaugeError, match="NOT_LEADER_OR_FOLLOWER"):
        await one.fetch(1, 100)
    assert old.is_closed
    brokers.leaders = {"b:0": (0, 1), "b:1": (1, 2)}
    await one.fetch(1, 100)
    assert [(at, message.share_session_epoch) for at, message in brokers.asked] == [("b:0", 0), ("b:0", 1), ("b:1", 0)]


async def test_a_session_that_is_gone_is_begun_again_and_a_refused_record_is_not(brokers: Brokers) -> None:
    brokers.fetches = [fetched(), fetched()]
    brokers.acknowledgements = [
        acknowledged(ErrorCode.INVALID_RECORD_STATE),
        acknowledged(whole=ErrorCode.SHARE_SESSION_NOT_FOUND),
    ]
    one = member()
    await one.fetch(1, 100)
    with pytest.raises(TidegaugeError, match="INVALID_RECORD_STATE"):
        await one.acknowledge({0: Says.ACCEPT})
    with pytest.raises(TidegaugeError, match="SHARE_SESSION_NOT_FOUND"):
        await one.acknowledge({0: Says.ACCEPT})
    await one.fetch(1, 100)
    assert [message.share_session_epoch for _, message in brokers.asked] == [0, 1, 2, 0]


async def test_without_a_leader_nothing_is_asked(brokers: Brokers) -> None:
    brokers.leaders = {"b:0": (-1, 1), "b:1": (-1, 1)}
    with pytest.raises(TidegaugeError, match="no broker names a leader of orders-0"):
        await member().fetch(1, 100)
    assert brokers.asked == []
