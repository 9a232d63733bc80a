"""The in-sync rules: Replica.isCaughtUp, Partition.isFollowerInSync and Partition.maybeIncrementLeaderHW of Kafka."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tidegauge.in_sync import (
    bounds_high_watermark,
    effective_min_isr,
    high_watermark_bound,
    is_caught_up,
    may_move,
    obstacle_to_joining,
)


@dataclass
class Copy:
    broker_id: int
    log_end_offset: int
    last_caught_up_time_ms: int = 0


def test_a_copy_with_the_leaders_end_is_caught_up_however_long_ago_it_fetched():
    assert is_caught_up(Copy(2, 10), 10, 10**9, 30_000)


@pytest.mark.parametrize(("now_ms", "expected"), [(31_000, True), (31_001, False)])
def test_the_lag_time_is_inclusive(now_ms, expected):
    assert is_caught_up(Copy(2, 9, 1_000), 10, now_ms, 30_000) is expected


@pytest.mark.parametrize(
    ("end", "obstacle"), [(4, "high-watermark"), (5, "epoch-start"), (6, "epoch-start"), (7, None), (8, None)]
)
def test_a_joiner_needs_the_high_watermark_and_the_start_of_the_leaders_epoch(end, obstacle):
    assert obstacle_to_joining(end, 5, 7) == obstacle


def test_the_high_watermark_waits_for_the_maximal_isr_and_for_live_copies_that_are_caught_up():
    member, recent, stale, dead = Copy(2, 8), Copy(3, 6, 900), Copy(4, 3, 0), Copy(5, 2, 999)
    waits = [bounds_high_watermark(copy, 10, (1, 2), {2, 3, 4}, 1_000, 100) for copy in (member, recent, stale, dead)]
    assert waits == [True, True, False, False]
    assert high_watermark_bound([member, recent, stale, dead], 10, (1, 2), {2, 3, 4}, 1_000, 100) == 6
    assert high_watermark_bound([stale, dead], 10, (1,), {4}, 1_000, 100) == 10


def test_min_insync_replicas_counts_at_most_the_replication_factor():
    assert effective_min_isr(3, 2) == 2
    assert may_move(2, 2)
    assert not may_move(1, 2)
