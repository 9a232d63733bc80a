"""The core's records have the wall clock's time, whatever the core's own clock says (Time.SYSTEM.milliseconds())."""

import pytest
from tests.unit.core.harness import AT, Cluster

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.messages import TopicRules

HOUR_MS = 3_600_000


def skewed(ahead_ms: int, **rules: object) -> Cluster:
    cluster = Cluster(rules=TopicRules(**rules))
    cluster.settle()
    for broker in cluster.brokers.values():
        broker.core.wall.ahead_ms = ahead_ms
    return cluster


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
def test_log_append_time_is_the_wall_clocks(ahead_ms: int):
    """UnifiedLog.append gives a batch time.milliseconds() of its append."""
    cluster = skewed(ahead_ms, log_append_time=True)
    assert cluster.produce(1, "a", acks=1).result.log_append_time_ms == cluster.now_ms + ahead_ms


@pytest.mark.parametrize("ahead_ms", [HOUR_MS, -HOUR_MS])
def test_a_record_of_the_wall_clocks_now_is_within_every_limit(ahead_ms: int):
    """LogValidator compares with time.milliseconds() (KIP-937): a broker that slept must not refuse today's records."""
    cluster = skewed(ahead_ms, timestamp_before_max_ms=1_000, timestamp_after_max_ms=1_000)
    now_ms = cluster.now_ms
    assert cluster.produce(1, "a", acks=1, times_ms=[now_ms + ahead_ms]).error is ErrorCode.NONE
    assert cluster.produce(1, "b", acks=1, times_ms=[now_ms]).error is ErrorCode.INVALID_TIMESTAMP


def test_a_producer_expires_by_the_wall_clock_with_which_its_batches_are_stamped():
    """ProducerStateManager.removeExpiredProducers compares its last batch's timestamp with time.milliseconds()."""
    cluster = skewed(0)
    core = cluster.brokers[1].core
    cluster.produce(1, "a", acks=1, producer_id=7, producer_epoch=0, sequence=0, times_ms=[cluster.now_ms])
    partition = core.partition(AT)
    limit_ms = core.settings.producer_id_expiration_ms
    core.tick(cluster.now_ms)
    assert [entry.producer_id for entry in partition.producer_state.entries()] == [7]
    core.wall.ahead_ms = limit_ms
    core.tick(cluster.now_ms + 600_000)
    assert not list(partition.producer_state.entries())
