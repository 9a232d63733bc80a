"""A leader's response in parts, each of which a follower can take in one step of the event loop.

Rules:
    1. A part has at most ``BATCHES_PER_PART`` batches and ``BYTES_PER_PART`` of records, or one batch. The records of a
       partition are divided between batches; all but the last of its parts say that more follows.
    2. Bytes that are no complete batch end their partition's records: they are in the last part, for the core to judge.
    3. A response that surely is one part is not looked into.
Kafka's follower takes a response in a fetcher thread (AbstractFetcherThread.processFetchRequest).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from struct import Struct

from tidegauge.record_batch import HEADER_BYTES, LENGTH_PREFIX_BYTES
from tidegauge_broker.replica.messages import FetchedPartition

BATCHES_PER_PART = 2_000
BYTES_PER_PART = 2 * 1024 * 1024
_LENGTH = Struct(">i")
_LENGTH_AT = 8


def is_one_part(partitions: Sequence[FetchedPartition]) -> bool:
    """Whether a response surely is one part: so few bytes hold no more batches."""
    return (
        len(partitions) <= BATCHES_PER_PART
        and sum(len(one.records) for one in partitions) <= BATCHES_PER_PART * HEADER_BYTES
    )


def parts_of(partitions: Sequence[FetchedPartition]) -> Iterator[list[FetchedPartition]]:
    """Divide a response; rules 1 and 2."""
    part: list[FetchedPartition] = []
    count = size_bytes = 0
    for partition in partitions:
        for start, end, batches in _pieces(partition.records):
            if part and (count + batches > BATCHES_PER_PART or size_bytes + end - start > BYTES_PER_PART):
                yield part
                part, count, size_bytes = [], 0, 0
            is_whole = end - start == len(partition.records)
            piece = replace(partition, records=partition.records[start:end], has_more=end < len(partition.records))
            part.append(partition if is_whole else piece)
            count += batches
            size_bytes += end - start
    if part:
        yield part


def _pieces(records: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield where pieces of records begin and end, and how many batches they have (1 for none at all)."""
    start = position = count = 0
    while position + HEADER_BYTES <= len(records):
        (length,) = _LENGTH.unpack_from(records, position + _LENGTH_AT)
        end = position + LENGTH_PREFIX_BYTES + length
        if length < HEADER_BYTES - LENGTH_PREFIX_BYTES or end > len(records):
            break
        if count and (count == BATCHES_PER_PART or end - start > BYTES_PER_PART):
            yield start, position, count
            start, count = position, 0
        position = end
        count += 1
    yield start, len(records), max(1, count)
