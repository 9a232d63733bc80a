"""Decide which replicas are in sync, and the high watermark: rules that the leader applies and ``explain`` reports.

Pure functions over plain values, so that every place that decides or explains asks the same question here:

- a follower is *caught up* if it has the leader's whole log, or had it within replica.lag.time.max.ms
  (Replica.isCaughtUp);
- a follower outside the ISR *may join* once its fetch offset has reached the high watermark and the start of the
  leader's epoch (Partition.isFollowerInSync; the second condition fixed KAFKA-7128);
- the *high watermark* is the smallest log end offset over the leader, the maximal ISR (KIP-497) and every live replica
  that is caught up though not in the ISR (Partition.maybeIncrementLeaderHW). It does not move at all while the
  committed ISR is smaller than min(min.insync.replicas, replication factor) (since Kafka 3.7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Literal, Protocol

JoinObstacle = Literal["high-watermark", "epoch-start"]


class FollowerProgress(Protocol):
    """The leader's view of a follower's log.

    Attributes:
        broker_id: the follower.
        log_end_offset: the offset of its last fetch; -1 before the first fetch of this leader's epoch.
        last_caught_up_time_ms: the last time at which it had all that the leader had.
    """

    @property
    def broker_id(self) -> int:
        """Return the follower's broker id."""
        ...

    @property
    def log_end_offset(self) -> int:
        """Return the offset of its last fetch."""
        ...

    @property
    def last_caught_up_time_ms(self) -> int:
        """Return when it last had all that the leader had."""
        ...


def effective_min_isr(min_insync_replicas: int, replica_count: int) -> int:
    """Return the ISR size that acks=all requires: min.insync.replicas, at most all replicas."""
    return min(min_insync_replicas, replica_count)


def is_caught_up(follower: FollowerProgress, leader_log_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
    """Whether a follower has the leader's whole log, or had it within the lag time (inclusive)."""
    return (
        follower.log_end_offset == leader_log_end_offset or now_ms - follower.last_caught_up_time_ms <= lag_time_max_ms
    )


def obstacle_to_joining(log_end_offset: int, high_watermark: int, epoch_start_offset: int) -> JoinObstacle | None:
    """Return the next offset that a follower outside the ISR must reach.

    None: it may join. The high watermark comes first: below it, committed records are missing. Between it and the
    start of the leader's epoch lie records that the leader holds and may commit, so that a replica without
    them must not be elected.
    """
    if log_end_offset < high_watermark:
        return "high-watermark"
    if log_end_offset < epoch_start_offset:
        return "epoch-start"
    return None


def bounds_high_watermark(
    follower: FollowerProgress,
    leader_log_end_offset: int,
    maximal_isr: Collection[int],
    live: Collection[int],
    now_ms: int,
    lag_time_max_ms: int,
) -> bool:
    """Return whether the high watermark must not pass a follower's log end offset."""
    return follower.broker_id in maximal_isr or (
        follower.broker_id in live and is_caught_up(follower, leader_log_end_offset, now_ms, lag_time_max_ms)
    )


def high_watermark_bound(
    followers: Iterable[FollowerProgress],
    leader_log_end_offset: int,
    maximal_isr: Collection[int],
    live: Collection[int],
    now_ms: int,
    lag_time_max_ms: int,
) -> int:
    """Return the bound of the high watermark; callers never lower it.

    Args:
        followers: all assigned replicas but the leader.
        leader_log_end_offset: the leader's own log end offset (exclusive).
        maximal_isr: the ISR with every replica that a pending change may have added.
        live: the brokers that are registered and not shutting down.
        now_ms: the leader's clock.
        lag_time_max_ms: replica.lag.time.max.ms.
    """
    bound = leader_log_end_offset
    for follower in followers:
        end = follower.log_end_offset
        if end < bound and bounds_high_watermark(
            follower, leader_log_end_offset, maximal_isr, live, now_ms, lag_time_max_ms
        ):
            bound = end
    return bound


def may_move(isr_size: int, min_isr: int) -> bool:
    """Whether the committed ISR is large enough for the high watermark to move, given the effective minimum."""
    return isr_size >= min_isr
