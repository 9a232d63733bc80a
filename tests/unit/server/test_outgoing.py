"""A client that takes no answers (issue 10) gets no more of them made, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tidegauge_broker.server.wire.grpc.outgoing import Outgoing


class Call:
    """A gRPC call that ends when it is told to."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], None]] = []

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def end(self) -> None:
        for callback in self._callbacks:
            callback(self)


async def test_a_connection_with_much_unsent_waits_and_others_do_not() -> None:
    outgoing = Outgoing()
    calls: list[Any] = [Call(), Call()]
    for call in calls:
        await outgoing.room("slow", 150_000)
        outgoing.hold("slow", 100_000, call)
    third = asyncio.ensure_future(outgoing.room("slow", 150_000))
    await outgoing.room("quick", 150_000)
    await asyncio.sleep(0)
    assert not third.done()
    calls[0].end()
    await asyncio.wait_for(third, 60)
    assert outgoing.held_bytes("slow") == 100_000


async def test_fetches_that_wait_for_much_count_as_if_they_had_it() -> None:
    outgoing = Outgoing()
    with outgoing.gathering("patient", 100_000):
        second = asyncio.ensure_future(outgoing.room("patient", 100_000))
        await asyncio.sleep(0)
        assert not second.done()
        with outgoing.gathering("usual", 1):
            assert outgoing.held_bytes("usual") == 0, "one byte is what clients ask for"
    await asyncio.wait_for(second, 60)
    assert outgoing.held_bytes("patient") == 0


async def test_the_end_of_the_calls_leaves_nothing() -> None:
    """Sent or cancelled: the call is over either way."""
    outgoing = Outgoing()
    calls: list[Any] = [Call() for _ in range(5)]
    for call in calls:
        outgoing.hold("gone", 100_000, call)
    waiting = [asyncio.ensure_future(outgoing.room("gone", 1)) for _ in range(3)]
    for call in calls:
        call.end()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert outgoing.held_bytes("gone") == 0


async def test_small_answers_cost_nothing() -> None:
    outgoing = Outgoing()
    call: Any = Call()
    outgoing.hold("any", 1_000, call)
    assert outgoing.held_bytes("any") == 0
