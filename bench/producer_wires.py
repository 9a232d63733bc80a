"""Our producer over gRPC and over Kafka's protocol, on one cluster: ``python bench/producer_wires.py``.

By turns, in each round: records one at a time, open loops, and as many as go; each with the CPU time of all brokers and
of this process for a record. docs/adr/0019-what-a-record-costs-the-producer.md has what came out.

``--acks all``, ``--bytes 100``, ``--partitions 12``, ``--rates 200,1000,5000``, ``--rounds N``, ``--base-port N``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from measure import cpu_seconds, latency_of
from tidegauge_side import Tidegauge

from tidegauge_client import Producer
from tidegauge_client.wires import Wire

WARM_UP_RECORDS = 50
SINGLE_RECORDS = 200
OPEN_SECONDS = 1.5
AHEAD_SECONDS = 0.0005
BULK_BYTES = 4_000_000
LINGER_MS = 5
Acks = Literal["all", 1]


@dataclass
class Figures:
    """Results, by work and way: p50, p99 in ms (or records/s, 0), us of CPU of brokers and of the client."""

    rows: dict[tuple[str, str], list[tuple[float, ...]]] = field(default_factory=dict)

    def print(self, ways: list[str]) -> None:
        """Print the medians of the rounds."""
        print(f"load {os.getloadavg()[0]:.1f}; p50 and p99 in ms, or records/s; us of CPU of brokers and of the client")
        for work in dict.fromkeys(work for work, _ in self.rows):
            for way in ways:
                found = [statistics.median(column) for column in zip(*self.rows[work, way], strict=True)]
                print(f"{work:14} {way:8} " + " ".join(f"{value:12,.2f}" for value in found))


class Rig:
    """One cluster and its options."""

    def __init__(self, side: Tidegauge, options: argparse.Namespace) -> None:
        self._side = side
        self._options = options
        self._value = bytes(options.bytes)
        self._acks: Acks = "all" if options.acks == "all" else 1
        self.figures = Figures()

    def producer(self, way: str, **settings: Any) -> Producer:
        """Return a producer of a way."""
        wire: Wire = "kafka" if way == "kafka" else "grpc"
        return Producer(self._side.cluster.bootstrap_servers, acks=self._acks, wire=wire, **settings)

    async def round(self, topic: str, way: str) -> None:
        """Do each work once."""
        async with self.producer(way) as producer:
            await self._single(producer, topic, WARM_UP_RECORDS)
            await self._measured("one at a time", way, SINGLE_RECORDS, self._single(producer, topic, SINGLE_RECORDS))
            for rate in self._options.rates:
                count = int(rate * OPEN_SECONDS)
                await self._measured(f"{rate} a second", way, count, self._open(producer, topic, rate, count))
        async with self.producer(way, linger_ms=LINGER_MS) as producer:
            await self._single(producer, topic, WARM_UP_RECORDS)
            count = BULK_BYTES // self._options.bytes
            await self._measured("as many as go", way, count, self._bulk(producer, topic, count))

    async def _measured(self, work: str, way: str, count: int, doing: Awaitable[tuple[float, float]]) -> None:
        pids = list(self._side.pids().values())
        brokers, client = cpu_seconds(pids), time.process_time()
        found = await doing
        cpu = (cpu_seconds(pids) - brokers, time.process_time() - client)
        row = (*found, *(one / count * 1e6 for one in cpu))
        self.figures.rows.setdefault((work, way), []).append(row)

    async def _single(self, producer: Producer, topic: str, count: int) -> tuple[float, float]:
        took_ms = []
        for number in range(count):
            began = time.perf_counter()
            await (await producer.send(topic, self._value, partition=number % self._options.partitions))
            took_ms.append((time.perf_counter() - began) * 1000)
        latency = latency_of(took_ms)
        return latency.p50_ms, latency.p99_ms

    async def _open(self, producer: Producer, topic: str, rate: float, count: int) -> tuple[float, float]:
        took_ms: list[float] = []

        def note(began: float) -> None:
            took_ms.append((time.perf_counter() - began) * 1000)

        start = time.perf_counter()
        for number in range(count):
            ahead = start + number / rate - time.perf_counter()
            if ahead > AHEAD_SECONDS:
                await asyncio.sleep(ahead)
            began = time.perf_counter()
            (await producer.send(topic, self._value)).add_done_callback(lambda _, began=began: note(began))
        await producer.flush()
        latency = latency_of(took_ms)
        return latency.p50_ms, latency.p99_ms

    async def _bulk(self, producer: Producer, topic: str, count: int) -> tuple[float, float]:
        began = time.perf_counter()
        for _ in range(count):
            await producer.send(topic, self._value)
        await producer.flush()
        return count / (time.perf_counter() - began), 0


def main() -> None:
    """Measure by turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--acks", choices=("all", "1"), default="all")
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rates", type=lambda text: [int(one) for one in text.split(",")], default=[200, 1000, 5000])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--base-port", type=int, default=29_300)
    options = parser.parse_args()
    ways = ["gRPC", "kafka"]
    with tempfile.TemporaryDirectory(prefix="producer-wires-") as directory:
        side = Tidegauge(Path(directory), options.base_port)
        try:
            side.start()
            side.create("wires", options.partitions)
            rig = Rig(side, options)
            for number in range(options.rounds):
                for way in ways if number % 2 == 0 else reversed(ways):
                    asyncio.run(rig.round("wires", way))
        finally:
            side.stop()
    rig.figures.print(ways)


if __name__ == "__main__":
    main()
