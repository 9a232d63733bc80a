"""A client that takes no answers (issue 10) gets no more of them made, and leaves nothing behind."""

from __future__ import annotations

import asyncio

from tidegauge_broker.server.service.pending_responses import PendingResponses


class Response:
    """A response that is written, or whose connection closes, when ``end`` is called."""

    def __init__(self, outgoing: PendingResponses, connection: str, size_bytes: int) -> None:
        self._held = outgoing, connection, size_bytes
        outgoing.hold(connection, size_bytes)

    def end(self) -> None:
        outgoing, connection, size_bytes = self._held
        outgoing.release(connection, size_bytes)


async def test_a_connection_with_much_unsent_waits_and_others_do_not() -> None:
    outgoing = PendingResponses()
    calls = []
    for _ in range(2):
        await outgoing.room("slow", 150_000)
        calls.append(Response(outgoing, "slow", 100_000))
    third = asyncio.ensure_future(outgoing.room("slow", 150_000))
    await outgoing.room("quick", 150_000)
    await asyncio.sleep(0)
    assert not third.done()
    calls[0].end()
    await asyncio.wait_for(third, 60)
    assert outgoing.held_bytes("slow") == 100_000


async def test_fetches_that_wait_for_much_count_as_if_they_had_it() -> None:
    outgoing = PendingResponses()
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
    outgoing = PendingResponses()
    calls = [Response(outgoing, "gone", 100_000) for _ in range(5)]
    waiting = [asyncio.ensure_future(outgoing.room("gone", 1)) for _ in range(3)]
    for call in calls:
        call.end()
    await asyncio.wait_for(asyncio.gather(*waiting), 60)
    assert outgoing.held_bytes("gone") == 0


async def test_small_answers_cost_nothing() -> None:
    outgoing = PendingResponses()
    Response(outgoing, "any", 1_000)
    assert outgoing.held_bytes("any") == 0
