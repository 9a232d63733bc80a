"""An image as the records of a snapshot, in Kafka's order.

Features (metadata.version first), brokers, controllers, topics with their partitions, settings, client quotas,
producer ids, access control lists, SCRAM credentials. kraft.version is a control record and so not among them. The
owner of the last block of producer ids is not kept.
Source: ``MetadataImage.write`` and ``ImageWriterOptions``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tidegauge.cluster_metadata.access_lists import Binding
from tidegauge.kafka.kraft.features import METADATA_VERSION
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.access_control_entry_record import AccessControlEntryRecord
from tidegauge.kafka.metadata_records.client_quota_record import ClientQuotaRecord, EntityData
from tidegauge.kafka.metadata_records.config_record import ConfigRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.partition_record import PartitionRecord
from tidegauge.kafka.metadata_records.producer_ids_record import ProducerIdsRecord
from tidegauge.kafka.metadata_records.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from tidegauge.kafka.metadata_records.register_controller_record import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from tidegauge.kafka.metadata_records.topic_record import TopicRecord
from tidegauge.kafka.metadata_records.user_scram_credential_record import UserScramCredentialRecord
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_controller.metadata.delta import RECOVERED, RECOVERING
from tidegauge_controller.metadata.image import (
    MetadataImage,
    NodeEndpoint,
    PartitionRegistration,
    RegisteredBroker,
    RegisteredController,
    quota_entity,
)
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.versions import (
    PARTITION_VERSION,
    register_broker_version,
    supports_cordoned_directories,
)


def snapshot_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """Yield the records of an image's snapshot; none for an image without metadata.version."""
    if image.metadata_version is None:
        return
    yield made(FeatureLevelRecord(METADATA_VERSION, image.metadata_version))
    for name in sorted(image.features):
        yield made(FeatureLevelRecord(name, image.features[name]))
    for broker in image.brokers.values():
        yield broker_record(broker, image.metadata_version)
    for controller in image.controllers.values():
        yield controller_record(controller)
    for topic in image.topics.values():
        yield made(TopicRecord(topic.name, topic_id_bytes(topic.topic_id)))
        for partition, registration in topic.partitions.items():
            yield partition_record(topic.topic_id, partition, registration)
    for (kind, name), settings in image.configs.items():
        for key in sorted(settings):
            yield made(ConfigRecord(kind, name, key, settings[key]))
    yield from _small_parts(image)


def _small_parts(image: MetadataImage) -> Iterator[MetadataRecord]:
    for quota, values in image.quotas.items():
        entity = [EntityData(kind, name) for kind, name in quota_entity(quota).items()]
        for key in sorted(values):
            yield made(ClientQuotaRecord(entity, key, values[key]))
    if image.next_producer_id > 0:
        yield made(ProducerIdsRecord(-1, -1, image.next_producer_id))
    for entry_id, binding in image.access_lists.items():
        yield entry_record(entry_id, binding)
    for (mechanism, user), one in image.credentials.items():
        yield made(UserScramCredentialRecord(user, mechanism, one.salt, one.stored_key, one.server_key, one.iterations))


def broker_record(broker: RegisteredBroker, metadata_version: int) -> MetadataRecord:
    """Return a broker's registration as a record (BrokerRegistration.toRecord)."""
    cordoned = broker.cordoned_log_dirs
    has_cordoned = cordoned is not None and supports_cordoned_directories(metadata_version)
    return made(
        RegisterBrokerRecord(
            broker.broker_id,
            broker.is_migrating_zk_broker,
            topic_id_bytes(broker.incarnation_id),
            broker.epoch,
            [BrokerEndpoint(*one) for one in broker.endpoints],
            [BrokerFeature(name, *levels) for name, levels in broker.features.items()],
            broker.rack,
            broker.fenced,
            broker.in_controlled_shutdown,
            uuids(broker.log_dirs),
            uuids(cordoned or ()) if has_cordoned else None,
        ),
        register_broker_version(metadata_version),
    )


def controller_record(controller: RegisteredController) -> MetadataRecord:
    """Return a controller's registration as a record (ControllerRegistration.toRecord)."""
    return made(
        RegisterControllerRecord(
            controller.controller_id,
            topic_id_bytes(controller.incarnation_id),
            controller.zk_migration_ready,
            [_controller_endpoint(one) for one in controller.endpoints],
            [ControllerFeature(name, *levels) for name, levels in controller.features.items()],
        )
    )


def _controller_endpoint(one: NodeEndpoint) -> ControllerEndpoint:
    return ControllerEndpoint(*one)


def partition_record(topic_id: str, partition: int, state: PartitionRegistration) -> MetadataRecord:
    """Return a partition's record (PartitionRegistration.toRecord); empty ELR lists are null."""
    return made(
        PartitionRecord(
            partition_id=partition,
            topic_id=topic_id_bytes(topic_id),
            replicas=state.replicas,
            isr=state.isr,
            removing_replicas=state.removing,
            adding_replicas=state.adding,
            leader=state.leader,
            leader_recovery_state=RECOVERING if state.recovering else RECOVERED,
            leader_epoch=state.leader_epoch,
            partition_epoch=state.partition_epoch,
            directories=uuids(state.directories),
            eligible_leader_replicas=state.elr or None,
            last_known_elr=state.last_known_elr or None,
        ),
        PARTITION_VERSION,
    )


def uuids(texts: Iterable[str]) -> Sequence[bytes]:
    """Return UUIDs as records have them."""
    return [topic_id_bytes(text) for text in texts]


def entry_record(entry_id: str, binding: Binding) -> MetadataRecord:
    """Return an entry as a record."""
    pattern, entry = binding
    return made(
        AccessControlEntryRecord(
            topic_id_bytes(entry_id),
            int(pattern.kind),
            pattern.name,
            int(pattern.pattern_type),
            entry.principal,
            entry.host,
            int(entry.operation),
            int(entry.permission),
        )
    )
