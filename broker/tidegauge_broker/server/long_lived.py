"""Keeps long-lived objects out of full garbage collections, which stop the event loop.

A full collection looks at every object of the process: some 25 ms for what is imported alone, 125 ms with 3,000
partitions or 40,000 client quotas, while they are made, again and again. The modules that a node has loaded when it
begins to run are never garbage and are frozen then (``gc.freeze``; a launcher does so before it forks). Partitions,
logs and metadata are no garbage either. So whatever has outlived a full collection is frozen, too, as soon as it is
``SURVIVORS_PER_FREEZE`` objects, and the next collection looks at what is newer.
A frozen object is freed with its last reference, and never if it is part of a cycle of references. Garbage has just
been collected when a freeze comes, and a deleted partition leaves no cycle.
"""

from __future__ import annotations

import gc
from collections.abc import Mapping

SURVIVORS_PER_FREEZE = 50_000
_FULL, _OLDEST = 2, 2
"""The generation of a full collection, and the one that its survivors are in."""


def freeze_what_lives_long() -> None:
    """Freeze modules, classes and functions now, and from now on what outlives a full collection, if it is much."""
    gc.freeze()
    if _collected not in gc.callbacks:
        gc.callbacks.append(_collected)


def _collected(phase: str, collection: Mapping[str, int]) -> None:
    """Take note of a collection that begins or ends (``gc.callbacks``)."""
    if phase != "stop" or collection["generation"] != _FULL:
        return
    if len(gc.get_objects(generation=_OLDEST)) >= SURVIVORS_PER_FREEZE:
        gc.freeze()
