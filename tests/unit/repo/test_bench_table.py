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


def test_a_piece_of_the_yardstick_that_is_recorded_is_not_done_again(
    table: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A piece is one workload in one round, on brokers that are warmed up or young."""
    yardstick = importlib.import_module("yardstick")
    piece = {"age": "young", "workload": "1 KiB", "round": 0, "measure": table.TOOL_PRODUCE.words, "load": 3.0}
    values = (("Tidegauge", 20), ("Kafka", 10))
    yardstick.Record(tmp_path / "figures").add([piece | {"side": side, "value": value} for side, value in values])
    record = yardstick.Record(tmp_path / "figures")
    assert record.has("young", "1 KiB", 0)
    assert [record.has("warmed", "1 KiB", 0), record.has("young", "1 KiB", 1), record.has("young", "", 0)] == [
        False
    ] * 3
    record.print_tables()
    assert "| 1 KiB | kafka-producer-perf-test, records/s | 20 | 10 | 2.00 |" in capsys.readouterr().out


def test_consumers_do_not_read_a_topic_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end of a topic Kafka's consumer waits for fetch.max.wait.ms, by chance (``measure.READ_SHARE``)."""
    monkeypatch.syspath_prepend(str(BENCH))
    measure = importlib.import_module("measure")
    work = measure.Workload(1024, 12, "all", 48_828, 10)
    assert work.short_of_end() == work.with_records(32_552)
    assert work.with_records(1).short_of_end().records == 1
