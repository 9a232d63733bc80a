"""The page of coverage and mutants, from the reports of both (tools/coverage_page.py, tools/mutation.py)."""

from __future__ import annotations

import ast

import pytest
from tools.coverage_page import PAGE, _markers, coverage_table, mutation_table, room_of
from tools.mutation import ROOMS, ROOT, changed

SOURCE = """
def may_move(offset, bound):
    assert offset >= 0
    if offset < bound and bound != 7:
        offset = bound
    return offset
"""
CHANGES = {
    "offset < bound and bound != 7": ("or", "not (", "<=", "==", "8"),
    "offset = bound": ("pass",),
    "return offset": ("pass",),
}


def summary(statements: int, run: int, branches: int, taken: int) -> dict[str, int]:
    return {
        "num_statements": statements,
        "covered_lines": run,
        "num_branches": branches,
        "covered_branches": taken,
    }


def test_files_are_added_up_by_room() -> None:
    report = {
        "files": {
            "broker/tidegauge_broker/replica/leader.py": {"summary": summary(10, 9, 4, 3)},
            "broker/tidegauge_broker/replica/rules/rule.py": {"summary": summary(5, 5, 1, 1)},
            "proto/tidegauge/errors.py": {"summary": summary(4, 0, 0, 0)},
        },
        "totals": summary(19, 14, 5, 4),
    }
    assert coverage_table(report).splitlines()[2:] == [
        "| `broker/tidegauge_broker/replica` | 15 | 5 | 90.0 |",
        "| `proto/tidegauge` | 4 | 0 | 0.0 |",
        "| all | 19 | 5 | 75.0 |",
    ]
    assert room_of("lab/tidegauge_lab/performing.py") == "lab/tidegauge_lab"


def test_the_last_figure_of_a_room_counts() -> None:
    lines = [f'{{"room": "replica", "tried": {tried}, "seen": 9, "seed": 1}}' for tried in (10, 12)]
    assert mutation_table(lines).splitlines()[2:] == ["| replica | 12 | 9 | 1 |"]


def test_the_page_has_a_place_for_each_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for table in ("coverage", "mutation"):
        begin, end = _markers(table)
        assert page.index(begin) < page.index(end)


def test_each_mutant_is_one_change_and_assertions_stay() -> None:
    found = []
    number = 0
    while (made := changed(tree := ast.parse(SOURCE), number)) is not None:
        line, _ = made
        assert line > 3, "the assertion stays"
        found.append(ast.unparse(tree))
        number += 1
    original = ast.unparse(ast.parse(SOURCE))
    assert len(found) == len(set(found)) == 7
    for text in found:
        differing = [pair for pair in zip(original.splitlines(), text.splitlines(), strict=True) if pair[0] != pair[1]]
        [(before, after)] = differing
        wanted = next(words for part, words in CHANGES.items() if part in before)
        assert any(word in after for word in wanted), after


def test_a_change_that_changes_nothing_is_no_mutant() -> None:
    assert changed(ast.parse('def stop():\n    """Do nothing."""\n    return None\n'), 0) is None


@pytest.mark.parametrize("name", ROOMS)
def test_each_room_and_its_tests_are_there(name: str) -> None:
    room = ROOMS[name]
    assert all((ROOT / room.package / below).is_dir() for below in room.below)
    assert all((ROOT / tests).is_dir() for tests in room.tests)
