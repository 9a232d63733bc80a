"""Znode payloads, word for word as Kafka 3.9 writes them (kafka.zk.ZkData)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegauge import znodes
from tidegauge.cluster_metadata import ProducerIdBlock, new_uuid
from tidegauge.listeners import Listener


def test_the_controllers_payload_is_kafkas():
    """kafka.zk.ControllerZNode.encode writes this payload, byte for byte."""
    node = znodes.ControllerNode(2, 1723447688383)
    assert node.encode() == b'{"version":2,"brokerid":2,"timestamp":"1723447688383","kraftControllerEpoch":-1}'
    assert znodes.ControllerNode.decode(node.encode()) == node


def test_broker_version_5():
    node = znodes.BrokerNode(
        1, "127.0.0.1", 19093, 1700000000000, listeners=(Listener("PLAINTEXT", "127.0.0.1", 19093),)
    )
    assert json.loads(node.encode()) == {
        "version": 5,
        "host": "127.0.0.1",
        "port": 19093,
        "endpoints": ["PLAINTEXT://127.0.0.1:19093"],
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
        "features": {},
    }
    assert znodes.BrokerNode.decode(1, node.encode()) == node


def test_a_rack_stands_there_only_if_set():
    assert b"rack" not in znodes.BrokerNode(1, "h", 1, 1).encode()
    assert json.loads(znodes.BrokerNode(1, "h", 1, 1, "r1").encode())["rack"] == "r1"


def test_keys_stand_in_the_order_of_kafkas_hash_maps():
    """As Apache Kafka 3.9.1 writes them; `make differential` compares it."""
    broker = [
        "features",
        "listener_security_protocol_map",
        "endpoints",
        "jmx_port",
        "port",
        "host",
        "version",
        "timestamp",
    ]
    assert list(json.loads(znodes.BrokerNode(1, "h", 1, 1).encode())) == broker
    assert list(json.loads(znodes.BrokerNode(1, "h", 1, 1, "r1").encode())) == [*broker[:3], "rack", *broker[3:]]
    state = ["controller_epoch", "leader", "version", "leader_epoch", "isr"]
    assert list(json.loads(znodes.PartitionStateNode(1, 4, (1, 2), 7).encode())) == state
    recovering = znodes.PartitionStateNode(1, 4, (1,), 7, recovering=True)
    assert list(json.loads(recovering.encode())) == [*state[:3], "leader_recovery_state", *state[3:]]


def test_topic_version_3_is_as_in_row_z5():
    node = znodes.TopicNode({0: (1, 0, 2), 1: (0, 2, 1)}, "abcdefghijklmnopqrstuv")
    assert json.loads(node.encode()) == {
        "partitions": {"0": [1, 0, 2], "1": [0, 2, 1]},
        "topic_id": "abcdefghijklmnopqrstuv",
        "adding_replicas": {},
        "removing_replicas": {},
        "version": 3,
    }
    assert znodes.TopicNode.decode("t", node.encode()).assignment == {0: (1, 0, 2), 1: (0, 2, 1)}


def test_topic_versions_1_and_2_are_still_read():
    assert znodes.TopicNode.decode("t", b'{"version":1,"partitions":{"0":[1]}}').topic_id is None


def test_partition_state_names_recovery_only_while_it_lasts():
    node = znodes.PartitionStateNode(1, 4, (1, 2), 7)
    assert json.loads(node.encode()) == {
        "version": 1,
        "leader": 1,
        "leader_epoch": 4,
        "controller_epoch": 7,
        "isr": [1, 2],
    }
    recovering = znodes.PartitionStateNode(1, 4, (1,), 7, recovering=True)
    assert json.loads(recovering.encode())["leader_recovery_state"] == 1
    assert znodes.PartitionStateNode.decode("p", recovering.encode()) == recovering


def test_cluster_id_version_is_a_string():
    assert znodes.encode_cluster_id("x" * 22) == b'{"version":"1","id":"%s"}' % (b"x" * 22)
    assert znodes.decode_cluster_id(znodes.encode_cluster_id("abc")) == "abc"


def test_controller_epoch_is_plain_text():
    assert znodes.encode_controller_epoch(5) == b"5"
    assert znodes.decode_controller_epoch(b"5") == 5


def test_producer_id_blocks_follow_each_other_with_inclusive_ends_as_strings():
    """latest_producer_id_block starts with null data."""
    first = ProducerIdBlock.after(znodes.decode_producer_ids(b""), 2)
    assert json.loads(znodes.encode_producer_ids(first)) == {
        "version": 1,
        "broker": 2,
        "block_start": "0",
        "block_end": "999",
    }
    second = ProducerIdBlock.after(znodes.decode_producer_ids(znodes.encode_producer_ids(first)), 1)
    assert (second.first, second.last) == (1000, 1999)


def test_config_and_its_change_notification():
    assert znodes.decode_config(znodes.encode_config({"retention.ms": "5"})) == {"retention.ms": "5"}
    assert znodes.decode_config(b"") == {}
    assert znodes.encode_config_change("topics/t") == b'{"version":2,"entity_path":"topics/t"}'
    assert znodes.decode_config_change(b'{"version":2,"entity_path":"topics/t"}') == "topics/t"


@pytest.mark.parametrize(
    "entity",
    ["topics", "topics/", "/topics", "topics/../../controller", "topics/./t", "topics/a\u0000b", "topics/\u00e4"],
)
def test_a_change_of_what_is_no_entity_is_unreadable_so_that_it_is_skipped(entity: str):
    """It would be looked at again and again, and bar the changes behind it."""
    with pytest.raises(znodes.MalformedZnode):
        znodes.decode_config_change(json.dumps({"version": 2, "entity_path": entity}).encode())


@pytest.mark.parametrize("data", [None, b"", b"x", b"[]", b"{}", b'{"brokerid":"x","timestamp":"1"}', b"\xff"])
def test_damage_is_named_not_guessed(data):
    with pytest.raises(znodes.MalformedZnode):
        znodes.ControllerNode.decode(data)
    with pytest.raises(znodes.MalformedZnode):
        znodes.PartitionStateNode.decode("/p", data)
    with pytest.raises(znodes.MalformedZnode):
        znodes.TopicNode.decode("t", data)


@given(st.binary(min_size=16, max_size=16))
def test_uuids_have_22_url_safe_characters_and_never_begin_with_a_hyphen(random_bytes):
    made = new_uuid(random_bytes)
    assert len(made) == 22
    assert not made.startswith("-")
    assert set(made) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
