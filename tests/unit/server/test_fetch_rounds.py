"""A fetcher's round and a round stepped by the lab share the core, and the causal order of events."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.logical_clock import LogicalClock
from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings
from tidegauge.v1 import common_pb2, fetch_pb2, offsets_pb2
from tidegauge_broker.replica.messages import EpochRound, FetchPartition, FetchRound
from tidegauge_broker.server.replication.grpc_links import GrpcLinks, _Stream
from tidegauge_broker.server.replication.leader_link import FetcherIdentity, RoundFailed

EPOCHS = EpochRound(8, 1, ())


@pytest.fixture
def links() -> GrpcLinks:
    identity = FetcherIdentity(2, "cluster", lambda: 1)
    settings, _ = parse_broker_settings({})
    return GrpcLinks(lambda _: None, cast("Any", None), identity, settings, LogicalClock(lambda: 0))


def test_what_a_round_brings_is_later_than_what_its_leader_had_done(links: GrpcLinks) -> None:
    """Else the timeline shows a record on the follower before it is on the leader (docs/events.md, causal order)."""
    assert links.fetched(fetch_pb2.ReplicaFetchResponse(logical_time=50)) == []
    assert links.logical_clock.tick() == 51
    assert links.epoch_ends(offsets_pb2.OffsetsForLeaderEpochResponse(logical_time=90)) == []
    assert links.logical_clock.tick() == 91
    assert links.epoch_request(EPOCHS).logical_time == 91


def test_a_leader_that_refuses_the_whole_fails_the_round_and_the_core_is_given_nothing(links: GrpcLinks) -> None:
    refused = fetch_pb2.ReplicaFetchResponse(error=common_pb2.ERROR_CODE_STALE_BROKER_EPOCH, error_message="stale")
    with pytest.raises(RoundFailed, match="stale") as failed:
        links.fetched(refused)
    assert failed.value.error is ErrorCode.STALE_BROKER_EPOCH


def test_a_leader_that_is_not_live_is_not_asked(links: GrpcLinks) -> None:
    with pytest.raises(RoundFailed, match="leader 1 is not among the live brokers") as failed:
        links.address_of(1)
    assert failed.value.error is ErrorCode.BROKER_NOT_AVAILABLE


def at(number: int, offset: int) -> FetchPartition:
    return FetchPartition(TopicPartition("t", number), offset, 100, 0, 0, 0)


def named(request: fetch_pb2.ReplicaFetchRequest) -> tuple[list[tuple[int, int]], list[int]]:
    """Return a request's partitions with their offsets, and the forgotten ones."""
    return [(one.partition, one.fetch_offset) for one in request.partitions], [
        one.partition for one in request.forgotten
    ]


def test_a_request_names_what_is_new_in_a_round_that_follows_the_one_before(links: GrpcLinks) -> None:
    """It is made from what changed; a round that follows another one is compared with what the stream stands for."""
    link, stream = cast("Any", links.open(1)), _Stream(cast("Any", None))

    def request(chosen: FetchRound) -> tuple[list[tuple[int, int]], list[int]]:
        return named(link._request(stream, chosen))

    assert request(FetchRound(1, 1, [at(0, 5), at(1, 6), at(2, 7)])) == ([(0, 5), (1, 6), (2, 7)], [])
    moved = FetchRound(2, 1, [at(0, 8), at(2, 7)], (), 1, [at(0, 8)], [TopicPartition("t", 1)])
    assert request(moved) == ([(0, 8)], [1])
    # One that began to follow again is named as both: what the leader remembers of it no longer holds.
    again = FetchRound(3, 1, [at(0, 8), at(2, 7)], {TopicPartition("t", 2)}, 2, [at(2, 7)])
    assert request(again) == ([(2, 7)], [2])
    assert request(FetchRound(5, 1, [at(0, 9), at(1, 6)], (), 4, [at(1, 6)])) == ([(0, 9), (1, 6)], [2])
