"""A broker of the simulated KRaft cluster: a real core with logs in memory, its real lifecycle, and its images."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from tidegauge.control import IsrProposal
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import CoreSettings, LeaderHint, TopicRules
from tidegauge_broker.server.cluster.kraft.lifecycle import Lifecycle
from tidegauge_controller.metadata.image import EMPTY, MetadataImage, RegisteredBroker
from tidegauge_controller.metadata.role_changes import RoleChanges, role_changes
from tidegauge_proof.simulator.kraft.metadata_node import MetadataNode
from tidegauge_proof.simulator.memory_broker import MemoryBroker

BEAT_MS, REGISTRATION_MS, DIRECTORY_MS = 100, 1 << 40, 1 << 40
"""Settings of the lifecycle; no broker of a history gives up."""
NO_EPOCH = -1


class ImageMetadata:
    """The core's view of the metadata: the image that the broker has applied (``replica.ports.Metadata``)."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        topic = self.image.topic_named(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.partitions

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint | None:
        """Return its leader."""
        topic = self.image.topic_named(topic_partition.topic)
        state = None if topic is None else topic.partitions.get(topic_partition.partition)
        return None if state is None or state.leader < 0 else LeaderHint(state.leader, state.leader_epoch)

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        broker: RegisteredBroker | None = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def live_brokers(self) -> frozenset[int]:
        """Return the brokers that may be in an ISR (``isBrokerFenced``, ``isBrokerShuttingDown``)."""
        return frozenset(one.broker_id for one in self.image.brokers.values() if one.is_active)


class SimBroker:
    """A broker in KRaft mode. Its disks are ``replicas``'s, and outlive its process.

    Args:
        broker_id: its id, and its quorum node's.
        settings: of the core.
        rules: of the topic.
        partitions: all of them have a replica here.
        looked_at: is called after each step of the core.
        seen: is called with each image that its node loads.

    Attributes:
        replicas: its core and its logs.
        lifecycle: of its process.
        metadata: the committed metadata that its node has.
        applied: the image that is in force.
        clean_epoch: the broker epoch that ``.kafka_cleanshutdown`` has; -1: there is none.
        incarnation: counts its processes.
        is_paused: whether its process is stopped.
        may_have_lost: whether the power failed since its last registration.
        outbox: ISR proposals that wait, the first one perhaps in flight.
        asking: the proposal in flight.
    """

    def __init__(
        self,
        broker_id: int,
        settings: CoreSettings,
        rules: TopicRules,
        partitions: Sequence[TopicPartition],
        looked_at: Callable[[MemoryBroker], None],
        seen: Callable[[MetadataImage], None],
    ) -> None:
        self.broker_id = broker_id
        self._seen = seen
        self.replicas = MemoryBroker(
            broker_id, settings, rules, partitions=partitions, metadata=ImageMetadata, looked_at=looked_at
        )
        self.lifecycle = Lifecycle(BEAT_MS, REGISTRATION_MS, DIRECTORY_MS)
        self.metadata = MetadataNode(seen)
        self.applied: MetadataImage = EMPTY
        self.clean_epoch = NO_EPOCH
        self.previous_epoch = NO_EPOCH
        self.incarnation = 0
        self.is_running = False
        self.is_paused = False
        self.may_have_lost = False
        self.outbox: deque[IsrProposal] = deque()
        self.asking: object | None = None

    @property
    def is_up(self) -> bool:
        """Whether its process runs and is not paused."""
        return self.is_running and not self.is_paused

    def start(self, now_ms: int) -> None:
        """Begin a process on the old disks."""
        self.incarnation += 1
        self.is_running, self.is_paused = True, False
        self.previous_epoch, self.clean_epoch = self.clean_epoch, NO_EPOCH
        self.lifecycle = Lifecycle(BEAT_MS, REGISTRATION_MS, DIRECTORY_MS)
        self.metadata = MetadataNode(self._seen)
        self.applied = EMPTY
        self.outbox.clear()
        self.asking = None
        self.replicas.start(NO_EPOCH)
        self.lifecycle.start(now_ms)

    def die(self) -> None:
        """End the process."""
        self.is_running = self.is_paused = False
        self.outbox.clear()
        self.asking = None
        self.replicas.kill()

    def registered(self, epoch: int) -> None:
        """Take in the epoch of the registration."""
        self.replicas.broker_epoch = epoch
        self.replicas.core.set_broker_epoch(epoch)

    def apply(self, now_ms: int) -> RoleChanges:
        """Put the newest image in force (``Publisher``); return what it changed."""
        old, new = self.applied, self.metadata.image
        self.applied = new
        self.replicas.metadata.image = new
        changes = role_changes(self.broker_id, old, new)
        if changes.deletions:
            self.replicas.drop(changes.deletions)
        if old is EMPTY:
            self._delete_strays(new)
        states = [*changes.leaders, *changes.followers]
        if states:
            self.replicas.take_over(states, now_ms)
        return changes

    def _delete_strays(self, image: MetadataImage) -> None:
        """Delete the replicas that the process has found on its disks, and that are not the broker's any more."""
        for at, replica in self.replicas.replicas.items():
            topic = image.topic_named(at.topic)
            state = None if topic is None else topic.partitions.get(at.partition)
            if state is not None and self.broker_id not in state.replicas:
                replica.delete()

    def epoch_of(self, broker_id: int) -> int:
        """Return the known broker epoch of a member of an ISR."""
        if broker_id == self.broker_id:
            return self.lifecycle.broker_epoch
        broker: RegisteredBroker | None = self.applied.brokers.get(broker_id)
        return NO_EPOCH if broker is None else broker.epoch
