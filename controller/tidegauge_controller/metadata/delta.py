"""Changes of an image: records are replayed one by one, then the changed image is taken.

Contract: a record that can't be replayed is refused before anything changes; the caller may continue with the
next one, as Kafka's brokers do, or end the process, as its controllers do.
Source: ``org.apache.kafka.image.MetadataDelta`` and its parts, ``PartitionRegistration.merge``. One difference: equal
records give equal images, in one delta or in several. The settings of a topic that is created and removed in one delta
are removed, too (Kafka's ``ConfigurationsDelta`` keeps them).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tidegauge.cluster_metadata.access_lists import (
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    by_number,
)
from tidegauge.cluster_metadata.credentials import ScramCredential
from tidegauge.kafka.kraft.features import KRAFT_VERSION, METADATA_VERSION
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.access_control_entry_record import AccessControlEntryRecord
from tidegauge.kafka.metadata_records.broker_registration_change_record import BrokerRegistrationChangeRecord
from tidegauge.kafka.metadata_records.clear_elr_record import ClearElrRecord
from tidegauge.kafka.metadata_records.client_quota_record import ClientQuotaRecord
from tidegauge.kafka.metadata_records.config_record import ConfigRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.fence_broker_record import FenceBrokerRecord
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge.kafka.metadata_records.partition_change_record import PartitionChangeRecord
from tidegauge.kafka.metadata_records.partition_record import PartitionRecord
from tidegauge.kafka.metadata_records.producer_ids_record import ProducerIdsRecord
from tidegauge.kafka.metadata_records.register_broker_record import RegisterBrokerRecord
from tidegauge.kafka.metadata_records.register_controller_record import RegisterControllerRecord
from tidegauge.kafka.metadata_records.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from tidegauge.kafka.metadata_records.remove_topic_record import RemoveTopicRecord
from tidegauge.kafka.metadata_records.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from tidegauge.kafka.metadata_records.topic_record import TopicRecord
from tidegauge.kafka.metadata_records.unfence_broker_record import UnfenceBrokerRecord
from tidegauge.kafka.metadata_records.unregister_broker_record import UnregisterBrokerRecord
from tidegauge.kafka.metadata_records.user_scram_credential_record import UserScramCredentialRecord
from tidegauge.kafka.metadata_records.zk_migration_state_record import ZkMigrationStateRecord
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge_controller.metadata.image import (
    MIGRATING,
    TOPIC,
    UNASSIGNED,
    ConfigResource,
    CredentialKey,
    FeatureRange,
    MetadataImage,
    NodeEndpoint,
    PartitionRegistration,
    Provenance,
    QuotaKey,
    RegisteredBroker,
    RegisteredController,
    TopicImage,
    quota_key,
)
from tidegauge_controller.metadata.sorted_map import Draft
from tidegauge_controller.metadata.versions import LATEST_METADATA_VERSION, OLDEST_METADATA_VERSION

NO_LEADER_CHANGE = -2
NO_RECOVERY_CHANGE = -1
RECOVERED, RECOVERING = 0, 1
"""Values of ``leader_recovery_state`` (``LeaderRecoveryState``)."""


class UnreplayableRecord(ValueError):
    """A record that does not fit the image: its type is unknown, or it is about something that does not exist."""


class MetadataDelta:
    """An image with changes.

    Args:
        image: the image that the changes begin with. It stays as it is.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._offset = -1
        self._metadata_version = image.metadata_version
        self._features: dict[str, int] = dict(image.features)
        self._brokers: Draft[int, RegisteredBroker] = Draft(image.brokers)
        self._controllers: Draft[int, RegisteredController] = Draft(image.controllers)
        self._topics: Draft[str, TopicImage] = Draft(image.topics)
        self._topic_ids: Draft[str, str] = Draft(image.topic_ids)
        self._partitions: dict[str, Draft[int, PartitionRegistration]] = {}
        self._configs: Draft[ConfigResource, Mapping[str, str]] = Draft(image.configs)
        self._quotas: Draft[QuotaKey, Mapping[str, float]] = Draft(image.quotas)
        self._next_producer_id = image.next_producer_id
        self._access_lists: Draft[str, Binding] = Draft(image.access_lists)
        self._credentials: Draft[CredentialKey, ScramCredential] = Draft(image.credentials)
        self._handlers: Mapping[type[Any], Callable[[Any], None]] = {
            AccessControlEntryRecord: self._access_control_entry,
            BrokerRegistrationChangeRecord: self._broker_registration_change,
            ClearElrRecord: self._clear_elr,
            ClientQuotaRecord: self._client_quota,
            ConfigRecord: self._config,
            FeatureLevelRecord: self._feature_level,
            FenceBrokerRecord: self._fence_broker,
            NoOpRecord: self._nothing,
            PartitionChangeRecord: self._partition_change,
            PartitionRecord: self._partition,
            ProducerIdsRecord: self._producer_ids,
            RegisterBrokerRecord: self._register_broker,
            RegisterControllerRecord: self._register_controller,
            RemoveAccessControlEntryRecord: self._remove_access_control_entry,
            RemoveTopicRecord: self._remove_topic,
            RemoveUserScramCredentialRecord: self._remove_credential,
            TopicRecord: self._topic,
            UnfenceBrokerRecord: self._unfence_broker,
            UnregisterBrokerRecord: self._unregister_broker,
            UserScramCredentialRecord: self._credential,
            ZkMigrationStateRecord: self._nothing,
        }

    def replay(self, record: MetadataRecord, offset: int = -1) -> None:
        """Take in one record; ``offset`` is its offset in the log, or the snapshot's last one.

        Raises:
            UnreplayableRecord: it can't be replayed; nothing has changed.
        """
        handler = self._handlers.get(record.message.__class__)
        if handler is None or not 0 <= record.version <= record.type.last:
            raise UnreplayableRecord(
                f"{record.type.label} of version {record.version} at offset {offset} can't be replayed into the "
                "cluster's metadata: this node does not know such records"
            )
        self._offset = offset
        handler(record.message)

    def image(self, provenance: Provenance) -> MetadataImage:
        """Return the changed image; the delta may be changed further."""
        for topic_id, partitions in self._partitions.items():
            topic = self._topics[topic_id]
            self._topics[topic_id] = dataclasses.replace(topic, partitions=partitions.finished())
        self._partitions = {}
        return MetadataImage(
            self._metadata_version,
            dict(self._features),
            self._brokers.finished(),
            self._controllers.finished(),
            self._topics.finished(),
            self._topic_ids.finished(),
            self._configs.finished(),
            self._quotas.finished(),
            self._next_producer_id,
            self._access_lists.finished(),
            self._credentials.finished(),
            provenance,
        )

    def _nothing(self, record: object) -> None:
        """Replay a record that changes nothing."""

    def _feature_level(self, record: FeatureLevelRecord) -> None:
        if record.name == METADATA_VERSION:
            if not OLDEST_METADATA_VERSION <= record.feature_level <= LATEST_METADATA_VERSION:
                raise UnreplayableRecord(
                    f"Tried to apply metadata.version {record.feature_level} at offset {self._offset}, but this node "
                    f"only supports versions {OLDEST_METADATA_VERSION}-{LATEST_METADATA_VERSION}"
                )
            self._metadata_version = record.feature_level
        elif record.name != KRAFT_VERSION:  # a control record has it; Kafka 4.0 wrote such records too (KAFKA-18979)
            if record.feature_level:
                self._features[record.name] = record.feature_level
            else:
                self._features.pop(record.name, None)

    def _register_broker(self, record: RegisterBrokerRecord) -> None:
        cordoned = record.cordoned_log_dirs
        self._brokers[record.broker_id] = RegisteredBroker(
            record.broker_id,
            record.broker_epoch,
            topic_id_text(record.incarnation_id),
            _endpoints(record.end_points),
            _ranges(record.features),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            _texts(record.log_dirs),
            None if cordoned is None else _texts(cordoned),
            record.is_migrating_zk_broker,
            self._offset,
        )

    def _broker(self, record: object, broker_id: int, epoch: int) -> RegisteredBroker:
        broker = self._brokers.get(broker_id)
        if broker is None:
            raise UnreplayableRecord(f"{_label(record)} is about broker {broker_id}, which has not registered")
        if broker.epoch != epoch:
            raise UnreplayableRecord(
                f"{_label(record)} is about broker {broker_id} with epoch {epoch}, but its registration has epoch "
                f"{broker.epoch}"
            )
        return broker

    def _broker_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._broker(record, record.broker_id, record.broker_epoch)
        if record.fenced not in {-1, 0, 1} or record.in_controlled_shutdown not in {0, 1}:
            raise UnreplayableRecord(
                f"{_label(record)} at offset {self._offset} has fenced {record.fenced} and inControlledShutdown "
                f"{record.in_controlled_shutdown}; -1, 0 and 1 are known of the first, 0 and 1 of the second"
            )
        changed: dict[str, Any] = {}
        if record.fenced:
            changed["fenced"] = record.fenced == 1
        if record.in_controlled_shutdown:
            changed["in_controlled_shutdown"] = True
        if record.log_dirs:
            changed["log_dirs"] = _texts(record.log_dirs)
        if record.cordoned_log_dirs is not None:
            changed["cordoned_log_dirs"] = _texts(record.cordoned_log_dirs)
        self._brokers[broker.broker_id] = dataclasses.replace(broker, **changed)

    def _fence_broker(self, record: FenceBrokerRecord) -> None:
        broker = self._broker(record, record.id, record.epoch)
        self._brokers[record.id] = dataclasses.replace(broker, fenced=True)

    def _unfence_broker(self, record: UnfenceBrokerRecord) -> None:
        broker = self._broker(record, record.id, record.epoch)
        self._brokers[record.id] = dataclasses.replace(broker, fenced=False)

    def _unregister_broker(self, record: UnregisterBrokerRecord) -> None:
        self._broker(record, record.broker_id, record.broker_epoch)
        del self._brokers[record.broker_id]

    def _register_controller(self, record: RegisterControllerRecord) -> None:
        self._controllers[record.controller_id] = RegisteredController(
            record.controller_id,
            topic_id_text(record.incarnation_id),
            _endpoints(record.end_points),
            _ranges(record.features),
            record.zk_migration_ready,
        )

    def _topic(self, record: TopicRecord) -> None:
        topic_id = topic_id_text(record.topic_id)
        replaced = self._topics.get(topic_id)
        if replaced is not None and self._topic_ids.get(replaced.name) == topic_id:
            del self._topic_ids[replaced.name]
        self._partitions.pop(topic_id, None)
        self._topics[topic_id] = TopicImage(record.name, topic_id)
        self._topic_ids[record.name] = topic_id

    def _topic_of(self, record: object, topic_id: str) -> TopicImage:
        topic = self._topics.get(topic_id)
        if topic is None:
            raise UnreplayableRecord(f"{_label(record)} is about topic id {topic_id}, which does not exist")
        return topic

    def _partitions_of(self, topic: TopicImage) -> Draft[int, PartitionRegistration]:
        found = self._partitions.get(topic.topic_id)
        if found is None:
            found = self._partitions[topic.topic_id] = Draft(topic.partitions)
        return found

    def _partition(self, record: PartitionRecord) -> None:
        topic = self._topic_of(record, topic_id_text(record.topic_id))
        made = registration_of(record)
        self._partitions_of(topic)[record.partition_id] = made

    def _partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic_of(record, topic_id_text(record.topic_id))
        partitions = self._partitions_of(topic)
        old = partitions.get(record.partition_id)
        if old is None:
            raise UnreplayableRecord(
                f"{_label(record)} is about partition {topic.name}-{record.partition_id}, which does not exist"
            )
        partitions[record.partition_id] = merged(old, record)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic_of(record, topic_id_text(record.topic_id))
        self._partitions.pop(topic.topic_id, None)
        del self._topics[topic.topic_id]
        if self._topic_ids.get(topic.name) == topic.topic_id:
            del self._topic_ids[topic.name]
            del self._configs[ConfigResource(TOPIC, topic.name)]

    def _clear_elr(self, record: ClearElrRecord) -> None:
        if record.topic_name:
            topic_id = self._topic_ids.get(record.topic_name)
            if topic_id is None:
                raise UnreplayableRecord(f"{_label(record)} is about topic {record.topic_name}, which does not exist")
            topics = [self._topics[topic_id]]
        else:
            topics = list(self._topics.values())
        for topic in topics:
            draft = self._partitions.get(topic.topic_id)
            for partition, old in (topic.partitions if draft is None else draft).items():
                if old.elr or old.last_known_elr:
                    change = PartitionChangeRecord(eligible_leader_replicas=(), last_known_elr=())
                    self._partitions_of(topic)[partition] = merged(old, change)

    def _config(self, record: ConfigRecord) -> None:
        resource = ConfigResource(record.resource_type, record.resource_name)
        settings = dict(self._configs.get(resource, {}))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            self._configs[resource] = settings
        else:
            del self._configs[resource]

    def _client_quota(self, record: ClientQuotaRecord) -> None:
        key = quota_key({part.entity_type: part.entity_name for part in record.entity})
        values = dict(self._quotas.get(key, {}))
        if record.remove:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self._quotas[key] = values
        else:
            del self._quotas[key]

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self._next_producer_id = record.next_producer_id

    def _access_control_entry(self, record: AccessControlEntryRecord) -> None:
        pattern = Pattern(
            by_number(ResourceType, record.resource_type),
            record.resource_name,
            by_number(PatternType, record.pattern_type),
        )
        entry = Entry(
            record.principal,
            record.host,
            by_number(Operation, record.operation),
            by_number(Permission, record.permission_type),
        )
        binding = Binding(pattern, entry)
        if not binding.is_definite:
            raise UnreplayableRecord(
                f"{_label(record)} at offset {self._offset} has a type of resource {record.resource_type}, a "
                f"pattern type {record.pattern_type}, an operation {record.operation} and a permission "
                f"{record.permission_type}; not all of them are known"
            )
        self._access_lists[topic_id_text(record.id)] = binding

    def _remove_access_control_entry(self, record: RemoveAccessControlEntryRecord) -> None:
        entry_id = topic_id_text(record.id)
        if entry_id not in self._access_lists:
            raise UnreplayableRecord(f"{_label(record)} is about the entry {entry_id}, which does not exist")
        del self._access_lists[entry_id]

    def _credential(self, record: UserScramCredentialRecord) -> None:
        self._credentials[CredentialKey(record.mechanism, record.name)] = ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )

    def _remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        del self._credentials[CredentialKey(record.mechanism, record.name)]


