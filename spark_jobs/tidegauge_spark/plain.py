"""The records of batches to Arrow columns, one record after the other, by aiokafka's compiled codec.

Contract: the plain implementation, used if numpy is not installed; ``columnar.read_columns`` gives the same, several
times as fast (a property test compares them).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from tidegauge.record_batch import LOG_APPEND_TIME_BIT
from tidegauge_spark.pending import (
    BAD_BYTES,
    HEADERS,
    MAX_MS,
    MICROSECONDS_PER_MS,
    BadRecordsError,
    PendingBatch,
    RecordColumns,
)


@cache
def _codec() -> Any:
    """Import aiokafka's compiled codec, in the process that decodes."""
    from aiokafka.record.default_records import DefaultRecordBatch  # noqa: PLC0415  (the driver never needs it)

    return DefaultRecordBatch


def _records(batch: PendingBatch) -> Iterator[Any]:
    header = batch.header
    whole_batch = memoryview(batch.buffer)[header.position : header.position + header.size_bytes]
    try:
        yield from _codec()(whole_batch)
    except BAD_BYTES as error:
        raise BadRecordsError(header, str(error) or type(error).__name__) from None


def read_columns(batches: Sequence[PendingBatch], until_offset: int, *, with_headers: bool) -> RecordColumns:
    """Return the wanted records of some batches: below ``until_offset``, and not below their batch's ``from_offset``.

    Raises:
        BadRecordsError: a batch can't be decompressed, or its records are malformed.
    """
    rows = []
    headers: list[list[dict[str, Any]] | None] = []
    for batch in batches:
        header = batch.header
        constant = (int(bool(header.attributes & LOG_APPEND_TIME_BIT)), header.leader_epoch, batch.high_watermark)
        for record in _records(batch):
            if batch.from_offset <= record.offset < until_offset:
                if abs(record.timestamp) > MAX_MS:
                    raise BadRecordsError(header, "a timestamp is beyond what Spark can hold")
                time_us = record.timestamp * MICROSECONDS_PER_MS
                rows.append((record.key, record.value, record.offset, time_us, *constant))
                if with_headers:
                    headers.append([{"key": key, "value": value} for key, value in record.headers] or None)
    key, value, offset, time, kind, epoch, high_watermark = zip(*rows, strict=True) if rows else ((),) * 7
    return RecordColumns(
        keys=pa.array(key, pa.binary()),
        values=pa.array(value, pa.binary()),
        offsets=pa.array(offset, pa.int64()),
        timestamps_us=pa.array(time, pa.int64()),
        timestamp_types=pa.array(kind, pa.int32()),
        headers=pa.array(headers, HEADERS) if with_headers else None,
        leader_epochs=pa.array(epoch, pa.int32()),
        high_watermarks=pa.array(high_watermark, pa.int64()),
    )
