"""Ahead of Kafka in every row? The same Kafka clients against each cluster, by turns, piece by piece.

Clients: kafka-producer-perf-test, kafka-consumer-perf-test and kafka-e2e-latency of Kafka's release, and librdkafka. A
piece is one workload in one round: greatest rates, latency in an open loop at a quarter, half and nine tenths of what
the slower side reached, and records one at a time, each with the CPU time of all brokers of the side. Every figure is a
line of JSON in the file ``--record`` with the machine's load, written when its piece is complete, so a run may end at
any time (``--seconds``) and the next one goes on. Rates and times are distorted by what else the machine does, CPU
times least.

All sides are warmed up for ``--warm-seconds`` after their start, as Kafka's JVMs need; ``--warm-seconds 0`` is for
young brokers, and tables keep the two apart. With PYTHONPATH=build/compiled (``make compiled``) our brokers are
compiled ones, and the tables say so.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import failures
import librdkafka
import sides as made_sides
import table
import wide
from kafka_clients import Side
from measure import Workload, cpu_seconds, latency_of
from perf_tools import PerfTools
from sides import Made
from tidegauge_side import Tidegauge

from tidegauge.machine_code import IN_USE

ROUNDS = 3
WARM_SECONDS = 120
BYTES_PER_PIECE = 50_000_000
MOST_RECORDS = 200_000
SINGLES = 1_000
LATENCY_SECONDS = 10
TOOL_READS = 3
"""So often kafka-consumer-perf-test reads in a piece, by turns: each time lasts a fifth of a second in a young JVM."""
SIZES, PARTITIONS, ACKS = (100, 1024, 10240), (1, 12, 100), ("all", "1")
WARM_UP = Workload(1024, 12, "all", 20_000, 0)


def workloads(records: int | None, text: str, latency_seconds: int = LATENCY_SECONDS) -> list[Workload]:
    """Return the rows of the yardstick whose names contain a text."""
    every = [
        Workload(
            size,
            partitions,
            acks,
            records or min(MOST_RECORDS, BYTES_PER_PIECE // size),
            latency_seconds=latency_seconds,
        )
        for acks in ACKS
        for partitions in PARTITIONS
        for size in SIZES
    ]
    return [one for one in every if text in one.name]


class Record:
    """The file of figures: one line of JSON for each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines: list[dict[str, Any]] = []
        if path.exists():
            self._lines = [json.loads(line) for line in path.read_text().splitlines()]

    def has(self, age: str, workload: str, round_number: int) -> bool:
        """Whether it has a piece."""
        piece = age, workload, round_number
        return any((line["age"], line["workload"], line["round"]) == piece for line in self._lines)

    def add(self, lines: Sequence[dict[str, Any]]) -> None:
        """Keep the lines of a piece."""
        self._lines += lines
        with self._path.open("a") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)

    def print_tables(self, *, is_wide: bool = False) -> None:
        """Print a table for young and for warmed brokers, lost rows first; or the tables of ``wide``, pair by pair."""
        for age in dict.fromkeys(line["age"] for line in self._lines):
            lines = [line for line in self._lines if line["age"] == age]
            loads = [line["load"] for line in lines]
            print(f"\n{age} brokers; load {min(loads):.0f} to {max(loads):.0f} on {os.cpu_count()} cores\n")
            ours, *others = sorted(
                {line["side"] for line in lines}, key=lambda name: (Tidegauge.name not in name, name)
            )
            if is_wide:
                for other in others:
                    pair = [line for line in lines if line["side"] in {ours, other}]
                    print(f"{ours} / {other}\n\n" + "\n\n".join(wide.tables(pair, ours)))
            else:
                figures = table.Figures()
                for line in lines:
                    figures.add(line["workload"], table.MEASURES[line["measure"]], line["side"], line["value"])
                print(figures.markdown(ours, losses_first=True))


