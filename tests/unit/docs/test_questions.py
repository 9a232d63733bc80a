"""docs/questions.md: every question has three sentences, and names what shows it; that exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidegauge_lab.play.stories import stories
from tidegauge_lab.scenario.loader import shipped_names

PAGE = (Path(__file__).parents[3] / "docs" / "questions.md").read_text(encoding="utf-8")
QUESTIONS = [part.split("\n\n") for part in PAGE.split("\n### ")[1:]]


def test_there_are_at_least_twenty() -> None:
    assert len(QUESTIONS) >= 20


@pytest.mark.parametrize("parts", QUESTIONS, ids=lambda parts: parts[0][:40])
def test_each_has_three_sentences_and_what_shows_it(parts: list[str]) -> None:
    question, text, see = parts[:3]
    assert question.endswith(("?", "."))
    assert len(re.findall(r"[.:]?[^.]*\.(?=\s|$)", re.sub(r"\d\.\d+|`[^`]*`", "x", text))) == 3
    assert see.startswith("See it: ")


def test_what_is_shown_exists() -> None:
    names = {one["name"] for one in stories()}
    assert set(re.findall(r"play --story ([\w-]+)", PAGE)) - {"NAME"} <= names
    assert set(re.findall(r"scenario run ([\w-]+)", PAGE)) <= set(shipped_names())
