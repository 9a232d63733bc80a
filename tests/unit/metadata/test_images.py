"""Images: equal however their records are grouped, cheap to change, and closed to records that do not fit."""

from __future__ import annotations

from random import Random

import pytest
from tests.unit.metadata.histories import history

from tidegauge.kafka.kraft.record_types import MetadataRecord, RecordType
from tidegauge.kafka.metadata_records.access_control_entry_record import AccessControlEntryRecord
from tidegauge.kafka.metadata_records.begin_transaction_record import BeginTransactionRecord
from tidegauge.kafka.metadata_records.broker_registration_change_record import BrokerRegistrationChangeRecord
from tidegauge.kafka.metadata_records.clear_elr_record import ClearElrRecord
from tidegauge.kafka.metadata_records.config_record import ConfigRecord
from tidegauge.kafka.metadata_records.delegation_token_record import DelegationTokenRecord
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.fence_broker_record import FenceBrokerRecord
from tidegauge.kafka.metadata_records.partition_change_record import PartitionChangeRecord
from tidegauge.kafka.metadata_records.partition_record import PartitionRecord
from tidegauge.kafka.metadata_records.register_broker_record import RegisterBrokerRecord
from tidegauge.kafka.metadata_records.remove_access_control_entry_record import RemoveAccessControlEntryRecord
from tidegauge.kafka.metadata_records.remove_topic_record import RemoveTopicRecord
from tidegauge.kafka.metadata_records.topic_record import TopicRecord
from tidegauge.kafka.metadata_records.unfence_broker_record import UnfenceBrokerRecord
from tidegauge.kafka.metadata_records.unregister_broker_record import UnregisterBrokerRecord
from tidegauge.kafka.topic_ids import topic_id_text
from tidegauge_controller.metadata.delta import MetadataDelta, UnreplayableRecord, merged, registration_of, replayed
from tidegauge_controller.metadata.image import EMPTY, UNASSIGNED, MetadataImage, Provenance, RegisteredBroker
from tidegauge_controller.metadata.records import made
from tidegauge_controller.metadata.snapshot import snapshot_records
from tidegauge_controller.metadata.sorted_map import REMOVED, SortedMap, differences

TOPIC_ID = bytes(range(16))
DIRECTORIES = [bytes([one]) * 16 for one in (1, 2, 3)]


def one_by_one(records: list[MetadataRecord]) -> MetadataImage:
    image = EMPTY
    for offset, record in enumerate(records):
        image = replayed(image, [record], Provenance(offset, 1, 0), offset)
    return image


@pytest.mark.parametrize("seed", range(40))
def test_an_image_does_not_depend_on_the_grouping_of_its_records(seed: int) -> None:
    """Record by record, in one delta, in random groups, and from a snapshot of a prefix: four equal images."""
    records = history(seed, 150)
    expected = one_by_one(records)
    assert replayed(EMPTY, records, Provenance(), 0) == expected
    random = Random(seed)
    image, begin = EMPTY, 0
    while begin < len(records):
        end = begin + random.randint(1, 40)
        image = replayed(image, records[begin:end], Provenance(), begin)
        begin = end
    assert image == expected
    border = random.randrange(1, len(records))
    prefix = replayed(EMPTY, records[:border], Provenance(), 0)
    restored = replayed(EMPTY, snapshot_records(prefix), Provenance(), 0)
    assert restored == prefix
    assert replayed(restored, records[border:], Provenance(), border) == expected


def test_a_topic_that_is_created_and_deleted_in_one_delta_leaves_no_settings() -> None:
    """Kafka's ConfigurationsDelta.replay(RemoveTopicRecord) leaves them, so that a restart brings them back."""
    records = [
        made(FeatureLevelRecord("metadata.version", 30)),
        made(TopicRecord("y", TOPIC_ID)),
        made(ConfigRecord(2, "y", "retention.ms", "12345")),
        made(RemoveTopicRecord(TOPIC_ID)),
    ]
    assert len(replayed(EMPTY, records, Provenance(), 0).configs) == 0


