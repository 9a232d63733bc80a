"""Message formats 0 and 1, before record batches: read and written.

Layout (big endian, ``org.apache.kafka.common.record.LegacyRecord``)::

    0 offset i64 | 8 size i32 | 12 crc u32 | 16 magic i8 | 17 attributes i8 | format 1: 18 timestamp i64
    then key and value, each with its length, an i32 that is -1 for null

A message set is messages one behind the other. A message with a compression codec in its attributes is a wrapper: its
value is a message set, compressed. The CRC-32 covers everything from the magic on.

Rules (AbstractLegacyRecordBatch.DeepRecordsIterator, ByteBufferLogInputStream):
    1. An end of a set that is too short for a message is ignored.
    2. Inside a wrapper of format 0 offsets are absolute. In format 1 they are relative to the first, and the wrapper
       has the offset of the last; or 0, as some producers write it.
    3. With LogAppendTime in the wrapper's attributes its time is the time of all messages inside; with CreateTime each
       has its own.
    4. Wrappers hold no wrappers.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import COMPRESSION_MASK, LOG_APPEND_TIME_BIT, MAGIC, Buffer
from tidegauge_broker.formats.compression import compress, decompress
from tidegauge_broker.formats.growing_bytes import GrowingBytes
from tidegauge_broker.formats.large_batches import RECORDS_BETWEEN_PAUSES, RUN_BYTES, Pause
from tidegauge_broker.formats.records import add_bytes

NO_TIMESTAMP = -1
_PREFIX = struct.Struct(">qi")
_PREFIX_AND_HEADER = struct.Struct(">qiIbb")
_TIMESTAMP = struct.Struct(">q")
_LENGTH = struct.Struct(">i")
_CRC_BYTES = 4
_LEAST_BYTES = 14
_MAGIC_AT = 16


class Message(NamedTuple):
    """One message of format 0 or 1.

    Attributes:
        offset: as it is written.
        magic: the format's number.
        attributes: codec, and kind of timestamp.
        crc: as it is written.
        computed_crc: what it has to be.
        timestamp_ms: -1 in format 0.
        key: None for null.
        value: None for null; of a wrapper the compressed messages.
        size_bytes: offset and size included.
    """

    offset: int
    magic: int
    attributes: int
    crc: int
    computed_crc: int
    timestamp_ms: int
    key: bytes | None
    value: Buffer | None
    size_bytes: int

    @property
    def codec(self) -> int:
        """Number of the compression codec."""
        return self.attributes & COMPRESSION_MASK

    @property
    def has_append_time(self) -> bool:
        """Whether its timestamp is said to be a broker's."""
        return self.magic > 0 and bool(self.attributes & LOG_APPEND_TIME_BIT)


def is_message_set(records: Buffer) -> bool:
    """Whether these bytes begin with a message of format 0 or 1, or are too short for any."""
    return len(records) <= _MAGIC_AT or records[_MAGIC_AT] < MAGIC


def read_messages(buffer: Buffer) -> Iterator[Message]:
    """Yield the messages of a set, wrappers as they are. Rule 1.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, a size is impossible, or there is no such format; INVALID_RECORD, a message of
            another format than the first.
    """
    view, at, first_magic = memoryview(buffer), 0, -1
    while len(view) - at >= _PREFIX.size:
        offset, size = _PREFIX.unpack_from(view, at)
        if size < _LEAST_BYTES:
            raise _corrupt(f"Record size {size} is less than the minimum record overhead ({_LEAST_BYTES})")
        end = at + _PREFIX.size + size
        if end > len(view):
            return
        magic = view[at + _MAGIC_AT]
        if magic > MAGIC:
            raise _corrupt(f"Invalid magic found in record: {magic}")
        first_magic = magic if first_magic < 0 else first_magic
        if magic != first_magic or magic == MAGIC:
            raise TidegaugeError(ErrorCode.INVALID_RECORD, f"Batch magic {magic} is not the first one's, {first_magic}")
        yield _message(view[at:end], offset)
        at = end


def _message(view: memoryview, offset: int) -> Message:
    try:
        _, _, crc, magic, attributes = _PREFIX_AND_HEADER.unpack_from(view)
        at, timestamp_ms = _PREFIX_AND_HEADER.size, NO_TIMESTAMP
        if magic > 0:
            (timestamp_ms,) = _TIMESTAMP.unpack_from(view, at)
            at += _TIMESTAMP.size
        field, at = _sized(view, at)
        key = None if field is None else bytes(field)
        value, at = _sized(view, at)
    except struct.error as problem:
        raise _corrupt(f"A message is too short: {problem}") from problem
    computed = zlib.crc32(view[_MAGIC_AT:])
    return Message(offset, magic, attributes & 0xFF, crc, computed, timestamp_ms, key, value, len(view))


