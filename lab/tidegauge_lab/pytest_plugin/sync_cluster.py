"""``AsyncCluster`` for plain tests: each method is done when it returns.

Made by tools/generate-mirrors.py from ``AsyncCluster``; change them instead.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import Direction, Plane, WantedFault
from tidegauge_client.admin_groups import GroupDescription
from tidegauge_client.admin_transactions import TransactionDescription
from tidegauge_client.topic_description import TopicDescription
from tidegauge_lab.local.cluster import Target
from tidegauge_lab.pytest_plugin.aio import WAIT_SECONDS, AsyncCluster
from tidegauge_lab.pytest_plugin.aio_faults import HELD_SECONDS
from tidegauge_lab.switches import BrokerSwitches, Fault, Step, Until

__tracebackhide__ = True  # pytest: a report shows the test's own lines
Result = TypeVar("Result")


class SyncClusterBase(ABC):
    """What the mirror needs."""

    @property
    @abstractmethod
    def aio(self) -> AsyncCluster:
        """The same cluster for asyncio tests."""

    @abstractmethod
    def _run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the cluster's own loop."""


class SyncCluster(SyncClusterBase):
    """The methods of ``AsyncCluster`` without ``await``."""

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of all brokers, whether they run or not."""
        return self.aio.bootstrap_servers

    @property
    def kafka_bootstrap_servers(self) -> str:
        """``host:port,host:port`` of all brokers for Kafka clients, whether they run or not."""
        return self.aio.kafka_bootstrap_servers

    @property
    def bootstrap_server_list(self) -> list[str]:
        """The same as a list of ``host:port``; of a cluster with TLS it also says how to speak there."""
        return self.aio.bootstrap_server_list

    def create_topic(
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
        return self._run(
            self.aio.create_topic(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                assignment=assignment,
                configs=configs,
            )
        )

    def describe(self, topic: str) -> TopicDescription:
        """Metadata, settings, and what every replica says of itself."""
        return self._run(self.aio.describe(topic))

    def describe_text(self, topics: Collection[str]) -> str:
        """Return the topics as ``tidegauge describe-topic --replicas`` prints them."""
        return self._run(self.aio.describe_text(topics))

    def leader_of(self, topic: str, partition: int = 0) -> int:
        """Return the broker that leads now.

        Raises:
            TidegaugeError: there is no leader; or no broker responds, on a slow machine, for ``PATIENCE_SECONDS``.
        """
        return self._run(self.aio.leader_of(topic, partition))

    def isr_of(self, topic: str, partition: int = 0) -> list[int]:
        """Return the in-sync replicas, in stored order."""
        return self._run(self.aio.isr_of(topic, partition))

    def high_watermark_of(self, topic: str, partition: int = 0) -> int | None:
        """Return the leader's high watermark; None while there is no leader."""
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
        """Wait until there is a leader, or this one, or another than that one.

        Returns:
            The id of the leader.

        Raises:
            NotSoError: not in time.
        """
        return self._run(self.aio.wait_leader(topic, partition, leader, other_than=other_than, timeout=timeout))

    def wait_isr(self, topic: str, partition: int = 0, *, isr: Collection[int], timeout: float = WAIT_SECONDS) -> None:
        """Wait until exactly these are in sync, in any order.

        Raises:
            NotSoError: not in time.
        """
        self._run(self.aio.wait_isr(topic, partition, isr=isr, timeout=timeout))

    def wait_hw(self, topic: str, partition: int = 0, *, hw: int, timeout: float = WAIT_SECONDS) -> None:
        """Wait until the leader's high watermark is this or more.

        Raises:
            NotSoError: not in time.
        """
        self._run(self.aio.wait_hw(topic, partition, hw=hw, timeout=timeout))

    def wait_in_sync(self, topic: str | None = None, *, timeout: float = WAIT_SECONDS) -> None:
        """Wait until all replicas of a topic, or of all, are in their ISR.

        Raises:
            NotSoError: not in time.
        """
        self._run(self.aio.wait_in_sync(topic, timeout=timeout))

    def wait_event(
        self,
        kind: str,
        topic: str | None = None,
        partition: int = 0,
        *,
        broker: int | None = None,
        since_ms: int | None = None,
        timeout: float = WAIT_SECONDS,
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
        return self._run(self.aio.wait_event(kind, topic, partition, broker=broker, since_ms=since_ms, timeout=timeout))

    def wait_truncated(
        self, topic: str, partition: int = 0, *, broker: int | None = None, timeout: float = WAIT_SECONDS
    ) -> Mapping[str, Any]:
        """Wait until a replica, or this broker's, has truncated its log; a truncation that happened before counts.

        Returns:
            The event.

        Raises:
            NotSoError: not in time.
        """
        return self._run(self.aio.wait_truncated(topic, partition, broker=broker, timeout=timeout))

    def coordinator_of(self, group: str) -> int:
        """Return the broker that coordinates a consumer group now.

        Raises:
            TidegaugeError: there is none.
        """
        return self._run(self.aio.coordinator_of(group))

    def coordinator_of_transaction(self, transactional_id: str) -> int:
        """Return the broker that coordinates a transactional id now.

        Raises:
            TidegaugeError: there is none.
        """
        return self._run(self.aio.coordinator_of_transaction(transactional_id))

    def wait_group(
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
        timeout: float = WAIT_SECONDS,
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
        return self._run(
            self.aio.wait_group(
                group,
                state=state,
                members=members,
                generation=generation,
                lag=lag,
                assignment=assignment,
                committed=committed,
                epochs=epochs,
                timeout=timeout,
            )
        )

    def wait_transaction(
        self,
        transactional_id: str,
        *,
        state: str | None = None,
        epoch: int | None = None,
        partitions: Collection[tuple[str, int]] | None = None,
        timeout: float = WAIT_SECONDS,
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
        return self._run(
            self.aio.wait_transaction(
                transactional_id, state=state, epoch=epoch, partitions=partitions, timeout=timeout
            )
        )

    def kill(self, *targets: Target, expire: bool = False) -> None:
        """SIGKILL to brokers, by id, or to ``ZOOKEEPER``.

        Args:
            targets: broker ids, ``ZOOKEEPER``.
            expire: end the brokers' ZooKeeper sessions too, so that other leaders are elected at once.
        """
        self._run(self.aio.kill(*targets, expire=expire))

    def stop(self, *targets: Target) -> None:
        """Stop brokers by a controlled shutdown."""
        self._run(self.aio.stop(*targets))

    def pause(self, *targets: Target, expire: bool = False) -> None:
        """SIGSTOP: alive and silent.

        Args:
            targets: broker ids, ``ZOOKEEPER``.
            expire: end the brokers' ZooKeeper sessions too, as a pause that outlasts them would.
        """
        self._run(self.aio.pause(*targets, expire=expire))

    def resume(self, *targets: Target) -> None:
        """SIGCONT."""
        self._run(self.aio.resume(*targets))

    def start(self, *targets: Target, held: Sequence[tuple[str, int]] = (), after_power_cut: bool = False) -> None:
        """Start on the old data and port; done when it is registered and responds.

        Args:
            targets: broker ids, ``ZOOKEEPER``.
            held: partitions, as ``(topic, 0)``, whose followers there are held from the start.
            after_power_cut: what a broker never flushed is lost first.
        """
        self._run(self.aio.start(*targets, held=held, after_power_cut=after_power_cut))

    def kill_leader(self, topic: str, partition: int = 0, *, expire: bool = False) -> int:
        """Kill the leader of the partition; return its id.

        Args:
            topic: its name.
            partition: of the topic.
            expire: end the leader's ZooKeeper session too, so that another leader is elected at once.
        """
        return self._run(self.aio.kill_leader(topic, partition, expire=expire))

    def controller(self) -> int:
        """Return the active controller.

        Raises:
            TidegaugeError: there is none.
        """
        return self._run(self.aio.controller())

    def restore(self) -> None:
        """All processes up, nothing held, no fault in force, no disk failed (rule 3). Quick if nothing was done.

        Raises:
            TidegaugeError: a process does not start, or a broker does not end its faults.
            TimeLimitError: the cluster is not ready in time.
        """
        self._run(self.aio.restore())

    def set_fault(self, broker: int | str, wanted: WantedFault) -> Fault:
        """Put a declared fault in force; every method of ``FaultCalls`` comes here.

        Raises:
            TidegaugeError: INVALID_REQUEST, the broker refuses it; BROKER_NOT_AVAILABLE.
        """
        return self._run(self.aio.set_fault(broker, wanted))

    def heal(self, *brokers: int | str) -> None:
        """End all network partitions, delays and losses of these brokers, or of all that run."""
        self._run(self.aio.heal(*brokers))

    def faults(self) -> list[BrokerSwitches]:
        """Return the active faults of the brokers that run and respond."""
        return self._run(self.aio.faults())

    def clear_faults(self, *brokers: int | str) -> int:
        """End all faults of these brokers, or of all that run, and release their followers; returns how many."""
        return self._run(self.aio.clear_faults(*brokers))

    def wait_held(self, broker: int | str, count: int = 1, *, timeout: float = HELD_SECONDS) -> int:
        """Wait until the broker's ``hold_requests`` keep ``count`` requests or more; return the number that they keep.

        Raises:
            TidegaugeError: REQUEST_TIMED_OUT, with how many are held instead.
        """
        return self._run(self.aio.wait_held(broker, count, timeout=timeout))

    def release_requests(self, broker: int | str, which: str = "all") -> int:
        """End the broker's ``hold_requests`` of all, requests or responses; return how many that lets go on."""
        return self._run(self.aio.release_requests(broker, which))

    def hold_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int | str]) -> None:
        """Hold the partition's followers on these brokers: they fetch only when stepped."""
        self._run(self.aio.hold_fetch(topic, partition, brokers=brokers))

    def release_fetch(self, topic: str, partition: int = 0, *, brokers: Sequence[int | str]) -> None:
        """Let them fetch by themselves again."""
        self._run(self.aio.release_fetch(topic, partition, brokers=brokers))

    def step_fetch(
        self, topic: str, partition: int = 0, *, broker: int | str, until: Until | str = Until.RESPONSE
    ) -> Step:
        """One round of a held follower; what it changed."""
        return self._run(self.aio.step_fetch(topic, partition, broker=broker, until=until))

    def expire_session(self, broker: int | str) -> None:
        """End the broker's ZooKeeper session on the server, at once; the broker may be up, paused or down."""
        self._run(self.aio.expire_session(broker))

    def sync(self, broker: int | str, topic: str | None = None, partition: int = 0) -> None:
        """Flush a replica's log to the disk, or all of the broker: a power loss can't take it any more."""
        self._run(self.aio.sync(broker, topic, partition))

    def isolate(
        self,
        broker: int | str,
        ends: Plane | str | Sequence[int],
        direction: Direction | str = "both",
        *,
        delay_ms: int | None = None,
        drop: float | None = None,
        seed: int = 0,
    ) -> Fault:
        """Partition a broker from brokers, ZooKeeper, clients or controllers, one way or both; delay or drop calls.

        Args:
            broker: Its id, or the word of a role.
            ends: The other end: all other brokers, ZooKeeper, clients, the controllers of KRaft mode, or nodes by id.
            direction: in: calls that arrive at the broker; out: calls it makes; responses belong to their calls.
            delay_ms: Delay each message instead, in milliseconds.
            drop: Drop each call with this probability instead.
            seed: Seed of the random numbers.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        return self._run(self.aio.isolate(broker, ends, direction, delay_ms=delay_ms, drop=drop, seed=seed))

    def inject_error(
        self,
        broker: int | str,
        rpc: str,
        error: ErrorCode | str = "NONE",
        *,
        grpc_status: str = "",
        after_effect: bool = False,
        nth: int = 1,
        times: int = 1,
        probability: float = 1.0,
        seed: int = 0,
        caller: str = "",
        client_id: str = "",
        topic: str = "",
        partition_index: int | None = None,
        group: str = "",
    ) -> Fault:
        """Make calls of an RPC fail at a broker.

        Args:
            broker: Its id, or the word of a role.
            rpc: API, by Kafka's name or its RPC's: Produce, JoinGroup, ReplicaFetch, LeaderAndIsr.
            error: Error of Kafka's protocol in the response: NOT_ENOUGH_REPLICAS.
            grpc_status: Or the gRPC status that ends the call: UNAVAILABLE.
            after_effect: The call takes effect, and only its response is replaced.
            nth: Ordinal of the first call affected.
            times: Number of calls affected; 0: no limit.
            probability: Probability with which each of them fails.
            seed: Seed of the random numbers.
            caller: Only calls of this sender: clients, brokers, or a broker's id.
            client_id: Only calls of clients with this client.id.
            topic: Only calls that name this topic.
            partition_index: Only calls that name this partition of the topic.
            group: Only calls that name this group or transactional id.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        return self._run(
            self.aio.inject_error(
                broker,
                rpc,
                error,
                grpc_status=grpc_status,
                after_effect=after_effect,
                nth=nth,
                times=times,
                probability=probability,
                seed=seed,
                caller=caller,
                client_id=client_id,
                topic=topic,
                partition_index=partition_index,
                group=group,
            )
        )

    def hold_requests(
        self,
        broker: int | str,
        rpc: str,
        *,
        after_effect: bool = False,
        outlives_connection: bool = False,
        nth: int = 1,
        times: int = 0,
        caller: str = "",
        client_id: str = "",
        topic: str = "",
        partition_index: int | None = None,
        group: str = "",
    ) -> Fault:
        """Hold requests of an API at a broker, or their responses, until they are released.

        Args:
            broker: Its id, or the word of a role.
            rpc: API, by Kafka's name or its RPC's: Produce, JoinGroup, ReplicaFetch, LeaderAndIsr.
            after_effect: The request takes effect, and its response is held.
            outlives_connection: The request waits on when its client disconnects, and takes effect late, at the
                release.
            nth: Ordinal of the first call affected.
            times: Number of calls affected; 0: no limit.
            caller: Only calls of this sender: clients, brokers, or a broker's id.
            client_id: Only calls of clients with this client.id.
            topic: Only calls that name this topic.
            partition_index: Only calls that name this partition of the topic.
            group: Only calls that name this group or transactional id.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        return self._run(
            self.aio.hold_requests(
                broker,
                rpc,
                after_effect=after_effect,
                outlives_connection=outlives_connection,
                nth=nth,
                times=times,
                caller=caller,
                client_id=client_id,
                topic=topic,
                partition_index=partition_index,
                group=group,
            )
        )

    def inject_disk(
        self,
        broker: int | str,
        *,
        delay_ms: int | None = None,
        errno: str = "",
        operation: str = "",
        path: str = "",
        nth: int = 1,
        times: int = 0,
    ) -> Fault:
        """Make a broker's disk slow, or make it fail.

        Args:
            broker: Its id, or the word of a role.
            delay_ms: Additional duration of each operation, in milliseconds.
            errno: Or the error of the operating system with which each fails: EIO, ENOSPC.
            operation: Only these operations; default: all.
            path: Only files whose path contains this text.
            nth: Ordinal of the first operation affected.
            times: Number of operations affected; 0: no limit.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        return self._run(
            self.aio.inject_disk(
                broker, delay_ms=delay_ms, errno=errno, operation=operation, path=path, nth=nth, times=times
            )
        )

    def skew_clock(
        self, broker: int | str, *, offset_ms: int | None = None, set_to: str = "", frozen: bool = False
    ) -> Fault:
        """Set a broker's wall clock ahead or back, or stop it.

        Args:
            broker: Its id, or the word of a role.
            offset_ms: How far the clock is ahead of the machine's; a negative number: behind it, in milliseconds.
            set_to: Or the time that it shows at first: 2030-01-01T00:00:00Z.
            frozen: The clock stops at that time, or at the present one.

        Returns:
            The fault as it is in force.

        Raises:
            TidegaugeError: INVALID_REQUEST, there is no such fault; BROKER_NOT_AVAILABLE.
        """
        return self._run(self.aio.skew_clock(broker, offset_ms=offset_ms, set_to=set_to, frozen=frozen))
