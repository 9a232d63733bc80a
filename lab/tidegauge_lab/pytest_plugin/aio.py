"""The cluster as asyncio tests see it; ``tidegauge_cluster.aio``. Its faults are in ``aio_faults``.

Rules:
    1. A fault returns when its effect is true; a wait returns when what it waits for is true, or raises ``NotSoError``
       with the actual state. Nothing sleeps for a guessed time.
    2. Topics made here have unique names, so that tests do not meet.
    3. ``restore`` makes the cluster whole: all processes up, nothing held, no fault in force, whoever put it there, and
       no log directory offline by one.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any
from uuid import uuid4

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.admin_groups import GroupDescription
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_client.cli.describe import Filter, text_lines
from tidegauge_client.cli.wait import hw_condition, in_sync_condition, isr_condition, leader_condition
from tidegauge_client.event_conditions import TRUNCATION, EventCondition
from tidegauge_client.topic_description import TopicDescription, describe
from tidegauge_lab.group_conditions import GroupCondition
from tidegauge_lab.local.cluster import LocalCluster, Target
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.roles import TRANSACTION
from tidegauge_lab.pytest_plugin.aio_faults import AsyncFaults
from tidegauge_lab.pytest_plugin.conditions import (
    wait_until,
    wait_until_event,
    wait_until_group,
    wait_until_transaction,
)
from tidegauge_lab.transaction_conditions import TransactionCondition

WAIT_SECONDS = 30.0
DESCRIBE_TIMEOUT_MS = 5_000
PATIENCE_SECONDS = 10.0
__tracebackhide__ = True  # pytest: a report shows the test's own lines


class AsyncCluster(AsyncFaults):
    """The cluster for asyncio tests, whatever their event loops. ``timeout`` is in seconds everywhere."""

    def __init__(self, local: LocalCluster, topics_of_test: list[str]) -> None:
        super().__init__(local)
        self._topics_of_test = topics_of_test
        self._numbers = itertools.count(1)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of all brokers, whether they run or not."""
        return ",".join(self.bootstrap_server_list)

    @property
    def kafka_bootstrap_servers(self) -> str:
        """``host:port,host:port`` of all brokers for Kafka clients, whether they run or not."""
        return ",".join(self.local.kafka_bootstrap_servers)

    @property
    def bootstrap_server_list(self) -> list[str]:
        """The same as a list of ``host:port``; of a cluster with TLS it also says how to speak there."""
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
        async with Admin(self.bootstrap_server_list) as admin:
            await admin.create_topic(unique, configs=configs, **counts)
            await admin.wait_for_topic(unique)
        self._topics_of_test.append(unique)
        return unique

    async def describe(self, topic: str) -> TopicDescription:
        """Metadata, settings, and what every replica says of itself."""
        async with Admin(self.bootstrap_server_list, request_timeout_ms=DESCRIBE_TIMEOUT_MS) as admin:
            (found,), _ = await describe(admin, [topic], with_replicas=True)
        return found

    async def describe_text(self, topics: Collection[str]) -> str:
        """Return the topics as ``tidegauge describe-topic --replicas`` prints them."""
        async with Admin(self.bootstrap_server_list, request_timeout_ms=DESCRIBE_TIMEOUT_MS) as admin:
            found, _ = await describe(admin, topics, with_replicas=True)
        return "\n".join(
            line
            for topic in found
            for line in text_lines(topic, list(topic.info.partitions.values()), Filter(), replicas=True)
        )

    # State

    async def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads now.

        Raises:
            TidegaugeError: there is no leader; or no broker responds, on a slow machine, for ``PATIENCE_SECONDS``.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return await asyncio.to_thread(self.local.leader_of, topic, partition)
            except TidegaugeError as problem:
                if problem.code is not ErrorCode.BROKER_NOT_AVAILABLE or time.monotonic() >= deadline:
                    raise

    async def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """Return the in-sync replicas, in stored order."""
        return list((await self.describe(topic)).info.partitions[partition].isr)

    async def high_watermark_of(self, topic: str, partition: int = 0) -> int | None:
        """Return the leader's high watermark; None while there is no leader."""
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
            The id of the leader.

        Raises:
            NotSoError: not in time.
        """
        at = TopicPartition(topic, partition)
        condition = leader_condition(at, leader, other_than=other_than)
        await wait_until(self.bootstrap_server_list, condition, timeout)
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
        await wait_until(self.bootstrap_server_list, condition, timeout)

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
        await wait_until(self.bootstrap_server_list, hw_condition(TopicPartition(topic, partition), hw), timeout)

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
        await wait_until(self.bootstrap_server_list, in_sync_condition(topic), timeout)

    async def wait_event(
        self,
        kind: str,
        topic: str | None = None,
        partition: int = 0,
        *,
        broker: int | None = None,
        since_ms: int | None = None,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - as users of pytest expect it
    ) -> Mapping[str, Any]:
        """Wait until an event log holds an event; one that happened before counts.

        Args:
            kind: such as election; docs/events.md has all.
            topic: of a partition of this topic; None: of any partition, or of none.
            partition: its number.
            broker: the event is of this broker.
            since_ms: it is not older, in ms since 1970.
            timeout: the limit, in seconds.

        Returns:
            The event.

        Raises:
            NotSoError: not in time.
        """
        at = None if topic is None else TopicPartition(topic, partition)
        return await wait_until_event(self.local.logs, EventCondition(kind, at, broker, since_ms), timeout)

    async def wait_truncated(
        self,
        topic: str,
        partition: int = 0,
        *,
        broker: int | None = None,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - as users of pytest expect it
    ) -> Mapping[str, Any]:
        """Wait until a replica, or this broker's, has truncated its log; a truncation that happened before counts.

        Returns:
            The event.

        Raises:
            NotSoError: not in time.
        """
        condition = EventCondition(TRUNCATION, TopicPartition(topic, partition), broker, truncates=True)
        return await wait_until_event(self.local.logs, condition, timeout)

    # Consumer groups

    async def coordinator_of(self, group: str) -> int:
        """Return the broker that coordinates a consumer group now.

        Raises:
            TidegaugeError: there is none.
        """
        return await asyncio.to_thread(self.local.coordinator_of, group)

    async def coordinator_of_transaction(self, transactional_id: str) -> int:
        """Return the broker that coordinates a transactional id now.

        Raises:
            TidegaugeError: there is none.
        """
        return await asyncio.to_thread(self.local.coordinator_of, transactional_id, TRANSACTION)

    async def wait_group(
        self,
        group: str,
        *,
        state: str | None = None,
        members: int | None = None,
        generation: int | None = None,
        lag: int | None = None,
        assignment: Mapping[str, Collection[tuple[str, int]]] | None = None,
        committed: Mapping[tuple[str, int], int] | None = None,
        epochs: Mapping[str, int] | None = None,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - as users of pytest expect it
    ) -> GroupDescription:
        """Wait until all of this is true of a consumer group at once; an omitted argument allows anything.

        Args:
            group: its id.
            state: such as Stable.
            members: how many.
            generation: this one or a later one; of a consumer group (KIP-848) its epoch.
            lag: at most so many records that it has not read.
            assignment: the partitions, as (topic, partition), of members by client.id or group.instance.id.
            committed: offsets by (topic, partition).
            epochs: member epochs of a consumer group, these or later ones, by client.id or group.instance.id.
            timeout: the limit, in seconds.

        Returns:
            The group as it is then.

        Raises:
            NotSoError: not in time.
            ValueError: there is no such state.
        """
        of_members = {name: {TopicPartition(*at) for at in found} for name, found in (assignment or {}).items()}
        offsets = {TopicPartition(*at): offset for at, offset in (committed or {}).items()}
        condition = GroupCondition(state, members, generation, lag, of_members or None, offsets or None, epochs=epochs)
        return await wait_until_group(self.bootstrap_server_list, group, condition, timeout)

    async def wait_transaction(
        self,
        transactional_id: str,
        *,
        state: str | None = None,
        epoch: int | None = None,
        partitions: Collection[tuple[str, int]] | None = None,
        timeout: float = WAIT_SECONDS,  # noqa: ASYNC109 - as users of pytest expect it
    ) -> TransactionDescription:
        """Wait until all of this is true of a transactional id at once; an omitted argument allows anything.

        Args:
            transactional_id: the id.
            state: such as Ongoing or CompleteCommit.
            epoch: its producer epoch, this one or a later one.
            partitions: as (topic, partition), the transaction's that lack a marker.
            timeout: the limit, in seconds.

        Returns:
            The transactional id as it is then.

        Raises:
            NotSoError: not in time.
            ValueError: there is no such state.
        """
        named = None if partitions is None else [TopicPartition(*at) for at in partitions]
        condition = TransactionCondition(state, epoch, named)
        return await wait_until_transaction(self.bootstrap_server_list, transactional_id, condition, timeout)

    # Processes

    async def kill(self, *targets: Target, expire: bool = False) -> None:
        """SIGKILL to brokers, by id, or to ``ZOOKEEPER``.

        Args:
            targets: broker ids, ``ZOOKEEPER``.
            expire: end the brokers' ZooKeeper sessions too, so that other leaders are elected at once.
        """
        await asyncio.to_thread(self.local.kill, *targets, expire=expire)

    async def stop(self, *targets: Target) -> None:
        """Stop brokers by a controlled shutdown."""
        await asyncio.to_thread(self.local.stop, *targets)

    async def pause(self, *targets: Target, expire: bool = False) -> None:
        """SIGSTOP: alive and silent.

        Args:
            targets: broker ids, ``ZOOKEEPER``.
            expire: end the brokers' ZooKeeper sessions too, as a pause that outlasts them would.
        """
        await asyncio.to_thread(self.local.pause, *targets, expire=expire)

    async def resume(self, *targets: Target) -> None:
        """SIGCONT."""
        await asyncio.to_thread(self.local.resume, *targets)

    async def start(
        self, *targets: Target, held: Sequence[tuple[str, int]] = (), after_power_cut: bool = False
    ) -> None:
        """Start on the old data and port; done when it is registered and responds.

        Args:
            targets: broker ids, ``ZOOKEEPER``.
            held: partitions, as ``(topic, 0)``, whose followers there are held from the start.
            after_power_cut: what a broker never flushed is lost first.
        """
        partitions = [TopicPartition(*one) for one in held]
        await asyncio.to_thread(self.local.start, *targets, held=partitions, after_power_cut=after_power_cut)

    async def kill_leader(self, topic: str, partition: int = 0, *, expire: bool = False) -> int:
        """Kill the leader of the partition; return its id.

        Args:
            topic: its name.
            partition: of the topic.
            expire: end the leader's ZooKeeper session too, so that another leader is elected at once.
        """
        leader = await self.leader_of(topic, partition)
        await self.kill(leader, expire=expire)
        return leader

    async def controller(self) -> int:
        """Return the active controller.

        Raises:
            TidegaugeError: there is none.
        """
        node = (await asyncio.to_thread(self.local.status))["controller"]["id"]
        if node is None:
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "there is no active controller at the moment")
        return int(node)

    # Whole again

    async def restore(self) -> None:
        """All processes up, nothing held, no fault in force, no disk failed (rule 3). Quick if nothing was done.

        Raises:
            TidegaugeError: a process does not start, or a broker does not end its faults.
            TimeLimitError: the cluster is not ready in time.
        """
        targets: list[Target] = [*self.local.processes()]
        paused = [target for target in targets if self.local.state_of(target) is ProcessState.PAUSED]
        if paused:
            await self.resume(*paused)
        was_switched = await self._switch_off()
        await self._end_with_failed_disks()
        if paused or any(self.local.state_of(target) is not ProcessState.UP for target in targets):
            await asyncio.to_thread(self.local.up)
        elif was_switched:
            # A broker that was partitioned has to register again.
            await asyncio.to_thread(self.local.wait_ready)
