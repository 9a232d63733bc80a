"""Each event of Kafka's metadata log, decided again: the same records, field by field."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from tests.unit.metadata.golden_events import GoldenEvent, golden_events, provenance, texts

from tidegauge.cluster_metadata.access_lists import Filter
from tidegauge.kafka.kraft.record_types import MetadataRecord, encode_record
from tidegauge.kafka.metadata_records.config_record import ConfigRecord
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge.kafka.metadata_records.partition_record import PartitionRecord
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge_controller.metadata.decisions import brokers, partitions, reassignment, registration, topics
from tidegauge_controller.metadata.decisions.access_lists import create_entries, delete_entries
from tidegauge_controller.metadata.decisions.activation import activate, allocate_producer_ids
from tidegauge_controller.metadata.decisions.client_quotas import QuotaAlteration, alter_client_quotas
from tidegauge_controller.metadata.decisions.configs import Alteration, Operation, alter_configs
from tidegauge_controller.metadata.decisions.features import FeatureUpdate, UpgradeType, update_features
from tidegauge_controller.metadata.decisions.heartbeats import Heartbeats
from tidegauge_controller.metadata.decisions.view import ClusterView, ControllerSettings
from tidegauge_controller.metadata.delta import replayed
from tidegauge_controller.metadata.image import (
    EMPTY,
    ConfigResource,
    FeatureRange,
    NodeEndpoint,
    RegisteredController,
)

SETTINGS = ControllerSettings(100, "pQKNjKG6SIW1R46E3fVjJA")
AFTER_A_CLEAN_SHUTDOWN = {849, 966, 968}
"""Offsets of registrations of brokers that were stopped by SIGTERM before."""
PREFERRED_ELECTIONS = {454, 698, 743, 742, 1078}
UNCLEAN_ELECTIONS = {911}
REASSIGNMENTS = {1618: (3, 1, 2), 1661: (2, 1, 3)}
COMPLETED = {1622: (0, 1, 2, 3)}
"""The ISR that the leader proposed, where the change completed a reassignment."""
MAIN = golden_events("main")


def view_of(event: GoldenEvent) -> ClusterView:
    return ClusterView(event.image, SETTINGS, event.offset)


def fence(event: GoldenEvent) -> Sequence[MetadataRecord]:
    broker_id = event.records[-1].message.broker_id
    return brokers.fence(view_of(event), event.image.brokers[broker_id])


def beat(event: GoldenEvent, broker_id: int, **fields: Any) -> Sequence[MetadataRecord]:
    """Return what a heartbeat of a broker changes."""
    heartbeats = Heartbeats(SETTINGS.session_timeout_ms)
    heartbeats.begin(event.image, 0)
    epoch = event.image.brokers[broker_id].epoch
    request = brokers.HeartbeatRequest(broker_id, epoch, event.offset, **fields)
    return brokers.heartbeat(view_of(event), heartbeats, request).records


def unfence(event: GoldenEvent) -> Sequence[MetadataRecord]:
    return beat(event, event.records[0].message.broker_id)


def shutdown(event: GoldenEvent) -> Sequence[MetadataRecord]:
    return beat(event, event.records[0].message.broker_id, want_shut_down=True)


def cordon(event: GoldenEvent) -> Sequence[MetadataRecord]:
    broker_id = event.records[0].message.broker_id
    is_fenced = event.image.brokers[broker_id].fenced
    return beat(event, broker_id, want_fence=is_fenced, cordoned_log_dirs=())


def directories(event: GoldenEvent) -> Sequence[MetadataRecord]:
    change = event.records[-1].message
    remaining = [topic_id_text(one) for one in change.log_dirs]
    failed = tuple(one for one in event.image.brokers[change.broker_id].log_dirs if one not in remaining)
    return beat(event, change.broker_id, offline_log_dirs=failed)


def register(event: GoldenEvent) -> Sequence[MetadataRecord]:
    made = event.records[-1].message
    known = event.image.brokers.get(made.broker_id)
    is_clean = event.offset in AFTER_A_CLEAN_SHUTDOWN
    request = registration.RegistrationRequest(
        made.broker_id,
        SETTINGS.cluster_id,
        topic_id_text(made.incarnation_id),
        tuple(NodeEndpoint(one.name, one.host, one.port, one.security_protocol) for one in made.end_points),
        {one.name: FeatureRange(one.min_supported_version, one.max_supported_version) for one in made.features},
        made.rack,
        tuple(topic_id_text(one) for one in made.log_dirs),
        known.epoch if is_clean and known is not None else -1,
    )
    heartbeats = Heartbeats(SETTINGS.session_timeout_ms)
    return registration.register_broker(view_of(event), heartbeats, request, 1, 0).records


def controller(event: GoldenEvent) -> Sequence[MetadataRecord]:
    made = event.records[0].message
    found = RegisteredController(
        made.controller_id,
        topic_id_text(made.incarnation_id),
        tuple(NodeEndpoint(one.name, one.host, one.port, one.security_protocol) for one in made.end_points),
        {one.name: FeatureRange(one.min_supported_version, one.max_supported_version) for one in made.features},
    )
    return registration.register_controller(found).records


def bootstrap(event: GoldenEvent) -> Sequence[MetadataRecord]:
    assert event.image == EMPTY
    return activate(view_of(event), event.records[1:-2], in_transaction=False).records


class KnownId(Random):
    """Randomness that gives a topic the id that Kafka gave it."""

    def __init__(self, topic_id: bytes) -> None:
        super().__init__(0)
        self.topic_id = topic_id

    def randbytes(self, n: int) -> bytes:
        assert n == len(self.topic_id)
        return self.topic_id


def topic(event: GoldenEvent) -> Sequence[MetadataRecord]:
    made = event.records[0].message
    configs = [one.message for one in event.records if isinstance(one.message, ConfigRecord)]
    created = [one.message for one in event.records if isinstance(one.message, PartitionRecord)]
    request = topics.TopicToCreate(
        made.name,
        assignment=[(one.partition_id, one.replicas) for one in created],
        configs=[(one.name, one.value) for one in configs],
    )
    decision = topics.create_topics(view_of(event), [request], KnownId(made.topic_id))
    assert decision.atomic
    return decision.records


def name_of(event: GoldenEvent, record: MetadataRecord) -> str:
    return str(event.image.topics[topic_id_text(record.message.topic_id)].name)


def more_partitions(event: GoldenEvent) -> Sequence[MetadataRecord]:
    first = event.records[0]
    wanted = topics.PartitionsToAdd(
        name_of(event, first),
        first.message.partition_id + len(event.records),
        [one.message.replicas for one in event.records],
    )
    return topics.create_partitions(view_of(event), [wanted], Random(0)).records


def change(event: GoldenEvent) -> Sequence[MetadataRecord]:
    """Decide changes of partitions that no broker's registration caused."""
    view, changes = view_of(event), [one.message for one in event.records]
    ids = [(name_of(event, one), one.message.partition_id) for one in event.records]
    if event.offset in REASSIGNMENTS:
        ((name, partition),) = ids
        wanted = reassignment.Reassignment(name, partition, REASSIGNMENTS[event.offset])
        return reassignment.alter_reassignments(view, [wanted]).records
    if event.offset in PREFERRED_ELECTIONS | UNCLEAN_ELECTIONS:
        return partitions.elect_leaders(view, ids, unclean=event.offset in UNCLEAN_ELECTIONS).records
    if all(one.isr is None and one.directories is not None for one in changes):
        return assigned(event)
    records: list[MetadataRecord] = []
    for made in changes:
        topic_id = topic_id_text(made.topic_id)
        old = event.image.topics[topic_id].partitions[made.partition_id]
        isr = COMPLETED.get(event.offset, made.isr)
        proposal = partitions.IsrChange(
            topic_id,
            made.partition_id,
            old.leader_epoch,
            old.partition_epoch,
            tuple((member, event.image.brokers[member].epoch) for member in isr),
        )
        epoch = event.image.brokers[old.leader].epoch
        decision = partitions.alter_partition(view, old.leader, epoch, [proposal])
        expected = "NEW_LEADER_ELECTED" if event.offset in COMPLETED else "NONE"
        assert [one.error.name for one in decision.response] == [expected]
        records += decision.records
    return records


