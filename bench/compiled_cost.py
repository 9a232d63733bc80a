"""The gain of machine code for a request over Kafka's protocol.

Usage: make compiled; PYTHONPATH=build/compiled python bench/compiled_cost.py

Two clusters of one broker run beside each other, one from the sources and one as machine code, and are measured by
turns: the requests of ``kafka_request_cost.py``, one in flight. A line has the ratio of the medians; the
microseconds are this machine's of this hour.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from kafka_request_cost import (
    IDLE_SECONDS,
    WARM_UP_REQUESTS,
    Connection,
    cost_us,
    cpu_seconds,
    create_topic,
    group_requests,
    request,
    requests,
)

from tidegauge.machine_code import IN_USE, VARIABLE
from tidegauge_lab.local.cluster import LocalCluster

BASE_PORT = 23_500
PORTS_APART = 40
SIDES = {"interpreted": "off", "compiled": "on"}


@contextmanager
def machine_code(word: str) -> Iterator[None]:
    """Start processes with machine code, or without."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = word
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before


class Side:
    """A broker with a topic, and a connection to it."""

    def __init__(self, directory: Path, word: str, base_port: int, size_bytes: int) -> None:
        settings = {"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"}
        self.cluster = LocalCluster.create(
            directory, 1, profile="kafka", settings=settings, base_port=base_port, kafka_port=base_port + 4
        )
        with machine_code(word):
            self.cluster.up()
        asyncio.run(create_topic(self.cluster))
        self._connection = Connection(self.cluster.kafka_bootstrap_servers[0])
        self.frames: dict[str, bytes] = {}
        for name, (key, message) in (requests(size_bytes) | group_requests(self._connection)).items():
            self.frames[name] = request(key, message)
            for _ in range(WARM_UP_REQUESTS):
                self._connection.send(self.frames[name])
        pid = self.cluster.pid_of(0)
        assert pid is not None
        self._pid = pid
        before = cpu_seconds(pid)
        time.sleep(IDLE_SECONDS)
        self._idle = (cpu_seconds(pid) - before) / IDLE_SECONDS

    def cost_us(self, name: str, number: int) -> float:
        """Return the broker's CPU microseconds for one of these requests."""
        return cost_us(self._pid, partial(self._connection.send, self.frames[name]), number, self._idle)


def main() -> None:
    """Measure by turns, and print a line for each request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=300, help="of each kind in a round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--bytes", type=int, default=16_384, help="of the record in a Produce and a Fetch")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    options = parser.parse_args()
    if not IN_USE.is_compiled:
        parser.error(f"there is no machine code to measure ({IN_USE}): make compiled, then PYTHONPATH=build/compiled")
    sides: dict[str, Side] = {}
    with tempfile.TemporaryDirectory() as directory:
        try:
            for number, (name, word) in enumerate(SIDES.items()):
                at = options.base_port + number * PORTS_APART
                sides[name] = Side(Path(directory) / name, word, at, options.bytes)
            found = measure(sides, options.rounds, options.requests)
        finally:
            for side in sides.values():
                side.cluster.down()
    print("| API | interpreted: least, median, us of CPU | compiled | ratio of the medians |")
    print("|---|---|---|---|")
    for api, by_side in found.items():
        first, second = (by_side[name] for name in SIDES)
        ratio = statistics.median(second) / statistics.median(first)
        cells = (f"{min(costs):.0f}, {statistics.median(costs):.0f}" for costs in (first, second))
        print(f"| {api} | {' | '.join(cells)} | {ratio:.2f} |")
    print(f"\n{options.rounds} rounds of {options.requests} requests; load {os.getloadavg()[0]:.0f}")


def measure(sides: dict[str, Side], rounds: int, number: int) -> dict[str, dict[str, list[float]]]:
    """Return the costs by request and side; sides take turns."""
    found: dict[str, dict[str, list[float]]] = {}
    for turn in range(rounds):
        for api in next(iter(sides.values())).frames:
            costs = found.setdefault(api, {name: [] for name in sides})
            for name, side in sides.items() if turn % 2 else reversed(sides.items()):
                costs[name].append(side.cost_us(api, number))
    return found


if __name__ == "__main__":
    main()
