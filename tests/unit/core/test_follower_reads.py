"""Consumers that read from followers (KIP-392): what a follower gives, and whom a leader names.

"Followers serve consumers up to their own high watermark"; the leader chooses by ``replica.selector.class``.
"""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.effects import RespondToFetch
from tidegauge_broker.replica.messages import CONSUMER, FetchPartition, FetchRequest, FetchResult

NONE = ErrorCode.NONE


def settled(*values: str) -> Cluster:
    """Three replicas, led by broker 1; the values are committed, and all replicas know."""
    cluster = Cluster()
    cluster.settle()
    for value in values:
        cluster.produce(1, value, acks=1)
    cluster.settle()
    return cluster


def racks(cluster: Cluster, **by_broker: str) -> None:
    """Turn the selector on at the leader; ``b2="east"``: broker 2 is in rack east."""
    cluster.brokers[1].core.fetches.rack_of = lambda broker_id: by_broker.get(f"b{broker_id}")


def test_a_follower_serves_a_consumer_that_knows_of_it_and_no_other():
    """KIP-392: Fetch version 11 and later; one that gives no rack has an empty one."""
    cluster = settled("a")
    for rack in ("", "anywhere"):
        result = cluster.consume(2, 0, rack=rack).result
        assert (result.error, result.high_watermark, result.records) == (NONE, 1, cluster.content(1)[0][2])
    assert cluster.consume(2, 0).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_gives_up_to_its_own_high_watermark():
    """It has the record, and does not know yet that it is committed: the consumer gets nothing, and no error."""
    cluster = settled("a")
    cluster.produce(1, "b", acks=1)
    cluster.fetch(2)
    assert cluster.ends(2) == [(2, 1)]
    for offset in (1, 2):
        result = cluster.consume(2, offset, rack="").result
        assert (result.error, result.high_watermark, result.records) == (NONE, 1, b"")
    cluster.fetch(3)
    cluster.fetch(3)
    assert cluster.ends(1) == [(2, 1)]
    cluster.settle()
    assert cluster.consume(2, 1, rack="").result.records


@pytest.mark.parametrize("offset", [-1, 2, 9])
def test_an_offset_that_a_follower_lacks_is_out_of_range(offset: int):
    """KIP-392, "Handling out of range errors": the consumer asks the leader then. The leader may have the offset."""
    cluster = settled("a")
    cluster.produce(1, "b", acks=1)
    assert cluster.consume(2, offset, rack="").error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster.consume(1, 2, rack="").error is NONE


@pytest.mark.parametrize(("epoch", "error"), [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)])
def test_a_follower_compares_the_epoch_first(epoch: int, error: ErrorCode):
    """KIP-320 holds at followers, too."""
    cluster = settled("a")
    cluster.impose(1, [1, 2, 3])
    cluster.deliver()
    assert cluster.consume(2, 0, epoch=epoch, rack="").error is error
    assert cluster.consume(2, 0, epoch=1, rack="").error is NONE


def test_only_replicas_serve():
    """A broker without the partition has NOT_LEADER_OR_FOLLOWER: the consumer renews its metadata."""
    cluster = Cluster(brokers=(1, 2, 3, 4))
    cluster.settle()
    assert cluster.consume(4, 0, rack="").error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_parked_fetch_at_a_follower_completes_when_its_high_watermark_moves():
    """ReplicaFetcherThread completes delayed fetches of partitions whose high watermark it has moved."""
    cluster = settled("a")
    waiting = cluster.consume(2, 1, wait_ms=10_000, rack="")
    assert not waiting.is_completed
    cluster.produce(1, "b", acks=1)
    cluster.settle()
    assert (waiting.error, waiting.result.high_watermark) == (NONE, 2)
    assert waiting.result.records


