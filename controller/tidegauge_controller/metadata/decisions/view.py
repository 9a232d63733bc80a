"""The view that a decision is made from: the image with the pending records, and the controller's own settings.

Source: ``ClusterControlManager``, ``ConfigurationControlManager.getTopicConfig``,
``ReplicationControlManager.getTopicEffectiveMinIsr``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.settings import BROKER_SETTINGS, Values
from tidegauge_controller.metadata.delta import replayed
from tidegauge_controller.metadata.image import (
    BROKER,
    CLUSTER_DEFAULT,
    TOPIC,
    MetadataImage,
    PartitionRegistration,
    RegisteredBroker,
    TopicImage,
)
from tidegauge_controller.metadata.versions import OLDEST_METADATA_VERSION

MIN_INSYNC_REPLICAS = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"
MAX_RECORDS_PER_REQUEST = 10_000
"""Limit of the records of one request of a user (QuorumController.MAX_RECORDS_PER_USER_OP)."""

Response = TypeVar("Response")


@dataclass(frozen=True, slots=True)
class Decision(Generic[Response]):
    """The outcome of a decision.

    Attributes:
        records: to be appended; memory changes with them at once.
        response: to be sent once the records are committed; at once if there are none and nothing is pending.
        atomic: all records must be in one batch.
    """

    records: list[MetadataRecord]
    response: Response
    atomic: bool = False


def _defaults() -> Values:
    return Values(BROKER_SETTINGS, {name: setting.default for name, setting in BROKER_SETTINGS.items()})


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    """The controller's static settings, by the names of Kafka's.

    Attributes:
        node_id: of this controller.
        cluster_id: of its cluster.
        session_timeout_ms: broker.session.timeout.ms.
        default_replication_factor: default.replication.factor.
        num_partitions: num.partitions.
        min_insync_replicas: min.insync.replicas.
        unclean_leader_election: unclean.leader.election.enable.
        max_elections: elections in one run of a periodic task.
        of_groups: settings of the process, those that bound groups' own among them.
    """

    node_id: int
    cluster_id: str
    session_timeout_ms: int = 9_000
    default_replication_factor: int = 1
    num_partitions: int = 1
    min_insync_replicas: int = 1
    unclean_leader_election: bool = False
    max_elections: int = 1_000
    of_groups: Values = field(default_factory=_defaults)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The state that decisions are made from.

    Attributes:
        image: of the committed and the pending records.
        settings: of this controller.
        next_offset: of the first record that this decision makes.
    """

    image: MetadataImage
    settings: ControllerSettings
    next_offset: int = field(default=0)

    def after(self, records: Sequence[MetadataRecord]) -> ClusterView:
        """Return the view after records, for a decision's next part."""
        if not records:
            return self
        image = replayed(self.image, records, self.image.provenance, self.next_offset)
        return ClusterView(image, self.settings, self.next_offset + len(records))

    @property
    def metadata_version(self) -> int:
        """The finalised level, the lowest one before the bootstrap records."""
        level = self.image.metadata_version
        return OLDEST_METADATA_VERSION if level is None else level

    def is_active(self, broker_id: int) -> bool:
        """Return whether a broker is registered, not fenced and not in controlled shutdown."""
        broker: RegisteredBroker | None = self.image.brokers.get(broker_id)
        return broker is not None and broker.is_active

    def has_online_directory(self, broker_id: int, directory: str) -> bool:
        """Return whether a broker's directory is usable; not if the broker is unknown."""
        broker: RegisteredBroker | None = self.image.brokers.get(broker_id)
        return broker is not None and broker.has_online_directory(directory)

    def directory_for_new_replicas(self, broker_id: int) -> str:
        """Return the directory that a new replica at a broker gets.

        Raises:
            KeyError: the broker is unknown.
        """
        return self.image.brokers[broker_id].directory_for_new_replicas

    def check_broker_epoch(self, broker_id: int, epoch: int) -> RegisteredBroker:
        """Return the registration that a broker's request was made with (ClusterControlManager.checkBrokerEpoch).

        Raises:
            TidegaugeError: STALE_BROKER_EPOCH.
        """
        broker: RegisteredBroker | None = self.image.brokers.get(broker_id)
        if broker is None:
            raise TidegaugeError(
                ErrorCode.STALE_BROKER_EPOCH, f"No broker registration found for broker id {broker_id}"
            )
        if broker.epoch != epoch:
            raise TidegaugeError(
                ErrorCode.STALE_BROKER_EPOCH, f"Expected broker epoch {broker.epoch}, but got broker epoch {epoch}"
            )
        return broker

    def _texts(self, topic: str, key: str) -> Iterator[str]:
        """Yield the dynamic values of a topic's setting, the one in force first.

        Source: KafkaConfigSchema.resolveEffectiveTopicConfig: the topic's, this node's own, the cluster's.
        """
        for kind, name in ((TOPIC, topic), (BROKER, str(self.settings.node_id)), (BROKER, CLUSTER_DEFAULT)):
            text = self.image.config(kind, name).get(key)
            if text is not None:
                yield text

    def min_isr(self, topic: TopicImage) -> int:
        """Return the min.insync.replicas in force, at most partition 0's replica count."""
        wanted = self.settings.min_insync_replicas
        for text in self._texts(topic.name, MIN_INSYNC_REPLICAS):
            if text.strip().isdecimal():
                wanted = int(text)
                break
        first: PartitionRegistration | None = topic.partitions.get(0)
        return wanted if first is None else min(wanted, len(first.replicas))

    def unclean_election_allowed(self, topic: str) -> bool:
        """Return the unclean.leader.election.enable in force."""
        for text in self._texts(topic, UNCLEAN_ELECTION):
            return text.strip().lower() == "true"
        return self.settings.unclean_leader_election

    def topic_of(self, name: str) -> TopicImage | None:
        """Return a topic, or None."""
        return self.image.topic_named(name)
