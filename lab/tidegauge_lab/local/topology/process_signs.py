"""Signs in the command lines of the processes beside the brokers, by which they are found."""

from __future__ import annotations

from pathlib import Path

from tidegauge_lab.local.launcher import CONTROLLER

ZOOKEEPER_CLASS = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


def signs_of_processes(directory: Path) -> list[str]:
    """Return the signs in command lines of this directory's processes."""
    return [f" {ZOOKEEPER_CLASS} {directory}/", f" -m {CONTROLLER} --config {directory}/controller-"]