def test_a_name_leads_to_one_topic_whatever_a_log_says() -> None:
    """No controller gives an id two names, or a name two ids; a log that does leaves no name without its topic."""
    other = bytes(range(16, 32))
    records = [made(FeatureLevelRecord("metadata.version", 30))]
    for name, topic_id, names in (
        ("a", TOPIC_ID, {"a": TOPIC_ID}),
        ("a", other, {"a": other}),
        ("c", TOPIC_ID, {"a": other, "c": TOPIC_ID}),
        ("d", TOPIC_ID, {"a": other, "d": TOPIC_ID}),
    ):
        records.append(made(TopicRecord(name, topic_id)))
        image = replayed(EMPTY, records, Provenance(), 0)
        assert dict(image.topic_ids) == {key: topic_id_text(value) for key, value in names.items()}
        assert image.topics[topic_id_text(topic_id)].name == name


def test_a_change_of_one_partition_of_ten_thousand_copies_one_block() -> None:
    records = [made(FeatureLevelRecord("metadata.version", 30)), made(TopicRecord("t", TOPIC_ID))]
    records += [made(new_partition(partition), 2) for partition in range(10_000)]
    old = replayed(EMPTY, records, Provenance(), 0)
    change = made(PartitionChangeRecord(5000, TOPIC_ID, isr=[1]), 2)
    new = replayed(old, [change], Provenance(), 0)
    before, after = (image.topics[topic_id_text(TOPIC_ID)].partitions for image in (old, new))
    topics = differences(old.topics, new.topics)
    assert len(list(topics)) == 1
    assert len({id(block) for block in after.blocks} - {id(block) for block in before.blocks}) == 1
    assert [key for key, _, _ in differences(before, after)] == [5000]
    for part in ("brokers", "topic_ids", "configs", "access_lists"):
        assert getattr(new, part) is getattr(old, part)


def new_partition(partition: int = 0) -> PartitionRecord:
    return PartitionRecord(
        partition, TOPIC_ID, [1, 2], [1, 2], leader=1, leader_epoch=0, partition_epoch=0, directories=DIRECTORIES[:2]
    )


def with_topic() -> MetadataImage:
    registration = RegisterBrokerRecord(1, broker_epoch=7)
    records = [
        made(FeatureLevelRecord("metadata.version", 30)),
        made(registration, 4),
        made(TopicRecord("t", TOPIC_ID)),
        made(new_partition(), 2),
    ]
    return replayed(EMPTY, records, Provenance(), 0)


