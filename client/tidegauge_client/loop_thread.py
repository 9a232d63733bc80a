"""The base of every synchronous client: an event loop in a thread, start and stop.

It imports no client: the lab's verbs ask brokers through such a loop, and load neither producer nor consumer.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError

Result = TypeVar("Result")


class Client(Protocol):
    """An asynchronous client."""

    async def start(self) -> None:
        """Find the cluster."""

    async def stop(self) -> None:
        """Close."""


Inner = TypeVar("Inner", bound=Client)


class LoopThread:
    """An event loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def submit(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Start a coroutine on the loop.

        Raises:
            TidegaugeError: INVALID_REQUEST, the loop is closed.
        """
        if self._loop.is_closed():
            coroutine.close()
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "it is closed")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine to its end; Ctrl-C cancels it."""
        future = self.submit(coroutine)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def close(self) -> None:
        """End the loop and its thread; idempotent."""
        if self._loop.is_closed():
            return
        self.submit(_cancel_others()).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_others() -> None:
    """Cancel everything that is pending when the loop ends, for example after Ctrl-C."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Facade(Generic[Inner]):
    """Start, stop and context manager of a synchronous client."""

    _loop: LoopThread
    _inner: Inner

    def start(self) -> None:
        """Find the cluster.

        Raises:
            TidegaugeError: BROKER_NOT_AVAILABLE, no bootstrap server responds.
        """
        try:
            self._loop.run(self._inner.start())
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Close. Idempotent."""
        self._end(self._inner.stop)

    def _end(self, stop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Stop the client, and end the loop's thread; idempotent."""
        if self._loop._loop.is_closed():  # noqa: SLF001 - one module
            return
        try:
            self._loop.run(stop())
        finally:
            self._loop.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def made_on(loop: LoopThread, make: Callable[[], Result]) -> Result:
    """Build an object on the loop that it will use; the loop's thread ends if that fails."""

    async def build() -> Result:
        return make()

    try:
        return loop.run(build())
    except BaseException:  # the settings are refused, and no client will end the thread
        loop.close()
        raise
