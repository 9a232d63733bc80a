"""Reads the fields of a JSON document that may be a stranger's. Pure."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any


def known_fields(value: Any, kind: type, what: str) -> dict[str, Any]:
    """Return the object's fields.

    Args:
        value: the parsed JSON.
        kind: the data class whose fields it may have.
        what: the object's name in the error.

    Raises:
        ValueError: it is no object, or has a field that the class lacks.
    """
    if not isinstance(value, dict):
        raise ValueError(f"{what} is no JSON object")  # noqa: TRY004 - one kind of error for the caller
    if unknown := sorted(value.keys() - {one.name for one in fields(kind)}):
        raise ValueError(f"{what} has the unknown field {unknown[0]!r}")
    return value


def of_type(found: dict[str, Any], name: str, kind: type, otherwise: Any = None) -> Any:
    """Return a field of this type.

    Args:
        found: the object's fields.
        name: the field's.
        kind: its type.
        otherwise: its value if it is missing; None: it must be there.

    Raises:
        ValueError: it has another type, or is missing.
    """
    value = found.get(name, otherwise)
    if type(value) is not kind:  # True is an int in Python, and no number in JSON
        raise ValueError(
            f"{name!r} is {'missing' if value is None else f'{str(value)[:80]!r}'}; it is a {kind.__name__}"
        )
    return value


def number(found: dict[str, Any], name: str, otherwise: int | None = None, *, least: int = 0, most: int) -> int:
    """Return a field that is an integer in a range, both ends included.

    Raises:
        ValueError: it is none, or is missing and has no value ``otherwise``.
    """
    value: int = of_type(found, name, int, otherwise)
    if not least <= value <= most:
        raise ValueError(f"{name!r} is {str(value)[:20]}; it is a number from {least} to {most}")
    return value


def matching(
    found: dict[str, Any], name: str, form: re.Pattern[str], otherwise: str | None = None, what: str = "address"
) -> str:
    """Return a field that is a text of this form, or ``otherwise``.

    Raises:
        ValueError: it is none, or is missing and has no value ``otherwise``; ``what`` names the form there.
    """
    text: str = of_type(found, name, str, otherwise)
    if text != otherwise and form.fullmatch(text) is None:
        raise ValueError(f"{name!r} is {text[:80]!r}, which is no {what}")
    return text
