"""The metadata log of two clusters of Apache Kafka 4.3.1 as its kafka-dump-log printed it, and one of its snapshots.

``main`` is a cluster of three controllers and four brokers through a story of failures and admin requests. ``snapshot``
is the one that controller 100 made of it at offset 2621. ``upgrade`` is one node that was formatted at release 3.9 and
upgraded to 4.0 and to 4.3. Batches of NoOpRecords alone are left out, so there are gaps between batches.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

from tidegauge.kafka.fields import WIRE, Wire
from tidegauge.kafka.kraft.json_text import json_name
from tidegauge.kafka.kraft.record_types import RECORD_TYPES, MetadataRecord, record_class

FILE = Path(__file__).parent / "kafka_log.json.gz"
_BY_LABEL = {record.label: record for record in RECORD_TYPES.values()}


class LoggedBatch(NamedTuple):
    """A batch of records with consecutive offsets; ``step`` is what the operator had done before it."""

    step: str
    base_offset: int
    epoch: int
    records: tuple[MetadataRecord, ...]


@functools.cache
def kafka_log(name: str) -> tuple[LoggedBatch, ...]:
    """Return the batches of a log, without control batches."""
    found = json.loads(gzip.decompress(FILE.read_bytes()))[name]
    return tuple(LoggedBatch(one["step"], one["base"], one["epoch"], _with_no_ops(one)) for one in found)


def _with_no_ops(batch: dict[str, Any]) -> tuple[MetadataRecord, ...]:
    """Return the records of a batch, with the NoOpRecords that were among them."""
    known = dict(zip(batch["offsets"], batch["records"], strict=True))
    no_op = {"type": "NO_OP_RECORD", "version": 0, "data": {}}
    return tuple(record_of(known.get(offset, no_op)) for offset in range(batch["base"], batch["last"] + 1))


@functools.cache
def kafka_snapshot() -> tuple[MetadataRecord, ...]:
    """Return the records of the snapshot at offset 2621."""
    return tuple(record_of(text) for text in json.loads(gzip.decompress(FILE.read_bytes()))["snapshot"])


def record_of(dumped: dict[str, Any]) -> MetadataRecord:
    """Return the record that kafka-dump-log printed."""
    kind = _BY_LABEL[dumped["type"]]
    return MetadataRecord(kind, dumped["version"], message_of(record_class(kind.key), dumped["data"]))


def message_of(cls: type, data: dict[str, Any]) -> Any:
    """Return a JSON object's message; absent fields have their defaults."""
    values = {}
    for field in dataclasses.fields(cls):
        wire: Wire = field.metadata[WIRE]
        if json_name(field.name) in data:
            values[field.name] = _value(data[json_name(field.name)], wire)
    return cls(**values)


def _value(value: Any, wire: Wire) -> Any:
    if value is None:
        return None
    if wire.kind == "uuid":
        return base64.urlsafe_b64decode(value + "==")
    if wire.kind == "bytes":
        return base64.b64decode(value)
    if wire.kind == "array":
        if isinstance(wire.item, str):
            return [_value(one, Wire(wire.item)) for one in value]
        assert wire.item is not None
        return [message_of(wire.item, one) for one in value]
    return value
