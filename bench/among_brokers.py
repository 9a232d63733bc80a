"""The cost of replication over gRPC and over Kafka's protocol: ``python bench/among_brokers.py``.

Two clusters of three Tidegauge brokers run beside each other, alike but for ``inter.broker.listener.name``. The same
librdkafka producer writes to the one, then to the other, in each round in the other order, with acks=all: records one
at a time (latency), and as many as go (throughput), each with the CPU time of all brokers for a record; one at a time
also with the time for which the brokers' threads were ready to run and waited for a processor. Only figures on one
line can be compared.

``--compiled`` has each of them twice, from the sources and as machine code (with PYTHONPATH=build/compiled, after
``make compiled``).

``--real-time`` gives brokers and client real-time priority while records go one at a time, so that on a busy machine
nothing waits for a processor (Linux, as root). ``--rounds N``, ``--records N``, ``--single N``, ``--base-port N``,
``--json FILE``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from compiled_cost import machine_code
from confluent_kafka import Producer
from measure import cpu_seconds

from tidegauge_client import Admin
from tidegauge_lab.local.cluster import LocalCluster

SIDES = {"gRPC": {"inter.broker.listener.name": "GRPC"}, "Kafka's protocol": {}}
READY_SECONDS = 120.0
PORTS_APART = 100
KAFKA_PORT_OFFSET = 50
WARM_UP_RECORDS = 200


class Side:
    """A cluster, and a topic with one leader for each partition."""

    def __init__(
        self, name: str, directory: Path, base_port: int, settings: dict[str, str], *, is_compiled: bool = True
    ) -> None:
        self.name = name
        self._machine_code = "on" if is_compiled else "off"
        self.cluster = LocalCluster.create(
            directory,
            3,
            zookeeper=None,
            base_port=base_port,
            kafka_port=base_port + KAFKA_PORT_OFFSET,
            settings={"auto.leader.rebalance.enable": "false", **settings},
        )

    def start(self) -> None:
        """Start the cluster and create the topics."""
        with machine_code(self._machine_code):
            self.cluster.up(READY_SECONDS)
        asyncio.run(self._create())

    async def _create(self) -> None:
        async with Admin(self.cluster.bootstrap_servers) as admin:
            for topic, partitions in (("one", 1), ("twelve", 12)):
                await admin.create_topic(topic, partitions=partitions, replication_factor=3)
                await admin.wait_for_topic(topic)

    def pids(self) -> list[int]:
        """Return the process ids of the brokers."""
        found = (self.cluster.pid_of(broker.id) for broker in self.cluster.file.brokers)
        return [pid for pid in found if pid is not None]

    def producer(self) -> Producer:
        """Return a new producer, connected and warm."""
        made = Producer({"bootstrap.servers": ",".join(self.cluster.kafka_bootstrap_servers), "acks": "all"})
        for _ in range(WARM_UP_RECORDS):
            made.produce("one", bytes(100))
        assert made.flush(60) == 0
        return made


def _threads(pids: Sequence[int]) -> list[Path]:
    return [thread for pid in pids for thread in Path(f"/proc/{pid}/task").iterdir()]


def _ready_seconds(pids: Sequence[int]) -> float:
    """Return the time for which ready threads of these processes waited for a processor."""
    return sum(int((thread / "schedstat").read_text().split()[1]) for thread in _threads(pids)) / 1e9


@contextmanager
def _real_time(pids: Sequence[int]) -> Iterator[None]:
    """Let these processes run before all ordinary ones."""

    def give(policy: int, priority: int) -> None:
        for thread in _threads(pids):
            os.sched_setscheduler(int(thread.name), policy, os.sched_param(priority))

    give(os.SCHED_RR, 1)
    try:
        yield
    finally:
        give(os.SCHED_OTHER, 0)


def one_at_a_time(side: Side, count: int) -> dict[str, float]:
    """Produce records of 100 bytes, each when the one before is acknowledged."""
    producer = side.producer()
    pids = side.pids()
    took_ms: list[float] = []
    cpu_before, ready_before = cpu_seconds(pids), _ready_seconds(pids)
    for _ in range(count):
        began = time.perf_counter()
        producer.produce("one", bytes(100))
        assert producer.flush(60) == 0
        took_ms.append((time.perf_counter() - began) * 1000)
    cpu_us = (cpu_seconds(pids) - cpu_before) / count * 1e6
    ready_us = (_ready_seconds(pids) - ready_before) / count * 1e6
    took_ms.sort()
    return {
        "p50 ms": statistics.median(took_ms),
        "p99 ms": took_ms[int(count * 0.99)],
        "CPU us/record": cpu_us,
        "waits for a processor, us/record": ready_us,
    }


def one_at_a_time_in_real_time(side: Side, count: int) -> dict[str, float]:
    """Do the same while brokers and client have real-time priority."""
    with _real_time([*side.pids(), os.getpid()]):
        return one_at_a_time(side, count)


def as_many_as_go(side: Side, count: int) -> dict[str, float]:
    """Produce records of 1 KiB to twelve partitions."""
    producer = side.producer()
    pids = side.pids()
    before, began = cpu_seconds(pids), time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce("twelve", bytes(1024), partition=number % 12)
                break
            except BufferError:
                producer.poll(0.01)
        producer.poll(0)
    assert producer.flush(120) == 0
    seconds = time.perf_counter() - began
    return {"records/s": count / seconds, "CPU us/record": (cpu_seconds(pids) - before) / count * 1e6}


def main() -> None:
    """Measure by turns, and print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--single", type=int, default=1_000)
    parser.add_argument("--real-time", action="store_true")
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--base-port", type=int, default=29_100)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    one = one_at_a_time_in_real_time if options.real_time else one_at_a_time
    works: dict[str, Callable[[Side], dict[str, float]]] = {
        "one at a time": lambda side: one(side, options.single),
        "as many as go": lambda side: as_many_as_go(side, options.records),
    }
    with tempfile.TemporaryDirectory(prefix="among-brokers-") as directory:
        sides = [
            Side(
                f"{name}, {way}" if way else name,
                Path(directory) / str(number),
                options.base_port + number * PORTS_APART,
                settings,
                is_compiled=way != "interpreted",
            )
            for number, (name, settings, way) in enumerate(
                (name, settings, way)
                for name, settings in SIDES.items()
                for way in (("interpreted", "compiled") if options.compiled else ("",))
            )
        ]
        try:
            for side in sides:
                side.start()
            found = _measure(sides, works, options.rounds)
        finally:
            for side in sides:
                side.cluster.down()
    _print(found)
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1))


def _measure(
    sides: list[Side], works: dict[str, Callable[[Side], dict[str, float]]], rounds: int
) -> dict[str, dict[str, list[dict[str, float]]]]:
    found: dict[str, dict[str, list[dict[str, float]]]] = {name: {side.name: [] for side in sides} for name in works}
    for number in range(rounds):
        for name, work in works.items():
            for side in sides if number % 2 == 0 else reversed(sides):
                found[name][side.name].append(work(side))
    return found


def _print(found: dict[str, Any]) -> None:
    load = os.getloadavg()[0]
    print(f"Medians of the rounds, [least - most]; load {load:.1f} on {os.cpu_count()} cores")
    for work, by_side in found.items():
        for figure in next(iter(by_side.values()))[0]:
            cells = []
            for name, rounds in by_side.items():
                values = [one[figure] for one in rounds]
                cells.append(f"{name} {statistics.median(values):.4g} [{min(values):.4g} - {max(values):.4g}]")
            print(f"{work}, {figure}: " + "; ".join(cells))


if __name__ == "__main__":
    main()
