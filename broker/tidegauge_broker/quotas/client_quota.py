"""One kind of client quota: its clients' usage, and how long they are throttled. Pure; time is an argument.

Rules:
    1. A client's usage is recorded first. While its rate is above the limit, it is throttled for the time that brings
       the rate down to the limit if nothing more is recorded: (rate - limit) / limit * window.
    2. A request quota throttles for a sample at most (``quota.window.size.seconds``, KIP-124).
    3. Mutations of topics take tokens from a bucket (KIP-599). While the bucket is below zero, a strict quota refuses
       them; a permissive one accepts them, and throttles.
    4. Clients that used nothing for an hour are forgotten.

Source: ``ClientQuotaManager``, ``ClientRequestQuotaManager``, ``ControllerMutationQuotaManager``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, NamedTuple, Protocol, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.quotas.limits import Limits, QuotaEntity, Sharers
from tidegauge_broker.quotas.stats import (
    STATISTICS_WINDOW,
    UNLIMITED,
    TokenBucket,
    Window,
    WindowedAverage,
    WindowedRate,
    refill_ms,
    throttle_ms,
    to_int,
)

EXPIRES_AFTER_MS = 3_600_000
_LOOK_EVERY_MS = 60_000


class Reading(NamedTuple):
    """The value of a metric for clients that are measured together; its name is Kafka's."""

    sharers: Sharers
    metric: str
    value: float


class _Used(Protocol):
    """The usage of clients that are measured together.

    Attributes:
        throttled: the times for which they were throttled.
        recorded_ms: when they last used something.
    """

    throttled: WindowedAverage
    recorded_ms: int


UsedT = TypeVar("UsedT", bound=_Used)


class _Quota(Generic[UsedT]):
    """The limits, and the usage of clients that are measured together."""

    def __init__(self, window: Window) -> None:
        self.limits = Limits()
        self.window = window
        self._used: dict[Sharers, UsedT] = {}
        self._looked_ms = 0

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set a limit, or (None) remove it; it holds for earlier and later records alike."""
        self.limits.set(entity, limit)

    def throttled(self, user: str, client_id: str, milliseconds: int, now_ms: int) -> None:
        """Note that a client is throttled."""
        _, used = self._of(user, client_id, now_ms)
        used.throttled.record(milliseconds, now_ms)

    def _of(self, user: str, client_id: str, now_ms: int) -> tuple[float, UsedT]:
        """Return a client's limit, and what it used with those that share it."""
        sharers = self.limits.sharers(user, client_id)
        limit = self.limits.limit(sharers)
        used = self._used.get(sharers)
        if used is None:
            self._forget(now_ms)
            used = self._used[sharers] = self._new()
        used.recorded_ms = now_ms
        return UNLIMITED if limit is None else limit, used

    def _forget(self, now_ms: int) -> None:
        if now_ms - self._looked_ms >= _LOOK_EVERY_MS:
            self._looked_ms = now_ms
            self._used = {
                sharers: used for sharers, used in self._used.items() if now_ms - used.recorded_ms < EXPIRES_AFTER_MS
            }

    def _new(self) -> UsedT:
        raise NotImplementedError


class _UsedRate:
    def __init__(self, window: Window) -> None:
        self.rate = WindowedRate(window)
        self.throttled = WindowedAverage()
        self.recorded_ms = 0


class RateQuota(_Quota[_UsedRate]):
    """A quota of bytes, or of time in percent, for each second.

    Args:
        window: over which the rate is measured.
        metric: Kafka's name of the metric that shows the rate.
        max_throttle_ms: rule 2; None: without a limit.
    """

    def __init__(self, window: Window, metric: str = "byte-rate", max_throttle_ms: int | None = None) -> None:
        super().__init__(window)
        self._metric = metric
        self._max_throttle_ms = max_throttle_ms

    def _new(self) -> _UsedRate:
        return _UsedRate(self.window)

    def record(self, user: str, client_id: str, value: float, now_ms: int) -> int:
        """Record a client's usage; return the time in ms to throttle it, 0 if it is within its limit."""
        limit, used = self._of(user, client_id, now_ms)
        used.rate.record(value, now_ms)
        rate = used.rate.measure(now_ms)
        if rate <= limit:
            return 0
        found = throttle_ms(rate, limit, used.rate.window_ms(now_ms))
        return to_int(found if self._max_throttle_ms is None else min(found, self._max_throttle_ms))

    def take_back(self, user: str, client_id: str, value: float, now_ms: int) -> None:
        """Take back a value recorded at this time, which was not used after all."""
        _, used = self._of(user, client_id, now_ms)
        used.rate.record(-value, now_ms)

    def most_in_window(self, user: str, client_id: str) -> float:
        """Return the usage that surely causes no throttling; infinite without limit."""
        limit = self.limits.limit(self.limits.sharers(user, client_id))
        return float("inf") if limit is None else limit * self.window.whole_seconds

    def readings(self, now_ms: int) -> Iterator[Reading]:
        """Yield what the metrics say."""
        for sharers, used in self._used.items():
            yield Reading(sharers, self._metric, used.rate.measure(now_ms))
            yield Reading(sharers, "throttle-time", used.throttled.measure(now_ms))


