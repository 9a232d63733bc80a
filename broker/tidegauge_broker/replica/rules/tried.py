"""Rules that are tried in place of Kafka's: exercises, and what a search is to find the flaw of.

A broker process never has any. The simulator's brokers do, so that a rule which was written this minute decides
in the very core that brokers run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol

from tidegauge.in_sync import FollowerProgress
from tidegauge_broker.replica.rules.rule import TruncationRule


class HighWatermarkBound(Protocol):
    """The bound of a leader's high watermark, in place of ``tidegauge.in_sync.high_watermark_bound``."""

    def __call__(
        self,
        high_watermark: int,
        followers: Iterable[FollowerProgress],
        leader_log_end_offset: int,
        maximal_isr: Collection[int],
        live: Collection[int],
        now_ms: int,
        lag_time_max_ms: int,
    ) -> int:
        """Return an offset up to the leader's log end; callers never lower it."""
        ...


class TriedRules(Protocol):
    """The rules under trial. None means Kafka's own."""

    @property
    def truncation(self) -> TruncationRule | None:
        """The truncation rule."""
        ...

    @property
    def high_watermark_bound(self) -> HighWatermarkBound | None:
        """The bound of the high watermark."""
        ...