REFUSED = {
    "an unknown type": (MetadataRecord(RecordType(99, "StrangeRecord", 0), 0, object()), "does not know such records"),
    "an unknown version": (made(TopicRecord("u", TOPIC_ID), 1), "TOPIC_RECORD of version 1"),
    "a delegation token": (made(DelegationTokenRecord()), "DELEGATION_TOKEN_RECORD of version 0"),
    "a bare transaction": (made(BeginTransactionRecord()), "BEGIN_TRANSACTION_RECORD of version 0"),
    "metadata.version 31": (made(FeatureLevelRecord("metadata.version", 31)), "only supports versions 25-30"),
    "a fence of no broker": (made(FenceBrokerRecord(9, 1)), "broker 9, which has not registered"),
    "a fence of another epoch": (made(FenceBrokerRecord(1, 8)), "its registration has epoch 7"),
    "an unfence of another epoch": (made(UnfenceBrokerRecord(1, 8)), "its registration has epoch 7"),
    "a change of another epoch": (made(BrokerRegistrationChangeRecord(1, 8, 1)), "its registration has epoch 7"),
    "a change that is unknown": (made(BrokerRegistrationChangeRecord(1, 7, 2)), "has fenced 2"),
    "an end of another epoch": (made(UnregisterBrokerRecord(1, 8)), "its registration has epoch 7"),
    "a partition of no topic": (made(PartitionRecord(0, bytes(16)), 2), "which does not exist"),
    "directories of others": (made(PartitionRecord(1, TOPIC_ID, [1], directories=DIRECTORIES), 2), "3 directories"),
    "a change of no partition": (made(PartitionChangeRecord(1, TOPIC_ID), 2), "partition t-1, which does not exist"),
    "a change of no topic": (made(PartitionChangeRecord(0, bytes(16)), 2), "which does not exist"),
    "other directories": (made(PartitionChangeRecord(0, TOPIC_ID, directories=DIRECTORIES), 2), "the 2 replicas"),
    "no topic to remove": (made(RemoveTopicRecord(bytes(16))), "which does not exist"),
    "no topic to clear": (made(ClearElrRecord("u")), "topic u, which does not exist"),
    "an unknown operation": (made(AccessControlEntryRecord(TOPIC_ID, 2, "t", 3, "User:a", "*", 99, 3)), "are known"),
    "no entry to remove": (made(RemoveAccessControlEntryRecord(TOPIC_ID)), "which does not exist"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_record_that_does_not_fit_is_refused_and_changes_nothing(name: str) -> None:
    record, sentence = REFUSED[name]
    image = with_topic()
    delta = MetadataDelta(image)
    with pytest.raises(UnreplayableRecord, match=sentence):
        delta.replay(record, 10)
    assert delta.image(Provenance()) == image


def test_a_change_that_names_a_leader_raises_the_leader_epoch_even_for_the_same_leader() -> None:
    """PartitionRegistration.merge: that is how an epoch is raised while the leader stays."""
    old = registration_of(new_partition())
    same = merged(old, PartitionChangeRecord(isr=[1]))
    assert (same.leader_epoch, same.partition_epoch, same.isr) == (0, 1, (1,))
    named = merged(old, PartitionChangeRecord(leader=1))
    assert (named.leader, named.leader_epoch, named.partition_epoch) == (1, 1, 1)


def test_a_new_replica_without_a_directory_is_unassigned() -> None:
    """DirectoryId.createDirectoriesFrom: known replicas keep theirs."""
    old = registration_of(new_partition())
    moved = merged(old, PartitionChangeRecord(replicas=[3, 2]))
    assert moved.directories == (UNASSIGNED, old.directory(2))


def test_a_broker_knows_which_of_its_directories_are_usable() -> None:
    """BrokerRegistration.hasOnlineDir and ClusterControlManager.defaultDir."""
    broker = RegisteredBroker(1, 0, "", (), {}, log_dirs=("x", "y"))
    assert [broker.has_online_directory(one) for one in ("x", "z", UNASSIGNED, "AAAAAAAAAAAAAAAAAAAAAg")] == [
        True,
        False,
        True,
        False,
    ]
    assert broker.directory_for_new_replicas == UNASSIGNED
    assert RegisteredBroker(1, 0, "", (), {}, log_dirs=("x",)).directory_for_new_replicas == "x"


@pytest.mark.parametrize("seed", range(20))
def test_a_sorted_map_is_a_dictionary_in_order_that_keeps_its_past(seed: int) -> None:
    random = Random(seed)
    expected: dict[int, int] = {}
    found: SortedMap[int, int] = SortedMap()
    past: list[tuple[SortedMap[int, int], dict[int, int]]] = []
    for _ in range(60):
        keys = random.sample(range(1000), random.choice((1, 3, 200)))
        changes = {key: REMOVED if random.random() < random.choice((0.3, 0.9)) else random.randrange(9) for key in keys}
        past.append((found, dict(expected)))
        before = found
        found = found.updated(changes)
        for key, value in changes.items():
            if isinstance(value, int):
                expected[key] = value
            else:
                expected.pop(key, None)
        assert list(found.items()) == sorted(expected.items())
        assert len(found) == len(expected)
        assert [found.get(key) for key in range(-1, 1001)] == [expected.get(key) for key in range(-1, 1001)]
        was = dict(before)
        assert [key for key, _, _ in differences(before, found)] == [
            key for key in sorted(was.keys() | expected.keys()) if was.get(key) != expected.get(key)
        ]
    assert all(dict(old) == then for old, then in past)
