"""A producer's stream to one broker: requests are sent in order, responses may arrive in another."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

import grpc
import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import produce_pb2
from tidegauge_client.channels import Channels, translate

STATUS_SECONDS = 1.0
"""How long the status of a stream that broke during a write is waited for."""


class ProduceStream:
    """One ProduceStream call. After ``close`` no callback is called; ``on_broken`` is called at most once."""

    def __init__(
        self,
        address: str,
        channels: Channels,
        on_response: Callable[[str, produce_pb2.ProduceResponse], None],
        on_written: Callable[[str, int], None],
        on_broken: Callable[[str, TidegaugeError], None],
    ) -> None:
        """Begin to connect; must run on the event loop.

        Args:
            address: the broker's address.
            channels: the producer's channels.
            on_response: called with each response.
            on_written: called with the correlation id of each request with acks=0 that was sent.
            on_broken: called when the stream has ended, whichever side ended it.
        """
        self._address = address
        self._channels = channels
        self._on_response = on_response
        self._on_written = on_written
        self._on_broken = on_broken
        self._requests: asyncio.Queue[produce_pb2.ProduceRequest] = asyncio.Queue()
        self._is_closed = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    def send(self, request: produce_pb2.ProduceRequest) -> None:
        """Queue a request; the sender bounds the number of requests in flight."""
        self._requests.put_nowait(request)

    def close(self) -> None:
        """Cancel the stream."""
        self._is_closed = True
        self._task.cancel()

    def on_end(self, listener: Callable[[asyncio.Task[None]], None]) -> asyncio.Task[None]:
        """Call the listener when the task has ended; return the task, which must be awaited before the loop ends."""
        self._task.add_done_callback(listener)
        return self._task

    async def _run(self) -> None:
        call = self._channels.broker(self._address).ProduceStream()
        loop = asyncio.get_running_loop()
        writing, reading = loop.create_task(self._write(call)), loop.create_task(self._read(call))
        problem: TidegaugeError | None = None
        try:
            await asyncio.wait({writing, reading}, return_when=asyncio.FIRST_COMPLETED)
            # A write that fails does not say why; the reading side receives the stream's status.
            await asyncio.wait({reading}, timeout=STATUS_SECONDS)
            problem = reading.result() if reading.done() else None
        finally:
            call.cancel()
            writing.cancel()
            # The read ends by itself now; the event loop must still be open for its last callback from gRPC.
            await asyncio.wait({reading}, timeout=STATUS_SECONDS)
            reading.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)
        if not self._is_closed:
            ended = f"the broker at {self._address} ended the stream"
            self._on_broken(self._address, problem or TidegaugeError(ErrorCode.NETWORK_EXCEPTION, ended))

    async def _write(
        self, call: grpc.aio.StreamStreamCall[produce_pb2.ProduceRequest, produce_pb2.ProduceResponse]
    ) -> None:
        with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                request = await self._requests.get()
                await call.write(request)
                if request.acks == 0 and not self._is_closed:
                    self._on_written(self._address, request.correlation_id)

    async def _read(
        self, call: grpc.aio.StreamStreamCall[produce_pb2.ProduceRequest, produce_pb2.ProduceResponse]
    ) -> TidegaugeError | None:
        try:
            while True:
                response = await call.read()
                if not isinstance(response, produce_pb2.ProduceResponse):
                    return None
                if not self._is_closed:
                    self._on_response(self._address, response)
        except grpc.aio.AioRpcError as error:
            return translate(error, self._address)
