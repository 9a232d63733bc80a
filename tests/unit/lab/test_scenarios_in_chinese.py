"""Shipped scenarios are whole in Chinese: authors' texts, and every sentence of a step (scenario/chinese.py)."""

from __future__ import annotations

import re

import pytest

from tidegauge_lab.scenario.chinese import (
    in_chinese,
    introduction_in_chinese,
    note_in_chinese,
    notes_in_chinese,
    sentences_of_steps,
    title_in_chinese,
)
from tidegauge_lab.scenario.loader import load, shipped_names
from tidegauge_lab.scenario.narration import LEGEND, narrated
from tidegauge_lab.scenario.outcome import IN_KRAFT, expected_of, settings_lines

HAN = re.compile("[\u4e00-\u9fff]")
PROSE = re.compile("[a-z]{2} [a-z]{2}")


@pytest.mark.parametrize("name", shipped_names())
def test_what_its_author_wrote_is_in_chinese(name: str) -> None:
    story = load(name)
    assert HAN.search(title_in_chinese(name))
    paragraphs = [one for one in (*story.teaches.split("\n\n"), story.rule) if one.strip()]
    assert len(introduction_in_chinese(name)) == len(paragraphs)
    assert [one for one in introduction_in_chinese(name) if not HAN.search(one)] == []
    notes = [step.note for step in story.steps if step.note]
    assert [one for one in notes if not HAN.search(note_in_chinese(one))] == []


@pytest.mark.parametrize("name", shipped_names())
def test_what_is_said_of_its_steps_is_in_chinese(name: str) -> None:
    story = load(name)
    said = [*settings_lines(story), *map(narrated, story.steps), *(one for s in story.steps for one in expected_of(s))]
    words = [one for one in said if PROSE.search(re.sub(r"\w+:\S+", "", one))]
    assert words
    assert [one for one in words if not in_chinese().knows(one)] == []


def test_how_states_are_written_is_known_in_chinese() -> None:
    assert [one for one in (*LEGEND, IN_KRAFT) if not in_chinese().knows(one)] == []


def test_no_note_is_left_of_a_scenario_that_was_removed() -> None:
    notes = {" ".join(step.note.split()) for name in shipped_names() for step in load(name).steps}
    assert [one for one in notes_in_chinese() if one not in notes] == []


def test_a_translation_uses_what_the_sentence_has() -> None:
    for english, chinese in sentences_of_steps().items():
        used = {int(one) for one in re.findall(r"\{(\d)\}", chinese)}
        assert used == set(range(english.count("{}"))), english
