"""The paths and payloads of the znodes that Kafka 3.9 keeps in ZooKeeper.

Source: ``kafka.zk.ZkData``. Payloads are UTF-8 JSON without white space.
Decoders raise ``MalformedZnode`` instead of guessing. Nothing here talks to ZooKeeper.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tidegauge.cluster_metadata import (
    BrokerRegistration,
    Leadership,
    MalformedMetadata,
    ProducerIdBlock,
    TopicAssignment,
)
from tidegauge.errors import TidegaugeError
from tidegauge.listeners import Listener, parse_listeners
from tidegauge.partition import TopicPartition

CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
BROKER_IDS = "/brokers/ids"
BROKER_TOPICS = "/brokers/topics"
BROKER_SEQUENCE = "/brokers/seqid"
CLUSTER_ID = "/cluster/id"
CONFIG = "/config"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = "/config/changes/config_change_"
DELETE_TOPICS = "/admin/delete_topics"
PREFERRED_REPLICA_ELECTION = "/admin/preferred_replica_election"
REASSIGN_PARTITIONS = "/admin/reassign_partitions"
ISR_CHANGE_NOTIFICATION = "/isr_change_notification"
LOG_DIR_EVENT_NOTIFICATION = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = "/log_dir_event_notification/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
FEATURE = "/feature"
CONSUMERS = "/consumers"

PERSISTENT_PATHS: tuple[str, ...] = (
    CONSUMERS,
    BROKER_IDS,
    BROKER_TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGE_NOTIFICATION,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENT_NOTIFICATION,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
    "/config/ips",
)
"""Persistent znodes that every broker creates at start if they are missing, in Kafka's order."""

_MOST_SHOWN_BYTES = 500
_MOST_KEPT = 4096
"""Maximum number of decoded payloads cached per kind: a controller reads the same ones at every event."""


class MalformedZnode(MalformedMetadata):
    """A znode's payload is not what Kafka writes there."""


@lru_cache(maxsize=_MOST_KEPT)
def broker_path(broker_id: int) -> str:
    """Return the path of a broker's registration (ephemeral)."""
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    """Return the path of a topic's assignment."""
    return f"{BROKER_TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    """Return the path of the parent of a topic's partitions."""
    return f"{BROKER_TOPICS}/{topic}/partitions"


def partition_path(topic: str, partition: int) -> str:
    """Return the path of the parent of a partition's state."""
    return f"{BROKER_TOPICS}/{topic}/partitions/{partition}"


@lru_cache(maxsize=_MOST_KEPT)
def state_path(topic: str, partition: int) -> str:
    """Return a partition's state path; its version is the partition epoch."""
    return f"{BROKER_TOPICS}/{topic}/partitions/{partition}/state"


def topic_config_path(topic: str) -> str:
    """Return the path of a topic's settings."""
    return f"/config/topics/{topic}"


def delete_topic_path(topic: str) -> str:
    """Return the path of the marker of a topic to delete."""
    return f"{DELETE_TOPICS}/{topic}"


