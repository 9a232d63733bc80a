"""How clusters carry many partitions: three brokers, ours and Apache Kafka's, and a row of figures for each number.

For each number and side a cluster of its own is made, one after the other; the topic has three replicas of each
partition, so every broker hosts all of them and leads a third. Times are wall-clock and end with what a client can see
in the metadata of every living broker; those that include the end of a ZooKeeper session say so by naming its length.
CPU is a share of one core, of the broker that needs most. One number of one side takes minutes: ``--json`` keeps
earlier figures, so that a table may come about piece by piece.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import kafka_side
import psutil
from scale_sides import BROKERS, KafkaScale, Seen, Side, TidegaugeScale

SESSION_SECONDS = 4
LIMIT_SECONDS = 600.0
SETTLE_SECONDS = 15.0
PRODUCED_RECORDS = 100
OURS, THEIRS = "tidegauge", "kafka"
Holds = Callable[[list[Seen]], bool]


@dataclass(slots=True)
class Row:
    """The figures of one number of partitions.

    Attributes:
        side: whose.
        partitions: of the one topic, with three replicas each.
        create_seconds: from the request until every broker's metadata shows a leader for each partition.
        describe_seconds: ``tidegauge describe-topic``, or kafka-topics, the tool's start included.
        idle_cpu_percent: of one core, of the broker that needs most while nothing is written.
        produce_ms: from send to acknowledgement by all replicas, one record at a time into one partition; the median.
        memory_mb: resident, of the largest broker.
        controller_death_seconds: SIGKILL of the controller, until both others show live leaders for all partitions.
        rejoin_seconds: from the start of the dead broker until every ISR is full again.
        broker_death_seconds: the same as the controller's for another broker.
        stop_seconds: a controlled shutdown, until the process has ended.
        delete_seconds: from the request until no broker's metadata shows the topic.
    """

    side: str
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
    "describe_seconds": "describe the topic on the command line, s",
    "idle_cpu_percent": "idle CPU of a broker, % of a core",
    "produce_ms": "a record to all replicas, ms (median)",
    "memory_mb": "memory of a broker, MB",
    "controller_death_seconds": f"death of the controller until all are led, s ({SESSION_SECONDS} s session)",
    "rejoin_seconds": "start of the dead broker until all ISRs are full, s",
    "broker_death_seconds": f"death of another broker until all are led, s ({SESSION_SECONDS} s session)",
    "stop_seconds": "controlled shutdown, s",
    "delete_seconds": "delete the topic, s",
}


def _led_by_others(count: int, dead: int | None) -> Holds:
    return lambda seen: len(seen) == count and all(one.leader not in {None, dead} for one in seen)


def _all_in_sync(count: int) -> Holds:
    return lambda seen: len(seen) == count and all(one.in_sync == BROKERS for one in seen)


class Measurement:
    """One cluster and the row that it fills."""

    def __init__(self, side: Side, partitions: int, idle_seconds: float, runner: asyncio.Runner) -> None:
        self.row = Row(side.name, partitions)
        self._side = side
        self._idle_seconds = idle_seconds
        self._runner = runner

    def _note(self, name: str) -> None:
        words = f"{self._side.name}, {self.row.partitions} partitions: {LABELS[name]}: {getattr(self.row, name):g}"
        print(words, file=sys.stderr, flush=True)

    def _measure(self, name: str, action: Callable[[], object]) -> None:
        began = time.perf_counter()
        action()
        setattr(self.row, name, round(time.perf_counter() - began, 2))
        self._note(name)

    async def _until(self, holds: Holds, without: int | None = None) -> None:
        """Wait until the metadata of each living broker fulfils a condition."""
        end = time.monotonic() + LIMIT_SECONDS
        for broker_id in self._side.broker_ids:
            while broker_id != without:
                seen = await self._side.seen(broker_id)
                if seen is not None and holds(seen):
                    break
                if time.monotonic() > end:
                    raise SystemExit(f"{self._side.name}: broker {broker_id} was not there in {LIMIT_SECONDS:g} s")
                await asyncio.sleep(0.05)

    def run(self) -> Row:
        """All figures, one after the other, on one cluster."""
        self._side.start()
        self._runner.run(self._side.connect())
        try:
            self._measure("create_seconds", self._create)
            self._measure("describe_seconds", self._side.describe)
            self._idle()
            self.row.produce_ms = round(self._runner.run(self._side.produce(PRODUCED_RECORDS)), 2)
            self._note("produce_ms")
            self._deaths()
            self._measure("delete_seconds", self._delete)
        finally:
            self._runner.run(self._side.disconnect())
        return self.row

    def _deaths(self) -> None:
        controller = self._runner.run(self._side.controller())
        self._measure("controller_death_seconds", lambda: self._kill(controller))
        self._measure("rejoin_seconds", lambda: self._restart(controller))
        # The one that came back leads nothing yet: the third broker's death says more.
        spared = {controller, self._runner.run(self._side.controller())}
        other = next(broker_id for broker_id in self._side.broker_ids if broker_id not in spared)
        self._measure("broker_death_seconds", lambda: self._kill(other))
        self._restart(other)
        self._measure("stop_seconds", lambda: self._side.shut_down(other))
        self._restart(other)

    def _create(self) -> None:
        async def create() -> None:
            await self._side.create(self.row.partitions)
            await self._until(_led_by_others(self.row.partitions, None))

        self._runner.run(create())

    def _delete(self) -> None:
        async def delete() -> None:
            await self._side.delete()
            await self._until(lambda seen: not seen)

        self._runner.run(delete())

    def _kill(self, broker_id: int) -> None:
        self._side.kill(broker_id)
        self._runner.run(self._until(_led_by_others(self.row.partitions, broker_id), broker_id))

    def _restart(self, broker_id: int) -> None:
        self._side.restart(broker_id)
        self._runner.run(self._until(_all_in_sync(self.row.partitions)))

    def _idle(self) -> None:
        processes = [psutil.Process(pid) for pid in self._side.pids().values()]
        time.sleep(SETTLE_SECONDS)

        def used() -> list[float]:
            return [sum(process.cpu_times()[:2]) for process in processes]

        began, before = time.monotonic(), used()
        time.sleep(self._idle_seconds)
        seconds = time.monotonic() - began
        busiest = max(after - start for after, start in zip(used(), before, strict=True))
        self.row.idle_cpu_percent = round(100 * busiest / seconds, 1)
        self.row.memory_mb = round(max(process.memory_info().rss for process in processes) / 1e6, 1)
        self._note("idle_cpu_percent")


def table(rows: Sequence[Row]) -> str:
    """Return the rows as Markdown: for each number of partitions ours, then theirs."""
    lines = [
        "| partitions, three replicas each | " + " | ".join(f"{row.partitions:,}, {row.side}" for row in rows) + " |",
        "|---|" + "---|" * len(rows),
    ]
    for name, label in LABELS.items():
        lines.append(f"| {label} | " + " | ".join(f"{getattr(row, name):g}" for row in rows) + " |")
    return "\n".join(lines)


def _kept(file: Path | None) -> dict[tuple[int, str], Row]:
    """Return the rows of earlier runs."""
    if file is None or not file.exists():
        return {}
    rows = [Row(**row) for row in json.loads(file.read_text())["rows"]]
    return {(row.partitions, row.side): row for row in rows}


def _side(name: str, directory: Path, base_port: int | None) -> Side:
    return TidegaugeScale(directory, base_port) if name == OURS else KafkaScale(directory)


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, nargs="*", default=[10, 300, 1_000, 3_000])
    parser.add_argument("--sides", nargs="+", choices=[OURS, THEIRS], default=[OURS, THEIRS])
    parser.add_argument("--idle-seconds", type=float, default=30.0)
    parser.add_argument("--base-port", type=int, help="of our first broker; else as `tidegauge up` chooses")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, beside those it has")
    arguments = parser.parse_args()
    rows = _kept(arguments.json)
    with asyncio.Runner() as runner:  # one loop for all clusters: gRPC's poller outlives a closed one
        for partitions in arguments.partitions:
            for name in arguments.sides:
                directory = Path(tempfile.mkdtemp(prefix="tidegauge-scale-"))
                try:
                    side = _side(name, directory, arguments.base_port)
                except kafka_side.Unavailable as problem:
                    print(f"Apache Kafka is left out: {problem}", file=sys.stderr)
                    continue
                try:
                    row = Measurement(side, partitions, arguments.idle_seconds, runner).run()
                    rows[partitions, row.side] = row
                finally:
                    side.stop()
                    shutil.rmtree(directory, ignore_errors=True)
                if arguments.json is not None:
                    _keep(arguments.json, rows)
    print(f"{os.cpu_count()} cores, {BROKERS} brokers\n\n{table(_in_order(rows))}")


def _in_order(rows: dict[tuple[int, str], Row]) -> list[Row]:
    return [rows[at] for at in sorted(rows, key=lambda at: (at[0], at[1] != "Tidegauge"))]


def _keep(file: Path, rows: dict[tuple[int, str], Row]) -> None:
    document = {"cores": os.cpu_count(), "brokers": BROKERS, "rows": [asdict(row) for row in _in_order(rows)]}
    file.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
