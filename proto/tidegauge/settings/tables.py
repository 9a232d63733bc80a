"""Short constructors for the tables of settings; ``model.Setting`` describes the fields."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidegauge.settings.model import INT_MAX, LONG_MAX, SHORT_MAX, Setting, Unit


def whole(name: str, default: int | None, unit: Unit, meaning: str, minimum: int | None = None, **more: Any) -> Setting:
    """Return a setting whose value is an integer of 32 bits."""
    return Setting(name, "int", default, meaning, unit, -INT_MAX - 1 if minimum is None else minimum, INT_MAX, **more)


def long(name: str, default: int | None, unit: Unit, meaning: str, minimum: int | None = None, **more: Any) -> Setting:
    """Return a setting whose value is an integer of 64 bits."""
    return Setting(name, "int", default, meaning, unit, -LONG_MAX - 1 if minimum is None else minimum, LONG_MAX, **more)


def short(name: str, default: int, meaning: str, minimum: int, **more: Any) -> Setting:
    """Return a setting whose value is a count of 16 bits."""
    return Setting(name, "int", default, meaning, "", minimum, SHORT_MAX, **more)


def ratio(name: str, default: float, meaning: str, **more: Any) -> Setting:
    """Return a setting whose value is a number from 0 to 1."""
    return Setting(name, "float", default, meaning, "", 0, 1, **more)


def flag(name: str, default: bool, meaning: str, **more: Any) -> Setting:
    """Return a setting whose value is true or false."""
    return Setting(name, "bool", default, meaning, **more)


def text(name: str, default: str | None, meaning: str, choices: tuple[str, ...] = (), **more: Any) -> Setting:
    """Return a setting whose value is a text, or one of several choices."""
    return Setting(name, "text", default, meaning, choices=choices, **more)


def names(
    name: str, default: tuple[str, ...] | None, meaning: str, choices: tuple[str, ...] = (), **more: Any
) -> Setting:
    """Return a setting whose value is a comma-separated list of texts."""
    return Setting(name, "list", default, meaning, choices=choices, **more)


def gzip_level(**more: Any) -> Setting:
    """Return gzip's ``level``: a range, and -1 for the codec's default."""
    refusal = "Value must be between 1 and 9 or equal to -1"
    found = level("compression.gzip.level", -1, -1, 9, **more)
    return replace(found, illegal=(r"[+-]?0+", refusal), bounds=refusal)


def level(name: str, default: int, minimum: int, maximum: int, **more: Any) -> Setting:
    """Return the setting of a compression level (KIP-390)."""
    codec = name.split(".")[1]
    meaning = f"Level of {codec} if compression.type makes a leader compress."
    return Setting(name, "int", default, meaning, "", minimum, maximum, **more)
