"""The records of the metadata log as ``kafka-dump-log --cluster-metadata-decoder`` of Kafka 4.3.1 prints them.

Control records are shown as JSON with any options; data records only with the decoder.
Source: ``org.apache.kafka.tools.DumpLogSegments`` (``ClusterMetadataLogMessageParser``); the JSON is ``json_text``'s.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import NamedTuple

from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.kraft import control_types
from tidegauge.kafka.kraft.json_text import json_text
from tidegauge.kafka.kraft.record_types import decode_record
from tidegauge_broker.formats.records import StoredRecord
from tidegauge_broker.metadata_log.snapshot_names import BOOTSTRAP_NAME, parse_snapshot_name

_END_MARKERS = {0: "ABORT", 1: "COMMIT"}
_MARKER = struct.Struct(">hi")
_LABELS = {
    control_types.LEADER_CHANGE: "LeaderChange:",
    control_types.SNAPSHOT_HEADER: "SnapshotHeader",
    control_types.SNAPSHOT_FOOTER: "SnapshotFooter",
    control_types.KRAFT_VERSION: "KRaftVersion",
    control_types.KRAFT_VOTERS: "KRaftVoters",
}


class Shown(NamedTuple):
    """One part of a record: its fields for JSON, its text."""

    fields: dict[str, object]
    text: str


def shown_control(record: StoredRecord) -> Shown:
    """Return a control record's content: a transaction marker, or JSON."""
    try:
        number = control_types.control_number(record.key)
    except MalformedMessage:
        number = -1
    if number in _END_MARKERS:
        value = bytes(record.value or b"")
        epoch = _MARKER.unpack_from(value)[1] if len(value) >= _MARKER.size else -1
        marker = _END_MARKERS[number]
        fields: dict[str, object] = {"endTxnMarker": marker, "coordinatorEpoch": epoch}
        return Shown(fields, f"endTxnMarker: {marker} coordinatorEpoch: {epoch}")
    if number not in _LABELS:
        return Shown({"controlType": number}, f"controlType: UNKNOWN({number})")
    label = _LABELS[number]
    try:
        message = control_types.decode_control(record.key, None if record.value is None else bytes(record.value))
    except MalformedMessage as problem:
        return _skipped(record, problem, {"controlType": label.rstrip(":")})
    text = json_text(message, message.version)
    return Shown({"controlType": label.rstrip(":"), "data": json.loads(text)}, f"{label} {text}")


def shown_metadata(record: StoredRecord) -> Shown:
    """Return a metadata record's content as JSON; Kafka prints none of the keys."""
    try:
        decoded = decode_record(None if record.value is None else bytes(record.value))
    except MalformedMessage as problem:
        return _skipped(record, problem, {}, "payload: ")
    data = json_text(decoded.message, decoded.version)
    text = f'{{"type":"{decoded.type.label}","version":{decoded.version},"data":{data}}}'
    return Shown({"payload": json.loads(text)}, f"payload: {text}")


def _skipped(record: StoredRecord, problem: MalformedMessage, fields: dict[str, object], label: str = "") -> Shown:
    return Shown(fields | {"error": str(problem)}, f"{label}Error at {record.offset}, skipping. {problem}")


def shown_snapshot_name(path: Path) -> Shown | None:
    """Return the line before a snapshot's batches; None for other names."""
    if path.name == BOOTSTRAP_NAME:
        return Shown({"bootstrap": True}, "KRaft bootstrap snapshot")
    snapshot = parse_snapshot_name(path.name)
    if snapshot is None:
        return None
    fields: dict[str, object] = {"endOffset": snapshot.end_offset, "epoch": snapshot.epoch}
    return Shown(fields, f"Snapshot end offset: {snapshot.end_offset}, epoch: {snapshot.epoch}")
