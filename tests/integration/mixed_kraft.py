"""A cluster in KRaft mode whose controllers and brokers are Tidegauge's or Apache Kafka 4.3.1's, node by node.

A node keeps its id, its ports and its directories when it changes its kind.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import confluent_kafka
from confluent_kafka import ElectionType
from tests.clients.programs import KAFKA_4
from tests.integration.administered import Administered
from tests.integration.kafka_causes import CAUSES
from tests.integration.kafka_complaints import Acts, Complaint, unexpected
from tests.integration.kraft_nodes import FEATURES, BrokerNode
from tests.integration.quorum_nodes import KAFKA, OURS, Quorum, QuorumNode
from tests.integration.swap_clients import LIMIT_SECONDS, retried
from tests.waiting import until

from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka_channel import KafkaChannel

OF_CONTROLLERS = {
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "6000",
}
OF_BROKERS = {
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "replica.lag.time.max.ms": "10000",
}
TRIES = 20
KINDS = {"kafka": (KAFKA,) * 3, "tidegauge": (OURS,) * 3, "mixed": (OURS, KAFKA, OURS)}
"""Kinds of three nodes, by name."""


class MixedKraft(Administered):
    """The mixed cluster in KRaft mode. A context manager: its end kills the remaining processes.

    Args:
        at: where the nodes' files go.
        controllers: the kind of each.
        brokers: the kind of each.
        classpath: of Kafka's jars.
        features: options of the format.
        of_controllers: settings of the controllers.
        of_brokers: settings of the brokers.
        directories: how many log directories each broker has.
    """

    def __init__(
        self,
        at: Path,
        controllers: Sequence[str],
        brokers: Sequence[str],
        classpath: str,
        features: Sequence[str] = FEATURES,
        *,
        of_controllers: Mapping[str, str] = OF_CONTROLLERS,
        of_brokers: Mapping[str, str] = OF_BROKERS,
        directories: int = 1,
    ) -> None:
        self.acts = Acts(at / "acts.jsonl")
        self.quorum = Quorum(at, controllers, classpath, of_controllers, features)
        self.brokers = [
            BrokerNode(number, kind, at, self.quorum.servers, classpath, directories=directories, settings=of_brokers)
            for number, kind in enumerate(brokers)
        ]
        super().__init__(",".join(node.address for node in self.brokers), KAFKA_4)

    def __enter__(self) -> Self:
        try:
            self.begin()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self) -> None:
        """Start all nodes for the first time."""
        with self.acts.during("start", *(node.id for node in self.nodes)):
            self.quorum.start()
            self.quorum.wait_leader()
            self.start(*self.ids)

    def close(self) -> None:
        """Kill what still runs."""
        for node in self.nodes:
            if node.runs:
                node.kill()

    @property
    def nodes(self) -> list[BrokerNode | QuorumNode]:
        """All of them, brokers first."""
        return [*self.brokers, *self.quorum.nodes]

    @property
    def ids(self) -> list[int]:
        """The ids of the brokers."""
        return [node.id for node in self.brokers]

    def node(self, node_id: int) -> BrokerNode | QuorumNode:
        """Return the node with this id."""
        return next(node for node in self.nodes if node.id == node_id)

    def is_kafkas(self, node_id: int) -> bool:
        """Whether Apache Kafka runs on this id."""
        return self.node(node_id).kind == KAFKA

    def one_of_each_kind(self, nodes: Iterable[BrokerNode | QuorumNode]) -> list[int]:
        """Return the id of the first node of each kind."""
        return list({node.kind: node.id for node in reversed(list(nodes))}.values())

    def kinds_of(self, nodes: Iterable[BrokerNode | QuorumNode]) -> list[str]:
        """Return the kinds that nodes are of, each once."""
        return [self.node(node_id).kind for node_id in self.one_of_each_kind(nodes)]

    # Nodes that end and return

    def start(self, *ids: int) -> None:
        """Start nodes; returns when brokers serve clients, and controllers follow or lead."""
        nodes = [self.node(node_id) for node_id in ids]
        for node in nodes:
            node.start()
        for node in nodes:
            if isinstance(node, BrokerNode) or node.kind == KAFKA:
                node.wait_started()
        if any(isinstance(node, QuorumNode) for node in nodes):
            self.wait_quorum()

    def stop(self, node_id: int) -> None:
        """Stop a node; a broker's shutdown is controlled."""
        node = self.node(node_id)
        assert node.stop() in ({0, 143} if node.kind == KAFKA else {0}), node.log()[-2_000:]

    def kill(self, node_id: int) -> None:
        """SIGKILL a node."""
        self.node(node_id).kill()

    def change(self, node_id: int) -> None:
        """Stop a node, and start one of the other kind in its place; return when it has all replicas in sync."""
        with self.acts.during("swap", node_id):
            self.stop(node_id)
            node = self.node(node_id)
            node.become(OURS if node.kind == KAFKA else KAFKA)
            self.start(node_id)
            if isinstance(node, BrokerNode):
                self.wait_all_in_sync()

    @contextlib.contextmanager
    def paused(self, node_id: int) -> Iterator[None]:
        """Keep a node's process from running inside the block."""
        self.node(node_id).send(signal.SIGSTOP)
        try:
            yield
        finally:
            self.node(node_id).send(signal.SIGCONT)

    def create_topic(self, name: str, assignment: list[list[int]], **config: str) -> None:
        """Create a topic with its replicas placed."""
        with self.acts.during("create", name):
            super().create_topic(name, assignment, **config)

    # State

    def controller(self) -> int:
        """Return the active controller."""
        return self.quorum.wait_leader().leader_id

    def make_controller(self, kind: str) -> int:
        """Have a controller of a kind become active: leaders are killed until it is; return its id.

        The successor of one that is killed is the voter whose timer ends first; one that stops names the next.
        """
        killed: list[int] = []
        while self.quorum.node(leader := self.controller()).kind != kind:
            assert len(killed) < TRIES, f"after {killed} no controller of {kind} becomes active"
            killed.append(leader)
            with self.acts.during("kill", leader):
                self.kill(leader)
                self.quorum.wait_leader(other_than=leader)
                self.start(leader)
        return leader

    def wait_quorum(self) -> None:
        """Wait until all controllers that run are voters in step: each is no more than a moment behind the leader."""

        def in_step() -> bool:
            view = self.quorum.look()
            running = {node.id for node in self.quorum.nodes if node.runs}
            if view is None or view.high_watermark < 0:
                return False
            ends = {one.id: one.log_end_offset for one in view.voters}
            return all(ends.get(one, -1) >= view.high_watermark for one in running)

        until(in_step, LIMIT_SECONDS, "the controllers are in step")

    def wait_led_by_others(self, broker_id: int) -> None:
        """Wait until every partition has a leader that is not this broker, and no ISR has it."""

        def is_so() -> bool:
            found = self._all_partitions()
            return bool(found) and all(one.leader not in {-1, broker_id} and broker_id not in one.isrs for one in found)

        until(is_so, LIMIT_SECONDS, f"broker {broker_id} leads nothing, and is in no ISR")

    def wait_all_in_sync(self) -> None:
        """Wait until all partitions of all topics have leaders and all their replicas in sync."""

        def in_sync() -> bool:
            found = self._all_partitions()
            return bool(found) and all(one.leader >= 0 and len(one.isrs) == len(one.replicas) for one in found)

        until(in_sync, LIMIT_SECONDS, "all partitions are in sync")

    def _all_partitions(self) -> list[Any]:
        with contextlib.suppress(confluent_kafka.KafkaException):
            topics = self.admin().list_topics(timeout=10.0).topics.values()
            return [partition for topic in topics for partition in topic.partitions.values()]
        return []

    def elect_all_preferred(self) -> None:
        """Elect the preferred leader of every partition."""

        def elected() -> bool:
            admin = self.admin()  # a request ends with its client
            retried(lambda: admin.elect_leaders(ElectionType.PREFERRED, None).result(LIMIT_SECONDS))
            return all(one.leader == one.replicas[0] for one in self._all_partitions())

        until(elected, LIMIT_SECONDS, "preferred leaders lead")

    def led_by(self, broker_id: int) -> set[str]:
        """Return the topics of which a broker leads a partition."""
        topics = self.admin().list_topics(timeout=10.0).topics
        return {name for name, one in topics.items() for at in one.partitions.values() if at.leader == broker_id}

    def ask(self, key: int, message: Any) -> Any:
        """Ask the active controller."""
        return _asked(self.quorum.node(self.controller()).address, key, message)

    def ask_broker(self, broker_id: int, key: int, message: Any) -> Any:
        """Ask a broker."""
        return _asked(self.brokers[broker_id].address, key, message)

    # The judgement of Kafka's own nodes

    def complaints(self) -> list[Complaint]:
        """Return Kafka nodes' lines at WARN and above that no act explains."""
        found = [one for node in self.nodes for one in node.complaints_of_kafka()]
        ports = {str(node.port): str(node.id) for node in self.nodes}
        return unexpected(found, CAUSES, self.acts.all, ports)

    def check_judges(self) -> None:
        """All nodes run, Kafka's have logged nothing at WARN and above that no act explains, and ours no exception."""
        ended = [f"{node.id} has ended: {node.log()[-1_000:]}" for node in self.nodes if not node.runs]
        exceptions = [
            f"{log.name} has a traceback"
            for log in self.quorum.at.glob("*-*.log")
            if "Traceback (most recent call last)" in log.read_text(errors="replace")
        ]
        found = [*ended, *map(str, self.complaints()), *exceptions]
        assert not found, "\n".join(found)


def _asked(address: str, key: int, message: Any) -> Any:
    async def asked() -> Any:
        channel = KafkaChannel(address, "test", protocol=KRAFT_PROTOCOL)
        try:
            return await channel.request(key, message, LIMIT_SECONDS)
        finally:
            channel.close()

    return asyncio.run(asked())
