"""Throttled replicas: the quota itself, the leader's side, the follower's (kafka-behaviour 8.17; KIP-73)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
