"""The cluster's metadata at one offset of the metadata log, as immutable values.

Two images are equal if their contents are: the offset that an image was made at, and the offset of a broker's
registration, do not count. UUIDs are texts, as Kafka prints them. A list of replicas keeps the order of its record.
Source: ``org.apache.kafka.image.MetadataImage`` and its parts, ``org.apache.kafka.metadata.PartitionRegistration``,
``BrokerRegistration``, ``ControllerRegistration``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import NamedTuple

from tidegauge.cluster_metadata.access_lists import Binding
from tidegauge.cluster_metadata.client_quotas import Entity
from tidegauge.cluster_metadata.credentials import ScramCredential
from tidegauge.kafka.kraft.features import ELR_VERSION
from tidegauge.lazy_dataclasses import dataclass
from tidegauge_controller.metadata.sorted_map import SortedMap

MIGRATING = "AAAAAAAAAAAAAAAAAAAAAA"
UNASSIGNED = "AAAAAAAAAAAAAAAAAAAAAQ"
LOST = "AAAAAAAAAAAAAAAAAAAAAg"
"""Directory ids that name no directory (``DirectoryId``)."""

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
"""Types of resources that have settings (``ConfigResource.Type``)."""
CLUSTER_DEFAULT = ""
"""The name of the broker resource whose settings hold for every broker."""


class FeatureRange(NamedTuple):
    """Levels of a feature that a node supports, both ends included."""

    first: int
    last: int

    def __contains__(self, level: object) -> bool:
        return isinstance(level, int) and self.first <= level <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


class NodeEndpoint(NamedTuple):
    """A listener of a registered node; the security protocol has Kafka's number (``SecurityProtocol``)."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True)
class RegisteredBroker:
    """A broker that has registered, whether it is alive or not.

    Attributes:
        epoch: broker epoch.
        incarnation_id: of its process.
        endpoints: its listeners, in the order of its request.
        features: ranges that it supports, by name.
        fenced: it may not lead, nor be in an ISR.
        in_controlled_shutdown: it has asked to stop, and is given no new leadership.
        log_dirs: ids of its log directories that are online.
        cordoned_log_dirs: ids of those that take no new replicas; None if it has not reported them.
        is_migrating_zk_broker: always False since Apache Kafka 4.0.
        registration_offset: of the RegisterBrokerRecord; after a snapshot, of the snapshot's last record.
    """

    broker_id: int
    epoch: int
    incarnation_id: str
    endpoints: tuple[NodeEndpoint, ...]
    features: Mapping[str, FeatureRange]
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[str, ...] = ()
    cordoned_log_dirs: tuple[str, ...] | None = None
    is_migrating_zk_broker: bool = False
    registration_offset: int = field(default=-1, compare=False)

    @property
    def is_active(self) -> bool:
        """Whether it may be in an ISR: neither fenced nor in controlled shutdown."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online_directory(self, directory: str) -> bool:
        """Return whether a replica in a directory is usable (BrokerRegistration.hasOnlineDir).

        A replica without a directory yet counts as usable, and so does every directory of a broker that has reported
        none, except the lost one.
        """
        if directory in {UNASSIGNED, MIGRATING}:
            return True
        return directory != LOST and (not self.log_dirs or directory in self.log_dirs)

    @property
    def directory_for_new_replicas(self) -> str:
        """The directory that a new replica gets: the only one, else UNASSIGNED (ClusterControlManager.defaultDir)."""
        return self.log_dirs[0] if len(self.log_dirs) == 1 else UNASSIGNED


@dataclass(frozen=True, slots=True)
class RegisteredController:
    """A controller that has registered."""

    controller_id: int
    incarnation_id: str
    endpoints: tuple[NodeEndpoint, ...]
    features: Mapping[str, FeatureRange]
    zk_migration_ready: bool = False


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """The state of one partition.

    Attributes:
        replicas: in assignment order; those that a reassignment adds and removes are among them.
        directories: the directory of each replica at its broker, in the order of ``replicas``.
        isr: may be empty under eligible leader replicas.
        removing, adding: of a reassignment in progress.
        leader: -1 while there is none.
        leader_epoch: rises by 1 with each change that names a leader.
        partition_epoch: rises by 1 with each change.
        recovering: an unclean election made the leader, and its ISR has not been confirmed since.
        elr: eligible leader replicas (KIP-966).
        last_known_elr: the last leader, while there is none.
    """

    replicas: tuple[int, ...]
    directories: tuple[str, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int = 0
    partition_epoch: int = 0
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    recovering: bool = False
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def has_leader(self) -> bool:
        """Whether there is a leader."""
        return self.leader >= 0

    @property
    def has_preferred_leader(self) -> bool:
        """Whether the first replica leads."""
        return bool(self.replicas) and self.leader == self.replicas[0]

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is in progress."""
        return bool(self.adding or self.removing)

    def directory(self, broker_id: int) -> str:
        """Return the directory of a broker's replica.

        Raises:
            ValueError: the broker has no replica.
        """
        return self.directories[self.replicas.index(broker_id)]


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic with its partitions."""

    name: str
    topic_id: str
    partitions: SortedMap[int, PartitionRegistration] = field(default_factory=SortedMap[int, PartitionRegistration])


class ConfigResource(NamedTuple):
    """A resource that has settings, by Kafka's number of its type."""

    kind: int
    name: str


