"""docs/which-mode.md: its tables match scenarios, labs and tests, and each test that they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools import mode_files
from tools.modes import PAGE, ROWS, Row, page

ROOT = Path(__file__).parents[3]


def test_the_page_has_the_tables() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert text == page(text), "make modes writes them"


TABLES = ("QUICK", "FILES", "LONG", "ZOOKEEPER_ALONE", "KRAFT_ALONE", "BY_THEMSELVES", "WITHOUT_A_MODE")


def test_each_file_of_integration_tests_says_in_which_modes_it_runs() -> None:
    """A new file goes into one of the tables of tools/mode_files.py."""
    named = sorted(name for table in TABLES for name in getattr(mode_files, table))
    assert named == sorted(path.stem for path in (ROOT / "tests" / "integration").glob("test_*.py"))


def test_a_file_of_one_mode_names_counterparts_that_are_there() -> None:
    named = [one for why in mode_files.ZOOKEEPER_ALONE.values() for one in re.findall(r"`(test_\w+)`", why)]
    assert named
    assert [one for one in named if not (ROOT / "tests" / "integration" / f"{one}.py").is_file()] == []


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_the_tests_of_a_row_are_there(row: Row) -> None:
    """A cell without a test is a sentence that says why."""
    for cell in (row.zookeeper, row.kraft):
        file, separator, function = cell.partition("::")
        if not separator:
            assert " " in cell
            continue
        source = (ROOT / "tests" / "integration" / f"{file}.py").read_text(encoding="utf-8")
        wanted = rf"^(async )?def {function}\(" if function else r"^(async )?def test_"
        assert re.search(wanted, source, re.MULTILINE), cell
