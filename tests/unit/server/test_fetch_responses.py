"""Leaders in the response to a Fetch: named to all, with their addresses to consumers alone (KIP-951)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import FetchResult
from tidegauge_broker.server.wire.kafka import fetch_responses
from tidegauge_broker.server.wire.kafka.fetch_responses import Read, response_of
from tidegauge_broker.server.wire.kafka.sessions import Place

LEADER = SimpleNamespace(leader=2, leader_epoch=7)
ADDRESS = SimpleNamespace(broker_id=2, host="h", port=9092, rack=None)


@pytest.mark.parametrize("has_addresses", [True, False])
def test_a_follower_is_given_no_addresses(monkeypatch: pytest.MonkeyPatch, *, has_addresses: bool) -> None:
    """``KafkaApis.handleFetchRequest``: a follower knows brokers by its metadata."""
    monkeypatch.setattr(fetch_responses, "endpoint_of", lambda *_: ADDRESS)
    result: Any = FetchResult(TopicPartition("t", 0), ErrorCode.NOT_LEADER_OR_FOLLOWER)
    result.leader_hint = LEADER
    context: Any = SimpleNamespace(version=16)
    response = response_of([Read(Place("t", 0), result, b"")], context, 5, has_addresses=has_addresses)
    [topic] = response.responses
    [partition] = topic.partitions
    assert (partition.current_leader.leader_id, partition.current_leader.leader_epoch) == (2, 7)
    assert [one.node_id for one in response.node_endpoints] == ([2] if has_addresses else [])
