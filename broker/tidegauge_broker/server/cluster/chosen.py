"""The one place that chooses where a broker finds its cluster's metadata."""

from __future__ import annotations

import logging

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.releases import release_of
from tidegauge.settings import Values
from tidegauge_broker.server.clock import Clock
from tidegauge_broker.server.cluster.kraft.cluster import KRaftCluster
from tidegauge_broker.server.cluster.ports import Cluster, Dial
from tidegauge_broker.server.quorum.node_lab import NodeLab
from tidegauge_broker.server.quorum.node_settings import NodeSettings


def require_settings(settings: Values, node: NodeSettings | None = None) -> None:
    """Check that a broker's settings say where its cluster's metadata are, and suit that place.

    Args:
        settings: of the broker.
        node: its settings as a node of a KRaft cluster, which were checked when they were read.

    Raises:
        TidegaugeError: INVALID_CONFIG, they do not.
    """
    release_of(settings.text("tidegauge.as.kafka"), is_kraft=node is not None)
    if node is None and not settings.text("zookeeper.connect"):
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            "zookeeper.connect is missing: write HOST:PORT of ZooKeeper; or process.roles=broker, for a cluster whose "
            "controllers are a quorum (KRaft)",
        )


def quieten_logs() -> None:
    """Leave only warnings of what connects to the store in the broker's log."""
    logging.getLogger("kazoo").setLevel(logging.WARNING)


async def connect(
    settings: Values,
    broker_id: int,
    clock: Clock,
    node: NodeSettings | None = None,
    dial: Dial | None = None,
    node_lab: NodeLab | None = None,
) -> Cluster:
    """Connect a broker to its cluster.

    Args:
        settings: of the broker.
        broker_id: this broker.
        clock: of the process.
        node: its settings as a node of a KRaft cluster; None: the cluster's metadata are in ZooKeeper.
        dial: opens the connections to the store; None: as the store's client does.
        node_lab: opens those to the controllers of a KRaft cluster; None: as without the lab.

    Raises:
        TidegaugeError: the store did not respond in time, or what it holds is no cluster's.
    """
    if node is not None:
        return await KRaftCluster.connect(settings, node, clock, node_lab or NodeLab())
    # A broker of a KRaft cluster saves 2.4 MB without it; the launcher of a cluster with ZooKeeper loads it ahead.
    from tidegauge_broker.server.cluster.zookeeper.cluster import ZooKeeperCluster  # noqa: PLC0415 - see above

    return await ZooKeeperCluster.connect(settings, broker_id, dial)
