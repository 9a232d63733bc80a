"""Well-formed requests with odd contents: existing names beside unknown ones, things named twice, numbers at the ends.

A request of any API and version is made from the schema; a field's name says which values are of use for it, so that
most requests pass the first check. Requests of ``tests/unit/kafka/random_messages.py`` have no meaning.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.wire_responses.batches import TRANSACTIONAL, batch, message_set

from tidegauge.kafka.apis import BROKER_PROTOCOL, Protocol
from tidegauge.kafka.fields import WIRE, Wire

INTEGERS: Mapping[str, Sequence[int]] = {
    "int8": (0, 1, 2, 3, -1, 127, -128),
    "int16": (0, 1, 2, -1, -2, 2**15 - 1, -(2**15)),
    "uint16": (0, 1, 2**16 - 1),
    "int32": (0, 0, 1, 1, 2, -1, -2, 99, 2**31 - 1, -(2**31)),
    "int64": (0, 0, 1, 2, 5, -1, -2, -3, 2**40, 2**63 - 1, -(2**63)),
}
SMALL = (0, 0, 0, 1, -1, 2, 99)
TOPIC_FIELDS = {"topic", "topic_name", "topics", "topic_names"}
GROUP_FIELDS = {"group_id", "groups_names", "groups", "group", "coordinator_keys", "key"}
FIXED: Mapping[str, Sequence[Any]] = {
    "protocol_type": ("consumer", "consumer", "consumer", "x", ""),
    "protocol_name": ("range", "rr", ""),
    "group_instance_id": ("i", "j", ""),
    "resource_type": (2,),
    "config_operation": (0, 1, 2, 3, 9),
    "value": ("1000", "-1", "", "compact", "delete,compact", "9" * 20),
    "partition": SMALL,
    "partitions": SMALL,
    "partition_index": SMALL,
    "partition_indexes": SMALL,
    "index": SMALL,
    "broker_id": (99, -1),
    "broker_ids": (0, 1, 2, 0, 99, -1),
    "replicas": (0, 1, 2, 0, 99, -1),
    "replica_id": (-1, -1, -1, -2, 1, 99),
    "acks": (-1, 1, 0, 2),
    "max_wait_ms": (0, 1),
    "timeout_ms": (500,),
    "session_timeout_ms": (*[6_000] * 6, 1_800_000, 0, -1, 2**31 - 1, -(2**31)),
    "rebalance_timeout_ms": (0, 0, 1, 6_000, -1, 2**31 - 1, -(2**31)),
    "transaction_timeout_ms": (*[60_000] * 4, 0, -1, 2**31 - 1, -(2**31)),
    "session_id": (0, 0, 1, -1),
    "session_epoch": (0, 0, -1, 1),
    "isolation_level": (0, 1, 9),
    "generation_id": (1, 1, 1, 0, -1, 2**31 - 1, -(2**31)),
    "generation_id_or_member_epoch": (1, 1, 1, 0, -1, 2**31 - 1, -(2**31)),
    "share_session_epoch": (0, 0, 0, 1, 2, -1, 2**31 - 1, -(2**31)),
    "member_epoch": (0, 0, 0, 1, 2, -1, -2, 2**31 - 1, -(2**31)),
    "broker_epoch": (-1, 0, 2**63 - 1),
    "producer_epoch": (0, 0, 0, 1, -1, 2**15 - 1, -(2**15)),
    "key_type": (0, 1, 2),
    "validate_only": (True,),
}
"""Values for fields of these names. A client's quota and a broker's setting would outlive the test: none is written."""
NAMES: Mapping[str, Sequence[str]] = {
    "JoinGroup": ("range", "rr"),
    "IncrementalAlterConfigs": ("retention.ms", "cleanup.policy", "compression.type", "nope", ""),
    "AlterConfigs": ("retention.ms", "cleanup.policy", "compression.type", "nope", ""),
    "AlterUserScramCredentials": ("alice", "", ".."),
}
"""Values of the field ``name``, if it is not a topic's."""


