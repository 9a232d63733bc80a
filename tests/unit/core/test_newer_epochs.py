"""A follower leaves out batches of an epoch above its own (KAFKA-18723, UnifiedLog.analyzeAndValidateRecords).

A leader that is elected again while a response is on its way may have put batches of the new epoch into it.
"""

from __future__ import annotations

import pytest
from lone_broker import OTHER, A, B, broker_of, led, role

from tidegauge_broker.replica.messages import CoreSettings, FetchedPartition


def responded(broker, records: bytes, high_watermark: int) -> None:
    chosen = broker.core.next_round(OTHER, broker.now_ms)
    response = FetchedPartition(A, high_watermark=high_watermark, log_start_offset=0, records=records)
    broker.execute(broker.core.fetch_response_received(OTHER, chosen.request_id, [response], broker.now_ms))


def test_the_rest_of_a_fetch_is_skipped_from_the_first_batch_of_a_higher_epoch() -> None:
    broker = broker_of(A, B)
    role(broker, OTHER, 3)
    set_of_four = b"".join(led("x", epoch=epoch, offset=at) for at, epoch in enumerate([2, 3, 4, 3]))
    responded(broker, set_of_four, 4)
    assert [epoch for _, epoch, _ in broker.disk[A].content()] == [2, 3]
    assert broker.disk[A].epochs == [(2, 0), (3, 1)]
    assert broker.core.partition(A).high_watermark == 2, "the leader's, as far as the log goes"
    assert broker.core.next_round(OTHER, broker.now_ms).partitions[-1].fetch_offset == 2, "it goes on from there"
    assert any("Skipping the last" in line for line in broker.lines)


def test_a_fetch_of_nothing_but_higher_epochs_appends_nothing() -> None:
    broker = broker_of(A)
    role(broker, OTHER, 3)
    responded(broker, led("x", epoch=4), 1)
    assert broker.disk[A].log_end_offset == 0
    assert broker.disk[A].epochs == []
    role(broker, OTHER, 4)
    responded(broker, led("x", epoch=4), 1)
    assert broker.disk[A].log_end_offset == 1


def test_a_damaged_batch_among_the_skipped_ones_is_not_looked_at() -> None:
    broker = broker_of(A)
    role(broker, OTHER, 3)
    responded(broker, led("x", epoch=3) + led("y", epoch=4, offset=1) + b"\0" * 100, 0)
    assert broker.disk[A].log_end_offset == 1


@pytest.mark.parametrize("length", [1, 60, 61, 68])
def test_a_last_batch_that_is_not_whole_is_fetched_again_without_a_word(length: int) -> None:
    """Kafka's leader reads so many bytes of a segment, wherever a batch ends (UnifiedLog.trimInvalidBytes)."""
    broker = broker_of(A)
    role(broker, OTHER, 3)
    responded(broker, led("x", epoch=3) + led("y", epoch=3, offset=1)[:length], 2)
    assert broker.disk[A].log_end_offset == 1
    assert broker.core.next_round(OTHER, broker.now_ms).partitions[-1].fetch_offset == 1
    assert not any("Skipping" in line or "invalid" in line for line in broker.lines)


@pytest.mark.parametrize("rule", ["high-watermark", "kip-101", "kip-279"])
def test_the_older_rules_take_them(rule: str) -> None:
    """No fetch carried an epoch then, and the leader of a new epoch was followed without a word."""
    broker = broker_of(A)
    broker.settings = CoreSettings(truncation_rule=rule)
    broker.start(1)
    broker.metadata.live = broker_of(A).metadata.live
    role(broker, OTHER, 3)
    responded(broker, led("x", epoch=3) + led("y", epoch=4, offset=1), 0)
    assert broker.disk[A].log_end_offset == 2
