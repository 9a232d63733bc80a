"""Where a scenario plays: a cluster of its own in a directory, on ports that are free, taken down in any case.

Rules:
- The controller's broker is started first and waited for, so that it is the controller; then the others together.
- Ports: a block of sixteen, held by a lock on a small file for as long as the scenario runs. A broker that is killed
  and started again must find its port free, so another scenario must not take it meanwhile.
- ZooKeeper is one of its own, or one that is given, under a chroot that no other run uses.
- One launcher, which is kept until the end, starts all of a story's brokers: the controller's, the others, and each
  that the story starts again.
- The end kills every process at once; nothing is gained by a controlled shutdown. A guard does it where the run's own
  process is killed (``tidegauge_lab.local.guard``).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TextIO

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cluster_file import KRAFT_MODE, ClusterFile
from tidegauge_lab.local import layout, ports, takedown
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.guard import guarding
from tidegauge_lab.local.launcher import kept
from tidegauge_lab.local.ports import shared_directory
from tidegauge_lab.local.topology import topology_of
from tidegauge_lab.local.wanted import MOST_CONTROLLERS, WantedQuorum
from tidegauge_lab.scenario.client_processes import sign_of
from tidegauge_lab.scenario.model import Scenario

# Below the first port of a user's own cluster, and of the range that the system gives to outgoing connections.
_FIRST_PORT = 13_008
_BLOCK = 16
_BLOCKS = 360
_CLUSTER = "cluster"


@contextlib.contextmanager
def stage(
    scenario: Scenario, directory: Path, zookeeper: str | None = None, *, is_temporary: bool = False
) -> Iterator[LocalCluster]:
    """Provide a cluster that is up, with the scenario's settings and controller; take it down at the end.

    Args:
        scenario: the scenario to play.
        directory: where; it must be empty, and is left with the cluster's data and logs in it.
        zookeeper: ``host:port`` of one that runs; None: one of its own is started.
        is_temporary: whether the directory is deleted if this process is killed.

    Raises:
        TidegaugeError: the cluster does not start.
    """
    directory = directory.absolute()
    clusters = (directory / _CLUSTER, directory / layout.ZOOKEEPER)
    with (
        guarding(*clusters, signs=(sign_of(directory),), temporary=directory if is_temporary else None),
        kept(directory / _CLUSTER),
        contextlib.ExitStack() as stack,
    ):
        base_port = stack.enter_context(_ports())
        if scenario.mode == KRAFT_MODE:
            cluster = _in_kraft(scenario, directory / _CLUSTER, base_port)
        else:
            if zookeeper is None:
                zookeeper = stack.enter_context(_own_zookeeper(directory, base_port + _BLOCK - 1))
            cluster = LocalCluster.create(
                directory / _CLUSTER,
                brokers=scenario.brokers,
                settings=scenario.all_settings,
                zookeeper=f"{zookeeper}/scenario-{uuid.uuid4().hex[:12]}",
                base_port=base_port,
                mode=scenario.mode,
            )
        stack.callback(_surely, lambda: cluster.down(grace_seconds=0.0))
        if scenario.mode != KRAFT_MODE:
            cluster.start(scenario.controller)
        cluster.up()
        yield cluster


def _in_kraft(scenario: Scenario, directory: Path, base_port: int) -> LocalCluster:
    """Return the cluster of a KRaft scenario; controllers have the block's last ports."""
    quorum = WantedQuorum(scenario.controllers, features=scenario.features, port=base_port + _BLOCK - MOST_CONTROLLERS)
    return LocalCluster.create(
        directory,
        brokers=scenario.brokers,
        settings=scenario.all_settings,
        base_port=base_port,
        mode=KRAFT_MODE,
        quorum=quorum,
    )


@contextlib.contextmanager
def _ports() -> Iterator[int]:
    """Yield the first of a block of free ports of this run."""
    first = os.getpid() % _BLOCKS
    for place in range(_BLOCKS):
        base = _FIRST_PORT + (first + place) % _BLOCKS * _BLOCK
        path = shared_directory() / f"tidegauge-scenario-{os.getuid()}-{base}.lock"
        with path.open("w") as lock:
            if not _locked(path, lock):
                continue
            try:
                if all(ports.is_free(port) for port in range(base, base + _BLOCK)):
                    yield base
                    return
            finally:
                path.unlink(missing_ok=True)
    raise TidegaugeError(ErrorCode.INVALID_REQUEST, "there is no block of free ports for a scenario's cluster")


def _locked(path: Path, lock: TextIO) -> bool:
    """Take the lock, if it is free; a file that its last holder has removed meanwhile is no lock."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return path.stat().st_ino == os.fstat(lock.fileno()).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


@contextlib.contextmanager
def _own_zookeeper(directory: Path, port: int) -> Iterator[str]:
    """Run a ZooKeeper in a directory beside the cluster's."""
    home = directory / layout.ZOOKEEPER
    (home / layout.LOGS).mkdir(parents=True)
    file = ClusterFile(f"{ports.HOST}:{port}", zookeeper_managed=True, profile="fast", brokers=[])
    try:
        topology_of(home, file).start([layout.ZOOKEEPER])
        yield file.zookeeper_address
    finally:
        _surely(lambda: takedown.end([layout.zookeeper_process(home)], grace_seconds=0.0))


def _surely(take_down: Callable[[], None]) -> None:
    """Take something down, also if Ctrl-C is pressed a second time meanwhile."""
    try:
        take_down()
    except KeyboardInterrupt:
        take_down()
        raise
