"""Coordinators of a consumer group in a simulated cluster; the shell is ``CoordinatorWorld``."""

from __future__ import annotations

from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.events import RequestArrived, TopicsChanged
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes, GroupSettings
from tidegauge_proof.simulator.consumer_groups.consumer_checker import ConsumerChecker, Token
from tidegauge_proof.simulator.consumer_groups.consumers import PARTITIONS, SESSION_MS, TOPIC, TOPIC_ID
from tidegauge_proof.simulator.coordinator_world import CoordinatorWorld
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.world import World

SETTINGS = GroupSettings(
    partitions=1,
    offsets_retention_ms=1 << 50,
    offsets_retention_check_interval_ms=1 << 40,
    serves_consumer_groups=True,
    consumer_times=ConsumerGroupTimes(SESSION_MS, 1_000, 0),
)


class ConsumerWorld(CoordinatorWorld[GroupCoordinator]):
    """Group coordinators and consumers on a cluster of one partition; the topic that they read never changes."""

    def __init__(self, world: World, checker: ConsumerChecker) -> None:
        self.checker = checker
        super().__init__(world, checker)

    def new_coordinator(self, broker: MemoryBroker) -> GroupCoordinator:
        """Return the coordinator of a new process, which knows the topic."""
        coordinator = GroupCoordinator(SETTINGS, self.world.now_ms, broker.wall)
        coordinator.step(self.world.now_ms)
        topic = TopicDescription(TOPIC, TOPIC_ID, ((),) * PARTITIONS)
        coordinator.handle(TopicsChanged({TOPIC: topic}), self.world.now_ms)
        return coordinator

    def event_of(self, token: Token) -> object:
        """Return the event of a request that arrives."""
        return RequestArrived(token, token.call.request)
