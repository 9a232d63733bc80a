"""Takes orders and adds them up: an application that must not lose what it has confirmed.

`place` confirms an order when every in-sync replica has it. When it can't tell in time, it says so: the order may or
may not have been taken. It can be looked up, and must not simply be placed again.
"""

from __future__ import annotations

from collections import Counter

from tidegauge.errors import TidegaugeError
from tidegauge_client import Consumer, Producer, RecordMetadata, TopicPartition


class NotConfirmed(Exception):
    """It is not known in time whether the order was taken."""


class OrderBook:
    """Writes orders to a topic. Use it in an `async with`."""

    def __init__(self, servers: str, topic: str, patience_ms: int = 30_000) -> None:
        self._topic = topic
        self._producer = Producer(
            servers, acks="all", delivery_timeout_ms=patience_ms, request_timeout_ms=min(patience_ms, 30_000)
        )

    async def __aenter__(self) -> OrderBook:
        await self._producer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._producer.stop()

    async def place(self, order: str) -> RecordMetadata:
        """Write an order and wait for its confirmation."""
        try:
            return await (await self._producer.send(self._topic, order.encode(), key=order.encode()))
        except TidegaugeError as problem:
            raise NotConfirmed(f"{order}: {problem}") from problem


async def taken(servers: str, topic: str) -> Counter[str]:
    """All orders that are in the topic, and how often each."""
    orders: Counter[str] = Counter()
    async with Consumer(servers, auto_offset_reset="earliest") as consumer:
        await consumer.subscribe([topic])
        places = consumer.assignment()
        await consumer.seek_to_end()
        ends: dict[TopicPartition, int] = {place: await consumer.position(place) for place in places}
        await consumer.seek_to_beginning()
        while any([await consumer.position(place) < ends[place] for place in places]):
            orders.update((record.value or b"").decode() for record in await consumer.poll(500))
    return orders
