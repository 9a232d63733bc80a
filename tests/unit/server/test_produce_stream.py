"""A producer's stream over gRPC ends with its call, and leaves nothing behind (``BrokerServicer.ProduceStream``)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

from tidegauge.v1 import produce_pb2
from tidegauge_broker.server.service.open_produces import OpenProduces
from tidegauge_broker.server.wire.grpc.broker import BrokerServicer


async def aborted(is_read: asyncio.Event) -> AsyncIterator[produce_pb2.ProduceRequest]:
    """Requests of a call that is aborted: gRPC raises an error of its own where the reader is cancelled."""
    is_read.set()
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        raise RuntimeError("Locally aborted.") from None
    yield produce_pb2.ProduceRequest()


async def test_a_stream_whose_call_is_aborted_leaves_no_exception_that_nothing_takes() -> None:
    """asyncio would log it with a traceback, which says to whoever reads the log that the broker has a defect."""
    logged: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: logged.append(context))
    service: Any = SimpleNamespace(open_produces=lambda: OpenProduces(lambda _request: asyncio.Future(), 1))
    is_read, context = asyncio.Event(), SimpleNamespace()
    responses: Any = BrokerServicer(service, lambda: 0, "L").ProduceStream(aborted(is_read), context)  # type: ignore[arg-type]
    call = asyncio.get_running_loop().create_task(anext(responses))
    await is_read.wait()
    call.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await call
    for _ in range(3):
        await asyncio.sleep(0)  # the reader ends in turns of its own
    del responses
    gc.collect()
    assert logged == []
