"""Tidegauge beside Apache Kafka in one run: throughput, latency, start-up, memory, failover. See README.md here.

The clusters run side by side and work in turn: each workload runs on one, then on the next, each round in the
other order, so that what else the machine does meets all alike.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import failures
import mock_side
import sides as made_sides
import table
from fetched import Unavailable
from measure import BrokerSide, Workload, cpu_seconds, resident_bytes, workloads
from sides import Made

ROUNDS = 3
KILLS = 10
QUICK_KILLS = 1


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def _start(side: BrokerSide, figures: table.Figures) -> None:
    began = time.perf_counter()
    side.start()
    figures.add("-", table.START, side.name, time.perf_counter() - began)
    figures.add("-", table.START_CPU, side.name, cpu_seconds(side.every_pid()))
    figures.add("-", table.IDLE_MEMORY, side.name, resident_bytes(list(side.pids().values())) / 1e6)
    figures.add("-", table.IDLE_MEMORY_OF_ALL, side.name, resident_bytes(side.every_pid()) / 1e6)


def _one(side: BrokerSide, workload: Workload, topic: str, figures: table.Figures) -> float:
    """One workload on one side; gives the rate that it reached, in records/s."""
    side.create(topic, workload.partitions)
    rate = side.produce(topic, workload)
    figures.add(workload.name, table.PRODUCE, side.name, rate)
    figures.add(workload.name, table.CONSUME, side.name, side.consume(topic, workload.short_of_end()))
    latency = side.latency(topic, workload, rate / 2)
    figures.add(workload.name, table.P50, side.name, latency.p50_ms)
    figures.add(workload.name, table.P99, side.name, latency.p99_ms)
    figures.add(workload.name, table.P999, side.name, latency.p999_ms)
    return rate


def _same_load(
    sides: Sequence[BrokerSide], workload: Workload, topic: str, figures: table.Figures, rate: float
) -> None:
    """All sides at half the rate of the slowest: what a record waits when they carry the same."""
    for side in sides:
        latency = side.latency(topic, workload, rate / 2)
        figures.add(workload.name, table.EQUAL_P50, side.name, latency.p50_ms)
        figures.add(workload.name, table.EQUAL_P99, side.name, latency.p99_ms)
        figures.add(workload.name, table.EQUAL_P999, side.name, latency.p999_ms)


def _starts(names: Sequence[str], directory: Path, figures: table.Figures, times: int) -> None:
    """Start each side so often, by turns, and end it at once."""
    for number in range(times):
        for side in made_sides.made(names, directory / f"start-{number}"):
            _note(f"start {number + 1}: {side.name}")
            try:
                _start(side, figures)
            finally:
                side.stop()


def _work(sides: Sequence[BrokerSide], figures: table.Figures, rounds: int, cells: Sequence[Workload]) -> None:
    for round_number in range(rounds):
        for number, workload in enumerate(cells):
            topic = f"bench-{round_number}-{number}"
            in_turn = sides if round_number % 2 == 0 else sides[::-1]
            rates = []
            for side in in_turn:
                _note(f"round {round_number + 1}: {side.name}, {workload.name}")
                rates.append(_one(side, workload, topic, figures))
            if len(sides) > 1:
                _note(f"round {round_number + 1}: all at the same load, {workload.name}")
                _same_load(in_turn, workload, topic, figures, min(rates))
            for side in sides:  # a round is some 30 GB, replicas counted, on each side
                side.delete(topic)
    for side in sides:
        figures.add("-", table.LOADED_MEMORY, side.name, resident_bytes(list(side.pids().values())) / 1e6)


def _fail(sides: Sequence[Made], figures: table.Figures, rounds: int, kills: int) -> None:
    for number in range(rounds):
        for side in sides:
            _note(f"{side.name}: a follower catches up")
            figures.add("-", table.CATCH_UP, side.name, failures.catch_up_rate(side, f"away-{number}"))
    for side in sides:
        _note(f"{side.name}: leaders die")
        for gap in failures.failover_gaps(side, kills):
            figures.add("-", table.GAP, side.name, gap)
    for side in sides:
        _note(f"{side.name}: active controllers die")
        for gap in failures.controller_gaps(side, kills):
            figures.add("-", table.CONTROLLER_GAP, side.name, gap)


def _mock(figures: table.Figures, rounds: int, cells: Sequence[Workload]) -> None:
    """Return the third column's side, where its library is installed."""
    try:
        for _ in range(rounds):
            for workload in cells:
                _note(f"{mock_side.NAME}, {workload.name}")
                produced, consumed = mock_side.run(workload)
                figures.add(workload.name, table.PRODUCE, mock_side.NAME, produced)
                figures.add(workload.name, table.CONSUME, mock_side.NAME, consumed)
    except Unavailable as problem:
        _note(f"librdkafka's mock cluster is left out: {problem}")


def main() -> None:
    """Run all sides and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer workloads, a tenth of the records, one kill")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each workload is done (default 3)")
    parser.add_argument("--cells", default="", metavar="TEXT", help="only workloads with this in their names: '1024 B'")
    made_sides.add_option(parser)
    parser.add_argument("--starts", type=int, default=0, help="start each side so often before the work (default 0)")
    parser.add_argument("--only-starts", action="store_true", help="no work after the starts")
    parser.add_argument("--without-failures", action="store_true", help="no kills, no catching up")
    parser.add_argument("--kills", type=int, help=f"of leaders, and of active controllers (default {KILLS})")
    parser.add_argument("--json", type=Path, help="also write every figure to this file, beside those it has")
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="tidegauge-bench-"))
    figures = table.Figures()
    if arguments.json is not None and arguments.json.exists():
        figures.add_json(arguments.json.read_text())
    sides = made_sides.made(arguments.sides, directory)
    try:
        _starts(arguments.sides, directory, figures, arguments.starts)
        if not arguments.only_starts:
            _everything(sides, figures, arguments)
    finally:  # a run that ends early has still measured something
        try:
            print(figures.markdown(sides[0].name))
            if arguments.json is not None:
                arguments.json.write_text(figures.as_json() + "\n")
        finally:
            for side in sides:
                side.stop()
            shutil.rmtree(directory, ignore_errors=True)


def _everything(sides: Sequence[Made], figures: table.Figures, arguments: argparse.Namespace) -> None:
    cells = [cell for cell in workloads(quick=arguments.quick) if arguments.cells in cell.name]
    for side in sides:
        _start(side, figures)
    _work(sides, figures, arguments.rounds, cells)
    if not arguments.without_failures:
        usual = QUICK_KILLS if arguments.quick else KILLS
        _fail(sides, figures, arguments.rounds, usual if arguments.kills is None else arguments.kills)
    if cells:
        _mock(figures, arguments.rounds, cells)


if __name__ == "__main__":
    main()
