"""``LabMembership`` of a broker in KRaft mode: the controller fences it, as it does with a broker that is silent."""

from __future__ import annotations

from tidegauge_broker.server.cluster.ports import Cluster


class KRaftMembership:
    """The membership of a broker in KRaft mode, for the lab."""

    is_session = False

    def __init__(self) -> None:
        self._cluster: Cluster | None = None

    def dial(self) -> None:
        """Return nothing: the connections to controllers are made by ``to_controllers``."""

    def assembled(self, cluster: Cluster) -> None:
        """Take over the broker's cluster."""
        self._cluster = cluster

    def identity(self) -> int:
        """Return the broker epoch."""
        assert self._cluster is not None, "assembled comes first"
        return self._cluster.session().session_id

    async def end(self) -> None:
        """Have the controller fence this broker at once; its next heartbeat asks to be unfenced.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, no controller responds.
        """
        assert self._cluster is not None, "assembled comes first"
        await self._cluster.fence()

    def close(self) -> None:
        """Do nothing: no connection is held up."""
