"""The table of the benchmarks: what it puts first."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("table")


def test_losses_come_first_and_rows_without_a_ratio_last(table: Any) -> None:
    """docs/performance.md shows first where Tidegauge loses; ratios above 1 are in its favour, for latencies too."""
    figures = table.Figures()
    rows = [("win", table.TOOL_PRODUCE, 20, 10), ("loss", table.TOOL_PRODUCE, 10, 20), ("slow", table.TOOL_P99, 9, 3)]
    for workload, measure, ours, theirs in rows:
        figures.add(workload, measure, "us", ours)
        figures.add(workload, measure, "them", theirs)
    figures.add("alone", table.TOOL_CONSUME, "them", 5)
    lines = figures.markdown("us", losses_first=True).splitlines()[2:]
    assert [line.split("|")[1].strip() for line in lines] == ["slow", "loss", "win", "alone"]
    assert [line.split("|")[5].strip() for line in lines] == ["0.33", "0.50", "2.00", "-"]
