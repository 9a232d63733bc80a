"""The table in docs/chaos.md matches the runs in tests/chaos_runs.jsonl; ``make chaos`` runs missing ones."""

from __future__ import annotations

import pytest
from tests.chaos_runs import BEGIN, END, PAGE, Run, cells_to_run, known_runs, read_runs, rendered, with_table, write_run
from tests.integration.chaos import DAMAGE
from tests.integration.chaos_coordinators import ALL_FAULTS

PASSED = Run("kill all", "members", "2026-11-24T06:00:00Z", 2.0, 10.0)
FAILED = PASSED._replace(why="assert {'lost': 1} == {}", at="2026-11-24T07:00:00Z", seconds=20.0)
CELLS = [("a", "x"), ("a", "y"), ("b", "x"), ("b", "y")]


def run(fault: str, workload: str) -> Run:
    return PASSED._replace(fault=fault, workload=workload)


def test_the_page_has_the_table_of_the_runs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert BEGIN in page
    assert END in page
    assert with_table(page, known_runs()) == page


def test_every_cell_has_been_run() -> None:
    """A fault that is new has to be run: ``make chaos``."""
    pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
    from tests.integration.chaos_kafka import MEMBERS, WORKLOADS  # noqa: PLC0415 - needs the package

    cells = {(fault, workload) for fault in ALL_FAULTS if fault != DAMAGE for workload in (*WORKLOADS, MEMBERS)}
    assert {(one.fault, one.workload) for one in known_runs()} == cells


def test_what_is_written_is_read() -> None:
    assert read_runs(write_run(PASSED) + write_run(FAILED)) == [PASSED, FAILED]
    assert "why" not in write_run(PASSED)


def test_a_failed_cell_is_counted_and_shown_with_its_cause() -> None:
    table = rendered([PASSED, FAILED])
    assert "1 cells of 1 faults, run 2 times: 1 passed, 1 failed." in table
    assert "| `kill all` | 1 of 2 | 15 |" in table
    row = "| 2026-11-24T07:00:00Z | `kill all` | `members` | assert {'lost': 1} == {} |"
    assert f"{row} not known |" in table
    assert f"{row} the client's |" in rendered([PASSED, FAILED._replace(cause="the client's")])


def test_a_run_takes_what_has_not_been_run_often_enough() -> None:
    """A fault of which one cell is missing is run under all workloads, since all are at work."""
    assert cells_to_run(CELLS, 1, []) == CELLS
    assert cells_to_run(CELLS, 1, [run("a", "x"), run("a", "y"), run("b", "x")]) == CELLS[2:]
    assert cells_to_run(CELLS, 1, [run(*cell) for cell in CELLS]) == []


def test_what_was_run_least_comes_first() -> None:
    assert cells_to_run(CELLS, 2, [run("a", "x"), run("a", "y")]) == [*CELLS[2:], *CELLS[:2]]
