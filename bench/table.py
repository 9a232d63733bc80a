"""Figures by (workload, measure) and side, and how they are printed: medians, spread, ratios.

A ratio above 1 is in our favour, whichever way the measure counts.
"""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from typing import NamedTuple


class Measure(NamedTuple):
    """One kind of figure: its words, whether less is better, and how it is printed."""

    words: str
    less_is_better: bool
    form: str


PRODUCE = Measure("produce, records/s", less_is_better=False, form="{:,.0f}")
CONSUME = Measure("consume, records/s", less_is_better=False, form="{:,.0f}")
P50 = Measure("latency p50 at half load, ms", less_is_better=True, form="{:,.2f}")
P99 = Measure("latency p99 at half load, ms", less_is_better=True, form="{:,.2f}")
P999 = Measure("latency p99.9 at half load, ms", less_is_better=True, form="{:,.2f}")
EQUAL_P50 = Measure("latency p50 at the same load, ms", less_is_better=True, form="{:,.2f}")
EQUAL_P99 = Measure("latency p99 at the same load, ms", less_is_better=True, form="{:,.2f}")
EQUAL_P999 = Measure("latency p99.9 at the same load, ms", less_is_better=True, form="{:,.2f}")
START = Measure("from nothing to the first acknowledged record, s", less_is_better=True, form="{:.2f}")
START_CPU = Measure("CPU of all processes until then, s", less_is_better=True, form="{:.2f}")
IDLE_MEMORY = Measure("memory of three idle brokers, MB", less_is_better=True, form="{:,.0f}")
IDLE_MEMORY_OF_ALL = Measure(
    "memory of all idle processes, with ZooKeeper or controllers, MB", less_is_better=True, form="{:,.0f}"
)
LOADED_MEMORY = Measure("memory of three brokers after the load, MB", less_is_better=True, form="{:,.0f}")
GAP = Measure("longest wait for an acknowledgement over a leader's kill -9, s", less_is_better=True, form="{:.2f}")
CONTROLLER_GAP = Measure(
    "from kill -9 of the active controller to the next created topic, s", less_is_better=True, form="{:.2f}"
)
CATCH_UP = Measure("a follower that was away catches up, MB/s", less_is_better=False, form="{:,.1f}")
TOOL_PRODUCE = Measure("kafka-producer-perf-test, records/s", less_is_better=False, form="{:,.0f}")
TOOL_CONSUME = Measure("kafka-consumer-perf-test, records/s", less_is_better=False, form="{:,.0f}")
TOOL_P50 = Measure("kafka-producer-perf-test, p50 at the same load, ms", less_is_better=True, form="{:,.0f}")
TOOL_P99 = Measure("kafka-producer-perf-test, p99 at the same load, ms", less_is_better=True, form="{:,.0f}")
RDKAFKA_PRODUCE = Measure("librdkafka produces, records/s", less_is_better=False, form="{:,.0f}")
RDKAFKA_CONSUME = Measure("librdkafka consumes, records/s", less_is_better=False, form="{:,.0f}")
OWN_PRODUCE = Measure(
    "tidegauge_client (gRPC), and Kafka's tool: produce, records/s", less_is_better=False, form="{:,.0f}"
)
OWN_CONSUME = Measure(
    "tidegauge_client (gRPC), and Kafka's tool: consume, records/s", less_is_better=False, form="{:,.0f}"
)

SHARES = {"a quarter": 0.25, "half": 0.5, "nine tenths": 0.9}
"""Of the slower side's greatest rate: the loads of the open loop."""
AT_LOAD = {
    (words, percentile): Measure(
        f"producer-perf-test at {words} of the slower side's rate, {percentile}, ms",
        less_is_better=True,
        form="{:,.0f}",
    )
    for words in SHARES
    for percentile in ("p50", "p99", "p99.9")
}
SINGLE = {
    words: Measure(f"librdkafka, one record at a time, {words}", less_is_better=True, form="{:,.2f}")
    for words in ("p50, ms", "p99, ms")
}
SINGLE_CPU = Measure(
    "librdkafka, one record at a time, CPU of all brokers for a request, us", less_is_better=True, form="{:,.0f}"
)
END_TO_END = {
    words: Measure(f"e2e-latency, {words}", less_is_better=True, form="{:,.2f}")
    for words in ("average, ms", "p50, ms", "p99, ms")
}

