"""What the synchronous clients of ``sync`` share: a loop in a thread, start and stop, and the producer's ``send``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.producer import Producer
from tidegauge_client.records import Headers

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


class ProducerFacade(Facade[Producer]):
    """``send``, the one method whose result is not waited for, and ``stop`` with a timeout."""

    def stop(self, timeout_ms: float | None = None) -> None:
        """Send what is left, end the transaction that has not ended, and close, as ``Producer.stop``. Idempotent.

        Args:
            timeout_ms: time for all of it; None: what delivery_timeout_ms and max_block_ms allow.
        """
        self._end(lambda: self._inner.stop(timeout_ms))

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = (),
    ) -> Future[RecordMetadata]:
        """Hand a record over, waiting for buffer memory if necessary; the future is the acknowledgement.

        The future can't be cancelled (KafkaProducer's FutureRecordMetadata): the record is written all the same.
        """
        acknowledged: Future[RecordMetadata] = Future()
        acknowledged.set_running_or_notify_cancel()

        def completed(future: asyncio.Future[RecordMetadata]) -> None:
            if future.cancelled():
                acknowledged.set_exception(CancelledError())
            elif (problem := future.exception()) is not None:
                acknowledged.set_exception(problem)
            else:
                acknowledged.set_result(future.result())

        async def hand_over() -> None:
            promise = await self._inner.send(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
            promise.add_done_callback(completed)

        self._loop.run(hand_over())
        return acknowledged
