"""The table of the benchmarks: what it puts first."""

from __future__ import annotations

import importlib
from pathlib import Path
from types import SimpleNamespace
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


class _Consumer:
    """Gives as many records as it is asked for, and notes that."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def assign(self, places: list[Any]) -> None:
        assert places == [0]

    def consume(self, count: int, _: float) -> list[SimpleNamespace]:
        self.asked.append(count)
        return [SimpleNamespace(error=lambda: None)] * count


def test_a_reader_asks_librdkafka_for_no_more_than_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """``consume`` waits until it has as many as it was asked for: beyond the last record, until its timeout."""
    monkeypatch.syspath_prepend(str(BENCH))
    consumer = _Consumer()
    importlib.import_module("librdkafka").read(consumer, [0], 25_000)
    assert consumer.asked == [10_000, 10_000, 5_000]


class _Producer:
    """Notes the partition of each record."""

    def __init__(self) -> None:
        self.partitions: list[int] = []

    def produce(self, topic: str, value: bytes, partition: int) -> None:
        assert (topic, len(value)) == ("t", 10_240)
        self.partitions.append(partition)

    def poll(self, _: float) -> None:
        """Do nothing."""

    def flush(self, _: float) -> int:
        return 0


def test_what_readers_read_is_written_a_batch_to_each_partition_by_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """So no partition ends before others, on either side (``measure.READ_SHARE``)."""
    monkeypatch.syspath_prepend(str(BENCH))
    librdkafka, measure = (importlib.import_module(name) for name in ("librdkafka", "measure"))
    producer = _Producer()
    monkeypatch.setattr(librdkafka, "library", lambda: SimpleNamespace(Producer=lambda _: producer))
    librdkafka.write_evenly("", "t", measure.Workload(10_240, 3, "all", 20, 0))
    assert producer.partitions == [0] * 6 + [1] * 6 + [2] * 6 + [0] * 2


def test_wide_tables_have_a_row_for_each_workload_and_count_what_is_no_loss(table: Any) -> None:
    """Medians of the rounds; a measure on one side alone has no ratio."""
    wide = importlib.import_module("wide")
    figures = [
        ("100 B", table.TOOL_PRODUCE, "us", (10, 30, 20)),
        ("100 B", table.TOOL_PRODUCE, "them", (10,)),
        ("1 KiB", table.TOOL_PRODUCE, "us", (1_000,)),
        ("1 KiB", table.TOOL_PRODUCE, "them", (2_000,)),
        ("1 KiB", table.TOOL_CONSUME, "us", (5,)),
        ("1 KiB", table.SINGLE_CPU, "us", (4,)),
        ("1 KiB", table.SINGLE_CPU, "them", (8,)),
    ]
    lines = [
        {"workload": workload, "measure": measure.words, "side": side, "value": value}
        for workload, measure, side, values in figures
        for value in values
    ]
    rates, single, counts = wide.tables(lines, "us")
    assert rates.splitlines()[2:] == [
        "| 100 B | 20.0 / 10.0 = 2.00 | - | - | - |",
        "| 1 KiB | 1,000 / 2,000 = 0.50 | - | - | - |",
    ]
    assert single.splitlines()[2] == "| 1 KiB | - | - | 4 / 8 = 2.00 | - | - |"
    assert "Rates, records/s: producer-perf-test: 1 of 2 are no losses" in counts
    assert "Rates, records/s: consumer-perf-test: 0 of 0 are no losses" in counts