def _sized(view: memoryview, at: int) -> tuple[Buffer | None, int]:
    (length,) = _LENGTH.unpack_from(view, at)
    at += _LENGTH.size
    if length < 0:
        return None, at
    if at + length > len(view):
        raise _corrupt(f"A key or value of {length} bytes ends behind its message")
    field = view[at : at + length]
    return bytes(field) if length <= RUN_BYTES else field, at + length  # no other thread runs during one copy


def each_unwrapped(wrapper: Message, pause: Pause | None = None) -> Iterator[Message]:
    """Yield the messages inside a wrapper, with absolute offsets, after all of them were looked at. Rules 2 to 4.

    Args:
        wrapper: the message that holds them.
        pause: in a thread beside the event loop: lets the loop run (``large_batches``).

    Raises:
        TidegaugeError: INVALID_RECORD, CORRUPT_MESSAGE, RECORD_LIST_TOO_LARGE: as Kafka refuses it.
    """
    if wrapper.value is None:
        raise _invalid(f"Found invalid compressed record set with null value (magic = {wrapper.magic})")
    records = decompress(wrapper.codec, wrapper.value, wrapper.magic)
    last_offset, is_nested, is_empty = 0, False, True
    for message in _inner_messages(records, pause):
        last_offset, is_empty = message.offset, False
        is_nested = is_nested or bool(message.codec)
    if is_empty:
        raise _invalid("Found invalid compressed record set with no inner records")
    first_offset = 0
    if wrapper.magic > 0 and wrapper.offset != 0:
        if wrapper.offset < last_offset:
            raise _invalid(f"Wrapper offset {wrapper.offset} is less than the last inner offset {last_offset}")
        first_offset = wrapper.offset - last_offset
    if is_nested:
        raise _invalid("Inner messages must not be compressed")
    for message in _inner_messages(records, pause):
        has_wrappers_time = wrapper.has_append_time and message.magic > 0
        yield message._replace(
            offset=first_offset + message.offset,
            timestamp_ms=wrapper.timestamp_ms if has_wrappers_time else message.timestamp_ms,
        )


def _inner_messages(records: Buffer, pause: Pause | None) -> Iterator[Message]:
    """Yield what a wrapper holds; a format that is not the wrapper's is left to the caller."""
    view, at, number = memoryview(records), 0, 0
    while len(view) - at >= _PREFIX.size:
        offset, size = _PREFIX.unpack_from(view, at)
        if size < _LEAST_BYTES:
            raise _corrupt(f"Record size is less than the minimum record overhead ({_LEAST_BYTES})")
        end = at + _PREFIX.size + size
        if end > len(view):
            return
        yield _message(view[at:end], offset)
        at, number = end, number + 1
        if pause is not None and not number % RECORDS_BETWEEN_PAUSES:
            pause()


def write_message(
    offset: int,
    magic: int,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    attributes: int = 0,
) -> bytes:
    """Return one message; in format 0 without time and type of time."""
    out = bytearray()
    add_message(out, offset, magic, timestamp_ms, key, value, attributes)
    return bytes(out)


def add_message(
    out: bytearray | GrowingBytes,
    offset: int,
    magic: int,
    timestamp_ms: int,
    key: Buffer | None,
    value: Buffer | None,
    attributes: int = 0,
    pause: Pause | None = None,
) -> None:
    """Append what ``write_message`` returns, a large value without a copy of its own."""
    body = bytearray((magic, attributes if magic > 0 else attributes & COMPRESSION_MASK))
    if magic > 0:
        body += _TIMESTAMP.pack(timestamp_ms)
    body += _LENGTH.pack(-1) if key is None else _LENGTH.pack(len(key)) + key
    body += _LENGTH.pack(-1 if value is None else len(value))
    crc = zlib.crc32(value or b"", zlib.crc32(body))
    size_bytes = _CRC_BYTES + len(body) + len(value or b"")
    out.extend(_PREFIX.pack(offset, size_bytes) + struct.pack(">I", crc) + body)
    if value:
        add_bytes(out, value, pause)


def wrap(messages: Buffer, codec: int, magic: int, last_offset: int, timestamp_ms: int, attributes: int = 0) -> bytes:
    """Return a wrapper of messages (MemoryRecordsBuilder.writeLegacyCompressedWrapperHeader).

    Args:
        messages: one behind the other; their offsets are as rule 2 says.
        codec: number of the compression codec.
        magic: the format, 0 or 1.
        last_offset: of the last message.
        timestamp_ms: the largest of theirs, or the broker's.
        attributes: which kind of time that is.
    """
    value = compress(codec, messages, magic)
    return write_message(last_offset, magic, timestamp_ms, None, value, attributes | codec)


def _corrupt(words: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.CORRUPT_MESSAGE, words)


def _invalid(words: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_RECORD, words)
