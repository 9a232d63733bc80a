"""The measures behind quotas: rates and averages over samples, and a token bucket. Pure.

Contract: time is an argument, in ms of one clock that never goes back. The arithmetic is the arithmetic of doubles,
as Kafka's, so the throttle times equal Kafka's to the millisecond.
Source: ``SampledStat``, ``Rate``, ``Avg`` and ``TokenBucket`` of Kafka's metrics, ``QuotaUtils.throttleTime``.
"""

from __future__ import annotations

import math
from typing import NamedTuple

UNLIMITED = float(2**63 - 1)
"""The limit of a client that has no quota (``Long.MaxValue``)."""
_LONG_MAX = 2**63 - 1
_INT_BITS, _INT_SIGN = 2**32, 2**31


class Window(NamedTuple):
    """The time of a measurement: ``quota.window.num`` and ``quota.window.size.seconds``, in ms.

    Attributes:
        sample_count: number of samples.
        sample_ms: time span of each.
    """

    sample_count: int = 11
    sample_ms: int = 1_000

    @property
    def whole_seconds(self) -> float:
        """Time span of the samples that are complete: all but one."""
        return (self.sample_count - 1) * self.sample_ms / 1000


QUOTA_WINDOW = Window()
"""Kafka's default."""
STATISTICS_WINDOW = Window(2, 30_000)
"""The window of metrics that are shown and not compared with a limit (``metrics.num.samples``)."""


class _Sample:
    __slots__ = ("count", "last_ms", "start_ms", "total")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.count, self.total = 0, 0.0


class _Samples:
    """A ring of samples with one place more than the window has; an expired one begins again at the present."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.all: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.all:
            self.all.append(_Sample(now_ms))
        sample = self.all[self._current]
        if now_ms - sample.start_ms >= self.window.sample_ms:
            sample = self._advance(now_ms)
        sample.total += value
        sample.count += 1
        sample.last_ms = now_ms

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self.window.sample_count + 1)
        if self._current >= len(self.all):
            self.all.append(_Sample(now_ms))
        else:
            self.all[self._current].reset(now_ms)
        return self.all[self._current]

    def total(self) -> float:
        """Return the sum, added as Kafka adds it: Python's own ``sum`` rounds otherwise."""
        found = 0.0
        for sample in self.all:
            found += sample.total
        return found

    def expire(self, now_ms: int) -> None:
        """Begin those again whose last value lies before the window; one that reaches into the window stays."""
        age_ms = self.window.sample_count * self.window.sample_ms
        for sample in self.all:
            if now_ms - sample.last_ms >= age_ms:
                sample.reset(now_ms)


class WindowedRate:
    """The rate of the values recorded in the latest samples, in 1/s."""

    def __init__(self, window: Window) -> None:
        self._samples = _Samples(window)

    def record(self, value: float, now_ms: int) -> None:
        """Add a value, which may be negative to take back one of this sample."""
        self._samples.record(value, now_ms)

    def measure(self, now_ms: int) -> float:
        """Return the sum a second."""
        window_ms = self.window_ms(now_ms)
        return self._samples.total() / (window_ms / 1000)

    def window_ms(self, now_ms: int) -> int:
        """Return the samples' time: since the oldest began, plus missing samples."""
        samples = self._samples
        samples.expire(now_ms)
        window = samples.window
        elapsed_ms = now_ms - min((sample.start_ms for sample in samples.all), default=now_ms)
        missing = window.sample_count - 1 - elapsed_ms // window.sample_ms
        return max(elapsed_ms + max(0, missing) * window.sample_ms, 1)


class WindowedAverage:
    """The average of the values recorded in the latest samples."""

    def __init__(self) -> None:
        self._samples = _Samples(STATISTICS_WINDOW)

    def record(self, value: float, now_ms: int) -> None:
        """Add a value."""
        self._samples.record(value, now_ms)

    def measure(self, now_ms: int) -> float:
        """Return the average; NaN without values."""
        self._samples.expire(now_ms)
        count = sum(sample.count for sample in self._samples.all)
        return self._samples.total() / count if count else math.nan


class TokenBucket:
    """Tokens that refill at the limit's rate, up to what the whole window gives (KIP-599)."""

    def __init__(self, window: Window) -> None:
        self._window_seconds = window.sample_count * (window.sample_ms / 1000)
        self._tokens = 0.0
        self._updated_ms = 0

    def record(self, tokens: float, limit: float, now_ms: int) -> None:
        """Take tokens, more than there are too."""
        burst = self._refill(limit, now_ms)
        self._tokens = min(burst, self._tokens - tokens)

    def measure(self, limit: float, now_ms: int) -> float:
        """Return how many tokens there are; below 0 the quota is exhausted."""
        self._refill(limit, now_ms)
        return self._tokens

    def _refill(self, limit: float, now_ms: int) -> float:
        burst = self._window_seconds * limit
        self._tokens = min(burst, self._tokens + limit * ((now_ms - self._updated_ms) / 1000))
        self._updated_ms = now_ms
        return burst


def throttle_ms(rate: float, limit: float, window_ms: int) -> int:
    """Return the time in ms (64 bits) until a rate reaches its limit.

    Nothing may be recorded in that time.
    """
    return java_round(_quotient(rate - limit, limit) * window_ms)


def refill_ms(tokens: float, limit: float) -> int:
    """Return the time in ms (64 bits) until an overdrawn bucket is zero."""
    return java_round(_quotient(-tokens, limit) * 1000)


def _quotient(dividend: float, divisor: float) -> float:
    return dividend / divisor if divisor else math.inf


def java_round(value: float) -> int:
    """Return the nearest 64-bit integer, as ``Math.round``: half up, NaN is 0."""
    if math.isnan(value):
        return 0
    if abs(value) >= _LONG_MAX:
        return _LONG_MAX if value > 0 else -_LONG_MAX - 1
    return math.floor(value + 0.5)


def to_int(value: int) -> int:
    """Return the low 32 bits as a signed number, as Java's cast.

    By this cast Kafka turns an endless throttle time into none.
    """
    return (value + _INT_SIGN) % _INT_BITS - _INT_SIGN