BROKERS_CPU = {
    rate: Measure(
        rate.words.replace("records/s", "CPU of all brokers, us a record"), less_is_better=True, form="{:,.1f}"
    )
    for rate in (TOOL_PRODUCE, TOOL_CONSUME, RDKAFKA_PRODUCE, RDKAFKA_CONSUME, OWN_PRODUCE, OWN_CONSUME)
}
"""The brokers' cost of a rate: the figure that depends least on the machine's other work."""

MEASURES = {one.words: one for one in list(globals().values()) if isinstance(one, Measure)}
MEASURES |= {one.words: one for of_kind in (BROKERS_CPU, AT_LOAD, SINGLE, END_TO_END) for one in of_kind.values()}
"""All measures by their words."""


class Figures:
    """All figures of a run: for each workload and measure, each side's values in the order of the rounds."""

    def __init__(self) -> None:
        self._values: dict[tuple[str, Measure], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, workload: str, measure: Measure, side: str, value: float) -> None:
        """Keep one figure."""
        self._values[workload, measure][side].append(value)

    def markdown(self, ours: str, *, losses_first: bool = False) -> str:
        """Return the table; each figure is a median, with least and greatest.

        Args:
            ours: the side whose ratios to the others are shown.
            losses_first: the lowest ratios come first, those without one last; else the workloads in their order.
        """
        others = [
            name for name in dict.fromkeys(name for sides in self._values.values() for name in sides) if name != ours
        ]
        heads = ["workload", "measure", ours]
        for other in others:
            heads += [other, "ratio"]
        lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
        rows = sorted(self._values.items(), key=_place)
        if losses_first and others:
            rows.sort(key=lambda row: _ratio_of(row[0][1], row[1], ours, others[0]) or float("inf"))
        for (workload, measure), sides in rows:
            cells = [workload, measure.words, _spread(measure, sides.get(ours, []))]
            for other in others:
                cells += [_spread(measure, sides.get(other, [])), _ratio(measure, sides, ours, other)]
            lines.append("| " + " | ".join(cells) + " |")
        return "\n".join(lines)

    def add_json(self, text: str) -> None:
        """Keep the figures of an earlier run as well: they come before those that are added now."""
        for row in json.loads(text):
            for side, values in row["values"].items():
                self._values[row["workload"], MEASURES[row["measure"]]][side].extend(values)

    def as_json(self) -> str:
        """Every single value, for machines."""
        rows = [
            {"workload": workload, "measure": measure.words, "less_is_better": measure.less_is_better, "values": sides}
            for (workload, measure), sides in self._values.items()
        ]
        return json.dumps(rows, indent=2)


def _place(entry: tuple[tuple[str, Measure], object]) -> tuple[bool, str]:
    """Workloads together, in the order in which they were added first; what belongs to none comes before them."""
    workload, _ = entry[0]
    return workload != "-", workload.rjust(40) if workload != "-" else ""


def _spread(measure: Measure, values: list[float]) -> str:
    if not values:
        return "-"
    middle = measure.form.format(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({measure.form.format(min(values))} to {measure.form.format(max(values))})"


def _ratio(measure: Measure, sides: dict[str, list[float]], ours: str, other: str) -> str:
    ratio = _ratio_of(measure, sides, ours, other)
    return "-" if ratio is None else f"{ratio:.2f}"


def _ratio_of(measure: Measure, sides: dict[str, list[float]], ours: str, other: str) -> float | None:
    """Return how many times better our median is; None if unknown."""
    if not sides.get(ours) or not sides.get(other):
        return None
    own, theirs = statistics.median(sides[ours]), statistics.median(sides[other])
    if not own or not theirs:
        return None
    return theirs / own if measure.less_is_better else own / theirs