def _encode(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(data: bytes | None, what: str) -> dict[str, Any]:
    try:
        value = json.loads((data or b"").decode())
    except (ValueError, RecursionError) as problem:
        raise MalformedZnode(f"{what} is not JSON: {_shown(data)}") from problem
    if not isinstance(value, dict):
        raise MalformedZnode(f"{what} is not a JSON object: {_shown(data)}")
    return value


def _shown(data: bytes | None) -> str:
    """Return a payload for an error message, shortened: it may be large."""
    return repr(data if data is None or len(data) <= _MOST_SHOWN_BYTES else data[:_MOST_SHOWN_BYTES] + b"...")


_SURELY_AN_INT = 1 << 31


def _whole(value: Any, bits: int = 32) -> int:
    """Return an integer, or its text's value, within Kafka's Int or Long."""
    if type(value) is int and 0 <= value < _SURELY_AN_INT:  # nearly all are; a topic's znode may have 30,000
        return value
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{value!r} is not an integer")  # noqa: TRY004 - what a payload holds, not what code passes
    number = int(value)
    if not -(1 << (bits - 1)) <= number < 1 << (bits - 1):
        raise ValueError(f"{number} has more than {bits} bits")
    return number


@dataclass(frozen=True, slots=True)
class ControllerNode:
    """``/controller``: the broker that is the active controller."""

    broker_id: int
    timestamp_ms: int

    def encode(self) -> bytes:
        """Return Kafka's payload; the timestamp is a string."""
        return _encode(
            {
                "version": 2,
                "brokerid": self.broker_id,
                "timestamp": str(self.timestamp_ms),
                "kraftControllerEpoch": -1,
            }
        )

    @classmethod
    def decode(cls, data: bytes | None) -> ControllerNode:
        """Read the payload; raises MalformedZnode."""
        value = _decode(data, CONTROLLER)
        try:
            return cls(_whole(value["brokerid"]), _whole(value["timestamp"], 64))
        except (KeyError, TypeError, ValueError) as problem:
            raise MalformedZnode(f"{CONTROLLER}: {_shown(data)}") from problem


def encode_controller_epoch(epoch: int) -> bytes:
    """Return the payload of ``/controller_epoch``: plain decimal text."""
    return str(epoch).encode()


def decode_controller_epoch(data: bytes | None) -> int:
    """Read ``/controller_epoch``; raises MalformedZnode."""
    try:
        return _whole((data or b"").decode())
    except ValueError as problem:
        raise MalformedZnode(f"{CONTROLLER_EPOCH} is not a number: {_shown(data)}") from problem


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the payload of ``/cluster/id``; its version is a string."""
    return _encode({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes | None) -> str:
    """Read ``/cluster/id``; raises MalformedZnode."""
    value = _decode(data, CLUSTER_ID).get("id")
    if not isinstance(value, str):
        raise MalformedZnode(f"{CLUSTER_ID}: {_shown(data)}")
    return value


@dataclass(frozen=True, slots=True)
class BrokerNode(BrokerRegistration):
    """``/brokers/ids/N``, version 5: a broker's registration. Its czxid is the broker epoch.

    Without a host Kafka writes null and the port -1 (read as an empty host).
    """

    @classmethod
    def of(cls, registration: BrokerRegistration) -> BrokerNode:
        """Return the znode of a registration."""
        one = registration
        return cls(one.broker_id, one.host, one.port, one.timestamp_ms, one.rack, one.listeners, one.protocols)

    def encode(self) -> bytes:
        """Return Kafka's payload, its keys in the order of Kafka's hash map."""
        listeners = self.listeners or (Listener("PLAINTEXT", self.host, self.port),)
        value: dict[str, Any] = {
            "features": {},
            "listener_security_protocol_map": {
                listener.name: self.protocols.get(listener.name, "PLAINTEXT") for listener in listeners
            },
            "endpoints": [str(listener) for listener in listeners],
            **({} if self.rack is None else {"rack": self.rack}),
            "jmx_port": -1,
            "port": self.port,
            "host": self.host,
            "version": 5,
            "timestamp": str(self.timestamp_ms),
        }
        return _encode(value)

    @classmethod
    @lru_cache(maxsize=_MOST_KEPT)
    def decode(cls, broker_id: int, data: bytes | None) -> BrokerNode:
        """Read the payload; raises MalformedZnode."""
        value = _decode(data, broker_path(broker_id))
        try:
            rack = value.get("rack")
            return cls(
                broker_id,
                str(value["host"] or ""),
                _whole(value["port"]),
                _whole(value["timestamp"], 64),
                None if rack is None else str(rack),
                parse_listeners(",".join(value["endpoints"]), "endpoints"),
                {str(name): str(one) for name, one in value.get("listener_security_protocol_map", {}).items()},
            )
        except (KeyError, TypeError, ValueError, AttributeError, TidegaugeError) as problem:
            raise MalformedZnode(f"{broker_path(broker_id)}: {_shown(data)}") from problem


@dataclass(frozen=True, slots=True)
class TopicNode(TopicAssignment):
    """``/brokers/topics/T``, version 3."""

    def encode(self) -> bytes:
        """Kafka's payload."""

        def lists(value: Mapping[int, Sequence[int]]) -> dict[str, list[int]]:
            return {str(partition): list(replicas) for partition, replicas in sorted(value.items())}

        value: dict[str, Any] = {"partitions": lists(self.assignment)}
        if self.topic_id is not None:
            value["topic_id"] = self.topic_id
        value["adding_replicas"] = lists(self.adding_replicas)
        value["removing_replicas"] = lists(self.removing_replicas)
        value["version"] = 3
        return _encode(value)

    @classmethod
    @lru_cache(maxsize=_MOST_KEPT)
    def decode(cls, topic: str, data: bytes | None) -> TopicNode:
        """Read the payload of version 1, 2 or 3; raises MalformedZnode."""
        value = _decode(data, topic_path(topic))

        def lists(key: str) -> dict[int, tuple[int, ...]]:
            return {_whole(at): tuple(_whole(r) for r in replicas) for at, replicas in value[key].items()}

        try:
            value.setdefault("adding_replicas", {})
            value.setdefault("removing_replicas", {})
            topic_id = value.get("topic_id")
            return cls(
                lists("partitions"),
                None if topic_id is None else str(topic_id),
                lists("adding_replicas"),
                lists("removing_replicas"),
            )
        except (KeyError, TypeError, ValueError, AttributeError) as problem:
            raise MalformedZnode(f"{topic_path(topic)}: {_shown(data)}") from problem


@dataclass(frozen=True, slots=True)
class PartitionStateNode:
    """``.../partitions/P/state``: leader, leader epoch, ISR in stored order.

    ``leader`` is -1 when there is none. The node's version, the partition epoch, is not in the payload.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovering: bool = False

    @classmethod
    def of(cls, state: Leadership) -> PartitionStateNode:
        """Return a state's payload; the write expects its partition epoch."""
        return cls(state.leader, state.leader_epoch, state.isr, state.controller_epoch, state.recovering)

    def at_version(self, version: int) -> Leadership:
        """Return the state that a znode of this version has."""
        return Leadership(self.leader, self.leader_epoch, self.isr, self.recovering, version, self.controller_epoch)

    def encode(self) -> bytes:
        """Return Kafka's payload; it has the recovery state only while that is 1."""
        return _state_payload(self)

    @classmethod
    def decode(cls, path: str, data: bytes | None) -> PartitionStateNode:
        """Read the payload; raises MalformedZnode."""
        return _ENCODED.get(data or b"") or _decoded_state(path, data)


@lru_cache(maxsize=_MOST_KEPT)
def _decoded_state(path: str, data: bytes | None) -> PartitionStateNode:
    value = _decode(data, path)
    try:
        return PartitionStateNode(
            _whole(value["leader"]),
            _whole(value["leader_epoch"]),
            tuple(_whole(r) for r in value["isr"]),
            _whole(value["controller_epoch"]),
            bool(value.get("leader_recovery_state", 0)),
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise MalformedZnode(f"{path}: {_shown(data)}") from problem


_ENCODED: dict[bytes, PartitionStateNode] = {}
"""Recent payloads that this process has written itself: they need not be parsed when they are read back."""


@lru_cache(maxsize=_MOST_KEPT)
def _state_payload(node: PartitionStateNode) -> bytes:
    recovery = ',"leader_recovery_state":1' if node.recovering else ""
    payload = (  # JSON of integers, formatted by hand for speed: it is made for every partition of every election
        f'{{"controller_epoch":{node.controller_epoch},"leader":{node.leader},"version":1{recovery},'
        f'"leader_epoch":{node.leader_epoch},"isr":[{",".join(map(str, node.isr))}]}}'
    ).encode()
    if len(_ENCODED) >= _MOST_KEPT:
        _ENCODED.clear()
    _ENCODED[payload] = node
    return payload


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return the payload of ``/config/<type>/<name>``."""
    return _encode({"version": 1, "config": dict(config)})


def decode_config(data: bytes | None) -> dict[str, str]:
    """Read ``/config/<type>/<name>``; an absent node has no settings. Raises MalformedZnode."""
    return dict(_settings(data)) if data else {}


@lru_cache(maxsize=_MOST_KEPT)
def _settings(data: bytes) -> Mapping[str, str]:
    value = _decode(data, CONFIG).get("config")
    if not isinstance(value, dict):
        raise MalformedZnode(f"{CONFIG}: {_shown(data)}")
    return {str(key): str(setting) for key, setting in value.items()}


def encode_config_change(entity_path: str) -> bytes:
    """Return the payload of ``/config/changes/config_change_N``; the path is like ``topics/T``."""
    return _encode({"version": 2, "entity_path": entity_path})


def decode_config_change(data: bytes | None) -> str:
    """Read a change notification: the entity's path relative to /config.

    Version 1, of Kafka before 0.9, has type and name in two fields. Raises MalformedZnode, also if the value is not a
    path below /config: entity names are ASCII, since Kafka encodes the others.
    """
    value = _decode(data, CONFIG_CHANGES)
    entity = value.get("entity_path")
    if value.get("version") == 1:
        entity = f"{value.get('entity_type')}/{value.get('entity_name')}"
    if not isinstance(entity, str) or not (entity.isascii() and entity.isprintable() and _is_relative_path(entity)):
        raise MalformedZnode(f"{CONFIG_CHANGES}: {_shown(data)}")
    return entity


def _is_relative_path(text: str) -> bool:
    parts = text.split("/")
    return len(parts) > 1 and not {"", ".", ".."}.intersection(parts)


def change_number(path: str) -> int:
    """Return a change notification's sequence number; raise MalformedZnode for other names."""
    name = path.rpartition("/")[2]
    number = name.removeprefix(CONFIG_CHANGE_PREFIX.rpartition("/")[2])
    if number == name or not number.isdecimal():
        raise MalformedZnode(f"{CONFIG_CHANGES}: the name {name!r}")
    return int(number)


def encode_producer_ids(block: ProducerIdBlock) -> bytes:
    """Return the payload of ``/latest_producer_id_block``; its end is inclusive, numbers are strings."""
    return _encode(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def decode_producer_ids(data: bytes | None) -> ProducerIdBlock | None:
    """Read ``/latest_producer_id_block``; None if no block has been allocated yet. Raises MalformedZnode."""
    if not data:
        return None
    value = _decode(data, PRODUCER_ID_BLOCK)
    try:
        return ProducerIdBlock(
            _whole(value["broker"]), _whole(value["block_start"], 64), _whole(value["block_end"], 64)
        )
    except (KeyError, TypeError, ValueError) as problem:
        raise MalformedZnode(f"{PRODUCER_ID_BLOCK}: {_shown(data)}") from problem


def encode_reassignments(targets: Mapping[TopicPartition, Sequence[int]]) -> bytes:
    """Return the payload of ``/admin/reassign_partitions``: the target replicas of partitions."""
    return _encode(
        {
            "version": 1,
            "partitions": [
                {"topic": at.topic, "partition": at.partition, "replicas": list(replicas)}
                for at, replicas in targets.items()
            ],
        }
    )


def decode_reassignments(data: bytes | None) -> dict[TopicPartition, tuple[int, ...]]:
    """Read ``/admin/reassign_partitions``; raises MalformedZnode."""
    value = _decode(data, REASSIGN_PARTITIONS)
    try:
        return {
            TopicPartition(str(entry["topic"]), _whole(entry["partition"])): tuple(_whole(r) for r in entry["replicas"])
            for entry in value["partitions"]
        }
    except (KeyError, TypeError, ValueError) as problem:
        raise MalformedZnode(f"{REASSIGN_PARTITIONS}: {_shown(data)}") from problem


def encode_preferred_election(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the payload of ``/admin/preferred_replica_election``: partitions to elect preferred leaders for."""
    return _encode({"version": 1, "partitions": [{"topic": at.topic, "partition": at.partition} for at in partitions]})


def decode_preferred_election(data: bytes | None) -> list[TopicPartition]:
    """Read ``/admin/preferred_replica_election``; raises MalformedZnode."""
    value = _decode(data, PREFERRED_REPLICA_ELECTION)
    try:
        return [TopicPartition(str(entry["topic"]), _whole(entry["partition"])) for entry in value["partitions"]]
    except (KeyError, TypeError, ValueError) as problem:
        raise MalformedZnode(f"{PREFERRED_REPLICA_ELECTION}: {_shown(data)}") from problem


def encode_log_dir_event(broker_id: int) -> bytes:
    """Return the payload of ``/log_dir_event_notification/log_dir_event_N``; event 1: a log directory failed."""
    return _encode({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(data: bytes | None) -> int:
    """Return the broker whose log directory failed; raises MalformedZnode."""
    value = _decode(data, LOG_DIR_EVENT_NOTIFICATION)
    try:
        return _whole(value["broker"])
    except (KeyError, TypeError, ValueError) as problem:
        raise MalformedZnode(f"{LOG_DIR_EVENT_NOTIFICATION}: {_shown(data)}") from problem


_FEATURE = _encode({"features": {}, "version": 2, "status": 1})


def encode_feature() -> bytes:
    """Return the payload of ``/feature`` that a 3.9 controller in ZooKeeper mode writes."""
    return _FEATURE
