"""How the cluster carries many partitions: three brokers, and a row of figures for each number of partitions.

For each number a cluster of its own is made; the topic has three replicas of each partition, so every broker hosts all
of them and leads a third. Times are wall-clock and end with what a client can see; those that include the end of a
ZooKeeper session say so by naming its length. CPU is a share of one core, of the broker that needs most.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tidegauge.errors import TidegaugeError
from tidegauge_client import Admin, Producer
from tidegauge_client.metadata import ClusterInfo, PartitionInfo
from tidegauge_lab.cluster import LocalCluster

TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
TOPIC = "scale"
BROKERS = 3
SESSION_SECONDS = 4
LIMIT_SECONDS = 600.0
SETTLE_SECONDS = 15.0
PRODUCED_RECORDS = 100
Holds = Callable[[ClusterInfo], bool]


@dataclass(slots=True)
class Row:
    """The figures of one number of partitions.

    Attributes:
        partitions: of the one topic, with three replicas each.
        create_seconds: from the request until every broker's metadata shows a leader for each partition.
        describe_seconds: ``tidegauge describe-topic``, the start of the interpreter included.
        idle_cpu_percent: of one core, of the broker that needs most while nothing is written.
        produce_ms: from send to acknowledgement by all replicas, one record at a time into one partition; the median.
        memory_mb: resident, of the largest broker.
        controller_death_seconds: SIGKILL of the controller, until both others show live leaders for all partitions.
        rejoin_seconds: from the start of the dead broker until every ISR is full again.
        broker_death_seconds: the same as the controller's for another broker.
        stop_seconds: a controlled shutdown, until the process is gone.
        delete_seconds: from the request until no broker's metadata shows the topic.
    """

    partitions: int
    create_seconds: float = 0.0
    describe_seconds: float = 0.0
    idle_cpu_percent: float = 0.0
    produce_ms: float = 0.0
    memory_mb: float = 0.0
    controller_death_seconds: float = 0.0
    rejoin_seconds: float = 0.0
    broker_death_seconds: float = 0.0
    stop_seconds: float = 0.0
    delete_seconds: float = 0.0


LABELS = {
    "create_seconds": "create the topic, s",
    "describe_seconds": "describe-topic, s",
    "idle_cpu_percent": "idle CPU of a broker, % of a core",
    "produce_ms": "a record to all replicas, ms (median)",
    "memory_mb": "memory of a broker, MB",
    "controller_death_seconds": f"death of the controller until all are led, s ({SESSION_SECONDS} s session)",
    "rejoin_seconds": "start of the dead broker until all ISRs are full, s",
    "broker_death_seconds": f"death of another broker until all are led, s ({SESSION_SECONDS} s session)",
    "stop_seconds": "controlled shutdown, s",
    "delete_seconds": "delete the topic, s",
}


async def _until(bootstrap: list[str], addresses: list[str], holds: Holds, what: str) -> None:
    """Wait until the metadata of each of these brokers fulfils a condition."""
    end = time.monotonic() + LIMIT_SECONDS
    async with Admin(bootstrap) as admin:
        for address in addresses:
            while True:
                try:
                    if holds(await admin.metadata_of(address, [TOPIC])):
                        break
                except TidegaugeError:
                    pass
                if time.monotonic() > end:
                    raise SystemExit(f"{address}: not {what} within {LIMIT_SECONDS:g} s")
                await asyncio.sleep(0.05)


def _partitions(metadata: ClusterInfo) -> list[PartitionInfo]:
    topic = metadata.topics.get(TOPIC)
    return [] if topic is None else list(topic.partitions.values())


def _led_by_others(count: int, dead: int) -> Holds:
    def holds(metadata: ClusterInfo) -> bool:
        found = _partitions(metadata)
        return len(found) == count and all(partition.leader_id not in {None, dead} for partition in found)

    return holds


def _all_in_sync(count: int) -> Holds:
    def holds(metadata: ClusterInfo) -> bool:
        found = _partitions(metadata)
        return len(found) == count and all(len(partition.isr) == BROKERS for partition in found)

    return holds


async def _create(bootstrap: list[str], partitions: int) -> None:
    async with Admin(bootstrap) as admin:
        await admin.create_topic(
            TOPIC, partitions=partitions, replication_factor=BROKERS, timeout_ms=int(LIMIT_SECONDS * 1000)
        )
        await admin.wait_for_topic(TOPIC, timeout_ms=int(LIMIT_SECONDS * 1000))


async def _produce(bootstrap: list[str]) -> float:
    """The median time of a record, in ms."""
    found = []
    async with Producer(bootstrap, acks="all") as producer:
        for number in range(PRODUCED_RECORDS):
            began = time.perf_counter()
            await (await producer.send(TOPIC, b"%d" % number, partition=0))
            found.append((time.perf_counter() - began) * 1000)
    return round(statistics.median(found), 2)


async def _delete(bootstrap: list[str]) -> None:
    async with Admin(bootstrap) as admin:
        await admin.delete_topic(TOPIC, timeout_ms=int(LIMIT_SECONDS * 1000))
    await _until(bootstrap, bootstrap, lambda metadata: not _partitions(metadata), "rid of the topic")


class Measurement:
    """One cluster and the row that it fills."""

    def __init__(self, folder: Path, partitions: int, wanted: argparse.Namespace, runner: asyncio.Runner) -> None:
        self.row = Row(partitions)
        settings = {"auto.leader.rebalance.enable": "false"}
        self.cluster = LocalCluster.create(folder, BROKERS, settings=settings, base_port=wanted.base_port)
        self._idle_seconds = wanted.idle_seconds
        self._runner = runner

    @property
    def _bootstrap(self) -> list[str]:
        return self.cluster.bootstrap_servers

    def _timed(self, action: Callable[[], object]) -> float:
        began = time.perf_counter()
        action()
        return round(time.perf_counter() - began, 2)

    def _wait(self, dead: int | None, holds: Holds, what: str) -> None:
        alive = [entry.address for entry in self.cluster.file.brokers if entry.id != dead]
        self._runner.run(_until(alive, alive, holds, what))

    def _measure(self, name: str, action: Callable[[], object]) -> None:
        seconds = self._timed(action)
        setattr(self.row, name, seconds)
        print(f"{self.row.partitions} partitions: {LABELS[name]}: {seconds:g}", file=sys.stderr, flush=True)

    def run(self) -> Row:
        """All figures, one after the other, on one cluster."""
        count = self.row.partitions
        self.cluster.up()
        self._measure("create_seconds", lambda: self._runner.run(_create(self._bootstrap, count)))
        self._measure("describe_seconds", self._describe)
        self._idle()
        self.row.produce_ms = self._runner.run(_produce(self._bootstrap))
        print(f"{count} partitions: {LABELS['produce_ms']}: {self.row.produce_ms:g}", file=sys.stderr, flush=True)
        controller = self._controller()
        self._measure("controller_death_seconds", lambda: self._kill(controller))
        self._measure("rejoin_seconds", lambda: self._start(controller))
        # The one that came back leads nothing yet: the third broker's death says more.
        spared = {controller, self._controller()}
        other = next(entry.id for entry in self.cluster.file.brokers if entry.id not in spared)
        self._measure("broker_death_seconds", lambda: self._kill(other))
        self._start(other)
        self._measure("stop_seconds", lambda: self.cluster.stop(other, limit_seconds=LIMIT_SECONDS))
        self._start(other)
        self._measure("delete_seconds", lambda: self._runner.run(_delete(self._bootstrap)))
        return self.row

    def _controller(self) -> int:
        return int(self.cluster.status()["controller"]["broker"])

    def _describe(self) -> None:
        subprocess.run(
            [TIDEGAUGE, "describe-topic", TOPIC, "--dir", str(self.cluster.directory)],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def _kill(self, broker_id: int) -> None:
        self.cluster.kill(broker_id)
        self._wait(broker_id, _led_by_others(self.row.partitions, broker_id), f"led without {broker_id}")

    def _start(self, broker_id: int) -> None:
        self.cluster.start(broker_id, limit_seconds=LIMIT_SECONDS)
        self._wait(None, _all_in_sync(self.row.partitions), "in sync")

    def _idle(self) -> None:
        pids = [self.cluster.pid_of(entry.id) for entry in self.cluster.file.brokers]
        processes = [psutil.Process(pid) for pid in pids if pid is not None]
        time.sleep(SETTLE_SECONDS)

        def used() -> list[float]:
            return [sum(process.cpu_times()[:2]) for process in processes]

        began, before = time.monotonic(), used()
        time.sleep(self._idle_seconds)
        seconds = time.monotonic() - began
        busiest = max(after - start for after, start in zip(used(), before, strict=True))
        self.row.idle_cpu_percent = round(100 * busiest / seconds, 1)
        self.row.memory_mb = round(max(process.memory_info().rss for process in processes) / 1e6, 1)
        print(f"{self.row.partitions} partitions: idle at {self.row.idle_cpu_percent} %", file=sys.stderr, flush=True)


def table(rows: list[Row]) -> str:
    """The rows side by side, as Markdown."""
    lines = ["| partitions, three replicas each | " + " | ".join(f"{row.partitions:,}" for row in rows) + " |"]
    lines.append("|---|" + "---|" * len(rows))
    for name, label in LABELS.items():
        lines.append(f"| {label} | " + " | ".join(f"{getattr(row, name):g}" for row in rows) + " |")
    return "\n".join(lines)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="+", default=[10, 300, 1_000, 3_000])
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--base-port", type=int, help="of the first broker; else as `tidegauge up` chooses")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    arguments = parser.parse_args()
    rows: list[Row] = []
    with asyncio.Runner() as runner:  # one loop for all clusters: gRPC's poller outlives a closed one
        for partitions in arguments.partitions:
            folder = Path(tempfile.mkdtemp(prefix="tidegauge-scale-"))
            measurement = Measurement(folder / "cluster", partitions, arguments, runner)
            try:
                rows.append(measurement.run())
            finally:
                measurement.cluster.down()
                shutil.rmtree(folder, ignore_errors=True)
    print(f"{os.cpu_count()} cores, {BROKERS} brokers\n\n{table(rows)}")
    if arguments.json is not None:
        document = {"cores": os.cpu_count(), "brokers": BROKERS, "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
