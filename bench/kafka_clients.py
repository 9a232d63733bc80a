"""One and the same Kafka client on both sides, in one run: Kafka's perf tools and librdkafka against both clusters.

So the ratios are the brokers'. Our own client over gRPC is shown beside them, against Kafka's tool with Kafka.
Both clusters stay up; each workload runs on one, then on the other, each round in the other order.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import kafka_side
import librdkafka
import table
from fetched import Unavailable
from measure import Latency, Workload, cpu_seconds, workloads
from perf_tools import PerfTools
from tidegauge_side import Tidegauge

ROUNDS = 2


class Side(Protocol):
    """A cluster that serves Kafka's clients."""

    name: str

    @property
    def kafka_bootstrap(self) -> str:
        """Return the brokers' addresses for Kafka's clients, with commas."""
        ...

    def start(self) -> None:
        """See ``measure.BrokerSide``."""

    def stop(self) -> None:
        """See ``measure.BrokerSide``."""

    def pids(self) -> dict[int, int]:
        """See ``measure.BrokerSide``."""
        ...

    def create(self, topic: str, partitions: int, replicas: int = 3) -> None:
        """See ``measure.BrokerSide``."""

    def delete(self, topic: str) -> None:
        """See ``measure.BrokerSide``."""

    def produce(self, topic: str, workload: Workload) -> float:
        """See ``measure.BrokerSide``."""
        ...

    def consume(self, topic: str, workload: Workload) -> float:
        """See ``measure.BrokerSide``."""
        ...


Work = Callable[[Side, str, Workload], float]


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Clients:
    """The workloads, by measure; a client that can't be had is left out, and so is work that a side does not serve."""

    def __init__(self, figures: table.Figures, only: str) -> None:
        self._figures = figures
        self._tools: PerfTools | None = None
        self.works: dict[table.Measure, Work] = {}
        try:
            tools = self._tools = PerfTools()
            self.works[table.TOOL_PRODUCE] = lambda side, topic, cell: tools.produce(side.kafka_bootstrap, topic, cell)
            self.works[table.TOOL_CONSUME] = lambda side, topic, cell: tools.consume(side.kafka_bootstrap, topic, cell)
        except Unavailable as problem:
            _note(f"Kafka's perf tools are left out: {problem}")
        try:
            librdkafka.library()
            self.works[table.RDKAFKA_PRODUCE] = _with_librdkafka(librdkafka.produce)
            self.works[table.RDKAFKA_CONSUME] = _with_librdkafka(librdkafka.consume)
        except Unavailable as problem:
            _note(f"librdkafka is left out: {problem}")
        self.works[table.OWN_PRODUCE] = lambda side, topic, cell: side.produce(topic, cell)
        self.works[table.OWN_CONSUME] = lambda side, topic, cell: side.consume(topic, cell)
        self.works = {measure: work for measure, work in self.works.items() if only in measure.words}

    def work(self, sides: Sequence[Side], workload: Workload, name: str) -> None:
        """Let each client write and read a topic of its own on each side, and compare latencies at the same load."""
        slowest: dict[str, float] = {}
        topics: dict[str, str] = {}
        for number, (measure, work) in enumerate(self.works.items()):
            part = workload if number % 2 == 0 else workload.short_of_end()
            for side in sides:
                if number % 2 == 0:
                    topics[side.name] = f"{name}-{number}"
                    side.create(topics[side.name], workload.partitions)
                _note(f"{name}: {side.name}, {workload.name}, {measure.words}")
                cpu_before = cpu_seconds(side.pids().values())
                try:
                    rate = work(side, topics[side.name], part)
                except RuntimeError as problem:
                    _note(f"left out: {problem}")
                    continue
                self._figures.add(workload.name, measure, side.name, rate)
                count = part.records * (librdkafka.READS if measure is table.RDKAFKA_CONSUME else 1)
                cpu_us = (cpu_seconds(side.pids().values()) - cpu_before) * 1e6 / count
                self._figures.add(workload.name, table.BROKERS_CPU[measure], side.name, cpu_us)
                slowest[measure.words] = min(rate, slowest.get(measure.words, rate))
        if self._tools is not None and table.TOOL_PRODUCE.words in slowest:
            for side in sides:
                _note(f"{name}: {side.name}, {workload.name}, at the same load")
                rate = slowest[table.TOOL_PRODUCE.words] / 2
                latency = self._tools.latency(side.kafka_bootstrap, f"{name}-0", workload, rate)
                self._add(workload, side, latency)

    def _add(self, workload: Workload, side: Side, latency: Latency) -> None:
        self._figures.add(workload.name, table.TOOL_P50, side.name, latency.p50_ms)
        self._figures.add(workload.name, table.TOOL_P99, side.name, latency.p99_ms)


def _with_librdkafka(work: Callable[[str, str, Workload], float]) -> Work:
    return lambda side, topic, workload: librdkafka.alone(work, side.kafka_bootstrap, topic, workload)


def main(given: Sequence[str]) -> None:
    """Run all clients on both sides and print the table, the lowest ratios first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer workloads, a tenth of the records")
    parser.add_argument(
        "--rounds", type=int, default=ROUNDS, help=f"how often each workload is done (default {ROUNDS})"
    )
    parser.add_argument("--cells", default="", metavar="TEXT", help="only workloads with this in their names: '1024 B'")
    parser.add_argument("--clients", default="", metavar="TEXT", help="only those with this in their rows: 'perf-test'")
    parser.add_argument("--without-kafka", action="store_true", help="our side alone")
    parser.add_argument("--records", type=int, help="of each workload, in the place of its own number")
    parser.add_argument("--base-port", type=int, help="of our brokers' gRPC listeners; those for Kafka follow 4 above")
    parser.add_argument("--json", type=Path, help="also write every figure to this file, beside those it has")
    arguments = parser.parse_args(given)
    directory = Path(tempfile.mkdtemp(prefix="tidegauge-bench-"))
    figures = table.Figures()
    if arguments.json is not None and arguments.json.exists():
        figures.add_json(arguments.json.read_text())
    sides: list[Side] = [Tidegauge(directory, arguments.base_port)]
    try:
        if not arguments.without_kafka:
            try:
                sides.append(kafka_side.Kafka(directory))
            except Unavailable as problem:
                _note(f"Apache Kafka is left out: {problem}")
        for side in sides:
            side.start()
        clients = Clients(figures, arguments.clients)
        cells = [cell for cell in workloads(quick=arguments.quick) if arguments.cells in cell.name]
        for number in range(arguments.rounds):
            for at, cell in enumerate(cells):
                workload = cell if arguments.records is None else cell.with_records(arguments.records)
                clients.work(sides if number % 2 == 0 else sides[::-1], workload, f"clients-{number}-{at}")
    finally:  # a run that ends early has still measured something
        print(figures.markdown(sides[0].name, losses_first=True))
        if arguments.json is not None:
            arguments.json.write_text(figures.as_json() + "\n")
        for side in sides:
            side.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
