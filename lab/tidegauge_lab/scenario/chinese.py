"""The texts of the shipped scenarios in Chinese: titles, introductions, notes and steps.

``texts_zh.yaml`` has their authors' texts, ``sentences_zh.yaml`` the sentences of steps, expectations and outcomes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from tidegauge_client.packaged_texts import packaged_texts
from tidegauge_client.translation import Translation
from tidegauge_lab.accountant.chinese import findings_in_chinese
from tidegauge_lab.scenario.loader import load, shipped_names
from tidegauge_lab.scenario.themes import themes

_PACKAGE = "tidegauge_lab.scenario"


@cache
def _texts() -> dict[str, Any]:
    found: dict[str, Any] = packaged_texts(_PACKAGE, "texts_zh.yaml")
    return found


def title_in_chinese(name: str) -> str:
    """Return the title of a shipped scenario."""
    title: str = _texts()["titles"][name]
    return title


def introduction_in_chinese(name: str) -> tuple[str, ...]:
    """Return a shipped scenario's introduction, in paragraphs; the last is its rule."""
    return tuple(_texts()["introductions"][name])


def note_in_chinese(note: str) -> str:
    """Return a step's note; English if not shipped."""
    english = " ".join(note.split())
    return notes_in_chinese().get(english, english)


def notes_in_chinese() -> dict[str, str]:
    """Return the notes of all shipped scenarios by the English ones."""
    found: dict[str, str] = _texts()["notes"]
    return found


def sentences_of_steps() -> dict[str, str]:
    """Return the sentences of steps, expectations and outcomes by English pattern."""
    found: dict[str, str] = packaged_texts(_PACKAGE, "sentences_zh.yaml")
    return findings_in_chinese() | found


@cache
def sentences_of_scenarios() -> dict[str, str]:
    """Return all texts and patterns of the shipped scenarios by English one."""
    notes = notes_in_chinese()
    # A step without a sentence begins with its note, and with a capital letter (``outcome.headline``).
    found = sentences_of_steps() | notes | {one[:1].upper() + one[1:]: text for one, text in notes.items()}
    found |= {theme.title["en"]: theme.title["zh"] for theme in themes()}
    for name in shipped_names():
        scenario = load(name)
        found[" ".join(scenario.title.split())] = title_in_chinese(name)
        english = [*scenario.teaches.split("\n\n"), scenario.rule]
        paragraphs = [" ".join(one.split()) for one in english if one.strip()]
        found |= dict(zip(paragraphs, introduction_in_chinese(name), strict=True))
    return found


@cache
def in_chinese() -> Translation:
    """Return the translation of scenarios."""
    return Translation(sentences_of_scenarios())