QuotaKey = tuple[tuple[str, bool, str], ...]
"""An entity of client quotas in a form that has an order: type, whether it is the default, name."""


def quota_key(entity: Entity) -> QuotaKey:
    """Return the key of an entity."""
    return tuple(sorted((kind, name is None, name or "") for kind, name in entity.items()))


def quota_entity(key: QuotaKey) -> dict[str, str | None]:
    """Return the entity of a key."""
    return {kind: None if is_default else name for kind, is_default, name in key}


class CredentialKey(NamedTuple):
    """The user and the mechanism of a SCRAM credential, by ``ScramMechanism``'s number."""

    mechanism: int
    user: str


class Provenance(NamedTuple):
    """The last record that an image contains: its offset, its leader epoch and the time of its batch in ms."""

    offset: int = -1
    epoch: int = -1
    timestamp_ms: int = -1


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """The metadata of a cluster.

    Attributes:
        metadata_version: its finalised level; None before the bootstrap records.
        features: finalised levels of the other features, except those at 0.
        brokers, controllers: registrations by id.
        topics: by topic id.
        topic_ids: by name.
        configs: settings by resource; a resource without settings is absent.
        quotas: values by entity and key.
        next_producer_id: the first id of the next block.
        access_lists: entries by their ids.
        credentials: SCRAM credentials.
        provenance: the last record that the image contains.
    """

    metadata_version: int | None = None
    features: Mapping[str, int] = field(default_factory=dict[str, int])
    brokers: SortedMap[int, RegisteredBroker] = field(default_factory=SortedMap[int, RegisteredBroker])
    controllers: SortedMap[int, RegisteredController] = field(default_factory=SortedMap[int, RegisteredController])
    topics: SortedMap[str, TopicImage] = field(default_factory=SortedMap[str, TopicImage])
    topic_ids: SortedMap[str, str] = field(default_factory=SortedMap[str, str])
    configs: SortedMap[ConfigResource, Mapping[str, str]] = field(
        default_factory=SortedMap[ConfigResource, Mapping[str, str]]
    )
    quotas: SortedMap[QuotaKey, Mapping[str, float]] = field(default_factory=SortedMap[QuotaKey, Mapping[str, float]])
    next_producer_id: int = 0
    access_lists: SortedMap[str, Binding] = field(default_factory=SortedMap[str, Binding])
    credentials: SortedMap[CredentialKey, ScramCredential] = field(
        default_factory=SortedMap[CredentialKey, ScramCredential]
    )
    provenance: Provenance = field(default=Provenance(), compare=False)

    @property
    def is_empty(self) -> bool:
        """Whether no record was replayed: such a cluster waits for its bootstrap records."""
        return self.metadata_version is None

    @property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are kept and elected (KIP-966)."""
        return self.features.get(ELR_VERSION, 0) >= 1

    def topic_named(self, name: str) -> TopicImage | None:
        """Return a topic, or None."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics[topic_id]

    def partition(self, topic_id: str, partition: int) -> PartitionRegistration | None:
        """Return the state of a partition, or None."""
        topic: TopicImage | None = self.topics.get(topic_id)
        found: PartitionRegistration | None = None if topic is None else topic.partitions.get(partition)
        return found

    def all_partitions(self) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """Yield every partition, by topic id and index."""
        for topic in self.topics.values():
            for partition, registration in topic.partitions.items():
                yield topic, partition, registration

    def config(self, kind: int, name: str) -> Mapping[str, str]:
        """Return the settings of a resource; empty if it has none."""
        found: Mapping[str, str] = self.configs.get(ConfigResource(kind, name), {})
        return found


EMPTY = MetadataImage()
"""The image before the first record."""
