"""RecordBatch v2 bytes to Arrow, without a row object on the way.

Contract: ``ArrowDecoder`` takes buffers of whole batches in offset order and gives ``pyarrow.RecordBatch`` with the
columns of Spark's Kafka source.

- No record below ``from_offset`` and none at or above ``until_offset`` comes out, wherever batches begin and end.
- Control batches give no rows, but their offsets count as read.
- Every batch's CRC is checked, as a Kafka consumer does (check.crcs); a bad one raises and nothing of it comes out.
- ``next_offset`` is the first offset not yet decoded; compaction and control batches leave gaps, which are no loss.
  ``last_epoch`` is the leader epoch of what stands before it; -1 unknown.

The records inside are decoded by aiokafka's compiled codec; compression comes with it.
Source: ``DefaultRecordBatch`` (kafka-behaviour 6.2); the schema is that of ``KafkaRecordToRowConverter``.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import pyarrow as pa

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import LOG_APPEND_TIME_BIT, BatchHeader, crc_matches, iterate_headers
from tidegauge_spark.options import Columns

ROWS_PER_BATCH = 10_000
"""As many as spark.sql.execution.arrow.maxRecordsPerBatch; fewer cost time, more gain none."""
BYTES_PER_BATCH = 16 * 1024 * 1024

Arrow = Any
"""pyarrow ships no types."""


@cache
def arrow_schema(columns: Columns) -> Arrow:
    """The schema as Spark wants it from a Python source: equal in names, types and nullability (a test compares)."""
    fields = [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.string()),
        pa.field("partition", pa.int32()),
        pa.field("offset", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("timestampType", pa.int32()),
    ]
    if columns.headers:
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        fields.append(pa.field("headers", pa.list_(pa.field("element", pair))))
    if columns.leader_epoch:
        fields += [pa.field("leaderEpoch", pa.int32()), pa.field("highWatermark", pa.int64())]
    return pa.schema(fields)


@cache
def _codec() -> Any:
    """Aiokafka's compiled codec, imported by the process that decodes."""
    from aiokafka.record.default_records import DefaultRecordBatch  # noqa: PLC0415  (the driver never needs it)

    return DefaultRecordBatch


class ArrowDecoder:
    """Gathers the records of one range and hands them out in Arrow batches of a good size."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        from_offset: int,
        until_offset: int,
        columns: Columns = Columns(),  # noqa: B008  (immutable)
        rows_per_batch: int = ROWS_PER_BATCH,
        last_epoch: int = -1,
    ) -> None:
        self.next_offset = from_offset
        self.last_epoch = last_epoch
        self._topic_partition = topic_partition
        self._until_offset = until_offset
        self._columns = columns
        self._rows_per_batch = rows_per_batch
        self._clear()

    def _clear(self) -> None:
        self._bytes = 0
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._offsets: list[int] = []
        self._timestamps_ms: list[int] = []
        self._timestamp_types: list[int] = []
        self._headers: list[list[dict[str, Any]] | None] = []
        self._leader_epochs: list[int] = []
        self._high_watermarks: list[int] = []

    @property
    def done(self) -> bool:
        """Whether all offsets of the range have been decoded."""
        return self.next_offset >= self._until_offset

    def decode(self, buffer: bytes, high_watermark: int = -1) -> Iterator[Arrow]:
        """Decode a buffer of whole batches; yields each Arrow batch that became full.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, a CRC that does not match or bytes that are no batch.
        """
        for header in self._headers_of(buffer):
            if header.next_offset <= self.next_offset:
                continue
            if self.done or header.base_offset >= self._until_offset:
                self.next_offset = max(self.next_offset, self._until_offset)
                return
            if not crc_matches(buffer, header):
                raise self._corrupt(header.base_offset, "its bytes do not match its CRC-32C")
            if not header.is_control:
                self._add(buffer, header, high_watermark)
            self.next_offset = min(header.next_offset, self._until_offset)
            self.last_epoch = header.leader_epoch
            if len(self._offsets) >= self._rows_per_batch or self._bytes >= BYTES_PER_BATCH:
                yield self._take()

    def skip_to(self, offset: int) -> None:
        """Go on at this or a later offset, because those before are lost: of which epoch they were counts no more."""
        self.last_epoch = -1
        self.next_offset = max(self.next_offset, min(offset, self._until_offset))

    def rest(self) -> Iterator[Arrow]:
        """Yields what is left once the range is done; nothing if nothing is."""
        if self._offsets:
            yield self._take()

    def _headers_of(self, buffer: bytes) -> Iterator[BatchHeader]:
        try:
            yield from iterate_headers(buffer)
        except TidegaugeError as error:
            raise self._corrupt(self.next_offset, error.message) from None

    def _corrupt(self, offset: int, why: str) -> TidegaugeError:
        return TidegaugeError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record batch for partition {self._topic_partition} at offset {offset} is invalid, cause: {why}",
        )

    def _add(self, buffer: bytes, header: BatchHeader, high_watermark: int) -> None:
        first = self.next_offset
        until = self._until_offset
        before = len(self._offsets)
        add_key, add_value = self._keys.append, self._values.append
        add_offset, add_timestamp = self._offsets.append, self._timestamps_ms.append
        whole_batch = memoryview(buffer)[header.position : header.position + header.size_bytes]
        try:
            for record in _codec()(whole_batch):
                offset = record.offset
                if first <= offset < until:
                    add_key(record.key)
                    add_value(record.value)
                    add_offset(offset)
                    add_timestamp(record.timestamp)
                    if self._columns.headers:
                        pairs = [{"key": key, "value": value} for key, value in record.headers]
                        self._headers.append(pairs or None)
        except (ValueError, TypeError, IndexError, RuntimeError) as error:
            raise self._corrupt(header.base_offset, str(error) or type(error).__name__) from None
        rows = len(self._offsets) - before
        self._bytes += header.size_bytes
        self._timestamp_types += [1 if header.attributes & LOG_APPEND_TIME_BIT else 0] * rows
        if self._columns.leader_epoch:
            self._leader_epochs += [header.leader_epoch] * rows
            self._high_watermarks += [high_watermark] * rows

    def _take(self) -> Arrow:
        rows = len(self._offsets)
        milliseconds = pa.array(self._timestamps_ms, pa.timestamp("ms", tz="UTC"))
        arrays = [
            pa.array(self._keys, pa.binary()),
            pa.array(self._values, pa.binary()),
            pa.repeat(pa.scalar(self._topic_partition.topic, pa.string()), rows),
            pa.repeat(pa.scalar(self._topic_partition.partition, pa.int32()), rows),
            pa.array(self._offsets, pa.int64()),
            milliseconds.cast(pa.timestamp("us", tz="UTC")),
            pa.array(self._timestamp_types, pa.int32()),
        ]
        schema = arrow_schema(self._columns)
        if self._columns.headers:
            arrays.append(pa.array(self._headers, schema.field("headers").type))
        if self._columns.leader_epoch:
            arrays.append(pa.array(self._leader_epochs, pa.int32()))
            arrays.append(pa.array(self._high_watermarks, pa.int64()))
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
