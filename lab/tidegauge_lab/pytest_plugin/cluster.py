"""The cluster as plain tests see it: ``Cluster``; ``Cluster.aio`` is the same for asyncio tests.

Rules:
    1. Each method is that of ``AsyncCluster``, done when it returns: see there.
    2. In an asyncio test use ``aio``: the plain methods block the test's event loop.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Collection, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_client.sync import LoopThread
from tidegauge_client.topic_description import TopicDescription
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster, Target
from tidegauge_lab.local.ports import Reservations, is_free
from tidegauge_lab.pytest_plugin.aio import WAIT_SECONDS, AsyncCluster
from tidegauge_lab.pytest_plugin.conditions import NotSoError
from tidegauge_lab.pytest_plugin.plugin import TidegaugeOptions
from tidegauge_lab.switches import BrokerSwitches, Direction, Fault, Plane, Step, Until

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


class Cluster:
    """The cluster for plain tests; each method is that of ``AsyncCluster``, done when it returns.

    Attributes:
        local: the cluster's processes and folder.
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
        """Start a cluster in a new folder.

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
        """Take the cluster down; with ``keep`` its folder stays."""
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
        """The cluster's folder, as for ``--dir``."""
        return self.local.directory

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of all brokers, whether they run or not."""
        return self.aio.bootstrap_servers

    @property
    def kafka_bootstrap_servers(self) -> str:
        """``host:port,host:port`` of all brokers for Kafka clients."""
        return self.aio.kafka_bootstrap_servers

    @property
    def bootstrap_server_list(self) -> list[str]:
        """The same as a list of ``host:port``."""
        return self.aio.bootstrap_server_list

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers."""
        return [broker.id for broker in self.local.file.brokers]

    def create_topic(self, name: str = "topic", **options: Any) -> str:
        """Create a topic of a unique name; keywords as ``AsyncCluster.create_topic``."""
        return self._run(self.aio.create_topic(name, **options))

    def describe(self, topic: str) -> TopicDescription:
        """Metadata, settings, and what every replica says of itself."""
        return self._run(self.aio.describe(topic))

    def describe_text(self, topics: Collection[str]) -> str:
        """The same as ``tidegauge describe-topic --replicas`` prints it."""
        return self._run(self.aio.describe_text(topics))

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads now."""
        return self._run(self.aio.leader_of(topic, partition))

    def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas, in stored order."""
        return self._run(self.aio.isr_of(topic, partition))

    def high_watermark_of(self, topic: str, partition: int = 0) -> int | None:
        """The leader's high watermark; None while nobody leads."""
        return self._run(self.aio.high_watermark_of(topic, partition))

    def wait_leader(
        self,
        topic: str,
        partition: int = 0,
        leader: int | None = None,
        *,
        other_than: int | None = None,
        timeout: float = WAIT_SECONDS,
    ) -> int:
        """Wait until there is a leader, or this one, or another than that one; returns who leads."""
        wait = self.aio.wait_leader(topic, partition, leader, other_than=other_than, timeout=timeout)
        return self._run(wait)

    def wait_isr(self, topic: str, partition: int = 0, *, isr: Collection[int], timeout: float = WAIT_SECONDS) -> None:
        """Wait until exactly these are in sync, in any order."""
        self._run(self.aio.wait_isr(topic, partition, isr=isr, timeout=timeout))

    def wait_hw(self, topic: str, partition: int = 0, *, hw: int, timeout: float = WAIT_SECONDS) -> None:
        """Wait until the leader's high watermark is this or more."""
        self._run(self.aio.wait_hw(topic, partition, hw=hw, timeout=timeout))

    def wait_in_sync(self, topic: str | None = None, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until all replicas of a topic, or of all, are in their ISR."""
        self._run(self.aio.wait_in_sync(topic, timeout=timeout))

    def kill(self, *targets: Target) -> None:
        """SIGKILL to brokers, by id, or to ``ZOOKEEPER``."""
        self.local.kill(*targets)

    def stop(self, *targets: Target) -> None:
        """Controlled shutdown."""
        self.local.stop(*targets)

    def pause(self, *targets: Target) -> None:
        """SIGSTOP: alive and silent."""
        self.local.pause(*targets)

    def resume(self, *targets: Target) -> None:
        """SIGCONT."""
        self.local.resume(*targets)

    def start(self, *targets: Target, held: Sequence[tuple[str, int]] = (), after_power_cut: bool = False) -> None:
        """Start on the old data and port, held or after a power cut; done when it is registered and answers."""
        self._run(self.aio.start(*targets, held=held, after_power_cut=after_power_cut))

    def kill_leader(self, topic: str, partition: int = 0) -> int:
        """Kill whoever leads the partition; returns who that was."""
        return self._run(self.aio.kill_leader(topic, partition))

    def controller(self) -> int:
        """The active controller."""
        return self._run(self.aio.controller())

    def isolate(
        self,
        broker: int,
        ends: Plane | str | Sequence[int],
        direction: Direction | str = Direction.BOTH,
        **effect: Any,
    ) -> Fault:
        """Cut it off from ``brokers``, ``zookeeper``, ``clients``, or brokers by id; ``in``, ``out`` or ``both``.

        Instead of a cut: ``delay_ms``; or ``drop``, with ``seed``.
        """
        return self._run(self.aio.isolate(broker, ends, direction, **effect))

    def heal(self, *brokers: int) -> None:
        """End all cuts of these brokers, or of all that run."""
        self._run(self.aio.heal(*brokers))

    def inject_error(self, broker: int, rpc: str, error: ErrorCode | str = ErrorCode.NONE, **options: Any) -> Fault:
        """Make calls of an RPC fail at a broker; options are those of ``AsyncFaults.inject_error``."""
        return self._run(self.aio.inject_error(broker, rpc, error, **options))

    def inject_disk(self, broker: int, **options: Any) -> Fault:
        """Make a broker's disk slow or failing; options are those of ``AsyncFaults.inject_disk``."""
        return self._run(self.aio.inject_disk(broker, **options))

    def faults(self) -> list[BrokerSwitches]:
        """What is in force on the brokers that run and answer."""
        return self._run(self.aio.faults())

    def clear_faults(self, *brokers: int) -> int:
        """End all faults of these brokers, or of all that run, and release their followers; returns how many."""
        return self._run(self.aio.clear_faults(*brokers))

    def sync(self, broker: int, topic: str | None = None, partition: int = 0) -> None:
        """Flush a replica's log to the disk, or all of the broker: a power cut can't take it any more."""
        self._run(self.aio.sync(broker, topic, partition))

    def hold_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int]) -> None:
        """Hold the partition's followers on these brokers: they fetch only when stepped."""
        self._run(self.aio.hold_fetch(topic, partition, brokers=brokers))

    def release_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int]) -> None:
        """Let them fetch by themselves again."""
        self._run(self.aio.release_fetch(topic, partition, brokers=brokers))

    def step_fetch(self, topic: str, partition: int = 0, *, broker: int, until: Until | str = Until.ANSWER) -> Step:
        """One round of a held follower; what it changed."""
        return self._run(self.aio.step_fetch(topic, partition, broker=broker, until=until))

    def expire_session(self, broker: int) -> None:
        """End the broker's ZooKeeper session on the server, at once."""
        self._run(self.aio.expire_session(broker))

    def restore(self) -> None:
        """All processes up, nothing held, no fault in force; done before each test anyway."""
        self._run(self.aio.restore())
