"""Many clients at once on Tidegauge and on Apache Kafka: ``PYTHONPATH=. python bench/many_clients.py``.

Connections that are open and idle. Groups whose members all join at the same time and then send heartbeats;
transactional ids that all begin, and then have one transaction each. The clients speak Kafka's protocol by themselves
(``raw_clients.py``), so they are the same on both sides and cost little. Both clusters stay up, and each workload is
done on the one, then on the other. CPU time and memory cover all brokers of a side together. The JVMs are young:
``--warm-seconds`` lets both sides work before anything is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import kafka_side
from measure import cpu_seconds, latency_of, resident_bytes
from raw_clients import BEAT_SECONDS, REJOIN, Client, Connection, Member, TransactionalId, coordinators_of
from tidegauge_side import Tidegauge

TOPIC = "many-clients"
PARTITIONS = 12
AT_A_TIME = 100
PROBES = 500
HEARTBEAT_SECONDS = 10.0
HEARTBEATS = 10
SETTINGS = {
    "offsets.topic.num.partitions": "50",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.num.partitions": "50",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
Side = Tidegauge | kafka_side.Kafka
Figures = dict[str, float]


class Meter:
    """CPU time and memory of a side's brokers since it was made."""

    def __init__(self, side: Side) -> None:
        self._pids = list(side.pids().values())
        self._cpu_seconds = cpu_seconds(self._pids)
        self._bytes = resident_bytes(self._pids)
        self._began = time.perf_counter()

    def seconds(self) -> float:
        """Return how long it has been."""
        return time.perf_counter() - self._began

    def cpu_us(self, count: int) -> float:
        """Return the CPU time for one of so many things, in us."""
        return (cpu_seconds(self._pids) - self._cpu_seconds) * 1e6 / count

    def kilobytes(self, count: int) -> float:
        """Return the memory for one of so many things, in KB."""
        return (resident_bytes(self._pids) - self._bytes) / 1024 / count


async def in_waves(works: Sequence[Callable[[], Awaitable[object]]], at_a_time: int = AT_A_TIME) -> None:
    """Do some work, at most so many at a time."""
    room = asyncio.Semaphore(at_a_time)

    async def one(work: Callable[[], Awaitable[object]]) -> None:
        async with room:
            await work()

    async with asyncio.TaskGroup() as group:
        for work in works:
            group.create_task(one(work))


async def connections(side: Side, count: int) -> Figures:
    """Open connections that say their versions and ask for metadata, and one more that is timed beside them."""
    servers = side.kafka_bootstrap.split(",")
    opened: list[Connection] = []

    async def open_one(number: int) -> None:
        connection = await Connection.open(servers[number % len(servers)])
        opened.append(connection)
        await connection.versions()

    meter = Meter(side)
    await in_waves([lambda number=number: open_one(number) for number in range(count)])
    found = {
        f"{count} connections: s until all are open": meter.seconds(),
        f"{count} connections: CPU us for each": meter.cpu_us(count),
        f"{count} connections: KB for each": meter.kilobytes(count),
    }
    meter = Meter(side)
    await in_waves([lambda one=one: one.metadata(TOPIC) for one in opened])
    found[f"{count} connections: CPU us for a Metadata of each"] = meter.cpu_us(count)
    probe = await Connection.open(servers[0])
    took_ms = []
    for _ in range(PROBES):
        began = time.perf_counter()
        await probe.metadata(TOPIC)
        took_ms.append((time.perf_counter() - began) * 1000)
    latency = latency_of(took_ms)
    found[f"{count} connections: Metadata of one more, p50 ms"] = latency.p50_ms
    found[f"{count} connections: Metadata of one more, p99 ms"] = latency.p99_ms
    for one in [*opened, probe]:
        one.close()
    return found


async def groups(side: Side, count: int, members: int) -> Figures:
    """Let all members of all groups join at once, and send heartbeats for some seconds."""
    name = f"{count} groups of {members}"
    names = [f"group-{number}-{os.urandom(4).hex()}" for number in range(count)]
    coordinators = await coordinators_of(side.kafka_bootstrap, names)
    every = [[Member(await Connection.open(coordinators[one]), one) for _ in range(members)] for one in names]
    everyone = [member for group in every for member in group]
    meter = Meter(side)
    await asyncio.gather(*(_stable(group) for group in every))
    found = {
        f"{name}: s until all have their assignment": meter.seconds(),
        f"{name}: CPU ms for each group": meter.cpu_us(count) / 1000,
    }
    meter = Meter(side)
    for _ in range(HEARTBEATS):
        due = time.monotonic() + HEARTBEAT_SECONDS / HEARTBEATS
        await asyncio.gather(*(member.beat() for member in everyone))
        await asyncio.sleep(max(0.0, due - time.monotonic()))
    found[f"{name}: CPU us for a heartbeat"] = meter.cpu_us(HEARTBEATS * len(everyone))
    for member in everyone:
        member.close()
    return found