def assigned(event: GoldenEvent) -> Sequence[MetadataRecord]:
    """Decide where a broker has reported its replicas to be: the broker whose directory changed."""
    records: list[MetadataRecord] = []
    for one in event.records:
        topic_id, partition = topic_id_text(one.message.topic_id), one.message.partition_id
        old = event.image.topics[topic_id].partitions[partition]
        new = [topic_id_text(directory) for directory in one.message.directories]
        (at,) = [at for at, directory in enumerate(new) if directory != old.directories[at]]
        epoch = event.image.brokers[old.replicas[at]].epoch
        wanted = {new[at]: [(topic_id, partition)]}
        decision = partitions.assign_replicas_to_directories(view_of(event), old.replicas[at], epoch, wanted)
        records += decision.records
    return records


def config(event: GoldenEvent) -> Sequence[MetadataRecord]:
    made = event.records[0].message
    kind = Operation.DELETE if made.value is None else Operation.SET
    resource = ConfigResource(made.resource_type, made.resource_name)
    decision = alter_configs(view_of(event), {resource: {made.name: Alteration(kind, made.value)}})
    assert decision.response == {resource: None}
    return decision.records


def producer_ids(event: GoldenEvent) -> Sequence[MetadataRecord]:
    made = event.records[0].message
    return allocate_producer_ids(view_of(event), made.broker_id, made.broker_epoch).records


