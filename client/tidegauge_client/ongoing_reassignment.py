"""A reassignment that is in progress, as brokers and controllers report it."""

from __future__ import annotations

from typing import NamedTuple


class OngoingReassignment(NamedTuple):
    """A reassignment in progress: current replicas (the target, then those to be removed), added and removed ones."""

    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """Return the replicas that remain at its end."""
        return tuple(replica for replica in self.replicas if replica not in self.removing_replicas)
