"""The reads of the log for a ShareFetch: limits of each partition, and the bytes that the member gets. Pure.

Batches are handed on as they are in the log: no record is decoded, and of a control batch only its marker is read.
Source: PartitionMaxBytesStrategy, ShareFetchUtils.maybeSliceFetchRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidegauge.record_batch import BatchHeader, Buffer, iterate_headers
from tidegauge.transaction_marker import Outcome, read_marker
from tidegauge_broker.share.acquiring import Acquired, LogBatch


def limits_of(max_bytes: int, count: int, draw: Callable[[int], int]) -> list[int]:
    """Return each partition's limit in bytes; one gets the remainder, too.

    Args:
        max_bytes: of the request, 1 at least.
        count: number of partitions, 1 at least.
        draw: returns a random number below another one.
    """
    each, left = divmod(max_bytes, count)
    limits = [each] * count
    chosen = draw(count)
    if each:
        limits[chosen] += left
    else:
        for number in range(left):  # a byte each, from the drawn one on: a batch is given all the same
            limits[(chosen + number) % count] = 1
    return limits


def headers_of(records: Buffer) -> list[BatchHeader]:
    """Return the headers of the batches that were read.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes are no batches.
    """
    return list(iterate_headers(records))


def log_batches(records: Buffer, headers: Sequence[BatchHeader]) -> list[LogBatch]:
    """Return the batches as a share partition acquires them.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, a marker makes no sense.
    """
    return [_log_batch(records, header) for header in headers]


def _log_batch(records: Buffer, header: BatchHeader) -> LogBatch:
    is_abort_marker = False
    if header.is_control and header.is_transactional:
        marker = read_marker(records, header)
        is_abort_marker = marker is not None and marker.outcome is Outcome.ABORT
    return LogBatch(
        header.base_offset, header.last_offset, header.producer_id, header.is_transactional, is_abort_marker
    )


def slice_of(records: Buffer, headers: Sequence[BatchHeader], acquired: Sequence[Acquired]) -> Buffer:
    """Return the batches from the first to the last acquired offset."""
    first_offset, last_offset = acquired[0].first_offset, acquired[-1].last_offset
    first = next((one for one in reversed(headers) if one.base_offset <= first_offset), headers[0])
    last = next((one for one in reversed(headers) if one.base_offset <= last_offset), first)  # not before the first
    end = last.position + last.size_bytes
    if first.position == 0 and end == len(records):
        return records
    return memoryview(records)[first.position : end]
