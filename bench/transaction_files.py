"""Traces of transactions in the files of a broker's log directory, as lines that can be compared byte by byte.

Producer ids are numbered in the order in which they appear in __transaction_state, and times of the brokers' clocks
are replaced; times that a client has given stay, and so does whether a time is there at all. Everything else of a
batch, an entry of an index or a snapshot is shown as the bytes that it has; checksums are left out, since they cover
ids and times.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tests.wire_responses.batches import CONTROL, TIME_MS

from tidegauge.record_batch import iterate_headers
from tidegauge_broker.log.records import decode_records

Facts = dict[str, str]
TRANSACTION_TOPIC = "__transaction_state"
_HEADER = struct.Struct(">qiibIhiqqqhii")
_ENTRY = struct.Struct(">hqqqq")
_SNAPSHOT = struct.Struct(">hIi")
_PRODUCER = struct.Struct(">qhiqiqiq")
_TIMES = struct.Struct(">qq")
_VALUE_START = struct.Struct(">hq")


class ProducerIds:
    """Numbers for producer ids, in the order of their first appearance."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def number(self, producer_id: int) -> int:
        """Return the number of an id; -1 is none."""
        return -1 if producer_id < 0 else self._known.setdefault(producer_id, len(self._known))


def _time(time_ms: int) -> int:
    """Return 1 for a time of a broker's clock, others as they are."""
    return 1 if time_ms > TIME_MS + 1_000_000 else time_ms


def _batches(data: bytes) -> Iterator[bytes]:
    at = 0
    for header in iterate_headers(data):
        yield data[at : at + header.size_bytes]
        at += header.size_bytes


def log_lines(data: bytes, topic: str, ids: ProducerIds) -> list[str]:
    """Return a line for each batch of a log."""
    return [_batch_line(batch, topic, ids) for batch in _batches(data)]


def _batch_line(batch: bytes, topic: str, ids: ProducerIds) -> str:
    fields = list(_HEADER.unpack_from(batch))
    fields[4] = 0  # the checksum
    fields[9] = ids.number(fields[9])
    fields[7], fields[8] = _time(fields[7]), _time(fields[8])
    if fields[5] & CONTROL:
        topic = ""  # a marker, whatever the topic's own records are
    records = [_record_line(record.key, record.value, topic, ids) for record in decode_records(batch)]
    return f"{_HEADER.pack(*fields).hex()} {' '.join(records)}"


def _record_line(key: bytes | None, value: bytes | None, topic: str, ids: ProducerIds) -> str:
    shown = value
    if value is not None and topic == TRANSACTION_TOPIC and key is not None:
        version, producer_id = _VALUE_START.unpack_from(value)
        updated, started = _TIMES.unpack_from(value, len(value) - _TIMES.size)
        start = _VALUE_START.pack(version, ids.number(producer_id))
        shown = start + value[_VALUE_START.size : -_TIMES.size] + _TIMES.pack(_time(updated), _time(started))
    elif value is not None and topic == "__consumer_offsets" and key is not None:
        shown = _offset_value(key, value)
    return f"{'null' if key is None else key.hex()}={'null' if shown is None else shown.hex()}"


def _offset_value(key: bytes, value: bytes) -> bytes:
    """Return an offset's value without its time; a group's without random parts."""
    (version,) = struct.unpack_from(">h", key)
    if version <= 1:
        return value[:-8] + struct.pack(">q", _time(struct.unpack(">q", value[-8:])[0]))
    length = struct.unpack_from(">h", value, 2)[0]
    return value[: 4 + length + 4]  # version, protocol type, generation; then come names of members


def index_lines(data: bytes, ids: ProducerIds) -> list[str]:
    """Return a line for each aborted transaction of a .txnindex file."""
    lines = []
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(data):
        lines.append(_ENTRY.pack(version, ids.number(producer_id), first, last, stable).hex())
    return lines


def snapshot_lines(data: bytes, ids: ProducerIds) -> list[str]:
    """Return a line for each producer of a .snapshot file, by number."""
    version, _, count = _SNAPSHOT.unpack_from(data)
    found = []
    for fields in _PRODUCER.iter_unpack(data[_SNAPSHOT.size :]):
        shown = list(fields)
        shown[0], shown[5] = ids.number(fields[0]), _time(fields[5])
        found.append(_PRODUCER.pack(*shown).hex())
    return [f"version {version}, {count} producers", *sorted(found)]


def contents(directory: Path, topics: tuple[str, ...], ids: ProducerIds) -> Facts:
    """Return the lines of some topics' logs, .txnindex files and snapshots.

    Args:
        directory: a log directory of a broker that has stopped.
        topics: their names; __transaction_state first, whose order of producer ids counts.
        ids: of this side.
    """
    facts: Facts = {}
    for topic in topics:
        for path in sorted(directory.glob(f"{topic}-*/*")):
            lines = _lines(path, topic, ids)
            for number, line in enumerate(lines or ()):
                facts[f"{path.parent.name}/{path.name} line {number}"] = line
            if lines is not None:
                facts[f"{path.parent.name}/{path.name} lines"] = str(len(lines))
    return facts


def _lines(path: Path, topic: str, ids: ProducerIds) -> list[str] | None:
    data = path.read_bytes()
    if path.suffix == ".log":
        return log_lines(data, topic, ids)
    if path.suffix == ".txnindex":
        return index_lines(data, ids)
    if path.suffix == ".snapshot":
        return snapshot_lines(data, ids)
    return None