class _UsedTokens:
    def __init__(self, window: Window) -> None:
        self.bucket = TokenBucket(window)
        self.rate = WindowedRate(STATISTICS_WINDOW)
        self.limit = UNLIMITED
        self.throttled = WindowedAverage()
        self.recorded_ms = 0


class MutationQuota(_Quota[_UsedTokens]):
    """The quota of partitions that are created and deleted (rule 3)."""

    def _new(self) -> _UsedTokens:
        return _UsedTokens(self.window)

    def check(self, user: str, client_id: str, now_ms: int) -> int:
        """Return the time in ms until a client has tokens; 0: now."""
        limit, used = self._of(user, client_id, now_ms)
        used.limit = limit
        tokens = used.bucket.measure(limit, now_ms)
        return refill_ms(tokens, limit) if tokens < 0 else 0

    def record(self, user: str, client_id: str, count: float, now_ms: int) -> None:
        """Take tokens."""
        limit, used = self._of(user, client_id, now_ms)
        used.limit = limit
        used.rate.record(count, now_ms)
        used.bucket.record(count, limit, now_ms)

    def readings(self, now_ms: int) -> Iterator[Reading]:
        """Yield what the metrics say."""
        for sharers, used in self._used.items():
            yield Reading(sharers, "tokens", used.bucket.measure(used.limit, now_ms))
            yield Reading(sharers, "mutation-rate", used.rate.measure(now_ms))
            yield Reading(sharers, "throttle-time", used.throttled.measure(now_ms))


class Mutations:
    """The mutations of one request.

    Args:
        quota: of all clients.
        user: the client's.
        client_id: the client's.
        is_strict: whether mutations are refused while the quota is exhausted.
    """

    def __init__(self, quota: MutationQuota, user: str, client_id: str, *, is_strict: bool) -> None:
        self._quota = quota
        self._user = user
        self._client_id = client_id
        self._is_strict = is_strict
        self._throttle_ms = 0
        self._throttled_at_ms = 0

    def record(self, count: int, now_ms: int) -> None:
        """Take the tokens of a mutation.

        Raises:
            TidegaugeError: THROTTLING_QUOTA_EXCEEDED, the quota is strict and exhausted; nothing was taken.
        """
        if self._is_strict and self._is_exhausted(now_ms):
            raise TidegaugeError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded.")
        self._quota.record(self._user, self._client_id, count, now_ms)
        if not self._is_strict:
            self._is_exhausted(now_ms)

    def _is_exhausted(self, now_ms: int) -> bool:
        """Whether less than no tokens are left; then note for how long."""
        found = self._quota.check(self._user, self._client_id, now_ms)
        if found:
            self._throttle_ms, self._throttled_at_ms = found, now_ms
        return found != 0

    def throttle_ms(self, now_ms: int) -> int:
        """Return the time in ms to throttle the client from now."""
        return to_int(max(0, self._throttle_ms - (now_ms - self._throttled_at_ms)))


class QuotaManagers(NamedTuple):
    """All kinds of client quotas of a broker (``QuotaFactory``)."""

    produce: RateQuota
    fetch: RateQuota
    request: RateQuota
    mutation: MutationQuota

    @classmethod
    def of(cls, window: Window, mutation_window: Window) -> QuotaManagers:
        """Return them without any limit."""
        return cls(
            RateQuota(window),
            RateQuota(window),
            RateQuota(window, "request-time", window.sample_ms),
            MutationQuota(mutation_window),
        )
