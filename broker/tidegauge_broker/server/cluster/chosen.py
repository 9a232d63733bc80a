"""The one place that chooses where a broker finds its cluster's metadata."""

from __future__ import annotations

import logging

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import Values
from tidegauge_broker.server.cluster.ports import Cluster, Dial
from tidegauge_broker.server.cluster.zookeeper.cluster import ZooKeeperCluster


def require_settings(settings: Values) -> None:
    """Check that a broker's settings say where its cluster's metadata are.

    Raises:
        TidegaugeError: INVALID_CONFIG, they do not.
    """
    if not settings.text("zookeeper.connect"):
        raise TidegaugeError(ErrorCode.INVALID_CONFIG, "zookeeper.connect is missing: write HOST:PORT of ZooKeeper")


def quieten_logs() -> None:
    """Leave only warnings of what connects to the store in the broker's log."""
    logging.getLogger("kazoo").setLevel(logging.WARNING)


async def connect(settings: Values, broker_id: int, dial: Dial | None = None) -> Cluster:
    """Connect a broker to its cluster.

    Args:
        settings: of the broker.
        broker_id: this broker.
        dial: opens the connections to the store; None: as the store's client does.

    Raises:
        TidegaugeError: the store did not respond in time, or what it holds is no cluster's.
    """
    return await ZooKeeperCluster.connect(settings, broker_id, dial)
