"""DeleteRecords: bounds, policy, and the wait for all live replicas (KIP-107)."""

from __future__ import annotations

from core_harness import AT, Cluster, Pending

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import RecordsToDelete, TopicRules


def delete(cluster, before_offset, *, broker_id=1, timeout_ms=1_000, at=AT):
    broker = cluster.brokers[broker_id]
    pending = Pending(broker.deleted)
    wanted = [RecordsToDelete(at, before_offset)]
    broker.execute(broker.core.delete_records(wanted, timeout_ms, pending, cluster.now_ms))
    return pending


def five_committed(**options):
    cluster = Cluster(**options)
    cluster.produce(1, *"abcde", key="k")
    cluster.settle()
    return cluster


def starts(cluster):
    return [cluster.partition(broker_id).log_start_offset for broker_id in (1, 2, 3)]


def test_it_waits_until_all_live_replicas_have_moved_their_log_start():
    cluster = five_committed()
    pending = delete(cluster, 3)
    assert starts(cluster) == [3, 0, 0]
    cluster.fetch(2)  # the response carries the new log start offset
    cluster.fetch(3)
    assert starts(cluster) == [3, 3, 3]
    cluster.fetch(2)  # the next request tells the leader
    assert not pending.is_completed
    cluster.fetch(3)
    assert (pending.error, pending.result.low_watermark) == (ErrorCode.NONE, 3)


def test_the_high_watermark_is_meant_by_none_and_by_minus_one():
    for word in (None, -1):
        cluster = five_committed()
        delete(cluster, word)
        assert cluster.partition(1).log_start_offset == 5


def test_a_dead_replica_is_not_waited_for():
    cluster = five_committed()
    cluster.kill(3)
    pending = delete(cluster, 2)
    cluster.fetch(2)
    cluster.fetch(2)
    assert not pending.is_completed
    cluster.expire_session(3)
    cluster.settle()
    assert (pending.error, pending.result.low_watermark) == (ErrorCode.NONE, 2)


def test_what_is_already_deleted_needs_no_wait():
    cluster = five_committed()
    delete(cluster, 4)
    cluster.settle()
    for broker_id in (2, 3):
        cluster.fetch(broker_id)
        cluster.fetch(broker_id)
    pending = delete(cluster, 2)
    assert (pending.error, pending.result.low_watermark) == (ErrorCode.NONE, 4)
    assert starts(cluster) == [4, 4, 4], "never back"


def test_offsets_outside_are_refused():
    cluster = five_committed()
    cluster.produce(1, "f")
    for offset, words in ((6, "larger than the high watermark 5"), (-2, "The offset -2 for partition")):
        pending = delete(cluster, offset)
        assert pending.error is ErrorCode.OFFSET_OUT_OF_RANGE
        assert words in pending.result.message
        assert pending.result.low_watermark == -1
    assert cluster.partition(1).log_start_offset == 0


def test_a_topic_that_is_only_compacted_refuses():
    cluster = five_committed(rules=TopicRules(compacted=True, deletes=False))
    assert delete(cluster, 1).error is ErrorCode.POLICY_VIOLATION
    cluster = five_committed(rules=TopicRules(compacted=True, deletes=True))
    assert not delete(cluster, 1).is_completed, "compact,delete allows it"


def test_only_the_leader_deletes():
    cluster = five_committed()
    assert delete(cluster, 1, broker_id=2).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert delete(cluster, 1, at=TopicPartition("nothing", 0)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_timeout_ends_the_wait_and_the_records_are_deleted_all_the_same():
    cluster = five_committed()
    pending = delete(cluster, 3, timeout_ms=500)
    cluster.advance(499)
    assert not pending.is_completed
    assert cluster.brokers[1].core.next_deadline_ms() == cluster.now_ms + 1
    cluster.advance(1)
    assert pending.error is ErrorCode.REQUEST_TIMED_OUT
    assert cluster.partition(1).log_start_offset == 3


def test_who_waits_hears_that_the_leader_is_another():
    cluster = five_committed()
    pending = delete(cluster, 3)
    cluster.impose(2, (1, 2, 3))
    cluster.deliver()
    assert pending.error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_consumers_below_the_log_start_are_out_of_range():
    cluster = five_committed()
    delete(cluster, 3)
    assert cluster.consume(1, 2).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.consume(1, 3).error is ErrorCode.NONE


def test_epochs_below_the_log_start_go_but_their_epoch_stays():
    """LeaderEpochFileCache.truncateFromStart keeps the epoch that covers the new start."""
    cluster = five_committed()
    cluster.impose(2, (1, 2, 3))
    cluster.settle()
    cluster.produce(2, "f")
    cluster.settle()
    delete(cluster, 3, broker_id=2)
    first, second = cluster.partition(2).epochs.entries
    assert (first.start_offset, second.start_offset) == (3, 5)


def test_an_empty_replica_takes_the_batch_in_whose_middle_the_log_starts():
    """UnifiedLog.append: what begins below the end of a log does not fit, unless the log is empty."""
    cluster = Cluster()
    cluster.settle()
    cluster.kill(3)
    cluster.expire_session(3)
    cluster.settle()
    cluster.produce(1, *"abcde")
    cluster.settle()
    delete(cluster, 3)
    cluster.start(3)
    cluster.settle()
    assert cluster.ends(3) == [(5, 5)]
    assert cluster.partition(3).log_start_offset == 3
    assert cluster.content(3) == cluster.content(1)
