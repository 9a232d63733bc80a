"""Settings of the producer, and back-pressure (KafkaProducer, ProducerConfig)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.buffer_memory import BufferMemory
from tidegauge_client.producer import Producer


@pytest.mark.parametrize(
    ("options", "code", "sentence"),
    [
        ({"acks": 2}, ErrorCode.INVALID_REQUIRED_ACKS, "acks must be all, 1 or 0, not 2"),
        ({"acks": 1, "idempotence": True}, ErrorCode.INVALID_CONFIG, "Must set acks to all"),
        ({"max_in_flight": 6}, ErrorCode.INVALID_CONFIG, "1 to 5"),
        ({"max_in_flight": 0, "acks": 1}, ErrorCode.INVALID_CONFIG, "max_in_flight"),
        ({"delivery_timeout_ms": 10}, ErrorCode.INVALID_CONFIG, "delivery.timeout.ms should be equal to or larger"),
        ({"compression": "brotli"}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "brotli"),
    ],
)
async def test_settings_that_contradict_are_refused(options: dict[str, Any], code: ErrorCode, sentence: str) -> None:
    with pytest.raises(TidegaugeError, match=sentence) as caught:
        Producer("127.0.0.1:1", **options)
    assert caught.value.code is code


async def test_idempotence_follows_acks_unless_it_is_asked_for() -> None:
    """Kafka's default: on with acks=all, silently off otherwise."""
    assert Producer("127.0.0.1:1")._idempotence
    assert not Producer("127.0.0.1:1", acks=1)._idempotence
    assert not Producer("127.0.0.1:1", idempotence=False, max_in_flight=9)._idempotence


async def test_a_producer_that_was_not_started_says_so() -> None:
    with pytest.raises(TidegaugeError, match="not running"):
        await Producer("127.0.0.1:1").send("t", b"v")


def test_memory_is_taken_and_given_back() -> None:
    memory = BufferMemory(10)
    assert memory.try_take(7)
    assert not memory.try_take(4)
    memory.release(1)
    assert memory.try_take(4)


async def test_who_waits_for_memory_is_served_in_order() -> None:
    """A large record is not starved by small ones that would fit."""
    memory = BufferMemory(10)
    assert memory.try_take(10)
    order: list[str] = []

    async def want(name: str, size_bytes: int) -> None:
        await memory.take(size_bytes, 10_000)
        order.append(name)

    tasks = [asyncio.create_task(want("large", 8)), asyncio.create_task(want("small", 2))]
    await asyncio.sleep(0)
    memory.release(3)
    await asyncio.sleep(0)
    assert (order, memory.is_exhausted, memory.try_take(1)) == ([], True, False)
    memory.release(7)
    await asyncio.gather(*tasks)
    assert order == ["large", "small"]


async def test_memory_that_does_not_come_is_a_timeout() -> None:
    memory = BufferMemory(10)
    assert memory.try_take(10)
    with pytest.raises(
        TidegaugeError, match="Failed to allocate 5 bytes within the configured max blocking time"
    ) as caught:
        await memory.take(5, 0)
    assert caught.value.code is ErrorCode.REQUEST_TIMED_OUT
    memory.release(10)
    assert memory.try_take(10), "who has given up takes nothing"


async def test_who_is_cancelled_while_waiting_takes_nothing() -> None:
    memory = BufferMemory(10)
    assert memory.try_take(10)
    task = asyncio.create_task(memory.take(5, 10_000))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    memory.release(10)
    assert memory.try_take(10)
