"""What a fetcher's round and a round stepped by the lab have in common: the core, and the causal order of events."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.logical_clock import LogicalClock
from tidegauge.settings import parse_broker_settings
from tidegauge.v1 import common_pb2, fetch_pb2, offsets_pb2
from tidegauge_broker.replica.messages import EpochRound, FetchRound
from tidegauge_broker.server.replication.fetchers import FetcherIdentity, Fetchers, RoundFailed


class Manager:
    """Notes what the core is given."""

    def __init__(self) -> None:
        self.given: list[tuple[Any, ...]] = []

    def fetch_response_received(self, *given: Any) -> None:
        self.given.append(given)

    def epoch_ends_received(self, *given: Any) -> None:
        self.given.append(given)


class Metadata:
    def endpoint(self, broker_id: int) -> None:
        """No broker lives."""


@pytest.fixture
def fetchers() -> Fetchers:
    identity = FetcherIdentity(2, "cluster", lambda: 1)
    settings, _ = parse_broker_settings({})
    clock = LogicalClock(lambda: 0)
    return Fetchers(
        cast("Any", Manager()), cast("Any", Metadata()), cast("Any", None), identity, settings, lambda: 0, clock
    )


FETCH, EPOCHS = FetchRound(7, 1, ()), EpochRound(8, 1, ())


def test_what_a_round_brings_is_later_than_what_its_leader_had_done(fetchers: Fetchers) -> None:
    """Else the timeline shows a record on the follower before it is on the leader (docs/events.md, causal order)."""
    fetchers.take_fetch(FETCH, fetch_pb2.ReplicaFetchResponse(logical_time=50))
    assert fetchers.logical_clock.tick() == 51
    fetchers.take_epochs(EPOCHS, offsets_pb2.OffsetsForLeaderEpochResponse(logical_time=90))
    assert fetchers.logical_clock.tick() == 91
    assert fetchers.epoch_request(EPOCHS).logical_time == 91
    assert cast("Any", fetchers.manager).given == [(1, 7, []), (1, 8, [])]


def test_a_leader_that_refuses_the_whole_fails_the_round_and_the_core_is_given_nothing(fetchers: Fetchers) -> None:
    refused = fetch_pb2.ReplicaFetchResponse(error=common_pb2.ERROR_CODE_STALE_BROKER_EPOCH, error_message="stale")
    with pytest.raises(RoundFailed, match="stale") as failed:
        fetchers.take_fetch(FETCH, refused)
    assert failed.value.error is ErrorCode.STALE_BROKER_EPOCH
    assert cast("Any", fetchers.manager).given == []


def test_a_leader_that_is_not_live_is_not_asked(fetchers: Fetchers) -> None:
    with pytest.raises(RoundFailed, match="leader 1 is not among the live brokers") as failed:
        fetchers.address_of(1)
    assert failed.value.error is ErrorCode.BROKER_NOT_AVAILABLE