class OddRequests:
    """Makes requests about a few topics, groups and transactional ids; the same ones from the same seed.

    Args:
        rng: decides.
        topics: ids by name.
        label: begins the names of groups and transactional ids.
        protocol: whose requests are made.

    Attributes:
        topics: as given.
        learned: what responses have said that requests may name: ``member_id``, ``producer_id``.
    """

    def __init__(
        self,
        rng: random.Random,
        topics: Mapping[str, bytes],
        label: str = "odd",
        protocol: Protocol = BROKER_PROTOCOL,
    ) -> None:
        self._rng = rng
        self.topics = topics
        self._label, self._protocol = label, protocol
        self.learned: dict[str, list[Any]] = {"member_id": ["", "nobody-known"], "producer_id": [-1, 424_242]}

    def message(self, key: int, version: int) -> Any:
        """Return a request of this API and version."""
        kind = self._protocol.message_class(key, response=False)
        return self._struct(self._protocol.apis[key].name, kind, version)

    def value(self, kind: type, version: int = 0) -> Any:
        """Return a struct of this class, of a message or an internal record."""
        return self._struct("", kind, version)

    def _struct(self, api: str, kind: type, version: int) -> Any:
        values = {}
        for field in dataclasses.fields(kind):
            wire: Wire = field.metadata[WIRE]
            is_left_out = wire.tag is not None and self._rng.random() < 0.5
            if version in wire.versions and not is_left_out:
                values[field.name] = self._value(api, field.name, wire, version)
        return kind(**values)

    def _value(self, api: str, name: str, wire: Wire, version: int) -> Any:
        if version in wire.nullable and self._rng.random() < 0.15:
            return None
        if wire.kind == "struct":
            assert isinstance(wire.item, type)
            return self._struct(api, wire.item, version)
        if wire.kind == "array":
            item = Wire(wire.item) if isinstance(wire.item, str) else Wire("struct", item=wire.item)
            found = [self._value(api, name, item, version) for _ in range(self._rng.choice((1, 1, 2, 3, 0)))]
            return [*found, *found[:1]] if self._rng.random() < 0.2 else found
        return self._rng.choice(self._pool(api, name, wire.kind))

    def _pool(self, api: str, name: str, kind: str) -> Sequence[Any]:
        if name in self.learned:
            return self.learned[name]
        if name in FIXED and kind not in {"struct", "float64"}:
            return FIXED[name]
        match kind:
            case "string":
                return self._texts(api, name)
            case "records":
                return self._records()
            case "uuid":
                return (*self.topics.values(), *self.topics.values(), bytes(16), b"\7" * 16)
            case "bytes":
                return (b"", b"abc", b"\0\0\0\0\0\1\0\1t\0\0\0\0")
            case "bool":
                return (False, True)
            case "float64":
                return (1.0, -1.0, float("nan"))
            case _:
                return INTEGERS[kind]

    def _texts(self, api: str, name: str) -> Sequence[str]:
        if name in GROUP_FIELDS:
            return (f"{self._label}-group", f"{self._label}-group", f"{self._label}-group-2", "")
        if name in {"transactional_id", "transactional_ids", "v3_and_below_transactional_id"}:
            return (f"{self._label}-transaction", f"{self._label}-transaction", "")
        if name == "name" and api in NAMES:
            return NAMES[api]
        if name in TOPIC_FIELDS or name in {"name", "resource_name"}:
            return (*self.topics, *self.topics, "nope", "", "..", "a" * 250)
        return ("a", "", "b")

    def _records(self) -> Sequence[Any]:
        producer_id = self._rng.choice(self.learned["producer_id"])
        made = {"producer_id": producer_id, "epoch": 0, "sequence": self._rng.choice((0, 1, 2, -1, 2**31 - 1))}
        whole = batch()
        return (
            *(whole, whole * 2, whole[:-3], b"", message_set(b"old", 0), message_set(b"old", 1)),
            *(batch((b"a", None), **made), batch(**made, attributes=TRANSACTIONAL)),
        )
