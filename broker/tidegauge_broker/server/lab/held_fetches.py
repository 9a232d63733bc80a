"""The hold of a node's fetches of the metadata log, and its rounds by hand.

It keeps each one until it is stepped, released, or its time is over. So a held voter stands for election when its
fetch timeout ends, like one whose leader does not respond; a held broker keeps its last image.

Rules:
    1. A round is one fetch of the node: it is sent, and the node takes its response in. The next fetch says what that
       changed: the end of the log, its epoch, and the offset that is known to be committed.
    2. A fetch is sent only while its sender waits long enough for the response; if not, the next one is.
    3. A node that leads, or stands for election, sends no fetch. A step waits for a while until it follows again.
    4. A response that a step withholds is lost when its sender's time is over.
    5. A fetch that was sent before the hold may bring records still. ``hold`` waits until its response is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.quorum.requests_in import TOPIC

METADATA = TopicPartition(TOPIC, 0)
STEP_SECONDS = 20.0
"""Maximum time that a step waits for a fetch and for its response."""
_LEAST_SECONDS = 0.75
"""Rule 2: a leader with nothing new lets a fetch wait for half a second."""
_NEXT_SECONDS = 2.0
"""Maximum time that a step waits for the fetch after its round."""

Send = Callable[[float], Awaitable[Any]]
"""Sends a fetch, with the seconds that are left for its response, and returns the response."""


def _future() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True)
class SteppedFetch:
    """One round of a node whose fetches are held.

    Attributes:
        address: where the fetch was sent.
        request: the fetch.
        response: its response.
        is_withheld: whether the response waits for the next step.
        following: the node's next fetch, not yet sent; None: there is none yet.
    """

    address: str
    request: Any
    response: Any
    is_withheld: bool = False
    following: Any = None


@dataclass(slots=True)
class _Round:
    """The state that a step waits for.

    Attributes:
        withholds: whether the response waits for the next step.
        done: the round, or why it failed.
        may_end: done when a response that is withheld may be taken in.
        following: the fetch after it.
    """

    withholds: bool
    done: asyncio.Future[SteppedFetch] = field(default_factory=_future)
    may_end: asyncio.Future[None] = field(default_factory=_future)
    following: asyncio.Future[Any] = field(default_factory=_future)


class HeldFetches:
    """Holds this node's fetches of the metadata log while asked to."""

    def __init__(self) -> None:
        self._is_held = False
        self._waiting: list[asyncio.Future[_Round | None]] = []
        self._wanted: _Round | None = None
        self._last: _Round | None = None
        self._stepping = asyncio.Lock()
        self._in_flight: set[asyncio.Future[None]] = set()

    @property
    def is_held(self) -> bool:
        """Whether they are."""
        return self._is_held

    async def hold(self) -> bool:
        """Hold them; return whether that changed anything, when no earlier one is in flight any more."""
        changed, self._is_held = not self._is_held, True
        if self._in_flight:
            await asyncio.wait(self._in_flight, timeout=STEP_SECONDS)
        return changed

    def release(self) -> bool:
        """Release them; return whether that changed anything."""
        changed, self._is_held = self._is_held, False
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if not one.done():
                one.set_result(None)
        if self._last is not None and not self._last.may_end.done():
            self._last.may_end.set_result(None)
        return changed

    # A fetch of the node

    async def exchange(self, address: str, request: Any, limit_seconds: float, send: Send) -> Any:
        """Return the response to a fetch, which is sent when it may be.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, its time is over, or the node stops; or what ``send`` raises.
        """
        end = asyncio.get_running_loop().time() + limit_seconds
        step = await self._admitted(request, limit_seconds) if self._is_held else None
        try:
            response = await self._sent(send, end - asyncio.get_running_loop().time())
        except TidegaugeError as problem:
            if step is not None and not step.done.done():
                step.done.set_exception(problem)
            raise
        if step is None:
            return response
        if not step.done.done():
            step.done.set_result(SteppedFetch(address, request, response, step.withholds))
        if step.withholds:
            await self._until(step.may_end, end - asyncio.get_running_loop().time())
        return response

    async def _sent(self, send: Send, left_seconds: float) -> Any:
        mark = _future()
        self._in_flight.add(mark)
        try:
            return await send(left_seconds)
        finally:
            self._in_flight.discard(mark)
            mark.set_result(None)

    async def _admitted(self, request: Any, limit_seconds: float) -> _Round | None:
        """Return a fetch's round, for a step; None: it was released."""
        if self._last is not None and not self._last.following.done():
            self._last.following.set_result(request)
        step = self._wanted
        if step is None:
            place: asyncio.Future[_Round | None] = _future()
            self._waiting.append(place)
            try:
                step = await self._until(place, limit_seconds - min(_LEAST_SECONDS, limit_seconds / 2))
            finally:
                if place in self._waiting:
                    self._waiting.remove(place)
        self._wanted = None
        self._last = step
        return step

    @staticmethod
    async def _until(place: asyncio.Future[Any], limit_seconds: float) -> Any:
        try:
            async with asyncio.timeout(limit_seconds):
                return await place
        except TimeoutError:
            if place.done() and not place.cancelled():
                return place.result()  # both came in one turn of the event loop
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "held by the lab") from None

    # A step

    async def step(self, *, withholds: bool = False) -> SteppedFetch:
        """Let the node do one round, or end the one whose response is withheld.

        Raises:
            TidegaugeError: INVALID_REQUEST, its fetches are not held, REQUEST_TIMED_OUT, it sends none, or
                NETWORK_EXCEPTION, there was no response.
        """
        async with self._stepping:
            if not self._is_held:
                raise TidegaugeError(
                    ErrorCode.INVALID_REQUEST,
                    f"its fetches of {METADATA} are not held; `tidegauge hold-fetch {METADATA} --broker ID` holds them",
                )
            last = self._last
            if last is not None and last.withholds and last.done.done() and not last.may_end.done():
                last.may_end.set_result(None)  # cancelled where its time is over
                return await self._ended(last, await last.done)
            step = _Round(withholds)
            waiting = [one for one in self._waiting if not one.done()]
            if waiting:
                waiting[-1].set_result(step)
            else:
                self._wanted = step
            return await self._ended(step, await self._round_of(step))

    async def _round_of(self, step: _Round) -> SteppedFetch:
        try:
            async with asyncio.timeout(STEP_SECONDS):
                return await step.done
        except TimeoutError:
            raise TidegaugeError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"it sent no fetch within {STEP_SECONDS:g} s: it leads the quorum, or stands for election",
            ) from None
        finally:
            if self._wanted is step:
                self._wanted = None

    async def _ended(self, step: _Round, fetched: SteppedFetch) -> SteppedFetch:
        """Return a round once the node's next fetch comes, or after a while."""
        if step.withholds and not step.may_end.done():
            return fetched
        fetched.is_withheld = False
        done, _ = await asyncio.wait([step.following], timeout=_NEXT_SECONDS)
        fetched.following = step.following.result() if done else None
        return fetched

    def close(self) -> None:
        """End what waits: the node stops."""
        for one in self._waiting:
            if not one.done():
                one.set_exception(TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "held by the lab"))
