"""``LabMembership`` of a broker in ZooKeeper mode: its session is ended on the server, its connection is a link."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tidegauge_broker.server.cluster.ports import Cluster, Dial
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.zookeeper.link import ZooKeeperLink
from tidegauge_broker.server.lab.zookeeper.session import end_session
from tidegauge_broker.server.lab.zookeeper.session_note import keep_noted


class ZooKeeperMembership:
    """The membership of a broker in ZooKeeper mode, for the lab.

    Args:
        faults: the faults that apply to the connection.
        session_file: where the session is noted (``lab.session.file``); None: nowhere.
    """

    is_session = True

    def __init__(self, faults: FaultTable, session_file: str | None) -> None:
        self._link = ZooKeeperLink(faults)
        self._session_file = session_file
        self._cluster: Cluster | None = None

    def dial(self) -> Dial:
        """Return what opens connections to ZooKeeper to which the faults apply."""
        return self._link.dial

    def assembled(self, cluster: Cluster) -> None:
        """Note the session for the lab, from now on."""
        self._cluster = cluster
        if self._session_file is not None:
            keep_noted(cluster, Path(self._session_file))

    def identity(self) -> int:
        """Return the session's id."""
        assert self._cluster is not None, "assembled comes first"
        return self._cluster.session().session_id

    async def end(self) -> None:
        """End the session on the server.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, ZooKeeper does not respond.
        """
        assert self._cluster is not None, "assembled comes first"
        await asyncio.to_thread(end_session, *self._cluster.session())

    def close(self) -> None:
        """End the link: kazoo has closed its sockets before."""
        self._link.close()
