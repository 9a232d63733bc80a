"""A client's process in a story: what it was asked to do, one thing after the other, while it lives and is not paused.

Rules:
    1. A client does one thing at a time; each is a coroutine that waits for responses and for time.
    2. A request without a response is given up after the client's request timeout, or when its connection breaks, and
       the client goes on as its protocol says. A response that arrives later is ignored.
    3. A paused process handles no response and no timer until it is resumed; a killed one never does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_proof.hand.coordination import Call, Coordination
from tidegauge_proof.hand.messages import CLIENT
from tidegauge_proof.simulator.exactly_once.driving import Awaited, drive

RETRY_MS = 100
"""retry.backoff.ms."""
RECONNECT_MS = 1_000
"""reconnect.backoff.max.ms: the pause after a request without a response."""
REQUEST_TIMEOUT_MS = 30_000
"""request.timeout.ms."""
RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors after which a client sends the same request again."""


class Failed(Exception):
    """A request was refused for good.

    Attributes:
        error: the broker's.
    """

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


def error_of(result: Any) -> ErrorCode:
    """Return the first error of a result."""
    if hasattr(result, "partitions"):
        errors = list(result.partitions.values())
    else:
        errors = [result.error, *(one.error for one in getattr(result, "offsets", {}).values())]
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)


class ClientProcess:
    """One process of a client.

    Args:
        name: what the story calls it.
        coordination: the cluster's coordinators.
        request_timeout_ms: how long it waits for a response.

    Attributes:
        outcome: of the last thing that it has done: empty while it is not done, ``ok``, or the name of an error.
        is_paused: whether the process is stopped by SIGSTOP.
        is_dead: whether it was killed.
    """

    def __init__(self, name: str, coordination: Coordination, request_timeout_ms: int) -> None:
        self.name = name
        self.coordination = coordination
        self.world = coordination.world
        self.request_timeout_ms = request_timeout_ms
        self.outcome = "ok"
        self.is_paused = self.is_dead = False
        self._jobs: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()
        self._is_working = False
        self._timers: list[tuple[int, Callable[[], None]]] = []
        self._late: list[Callable[[], None]] = []

    # Jobs (rule 1)

    def begin(self, job: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something, after what the process has to do already."""
        self._jobs.append(job)
        self.outcome = ""
        self.act()

    def act(self) -> None:
        """Run the timers that are due, and begin the next job."""
        if self.is_paused or self.is_dead:
            return
        late, self._late = self._late, []
        for go_on in late:
            go_on()
        for timer in [one for one in self._timers if one[0] <= self.world.now_ms]:
            self._timers.remove(timer)
            timer[1]()
        self._next()

    def _next(self) -> None:
        while self._jobs and not self._is_working and not self.is_paused:
            self._is_working = True
            drive(self._guarded(self._jobs.popleft()), self._ended)

    async def _guarded(self, job: Callable[[], Coroutine[Any, Any, None]]) -> str:
        try:
            await job()
        except Failed as problem:
            return problem.error.name
        return "ok"

    def _ended(self, outcome: str) -> None:
        self._is_working = False
        self.outcome = "" if self._jobs else outcome
        self._next()

    def kill(self) -> None:
        """End the process at once."""
        self.is_dead = True

    # Waiting (rules 2 and 3)

    async def sleep(self, ms: int) -> None:
        """Wait for some time."""
        await Awaited(lambda go_on: self._timers.append((self.world.now_ms + ms, lambda: go_on(None))))

    async def once(self, send: Callable[[Callable[[Any], None]], bool]) -> Any:
        """Send a request; return its response, or None if none came.

        Args:
            send: sends it; it is given what takes the response, or None if there will be none, and returns whether it
                could be sent.
        """

        def begin(go_on: Callable[[Any], None]) -> None:
            is_over: list[bool] = []

            def end(result: Any) -> None:
                if is_over or self.is_dead:
                    return
                is_over.append(True)
                if self.is_paused:
                    self._late.append(lambda: go_on(result))
                else:
                    go_on(result)

            self._timers.append((self.world.now_ms + self.request_timeout_ms, lambda: end(None)))
            if not send(end):
                end(None)

        return await Awaited(begin)

    async def ask_once(self, at: TopicPartition, request: Any) -> Any:
        """Send a request to the coordinator of an internal partition; return the result, or None if none came."""
        return await self.once(lambda end: self.coordination.ask(at, Call(CLIENT, request, end, lambda: end(None))))

    async def ask(self, at: TopicPartition, request: Any) -> Any:
        """Send a request until its result is final; return the result.

        Raises:
            Failed: it was refused for good.
        """
        while True:
            result = await self.ask_once(at, request)
            error = ErrorCode.NETWORK_EXCEPTION if result is None else error_of(result)
            if error is ErrorCode.NONE:
                return result
            if error not in RETRIED:
                raise Failed(error)
            await self.sleep(RECONNECT_MS if result is None else RETRY_MS)
