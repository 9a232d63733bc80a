"""The states of a future replica, and which may follow which: one table, which docs/replication.md draws.

A future replica is the copy of a replica in another log directory of its broker, while it is moved there. It begins
when its log is created or found, and ends when it replaces the replica, or is deleted.
Source: ReplicaAlterLogDirsManager, ReplicaAlterLogDirsThread, Partition.maybeReplaceCurrentWithFutureReplica. Kafka
replaces the replica as soon as the copy is complete; that a copy is flushed first is stricter
(``LogDirMoves``, rule 5).
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple


class FutureState(Enum):
    """The current activity of a future replica."""

    STOPPED = "stopped"
    """Nothing: it waits for the controller to make its replica leader or follower."""
    COPYING = "copying"
    """It is brought nearer to the current log, or waits for the quota."""
    FLUSHING = "flushing"
    """It has all that the current log holds, and goes to the disk."""
    FLUSHED = "flushed"
    """It was complete and on the disk, and has been copied further since at most: it replaces the replica next."""


_STOPPED = FutureState.STOPPED
_COPYING = FutureState.COPYING
_FLUSHING = FutureState.FLUSHING
_FLUSHED = FutureState.FLUSHED


class Transition(NamedTuple):
    """One row: ``old`` is None before a future replica begins, ``new`` is None when it ends."""

    old: FutureState | None
    new: FutureState | None
    when: str


_HALTED = "its replica is stopped or goes offline, or the copy can't be read or written"
_GIVEN_UP = "another log directory is asked for, its own fails, or its replica is deleted"
_EMPTIED = "it is truncated, or begins again, as the current log did"

TRANSITIONS = (
    Transition(None, _STOPPED, "its log is created, or found at the broker's start"),
    Transition(_STOPPED, _COPYING, "it is asked for, or the controller makes its replica leader or follower"),
    Transition(_COPYING, _FLUSHING, "it has all that the current log holds"),
    Transition(_FLUSHING, _FLUSHED, "it is on the disk"),
    Transition(_FLUSHED, _FLUSHING, "it is complete again, and more of the current log is on the disk than of it"),
    Transition(_FLUSHING, _COPYING, _EMPTIED),
    Transition(_FLUSHED, _COPYING, _EMPTIED),
    Transition(_COPYING, _STOPPED, _HALTED),
    Transition(_FLUSHING, _STOPPED, _HALTED),
    Transition(_FLUSHED, _STOPPED, _HALTED),
    Transition(_FLUSHED, None, f"it replaces the replica; or {_GIVEN_UP}"),
    Transition(_STOPPED, None, f"{_GIVEN_UP}, or it is of an earlier topic of that name"),
    Transition(_COPYING, None, _GIVEN_UP),
    Transition(_FLUSHING, None, _GIVEN_UP),
)
ALLOWED = frozenset((row.old, row.new) for row in TRANSITIONS)


def check_transition(old: FutureState | None, new: FutureState | None) -> None:
    """Assert that the table allows a change of state."""
    assert (old, new) in ALLOWED, f"A future replica may not change from {old} to {new}"


class FutureReplica:
    """The state of one future replica, and what it has to catch up with.

    Attributes:
        state: its state; None once it has ended.
        truncated_to: the lowest offset that the current log was truncated to and the copy was not; None: there is none.
        was_found: whether a process before began the copy.
    """

    __slots__ = ("state", "truncated_to", "was_found")

    def __init__(self, *, was_found: bool = False) -> None:
        check_transition(None, FutureState.STOPPED)
        self.state: FutureState | None = FutureState.STOPPED
        self.truncated_to: int | None = None
        self.was_found = was_found

    def enter(self, state: FutureState | None) -> None:
        """Take a state, which must be allowed by the table."""
        check_transition(self.state, state)
        self.state = state

    @property
    def is_copied(self) -> bool:
        """Whether the copy makes progress now."""
        return self.state is not None and self.state is not FutureState.STOPPED

    def begin(self) -> None:
        """Copy from now on; a copy in progress continues."""
        if self.state is FutureState.STOPPED:
            self.enter(FutureState.COPYING)

    def stop(self) -> None:
        """Copy no longer."""
        if self.is_copied:
            self.enter(FutureState.STOPPED)

    def note_truncated(self, to_offset: int) -> None:
        """Note that the current log was truncated to an offset below this copy's end."""
        self.truncated_to = to_offset if self.truncated_to is None else min(self.truncated_to, to_offset)

    def followed(self) -> None:
        """Take in that the copy was truncated, or begins again, as the current log did."""
        self.truncated_to = None
        if self.state in {FutureState.FLUSHING, FutureState.FLUSHED}:
            self.enter(FutureState.COPYING)

    def flushed(self) -> None:
        """Take in that the copy is on the disk, unless it was truncated, stopped or given up meanwhile."""
        if self.state is FutureState.FLUSHING:
            self.enter(FutureState.FLUSHED)
