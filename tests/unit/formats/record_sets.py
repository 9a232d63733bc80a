"""Message sets and batches for the tests of formats, by aiokafka and by hand, and what kafka-python reads in them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from aiokafka.record.legacy_records import LegacyRecordBatchBuilder
from hypothesis import strategies as st

from tidegauge.record_batch import BatchHeader, make_batch
from tidegauge_broker.formats.compression import compress
from tidegauge_broker.formats.messages import Message, each_unwrapped, read_messages, write_message
from tidegauge_broker.formats.records import StoredRecord, encode_records

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # its import uses what Python 3.11 deprecates
    from kafka.record.memory_records import MemoryRecords

GZIP, SNAPPY, LZ4 = 1, 2, 3
TIME_MS = 1_700_000_000_000
Pair = tuple[bytes | None, bytes | None]
maybe = st.none() | st.binary(max_size=40)
of_aiokafka = st.sampled_from([(0, 0), (0, GZIP), (0, SNAPPY), (1, 0), (1, GZIP), (1, SNAPPY), (1, LZ4)])
"""Format and codec of the message sets that aiokafka makes."""
pairs = st.lists(st.tuples(maybe, maybe), min_size=1, max_size=12)


def built(magic: int, codec: int, records: Sequence[Pair]) -> bytes:
    """A message set by aiokafka."""
    builder: Any = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for index, (key, value) in enumerate(records):
        assert builder.append(index, timestamp=TIME_MS + index, key=key, value=value) is not None
    return bytes(builder.build())


def read(records: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Offsets, times, keys and values of a message set, wrappers opened."""
    found: list[Message] = []
    for message in read_messages(records):
        found += each_unwrapped(message) if message.codec else [message]
    assert all(message.crc == message.computed_crc for message in found)
    return [(message.offset, message.timestamp_ms, message.key, message.value) for message in found]


def expected(magic: int, records: Sequence[Pair]) -> list[Any]:
    return [(index, TIME_MS + index if magic else -1, key, value) for index, (key, value) in enumerate(records)]


def one(magic: int, value: bytes | None = b"v", offset: int = 0, attributes: int = 0) -> bytes:
    return write_message(offset, magic, TIME_MS, None, value, attributes)


HEADERS = [("h", b"1"), ("n", None)]


def batch(
    records: Sequence[Pair], base_offset: int = 0, codec: int = 0, attributes: int = 0, offsets: Sequence[int] = ()
) -> bytes:
    """A stored batch with headers, compacted if it has ``offsets``."""
    stored = [
        StoredRecord(offset, TIME_MS + index, key, value, HEADERS)
        for index, (offset, (key, value)) in enumerate(
            zip(offsets or range(base_offset, base_offset + len(records)), records, strict=True)
        )
    ]
    last = (stored[-1].offset if stored else base_offset) - base_offset
    times = (TIME_MS, TIME_MS + max(0, len(records) - 1))
    header = BatchHeader(base_offset, 0, 0, 2, 0, codec | attributes, last, *times, -1, -1, -1, len(records), 0)
    return make_batch(header, compress(codec, encode_records(stored, base_offset, TIME_MS)))


def single(value: bytes, offset: int, **more: Any) -> bytes:
    return batch([(None, value)], offset, **more)


def by_kafka_python(records: bytes) -> list[Any]:
    batches: Any = MemoryRecords(records)
    found = []
    while batches.has_next():
        found += [(record.offset, record.timestamp, record.key, record.value) for record in batches.next_batch()]
    return found