def registration_of(record: PartitionRecord) -> PartitionRegistration:
    """Return the state of a new partition (PartitionRegistration's constructor from a record).

    Raises:
        UnreplayableRecord: the directories do not match the replicas.
    """
    replicas = tuple(record.replicas)
    directories = _texts(record.directories) if record.directories else (MIGRATING,) * len(replicas)
    _check_directories(record, replicas, directories)
    return PartitionRegistration(
        replicas,
        directories,
        tuple(record.isr),
        record.leader,
        record.leader_epoch,
        record.partition_epoch,
        tuple(record.removing_replicas),
        tuple(record.adding_replicas),
        record.leader_recovery_state == RECOVERING,
        tuple(record.eligible_leader_replicas or ()),
        tuple(record.last_known_elr or ()),
    )


def merged(old: PartitionRegistration, change: PartitionChangeRecord) -> PartitionRegistration:
    """Return a partition's state after a change (PartitionRegistration.merge).

    An empty list sets an empty list; None changes nothing. The leader epoch rises if the change names a leader, the
    same one too; the partition epoch always rises.

    Raises:
        UnreplayableRecord: the directories do not match the replicas.
    """
    replicas = _list_or(change.replicas, old.replicas)
    if change.directories:
        directories = _texts(change.directories)
    elif change.replicas is None:
        directories = old.directories
    else:
        known = dict(zip(old.replicas, old.directories, strict=True))
        directories = tuple([known.get(replica, UNASSIGNED) for replica in replicas])
    _check_directories(change, replicas, directories)
    names_leader = change.leader != NO_LEADER_CHANGE
    keeps_recovery = change.leader_recovery_state == NO_RECOVERY_CHANGE
    return PartitionRegistration(
        replicas,
        directories,
        _list_or(change.isr, old.isr),
        change.leader if names_leader else old.leader,
        old.leader_epoch + 1 if names_leader else old.leader_epoch,
        old.partition_epoch + 1,
        _list_or(change.removing_replicas, old.removing),
        _list_or(change.adding_replicas, old.adding),
        old.recovering if keeps_recovery else change.leader_recovery_state == RECOVERING,
        _list_or(change.eligible_leader_replicas, old.elr),
        _list_or(change.last_known_elr, old.last_known_elr),
    )


