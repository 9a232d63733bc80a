"""What the shipped scenarios say, in Chinese: their titles, introductions, notes and steps.

``texts_zh.yaml`` has what their authors wrote, and ``sentences_zh.yaml`` what steps, expectations and outcomes say.
"""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Any

import yaml

from tidegauge_client.translation import Translation
from tidegauge_lab.scenario.loader import load, shipped_names
from tidegauge_lab.scenario.themes import themes


def _read(name: str) -> Any:
    text = resources.files("tidegauge_lab.scenario").joinpath(name).read_text(encoding="utf-8")
    return yaml.safe_load(text)


@cache
def _texts() -> dict[str, Any]:
    found: dict[str, Any] = _read("texts_zh.yaml")
    return found


def title_in_chinese(name: str) -> str:
    """Return the title of a shipped scenario."""
    title: str = _texts()["titles"][name]
    return title


def introduction_in_chinese(name: str) -> tuple[str, ...]:
    """Return the paragraphs of a shipped scenario's introduction; the last one is its rule."""
    return tuple(_texts()["introductions"][name])


def note_in_chinese(note: str) -> str:
    """Return a step's note; the English one if a scenario is not shipped."""
    english = " ".join(note.split())
    found: str = _texts()["notes"].get(english, english)
    return found


def sentences_of_steps() -> dict[str, str]:
    """Return what steps, expectations and outcomes say, by the English pattern (``Translation``)."""
    found: dict[str, str] = _read("sentences_zh.yaml")
    return found


@cache
def sentences_of_scenarios() -> dict[str, str]:
    """Return every sentence of the shipped scenarios by the English one: authors' texts, and patterns of steps."""
    notes: dict[str, str] = _texts()["notes"]
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