class Yardstick:
    """Does pieces.

    Args:
        record: takes the figures.
        age: of the brokers, as the figures say it.
        singles: how many records go one at a time.
    """

    def __init__(self, record: Record, age: str, singles: int) -> None:
        self._record = record
        self._age = age
        self._singles = singles
        self._tools = PerfTools()
        self._lines: list[dict[str, Any]] = []

    def warm_up(self, sides: Sequence[Side], seconds: float) -> None:
        """Let both sides write and read for so long, by turns."""
        _note(f"warm-up, {seconds:.0f} s for each side")
        end = time.monotonic() + seconds * len(sides)
        for number in range(10**6):
            for side in sides:
                if time.monotonic() > end:
                    return
                topic = f"warm-up-{number}"
                side.create(topic, WARM_UP.partitions)
                librdkafka.alone(librdkafka.produce, side.kafka_bootstrap, topic, WARM_UP)
                librdkafka.alone(librdkafka.consume, side.kafka_bootstrap, topic, WARM_UP)

    def do(self, sides: Sequence[Side], workload: Workload, round_number: int, topic: str) -> None:
        """Do one piece on all sides, by turns, on topics of its own: 3 GB, replicas counted, which go in the end."""
        self._lines = []
        topics = topic, f"{topic}-rd", f"{topic}-even"
        for side in sides:
            for one in topics:
                side.create(one, workload.partitions)
            librdkafka.alone(librdkafka.write_evenly, side.kafka_bootstrap, f"{topic}-even", workload)
        slowest = self._rates(sides, workload, round_number, topic)
        for words, share in table.SHARES.items():
            for side in sides:
                latency = self._tools.latency(side.kafka_bootstrap, topic, workload, slowest * share)
                found = zip(("p50", "p99", "p99.9"), latency, strict=False)
                self._add(workload.name, round_number, side, {table.AT_LOAD[words, one]: value for one, value in found})
        singles = workload.with_records(self._singles)
        for side in sides:
            self._one_at_a_time(side, singles, round_number, topic)
        for side in sides:
            found_ms = self._tools.end_to_end(side.kafka_bootstrap, topic, workload, self._singles)
            figures = dict(zip(table.END_TO_END.values(), found_ms, strict=True))
            self._add(workload.name, round_number, side, figures)
        self._record.add(self._lines)
        for side in sides:
            for one in topics:
                side.delete(one)

    def returns(self, sides: Sequence[Made], times: int) -> None:
        """Let a follower die and come back, so often on each side, after all the work of this run."""
        self._lines = []
        for number in range(times):
            for side in sides:
                _note(f"a follower of {side.name} returns")
                rate = failures.catch_up_rate(side, f"away-{number}")
                self._add("a follower returns after the run", number, side, {table.CATCH_UP: rate})
        self._record.add(self._lines)

    def _rates(self, sides: Sequence[Side], workload: Workload, round_number: int, topic: str) -> float:
        """Write and read as fast as it goes; return the lower rate of kafka-producer-perf-test."""
        slowest = float("inf")
        for measure, turns, work in self._works(topic):
            reads = measure in {table.TOOL_CONSUME, table.RDKAFKA_CONSUME}
            part = workload.short_of_end() if reads else workload
            count = part.records * (librdkafka.READS if measure is table.RDKAFKA_CONSUME else 1)
            for side in [side for _ in range(turns) for side in sides]:
                rate, cpu_us = _measured(side, count, lambda side=side, work=work, part=part: work(side, part))
                self._add(workload.name, round_number, side, {measure: rate, table.BROKERS_CPU[measure]: cpu_us})
                if measure is table.TOOL_PRODUCE:
                    slowest = min(slowest, rate)
        return slowest

    def _works(self, topic: str) -> Iterator[tuple[table.Measure, int, Callable[[Side, Workload], float]]]:
        """Yield each measure of a rate, how often it is taken in a piece, and the work; see ``write_evenly``."""
        tools, even = self._tools, f"{topic}-even"
        yield table.TOOL_PRODUCE, 1, lambda side, work: tools.produce(side.kafka_bootstrap, topic, work)
        yield table.TOOL_CONSUME, TOOL_READS, lambda side, work: tools.consume(side.kafka_bootstrap, even, work)
        yield table.RDKAFKA_PRODUCE, 1, _with_librdkafka(librdkafka.produce, f"{topic}-rd")
        yield table.RDKAFKA_CONSUME, 1, _with_librdkafka(librdkafka.consume, even)

    def _one_at_a_time(self, side: Side, workload: Workload, round_number: int, topic: str) -> None:
        took_ms, cpu_us = _measured(
            side,
            workload.records,
            lambda: librdkafka.alone(librdkafka.one_at_a_time, side.kafka_bootstrap, topic, workload),
        )
        latency = latency_of(took_ms)
        figures = dict(zip(table.SINGLE.values(), (latency.p50_ms, latency.p99_ms), strict=True))
        self._add(workload.name, round_number, side, figures | {table.SINGLE_CPU: cpu_us})

    def _add(self, workload: str, round_number: int, side: Side, figures: dict[table.Measure, float]) -> None:
        for measure, value in figures.items():
            self._lines.append(
                {
                    "age": self._age,
                    "workload": workload,
                    "round": round_number,
                    "measure": measure.words,
                    "side": side.name,
                    "value": value,
                    "load": round(os.getloadavg()[0], 1),
                }
            )


