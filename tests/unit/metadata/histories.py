"""Random histories of valid metadata records, each made with the image before it in view."""

from __future__ import annotations

from random import Random
from typing import Any

from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.access_control_entry_record import AccessControlEntryRecord
from tidegauge.kafka.metadata_records.broker_registration_change_record import BrokerRegistrationChangeRecord
from tidegauge.kafka.metadata_records.clear_elr_record import ClearElrRecord
from tidegauge.kafka.metadata_records.client_quota_record import ClientQuotaRecord, EntityData
from tidegauge.kafka.metadata_records.config_record import ConfigRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge.kafka.metadata_records.partition_change_record import PartitionChangeRecord
from tidegauge.kafka.metadata_records.partition_record import PartitionRecord
from tidegauge.kafka.metadata_records.producer_ids_record import ProducerIdsRecord
from tidegauge.kafka.metadata_records.register_broker_record import (
    BrokerEndpoint,
    BrokerFeature,
    RegisterBrokerRecord,
)
from tidegauge.kafka.metadata_records.register_controller_record import RegisterControllerRecord
from tidegauge.kafka.metadata_records.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from tidegauge.kafka.metadata_records.remove_topic_record import RemoveTopicRecord
from tidegauge.kafka.metadata_records.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from tidegauge.kafka.metadata_records.topic_record import TopicRecord
from tidegauge.kafka.metadata_records.unregister_broker_record import UnregisterBrokerRecord
from tidegauge.kafka.metadata_records.user_scram_credential_record import UserScramCredentialRecord
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_controller.metadata.delta import replayed
from tidegauge_controller.metadata.image import EMPTY, MetadataImage, Provenance
from tidegauge_controller.metadata.records import made

BROKERS = range(4)
NAMES = ("a", "b", "c")
FEATURE = "group.version"


def history(seed: int, count: int) -> list[MetadataRecord]:
    """Return ``count`` records of a cluster at metadata.version 30."""
    random = Random(seed)
    records = [made(FeatureLevelRecord("metadata.version", 30))]
    image = replayed(EMPTY, records, Provenance(), 0)
    while len(records) < count:
        message, version = _message(image, random)
        record = made(message, version)
        image = replayed(image, [record], Provenance(), len(records))
        records.append(record)
    return records


def _message(image: MetadataImage, random: Random) -> tuple[Any, int]:
    """Return a message that fits the image, and its version."""
    brokers, topics = list(image.brokers.values()), list(image.topics.values())
    kind = random.choice(("broker", "topic", "partition", "partition", "partition", "config", "other", "other"))
    if kind == "broker":
        if not brokers or random.random() < 0.4:
            return _registration(random), 4
        broker = random.choice(brokers)
        if random.random() < 0.2:
            return UnregisterBrokerRecord(broker.broker_id, broker.epoch), 0
        cordoned = random.choice((None, [], [_uuid(random)]))
        change = BrokerRegistrationChangeRecord(
            broker.broker_id,
            broker.epoch,
            random.choice((-1, 0, 1)),
            random.choice((0, 1)),
            random.choice(([], [_uuid(random)])),
            cordoned,
        )
        return change, 3
    if kind == "topic" or not topics:
        if topics and random.random() < 0.4:
            return RemoveTopicRecord(topic_id_bytes(random.choice(topics).topic_id)), 0
        free = [name for name in NAMES if name not in image.topic_ids]
        return (TopicRecord(random.choice(free), _uuid(random)), 0) if free else (NoOpRecord(), 0)
    if kind == "partition":
        topic = random.choice(topics)
        topic_id = topic_id_bytes(topic.topic_id)
        if not topic.partitions or random.random() < 0.2:
            return _partition(topic_id, len(topic.partitions), random), 2
        return _partition_change(topic_id, random.choice(list(topic.partitions)), random), 2
    if kind == "config":
        name = random.choice([*NAMES, ""])
        resource = 2 if name in image.topic_ids else 4
        value = random.choice((None, "1", "2"))
        return ConfigRecord(resource, name if resource == 2 else "", random.choice(("x", "y")), value), 0
    return _other(image, random), 0


def _registration(random: Random) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=random.choice(BROKERS),
        incarnation_id=_uuid(random),
        broker_epoch=random.randrange(1000),
        end_points=[BrokerEndpoint("PLAINTEXT", "localhost", 9092, 0)],
        features=[BrokerFeature("metadata.version", 7, 30)],
        rack=random.choice((None, "r1")),
        fenced=random.random() < 0.5,
        log_dirs=[_uuid(random)],
        cordoned_log_dirs=random.choice((None, [])),
    )


def _partition(topic_id: bytes, partition: int, random: Random) -> PartitionRecord:
    replicas = random.sample(BROKERS, 3)
    return PartitionRecord(
        partition,
        topic_id,
        replicas,
        replicas[:2],
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[_uuid(random) for _ in replicas],
        eligible_leader_replicas=random.choice((None, [], replicas[2:])),
    )


def _partition_change(topic_id: bytes, partition: int, random: Random) -> PartitionChangeRecord:
    replicas = random.choice((None, random.sample(BROKERS, 3), random.sample(BROKERS, 2)))
    has_directories = replicas is not None and random.random() < 0.5
    return PartitionChangeRecord(
        partition,
        topic_id,
        random.choice((None, [], [1, 2])),
        random.choice((-2, -2, -1, 1)),
        replicas,
        random.choice((None, [], [3])),
        random.choice((None, [], [0])),
        random.choice((-1, 0, 1)),
        [_uuid(random) for _ in replicas or ()] if has_directories else None,
        random.choice((None, [], [0])),
        random.choice((None, [], [0])),
    )


def _other(image: MetadataImage, random: Random) -> Any:
    entries, topics = list(image.access_lists), list(image.topic_ids)
    entity = [EntityData("user", random.choice((None, "alice")))]
    choices = [
        FeatureLevelRecord(FEATURE, random.choice((0, 1))),
        FeatureLevelRecord("kraft.version", 1),
        ProducerIdsRecord(0, 0, image.next_producer_id + 1000),
        ClientQuotaRecord(entity, random.choice(("x", "y")), random.random(), random.random() < 0.4),
        UserScramCredentialRecord(random.choice(NAMES), 1, b"salt", b"stored", b"server", 4096),
        RemoveUserScramCredentialRecord(random.choice(NAMES), 1),
        AccessControlEntryRecord(_uuid(random), 2, random.choice(NAMES), 3, "User:a", "*", 3, 3),
        RegisterControllerRecord(100, _uuid(random)),
        ClearElrRecord(random.choice([*topics, ""])),
        NoOpRecord(),
    ]
    if entries:
        choices.append(RemoveAccessControlEntryRecord(topic_id_bytes(random.choice(entries))))
    return random.choice(choices)


def _uuid(random: Random) -> bytes:
    return random.randbytes(16)
