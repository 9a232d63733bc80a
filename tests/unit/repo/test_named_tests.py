"""Each test that the documentation names as the holder of a rule is there, and no rule is without one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[3]
FIDELITY = ROOT / "docs" / "fidelity.md"
SCENARIOS = ROOT / "lab" / "tidegauge_lab" / "scenario" / "files"
TRAPS = 10
"""Number of the rules most easily got wrong."""
HELD_BY_NOTHING = "no test can hold what is not there"


class Row(NamedTuple):
    """One behaviour: its cells, by the names of the columns."""

    line: int
    cells: dict[str, str]


def rows() -> Iterator[Row]:
    """The rows of the tables in fidelity.md whose last column says what holds them."""
    heads: list[str] = []
    for number, line in enumerate(FIDELITY.read_text(encoding="utf-8").splitlines(), 1):
        if not line.startswith("|"):
            heads = []
            continue
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not heads:
            heads = cells
        elif heads[-1].startswith(("held by", "scenarios")) and not set(line) <= set("|-"):
            yield Row(number, dict(zip(heads, cells, strict=False)))


def names_of_tests() -> set[str]:
    """Names of all tests, and of the files that hold them."""
    files = list((ROOT / "tests").rglob("test_*.py"))
    there = {name for file in files for name in re.findall(r"def (test_\w+)", file.read_text(encoding="utf-8"))}
    return there | {file.stem for file in files}


@pytest.mark.parametrize("page", ["fidelity.md", "replication.md"])
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    named = set(re.findall(r"`(test_\w+)`", (ROOT / "docs" / page).read_text(encoding="utf-8")))
    assert named - names_of_tests() == set()


def test_every_behaviour_has_a_test_that_holds_it() -> None:
    """A row names a test, a file or directory of tests, or a scenario; the rows that head a group are bold."""
    known = names_of_tests() | {path.stem for path in SCENARIOS.glob("*.y*ml")}
    found = list(rows())
    assert len(found) > 150
    bare = []
    for row in found:
        first, *_, last = row.cells.values()
        named = re.findall(r"`([^`]+)`", last)
        holds = any(name in known or (name.startswith("tests/") and (ROOT / name).exists()) for name in named)
        is_heading = first.startswith("**") and not named
        if not holds and not is_heading and last.strip("| ") != HELD_BY_NOTHING:
            bare.append(f"{row.line}: {first}")
    assert bare == []


def test_every_row_that_says_what_it_is_says_same_simplified_stricter_or_absent() -> None:
    stated = [row for row in rows() if "is" in row.cells]
    assert len(stated) > 25
    odd = [row.line for row in stated if not re.match(r"(same|simplified|stricter|absent)\b", row.cells["is"])]
    assert odd == []
    assert all(row.cells["is"] == "same" or ":" in row.cells["is"] or ";" in row.cells["is"] for row in stated[:-1]), (
        "what is not the same says what it is instead"
    )


def test_all_that_is_easily_got_wrong_has_a_row() -> None:
    """Each by its number, with the tests that bear the number too."""
    numbers: dict[int, str] = {}
    for row in rows():
        first = next(iter(row.cells.values()))
        if found := re.match(r"(\d+)\. ", first):
            number = int(found[1])
            numbers[number] = numbers.get(number, "") + row.cells["held by"]
    assert sorted(numbers) == list(range(1, TRAPS + 1))
    bearing = {int(found[1]) for name in names_of_tests() if (found := re.match(r"test_trap_(\d+)_", name))}
    assert bearing <= numbers.keys()
