"""Every sentence of a lab's check has one in Chinese (labs/chinese.py)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tidegauge_lab.labs import checks
from tidegauge_lab.labs.chinese import in_chinese, sentences_of_labs

FILES = [one for one in sorted(Path(checks.__file__).parent.glob("*.py")) if one.stem != "__init__"]


def said_in(file: Path) -> Iterator[str]:
    """Yield what a check says by ``yes`` and ``no``, with each value as 7, and each of two wordings."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"yes", "no"}:
            for argument in node.args:
                yield from wordings(argument)


def wordings(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression may be."""
    match node:
        case ast.Constant(value=str() as text):
            yield text
        case ast.IfExp(body=one, orelse=other):
            yield from wordings(one)
            yield from wordings(other)
        case ast.JoinedStr(values=parts):
            found = [""]
            for part in parts:
                choices = list(wordings(part.value if isinstance(part, ast.FormattedValue) else part)) or ["7"]
                found = [before + choice for before in found for choice in choices]
            yield from found


@pytest.mark.parametrize("file", FILES, ids=lambda one: one.stem)
def test_what_a_check_says_is_known_in_chinese(file: Path) -> None:
    said = sorted(set(said_in(file)))
    assert said
    assert [one for one in said if not in_chinese().knows(one)] == []


def test_a_translation_uses_what_the_sentence_has() -> None:
    for english, chinese in sentences_of_labs().items():
        used = {int(one) for one in re.findall(r"\{(\d)\}", chinese)}
        assert used == set(range(english.count("{}"))), english
