"""Notes in a cluster's directory, as JSON: input of a stranger, refused with a sentence if it is damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.files import read_json

Note = TypeVar("Note")


def read_note(path: Path, form: Callable[[Any], Note], what_to_do: str) -> Note | None:
    """Return a note; None if there is none.

    Args:
        path: its file.
        form: makes the note of the JSON value, and raises ValueError if it is another.
        what_to_do: about a damaged one, for the sentence.

    Raises:
        TidegaugeError: INVALID_REQUEST, it is damaged.
    """
    try:
        return form(read_json(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, OSError) as problem:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"{path} is damaged: {problem}; nothing was done: {what_to_do}"
        ) from None


def fields_of(value: Any, *names: str) -> list[Any]:
    """Return the fields of a JSON object that has exactly these.

    Raises:
        ValueError: it is no object, or has others.
    """
    if not isinstance(value, dict) or value.keys() != set(names):
        raise ValueError(f"it is no object with {', '.join(names)}")
    return [value[name] for name in names]


def text_of(value: Any) -> str:
    """Return a text.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str):
        raise ValueError(f"{str(value)[:80]} is no text")  # noqa: TRY004 - one kind of error for the reader
    return value


def number_of(value: Any) -> int:
    """Return a whole number that is not negative.

    Raises:
        ValueError: it is none.
    """
    if type(value) is not int or not 0 <= value < 2**63:  # True is an int in Python
        raise ValueError(f"{str(value)[:80]} is no whole number")
    return value


def list_of(value: Any, item: Callable[[Any], Note]) -> list[Note]:
    """Return a list.

    Args:
        value: the JSON value.
        item: makes an item, and raises ValueError.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, list):
        raise ValueError(f"{str(value)[:80]} is no list")  # noqa: TRY004 - one kind of error for the reader
    return [item(one) for one in value]
