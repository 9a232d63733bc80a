"""ListOffsets as the leader serves it (Partition.fetchOffsetForTimestamp)."""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import (
    DEBUGGING_CONSUMER,
    OffsetLookup,
    OffsetResult,
    RecordsToDelete,
    TimeLookup,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5


def five_committed() -> Cluster:
    cluster = Cluster()
    cluster.settle()
    cluster.produce(1, *"abcde")
    cluster.settle()
    return cluster


def offset(cluster: Cluster, timestamp_ms: int, broker_id: int = 1) -> int:
    response = cluster.brokers[broker_id].core.list_offset(OffsetLookup(AT, timestamp_ms))
    assert isinstance(response, OffsetResult)
    assert response.error is ErrorCode.NONE
    return response.offset


def test_latest_is_the_high_watermark_and_earliest_the_log_start() -> None:
    cluster = five_committed()
    cluster.produce(1, "f", acks=1)  # not committed
    broker = cluster.brokers[1]
    broker.execute(broker.core.delete_records([RecordsToDelete(AT, 2)], 1000, object(), cluster.now_ms))
    assert [offset(cluster, at) for at in (LATEST, EARLIEST)] == [5, 2]


def test_without_tiered_storage_all_is_local_and_nothing_tiered() -> None:
    """KIP-1005's -4 and -5: the log start, and nothing (offset -1)."""
    cluster = five_committed()
    broker = cluster.brokers[1]
    broker.execute(broker.core.delete_records([RecordsToDelete(AT, 2)], 1000, object(), cluster.now_ms))
    assert [offset(cluster, at) for at in (EARLIEST_LOCAL, LATEST_TIERED)] == [2, -1]


@pytest.mark.parametrize("timestamp_ms", [LATEST, EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, 5])
def test_only_the_leader_responds(timestamp_ms: int) -> None:
    cluster = five_committed()
    refused = cluster.brokers[2].core.list_offset(OffsetLookup(AT, timestamp_ms))
    assert isinstance(refused, OffsetResult)
    assert refused.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = cluster.brokers[1].core.list_offset(OffsetLookup(TopicPartition("nothing", 0), timestamp_ms))
    assert isinstance(unknown, OffsetResult)
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_new_leader_that_lags_finds_no_offset_by_time_yet():
    """Partition.fetchOffsetForTimestamp: OFFSET_NOT_AVAILABLE beyond what may be read, while the epoch is not."""
    cluster = five_committed()
    cluster.produce(1, "f")
    cluster.fetch(2)
    cluster.kill(1)
    cluster.impose(2, (1, 2, 3))
    cluster.deliver()
    found = cluster.brokers[2].core.list_offset(OffsetLookup(AT, 99))
    assert isinstance(found, TimeLookup)
    assert found.nothing.error is ErrorCode.OFFSET_NOT_AVAILABLE
    found = cluster.brokers[2].core.list_offset(OffsetLookup(AT, -1))
    assert isinstance(found, OffsetResult)
    assert found.error is ErrorCode.OFFSET_NOT_AVAILABLE


def test_a_debugging_consumer_gets_offsets_from_any_replica() -> None:
    """Replica id -2: Partition.fetchOffsetForTimestamp is not restricted to the leader for it."""
    cluster = five_committed()
    core = cluster.brokers[2].core
    found = core.list_offset(OffsetLookup(AT, EARLIEST, replica_id=DEBUGGING_CONSUMER))
    assert isinstance(found, OffsetResult)
    assert (found.error, found.offset) == (ErrorCode.NONE, 0)
    fenced = core.list_offset(OffsetLookup(AT, EARLIEST, current_leader_epoch=99, replica_id=DEBUGGING_CONSUMER))
    assert isinstance(fenced, OffsetResult)
    assert fenced.error is ErrorCode.UNKNOWN_LEADER_EPOCH


def test_an_offset_has_the_epoch_of_its_record_and_the_log_end_the_present_one() -> None:
    """UnifiedLog.fetchOffsetByTimestamp: a client that reads on there compares this epoch with the log (KIP-320)."""
    cluster = five_committed()
    for epoch in (1, 2):
        cluster.impose(1, (1, 2, 3))
        cluster.deliver()
        cluster.settle()
        cluster.produce(1, "x")
        cluster.settle()
        assert cluster.brokers[1].core.led_epoch(AT) == epoch
    broker = cluster.brokers[1]

    def epochs() -> list[int]:
        found = [broker.core.list_offset(OffsetLookup(AT, at)) for at in (EARLIEST, EARLIEST_LOCAL, LATEST)]
        assert all(isinstance(one, OffsetResult) for one in found)
        return [one.leader_epoch for one in found]

    assert epochs() == [0, 0, 2]
    assert [broker.core.epoch_at(AT, offset) for offset in (0, 4, 5, 6)] == [0, 0, 1, 2]
    broker.execute(broker.core.delete_records([RecordsToDelete(AT, 5)], 1000, object(), cluster.now_ms))
    assert epochs() == [1, 1, 2]
    assert broker.core.epoch_at(AT, 4) == -1, "it is known no longer"
    assert broker.core.epoch_at(TopicPartition("nothing", 0), 0) == -1
