"""The cluster as tests see it: ``Cluster`` for plain tests, ``Cluster.aio`` for asyncio ones, with the same methods.

Rules:
    1. A fault returns when its effect is true; a wait returns when what it waits for is true, or raises ``NotSoError``
       with what is true instead. Nothing sleeps for a guessed time.
    2. Topics made here have unique names, so that tests do not meet.
    3. ``restore`` makes the cluster whole: all processes up, nothing held, no fault in force.
    4. In an asyncio test use ``aio``: the plain methods block the test's event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.cli.describe import Filter, text_lines
from tidegauge_client.cli.wait import hw_condition, in_sync_condition, isr_condition, leader_condition
from tidegauge_client.sync import LoopThread
from tidegauge_client.topic_description import TopicDescription, describe
from tidegauge_lab.cluster import ZOOKEEPER, LocalCluster, Target
from tidegauge_lab.ports import is_free
from tidegauge_lab.processes import ProcessState
from tidegauge_lab.pytest_plugin.conditions import NotSoError, new_leader_condition, wait_until
from tidegauge_lab.pytest_plugin.plugin import TidegaugeOptions
from tidegauge_lab.switches import Direction, Plane, Step, Switches, Until

WAIT_SECONDS = 30.0
DESCRIBE_TIMEOUT_MS = 5_000
PATIENCE_SECONDS = 10.0
FIRST_PORT = 20_000
PORTS = 6_000
PORTS_APART = 16
MOST_ATTEMPTS = 4
PORT_IS_TAKEN = ("is in use by", "can't be bound")

__all__ = ["ZOOKEEPER", "AsyncCluster", "Cluster", "NotSoError"]


def free_base_ports(count: int) -> Iterator[int]:
    """Where so many free ports in a row begin.

    Below the ports of outgoing connections, and away from 19092, where users' clusters lie: a broker of theirs may be
    down at the moment, and comes back to its port.
    """
    for base in itertools.count(FIRST_PORT + os.getpid() * PORTS_APART % PORTS, PORTS_APART):
        if base + count > FIRST_PORT + 2 * PORTS:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"there are no {count} free ports in a row")
        if all(is_free(port) for port in range(base, base + count)):
            yield base


class AsyncCluster:
    """The cluster for asyncio tests, whatever their event loops. ``timeout`` is in seconds everywhere."""

    def __init__(self, local: LocalCluster, topics_of_test: list[str]) -> None:
        self.local = local
        self._topics_of_test = topics_of_test
        self._numbers = itertools.count(1)
        self._has_switched = False

    @property
    def bootstrap_servers(self) -> list[str]:
        """``host:port`` of all brokers, whether they run or not."""
        return self.local.bootstrap_servers

    # Topics

    async def create_topic(
        self,
        name: str = "topic",
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        assignment: Sequence[Sequence[int]] = (),
        configs: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic and wait until every broker knows its leaders.

        Args:
            name: how its name begins; what makes it unique is added.
            partitions: 1 if nothing else is said.
            replication_factor: 3 if nothing else is said, or as many as there are brokers.
            assignment: instead of both, the replicas of each partition.
            configs: the topic's settings.

        Returns:
            The whole name.
        """
        unique = f"{name}-{next(self._numbers)}-{uuid4().hex[:6]}"
        counts: dict[str, Any] = {"assignment": assignment}
        if not assignment:
            counts = {
                "partitions": partitions or 1,
                "replication_factor": replication_factor or min(3, len(self.local.file.brokers)),
            }
        async with Admin(self.bootstrap_servers) as admin:
            await admin.create_topic(unique, configs=configs, **counts)
            await admin.wait_for_topic(unique)
        self._topics_of_test.append(unique)
        return unique

    async def describe(self, topic: str) -> TopicDescription:
        """Metadata, settings, and what every replica says of itself."""
        async with Admin(self.bootstrap_servers, request_timeout_ms=DESCRIBE_TIMEOUT_MS) as admin:
            (found,), _ = await describe(admin, [topic], with_replicas=True)
        return found

    async def describe_text(self, topics: Collection[str]) -> str:
        """The same as ``tidegauge describe-topic --replicas`` prints it."""
        async with Admin(self.bootstrap_servers, request_timeout_ms=DESCRIBE_TIMEOUT_MS) as admin:
            found, _ = await describe(admin, topics, with_replicas=True)
        return "\n".join(
            line
            for topic in found
            for line in text_lines(topic, list(topic.info.partitions.values()), Filter(), replicas=True)
        )

    # State

    async def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads now.

        Raises:
            TidegaugeError: nobody does; or no broker answers, on a slow machine, for ``PATIENCE_SECONDS``.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(self.local.leader_of, topic, partition)
            except TidegaugeError as problem:
                if problem.code is not ErrorCode.BROKER_NOT_AVAILABLE or time.monotonic() >= deadline:
                    raise

    async def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas, in stored order."""
        return list((await self.describe(topic)).info.partitions[partition].isr)

    async def high_watermark_of(self, topic: str, partition: int = 0) -> int | None:
        """The leader's high watermark; None while nobody leads."""
        described = await self.describe(topic)
        return described.high_watermark(described.info.partitions[partition])

    async def wait_leader(
        self,
        topic: str,
        partition: int = 0,
        leader: int | None = None,
        *,
        other_than: int | None = None,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - as users of pytest expect it
    ) -> int:
        """Wait until there is a leader, or this one, or another than that one.

        Returns:
            Who leads.

        Raises:
            NotSoError: not in time.
        """
        at = TopicPartition(topic, partition)
        condition = leader_condition(at, leader) if other_than is None else new_leader_condition(at, other_than)
        await wait_until(self.bootstrap_servers, condition, timeout)
        return await self.leader_of(topic, partition)

    async def wait_isr(
        self,
        topic: str,
        partition: int = 0,
        *,
        isr: Collection[int],
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - as users of pytest expect it
    ) -> None:
        """Wait until exactly these are in sync, in any order.

        Raises:
            NotSoError: not in time.
        """
        condition = isr_condition(TopicPartition(topic, partition), sorted(isr))
        await wait_until(self.bootstrap_servers, condition, timeout)

    async def wait_hw(
        self,
        topic: str,
        partition: int = 0,
        *,
        hw: int,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - as users of pytest expect it
    ) -> None:
        """Wait until the leader's high watermark is this or more.

        Raises:
            NotSoError: not in time.
        """
        await wait_until(self.bootstrap_servers, hw_condition(TopicPartition(topic, partition), hw), timeout)

    async def wait_in_sync(
        self,
        topic: str | None = None,
        *,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - as users of pytest expect it
    ) -> None:
        """Wait until all replicas of a topic, or of all, are in their ISR.

        Raises:
            NotSoError: not in time.
        """
        await wait_until(self.bootstrap_servers, in_sync_condition(topic), timeout)

    # Processes

    async def kill(self, *targets: Target) -> None:
        """SIGKILL to brokers, by id, or to ``ZOOKEEPER``."""
        await asyncio.to_thread(self.local.kill, *targets)

    async def stop(self, *targets: Target) -> None:
        """Controlled shutdown."""
        await asyncio.to_thread(self.local.stop, *targets)

    async def pause(self, *targets: Target) -> None:
        """SIGSTOP: alive and silent."""
        await asyncio.to_thread(self.local.pause, *targets)

    async def resume(self, *targets: Target) -> None:
        """SIGCONT."""
        await asyncio.to_thread(self.local.resume, *targets)

    async def start(self, *targets: Target) -> None:
        """Start on the old data and port; done when it is registered and answers."""
        await asyncio.to_thread(self.local.start, *targets)

    async def kill_leader(self, topic: str, partition: int = 0) -> int:
        """Kill whoever leads the partition; returns who that was."""
        leader = await self.leader_of(topic, partition)
        await self.kill(leader)
        return leader

    async def controller(self) -> int:
        """The active controller.

        Raises:
            TidegaugeError: there is none.
        """
        broker = (await asyncio.to_thread(self.local.status))["controller"]["broker"]
        if broker is None:
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "there is no active controller at the moment")
        return int(broker)

    # Faults inside brokers

    async def isolate(
        self, broker: int, ends: Plane | str | Sequence[int], direction: Direction | str = Direction.BOTH
    ) -> None:
        """Cut it off from ``brokers``, ``zookeeper``, ``clients``, or brokers by id; ``in``, ``out`` or ``both``."""
        self._has_switched = True
        other = Plane(ends) if isinstance(ends, str) else ends
        async with Switches.of_cluster(self.local.file) as switches:
            await switches.isolate(broker, other, Direction(direction))

    async def heal(self, *brokers: int) -> None:
        """End all cuts of these brokers, or of all that run."""
        async with Switches.of_cluster(self.local.file) as switches:
            for broker in brokers or self._up():
                await switches.heal(broker)

    async def hold_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int]) -> None:
        """Hold the partition's followers on these brokers: they fetch only when stepped."""
        self._has_switched = True
        async with Switches.of_cluster(self.local.file) as switches:
            await switches.hold_fetch(TopicPartition(topic, partition), brokers)

    async def release_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int]) -> None:
        """Let them fetch by themselves again."""
        async with Switches.of_cluster(self.local.file) as switches:
            await switches.release_fetch(TopicPartition(topic, partition), brokers)

    async def step_fetch(
        self, topic: str, partition: int = 0, *, broker: int, until: Until | str = Until.ANSWER
    ) -> Step:
        """One round of a held follower; what it changed."""
        async with Switches.of_cluster(self.local.file) as switches:
            return await switches.step_fetch(TopicPartition(topic, partition), broker, until=Until(until))

    async def expire_session(self, broker: int) -> None:
        """End the broker's ZooKeeper session on the server, at once."""
        self._has_switched = True
        async with Switches.of_cluster(self.local.file) as switches:
            await switches.expire_session(broker)

    # Whole again

    def _up(self) -> list[int]:
        return [broker.id for broker in self.local.file.brokers if self.local.state_of(broker.id) is ProcessState.UP]

    async def restore(self) -> None:
        """All processes up, nothing held, no fault in force (rule 3). Quick where nothing was done.

        Raises:
            TidegaugeError: a process does not start.
            TimeLimitError: the cluster is not ready in time.
        """
        targets: list[Target] = [broker.id for broker in self.local.file.brokers]
        if self.local.file.zookeeper_managed:
            targets.append(ZOOKEEPER)
        states = {target: self.local.state_of(target) for target in targets}
        paused = [target for target, state in states.items() if state is ProcessState.PAUSED]
        if paused:
            await self.resume(*paused)
        was_switched, self._has_switched = self._has_switched, False
        if was_switched:
            async with Switches.of_cluster(self.local.file) as switches:
                for broker in self._up():
                    # One without lab.enable=true has nothing to clear.
                    with contextlib.suppress(TidegaugeError):
                        await switches.clear(broker, holds=True)
        if any(state is not ProcessState.UP for state in states.values()):
            await asyncio.to_thread(self.local.up)
        elif was_switched:
            # One that was cut off has to register again.
            await asyncio.to_thread(self.local.wait_ready)


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

    @property
    def directory(self) -> Path:
        """The cluster's folder, as for ``--dir``."""
        return self.local.directory

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of all brokers, whether they run or not."""
        return ",".join(self.local.bootstrap_servers)

    @property
    def brokers(self) -> list[int]:
        """The ids of all brokers."""
        return [broker.id for broker in self.local.file.brokers]

    def create_topic(self, name: str = "topic", **options: Any) -> str:
        """Create a topic of a unique name; keywords as ``AsyncCluster.create_topic``."""
        return self._loop.run(self.aio.create_topic(name, **options))

    def describe(self, topic: str) -> TopicDescription:
        """Metadata, settings, and what every replica says of itself."""
        return self._loop.run(self.aio.describe(topic))

    def describe_text(self, topics: Collection[str]) -> str:
        """The same as ``tidegauge describe-topic --replicas`` prints it."""
        return self._loop.run(self.aio.describe_text(topics))

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """The broker that leads now."""
        return self._loop.run(self.aio.leader_of(topic, partition))

    def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """The in-sync replicas, in stored order."""
        return self._loop.run(self.aio.isr_of(topic, partition))

    def high_watermark_of(self, topic: str, partition: int = 0) -> int | None:
        """The leader's high watermark; None while nobody leads."""
        return self._loop.run(self.aio.high_watermark_of(topic, partition))

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
        return self._loop.run(wait)

    def wait_isr(self, topic: str, partition: int = 0, *, isr: Collection[int], timeout: float = WAIT_SECONDS) -> None:
        """Wait until exactly these are in sync, in any order."""
        self._loop.run(self.aio.wait_isr(topic, partition, isr=isr, timeout=timeout))

    def wait_hw(self, topic: str, partition: int = 0, *, hw: int, timeout: float = WAIT_SECONDS) -> None:
        """Wait until the leader's high watermark is this or more."""
        self._loop.run(self.aio.wait_hw(topic, partition, hw=hw, timeout=timeout))

    def wait_in_sync(self, topic: str | None = None, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until all replicas of a topic, or of all, are in their ISR."""
        self._loop.run(self.aio.wait_in_sync(topic, timeout=timeout))

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

    def start(self, *targets: Target) -> None:
        """Start on the old data and port; done when it is registered and answers."""
        self.local.start(*targets)

    def kill_leader(self, topic: str, partition: int = 0) -> int:
        """Kill whoever leads the partition; returns who that was."""
        return self._loop.run(self.aio.kill_leader(topic, partition))

    def controller(self) -> int:
        """The active controller."""
        return self._loop.run(self.aio.controller())

    def isolate(
        self, broker: int, ends: Plane | str | Sequence[int], direction: Direction | str = Direction.BOTH
    ) -> None:
        """Cut it off from ``brokers``, ``zookeeper``, ``clients``, or brokers by id; ``in``, ``out`` or ``both``."""
        self._loop.run(self.aio.isolate(broker, ends, direction))

    def heal(self, *brokers: int) -> None:
        """End all cuts of these brokers, or of all that run."""
        self._loop.run(self.aio.heal(*brokers))

    def hold_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int]) -> None:
        """Hold the partition's followers on these brokers: they fetch only when stepped."""
        self._loop.run(self.aio.hold_fetch(topic, partition, brokers=brokers))

    def release_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int]) -> None:
        """Let them fetch by themselves again."""
        self._loop.run(self.aio.release_fetch(topic, partition, brokers=brokers))

    def step_fetch(self, topic: str, partition: int = 0, *, broker: int, until: Until | str = Until.ANSWER) -> Step:
        """One round of a held follower; what it changed."""
        return self._loop.run(self.aio.step_fetch(topic, partition, broker=broker, until=until))

    def expire_session(self, broker: int) -> None:
        """End the broker's ZooKeeper session on the server, at once."""
        self._loop.run(self.aio.expire_session(broker))

    def restore(self) -> None:
        """All processes up, nothing held, no fault in force; done before each test anyway."""
        self._loop.run(self.aio.restore())
