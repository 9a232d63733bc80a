"""The cluster as plain tests see it: ``Cluster``; ``Cluster.aio`` is the same for asyncio tests.

Rules:
    1. Each method is ``AsyncCluster``'s, done when it returns.
    2. In an asyncio test use ``aio``: the plain methods block the test's event loop.
    3. The cluster is restored once for each test that uses it: before the test if it names the fixture, else, as by
       ``request.getfixturevalue``, at the first use within it.
    4. A guard (``tidegauge_lab.local.guard``) ends the cluster's processes where the session ends without ``close``.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.cluster_file import FILE_NAME
from tidegauge_client.loop_thread import LoopThread
from tidegauge_client.sync_admin import SyncAdmin
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster
from tidegauge_lab.local.guard import Guard
from tidegauge_lab.local.launcher import kept
from tidegauge_lab.local.ports import Reservations, is_free
from tidegauge_lab.pytest_plugin.aio import AsyncCluster
from tidegauge_lab.pytest_plugin.conditions import NotSoError
from tidegauge_lab.pytest_plugin.options import TidegaugeOptions
from tidegauge_lab.pytest_plugin.sync_cluster import SyncCluster

FIRST_PORT = 20_000
PORTS = 6_000
PORTS_APART = 16
MOST_ATTEMPTS = 4
GRACE_SECONDS = 3.0
OFFSETS_TOPIC_TIMEOUT_MS = 5_000
PORT_IS_TAKEN = ("is in use by", "can't be bound")

__all__ = ["ZOOKEEPER", "AsyncCluster", "Cluster", "NotSoError"]
__tracebackhide__ = True  # pytest: a report shows the test's own lines
Result = TypeVar("Result")


def free_base_ports(count: int) -> Iterator[int]:
    """Where so many free ports in a row begin.

    Below the ports of outgoing connections, and away from 19092, where users' clusters lie. A port that is free may be
    taken by a broker which is down at the moment, and comes back to it.
    """
    for base in itertools.count(FIRST_PORT + os.getpid() * PORTS_APART % PORTS, PORTS_APART):
        if base + count > FIRST_PORT + 2 * PORTS:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there are no {count} free ports in a row")
        ports = range(base, base + count)
        if all(map(is_free, ports)) and Reservations().owned().isdisjoint(ports):
            yield base


class Cluster(SyncCluster):
    """The cluster for plain tests.

    Args:
        local: the cluster's processes and directory.
        guard: ends its processes if this session does not.
        resources: objects to close with the cluster, such as the launcher that starts brokers again.

    Attributes:
        topics_of_test: topics that the running test has made.
        is_used: whether the running test has used the cluster.
        keeps_logs: whether ``close`` leaves the logs of ZooKeeper, brokers and events, and ``cluster.json``, by which
            verbs find them: a test that used the cluster has failed.
    """

    def __init__(
        self, local: LocalCluster, guard: Guard | None = None, resources: contextlib.ExitStack | None = None
    ) -> None:
        self.topics_of_test: list[str] = []
        self.is_used = True
        self.keeps_logs = False
        self._local = local
        self._guard = guard
        self._resources = resources or contextlib.ExitStack()
        self._aio = AsyncCluster(local, self.topics_of_test)
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
        guard = Guard(directory)
        with contextlib.ExitStack() as resources:
            resources.enter_context(kept(directory))  # tests kill brokers, and each start of one is then a fork
            try:
                local = _started(directory, options, zookeeper)
            except TidegaugeError:
                guard.release()  # the started processes have been ended
                raise
            except BaseException:
                guard.take_down()  # Ctrl-C, for example, may have come while that was being ended
                raise
            return cls(local, guard, resources.pop_all())

    def begin_test(self) -> None:
        """Note that another test begins, for which the cluster has not been restored (rule 3)."""
        self.topics_of_test.clear()
        self.is_used = False

    def use(self) -> None:
        """Restore the cluster, unless that was done for this test.

        Raises:
            TidegaugeError: a process does not start, or a broker does not end its faults.
            TimeLimitError: the cluster is not ready in time.
        """
        if self.is_used:
            return
        self.is_used = True  # a failure is the test's own; the next one tries again
        self._run(self._aio.restore())

    def close(self, *, keep: bool = False) -> None:
        """Take the cluster down and remove its directory, but for what ``keep`` and ``keeps_logs`` leave.

        If nothing is to be left, processes are killed: a controlled shutdown takes more than a second, since the last
        brokers try three times to hand their partitions on. A ZooKeeper that others use keeps no dead sessions.
        """
        self._loop.close()
        self._resources.close()
        file = self._local.file
        leaves_something = keep or self.keeps_logs or bool(file.zookeeper_address and not file.zookeeper_managed)
        self._local.down(grace_seconds=GRACE_SECONDS if leaves_something else 0)
        if self._guard is not None:
            self._guard.release()
        if keep:
            return
        if not self.keeps_logs:
            shutil.rmtree(self._local.directory, ignore_errors=True)
            return
        for path in self._local.directory.iterdir():
            if path.name not in {layout.LOGS, FILE_NAME}:
                _remove(path)

    @property
    def local(self) -> LocalCluster:
        """The cluster's processes and directory."""
        self.use()
        return self._local

    @property
    def aio(self) -> AsyncCluster:
        """The same cluster for asyncio tests."""
        self.use()
        return self._aio

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


def _started(directory: Path, options: TidegaugeOptions, zookeeper: str | None) -> LocalCluster:
    """Start a cluster on free ports; on others where a port is taken meanwhile.

    Raises:
        TidegaugeError: why it does not start.
    """
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
                mode=options.mode or None,
            )
            local.up()
            _create_offsets_topic(local)
            return local
        except TidegaugeError as problem:
            is_last = attempt == MOST_ATTEMPTS - 1
            if is_last or not any(sign in problem.message for sign in PORT_IS_TAKEN):
                raise
            shutil.rmtree(directory, ignore_errors=True)
    raise AssertionError("the last attempt returns or raises")


def _create_offsets_topic(local: LocalCluster) -> None:
    """Create ``__consumer_offsets``, as the first request of a group does, if the settings allow it.

    A broker refuses to create it while fewer brokers are up than it has replicas, three by default
    (AutoTopicCreationManager): without it the first consumer of a session would find no coordinator if its test had
    killed a broker before.
    """
    with contextlib.suppress(TidegaugeError), SyncAdmin(local.bootstrap_servers) as admin:
        admin.find_coordinator("tidegauge", timeout_ms=OFFSETS_TOPIC_TIMEOUT_MS)


def _remove(path: Path) -> None:
    """Remove a file or directory, as far as that is possible: the rest goes with pytest's temporary directory."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
