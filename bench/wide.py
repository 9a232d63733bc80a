"""The yardstick's figures as the tables of docs/results/one-client.md: a row for each workload, measures side by side.

Each cell is ours / theirs = ratio, of the medians of all rounds; above 1 is in our favour.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import table

ROUNDING = 0.995
"""From this ratio on a cell counts as no loss: it is printed as 1.00."""
_CLIENTS = {
    "producer-perf-test": table.TOOL_PRODUCE,
    "librdkafka produces": table.RDKAFKA_PRODUCE,
    "consumer-perf-test": table.TOOL_CONSUME,
    "librdkafka consumes": table.RDKAFKA_CONSUME,
}
_GROUPS: Mapping[str, Mapping[str, table.Measure]] = {
    "Rates, records/s": _CLIENTS,
    "CPU of all brokers, us a record": {name: table.BROKERS_CPU[rate] for name, rate in _CLIENTS.items()},
    "One record at a time, and end to end": {
        **table.SINGLE,
        "CPU of all brokers, us": table.SINGLE_CPU,
        "e2e-latency p50, ms": table.END_TO_END["p50, ms"],
        "e2e-latency p99, ms": table.END_TO_END["p99, ms"],
    },
    **{
        f"Open loop at {share} of the slower side's rate, ms": {
            percentile: measure for (words, percentile), measure in table.AT_LOAD.items() if words == share
        }
        for share in table.SHARES
    },
    "After the run": {"a follower returns, MB/s": table.CATCH_UP},
}


def tables(lines: Iterable[Mapping[str, Any]], ours: str) -> Iterator[str]:
    """Yield the tables, and at last how many cells of each column are no losses.

    Args:
        lines: figures as ``yardstick.Record`` keeps them.
        ours: the name of our side; there is one other.
    """
    found: dict[tuple[str, str], tuple[list[float], list[float]]] = {}
    for line in lines:
        of_sides = found.setdefault((line["workload"], line["measure"]), ([], []))
        of_sides[line["side"] != ours].append(line["value"])
    counts: list[str] = []
    for title, columns in _GROUPS.items():
        names = {measure.words for measure in columns.values()}
        workloads = list(dict.fromkeys(workload for workload, words in found if words in names))
        if not workloads:
            continue
        rows = [[_cell(measure, found.get((one, measure.words))) for measure in columns.values()] for one in workloads]
        cells = [" | ".join([one, *(text for text, _ in row)]) for one, row in zip(workloads, rows, strict=True)]
        head = " | ".join([title, *columns])
        yield "\n".join([f"| {head} |", "|" + "---|" * (len(columns) + 1), *(f"| {row} |" for row in cells)])
        counts += [f"{title}: {name}: {_count(row[at][1] for row in rows)}" for at, name in enumerate(columns)]
    yield "\n".join(counts)


def _count(ratios: Iterable[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    return f"{sum(ratio >= ROUNDING for ratio in known)} of {len(known)} are no losses"


def _cell(measure: table.Measure, values: tuple[list[float], list[float]] | None) -> tuple[str, float | None]:
    if values is None or not all(values):
        return "-", None
    ours, theirs = (statistics.median(one) for one in values)
    if not ours or not theirs:
        return f"{_number(ours)} / {_number(theirs)}", None
    ratio = theirs / ours if measure.less_is_better else ours / theirs
    return f"{_number(ours)} / {_number(theirs)} = {ratio:.2f}", ratio


def _number(value: float) -> str:
    """Three digits are enough."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")
