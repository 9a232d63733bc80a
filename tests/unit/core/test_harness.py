"""The harness itself: a produced record reaches all replicas and is committed, and what it checks, it checks."""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.effects import RespondToProduce, TruncateLog
from tidegauge_broker.replica.messages import ProduceResult


def test_a_record_goes_all_the_way():
    cluster = Cluster()
    assert cluster.state == (1, (1, 2, 3), 0, 0)
    produce = cluster.produce(1, "a")
    assert not produce.is_completed
    cluster.settle()
    assert (produce.error, produce.result.base_offset) == (ErrorCode.NONE, 0)
    assert cluster.ends(1, 2, 3) == [(1, 1)] * 3
    assert cluster.content(1) == cluster.content(2) == cluster.content(3)
    assert cluster.epochs(3) == [(0, 0)]


def test_a_response_before_its_log_effect_is_refused():
    cluster = Cluster()
    cluster.produce(1, "a", "b", acks=1)
    broker = cluster.brokers[1]
    reported_first = [RespondToProduce("token", [ProduceResult(AT)]), TruncateLog(AT, 0)]
    with pytest.raises(AssertionError, match="I8"):
        broker.execute(reported_first)


def test_a_log_that_differs_from_the_core_is_noticed():
    cluster = Cluster()
    cluster.produce(1, "a", acks=1)
    cluster.brokers[1].disk[AT].log_end_offset = 0
    with pytest.raises(AssertionError):
        cluster.advance(1)
