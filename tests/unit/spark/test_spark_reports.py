"""What the jobs tell people: documents, tables and charts; no Spark."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from tidegauge_spark.audit_tables import MEANINGS, Audit
from tidegauge_spark.charts import MAX_BARS, can_draw_png, draw, label, largest, svg_bars

JOBS = Path(__file__).parents[3] / "spark_jobs"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, JOBS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["consume_committed", "audit_history", "replication_report"])
def test_every_job_has_help_and_any_master(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--help, and --master may be any Spark master; a mistake is a usage error (2)."""
    job = load(name)
    with pytest.raises(SystemExit) as ended:
        job.parse_arguments(["--help"])
    assert ended.value.code == 0
    assert "--master" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        job.parse_arguments(["--nonsense"])
    assert ended.value.code == 2


def row(kind: str, partition: int, count: int, acks: str = "all") -> dict[str, Any]:
    return {"kind": kind, "topic": "t", "partition": partition, "acks": acks, "count": count}


def test_books_with_a_loss_do_not_balance() -> None:
    job = load("audit_history")
    example = {"kind": "lost", "topic": "t", "partition": 1, "offset": 7, "producer": "p", "number": 3}
    found = Audit(
        accounts=[{"acks": "all", "sent": 9, "lost": 3}],
        counts=[row("lost", 0, 1), row("lost", 1, 2)],
        examples=[example | {"acks": "all", "other": None, "value": b"x" * 99}],
        records=6,
        damaged_lines=0,
    )
    report = job.report_of(found, ["t"], 2, is_complete=False)
    assert not report["balanced"]
    assert set(report["counts"]) == set(MEANINGS)
    (finding,) = report["findings"]
    assert (finding["count"], finding["by_partition"], finding["by_acks"]) == (3, {"t-0": 1, "t-1": 2}, {"all": 3})
    text = job.text_of(report)
    assert "record 3 of producer p was acknowledged at t-1 offset 7: xxx" in text
    assert text.endswith("The books do not balance.")


@pytest.mark.parametrize("is_complete", [True, False])
def test_a_phantom_is_a_violation_only_in_complete_books(is_complete: bool) -> None:
    """The accountant's rule 1 of the books."""
    found = Audit([], [row("phantom", 0, 2, "")], [], 2, 0)
    assert load("audit_history").report_of(found, ["t"], 1, is_complete=is_complete)["balanced"] is not is_complete


def test_the_replication_report_as_text_and_charts(tmp_path: Path) -> None:
    job = load("replication_report")
    partition = {"topic": "t", "partition": 0, "leader_changes": 2, "leaderless_ms": 900, "under_min_isr_ms": 500}
    tables = {
        "span": {"events": 14, "first_ms": 0, "last_ms": 4000},
        "partitions": [
            partition | {"smallest_isr": 1, "hw_lag": [0.0, 10.0, 12.5], "hw_lag_max": 13},
            partition | {"partition": 1, "smallest_isr": None, "hw_lag": None, "hw_lag_max": None},
        ],
        "elections": [
            {"broker": 1, "strategy": "offline", "elections": 2},
            {"broker": 1, "strategy": "initial", "elections": 1},
        ],
        "truncations": [{"broker": 2, "truncations": 1, "records": 5}],
    }
    report = job.report_of(tables, 2)
    assert report["partitions"][0]["hw_lag"] == {"p50": 0.0, "p95": 10.0, "p99": 12.5, "max": 13}
    assert report["elections"] == [{"broker": 1, "elections": 3, "by_strategy": {"offline": 2, "initial": 1}}]
    report["partitions"][1]["topic"] = "a-topic-with-quite-a-long-name"
    lines = job.text_of(report).splitlines()
    assert len({len(line) for line in lines[:3]}) == 1, "columns stand below their heads"
    assert lines[1].split() == ["t-0", "2", "900", "500", "0/10/12.5"]
    assert lines[2].split()[-1] == "-"
    files = job.charts_of(report, tmp_path)
    assert len(files) == 4
    assert all(file.stat().st_size for file in files)


def test_a_bar_is_as_long_as_its_value(tmp_path: Path) -> None:
    """Without matplotlib, which a job on a bare cluster may lack, charts are SVG."""
    root = ET.fromstring(svg_bars("a <title>", "ms", {"x": 10, "y": 5, "z": 0}))  # noqa: S314  (our own text)
    widths = [float(one.get("width", "0")) for one in root.iter("{http://www.w3.org/2000/svg}rect") if one.get("x")]
    assert widths == [widths[0], widths[0] / 2, 0]
    assert draw(tmp_path, "chart", "title", "ms", {}).suffix == (".png" if can_draw_png() else ".svg")


def test_a_chart_of_many_partitions_shows_the_largest() -> None:
    """Of thousands of bars no picture could be made, and none read."""
    bars = {f"t-{index}": float(index * 7 % 3000) for index in range(3000)}
    title, kept = largest("Leaderless time", bars)
    assert title == f"Leaderless time: the largest {MAX_BARS} of 3000"
    assert sorted(kept.values()) == [float(value) for value in range(3000 - MAX_BARS, 3000)]
    assert list(kept) == [name for name in bars if name in kept], "in the order of the table"
    assert largest("few", {"a": 1.0}) == ("few", {"a": 1.0})
    assert [label(value) for value in (0.0, 1_234_567.0, 12.5)] == ["0", "1,234,567", "12.5"]
