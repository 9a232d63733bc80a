"""Keep what a leader knows of one remote replica, and its caught-up clock (Kafka's Replica)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidegauge.partition import TopicPartition
    from tidegauge_broker.replica.standing_fetch import StandingFetch

UNKNOWN_OFFSET = -1


@dataclass(slots=True)
class RemoteReplica:
    """State of a remote replica as its fetches report it; times are ms, 0 before the first.

    Attributes:
        log_end_offset: set to the fetch offset by each fetch, also downwards; -1 before the first.
        log_start_offset: as the follower reports it; -1 before the first fetch.
        last_fetch_leader_log_end_offset: the leader's end at the previous fetch.
        last_fetch_time_ms: arrival of the previous fetch.
        last_caught_up_time_ms: the last time at which it had all that the leader had.
        broker_epoch: of the incarnation that fetched last; -1 if that is unknown.
        covered_by: a session whose fetches count for it without being looked at (``standing_fetch``); after ``settle``
            the two times are its latest fetch's.
    """

    broker_id: int
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    last_fetch_leader_log_end_offset: int = UNKNOWN_OFFSET
    last_fetch_time_ms: int = 0
    last_caught_up_time_ms: int = 0
    broker_epoch: int = -1
    covered_by: StandingFetch | None = field(default=None, compare=False)

    def settle(self) -> None:
        """Bring the times up to date: a session's fetch finds what it covers at the leader's log end."""
        session = self.covered_by
        if session is not None and session.time_ms > self.last_fetch_time_ms:
            self.last_fetch_time_ms = session.time_ms
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, session.time_ms)

    def end_cover(self, at: TopicPartition) -> None:
        """Let no session's fetch count for it until it is looked at again."""
        if self.covered_by is not None:
            self.covered_by.end_cover(at)

    def fetched(self, fetch_offset: int, log_start_offset: int, leader_log_end_offset: int, now_ms: int) -> None:
        """Record a fetch that has arrived. ``leader_log_end_offset`` is the leader's end before it was read.

        Caught up now if it asks for the leader's end; caught up at the previous fetch if it asks for the end as of
        then. So a steadily loaded follower counts as in sync though it never reaches the moving end.
        """
        if fetch_offset >= leader_log_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_log_end_offset:
            self.last_caught_up_time_ms = max(self.last_caught_up_time_ms, self.last_fetch_time_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_log_end_offset = max(leader_log_end_offset, self.last_fetch_leader_log_end_offset)
        self.last_fetch_time_ms = now_ms

    def reset(self, now_ms: int, *, in_isr: bool, keep_offset: bool, epoch_start_offset: int) -> None:
        """Start a new leader epoch. ISR members count as caught up now, others as never.

        ``keep_offset`` is Kafka's rule for a leader that is elected again: it keeps its followers' ends of the
        former epoch, though a follower may have truncated since (docs/results/rules-taken-away.md, M6).
        Off by default here.
        """
        if keep_offset:
            self.last_fetch_leader_log_end_offset = epoch_start_offset
            self.last_fetch_time_ms = now_ms if in_isr else 0
        else:
            self.log_end_offset = UNKNOWN_OFFSET
            self.log_start_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_time_ms = 0
        self.last_caught_up_time_ms = now_ms if in_isr else 0
