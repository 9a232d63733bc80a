"""What the event log costs on the produce path: CPU time of three brokers for the same records, with it and without.

CPU time, not throughput: it is hardly moved by what else the machine does. Each record is a batch of its own, acks=all,
three replicas, so that every one moves each replica's LEO and HW: the most that the event log ever gets to do. Rounds
alternate, so that a machine that warms up favours nobody; the smallest of each kind is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from tidegauge.errors import TidegaugeError
from tidegauge_client import Admin, Producer
from tidegauge_lab.cluster import LocalCluster

TIDEGAUGE = str(Path(sys.executable).parent / "tidegauge")
WARM_UP_RECORDS = 500
BROKERS = 3


@contextmanager
def brokers(cluster: LocalCluster, *overrides: str) -> Iterator[list[psutil.Process]]:
    """The cluster's brokers, started with overrides on the cluster's ZooKeeper."""
    started = []
    for entry in cluster.file.brokers:
        config = cluster.directory / f"broker-{entry.id}" / "server.properties"
        command = [TIDEGAUGE, "broker", "--config", str(config)]
        command += [part for override in overrides for part in ("--override", override)]
        started.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    try:
        yield [psutil.Process(process.pid) for process in started]
    finally:
        for process in started:
            process.send_signal(signal.SIGTERM)
        for process in started:
            process.wait(60)


async def all_registered(bootstrap: list[str]) -> None:
    """Wait until every broker knows all brokers."""
    async with Admin(bootstrap) as admin:
        for address in bootstrap:
            end = time.monotonic() + 120
            while True:
                try:
                    if len((await admin.metadata_of(address)).brokers) == BROKERS:
                        break
                except TidegaugeError:
                    pass
                assert time.monotonic() < end, f"{address} is not ready"
                await asyncio.sleep(0.1)


def cpu_seconds(processes: list[psutil.Process]) -> float:
    """User and system time of all."""
    times = [process.cpu_times() for process in processes]
    return sum(one.user + one.system for one in times)


async def measure(bootstrap: list[str], processes: list[psutil.Process], topic: str, records: int) -> float:
    """CPU microseconds of all brokers for each record."""
    await all_registered(bootstrap)
    async with Admin(bootstrap) as admin:
        await admin.create_topic(topic, partitions=1, replication_factor=BROKERS)
        await admin.wait_for_topic(topic)
    async with Producer(bootstrap, acks="all", batch_size_bytes=1) as producer:

        async def send(count: int) -> None:
            for _ in range(count):
                await producer.send(topic, b"x" * 100, partition=0)
            await producer.flush()

        await send(WARM_UP_RECORDS)
        before = cpu_seconds(processes)
        await send(records)
        return (cpu_seconds(processes) - before) / records * 1e6


def main() -> None:
    """Run the rounds and print the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="tidegauge-bench-"))
    cluster = LocalCluster.create(folder / "cluster", BROKERS, profile="kafka")
    costs: dict[str, list[float]] = {"with": [], "without": []}
    try:
        cluster.up()
        cluster.stop(*(entry.id for entry in cluster.file.brokers))
        with asyncio.Runner() as runner:  # one loop for all rounds: gRPC's poller outlives a closed one
            for number in range(arguments.rounds):
                kinds = [("without", ["event.log.file="]), ("with", [])]
                for kind, overrides in kinds[:: 1 if number % 2 == 0 else -1]:
                    with brokers(cluster, *overrides) as processes:
                        work = measure(cluster.bootstrap_servers, processes, f"{kind}-{number}", arguments.records)
                        costs[kind].append(runner.run(work))
                    print(f"round {number + 1}, {kind} event log: {costs[kind][-1]:.0f} us of CPU a record", flush=True)
    finally:
        cluster.down()
        shutil.rmtree(folder, ignore_errors=True)
    ratio = min(costs["with"]) / min(costs["without"])
    print(f"with / without: {ratio:.3f} on {os.cpu_count()} cores (all three brokers, acks=all, a record a batch)")


if __name__ == "__main__":
    main()
