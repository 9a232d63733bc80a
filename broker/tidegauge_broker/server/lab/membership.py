"""The lab's access to a broker's membership of its cluster, in either mode; ``Lab`` chooses the store."""

from __future__ import annotations

from typing import Protocol

from tidegauge_broker.server.cluster.ports import Cluster, Dial


class LabMembership(Protocol):
    """A broker's membership of its cluster, for the lab.

    Attributes:
        is_session: whether the membership is a session with a server.
    """

    is_session: bool

    def dial(self) -> Dial | None:
        """Return the dial that meets the faults; None: dial as without the lab."""
        ...

    def assembled(self, cluster: Cluster) -> None:
        """Follow the membership of a broker whose parts are made."""

    def identity(self) -> int:
        """Return the number by which the store knows the membership now."""
        ...

    async def end(self) -> None:
        """End the membership at the store, at once, as if the broker had been silent for too long.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, the store does not respond.
        """

    def close(self) -> None:
        """End what holds up connections: the broker stops."""
