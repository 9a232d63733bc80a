"""How throughput grows, or falls, with partitions, replicas, record size and producers: one picture with four curves.

Both sides do each point in turn, as in ``compare.py``; a point is the median of the rounds. Needs matplotlib for the
picture; the figures are printed without it too. A curve may be measured by itself: ``--json`` keeps the others of an
earlier run, and the table and the picture show all that the file has.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kafka_side
from measure import BrokerSide, Workload
from tidegauge_side import Tidegauge

BYTES_PER_POINT = 60_000_000
MOST_RECORDS = 300_000
LEAST_RECORDS = 500


@dataclass(frozen=True, slots=True)
class Point:
    """One point of a curve: the varied and the fixed parameters."""

    partitions: int = 12
    replicas: int = 3
    record_bytes: int = 1_024
    producers: int = 1

    @property
    def workload(self) -> Workload:
        """The records of each producer."""
        records = max(LEAST_RECORDS, min(MOST_RECORDS, BYTES_PER_POINT // self.record_bytes)) // self.producers
        return Workload(self.record_bytes, self.partitions, "all", records, 0)


CURVES: dict[str, list[tuple[int, Point]]] = {
    "partitions": [(count, Point(partitions=count)) for count in (1, 4, 16, 64, 256)],
    "replicas": [(count, Point(replicas=count)) for count in (1, 2, 3)],
    "record size, bytes": [(size, Point(record_bytes=size)) for size in (100, 1_024, 10_240, 102_400)],
    "producers": [(count, Point(producers=count)) for count in (1, 2, 4, 8)],
}
SHORT = {name.split()[0]: name for name in CURVES}
"""How a curve is called on the command line."""
Measured = dict[str, dict[str, list[tuple[int, float]]]]


def _megabytes_per_second(side: BrokerSide, point: Point, topic: str) -> float:
    side.create(topic, point.partitions, point.replicas)
    return side.produce_together(topic, point.workload, point.producers) * point.record_bytes / 1e6


def measure_curves(sides: Sequence[BrokerSide], rounds: int, wanted: Sequence[str]) -> Measured:
    """MB a second by curve and side."""
    found: Measured = {}
    for curve in wanted:
        found[curve] = {side.name: [] for side in sides}
        for number, (x, point) in enumerate(CURVES[curve]):
            for side in sides:
                topics = [f"{curve.split(',')[0].replace(' ', '-')}-{number}-{turn}" for turn in range(rounds)]
                rates = [_megabytes_per_second(side, point, topic) for topic in topics]
                found[curve][side.name].append((x, statistics.median(rates)))
                print(
                    f"{curve} {x}: {side.name} {found[curve][side.name][-1][1]:.1f} MB/s", file=sys.stderr, flush=True
                )
    return found


def draw(measured: Measured, picture: Path) -> None:
    """Draw the four curves in one PNG."""
    matplotlib: Any = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    plot: Any = importlib.import_module("matplotlib.pyplot")
    figure, axes = plot.subplots(2, 2, figsize=(10, 7), sharey=True)
    highest = max(rate for sides in measured.values() for points in sides.values() for _, rate in points)
    for axis in axes.flat[len(measured) :]:
        axis.set_visible(False)
    for axis, (curve, sides) in zip(axes.flat, measured.items(), strict=False):
        for name, points in sides.items():
            axis.plot([x for x, _ in points], [y for _, y in points], marker="o", label=name)
        axis.set_xlabel(curve)
        axis.set_ylim(0, 1.08 * highest)
        ticks = [x for x, _ in next(iter(sides.values()))]
        if ticks[-1] > len(ticks):
            axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    for axis in axes[:, 0]:
        axis.set_ylabel("MB/s written, acks=all")
    kept = Point()
    figure.suptitle(
        f"What is not varied: {kept.partitions} partitions, {kept.replicas} replicas, "
        f"records of {kept.record_bytes:,} bytes, {kept.producers} producer",
        fontsize=10,
    )
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="upper center", bbox_to_anchor=(0.5, 0.965), ncols=3)
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.savefig(picture, dpi=110)


def table(measured: Measured) -> str:
    """Return the curves as a Markdown table."""
    names = list(next(iter(measured.values())))
    lines = [
        "| varied | value | " + " | ".join(f"{name}, MB/s" for name in names) + " |",
        "|---|" + "---|" * (1 + len(names)),
    ]
    for curve, sides in measured.items():
        lines += [
            f"| {curve} | {row[0][0]:,} | " + " | ".join(f"{rate:.1f}" for _, rate in row) + " |"
            for row in zip(*sides.values(), strict=True)
        ]
    return "\n".join(lines)


def _all_curves(measured: Measured, kept: Path | None) -> Measured:
    """Return these curves, completed from an earlier run, in the order of ``CURVES``."""
    before: Measured = json.loads(kept.read_text()) if kept is not None and kept.exists() else {}
    return {curve: both[curve] for both in [{**before, **measured}] for curve in CURVES if curve in both}


def _measure(arguments: argparse.Namespace) -> Measured:
    directory = Path(tempfile.mkdtemp(prefix="tidegauge-bench-"))
    sides: list[BrokerSide] = [Tidegauge(directory)]
    try:
        if not arguments.without_kafka:
            try:
                sides.append(kafka_side.Kafka(directory))
            except kafka_side.Unavailable as problem:
                print(f"Apache Kafka is left out: {problem}", file=sys.stderr)
        for side in sides:
            side.start()
        return measure_curves(sides, arguments.rounds, [SHORT[name] for name in arguments.curve])
    finally:
        for side in sides:
            side.stop()
        shutil.rmtree(directory, ignore_errors=True)


def main() -> None:
    """Measure, print and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--curve", nargs="*", choices=list(SHORT), default=list(SHORT), help="none: draw the file again"
    )
    parser.add_argument("--rounds", type=int, default=3, help="how often each point is measured (default 3)")
    parser.add_argument("--without-kafka", action="store_true", help="our side alone")
    parser.add_argument("--json", type=Path, help="write the figures to this file, beside what it has of other curves")
    parser.add_argument("--png", type=Path, help="draw the curves into this file")
    arguments = parser.parse_args()
    measured = _all_curves(_measure(arguments) if arguments.curve else {}, arguments.json)
    print(table(measured))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(measured, indent=2) + "\n")
    if arguments.png is not None:
        draw(measured, arguments.png)


if __name__ == "__main__":
    main()
