"""Where the page's facts come from: a cluster of the lab, or brokers that are only looked at.

Both are asked again and again by ``Hub``; whatever fails is a fact too, never an exception. The lab's cluster is read
from its directory each time, so the page follows ``down``, ``up --brokers 5`` and ``down --purge``.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from tidegauge.errors import TidegaugeError
from tidegauge.event_log import broker_of
from tidegauge.v1 import lab_pb2, metadata_pb2
from tidegauge_client.admin import Admin
from tidegauge_client.bootstrap import parse_bootstrap
from tidegauge_client.cluster_file import ClusterFile, load_cluster_file
from tidegauge_client.kafka_wire import KafkaWire
from tidegauge_lab.local import layout
from tidegauge_lab.local.broker_settings import heartbeat_timeout_ms, session_timeout_ms
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.local.topology import topology_of
from tidegauge_lab.observation import Observation, Observer, kafka_brokers, metadata_in
from tidegauge_lab.timeline.reading import Timeline
from tidegauge_lab.watch.facts import BrokerFacts, Facts, QuorumFacts, ZooKeeperFacts
from tidegauge_lab.watch.observed_facts import broker_facts
from tidegauge_lab.watch.remote_quorum import RemoteQuorum

if TYPE_CHECKING:
    from tidegauge_lab.watch.sessions import Sessions

_NO_RESPONSE = Observation()
KAFKA = "kafka"
"""The state of an Apache Kafka broker."""


class Source(Protocol):
    """Facts and new events, on demand."""

    async def look(self) -> Facts:
        """Return the cluster now."""
        ...

    async def new_events(self) -> list[dict[str, Any]]:
        """Events since the last call, in causal order."""
        ...

    async def close(self) -> None:
        """Look no more."""
        ...


class Silence:
    """How long silent brokers remain members at the latest.

    A ZooKeeper session ends one timeout after its owner's last ping at the latest, a membership in KRaft mode one
    timeout after the last heartbeat, and the owner was silent when it was first seen to be so: the bound is never too
    short, and too long by the time that passed before the first look.
    """

    def __init__(self) -> None:
        self._since: dict[int, float] = {}
        self._epoch: int | None = None

    def left_ms(
        self, silent: Collection[int], now: float, timeout_ms: int, epoch: int | None = None
    ) -> dict[int, float]:
        """Return the rest of the timeout of each silent broker.

        Args:
            silent: the brokers.
            now: monotonic, in seconds.
            timeout_ms: of a session, or of heartbeats.
            epoch: of the active controller that receives the heartbeats, in KRaft mode; the next one gives each broker
                a whole timeout (``ClusterControlManager.activate``).
        """
        if epoch != self._epoch:
            self._since, self._epoch = {}, epoch
        self._since = {broker_id: self._since.get(broker_id, now) for broker_id in silent}
        return {broker_id: timeout_ms - (now - since) * 1000 for broker_id, since in self._since.items()}


class LabSource:
    """The cluster in a directory; one without a cluster is a problem in words, until there is one."""

    def __init__(self, directory: Path) -> None:
        self.directory = Path(directory).absolute()
        self._observer: Observer | None = None
        self._sessions: Sessions | None = None
        self._timeline = Timeline(self.directory / layout.LOGS)
        self._last_said: dict[int, Sequence[metadata_pb2.ReplicaDescription]] = {}
        self._last_groups: dict[int, Sequence[lab_pb2.ObservedGroup]] = {}
        self._session_states: dict[int, str] = {}
        self._silence = Silence()

    async def look(self) -> Facts:
        """Return the cluster now; a removed directory is a problem in words."""
        try:
            file = load_cluster_file(self.directory)
        except TidegaugeError as gone:
            return Facts(str(self.directory), problem=gone.message)
        processes = {broker.id: layout.broker_process(self.directory, broker.id) for broker in file.brokers}
        states = {broker_id: process.state for broker_id, process in processes.items()}
        up = [broker_id for broker_id, state in states.items() if state is ProcessState.UP]
        observer = await self._observer_of(file)
        responses, (quorum, zookeeper, owners) = await asyncio.gather(
            observer.ask(up, with_groups=True), asyncio.to_thread(self._look_beside_brokers, file)
        )
        for broker_id, response in responses.items():
            if response.replicas is not None:
                self._last_said[broker_id] = response.replicas
            if response.groups is not None:
                self._last_groups[broker_id] = response.groups
        kafkas = kafka_brokers(metadata_in(responses))
        silent = {broker_id for broker_id, state in states.items() if state is not ProcessState.UP} - kafkas.keys()
        left_ms = self._left_ms(file, silent, quorum)
        brokers = [
            broker_facts(
                BrokerFacts(broker.id, kafkas[broker.id], KAFKA)
                if broker.id in kafkas and states[broker.id] is ProcessState.DOWN
                else BrokerFacts(broker.id, broker.address, states[broker.id].value, processes[broker.id].pid),
                responses.get(broker.id, _NO_RESPONSE),
                last_said=self._last_said.get(broker.id),
                last_groups=self._last_groups.get(broker.id),
                session=owners.get(broker.id),
                session_state=self._session_states.get(broker.id, ""),
                session_left_ms=left_ms.get(broker.id),
            )
            for broker in sorted(file.brokers, key=lambda broker: broker.id)
        ]
        others = kafkas.keys() - states.keys()
        brokers += [BrokerFacts(one, kafkas[one], KAFKA, session=owners.get(one)) for one in sorted(others)]
        return Facts(str(self.directory), brokers, zookeeper, quorum, switchable=True)

    def _left_ms(self, file: ClusterFile, silent: Collection[int], quorum: QuorumFacts | None) -> Mapping[int, float]:
        """Return how long silent brokers remain members; empty without a controller."""
        now = time.monotonic()
        if quorum is None:
            return self._silence.left_ms(silent, now, session_timeout_ms(file.settings, file.profile))
        if quorum.leader is None:
            return {}
        timeout_ms = heartbeat_timeout_ms(file.settings, file.profile)
        return self._silence.left_ms(silent, now, timeout_ms, quorum.epoch)

    async def _observer_of(self, file: ClusterFile) -> Observer:
        addresses = {broker.id: broker.address for broker in file.brokers}
        if self._observer is None or self._observer.addresses != addresses:
            if self._observer is not None:
                await self._observer.close()
            self._observer = Observer.of(addresses, has_switches=True, security=file.security)
        return self._observer

    def _look_beside_brokers(self, file: ClusterFile) -> tuple[QuorumFacts | None, ZooKeeperFacts, Mapping[int, int]]:
        """Return the quorum, ZooKeeper and the brokers' sessions; blocks, so in a thread."""
        if file.quorum is None:
            return None, *self._look_at_zookeeper(file)
        found = topology_of(self.directory, file).status(lambda _: None)
        active = found["controller"]
        return QuorumFacts(active["id"], active["epoch"], found["controllers"]), ZooKeeperFacts(), {}

    def _look_at_zookeeper(self, file: ClusterFile) -> tuple[ZooKeeperFacts, Mapping[int, int]]:
        """In a thread: kazoo waits for responses."""
        if self._sessions is None or self._sessions.address != file.zookeeper_address:
            if self._sessions is not None:
                self._sessions.close()
            from tidegauge_lab.watch.sessions import Sessions  # noqa: PLC0415 - its ZooKeeper client, of this mode alone

            self._sessions = Sessions(file.zookeeper_address)
        state = "unknown"
        if file.zookeeper_managed:
            state = layout.zookeeper_process(self.directory).state.value
        owners = self._sessions.owners() if state in {"up", "unknown"} else None
        if state == "unknown" and owners is not None:
            state = "up"
        facts = ZooKeeperFacts(file.zookeeper_address, state, file.zookeeper_managed, responds=owners is not None)
        return facts, owners or {}

    async def new_events(self) -> list[dict[str, Any]]:
        """Events since the last call, in causal order."""
        events = await asyncio.to_thread(lambda: list(self._timeline.settled(time.monotonic())))
        for event in events:
            broker_id = broker_of(event)
            if broker_id is not None and event.get("kind") == "session":
                self._session_states[broker_id] = str(event.get("state", ""))
        return events

    async def close(self) -> None:
        """Look no more."""
        self._timeline.close()
        if self._observer is not None:
            await self._observer.close()
        if self._sessions is not None:
            await asyncio.to_thread(self._sessions.close)


