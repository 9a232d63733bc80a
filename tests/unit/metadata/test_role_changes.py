"""Role changes of a broker come from two images, however the second one was reached."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.metadata.histories import history

from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.partition_change_record import PartitionChangeRecord
from tidegauge.kafka.metadata_records.partition_record import PartitionRecord
from tidegauge.kafka.metadata_records.remove_topic_record import RemoveTopicRecord
from tidegauge.kafka.metadata_records.topic_record import TopicRecord
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState, ReplicaStop
from tidegauge_controller.metadata.delta import replayed
from tidegauge_controller.metadata.image import EMPTY, MetadataImage, Provenance
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.role_changes import RoleChanges, role_changes
from tidegauge_controller.metadata.snapshot import snapshot_records

TOPIC_ID, OTHER_ID = bytes(range(16)), bytes(range(16, 32))
DIRECTORIES = [bytes([one]) * 16 for one in (1, 2)]
T0 = TopicPartition("t", 0)


def image(*records: MetadataRecord, base: MetadataImage = EMPTY) -> MetadataImage:
    return replayed(base, records, Provenance(9, 5, 0), 0)


def topic(topic_id: bytes = TOPIC_ID, leader: int = 1) -> list[MetadataRecord]:
    partition = PartitionRecord(
        0, topic_id, [1, 2], [1, 2], leader=leader, leader_epoch=3, partition_epoch=4, directories=DIRECTORIES
    )
    return [made(FeatureLevelRecord("metadata.version", 30)), made(TopicRecord("t", topic_id)), made(partition, 2)]


def change(**fields: object) -> MetadataRecord:
    return made(PartitionChangeRecord(0, TOPIC_ID, **fields), 2)  # type: ignore[arg-type] # fields of any record


OLD = image(*topic())


def test_a_new_partition_is_led_or_followed() -> None:
    expected = PartitionState(
        T0, topic_id_text(TOPIC_ID), 5, 1, 3, (1, 2), 4, (1, 2), directory=topic_id_text(DIRECTORIES[0])
    )
    found = role_changes(1, EMPTY, OLD)
    assert found == RoleChanges([], [expected], {T0}, [], {T0: topic_id_text(DIRECTORIES[0])})
    follower = role_changes(2, EMPTY, OLD)
    assert (follower.leaders, follower.elected, len(follower.followers)) == ([], set(), 1)
    assert follower.followers[0].directory == topic_id_text(DIRECTORIES[1])
    assert not role_changes(3, EMPTY, OLD)


def test_a_leader_whose_epoch_stays_is_not_elected_again() -> None:
    """TopicDelta.localChanges: any change of the partition epoch is reported, an election only with a new epoch."""
    shrunk = role_changes(1, OLD, image(change(isr=[1]), base=OLD))
    assert ([one.isr for one in shrunk.leaders], shrunk.elected, shrunk.directories) == ([(1,)], set(), {})
    named = role_changes(1, OLD, image(change(leader=1), base=OLD))
    assert named.elected == {T0}


def test_a_partition_without_a_leader_is_followed() -> None:
    lost = role_changes(1, OLD, image(change(leader=-1, isr=[]), base=OLD))
    assert [one.leader for one in lost.followers] == [-1]
    assert not lost.leaders


def test_two_changes_in_one_step_are_reported_as_one() -> None:
    new = image(change(leader=2), change(leader=1), base=OLD)
    found = role_changes(1, OLD, new)
    assert [(one.leader_epoch, one.partition_epoch) for one in found.leaders] == [(5, 6)]


def test_a_replica_that_leaves_its_assignment_is_deleted() -> None:
    found = role_changes(1, OLD, image(change(replicas=[2, 3], leader=2), base=OLD))
    assert found == RoleChanges([ReplicaStop(T0, None, delete=True)])
    assert role_changes(1, OLD, image(made(RemoveTopicRecord(TOPIC_ID)), base=OLD)) == found


def test_a_topic_that_was_created_again_is_deleted_first() -> None:
    new = image(made(RemoveTopicRecord(TOPIC_ID)), *topic(OTHER_ID), base=OLD)
    found = role_changes(1, OLD, new)
    assert found.deletions == [ReplicaStop(T0, None, delete=True)]
    assert [one.topic_id for one in found.leaders] == [topic_id_text(OTHER_ID)]


def test_a_change_of_the_directory_is_reported() -> None:
    moved = [bytes([7]) * 16, DIRECTORIES[1]]
    found = role_changes(1, OLD, image(change(directories=moved), base=OLD))
    assert found.directories == {T0: topic_id_text(moved[0])}
    assert not role_changes(2, OLD, image(change(directories=moved), base=OLD)).directories


class Hosted:
    """The replicas of a broker that carries out what it is given."""

    def __init__(self) -> None:
        self.roles: dict[TopicPartition, tuple[str, PartitionState]] = {}

    def apply(self, changes: RoleChanges) -> None:
        for stop in changes.deletions:
            del self.roles[stop.topic_partition]
        for state in changes.leaders:
            self.roles[state.topic_partition] = ("leader", state)
        for state in changes.followers:
            self.roles[state.topic_partition] = ("follower", state)


@pytest.mark.parametrize("seed", range(30))
def test_a_broker_leads_exactly_what_its_image_says_however_it_was_reached(seed: int) -> None:
    """In random steps, some of them a snapshot in place of records, each broker ends with the roles of the image.

    Kafka's brokers may go on leading what a snapshot took from them (KAFKA-16892).
    """
    random, records = Random(seed), history(seed, 150)
    brokers = {broker_id: Hosted() for broker_id in range(4)}
    known, begin = EMPTY, 0
    while begin < len(records):
        end = begin + random.randint(1, 30)
        new = replayed(known, records[begin:end], Provenance(), begin)
        if random.random() < 0.3:
            new = replayed(EMPTY, snapshot_records(new), Provenance(), 0)
        for broker_id, hosted in brokers.items():
            hosted.apply(role_changes(broker_id, known, new))
        known, begin = new, end
    for broker_id, hosted in brokers.items():
        at_once = Hosted()
        at_once.apply(role_changes(broker_id, EMPTY, known))
        assert hosted.roles == at_once.roles
