"""Client quotas of one request: its usage is recorded, its response says how long the client is throttled.

Rules (KafkaApis, RequestHandlerHelper, KIP-124, KIP-219, KIP-599):
    1. The response is sent at once, with ``throttle_time_ms``; then the connection is muted for that time: it begins no
       further request. Of two quotas that are exceeded the longer time counts.
    2. A Produce uses the bytes of its request, header included, counted when acks is fulfilled; one with acks=0 is no
       use of the request quota, and mutes the connection without a response.
    3. A Fetch or ShareFetch uses the bytes of its response. If that exceeds a quota the response is empty, and the
       bytes do not count. No response is larger than the quota's bytes in its window.
    4. Every request uses the time that the event loop spent on it, as a percentage of a second, until its response is
       made; waits are free, and what the codec and the socket take is not counted.
    5. Followers' fetches, and requests among brokers only, are exempt.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import perf_counter_ns
from types import TracebackType
from typing import Any

from tidegauge.kafka import apis
from tidegauge.kafka.frames import RequestHeader, decode, encode, joined
from tidegauge_broker.quotas.client_quota import Mutations, QuotaManagers
from tidegauge_broker.server.wire.kafka.eager import Around
from tidegauge_broker.server.wire.kafka.fetch_reader import is_followers
from tidegauge_broker.server.wire.kafka.responses import Encoded, Held, Paced, Pending, Response, Silent

_PERCENT_PER_NS = 100 / 1e9
_THROTTLED_BY_HANDLERS = frozenset({apis.FETCH, apis.SHARE_FETCH})


class _Watch:
    """The time that the event loop spends on a request."""

    def __init__(self) -> None:
        self._spent_ns = 0
        self._began_ns: int | None = None

    def start(self) -> None:
        self._began_ns = perf_counter_ns()

    def stop(self) -> None:
        if self._began_ns is not None:
            self._spent_ns += perf_counter_ns() - self._began_ns
            self._began_ns = None

    def percent(self) -> float:
        """Return the time until the last stop, as a percentage of a second."""
        return self._spent_ns * _PERCENT_PER_NS


class RequestQuotas:
    """The client quotas of one request; see the module.

    Args:
        managers: what measures clients.
        user: name of the principal.
        header: of the request.
        now_ms: the broker's clock.
        mute: mutes the connection for a number of ms.
        is_exempt: whether no quota applies to the request's API; rule 5.
    """

    def __init__(
        self,
        managers: QuotaManagers,
        user: str,
        header: RequestHeader,
        now_ms: Callable[[], int],
        mute: Callable[[RequestHeader, int], None],
        *,
        is_exempt: bool,
    ) -> None:
        self._managers = managers
        self._user = user
        self._header = header
        self._client_id = header.client_id or ""
        self._now_ms = now_ms
        self._mute = mute
        self._is_exempt = is_exempt
        self._watch = _Watch()
        self._mutations: Mutations | None = None

    def around(self, request: Any, size_bytes: int, handle: Callable[[], Response]) -> Response:
        """Handle the request, and throttle its client.

        Args:
            request: the decoded message.
            size_bytes: of its frame.
            handle: handles it; returns what a handler returns.
        """
        key = self._header.key
        if self._is_exempt or (key == apis.FETCH and is_followers(request, self._header.version)):
            return handle()
        acks = request.acks if key == apis.PRODUCE else None
        self._watch.start()
        try:
            response = handle()
        finally:
            self._watch.stop()
        if isinstance(response, Coroutine):
            return Measured(response, self._watch, lambda message: self._throttled(message, acks, size_bytes))
        return self._throttled(response, acks, size_bytes)

    def _throttled(self, response: Response, acks: int | None, size_bytes: int) -> Any:
        """Return a response with its throttle time, and mute the connection.

        A fetch is throttled by its handler.
        """
        if isinstance(response, Pending):
            make = response.respond
            return Pending(response.future, lambda results: self._throttled(make(results), acks, size_bytes))
        if isinstance(response, Paced):
            return response._replace(response=self._throttled(response.response, acks, size_bytes))
        if self._header.key in _THROTTLED_BY_HANDLERS:
            return response
        throttle_ms = self._used_ms() if acks is None else self._produced_ms(acks, size_bytes)
        return _with_throttle_time(response, throttle_ms, self._header.key) if throttle_ms else response

    def _produced_ms(self, acks: int, size_bytes: int) -> int:
        now_ms = self._now_ms()
        by_bytes_ms = self._managers.produce.record(self._user, self._client_id, size_bytes, now_ms)
        by_time_ms = 0 if acks == 0 else self._spent_ms(now_ms)
        return self._throttle(by_bytes_ms, by_time_ms, self._managers.produce, now_ms)

    def _used_ms(self) -> int:
        now_ms = self._now_ms()
        by_mutations_ms = 0 if self._mutations is None else self._mutations.throttle_ms(now_ms)
        return self._throttle(by_mutations_ms, self._spent_ms(now_ms), self._managers.mutation, now_ms)

    def _spent_ms(self, now_ms: int) -> int:
        return self._managers.request.record(self._user, self._client_id, self._watch.percent(), now_ms)

    def _throttle(self, own_ms: int, by_time_ms: int, own: Any, now_ms: int) -> int:
        """Mute the connection for the longer of two times, if it is one, and return it."""
        throttle_ms = max(own_ms, by_time_ms)
        if throttle_ms <= 0:
            return 0
        quota = own if own_ms > by_time_ms else self._managers.request
        quota.throttled(self._user, self._client_id, throttle_ms, now_ms)
        self._mute(self._header, throttle_ms)
        return throttle_ms

    def failed(self, request: Any, response: Any) -> Any:
        """Return a failed request's response with its throttle time; mute the connection.

        Such a request uses time, and nothing else (``RequestHandlerHelper.sendErrorResponseMaybeThrottle``).

        Args:
            request: the decoded message.
            response: the message with the error.
        """
        key = self._header.key
        if self._is_exempt or (key == apis.FETCH and is_followers(request, self._header.version)):
            return response
        now_ms = self._now_ms()
        throttle_ms = self._throttle(0, self._spent_ms(now_ms), self._managers.request, now_ms)
        return _with_throttle_time(response, throttle_ms, key) if throttle_ms else response

    # Quotas for handlers

    def most_fetched_bytes(self, wanted_bytes: int) -> int:
        """Return the number of bytes that a fetch may read."""
        return int(min(self._managers.fetch.most_in_window(self._user, self._client_id), wanted_bytes))

    def fetched_ms(self, size_bytes: int) -> int:
        """Return the client's throttle time in ms; 0: the response may be given.

        Args:
            size_bytes: of the response. If its client is throttled an empty one is given in its place.
        """
        now_ms = self._now_ms()
        by_time_ms = self._spent_ms(now_ms)
        fetch = self._managers.fetch
        by_bytes_ms = fetch.record(self._user, self._client_id, size_bytes, now_ms)
        throttle_ms = self._throttle(by_bytes_ms, by_time_ms, fetch, now_ms)
        if throttle_ms:
            fetch.take_back(self._user, self._client_id, size_bytes, now_ms)
        return throttle_ms

    def mutate(self, *, is_strict: bool) -> Callable[[int], None]:
        """Return the function that takes tokens for a number of partitions.

        It is called before they are created or deleted.

        It raises TidegaugeError with THROTTLING_QUOTA_EXCEEDED if the quota is strict and exhausted.
        """
        mutations = Mutations(self._managers.mutation, self._user, self._client_id, is_strict=is_strict)
        self._mutations = mutations
        return lambda count: mutations.record(count, self._now_ms())


def _with_throttle_time(response: Any, throttle_ms: int, key: int) -> Any:
    """Return a response with its throttle time, or the lab's if longer."""
    if isinstance(response, Silent):
        return response
    if isinstance(response, Encoded):
        message, _ = decode(key, response.version, memoryview(joined(response.body)), response=True)
        message.throttle_time_ms = throttle_ms
        return Encoded(encode(key, response.version, message), response.version)
    message = response.message if isinstance(response, Held) else response
    if hasattr(message, "throttle_time_ms"):
        message.throttle_time_ms = max(message.throttle_time_ms, throttle_ms)
    return response


class Measured(Around[Any]):
    """A coroutine whose steps are measured, and whose result is converted.

    Args:
        coroutine: one that has begun or not.
        watch: runs while a step runs.
        finish: makes the result.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], watch: _Watch, finish: Callable[[Any], Any]) -> None:
        super().__init__(coroutine)
        self._watch = watch
        self._finish = finish

    def send(self, value: Any, /) -> Any:
        """Run the next step."""
        return self._step(lambda: self._coroutine.send(value))

    def throw(self, kind: Any, value: Any = None, traceback: TracebackType | None = None, /) -> Any:
        """Raise an exception where the coroutine waits."""
        throw = super().throw
        return self._step(lambda: throw(kind, value, traceback))

    def _step(self, step: Callable[[], Any]) -> Any:
        self._watch.start()
        try:
            return step()
        except StopIteration as end:
            self._watch.stop()
            raise StopIteration(self._finish(end.value)) from None
        finally:
            self._watch.stop()
