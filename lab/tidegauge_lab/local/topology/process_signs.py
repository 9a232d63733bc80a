"""What stands in the command lines of the processes beside the brokers, by which they are found."""

from __future__ import annotations

from pathlib import Path

ZOOKEEPER_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
CONTROLLER_MODULE = "tidegauge_broker.server.quorum.verb"


def signs_of_processes(directory: Path) -> list[str]:
    """Return what stands in the command lines of the processes of this directory's cluster."""
    return [f" {ZOOKEEPER_CLASS} {directory}/", f" -m {CONTROLLER_MODULE} --config {directory}/controller-"]
