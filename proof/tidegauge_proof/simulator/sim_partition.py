"""One partition of a simulated cluster, as its checker sees it: on all brokers, in ZooKeeper, at its clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegauge.control import NO_LEADER
from tidegauge.partition import TopicPartition
from tidegauge.znodes import PartitionStateNode, state_path
from tidegauge_proof.simulator.clients import Clients
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.memory_zookeeper import MemoryZooKeeper

if TYPE_CHECKING:
    from tidegauge_proof.simulator.checker import Checker

_FIRST_NUMBER = 1_000_000
"""The records of partition P are numbered from P times this, so that none is taken for one of another partition."""


class SimPartition:
    """One partition of the cluster: what a checker looks at.

    Attributes:
        at: its name.
        replicas: the broker ids, in assignment order.
        brokers: what each broker keeps of it.
        clients: who writes to it, and reads it.
        state_now: its state in ZooKeeper.
    """

    def __init__(
        self,
        at: TopicPartition,
        replicas: tuple[int, ...],
        brokers: Mapping[int, MemoryBroker],
        zookeeper: MemoryZooKeeper,
        checker: Checker,
    ) -> None:
        self.at = at
        self.path = state_path(*at)
        self.replicas = replicas
        self.brokers = {broker_id: broker.replicas[at] for broker_id, broker in brokers.items()}
        self.zookeeper = zookeeper
        self.clients = Clients(_FIRST_NUMBER * at.partition)
        self.state_now = PartitionStateNode(NO_LEADER, -1, replicas, 0)
        self.checker = checker
        self._read_mzxid = -1
        """Which transaction wrote what was taken over."""
        checker.at = at
        checker.world = self

    def read_state(self) -> None:
        """Take over what stands in ZooKeeper, and check it; what was written already has been checked."""
        node = self.zookeeper.nodes.get(self.path)
        if node is None:
            return
        if node.mzxid == self._read_mzxid:
            self.checker.check_isr()
            return
        self._read_mzxid = node.mzxid
        self.state_now = PartitionStateNode.decode(self.path, node.data)
        self.checker.look_at_state()


def rotated(replicas: tuple[int, ...], places: int) -> tuple[int, ...]:
    """Return the assignment of a further partition: led by another broker, as Kafka spreads leaders."""
    places %= len(replicas)
    return replicas[places:] + replicas[:places]
