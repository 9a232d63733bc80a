"""Rounds of fetches: what a follower asks next, and what comes of responses, silence and errors.

Holds AbstractFetcherThread.doWork, the rules of rounds.py and rule 4 of follower.py: each round counts once, busy
partitions go to the end of the order, errors and lost rounds pause a partition, and only that partition.
"""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import FetchedPartition, FetchRound, Wait

OTHER = TopicPartition(AT.topic, 1)
THIRD = TopicPartition(AT.topic, 2)


def cluster_of(partitions: int) -> Cluster:
    cluster = Cluster(partitions=partitions)
    cluster.settle()
    return cluster


def asked(cluster: Cluster, follower: int = 2) -> list[int]:
    """The partitions of the next round, which then gets a complete response."""
    exchange = cluster.ask(follower)
    assert exchange is not None
    cluster.arrive(exchange, wait_ms=0)
    cluster.deliver_response(exchange)
    return [wanted.topic_partition.partition for wanted in exchange.round.partitions]


def next_round(cluster: Cluster, leader: int = 1) -> FetchRound | Wait:
    return cluster.brokers[2].core.next_round(leader, cluster.now_ms)


def test_a_round_asks_at_the_own_end_with_the_last_epoch():
    cluster = cluster_of(1)
    cluster.produce(1, "a", "b", acks=1)
    cluster.fetch(2)
    (wanted,) = next_round(cluster).partitions
    assert (wanted.fetch_offset, wanted.last_fetched_epoch, wanted.current_leader_epoch) == (2, 0, 0)
    assert wanted.log_start_offset == 0


def test_one_round_of_a_leader_at_a_time():
    cluster = cluster_of(2)
    assert isinstance(next_round(cluster), FetchRound)
    assert next_round(cluster) == Wait(None)


def test_who_brought_records_goes_to_the_end_of_the_order():
    cluster = cluster_of(3)
    assert asked(cluster) == [0, 1, 2]
    cluster.produce(1, "a", acks=1)
    assert asked(cluster) == [0, 1, 2]
    assert asked(cluster) == [1, 2, 0]
    cluster.produce(1, "a", acks=1, partitions=(THIRD,))
    asked(cluster)
    assert asked(cluster) == [1, 0, 2]


def test_a_partition_that_the_response_leaves_out_is_asked_for_again():
    cluster = cluster_of(2)
    chosen = next_round(cluster)
    response = FetchedPartition(OTHER, high_watermark=0, log_start_offset=0)
    core = cluster.brokers[2].core
    cluster.brokers[2].execute(core.fetch_response_received(1, chosen.request_id, [response], cluster.now_ms))
    assert [wanted.topic_partition for wanted in next_round(cluster).partitions] == [AT, OTHER]


def test_a_lost_round_pauses_its_partitions():
    """replica.fetch.backoff.ms, 1000 by default; its late response counts no more."""
    cluster = cluster_of(2)
    cluster.produce(1, "a", acks=1)
    exchange = cluster.ask(2)
    cluster.arrive(exchange)
    cluster.lose(exchange)
    assert next_round(cluster) == Wait(cluster.now_ms + 1000)
    assert cluster.deliver_response(exchange) == []
    assert cluster.ends(2) == [(0, 0)]
    cluster.advance(1000)
    assert asked(cluster) == [0, 1]
    assert cluster.ends(2) == [(1, 0)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_an_error_pauses_the_partition_alone(error: ErrorCode):
    cluster = cluster_of(2)
    chosen = next_round(cluster)
    responses = [FetchedPartition(AT, error), FetchedPartition(OTHER, high_watermark=0, log_start_offset=0)]
    core = cluster.brokers[2].core
    cluster.brokers[2].execute(core.fetch_response_received(1, chosen.request_id, responses, cluster.now_ms))
    assert asked(cluster) == [1]
    cluster.advance(999)
    assert asked(cluster) == [1]
    cluster.advance(1)
    assert asked(cluster) == [0, 1]


def damaged(records: bytes, position: int) -> bytes:
    data = bytearray(records)
    data[position] ^= 1
    return bytes(data)


@pytest.mark.parametrize(
    ("position", "fails"),
    [
        (65, False),  # in the records: the CRC does not match
        (16, False),  # the magic
        (7, True),  # the base offset, outside the CRC: below the log's end; failed, until the next LeaderAndIsr
    ],
)
def test_records_that_are_unsound_are_not_appended(position: int, fails: bool):
    """Corrupt records make it wait and fetch again; an offset that does not fit marks the replica failed."""
    cluster = cluster_of(1)
    cluster.produce(1, "a", acks=1)
    cluster.fetch(2)
    cluster.produce(1, "b", acks=1)
    exchange = cluster.ask(2)
    cluster.arrive(exchange)
    sound = exchange.response.records
    exchange.response.records = damaged(sound, position)
    cluster.deliver_response(exchange)
    assert cluster.ends(2) == [(1, 0)]
    cluster.advance(1000)
    if fails:
        assert cluster.ask(2) is None
        cluster.impose(1, [1, 2, 3])
        cluster.deliver()
    cluster.fetch(2)
    assert cluster.content(2) == cluster.content(1)


def test_gaps_that_compaction_left_are_copied():
    """UnifiedLog.appendAsFollower: only what begins below the log's end does not fit."""
    cluster = cluster_of(1)
    cluster.produce(1, "a", acks=1)
    cluster.fetch(2)
    for value in "bcde":
        cluster.produce(1, value, acks=1)
    batches = cluster.brokers[1].disk[AT].batches
    del batches[3], batches[1]
    cluster.fetch(2)
    assert cluster.ends(2)[0][0] == 5
    assert cluster.records(2) == ["a@0", "c@0", "e@0"]
    cluster.produce(1, "f", acks=1)
    cluster.fetch(2)
    assert cluster.content(2) == cluster.content(1)
    assert cluster.epochs(2) == cluster.epochs(1)


def test_followers_of_two_leaders_have_a_round_for_each():
    cluster = cluster_of(2)
    cluster.impose(3, [3, 1, 2], at=OTHER)
    cluster.deliver()
    core = cluster.brokers[2].core
    assert core.leaders_followed() == {1, 3}
    assert [wanted.topic_partition for wanted in next_round(cluster, 1).partitions] == [AT]
    assert [wanted.topic_partition for wanted in next_round(cluster, 3).partitions] == [OTHER]
    assert next_round(cluster, 9) == Wait(None)
