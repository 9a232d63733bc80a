"""JSON of the interface: a large document is written in portions, with turns of the event loop between."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any

ITEMS_PER_PORTION = 500
"""Members of a list or an object that are written in one turn; what a member holds counts as one."""


async def rendered(value: Any) -> bytes:
    """Return a value as compact JSON.

    Raises:
        ValueError: a number in it is none of JSON's.
    """
    pieces: list[str] = []
    for portion in _portions(value):
        pieces.append(portion)
        if len(portion) > ITEMS_PER_PORTION:
            await asyncio.sleep(0)
    return "".join(pieces).encode()


def _portions(value: Any) -> Iterator[str]:
    """Yield the text of a value: each member of an object by itself, a long list or object in portions."""
    if isinstance(value, dict) and any(map(_is_long, value.values())):
        separator = "{"
        for key, member in value.items():
            yield f"{separator}{_text(key)}:"
            yield from _portions(member)
            separator = ","
        yield "}"
    elif _is_long(value):
        members = iter(value.items() if isinstance(value, dict) else value)
        begin, end = "{}" if isinstance(value, dict) else "[]"
        separator = begin
        while portion := list(itertools.islice(members, ITEMS_PER_PORTION)):
            yield separator + _text(dict(portion) if isinstance(value, dict) else portion)[1:-1]
            separator = ","
        yield end
    else:
        yield _text(value)


def _is_long(value: Any) -> bool:
    return isinstance(value, dict | list | tuple) and len(value) > ITEMS_PER_PORTION


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
