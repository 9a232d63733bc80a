"""The size of a decision, as far as it is known before: the shell makes large ones beside the event loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LARGE_FROM_ITEMS = 1_000
"""A decision that goes through as many names, partitions or batches takes some 5 ms."""
LARGE_FROM_BYTES = 65_536
"""A record of as many bytes may hold some 3,000 items."""
_COUNTED = {tuple, list, dict, set, frozenset}


def items_in(value: Any) -> int:
    """Return the total number of items in an event's or request's collections."""
    found = 0
    names: Sequence[str] = getattr(value, "__match_args__")  # noqa: B009 - of any class, which has no type
    for name in names:
        field = getattr(value, name)
        if type(field) in _COUNTED:  # a NamedTuple is a value
            found += len(field)
    return found
