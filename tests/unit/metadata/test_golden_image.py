"""Images of a metadata log that Apache Kafka wrote, compared with the snapshot that Kafka made of it."""

from __future__ import annotations

import pytest
from tests.unit.metadata.kafka_log import kafka_log, kafka_snapshot

from tidegauge_controller.metadata.delta import MetadataDelta, UnreplayableRecord
from tidegauge_controller.metadata.image import EMPTY, TOPIC, ConfigResource, Provenance
from tidegauge_controller.metadata.loader import MetadataLoader
from tidegauge_controller.metadata.snapshot import snapshot_records
from tidegauge_controller.metadata.sorted_map import REMOVED

SNAPSHOT_END = 2621


def loaded(name: str, end: int) -> MetadataLoader:
    loader = MetadataLoader()
    for batch in kafka_log(name):
        if batch.base_offset >= end:
            break
        assert loader.load(batch.records, batch.base_offset, batch.epoch, 0) == []
    return loader


def test_the_image_of_kafkas_log_is_that_of_kafkas_snapshot() -> None:
    """But for the settings of topic u1: it was created and deleted within one delta of the controller's start.

    Kafka's ConfigurationsDelta then keeps them, so its snapshot has them 900 offsets after the RemoveTopicRecord.
    """
    image = loaded("main", SNAPSHOT_END).image
    snapshot = MetadataLoader()
    assert snapshot.load_snapshot(kafka_snapshot(), Provenance(SNAPSHOT_END - 1, 4, 0)) == []
    expected = snapshot.image
    returned = ConfigResource(TOPIC, "u1")
    assert expected.configs[returned] == {"min.insync.replicas": "1"}
    assert returned not in image.configs
    for part in image.__slots__:
        theirs = expected.configs.updated({returned: REMOVED}) if part == "configs" else getattr(expected, part)
        if part != "provenance":
            assert getattr(image, part) == theirs, part


def test_the_snapshot_of_kafkas_snapshot_has_its_records() -> None:
    """Record by record and version by version; the order of features, topics and settings follows Kafka's hash maps."""
    snapshot = MetadataLoader()
    snapshot.load_snapshot(kafka_snapshot(), Provenance(SNAPSHOT_END - 1, 4, 0))
    written = [(record.type.key, record.version) for record in snapshot_records(snapshot.image)]
    assert sorted(written) == sorted((record.type.key, record.version) for record in kafka_snapshot())
    phases = [record.type.label for record in snapshot_records(snapshot.image)]
    assert list(dict.fromkeys(phases)) == list(dict.fromkeys(record.type.label for record in kafka_snapshot()))
    again = MetadataLoader()
    again.load_snapshot(snapshot_records(snapshot.image), Provenance())
    assert again.image == snapshot.image


def test_the_whole_log_is_replayed() -> None:
    image = loaded("main", 1 << 62).image
    assert {topic.name for topic in image.topics.values()} == {"t1", "a1", "d1", "cc.d", "s1"}
    assert image.features["eligible.leader.replicas.version"] == 1
    assert (image.provenance.offset, image.provenance.epoch) == (2887, 6)
    shrunk = image.topic_named("s1")
    assert shrunk is not None
    state = shrunk.partitions[0]
    assert (state.isr, state.elr, state.leader_epoch, state.partition_epoch) == ((1, 2), (), 0, 2)


def test_a_level_of_metadata_version_below_that_of_kafka_4_is_refused() -> None:
    """Apache Kafka 4.3 reads levels from 7 on; the log that was formatted at release 3.9 begins with level 21."""
    bootstrap = kafka_log("upgrade")[0]
    record = bootstrap.records[1]
    with pytest.raises(UnreplayableRecord, match="this node only supports versions 25-30"):
        MetadataDelta(EMPTY).replay(record, bootstrap.base_offset + 1)