def remove_topic(event: GoldenEvent) -> Sequence[MetadataRecord]:
    return topics.delete_topics(view_of(event), [name_of(event, event.records[0])], []).records


def unregister(event: GoldenEvent) -> Sequence[MetadataRecord]:
    return brokers.unregister(view_of(event), event.records[0].message.broker_id).records


def features(event: GoldenEvent) -> Sequence[MetadataRecord]:
    levels = [one.message for one in event.records]
    current = event.image.features
    updates = [
        FeatureUpdate(
            one.name,
            one.feature_level,
            UpgradeType.SAFE_DOWNGRADE if one.feature_level < current.get(one.name, 0) else UpgradeType.UPGRADE,
        )
        for one in levels
    ]
    return update_features(view_of(event), updates, [100, 101, 102]).records


def quota(event: GoldenEvent) -> Sequence[MetadataRecord]:
    made = event.records[0].message
    entity = [(one.entity_type, one.entity_name) for one in made.entity]
    decision = alter_client_quotas(view_of(event), [QuotaAlteration(entity, [(made.key, made.value)])])
    assert decision.response == [None]
    return decision.records


def entry(event: GoldenEvent) -> Sequence[MetadataRecord]:
    (binding,) = replayed(event.image, event.records, provenance(event.offset), event.offset).access_lists.values()
    return create_entries(view_of(event), [binding], KnownId(event.records[0].message.id)).records


def entry_removed(event: GoldenEvent) -> Sequence[MetadataRecord]:
    decision = delete_entries(view_of(event), [Filter(principal="User:alice")])
    assert decision.response == [(None, list(event.image.access_lists.values()))]
    return decision.records


DECIDED: dict[str, Callable[[GoldenEvent], Sequence[MetadataRecord]]] = {
    "AccessControlEntryRecord": entry,
    "BeginTransactionRecord": bootstrap,
    "ClientQuotaRecord": quota,
    "ConfigRecord": config,
    "FeatureLevelRecord": features,
    "PartitionChangeRecord": change,
    "PartitionRecord": more_partitions,
    "ProducerIdsRecord": producer_ids,
    "RegisterControllerRecord": controller,
    "RemoveAccessControlEntryRecord": entry_removed,
    "RemoveTopicRecord": remove_topic,
    "TopicRecord": topic,
    "UnregisterBrokerRecord": unregister,
    "cordon": cordon,
    "directories": directories,
    "fence": fence,
    "register": register,
    "shutdown": shutdown,
    "unfence": unfence,
}
NOT_REPEATABLE = {"UserScramCredentialRecord"}
"""The salted password that a client sent is not in the log."""
EVENTS = [event for event in MAIN if event.kind not in NOT_REPEATABLE]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: f"{event.offset}-{event.kind}")
def test_an_event_of_kafkas_log_is_decided_alike(event: GoldenEvent) -> None:
    expected = [one for one in event.records if not isinstance(one.message, NoOpRecord)]
    decided = DECIDED[event.kind](event)
    assert texts(decided) == texts(expected)
    assert sorted(map(encoded, decided)) == sorted(map(encoded, expected))


def encoded(record: MetadataRecord) -> bytes:
    return encode_record(record.message, record.version)


@pytest.mark.parametrize("offset", [116, 134])
def test_an_upgrade_of_a_release_is_decided_alike(offset: int) -> None:
    """From 3.9 to 4.0 and from 4.0 to 4.3: before eligible leader replicas comes the setting that they need."""
    (event,) = [one for one in golden_events("upgrade") if one.offset == offset]
    expected = [one for one in event.records if not isinstance(one.message, NoOpRecord)]
    levels = [one.message for one in expected if one.type.label == "FEATURE_LEVEL_RECORD"]
    updates = [FeatureUpdate(one.name, one.feature_level) for one in levels]
    supported = event.image.controllers[1].features
    view = ClusterView(event.image, ControllerSettings(1, "another"), event.offset)
    records = update_features(view, updates, [1], supported).records
    assert [texts([one]) for one in records] == [texts([one]) for one in expected]
