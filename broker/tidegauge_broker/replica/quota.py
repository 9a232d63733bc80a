"""The quotas of throttled replicas: the leader's side and the follower's, each a quota of bytes a second.

Rules (Kafka's ReplicationQuotaManager, ReplicaManager.shouldLeaderThrottle, ReplicaFetcherThread):
    1. The rate is measured over up to eleven samples of a second each: their bytes over the time since the oldest
       began, at least one second. So a burst may pass before the quota is found exceeded, and is paid for afterwards.
    2. While the leader's quota is exceeded, throttled partitions give their followers nothing, except those in the
       ISR: they must not fall out of it. While the follower's is, it leaves throttled partitions out of its fetches,
       except those that lack nothing.
    3. A topic names its throttled replicas, ``partition:broker`` or ``*``: at the leader the leader's own broker
       counts, at the follower the follower's.

Time is an argument. The rate is asked for at each look: it may change while the broker runs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

SAMPLE_MS = 1000
MOST_SAMPLES = 11
UNLIMITED = 2**63 - 1


class ReplicationQuota:
    """One side's quota.

    Args:
        rate: bytes a second that are allowed now; None: without a limit.
    """

    def __init__(self, rate: Callable[[], int] | None = None) -> None:
        self._rate = rate
        self._samples: deque[list[int]] = deque()

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit at all."""
        return self._rate is not None and self._rate() < UNLIMITED

    def record(self, size_bytes: int, now_ms: int) -> None:
        """Count copied bytes."""
        self._forget_old(now_ms)
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_MS:
            self._samples.append([now_ms, 0])
        self._samples[-1][1] += size_bytes

    def bytes_per_second(self, now_ms: int) -> float:
        """Return the rate of the copied bytes over the latest window."""
        self._forget_old(now_ms)
        if not self._samples:
            return 0.0
        window_ms = max(now_ms - self._samples[0][0], SAMPLE_MS)
        return sum(size_bytes for _, size_bytes in self._samples) * 1000 / window_ms

    def is_exceeded(self, now_ms: int) -> bool:
        """Whether that is more than is allowed."""
        if self._rate is None:
            return False
        rate = self._rate()
        return rate < UNLIMITED and self.bytes_per_second(now_ms) > rate

    def _forget_old(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= MOST_SAMPLES * SAMPLE_MS:
            self._samples.popleft()


def is_throttled(throttled: Sequence[str], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one (rule 3)."""
    return bool(throttled) and ("*" in throttled or f"{partition}:{broker_id}" in throttled)
