"""Group coordinators in a simulated cluster; the shell is ``CoordinatorWorld``."""

from __future__ import annotations

from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.events import RequestArrived
from tidegauge_broker.coordinator.settings import GroupSettings
from tidegauge_proof.simulator.coordinator_world import CoordinatorWorld
from tidegauge_proof.simulator.groups.group_checker import GroupChecker, Token
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.world import World

SETTINGS = GroupSettings(
    partitions=1,
    group_initial_rebalance_delay_ms=500,
    offsets_retention_ms=1 << 50,
    offsets_retention_check_interval_ms=1 << 40,
)


class GroupWorld(CoordinatorWorld[GroupCoordinator]):
    """Group coordinators and members on a cluster of one partition."""

    def __init__(self, world: World, checker: GroupChecker) -> None:
        self.checker = checker
        self._uuids = 0
        super().__init__(world, checker)

    def new_coordinator(self, broker: MemoryBroker) -> GroupCoordinator:
        """Return the coordinator of a new process, after an empty retention run."""
        coordinator = GroupCoordinator(SETTINGS, self.world.now_ms, broker.wall)
        coordinator.step(self.world.now_ms)
        return coordinator

    def event_of(self, token: Token) -> object:
        """Return the event of an arriving request, with a new member id."""
        self._uuids += 1
        return RequestArrived(token, token.call.request, f"{self._uuids}")
