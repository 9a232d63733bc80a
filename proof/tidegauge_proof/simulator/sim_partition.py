"""One partition of a simulated cluster, as its checker sees it: on all brokers, in the store, at its clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tidegauge.cluster_metadata import NO_LEADER, Leadership
from tidegauge.partition import TopicPartition
from tidegauge_proof.simulator.clients import Clients
from tidegauge_proof.simulator.controllers.ports import Store
from tidegauge_proof.simulator.memory_broker import MemoryBroker

if TYPE_CHECKING:
    from tidegauge_proof.simulator.checker import Checker

FIRST_NUMBER = 1_000_000
"""The records of partition P are numbered from P times this, so that none is taken for one of another partition."""


class SimPartition:
    """One partition of the cluster: what a checker looks at.

    Attributes:
        at: its name.
        replicas: the broker ids, in assignment order.
        brokers: what each broker keeps of it.
        clients: who writes to it, and reads it.
        state_now: its stored state.
    """

    def __init__(
        self,
        at: TopicPartition,
        replicas: tuple[int, ...],
        brokers: Mapping[int, MemoryBroker],
        store: Store,
        checker: Checker,
    ) -> None:
        self.at = at
        self.replicas = replicas
        self.brokers = {broker_id: broker.replicas[at] for broker_id, broker in brokers.items()}
        self.store = store
        self.clients = Clients(FIRST_NUMBER * at.partition)
        self.state_now = Leadership(NO_LEADER, -1, replicas, recovering=False, partition_epoch=0, controller_epoch=0)
        self.checker = checker
        self._last_change = -1
        """The change that wrote the state taken over."""
        checker.at = at
        checker.world = self

    def read_state(self) -> None:
        """Take over the stored state, and check it unless it is unchanged."""
        change = self.store.last_change_of(self.at)
        if change is None:
            return
        if change == self._last_change:
            self.checker.check_isr()
            return
        self._last_change = change
        self.state_now = self.store.leadership(self.at)
        self.checker.look_at_state()


def rotated(replicas: tuple[int, ...], places: int) -> tuple[int, ...]:
    """Return the assignment of a further partition, led by another broker."""
    places %= len(replicas)
    return replicas[places:] + replicas[:places]
