"""A report on replication as text, for the verb that makes it in one process and for the Spark job. Pure.

Its keys: ``events``, ``from_ms`` and ``to_ms`` of the event logs, ``min_insync_replicas``, ``partitions`` (topic,
partition, leader_changes, leaderless_ms, under_min_isr_ms, smallest_isr, hw_lag), ``elections`` (broker, elections,
by_strategy), ``truncations`` (broker, truncations, records).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tidegauge.counted import counted

PERCENTILES = (0.5, 0.95, 0.99)
"""Percentiles of the high-watermark lag, weighted by how long it lasted."""


def elections_of(counts: Iterable[tuple[int, str, int]]) -> list[dict[str, Any]]:
    """Return the elections of each broker from (broker, strategy, how many), by broker."""
    found: dict[int, dict[str, int]] = {}
    for broker, strategy, elections in counts:
        found.setdefault(broker, {})[strategy] = elections
    return [
        {"broker": broker, "elections": sum(kinds.values()), "by_strategy": kinds}
        for broker, kinds in sorted(found.items())
    ]


def text_of(report: Mapping[str, Any]) -> str:
    """Return a report's tables as text."""
    names = [f"{one['topic']}-{one['partition']}" for one in report["partitions"]]
    wide = max([24, *(len(name) + 2 for name in names)])
    lines = [
        f"{'partition':<{wide}}{'leader changes':>15}{'leaderless ms':>15}{'under min ISR ms':>18}"
        f"{'HW lag p50/p95/p99':>22}"
    ]
    for name, one in zip(names, report["partitions"], strict=True):
        lag = one["hw_lag"]
        lag_text = "-" if lag is None else "/".join(f"{lag[name]:g}" for name in ("p50", "p95", "p99"))
        lines.append(
            f"{name:<{wide}}{one['leader_changes']:>15}"
            f"{one['leaderless_ms']:>15}{one['under_min_isr_ms']:>18}{lag_text:>22}"
        )
    lines += ["", f"{'broker':<{wide}}{'elections':>15}  by strategy"]
    for one in report["elections"]:
        kinds = ", ".join(f"{name} {count}" for name, count in one["by_strategy"].items())
        lines.append(f"{one['broker']:<{wide}}{one['elections']:>15}  {kinds}")
    for one in report["truncations"]:
        lines.append(
            f"broker {one['broker']} truncated {counted(one['truncations'], 'time')}, "
            f"{counted(one['records'], 'record')}"
        )
    return "\n".join(lines)
