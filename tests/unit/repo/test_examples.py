"""The examples' promise: a file fits a screen or three, and names no path of this repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
SOURCES = sorted(path for path in EXAMPLES.rglob("*") if path.suffix in {".py", ".go", ".ts", ".java", ".c", ".h"})


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_an_example_is_short_and_stands_alone(path: Path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") < 150
    assert "import tidegauge" not in text
    assert "from tidegauge" not in text


def test_there_is_one_for_each_language():
    assert {path.relative_to(EXAMPLES).parts[0] for path in SOURCES} == {"python", "go", "typescript", "java", "c"}


def test_the_guide_shows_what_the_examples_run():
    """Chapter 11 quotes them, in three languages."""
    chapter = (EXAMPLES.parent / "docs/guide/11-your-application.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in SOURCES]
    quoted = re.findall(r"```(?:go|ts|java)\n(.*?)\n```", chapter, flags=re.DOTALL)
    assert len(quoted) == 4
    assert [quote for quote in quoted if not any(quote in source for source in sources)] == []
