"""Keeps the objects of thousands of partitions out of full garbage collections, which stop the event loop.

A full collection looks at every object of the process: some 25 ms for what is imported alone, 125 ms with 3,000
partitions, while they are made, again and again. The modules that a node has loaded when it begins to run are never
garbage and are frozen then (``gc.freeze``; a launcher does so before it forks). A broker's partitions, logs and
metadata are no garbage either, so they are frozen as they come to be: a collection looks at what is newer.
What is frozen and becomes garbage later in a cycle of references is never freed. So garbage is collected first, a
freeze comes only when the broker hosts ``PARTITIONS_PER_FREEZE`` more than ever before, and a deleted partition leaves
no cycle.
"""

from __future__ import annotations

import gc

PARTITIONS_PER_FREEZE = 500


def freeze_what_is_loaded() -> None:
    """Keep all that there is now out of collections: modules, classes and functions live as long as the process."""
    gc.freeze()


class LongLived:
    """Keeps long-lived objects out of full garbage collections."""

    def __init__(self) -> None:
        self._frozen_at = 0

    def grown_to(self, partition_count: int) -> None:
        """Freeze what there is, if the broker hosts many more partitions than at the last time."""
        if partition_count >= self._frozen_at + PARTITIONS_PER_FREEZE:
            self._frozen_at = partition_count
            gc.collect()  # which looks only at what came since the last freeze
            gc.freeze()
