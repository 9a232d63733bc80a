"""Any program may write into ZooKeeper: any content of a znode is read, or refused as malformed."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from tidegauge import znodes
from tidegauge.cluster_metadata import ProducerIdBlock
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.server.cluster.zookeeper.registration import prepare_cluster

AT = TopicPartition("t", 0)
SAMPLES: dict[str, tuple[bytes, Callable[[bytes], Any]]] = {
    "ControllerNode.decode": (znodes.ControllerNode(1, 5).encode(), znodes.ControllerNode.decode),
    "decode_controller_epoch": (b"7", znodes.decode_controller_epoch),
    "decode_cluster_id": (znodes.encode_cluster_id("c"), znodes.decode_cluster_id),
    "BrokerNode.decode": (
        znodes.BrokerNode(1, "127.0.0.1", 9092, 5).encode(),
        lambda data: znodes.BrokerNode.decode(1, data),
    ),
    "TopicNode.decode": (
        znodes.TopicNode({0: (1, 2)}, "id", {0: (2,)}, {0: (1,)}).encode(),
        lambda data: znodes.TopicNode.decode("t", data),
    ),
    "PartitionStateNode.decode": (
        znodes.PartitionStateNode(1, 2, (1, 2), 3).encode(),
        lambda data: znodes.PartitionStateNode.decode("/state", data),
    ),
    "decode_config": (znodes.encode_config({"retention.ms": "1"}), znodes.decode_config),
    "decode_config_change": (znodes.encode_config_change("topics/t"), znodes.decode_config_change),
    "decode_producer_ids": (znodes.encode_producer_ids(ProducerIdBlock(1, 0, 999)), znodes.decode_producer_ids),
    "decode_log_dir_event": (znodes.encode_log_dir_event(1), znodes.decode_log_dir_event),
    "decode_reassignments": (znodes.encode_reassignments({AT: (1, 2)}), znodes.decode_reassignments),
    "decode_preferred_election": (znodes.encode_preferred_election([AT]), znodes.decode_preferred_election),
}
"""A sound payload of each kind of znode, and who reads it."""
NUMBERS = (0, -1, 2**31, -(2**31) - 1, 2**63, 10**400, 1e400, 0.5, float("nan"))
odd_values = st.recursive(
    st.none() | st.booleans() | st.sampled_from(NUMBERS) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


def test_every_decoder_of_znodes_is_given_rubbish() -> None:
    """A new kind of znode must be known here, with a sound payload from which the odd ones are made."""
    there = {name for name in vars(znodes) if name.startswith("decode_")}
    there |= {
        f"{name}.decode" for name, thing in vars(znodes).items() if inspect.isclass(thing) and hasattr(thing, "decode")
    }
    assert set(SAMPLES) == there
    for payload, decode in SAMPLES.values():
        decode(payload)


def whole_numbers(value: Any) -> list[int]:
    """Every number in what a decoder gave."""
    if isinstance(value, int):
        return [int(value)]
    if isinstance(value, dict):
        return [number for pair in value.items() for one in pair for number in whole_numbers(one)]
    if isinstance(value, list | tuple):
        return [number for one in value for number in whole_numbers(one)]
    slots = getattr(value, "__slots__", ())
    return [number for name in slots for number in whole_numbers(getattr(value, name))]


def places(value: Any) -> list[Any]:
    """The objects and lists in a payload that hold something, itself among them."""
    if not isinstance(value, dict | list) or not value:
        return []
    inner = value.values() if isinstance(value, dict) else value
    return [value, *(place for one in inner for place in places(one))]


def read(kind: str, data: bytes) -> None:
    """Decode; nothing but MalformedZnode may come, and no number that does not fit into a control request."""
    refusal: Exception | None = None
    found: Any = ()
    try:
        found = SAMPLES[kind][1](data)
    except znodes.MalformedZnode as problem:
        refusal = problem
    assert len(str(refusal)) < 3_000, "a refusal is for people"
    assert all(-(2**63) <= number < 2**63 for number in whole_numbers(found))


@settings(max_examples=examples(150), print_blob=True)
@given(st.sampled_from(sorted(SAMPLES)), st.binary(max_size=60))
@example("PartitionStateNode.decode", b"[" * 100_000)
@example("decode_controller_epoch", b"9" * 5_000)
@example("decode_controller_epoch", b"\xff\xfe")
def test_any_bytes_are_read_or_refused(kind: str, data: bytes) -> None:
    read(kind, data)


@settings(max_examples=examples(300), print_blob=True)
@given(st.sampled_from(sorted(SAMPLES)), st.data())
def test_any_value_in_any_place_is_read_or_refused(kind: str, data: st.DataObject) -> None:
    """Each key in turn with a value of another kind, or missing: Jackson would refuse what does not fit into an Int."""
    payload = json.loads(SAMPLES[kind][0])
    if not isinstance(payload, dict):
        payload = data.draw(odd_values)
    else:
        place = data.draw(st.sampled_from(places(payload)))
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if data.draw(st.booleans()):
            place[key] = data.draw(odd_values)
        else:
            del place[key]
    read(kind, json.dumps(payload).encode())


@pytest.mark.parametrize("leader", [2**31, 1e400, True, "x", [1]])
def test_a_leader_that_is_no_int_is_refused(leader: object) -> None:
    payload = json.loads(SAMPLES["PartitionStateNode.decode"][0]) | {"leader": leader}
    with pytest.raises(znodes.MalformedZnode):
        read_state(json.dumps(payload).encode())


def read_state(data: bytes) -> znodes.PartitionStateNode:
    return znodes.PartitionStateNode.decode("/state", data)


class OnlyClusterId:
    """A ZooKeeper in which another program wrote rubbish for the cluster's id."""

    async def exists(self, path: str) -> object:
        return path

    async def get(self, path: str) -> tuple[bytes, object]:
        assert path == znodes.CLUSTER_ID
        return b"rubbish", None


async def test_a_broker_that_meets_rubbish_for_the_cluster_id_says_so_in_a_sentence() -> None:
    zookeeper: Any = OnlyClusterId()
    with pytest.raises(TidegaugeError, match="The cluster id in ZooKeeper is malformed") as refusal:
        await prepare_cluster(zookeeper, lambda: "id")
    assert refusal.value.code is ErrorCode.INVALID_REQUEST