class RemoteSource:
    """Brokers reached by ``--bootstrap-server``: looked at, never changed; their event logs are elsewhere."""

    def __init__(self, bootstrap_servers: Sequence[str]) -> None:
        self._servers = parse_bootstrap(bootstrap_servers)
        self._kafka = KafkaWire(self._servers.security, self._servers.kafka_listeners)
        self._quorum = RemoteQuorum(self._servers.security)
        self._admin: Admin | None = None
        self._observer: Observer | None = None
        self._last_said: dict[int, Sequence[metadata_pb2.ReplicaDescription]] = {}
        self._last_groups: dict[int, Sequence[lab_pb2.ObservedGroup]] = {}

    async def look(self) -> Facts:
        """Return the cluster now; a silent one is a problem in words."""
        name = ",".join(self._servers)
        try:
            if self._admin is None:
                admin = Admin(self._servers)
                await admin.start()
                self._admin = admin
            known = await self._admin.metadata([])
        except TidegaugeError as problem:
            return Facts(name, problem=problem.message)
        addresses = {broker.id: broker.address for broker in known.brokers.values()}
        merged = addresses if self._observer is None else self._observer.addresses | addresses
        if self._observer is None or self._observer.addresses != merged:
            if self._observer is not None:
                await self._observer.close()
            self._observer = Observer.of(merged, has_switches=False, security=self._servers.security)
        responses, quorum = await asyncio.gather(
            self._observer.ask(sorted(addresses), with_groups=True),
            self._quorum.look(list(self._kafka.brokers(known).values()), merged),
        )
        for broker_id, response in responses.items():
            if response.replicas is not None:
                self._last_said[broker_id] = response.replicas
            if response.groups is not None:
                self._last_groups[broker_id] = response.groups
        brokers = [
            broker_facts(
                BrokerFacts(broker_id, merged[broker_id], "up" if broker_id in addresses else "unknown"),
                responses.get(broker_id, _NO_RESPONSE),
                last_said=self._last_said.get(broker_id),
                last_groups=self._last_groups.get(broker_id),
            )
            for broker_id in sorted(merged.keys() - known.kafka_brokers.keys())
        ]
        kafkas = [BrokerFacts(one.id, one.address, KAFKA) for one in known.kafka_brokers.values()]
        return Facts(name, sorted([*brokers, *kafkas], key=lambda one: one.id), quorum=quorum)

    async def new_events(self) -> list[dict[str, Any]]:
        """None: a broker's event log is a file of its own machine."""
        return []

    async def close(self) -> None:
        """Look no more."""
        self._quorum.close()
        if self._observer is not None:
            await self._observer.close()
        if self._admin is not None:
            await self._admin.stop()
