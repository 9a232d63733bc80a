"""The cost of the event log on the produce path: CPU time of three brokers for the same records, with it and without.

Two clusters live side by side on one ZooKeeper, one with event logs, one without. They take turns, a short block of
records each, and each pair of blocks gives a ratio of CPU time per record; only the block's own brokers are read. CPU
time, not throughput, and pairs close in time: both are hardly moved by what else the machine does, and what still
moves them moves both. The figure is the median of the ratios; its 95 % interval comes from resampling the pairs. Each
round starts new processes, since no two processes of one program cost quite the same, and the kinds change places from
round to round, since who starts first costs less. ``--control`` runs both without event logs: what it then shows beside
1 is what the measurement can't see. That part is measured apart: the writers by themselves, in this process.

Each record is a batch of its own, acks=all, three replicas, so that every one moves each replica's LEO and HW: the most
that the event log ever gets to do.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_client import Admin, Producer
from tidegauge_lab.local.cluster import LocalCluster

TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
WARM_UP_RECORDS = 1_000
BROKERS = 3
BASE_PORT = 23192  # no other program's default: the ports must be free again after each stop
RESAMPLES = 5_000
NO_EVENT_LOG = "event.log.file="


class Side:
    """The running brokers of one cluster, and a producer to them.

    Args:
        cluster: its brokers are down; its ZooKeeper is up.
        overrides: settings of the brokers.
    """

    def __init__(self, cluster: LocalCluster, overrides: Sequence[str]) -> None:
        self._cluster = cluster
        self._overrides = overrides
        self._pids: list[int] = []
        self._producer: Producer | None = None
        self._topic = ""

    @contextmanager
    def brokers(self) -> Iterator[None]:
        """Start them; stop them in the end."""
        started = []
        for entry in self._cluster.file.brokers:
            config = self._cluster.directory / f"broker-{entry.id}" / "server.properties"
            command = [TIDEGAUGE, "broker", "--config", str(config)]
            command += [part for override in self._overrides for part in ("--override", override)]
            started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        self._pids = [process.pid for process in started]
        try:
            yield
        finally:
            for process in started:
                process.send_signal(signal.SIGTERM)
            for process in started:
                process.wait(120)

    async def prepare(self, topic: str) -> None:
        """Wait for the brokers, make a topic, and let everything become warm."""
        bootstrap = self._cluster.bootstrap_servers
        async with Admin(bootstrap) as admin:
            for address in bootstrap:
                await _knows_all(admin, address)
            await admin.create_topic(topic, partitions=1, replication_factor=BROKERS)
            await admin.wait_for_topic(topic, timeout_ms=120_000)
        self._topic = topic
        self._producer = Producer(bootstrap, acks="all", batch_size_bytes=1)
        await self._producer.start()
        await self._send(WARM_UP_RECORDS)

    async def close(self) -> None:
        """Close the producer."""
        if self._producer is not None:
            await self._producer.stop()

    async def block(self, records: int) -> float:
        """CPU microseconds of all brokers for each record."""
        before = sum(map(cpu_seconds, self._pids))
        await self._send(records)
        return (sum(map(cpu_seconds, self._pids)) - before) / records * 1e6

    async def _send(self, records: int) -> None:
        assert self._producer is not None
        for _ in range(records):
            await self._producer.send(self._topic, b"x" * 100, partition=0)
        await self._producer.flush()


class Turns(NamedTuple):
    """The first side of a round, and the length of a turn."""

    order: tuple[int, int]
    records: int


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, all of its threads, to the nanosecond: clock_getcpuclockid(3) on Linux."""
    return time.clock_gettime((~pid << 3) | 2)


async def _knows_all(admin: Admin, address: str) -> None:
    end = time.monotonic() + 120
    while True:
        try:
            if len((await admin.metadata_of(address)).brokers) == BROKERS:
                return
        except TidegaugeError:
            pass
        assert time.monotonic() < end, f"{address} is not ready"
        await asyncio.sleep(0.1)


async def one_round(name: str, sides: Sequence[Side], turns: Turns, pairs: int) -> list[tuple[float, float]]:
    """CPU microseconds a record, of the first side and the second, for each pair of blocks."""
    measured = []
    try:
        for side in turns.order:
            await sides[side].prepare(name)
        for number in range(pairs):
            cost = {side: await sides[side].block(turns.records) for side in turns.order[:: (1, -1)[number % 2]]}
            measured.append((cost[0], cost[1]))
    finally:
        for one in sides:
            await one.close()
    return measured


