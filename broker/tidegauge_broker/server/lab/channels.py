"""Calls that this broker makes to others: named, and cut, delayed or lost as the faults say (row B3).

Contract: ``LabChannel`` stands in for a gRPC channel as far as the brokers' stubs use one: unary calls, and streams
with write, read, cancel. Each call carries the broker's id in its metadata, so that the other end knows who calls.
A call that is cut raises AioRpcError UNAVAILABLE at once; so does one under way when the cut comes into force.
Delays and losses meet each unary call and each request of a stream.
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
from tidegauge_controller.channels import open_channel


def _refused() -> grpc.aio.AioRpcError:
    return grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata(), "refused by the lab"
    )


class _UnderWay:
    """A call under way, that a cut ends.

    Attributes:
        is_cut: it was ended so; a cancellation that comes of it is told as UNAVAILABLE.
    """

    def __init__(self, address: str, end_it: Callable[[], object]) -> None:
        self.address = address
        self.is_cut = False
        self._end_it = end_it

    def cut(self) -> None:
        """End it."""
        self.is_cut = True
        self._end_it()


class Calls:
    """All calls that this broker makes to others.

    Args:
        faults: what meets them.
        broker_at: the broker that an address belongs to, or None while nobody knows.
        security: of the connections.
    """

    def __init__(self, faults: FaultTable, broker_at: Callable[[str], int | None], security: Security = PLAIN) -> None:
        self._faults = faults
        self._security = security
        self._broker_at = broker_at
        self._under_way: dict[_UnderWay, None] = {}
        self.metadata = ((CALLER_KEY, str(faults.broker_id)),)
        faults.listeners.append(self._look_again)

    def open(self, address: str) -> grpc.aio.Channel:
        """A channel that the faults meet."""
        # It has what the brokers' stubs use of a channel.
        return LabChannel(self, open_channel(address, self._security), address)  # type: ignore[return-value]  # see above

    async def meet(self, address: str) -> None:
        """What a request goes through before it leaves.

        Raises:
            AioRpcError: it is cut or lost.
        """
        if self._faults.is_empty:
            return
        verdict = self._faults.network(OUT, self._end(address))
        if verdict.delay_ms:
            await asyncio.sleep(verdict.delay_ms / 1000)
        if verdict.refused_by is not None:
            raise _refused()

    def begin(self, address: str, end_it: Callable[[], object]) -> _UnderWay:
        """A call is under way; ``end_it`` is called when a cut comes."""
        call = _UnderWay(address, end_it)
        self._under_way[call] = None
        return call

    def end(self, call: _UnderWay) -> None:
        """It is over."""
        self._under_way.pop(call, None)

    def _end(self, address: str) -> End:
        broker_id = self._broker_at(address)
        return fault_table.broker(-1 if broker_id is None else broker_id)

    def _look_again(self) -> None:
        for call in list(self._under_way):
            if self._faults.network(OUT, self._end(call.address), count=False).refused_by is not None:
                self._under_way.pop(call, None)
                call.cut()


async def _told(waiting: Awaitable[Any], call: _UnderWay) -> Any:
    """Wait for an answer; a call that a cut has ended raises what a broken connection raises."""
    try:
        return await waiting
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if call.is_cut and not (task is not None and task.cancelling()):
            raise _refused() from None
        raise


class LabChannel:
    """See the module."""

    def __init__(self, calls: Calls, channel: grpc.aio.Channel, address: str) -> None:
        self._calls = calls
        self._channel = channel
        self._address = address

    def unary_unary(self, *arguments: Any, **named: Any) -> Callable[..., Awaitable[Any]]:
        """A method with one request and one answer."""
        method = self._channel.unary_unary(*arguments, **named)

        async def call(request: Any, *, timeout: float | None = None) -> Any:  # noqa: ASYNC109 - gRPC's own signature
            calls = self._calls
            await calls.meet(self._address)
            real = method(request, timeout=timeout, metadata=calls.metadata)
            under_way = calls.begin(self._address, real.cancel)
            try:
                return await _told(real, under_way)
            finally:
                calls.end(under_way)

        return call

    def stream_stream(self, *arguments: Any, **named: Any) -> Callable[[], LabStream]:
        """A method with a stream of requests and one of answers."""
        method = self._channel.stream_stream(*arguments, **named)
        return lambda: LabStream(self._calls, method(metadata=self._calls.metadata), self._address)

    def stream_unary(self, *arguments: Any, **named: Any) -> Any:
        """Not used between brokers."""
        return self._channel.stream_unary(*arguments, **named)

    def unary_stream(self, *arguments: Any, **named: Any) -> Any:
        """Not used between brokers."""
        return self._channel.unary_stream(*arguments, **named)

    async def close(self, grace: float | None = None) -> None:
        """Close the channel."""
        await self._channel.close(grace)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class LabStream:
    """A stream that the faults meet."""

    def __init__(self, calls: Calls, real: Any, address: str) -> None:
        self._calls = calls
        self._real = real
        self._address = address
        self._under_way = calls.begin(address, real.cancel)
        real.add_done_callback(lambda _: calls.end(self._under_way))

    async def write(self, request: Any) -> None:
        """Send a request."""
        try:
            await self._calls.meet(self._address)
        except grpc.aio.AioRpcError:
            self._under_way.cut()  # what is lost of a stream of bytes takes the stream along
            raise
        await _told(self._real.write(request), self._under_way)

    async def read(self) -> Any:
        """The next answer, or EOF."""
        return await _told(self._real.read(), self._under_way)

    async def done_writing(self) -> None:
        """No more requests."""
        await self._real.done_writing()

    async def details(self) -> str:
        """Why the stream ended."""
        return "refused by the lab" if self._under_way.is_cut else str(await self._real.details())

    def cancel(self) -> bool:
        """End the stream."""
        return bool(self._real.cancel())

    def done(self) -> bool:
        """Whether it has ended."""
        return bool(self._real.done())