def _list_or(changed: Sequence[int] | None, old: tuple[int, ...]) -> tuple[int, ...]:
    return old if changed is None else tuple(changed)


def _check_directories(record: object, replicas: Sequence[int], directories: Sequence[str]) -> None:
    if len(replicas) != len(directories):
        raise UnreplayableRecord(
            f"{_label(record)} has {len(directories)} directories for the {len(replicas)} replicas {list(replicas)}"
        )


def _label(record: object) -> str:
    return type(record).__name__


def _texts(uuids: Iterable[bytes]) -> tuple[str, ...]:
    return tuple([topic_id_text(bytes(one)) for one in uuids])


def _endpoints(found: Iterable[Any]) -> tuple[NodeEndpoint, ...]:
    return tuple([NodeEndpoint(one.name, one.host, one.port, one.security_protocol) for one in found])


def _ranges(features: Iterable[Any]) -> dict[str, FeatureRange]:
    return {one.name: FeatureRange(one.min_supported_version, one.max_supported_version) for one in features}


def replayed(
    image: MetadataImage, records: Iterable[MetadataRecord], provenance: Provenance, first_offset: int
) -> MetadataImage:
    """Return an image after some records with consecutive offsets.

    Raises:
        UnreplayableRecord: one of them can't be replayed.
    """
    delta = MetadataDelta(image)
    for at, record in enumerate(records):
        delta.replay(record, first_offset + at)
    return delta.image(provenance)