def by_itself(directory: Path, records: int = 20_000, records_a_window: int = 10) -> float:
    """CPU microseconds a record in three writers alone: what a produce notes, written as often as on a busy machine.

    Six changes a record: LEO and HW of three replicas. A window of 100 ms that holds ten records corresponds to a
    hundred records a second; the more there are, the less a record costs.
    """
    later: list[Callable[[], None]] = []
    now_ms = partial(int, 0)
    writers = [
        EventLogWriter(directory / str(i), f"broker-{i}", now_ms, lambda _, f: later.append(f)) for i in range(BROKERS)
    ]
    at = TopicPartition("orders", 0)
    before = time.thread_time()
    for offset in range(records):
        moved = {"old": offset, "new": offset + 1}
        for writer in writers:
            writer.note("log_end_offset", "Produce", moved, at)
            writer.note("high_watermark", "Fetch", moved, at)
        if offset % records_a_window == 0:
            for flush in later:
                flush()
            later.clear()
    spent = time.thread_time() - before
    for writer in writers:
        writer.close()
    return spent / records * 1e6


def interval(ratios: Sequence[float], figure: Callable[[Sequence[float]], float]) -> tuple[float, float]:
    """Return the 95 % interval of a figure, by reproducible resampling."""
    dice = random.Random(7)
    figures = sorted(figure(dice.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return figures[int(RESAMPLES * 0.025)], figures[int(RESAMPLES * 0.975)]


def tell(measured: Sequence[tuple[float, float]], names: tuple[str, str]) -> None:
    """Print the ratio, its interval and its spread."""
    ratios = [one / other for one, other in measured]
    low, high = interval(ratios, statistics.median)
    quarter, _, three_quarters = statistics.quantiles(ratios, n=4)
    costs = [statistics.median(pair[side] for pair in measured) for side in (0, 1)]
    print(
        f"{names[0]} / {names[1]}: median {statistics.median(ratios):.3f}, 95 % interval {low:.3f} to {high:.3f}; half "
        f"of the {len(ratios)} pairs between {quarter:.3f} and {three_quarters:.3f}; "
        f"{costs[0]:.0f} and {costs[1]:.0f} us "
        f"of CPU a record (all {BROKERS} brokers, acks=all, a record a batch; {os.cpu_count()} cores, "
        f"load {os.getloadavg()[0]:.0f})"
    )


def run(arguments: argparse.Namespace, directory: Path) -> list[tuple[float, float]]:
    """Both clusters, all rounds."""
    measured: list[tuple[float, float]] = []
    with ExitStack() as stack:
        clusters = [LocalCluster.create(directory / "one", BROKERS, profile="kafka", base_port=BASE_PORT)]
        stack.callback(clusters[0].down)
        clusters[0].up()
        beside = f"{clusters[0].file.zookeeper_address}/two"
        clusters.append(
            LocalCluster.create(directory / "two", BROKERS, profile="kafka", zookeeper=beside, base_port=BASE_PORT + 10)
        )
        stack.callback(clusters[1].down)
        clusters[1].up()
        for cluster in clusters:
            cluster.stop(*(entry.id for entry in cluster.file.brokers))
        first = [NO_EVENT_LOG] if arguments.control else []
        with asyncio.Runner() as runner:  # one loop for all rounds: gRPC's poller outlives a closed one
            for number in range(arguments.rounds):
                # Four rounds are balanced: each kind on each cluster, and once first, once second.
                swapped = clusters[:: (1, -1)[number % 2]]
                order = ((0, 1), (1, 0))[number // 2 % 2]
                sides = [Side(swapped[0], first), Side(swapped[1], [NO_EVENT_LOG])]
                turns = Turns(order, arguments.records)
                with sides[order[0]].brokers(), sides[order[1]].brokers():
                    pairs = runner.run(one_round(f"t{number}", sides, turns, arguments.pairs))
                median = statistics.median(one / other for one, other in pairs)
                print(f"round {number + 1}: median ratio {median:.3f} of {len(pairs)} pairs", flush=True)
                measured += pairs
    return measured


def main() -> None:
    """Run the rounds and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=400, help="in one block")
    parser.add_argument("--pairs", type=int, default=24, help="of blocks in a round; even")
    parser.add_argument("--rounds", type=int, default=4, help="each with new processes; four are balanced")
    parser.add_argument("--control", action="store_true", help="both without event logs")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="tidegauge-bench-"))
    try:
        alone = min(by_itself(directory) for _ in range(5))
        measured = run(arguments, directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    share = alone / statistics.median(without for _, without in measured)
    print(f"the writers by themselves: {alone:.1f} us of CPU a record, {share:.2%}")
    tell(measured, ("without" if arguments.control else "with", "without"))


if __name__ == "__main__":
    main()