def test_a_leader_that_becomes_follower_goes_on_serving_who_may_read_there():
    """A fetch that is parked there has no reason to end; one that only leaders may serve hears of the new one."""
    cluster = settled("a")
    stays, ends = cluster.consume(1, 1, wait_ms=10_000, rack=""), cluster.consume(1, 1, wait_ms=10_000)
    cluster.impose(2, [1, 2, 3])
    cluster.deliver()
    assert ends.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert not stays.is_completed


def asked(cluster: Cluster, rack: str | None, offset: int = 0) -> FetchResult | None:
    """The leader's immediate response; None: the fetch is parked."""
    wanted = [FetchPartition(AT, offset, 1 << 20)]
    request = FetchRequest(CONSUMER, 10_000, 1, 1 << 20, wanted, client_rack=rack)
    responses = cluster.brokers[1].core.fetch(request, object(), cluster.now_ms)
    results = [result for response in responses if isinstance(response, RespondToFetch) for result in response.results]
    return results[0] if results else None


def preferred(cluster: Cluster, rack: str | None, offset: int = 0) -> int | None:
    result = asked(cluster, rack, offset)
    assert result is not None
    assert result.error is NONE
    return result.preferred_read_replica


def test_a_leader_names_the_follower_in_the_consumers_rack():
    """RackAwareReplicaSelector: no rack, the leader's, or one without a replica: the leader itself serves."""
    cluster = settled("a")
    assert preferred(cluster, "east") is None, "off by default"
    racks(cluster, b1="west", b2="east", b3="north")
    assert [preferred(cluster, rack) for rack in ("east", "north")] == [2, 3]
    assert [preferred(cluster, rack) for rack in ("west", "south", "", None)] == [None] * 4
    result = asked(cluster, "east")
    assert result is not None
    assert (result.read, result.high_watermark) == (None, 1), "there are no records beside a preferred replica"


def test_one_that_has_the_offset_is_named_at_once_though_there_is_nothing_to_read():
    """ReplicaManager.fetchMessages: hasPreferredReadReplica."""
    cluster = settled("a")
    racks(cluster, b1="west", b2="east")
    assert preferred(cluster, "east", 1) == 2
    cluster.produce(1, "b", acks=1)
    assert asked(cluster, "east", 2) is None, "the follower lacks the offset, so the leader keeps the fetch"


def test_the_follower_with_the_largest_log_end_is_named():
    """ReplicaView.comparator."""
    cluster = settled("a")
    racks(cluster, b1="west", b2="east", b3="east")
    cluster.produce(1, "b", acks=1)
    cluster.fetch(2)
    cluster.fetch(2)
    assert preferred(cluster, "east") == 2
    cluster.settle()
    cluster.produce(1, "c", acks=1)
    cluster.fetch(3)
    cluster.fetch(3)
    assert preferred(cluster, "east") == 3


def test_a_follower_outside_the_isr_is_not_named():
    cluster = settled("a")
    racks(cluster, b1="west", b2="east", b3="east")
    cluster.impose(1, [1, 3])
    cluster.deliver()
    cluster.fetch(3)
    assert preferred(cluster, "east") == 3
    racks(cluster, b1="west", b2="east")
    cluster.fetch(2)  # it has all records now, and its leader has only proposed to take it back
    assert preferred(cluster, "east") is None


def test_records_that_come_with_a_high_watermark_above_them_are_given_at_once():
    """A follower that catches up learns in one round of the records and that they are committed."""
    cluster = settled("a")
    cluster.impose(1, [1, 3])
    cluster.deliver()
    waiting = cluster.consume(2, 1, wait_ms=1_000_000, rack="")
    cluster.now_ms += 100_000  # broker 2 has not been caught up for longer than replica.lag.time.max.ms
    cluster.fetch(3)
    cluster.produce(1, "b", acks=1)
    for _ in range(2):
        cluster.fetch(3)
    assert cluster.ends(1) == [(2, 2)]
    cluster.fetch(2)
    assert cluster.ends(2) == [(2, 2)]
    assert waiting.is_completed
    assert waiting.result.records
