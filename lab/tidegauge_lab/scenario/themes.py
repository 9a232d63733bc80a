"""Subjects of the shipped scenarios: themes in their order, pairs of a loss and its cure, and a search by words."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import NamedTuple

import yaml


class Theme(NamedTuple):
    """A theme: its name, its title in each language, and its scenarios in the order in which to read them."""

    name: str
    title: dict[str, str]
    scenarios: tuple[str, ...]


@cache
def _read() -> tuple[tuple[Theme, ...], dict[str, str]]:
    text = resources.files("tidegauge_lab.scenario").joinpath("themes.yaml").read_text(encoding="utf-8")
    found = yaml.safe_load(text)
    return tuple(Theme(one["name"], one["title"], tuple(one["scenarios"])) for one in found["themes"]), found["cures"]


def themes() -> tuple[Theme, ...]:
    """Return all themes."""
    return _read()[0]


def theme_of(name: str) -> Theme:
    """Return the theme of a shipped scenario.

    Raises:
        KeyError: it is in none.
    """
    for theme in themes():
        if name in theme.scenarios:
            return theme
    raise KeyError(name)


def cure_of(name: str) -> str | None:
    """Return the scenario with the cure of another; None if there is none."""
    return _read()[1].get(name)


def is_about(words: str, *texts: str) -> bool:
    """Return whether all words occur in the texts, in any case."""
    text = "\n".join(texts).casefold()
    return all(word in text for word in words.casefold().split())
