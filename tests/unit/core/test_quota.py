"""Throttled replicas: the quota itself, the leader's side, the follower's (KIP-73)."""

from __future__ import annotations

from core_harness import AT, Cluster
from hypothesis import given
from hypothesis import strategies as st

from tidegauge_broker.replica.messages import TopicRules
from tidegauge_broker.replica.quota import MOST_SAMPLES, SAMPLE_MS, UNLIMITED, ReplicationQuota, is_throttled


def quota(rate: int) -> ReplicationQuota:
    return ReplicationQuota(lambda: rate)


def test_without_a_limit_nothing_is_exceeded():
    free = quota(UNLIMITED)
    free.record(10**15, 0)
    assert not free.is_limited
    assert not free.is_exceeded(0)


def test_a_burst_is_paid_for_afterwards():
    """1,000 bytes at once against 100 a second: exceeded until ten seconds are over (SimpleRate)."""
    slow = quota(100)
    assert not slow.is_exceeded(0)
    slow.record(1000, 0)
    assert slow.is_exceeded(1)
    assert slow.is_exceeded(9_999)
    assert not slow.is_exceeded(10_000)


def test_a_quota_that_counted_nothing_has_the_rate_0():
    assert quota(100).bytes_per_second(0) == 0


def test_what_is_older_than_eleven_samples_is_forgotten():
    slow = quota(1)
    slow.record(10**6, 0)
    assert slow.is_exceeded(MOST_SAMPLES * SAMPLE_MS - 1)
    assert not slow.is_exceeded(MOST_SAMPLES * SAMPLE_MS)


def test_the_rate_may_change_meanwhile():
    rates = [100]
    one = ReplicationQuota(lambda: rates[0])
    one.record(1000, 0)
    assert one.is_exceeded(1000)
    rates[0] = 1000
    assert not one.is_exceeded(1000)


@given(st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 5000)), max_size=40), st.integers(1, 2000))
def test_whoever_asks_before_each_copy_keeps_the_rate(arrivals: list[tuple[int, int]], rate: int):
    """Over any time at most the rate, but for the one copy that went over it."""
    one, now_ms = quota(rate), 0
    copied: list[tuple[int, int]] = []
    for pause_ms, size in arrivals:
        now_ms += pause_ms
        if not one.is_exceeded(now_ms):
            one.record(size, now_ms)
            copied.append((now_ms, size))
            window = [(at, n) for at, n in copied if now_ms - at < MOST_SAMPLES * SAMPLE_MS]
            seconds = max(now_ms - window[0][0], SAMPLE_MS) / 1000
            assert sum(n for _, n in window[:-1]) <= rate * seconds + 1e-6 + rate


def test_who_is_throttled():
    assert is_throttled(("*",), 3, 1)
    assert is_throttled(("0:1", "3:1"), 3, 1)
    assert not is_throttled(("3:2",), 3, 1)
    assert not is_throttled((), 0, 0)


# In the core


def outside_the_isr(**throttled: tuple[str, ...]) -> Cluster:
    """Broker 3 has nothing of five batches and is not in the ISR 1, 2; broker 2 has nothing yet either."""
    cluster = Cluster(rules=TopicRules(**throttled))
    cluster.impose(1, (1, 2))
    cluster.deliver()
    for number in range(5):
        cluster.produce(1, f"value {number}", acks=1)
    return cluster


def exceeded(now_ms: int) -> ReplicationQuota:
    used = quota(10)
    used.record(1000, now_ms)
    return used


def test_the_leader_gives_nothing_to_a_throttled_replica_outside_the_isr():
    """ReplicaManager.shouldLeaderThrottle: who is in sync gets all, and so does a consumer."""
    cluster = outside_the_isr(leader_throttled_replicas=("0:1",))
    cluster.brokers[1].core.fetches.quota = exceeded(cluster.now_ms)
    cluster.fetch(3)
    assert cluster.partition(3).log_end_offset == 0
    cluster.fetch(2)
    assert cluster.partition(2).log_end_offset == 5
    cluster.advance(100_001)
    cluster.fetch(3)
    assert cluster.partition(3).log_end_offset == 5


def test_a_replica_that_is_not_named_is_not_throttled():
    cluster = outside_the_isr(leader_throttled_replicas=("0:2", "1:1"))
    cluster.brokers[1].core.fetches.quota = exceeded(cluster.now_ms)
    cluster.fetch(3)
    assert cluster.partition(3).log_end_offset == 5


def test_a_throttled_follower_asks_for_nothing_until_it_may():
    """ReplicaFetcherThread: left out of its fetches; what it takes is counted."""
    cluster = outside_the_isr(follower_throttled_replicas=("*",))
    follower = cluster.brokers[3].core
    follower.following.quota = exceeded(cluster.now_ms)
    assert cluster.ask(3) is None
    cluster.advance(100_001)
    cluster.fetch(3)
    assert cluster.partition(3).log_end_offset == 5
    assert follower.following.quota.bytes_per_second(cluster.now_ms) > 0


def test_the_leader_counts_what_it_sends_of_throttled_replicas():
    cluster = outside_the_isr(leader_throttled_replicas=("*",))
    leader = cluster.brokers[1].core
    leader.fetches.quota = quota(10)
    leader.note_sent(AT, 1000, cluster.now_ms)
    assert leader.fetches.quota.is_exceeded(cluster.now_ms)
