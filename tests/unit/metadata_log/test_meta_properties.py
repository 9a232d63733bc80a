"""meta.properties version 1: Kafka 4.3.1's files are read and written byte for byte (MetaProperties; KIP-858)."""

from datetime import UTC, datetime

import pytest
from tests.unit.metadata_log.kafka_files import kafka_files

from tidegauge.kafka.kraft.uuids import uuid_of
from tidegauge_broker.metadata_log.meta_properties import (
    CorruptMetaProperties,
    NodeProperties,
    decode_meta_properties,
    encode_meta_properties,
)

FILES = sorted(name for name in kafka_files() if name.endswith("meta.properties"))
CLUSTER = "pQKNjKG6SIW1R46E3fVjJA"
DIRECTORY = "ERERERERQRGRERERERERAA"


@pytest.mark.parametrize("name", FILES)
def test_kafkas_files_are_written_byte_for_byte(name: str):
    data = kafka_files()[name].data
    date = datetime.strptime(data.decode().splitlines()[1], "#%a %b %d %H:%M:%S UTC %Y").replace(tzinfo=UTC)
    assert encode_meta_properties(decode_meta_properties(data), int(date.timestamp() * 1000)) == data


def test_pairs_may_stand_in_any_order():
    """Kafka writes them in the order of a hash table."""
    text = f"cluster.id={CLUSTER}\nversion=1\ndirectory.id={DIRECTORY}\nnode.id=100\n"
    assert decode_meta_properties(text.encode()) == NodeProperties(100, CLUSTER, uuid_of(DIRECTORY))


def test_missing_pairs_are_none_and_stay_missing():
    found = decode_meta_properties(b"version=1\n")
    assert found == NodeProperties(None, None, None)
    assert encode_meta_properties(found, 0) == b"#\n#Thu Jan 01 00:00:00 UTC 1970\nversion=1\n"


def test_special_characters_survive():
    """java.util.Properties.store escapes what a reader would take for a separator or comment."""
    properties = NodeProperties(1, "a=b:c#d!e\\f é", None)
    data = encode_meta_properties(properties, 0)
    assert b"cluster.id=a\\=b\\:c\\#d\\!e\\\\f \\u00E9\n" in data
    assert decode_meta_properties(data) == properties


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("version=0\nbroker.id=1\n", "it has version 0, expected 1"),
        ("broker.id=1\n", "it has version 0"),
        ("version=1\nnode.id=one\n", "invalid literal"),
        ("version=1\nnode.id=-1\n", "no node has a negative id"),
        ("version=1\ndirectory.id=abc\n", "a UUID has 22 characters"),
        ("version=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAA\n", "reserved"),
    ],
)
def test_a_file_of_another_kind_is_refused(text: str, reason: str):
    """DirectoryId.reserved: the first hundred ids have meanings of their own."""
    with pytest.raises(CorruptMetaProperties, match=reason):
        decode_meta_properties(text.encode())