def _measured(side: Side, count: int, work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of some work, and all brokers' CPU per record, in us."""
    before = cpu_seconds(side.pids().values())
    found = work()
    return found, (cpu_seconds(side.pids().values()) - before) * 1e6 / count


def _with_librdkafka(work: Callable[[str, str, Workload], float], topic: str) -> Callable[[Side, Workload], float]:
    return lambda side, workload: librdkafka.alone(work, side.kafka_bootstrap, topic, workload)


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def main(given: Sequence[str]) -> None:
    """Do the pieces that the file does not have, as far as the time goes, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, default=Path("build/yardstick.jsonl"), help="(default %(default)s)")
    parser.add_argument("--seconds", type=float, help="begin no further piece after so long")
    parser.add_argument("--warm-seconds", type=float, default=WARM_SECONDS, help="(default %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="(default %(default)s)")
    parser.add_argument("--cells", default="", metavar="TEXT", help="only workloads with this in their names: '1024 B'")
    parser.add_argument("--records", type=int, help="of each workload, in the place of its own number")
    parser.add_argument(
        "--latency-seconds", type=int, default=LATENCY_SECONDS, help="of each open loop (default %(default)s)"
    )
    parser.add_argument("--singles", type=int, default=SINGLES, help="records one at a time (default %(default)s)")
    parser.add_argument("--returns", type=int, default=0, help="of a follower that was killed, after the run's pieces")
    made_sides.add_option(parser)
    parser.add_argument(
        "--grpc-among-brokers",
        action="store_true",
        help="the first side is ours with ZooKeeper, whose brokers replicate over gRPC",
    )
    parser.add_argument("--summary", action="store_true", help="print the tables of the file alone")
    parser.add_argument("--wide", action="store_true", help="a row for each workload, measures side by side")
    options = parser.parse_args(given)
    options.record.parent.mkdir(parents=True, exist_ok=True)
    record = Record(options.record)
    if not options.summary:
        _run(options, record)
    record.print_tables(is_wide=options.wide)


def _run(options: argparse.Namespace, record: Record) -> None:
    began = time.monotonic()
    age = "warmed" if options.warm_seconds else "young"
    if options.grpc_among_brokers:
        age += ", gRPC among brokers:"
    if IN_USE.is_compiled:
        age += ", ours compiled:"
    cells = workloads(options.records, options.cells, options.latency_seconds)
    left = [(number, one) for number in range(options.rounds) for one in cells if not record.has(age, one.name, number)]
    if not left and not options.returns:
        return
    directory = Path(tempfile.mkdtemp(prefix="tidegauge-yardstick-"))
    sides = made_sides.made(options.sides, directory)
    if options.grpc_among_brokers:
        sides[0] = Tidegauge(directory, settings={"inter.broker.listener.name": "GRPC"})
    started: list[Side] = []
    try:
        for side in sides:
            started.append(side)
            side.start()
        yardstick = Yardstick(record, age, options.singles)
        yardstick.warm_up(sides, options.warm_seconds)
        for at, (number, workload) in enumerate(left):
            if options.seconds is not None and time.monotonic() - began > options.seconds:
                break
            _note(f"round {number + 1}: {workload.name}, {age}")
            yardstick.do(sides if number % 2 == 0 else sides[::-1], workload, number, f"yardstick-{at}")
        yardstick.returns(sides, options.returns)
    finally:
        for side in started:
            side.stop()
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main(sys.argv[1:])
