"""RecordBatch v2 bytes to Arrow, without intermediate row objects.

Contract: ``ArrowDecoder`` takes buffers of complete batches in offset order and gives ``pyarrow.RecordBatch`` with the
columns of Spark's Kafka source.

- No record below ``from_offset`` and none at or above ``until_offset`` is returned, wherever batches begin and end.
- Control batches and those of aborted transactions give no rows, but their offsets count as read.
- Every batch's CRC is checked, as a Kafka consumer does (check.crcs); one that does not match raises, and none of its
  records is returned.
- ``next_offset`` is the first offset not yet decoded; compaction and control batches leave gaps, which are no loss.
  ``last_epoch`` is the leader epoch of the record before it; -1 unknown.

Batches are gathered until they make an Arrow batch of a good size, and decoded together (``columnar``); so a record
that can't be read raises when its Arrow batch is due.
Source: ``DefaultRecordBatch``; the schema is that of Spark's ``KafkaRecordToRowConverter``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import pyarrow as pa

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, crc_matches, iterate_headers
from tidegauge_spark.options import Columns
from tidegauge_spark.pending import HEADERS, Arrow, BadRecordsError, PendingBatch, RecordColumns

ROWS_PER_BATCH = 10_000
"""Rows of an Arrow batch, as spark.sql.execution.arrow.maxRecordsPerBatch; fewer cost time, more gain none."""
BYTES_PER_BATCH = 16 * 1024 * 1024


@cache
def arrow_schema(columns: Columns) -> Arrow:
    """Return the schema that Spark wants from a Python source: equal in names, types and nullability."""
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
        fields.append(pa.field("headers", HEADERS))
    if columns.leader_epoch:
        fields += [pa.field("leaderEpoch", pa.int32()), pa.field("highWatermark", pa.int64())]
    return pa.schema(fields)


def _read_columns() -> Callable[..., RecordColumns]:
    """Return the fast implementation if numpy is installed, which pyarrow and pyspark do not need."""
    try:
        from tidegauge_spark import columnar  # noqa: PLC0415  (only the process that decodes)
    except ModuleNotFoundError:
        from tidegauge_spark import plain  # noqa: PLC0415  (as above)

        return plain.read_columns
    return columnar.read_columns


class ArrowDecoder:
    """Gathers the records of one range and returns them in Arrow batches of a good size."""

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
        self._records = 0
        self._pending: list[PendingBatch] = []

    @property
    def done(self) -> bool:
        """Return whether all offsets of the range have been decoded."""
        return self.next_offset >= self._until_offset

    def decode(
        self, buffer: bytes, high_watermark: int = -1, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[Arrow]:
        """Decode a buffer of complete batches; yield each Arrow batch that became full.

        Args:
            buffer: the batches of one response.
            high_watermark: of that response.
            aborted: the aborted transactions that it names, by first offset and producer id; their records are left out
                (read_committed).

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, a CRC that does not match or bytes that are not a batch.
        """
        kept = None if not aborted else self._kept(buffer, aborted)
        for header in self._headers_of(buffer):
            if header.next_offset <= self.next_offset:
                continue
            if self.done or header.base_offset >= self._until_offset:
                self.next_offset = max(self.next_offset, self._until_offset)
                return
            if not crc_matches(buffer, header):
                raise self._corrupt(header.base_offset, "its bytes do not match its CRC-32C")
            if not header.is_control and (kept is None or header.base_offset in kept):
                self._pending.append(PendingBatch(buffer, header, self.next_offset, high_watermark))
                self._records += header.record_count
                self._bytes += header.size_bytes
            self.next_offset = min(header.next_offset, self._until_offset)
            self.last_epoch = header.leader_epoch
            if self._records >= self._rows_per_batch or self._bytes >= BYTES_PER_BATCH:
                yield from self.rest()

    def skip_to(self, offset: int) -> None:
        """Continue at this or a later offset, because those before are lost; their epoch is unknown then."""
        self.last_epoch = -1
        self.next_offset = max(self.next_offset, min(offset, self._until_offset))

    def rest(self) -> Iterator[Arrow]:
        """Yield the remaining records once the range is done, if there are any.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, records that can't be read.
        """
        pending = self._pending
        self._clear()
        if pending:
            batch = self._take(pending)
            if batch.num_rows:
                yield batch

    def _headers_of(self, buffer: bytes) -> Iterator[BatchHeader]:
        try:
            yield from iterate_headers(buffer)
        except TidegaugeError as error:
            raise self._corrupt(self.next_offset, error.message) from None

    def _kept(self, buffer: bytes, aborted: Sequence[tuple[int, int]]) -> frozenset[int]:
        """Return the base offsets of the batches that belong to no aborted transaction."""
        from tidegauge_client.isolation import Aborted, without_aborted  # noqa: PLC0415  (only if there are such)

        try:
            kept = without_aborted(buffer, self._headers_of(buffer), [Aborted(*one) for one in aborted])
        except TidegaugeError as error:
            raise self._corrupt(self.next_offset, error.message) from None
        return frozenset(header.base_offset for header in kept)

    def _corrupt(self, offset: int, why: str) -> TidegaugeError:
        return TidegaugeError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record batch for partition {self._topic_partition} at offset {offset} is invalid, cause: {why}",
        )

    def _take(self, pending: list[PendingBatch]) -> Arrow:
        try:
            columns = _read_columns()(pending, self._until_offset, with_headers=self._columns.headers)
        except BadRecordsError as error:
            raise self._corrupt(error.batch.base_offset, str(error)) from None
        rows = len(columns.offsets)
        arrays = [
            columns.keys,
            columns.values,
            pa.repeat(pa.scalar(self._topic_partition.topic, pa.string()), rows),
            pa.repeat(pa.scalar(self._topic_partition.partition, pa.int32()), rows),
            columns.offsets,
            columns.timestamps_us.view(pa.timestamp("us", tz="UTC")),
            columns.timestamp_types,
        ]
        if self._columns.headers:
            arrays.append(columns.headers)
        if self._columns.leader_epoch:
            arrays += [columns.leader_epochs, columns.high_watermarks]
        return pa.RecordBatch.from_arrays(arrays, schema=arrow_schema(self._columns))
