"""Calls that this broker makes to others: named, and partitioned, delayed or lost as the lab's faults say.

Contract: ``LabChannel`` stands in for a gRPC channel as far as the brokers' stubs use one: unary calls, and streams
with write, read, cancel. Each call carries the broker's id in its metadata, so that the other end knows the caller.
A call across a partition raises AioRpcError UNAVAILABLE at once; so does one in flight when the partition begins.
Delays and losses apply to each unary call and to each request of a stream. The faults: docs/faults.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Self

import grpc
import grpc.aio

from tidegauge.security import PLAIN, Security
from tidegauge_broker.server.lab import fault_table
from tidegauge_broker.server.lab.fault_table import OUT, End, FaultTable
from tidegauge_broker.server.wire.grpc.callers import CALLER_KEY
from tidegauge_controller.broker_channels import open_channel

REFUSED = "refused by the lab"


def _refused() -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), REFUSED)


class _InFlight:
    """A call in flight, which a partition ends.

    Attributes:
        is_partitioned: a partition ended it; the cancellation that follows is raised as UNAVAILABLE.
    """

    def __init__(self, address: str, end_it: Callable[[], object]) -> None:
        self.address = address
        self.is_partitioned = False
        self._end_it = end_it

    def partition(self) -> None:
        """End the call."""
        self.is_partitioned = True
        self._end_it()


class Calls:
    """All calls that this broker makes to others.

    Args:
        faults: those that apply to them.
        broker_at: the broker that an address belongs to, or None while it is unknown.
        security: of the connections.
        end: makes the other end of a call of its id, -1 while that is unknown.
    """

    def __init__(
        self,
        faults: FaultTable,
        broker_at: Callable[[str], int | None],
        security: Security = PLAIN,
        end: Callable[[int], End] = fault_table.broker,
    ) -> None:
        self._faults = faults
        self._end_of = end
        self._security = security
        self._broker_at = broker_at
        self._in_flight: dict[_InFlight, None] = {}
        self._known: dict[str, int] = {}
        self.metadata = ((CALLER_KEY, str(faults.broker_id)),)
        faults.listeners.append(self._look_again)

    def open(self, address: str) -> grpc.aio.Channel:
        """Open a channel to which the faults apply."""
        # LabChannel has the methods of a channel that the brokers' stubs use.
        return LabChannel(self, open_channel(address, self._security), address)  # type: ignore[return-value]  # see above

    async def meet(self, address: str) -> None:
        """Apply delay, loss and partition to a request before it is sent.

        Raises:
            AioRpcError: UNAVAILABLE, a partition or a loss.
        """
        if self._faults.is_empty:
            return
        verdict = self._faults.network(OUT, self._end(address))
        if verdict.delay_ms:
            await asyncio.sleep(verdict.delay_ms / 1000)
        if verdict.refused_by is not None:
            raise _refused()

    def begin(self, address: str, end_it: Callable[[], object]) -> _InFlight:
        """Register a call in flight; ``end_it`` is called when a partition begins."""
        call = _InFlight(address, end_it)
        self._in_flight[call] = None
        return call

    def end(self, call: _InFlight) -> None:
        """Forget a call that has ended."""
        self._in_flight.pop(call, None)

    def remember(self, address: str) -> int:
        """Return the broker at an address; -1: unknown.

        A connection outlives a change of addresses.
        """
        broker_id = self._broker_at(address)
        if broker_id is None:
            return self._known.get(address, -1)
        self._known[address] = broker_id
        return broker_id

    def _end(self, address: str) -> End:
        return self._end_of(self.remember(address))

    def _look_again(self) -> None:
        for call in list(self._in_flight):
            if self._faults.network(OUT, self._end(call.address), count=False).refused_by is not None:
                self._in_flight.pop(call, None)
                call.partition()


async def _result_of(waiting: Awaitable[Any], call: _InFlight) -> Any:
    """Wait for a response; a call that a partition has ended raises what a broken connection raises."""
    try:
        return await waiting
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if call.is_partitioned and not (task is not None and task.cancelling()):
            raise _refused() from None
        raise


class LabChannel:
    """A channel whose calls meet the lab's faults."""

    def __init__(self, calls: Calls, channel: grpc.aio.Channel, address: str) -> None:
        self._calls = calls
        self._channel = channel
        self._address = address
        calls.remember(address)

    def unary_unary(self, *arguments: Any, **named: Any) -> Callable[..., Awaitable[Any]]:
        """Return a method with one request and one response."""
        method = self._channel.unary_unary(*arguments, **named)

        async def call(
            request: Any,
            *,
            timeout: float | None = None,  # noqa: ASYNC109 - gRPC's own signature
            wait_for_ready: bool | None = None,
        ) -> Any:
            calls = self._calls
            await calls.meet(self._address)
            real = method(request, timeout=timeout, wait_for_ready=wait_for_ready, metadata=calls.metadata)
            in_flight = calls.begin(self._address, real.cancel)
            try:
                return await _result_of(real, in_flight)
            finally:
                calls.end(in_flight)

        return call

    def stream_stream(self, *arguments: Any, **named: Any) -> Callable[[], LabStream]:
        """Return a method with a stream of requests and one of responses."""
        method = self._channel.stream_stream(*arguments, **named)
        return lambda: LabStream(self._calls, method(metadata=self._calls.metadata), self._address)

    def stream_unary(self, *arguments: Any, **named: Any) -> Any:
        """Return the plain method; brokers do not use this kind among each other."""
        return self._channel.stream_unary(*arguments, **named)

    def unary_stream(self, *arguments: Any, **named: Any) -> Any:
        """Return the plain method; brokers do not use this kind among each other."""
        return self._channel.unary_stream(*arguments, **named)

    async def close(self, grace: float | None = None) -> None:
        """Close the channel."""
        await self._channel.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class LabStream:
    """A stream to which the faults apply."""

    def __init__(self, calls: Calls, real: Any, address: str) -> None:
        self._calls = calls
        self._real = real
        self._address = address
        self._in_flight = calls.begin(address, real.cancel)
        real.add_done_callback(lambda _: calls.end(self._in_flight))

    async def write(self, request: Any) -> None:
        """Send a request."""
        try:
            await self._calls.meet(self._address)
        except grpc.aio.AioRpcError:
            self._in_flight.partition()  # a stream of bytes that loses some cannot go on
            raise
        await _result_of(self._real.write(request), self._in_flight)

    async def read(self) -> Any:
        """Return the next response, or EOF."""
        return await _result_of(self._real.read(), self._in_flight)

    async def done_writing(self) -> None:
        """Send no more requests."""
        await self._real.done_writing()

    async def details(self) -> str:
        """Return why the stream ended."""
        return REFUSED if self._in_flight.is_partitioned else str(await self._real.details())

    def cancel(self) -> bool:
        """End the stream."""
        return bool(self._real.cancel())

    def done(self) -> bool:
        """Whether it has ended."""
        return bool(self._real.done())
