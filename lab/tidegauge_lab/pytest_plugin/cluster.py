"""The cluster as plain tests see it: ``Cluster``; ``Cluster.aio`` is the same for asyncio tests.

Rules:
    1. Each method is that of ``AsyncCluster``, done when it returns: see there.
    2. In an asyncio test use ``aio``: the plain methods block the test's event loop.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.sync_base import LoopThread
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster
from tidegauge_lab.local.ports import Reservations, is_free
from tidegauge_lab.pytest_plugin.aio import AsyncCluster
from tidegauge_lab.pytest_plugin.conditions import NotSoError
from tidegauge_lab.pytest_plugin.plugin import TidegaugeOptions
from tidegauge_lab.pytest_plugin.sync_cluster import SyncCluster

FIRST_PORT = 20_000
PORTS = 6_000
PORTS_APART = 16
MOST_ATTEMPTS = 4
PORT_IS_TAKEN = ("is in use by", "can't be bound")

__all__ = ["ZOOKEEPER", "AsyncCluster", "Cluster", "NotSoError"]
__tracebackhide__ = True  # pytest: a report shows the test's own lines
Result = TypeVar("Result")


def free_base_ports(count: int) -> Iterator[int]:
    """Where so many free ports in a row begin.

    Below the ports of outgoing connections, and away from 19092, where users' clusters lie. A port that is free may be
    that of a broker which is down at the moment, and comes back to it.
    """
    for base in itertools.count(FIRST_PORT + os.getpid() * PORTS_APART % PORTS, PORTS_APART):
        if base + count > FIRST_PORT + 2 * PORTS:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there are no {count} free ports in a row")
        ports = range(base, base + count)
        if all(map(is_free, ports)) and Reservations().owned().isdisjoint(ports):
            yield base


class Cluster(SyncCluster):
    """The cluster for plain tests.

    Attributes:
        local: the cluster's processes and directory.
        aio: the same cluster for asyncio tests.
        topics_of_test: topics that the running test has made.
    """

    def __init__(self, local: LocalCluster) -> None:
        self.local = local
        self.topics_of_test: list[str] = []
        self.aio = AsyncCluster(local, self.topics_of_test)
        self._loop = LoopThread("tidegauge-pytest")

    @classmethod
    def launch(cls, directory: Path, options: TidegaugeOptions) -> Cluster:
        """Start a cluster in a new directory.

        Raises:
            TidegaugeError: why it does not start.
        """
        zookeeper = options.zookeeper
        if zookeeper is not None and "/" not in zookeeper:
            zookeeper = f"{zookeeper}/pytest-{uuid4().hex[:12]}"  # several workers may share it
        bases = free_base_ports(options.brokers)
        for attempt in range(MOST_ATTEMPTS):
            try:
                local = LocalCluster.create(
                    directory,
                    options.brokers,
                    profile=options.profile,
                    settings=options.settings,
                    zookeeper=zookeeper,
                    base_port=next(bases),
                )
                local.up()
                return cls(local)
            except TidegaugeError as problem:
                is_last = attempt == MOST_ATTEMPTS - 1
                if is_last or not any(sign in problem.message for sign in PORT_IS_TAKEN):
                    raise
                shutil.rmtree(directory, ignore_errors=True)
        raise AssertionError("the last attempt returns or raises")

    def close(self, *, keep: bool = False) -> None:
        """Take the cluster down; with ``keep`` its directory stays."""
        self._loop.close()
        self.local.down(grace_seconds=3.0)
        if not keep:
            shutil.rmtree(self.local.directory, ignore_errors=True)

    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run it on the cluster's own loop; a failure's traceback begins here, not in asyncio."""
        try:
            return self._loop.run(coroutine)
        except (NotSoError, TidegaugeError) as problem:
            raise problem.with_traceback(None) from None

    @property
    def directory(self) -> Path:
        """The cluster's directory, as for ``--dir``."""
        return self.local.directory

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers."""
        return [broker.id for broker in self.local.file.brokers]
