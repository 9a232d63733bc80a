"""The membership of a cluster that was ended: a ZooKeeper session, or (KRaft mode) a broker epoch."""

from __future__ import annotations

from typing import Any, NamedTuple


class EndedMembership(NamedTuple):
    """A membership that was ended.

    Attributes:
        number: the session's id, or the broker epoch.
        is_session: whether it was a session.
    """

    number: int
    is_session: bool

    @property
    def as_json(self) -> dict[str, Any]:
        """The field of a verb's output that names it."""
        return {"session": f"0x{self.number:x}"} if self.is_session else {"broker_epoch": self.number}

    def words(self, name: str) -> str:
        """Return the sentence about its end.

        Args:
            name: of the broker's process.
        """
        if self.is_session:
            return f"Ended the ZooKeeper session 0x{self.number:x} of {name}"
        return f"The active controller has fenced {name} (broker epoch {self.number})"

    @property
    def clause(self) -> str:
        """The clause about its end, to follow the sentence about the process."""
        if self.is_session:
            return f"and its ZooKeeper session 0x{self.number:x} has been ended"
        return f"and fenced by the active controller (broker epoch {self.number})"
