"""Counts of a broker's work: requests and their times, records and bytes, ISR changes, elections. Pure.

Counters begin with the process, as Kafka's do. ISR changes and elections are read from the notes for the event log, so
that both always agree. Times are kept for the last ``RESERVOIR`` requests of a kind; Kafka's own reservoir has as many.
Source: RequestMetrics, BrokerTopicMetrics, ReplicaManager's IsrShrinksPerSec, ControllerStats.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

from tidegauge.partition import TopicPartition

RESERVOIR = 1028
LOAD_WINDOW_MS = 60_000
QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
REMOVED = "remove-from-isr"
BROKER_STATES = {"starting": 1, "registered": 3, "shutting-down": 6, "stopped": 0}
"""Kafka's numbers (org.apache.kafka.metadata.BrokerState); a controlled shutdown is pending from its begin on."""


class RequestMeter:
    """Requests of one kind."""

    def __init__(self) -> None:
        self.count = 0
        self.errors = 0
        self.sum_ms = 0.0
        self._latest_ms: deque[float] = deque(maxlen=RESERVOIR)

    def took(self, milliseconds: float, *, failed: bool | int = False) -> None:
        """Count a request whose response is ready, with its errors, and record its time."""
        self.count += 1
        self.errors += failed
        self.sum_ms += milliseconds
        self._latest_ms.append(milliseconds)

    def quantiles(self) -> dict[float, float]:
        """Return quantiles of the latest times in ms: a share's smallest bound."""
        times = sorted(self._latest_ms)
        return {share: times[min(len(times) - 1, int(share * len(times)))] for share in QUANTILES} if times else {}


class LoadTimes:
    """Durations of rare events over the last minute: loads by coordinators, and writes of share coordinators.

    Source: partitionLoadSensor of GroupMetadataManager and TransactionStateManager, which keeps two samples of 30 s.
    """

    def __init__(self) -> None:
        self._loads: deque[tuple[int, float]] = deque(maxlen=RESERVOIR)

    def took(self, now_ms: int, milliseconds: float) -> None:
        """Record a time."""
        self._loads.append((now_ms, milliseconds))

    def max_and_avg(self, now_ms: int) -> tuple[float, float]:
        """Return the longest and the mean time in ms; NaN without loads."""
        latest = [milliseconds for at_ms, milliseconds in self._loads if now_ms - at_ms < LOAD_WINDOW_MS]
        return (max(latest), sum(latest) / len(latest)) if latest else (math.nan, math.nan)


class Meters:
    """All counters of a broker."""

    def __init__(self) -> None:
        self.requests: dict[str, RequestMeter] = {}
        self.topics: dict[str, Counter[str]] = {}
        self.counts: Counter[str] = Counter()
        self.broker_state = 0
        self.verifications = RequestMeter()
        """Verifications of partitions by transaction coordinators (KIP-890), with the errors by partition."""
        self.group_loads = LoadTimes()
        self.transaction_loads = LoadTimes()
        self.share_loads = LoadTimes()
        self.share_coordinator_loads = LoadTimes()
        self.share_writes = LoadTimes()
        self.lags: dict[TopicPartition, tuple[int, int]] = {}
        """Lag of this broker's followers at their last fetch response: the leader, and the missing records."""

    def request(self, name: str) -> RequestMeter:
        """Return the meter of one kind of requests."""
        meter = self.requests.get(name)
        if meter is None:
            meter = self.requests[name] = RequestMeter()
        return meter

    def topic(self, name: str) -> Counter[str]:
        """Return the counters of a topic."""
        counter = self.topics.get(name)
        if counter is None:
            counter = self.topics[name] = Counter()
        return counter

    def noted(
        self, kind: str, cause: str, fields: Mapping[str, Any], topic_partition: TopicPartition | None = None
    ) -> None:
        """Count a change of state; called with every note for the event log."""
        if kind == "high_watermark":
            return  # moves with every batch, and is not counted
        if kind == "log_end_offset" and cause == "Produce" and topic_partition is not None:
            self.topic(topic_partition.topic)["messagesin"] += fields["new"] - fields["old"]
        elif kind == "isr" and cause == "AlterPartition":
            self._isr_committed(fields["old"], fields["new"])
        elif kind == "election":
            self.counts["elections"] += fields["strategy"] != REMOVED
            self.counts["uncleanelections"] += fields["strategy"] == "unclean"
        elif kind == "broker":
            self.broker_state = BROKER_STATES.get(fields["state"], self.broker_state)
        elif kind == "session":
            self.counts[f"session {fields['state']}"] += 1

    def _isr_committed(self, old: Sequence[int], new: Sequence[int]) -> None:
        """Count the controller's verdict on a proposed ISR: accepted, or rejected and rolled back."""
        if len(new) < len(old):
            self.counts["isrshrinks"] += 1
        elif len(new) > len(old):
            self.counts["isrexpands"] += 1
        else:
            self.counts["failedisrupdates"] += 1

    def follower_fetched(self, at: TopicPartition, leader: int, high_watermark: int, log_end_offset: int) -> None:
        """Record a follower's lag after a fetch response, as Kafka's fetcher does: leader's HW minus its own LEO."""
        if high_watermark >= 0:
            self.lags[at] = (leader, max(0, high_watermark - log_end_offset))
