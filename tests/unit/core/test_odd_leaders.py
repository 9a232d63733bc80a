"""Odd messages of a leader are errors of the follower, and never reach an assertion.

Kafka: Partition.appendRecordsToFollowerOrFutureReplica, LogSegment.ensureOffsetInRange.
"""

from __future__ import annotations

import pytest
from lone_broker import OTHER, A, LoneBroker, broker_of, led, role

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.follower import LARGEST_SPAN
from tidegauge_broker.replica.messages import FetchedPartition
from tidegauge_broker.replica.roles import Role


def follower() -> LoneBroker:
    broker = broker_of(A)
    role(broker, OTHER, 3)
    return broker


def responded(broker: LoneBroker, records: bytes, error: ErrorCode = ErrorCode.NONE, log_start_offset: int = 0) -> None:
    chosen = broker.core.next_round(OTHER, broker.now_ms)
    response = FetchedPartition(A, error, log_start_offset=log_start_offset, log_end_offset=9, records=records)
    broker.execute(broker.core.fetch_response_received(OTHER, chosen.request_id, [response], broker.now_ms))


def test_batches_that_end_below_an_empty_log_mark_the_follower_failed() -> None:
    """An empty log may begin within a batch, which then reaches its end; one below it is an offset mismatch."""
    broker = follower()
    responded(broker, b"", ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=5)
    assert (broker.disk[A].log_start_offset, broker.disk[A].log_end_offset) == (5, 5)
    responded(broker, led("x", epoch=3, offset=2))
    assert broker.core.partition(A).role is Role.FOLLOWER
    assert broker.core.partition(A).follower_role.failed
    assert broker.disk[A].log_end_offset == 5
    assert any("Offset mismatch" in line for line in broker.lines)


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_batch_at_a_negative_offset_is_corrupt(offset: int) -> None:
    broker = follower()
    responded(broker, led("x", "y", epoch=3, offset=offset))
    assert broker.core.partition(A).role is Role.FOLLOWER
    assert broker.disk[A].log_end_offset == 0
    assert any("out of order" in line for line in broker.lines)


def test_batches_too_far_apart_for_one_segment_are_fetched_one_after_the_other() -> None:
    """A leader's compaction may leave such a gap; its response may hold both sides of it."""
    broker = follower()
    responded(broker, led("x", epoch=3) + led("y", epoch=3, offset=LARGEST_SPAN + 1))
    assert broker.disk[A].log_end_offset == 1
    responded(broker, led("y", epoch=3, offset=LARGEST_SPAN + 1))
    assert broker.disk[A].log_end_offset == LARGEST_SPAN + 2
