"""The records of consumer groups equal Kafka 4.3.1's byte for byte; so does the hash of topics' metadata."""

import pytest
from tests.unit.coordinator.consumer_groups.golden import stored, story

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_broker.coordinator.consumer_group.records import (
    KINDS,
    ConsumerGroupRecord,
    read_key,
    read_value,
    to_bytes,
)
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription, Topics
from tidegauge_broker.coordinator.consumer_group.xxh3 import xxh3_64
from tidegauge_broker.coordinator.record_codec import read_batches, version_of


def _records():
    for batch in read_batches(stored("log_of_kafka.gz")):
        for key, value in batch.records:
            if version_of(key) in KINDS:
                yield key, value


def test_each_record_of_a_log_of_kafka_is_read_and_written_again_in_the_same_bytes():
    kinds = set()
    for key, value in _records():
        kinds.add((version_of(key), value is None))
        read = read_key(key)
        again = to_bytes(ConsumerGroupRecord(read, None if value is None else read_value(read, value)))
        assert again == (key, value)
    assert {kind for kind, _ in kinds} >= {3, 5, 6, 7, 8}
    assert {kind for kind, is_tombstone in kinds if is_tombstone} >= {5, 7, 8}


@pytest.mark.parametrize("cut", [1, 5])
def test_a_record_that_ends_too_early_is_corrupt(cut):
    for key, value in _records():
        if value is not None and version_of(key) == 5:
            with pytest.raises(TidegaugeError) as problem:
                read_value(read_key(key), value[:-cut])
            assert problem.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_value_of_a_later_version_is_not_guessed_at():
    key, value = next((key, value) for key, value in _records() if value is not None)
    with pytest.raises(TidegaugeError, match="unknown version 1"):
        read_value(read_key(key), b"\0\1" + value[2:])


def _topics(**partitions: int) -> Topics:
    ids = {name: topic_id_bytes(text) for name, (text, _) in story()["topics"].items()}
    topics = Topics()
    topics.change({name: TopicDescription(name, ids[name], ((),) * count) for name, count in partitions.items()})
    return topics


def test_the_metadata_hash_is_kafkas():
    """The hashes of the groups h1 and h3 in the dump, Utils.computeGroupHash."""
    topics = _topics(t4=4, t5=2)
    assert topics.hash_of(["t4"]) == 7_076_475_450_872_006_906
    assert topics.hash_of(["t5", "t4"]) == 576_716_871_889_935_504
    assert topics.hash_of(["t5"]) == -3_919_819_201_851_782_339
    assert topics.hash_of(["t5", "missing"]) == topics.hash_of(["t5"])
    assert topics.hash_of(["missing"]) == topics.hash_of([]) == 0


def test_new_partitions_and_new_racks_change_the_hash():
    former = _topics(t5=2).hash_of(["t5"])
    assert _topics(t5=3).hash_of(["t5"]) != former
    topics = _topics(t5=2)
    topic = topics.by_name["t5"]
    hashes = set()
    for racks in ((("b", "a"), ()), (("a", "b"), ()), (("a",), ())):
        topics.change({"t5": TopicDescription("t5", topic.topic_id, racks)})
        hashes.add(topics.hash_of(["t5"]))
    assert len(hashes) == 2
    assert former not in hashes


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (0, 0x2D06800538D394C2),
        (3, 0xC3489259E968AD9E),
        (8, 0xB88DEE77F6BF6980),
        (16, 0x9DA23836ADF2BE1E),
        (100, 0x6DBB812CF19D012E),
        (129, 0x28065C6EC25F5B25),
        (240, 0x4917A75C0EF8EED7),
        (241, 0x541B19226F0052E8),
        (1024, 0xDC5ACF0B043C445B),
        (1025, 0xE1D9CD946277AE26),
    ],
)
def test_xxh3_of_every_length_class(size, expected):
    """Values of the reference implementation, xxhash 0.8."""
    assert xxh3_64(bytes(index * 7 % 256 for index in range(size))) == expected
