"""docs/which-mode.md: its tables match scenarios, labs and tests, and each test that they name is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tools.modes import PAGE, ROWS, Row, page

ROOT = Path(__file__).parents[3]


def test_the_page_has_the_tables() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")
    assert text == page(text), "make modes writes them"


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