async def _stable(group: Sequence[Member]) -> None:
    """Let members join until all are in one generation: whoever is in an older one is asked to join again."""
    joined: dict[Member, int] = {}
    is_stable = asyncio.Event()

    async def member_of_it(member: Member) -> None:
        await member.join()
        while not is_stable.is_set():
            joined[member] = member.generation
            if len(joined) == len(group) and len(set(joined.values())) == 1:
                is_stable.set()
            elif await member.beat() in REJOIN:
                await member.join()
            else:
                await asyncio.sleep(BEAT_SECONDS)

    await asyncio.gather(*(member_of_it(member) for member in group))


async def transactions(side: Side, count: int) -> Figures:
    """Let transactional ids begin, and each commit one transaction of one record."""
    client = await Client.of(side.kafka_bootstrap, TOPIC)
    names = [f"id-{number}-{os.urandom(4).hex()}" for number in range(count)]
    coordinators = await coordinators_of(side.kafka_bootstrap, names, are_transactional=True)
    ids = [
        TransactionalId(one, await client.connection(coordinators[one]), client, number % PARTITIONS)
        for number, one in enumerate(names)
    ]
    meter = Meter(side)
    await in_waves([one.begin for one in ids])
    found = {
        f"{count} transactional ids: s until all have begun": meter.seconds(),
        f"{count} transactional ids: CPU us to begin": meter.cpu_us(count),
    }
    meter = Meter(side)
    await in_waves([one.transaction for one in ids])
    found[f"{count} transactional ids: transactions/s, one each"] = count / meter.seconds()
    found[f"{count} transactional ids: CPU ms for a transaction"] = meter.cpu_us(count) / 1000
    client.close()
    return found


def table(found: dict[str, Figures]) -> str:
    """Return the figures as a Markdown table; above 1 is in Tidegauge's favour."""
    sides = list(found)
    lines = [f"| | {' | '.join(sides)} |" + (" ratio |" if len(sides) > 1 else ""), "|---" * (len(sides) + 1) + "|"]
    lines[1] += "---|" if len(sides) > 1 else ""
    for measure in found[sides[0]]:
        values = [found[side].get(measure, 0.0) for side in sides]
        row = f"| {measure} | " + " | ".join(f"{value:,.2f}" for value in values) + " |"
        if len(values) > 1 and all(values):
            is_rate = "/s" in measure
            row += f" {(values[0] / values[1] if is_rate else values[1] / values[0]):.2f} |"
        lines.append(row)
    return "\n".join(lines)


async def _measure(side: Side, options: argparse.Namespace) -> Figures:
    found: Figures = {}
    for count in options.connections:
        found |= await connections(side, count)
    if options.groups:
        found |= await groups(side, options.groups, options.members)
    if options.ids:
        found |= await transactions(side, options.ids)
    return found


async def _warm_up(side: Side, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        await groups(side, 10, 3)
        await transactions(side, 50)
        await connections(side, 100)


def main() -> None:
    """Measure both, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, nargs="*", default=[1_000, 5_000])
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--members", type=int, default=10)
    parser.add_argument("--ids", type=int, default=1_000)
    parser.add_argument("--warm-seconds", type=float, default=60.0, help="of work before, on each side (default 60)")
    parser.add_argument("--without-kafka", action="store_true")
    parser.add_argument("--base-port", type=int, help="of Tidegauge's brokers")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    directory = Path(tempfile.mkdtemp(prefix="tidegauge-many-clients-"))
    sides: list[Side] = [Tidegauge(directory, options.base_port, SETTINGS)]
    if not options.without_kafka:
        try:
            sides.append(kafka_side.Kafka(directory, SETTINGS))
        except kafka_side.Unavailable as problem:
            print(f"Apache Kafka is left out: {problem}")
    found: dict[str, Figures] = {}
    started: list[Side] = []
    try:
        for side in sides:
            started.append(side)
            side.start()
            side.create(TOPIC, PARTITIONS)
        for side in sides:
            asyncio.run(_warm_up(side, options.warm_seconds))
        for side in sides:
            found[side.name] = asyncio.run(_measure(side, options))
    finally:
        for side in started:
            side.stop()
        shutil.rmtree(directory, ignore_errors=True)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n\n{table(found)}")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
