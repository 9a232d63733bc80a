"""A follower's stream names only what changed, in both directions (KIP-227)."""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import EpochEnd, FetchPartition, FetchResult
from tidegauge_broker.server.replication.fetch_session import FetchSession

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def ask(session: FetchSession, changed=(), forgotten=()):
    return session.request(2, max_wait_ms=500, min_bytes=1, max_bytes=1000, changed=changed, forgotten=forgotten)


def test_partitions_that_are_not_named_again_are_fetched_as_before():
    session = FetchSession()
    ask(session, [FetchPartition(A, 5, 100), FetchPartition(B, 7, 100)])
    request = ask(session, [FetchPartition(A, 6, 100)])
    assert {item.topic_partition: item.fetch_offset for item in request.partitions} == {A: 6, B: 7}
    request = ask(session, forgotten=[A])
    assert [item.topic_partition for item in request.partitions] == [B]


def test_a_partition_that_brought_records_goes_to_the_end_so_that_a_full_response_starves_none():
    session = FetchSession()
    ask(session, [FetchPartition(A, 5, 100), FetchPartition(B, 7, 100)])
    assert [item.topic_partition for item in ask(session, [FetchPartition(A, 6, 100)]).partitions] == [B, A]
    assert [item.topic_partition for item in ask(session).partitions] == [B, A]
    assert [item.topic_partition for item in ask(session, [FetchPartition(B, 8, 100)]).partitions] == [A, B]


def test_a_response_names_a_partition_only_with_news():
    session = FetchSession()
    ask(session, [FetchPartition(A, 5, 100, current_leader_epoch=1)])
    nothing = FetchResult(A, high_watermark=5, log_start_offset=0)
    assert session.has_news(nothing, b"")  # the first response carries the high watermark
    assert not session.has_news(nothing, b"")
    assert session.has_news(FetchResult(A, high_watermark=6, log_start_offset=0), b"")
    assert session.has_news(FetchResult(A, high_watermark=6, log_start_offset=0), b"records")
    assert session.has_news(FetchResult(A, ErrorCode.FENCED_LEADER_EPOCH), b"")
    assert session.has_news(FetchResult(A, high_watermark=6, diverging=EpochEnd(1, 3)), b"")


def test_a_new_leader_epoch_is_sent_the_high_watermark_again():
    session = FetchSession()
    ask(session, [FetchPartition(A, 5, 100, current_leader_epoch=1)])
    nothing = FetchResult(A, high_watermark=5, log_start_offset=0)
    session.has_news(nothing, b"")
    ask(session, [FetchPartition(A, 5, 100, current_leader_epoch=2)])
    assert session.has_news(nothing, b"")
