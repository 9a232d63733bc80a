"""A cancellation of a task that uses a client takes effect, also as the client is being woken (``tidegauge.waits``)."""

from __future__ import annotations

import asyncio

import pytest

from tidegauge_client.buffer_memory import BufferMemory
from tidegauge_client.cluster import now_ms
from tidegauge_client.consumer import Consumer


@pytest.mark.parametrize("turns", range(4))
async def test_a_loop_of_polls_that_is_just_woken_ends_when_it_is_cancelled(turns: int) -> None:
    """Else the application reads on, and whoever waits for its end waits for ever."""
    consumer = Consumer("b:1")

    async def read() -> None:
        while True:
            await consumer._wait(now_ms() + 60_000)

    reading = asyncio.get_running_loop().create_task(read())
    for _ in range(3):
        await asyncio.sleep(0)
    consumer._wake.set()
    for _ in range(turns):
        await asyncio.sleep(0)
    reading.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert reading.cancelled()


async def test_memory_that_is_granted_to_a_cancelled_send_is_given_back() -> None:
    memory = BufferMemory(10)
    assert memory.try_take(10)
    waiting = asyncio.get_running_loop().create_task(memory.take(10, 60_000))
    for _ in range(3):
        await asyncio.sleep(0)
    memory.release(10)
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert memory.try_take(10)
