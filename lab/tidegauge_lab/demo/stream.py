"""Produces the flights at a pace, keeps the books of acknowledgements, and says when a share of them has been sent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from tidegauge_client import Producer, RecordMetadata
from tidegauge_lab.demo.books import Account
from tidegauge_lab.demo.flights import Flight

_LOOK_AT_CLOCK_EVERY = 200


class Stream:
    """Rows on their way into a topic.

    Args:
        producer: a started producer.
        topic: where the rows go.

    Attributes:
        sent: rows handed to the producer.
        acknowledged: the account of those that the cluster acknowledged.
        failures: why rows failed for good, the first few.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self.sent = 0
        self.acknowledged = Account()
        self.failures: list[str] = []
        self._producer = producer
        self._topic = topic
        self._marks: list[tuple[int, asyncio.Event]] = []

    async def reached(self, count: int) -> None:
        """Return when so many rows have been sent."""
        event = asyncio.Event()
        if self.sent >= count:
            return
        self._marks.append((count, event))
        await event.wait()

    async def send(self, rows: Iterable[Flight], rows_per_second: float | None = None) -> None:
        """Send rows, no faster than the pace; when the cluster was slower, the stream catches up."""
        loop = asyncio.get_running_loop()
        began, first = loop.time(), self.sent
        for row in rows:
            await self._send(row)
            if rows_per_second is not None and self.sent % _LOOK_AT_CLOCK_EVERY == 0:
                ahead_seconds = (self.sent - first) / rows_per_second - (loop.time() - began)
                await asyncio.sleep(max(0.0, ahead_seconds))

    async def _send(self, row: Flight) -> None:
        future = await self._producer.send(self._topic, row.value, row.key)
        future.add_done_callback(lambda done: self._responded(row, done))
        self.sent += 1
        if self._marks and self.sent >= self._marks[0][0]:
            self._marks.pop(0)[1].set()

    def _responded(self, row: Flight, done: asyncio.Future[RecordMetadata]) -> None:
        if done.cancelled():
            self.failures.append("cancelled")
        elif (problem := done.exception()) is not None:
            self.failures.append(str(problem))
        else:
            self.acknowledged.enter(row.key, row.value)
