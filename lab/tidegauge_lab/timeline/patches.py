"""Patches: the changes from one JSON document to the next, and their application. Pure.

A patch is a list of changes, each ``[path, value]``, or ``[path]`` for a deleted entry; a path is a list of keys.
Objects are compared key by key, everything else as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Json = dict[str, Any]
Patch = list[list[Any]]


def changes(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[list[Any]]:
    """Yield the changes at a path from one value to another; None for a missing entry of the first level."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key, value in new.items():
            if key not in old:
                yield [[*path, key], value]
            elif old[key] != value:
                yield from changes(old[key], value, (*path, key))
        for key in old:
            if key not in new:
                yield [[*path, key]]
    elif old != new:
        yield [list(path), new]


def patched(document: Any, patch: Patch) -> Any:
    """Return a patched document, which shares the unchanged parts with the original."""
    for path, *value in patch:
        document = _set(document, path, value)
    return document


def _set(document: Any, path: list[str], value: list[Any]) -> Any:
    key, *rest = path
    if rest:
        return {**document, key: _set(document.get(key, {}), rest, value)}
    if value:
        return {**document, key: value[0]}
    return {one: kept for one, kept in document.items() if one != key}
