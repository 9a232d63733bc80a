"""The records of a large batch, read in a thread beside the event loop, without a moment that would stop the others.

Rules:
    1. A record of up to ``RUN_BYTES`` is decoded by the codec, in runs of at most as many bytes: it copies keys and
       values. A larger one is parsed here, and its value is a view of the batch.
    2. After ``RECORDS_BETWEEN_PAUSES`` records, and after each run, ``pause`` is called, so that the event loop gets
       its turn even if this module is compiled (compiled code has no other moment at which threads take turns).

Layout of a record (``org.apache.kafka.common.record.DefaultRecord``): length, attributes, timestamp delta, offset
delta, key, value, headers; lengths and deltas are zigzag varints.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import (
    COMPRESSION_MASK,
    HEADER_BYTES,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    Buffer,
    read_header,
)
from tidegauge.record_codec import RecordBatch

Pause = Callable[[], object]
RUN_BYTES = 256 * 1024
RECORDS_BETWEEN_PAUSES = 500
_COUNT = struct.Struct(">i")
_ATTRIBUTES_AT, _COUNT_AT = 22, 57
_MOST_VARINT_BYTES = 10


class LargeRecord(NamedTuple):
    """A record that was parsed in place, with the attributes of the codec's records."""

    offset: int
    timestamp: int
    key: bytes | None
    value: memoryview | None
    raw_headers: memoryview
    header_count: int

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The headers, decoded each time: a record may have millions, and most readers ask for none."""
        headers: list[tuple[str, bytes | None]] = []
        at = 0
        for _ in range(self.header_count):
            name, at = _sized(self.raw_headers, at)
            content, at = _sized(self.raw_headers, at)
            headers.append((str(name or b"", "utf-8"), None if content is None else bytes(content)))
        return headers


def records_in(whole: Buffer, pause: Pause | None) -> Iterator[Any]:
    """Yield the records of a batch that ``inflated`` returned.

    Args:
        whole: the batch.
        pause: rule 2, in a thread beside the event loop; None on the loop.

    Raises:
        Exception: any error of the codec, and of ``read_large``.
    """
    if pause is None or whole[_ATTRIBUTES_AT] & COMPRESSION_MASK:  # or it is snappy, and small
        batch: Any = RecordBatch(memoryview(whole))  # the codec ships no types
        return iter(batch)
    return read_large(whole, pause)


def read_large(whole: Buffer, pause: Pause) -> Iterator[Any]:
    """Yield the records of a batch that is not compressed.

    Args:
        whole: the batch.
        pause: rule 2.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, the bytes behind the header are not as many records as it says.
        Exception: any error of the codec.
    """
    view, header = memoryview(whole), read_header(whole)
    first, at, end, index, count = HEADER_BYTES, HEADER_BYTES, len(whole), 0, 0
    while at < end:
        size_bytes, body = _varint(view, at)
        after = body + size_bytes
        if size_bytes < 0 or after > end:
            raise _corrupt(f"A record of {size_bytes} bytes ends behind its batch")
        is_large = after - at > RUN_BYTES
        if count and (is_large or after - first > RUN_BYTES):
            yield from _run(view, first, at, count, pause)
            index, first, count = index + count, at, 0
        if is_large:
            yield _large(view[body:after], header, pause)
            pause()
            index, first = index + 1, after
        else:
            count += 1
            if not count % RECORDS_BETWEEN_PAUSES:
                pause()
        if index + count > header.record_count:
            raise _corrupt(f"There are more records than the {header.record_count} of the header")
        at = after
    if count:
        yield from _run(view, first, at, count, pause)
    if index + count < header.record_count:
        raise _corrupt(f"{index + count} records, and the header says {header.record_count}")


def _run(view: memoryview, first: int, end: int, count: int, pause: Pause) -> Iterator[Any]:
    head = bytearray(view[:HEADER_BYTES])
    _COUNT.pack_into(head, _COUNT_AT, count)
    batch: Any = RecordBatch(memoryview(bytes(head) + view[first:end]))  # the codec ships no types
    for number, record in enumerate(batch, 1):
        yield record
        if not number % RECORDS_BETWEEN_PAUSES:
            pause()
    pause()


def _large(body: memoryview, header: BatchHeader, pause: Pause) -> LargeRecord:
    time_delta, at = _varint(body, 1)  # behind the attributes, of which none is used
    offset_delta, at = _varint(body, at)
    view, at = _sized(body, at)
    key = None if view is None else bytes(view)
    value, at = _sized(body, at)
    header_count, headers_at = _varint(body, at)
    at = headers_at
    if header_count < 0:
        raise _corrupt(f"A record of {header_count} headers")
    for number in range(1, header_count + 1):
        name, at = _sized(body, at)
        _, at = _sized(body, at)
        if name is None:
            raise _corrupt("The name of a header is null")
        if not number % RECORDS_BETWEEN_PAUSES:
            pause()
    if at != len(body):
        raise _corrupt(f"A record of {len(body)} bytes whose fields take {at}")
    has_append_time = header.attributes & LOG_APPEND_TIME_BIT
    time_ms = header.max_timestamp_ms if has_append_time else header.base_timestamp_ms + time_delta
    return LargeRecord(header.base_offset + offset_delta, time_ms, key, value, body[headers_at:], header_count)


def _sized(view: memoryview, at: int) -> tuple[memoryview | None, int]:
    size_bytes, at = _varint(view, at)
    if size_bytes < 0:
        return None, at
    if at + size_bytes > len(view):
        raise _corrupt(f"A field of {size_bytes} bytes ends behind its record")
    return view[at : at + size_bytes], at + size_bytes


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    shift, value = 0, 0
    for position in range(at, min(at + _MOST_VARINT_BYTES, len(view))):
        byte = view[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value >> 1 ^ -(value & 1), position + 1
        shift += 7
    raise _corrupt("A number that does not end")


def _corrupt(words: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.CORRUPT_MESSAGE, words)
