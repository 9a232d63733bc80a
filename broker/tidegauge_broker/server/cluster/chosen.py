"""The one place that chooses where a broker finds its cluster's metadata."""

from __future__ import annotations

from tidegauge.settings import Values
from tidegauge_broker.server.cluster.ports import Cluster, Dial
from tidegauge_broker.server.cluster.zookeeper.cluster import ZooKeeperCluster


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
