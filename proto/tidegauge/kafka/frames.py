"""Frames: a request's header and body out of the bytes of one frame, a response as a list of buffers.

A frame is a length (int32) and as many bytes. A request's header is (key, version, correlation id, client id), with
tagged fields behind it where the version is flexible; the client id keeps its int16 length even then. A response's
header is the correlation id, with tagged fields where the version is flexible, but for ApiVersions: a client that does
not know yet which versions there are must be able to read it (KIP-511). Which tagged fields brokers write:
``header_tags``.
Source: https://kafka.apache.org/protocol.html; ``RequestHeader.parse``, ``ApiMessageType.requestHeaderVersion`` and
``responseHeaderVersion``.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Generator, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

from tidegauge.kafka.apis import (
    ALTER_PARTITION,
    API_VERSIONS,
    BROKER_PROTOCOL,
    CONTROLLED_SHUTDOWN,
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    Api,
    Protocol,
)
from tidegauge.kafka.compiler import (
    Codec,
    MalformedMessage,
    begin_message,
    codec,
    items_left,
    resume_message,
)
from tidegauge.kafka.header_tags import NO_TAGS, Tags, decode_tags, encode_tags
from tidegauge.kafka.records import Buffer
from tidegauge.kafka.stepwise import stepwise_codec

_FIXED = struct.Struct(">hhi")
_LENGTH = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_RESPONSE = struct.Struct(">ii")
_SMALL_BYTES = 4096
"""Buffers below this size cost less joined than each by itself."""

_CONTROL = frozenset({LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA, ALTER_PARTITION})
"""APIs whose messages name as many partitions as a broker has, in one piece."""

Result = TypeVar("Result")


class UnsupportedRequest(Exception):
    """There is no such API, or no such version of it."""


class RequestHeader(NamedTuple):
    """A request's header; ``body_at`` is where its body begins. A null client id counts as empty, as in Kafka."""

    key: int
    version: int
    correlation_id: int
    client_id: str
    body_at: int
    tags: Tags = NO_TAGS


def read_request_header(frame: memoryview, protocol: Protocol = BROKER_PROTOCOL) -> RequestHeader:
    """Read the header of a request of a known API, whatever its version.

    Raises:
        UnsupportedRequest: no such API.
        MalformedMessage: the frame ends too early, or the client id is not UTF-8.
    """
    try:
        key, version, correlation_id = _FIXED.unpack_from(frame)
        api = protocol.apis.get(key)
        if api is None:
            raise UnsupportedRequest(f"API key {key} with version {version}")
        if key == CONTROLLED_SHUTDOWN and version == 0:
            return RequestHeader(key, version, correlation_id, "", 8)
        (length,) = _SHORT.unpack_from(frame, 8)
        offset = 10
        client_id = ""
        if length > 0:
            client_id = str(frame[offset : offset + length], "utf8")
            offset += length
        tags = NO_TAGS
        if version >= api.flexible_from:
            if frame[offset]:
                tags, offset = decode_tags(frame, offset)
            else:
                offset += 1
        if offset > len(frame):
            raise MalformedMessage("the frame ends within its header")
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise MalformedMessage(f"not a request header: {problem}") from problem
    return RequestHeader(key, version, correlation_id, client_id, offset, tags)


def _api(key: int, version: int, protocol: Protocol) -> Api:
    api = protocol.apis.get(key)
    if api is None or not api.has(version):
        raise UnsupportedRequest(f"API key {key} with version {version}")
    return api


@functools.cache
def _codec_of(key: int, version: int, response: bool, protocol: Protocol) -> Codec:
    """Return the codec of an API's messages; there are as many as API versions."""
    api = _api(key, version, protocol)
    return codec(protocol.message_class(key, response=response), version, api.is_flexible(version))


@functools.cache
def _encoder(struct_class: type, key: int, version: int, protocol: Protocol) -> Codec:
    """Return the codec of an API's request or response."""
    return codec(struct_class, version, _api(key, version, protocol).is_flexible(version))


def decode(
    key: int,
    version: int,
    buffer: memoryview,
    offset: int = 0,
    *,
    response: bool = False,
    protocol: Protocol = BROKER_PROTOCOL,
) -> tuple[Any, int]:
    """Return a message's value and the offset behind it. Bytes behind the message are no error: clients send some.

    Raises:
        UnsupportedRequest: no such API or version.
        MalformedMessage: the bytes are no such message.
    """
    functions = _codec_of(key, version, response, protocol)
    begin_message(is_control=key in _CONTROL)
    try:
        message, end = functions.decode(buffer, offset)
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise _not_readable(protocol.apis[key], version, problem) from problem
    if end > len(buffer):
        raise _too_long(protocol.apis[key], version)
    return message, end


def _not_readable(api: Api, version: int, problem: Exception) -> MalformedMessage:
    return MalformedMessage(f"not a message of {api.name} v{version}: {problem}")


def _too_long(api: Api, version: int) -> MalformedMessage:
    return MalformedMessage(f"a message of {api.name} v{version} ends behind its frame")


def decode_in_slices(key: int, version: int, buffer: memoryview, offset: int, items: int) -> Generator[None, None, Any]:
    """Decode a request as ``decode`` does, and yield after every so many items: other messages may be decoded then.

    Returns:
        The message.

    Raises:
        UnsupportedRequest: no such API or version.
        MalformedMessage: the bytes are no such message.
    """
    api = _api(key, version, BROKER_PROTOCOL)
    functions = stepwise_codec(BROKER_PROTOCOL.message_class(key, response=False), version, api.is_flexible(version))
    begin_message(is_control=key in _CONTROL)
    try:
        message, end = yield from _sliced(functions.decode(buffer, offset), items)
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise _not_readable(api, version, problem) from problem
    if end > len(buffer):
        raise _too_long(api, version)
    return message


def _sliced(steps: Generator[None, None, Result], size: int) -> Generator[None, None, Result]:
    """Run steps, and yield after every ``size`` of them; the limit of items is that of the message meanwhile."""
    returned: list[Result] = []

    def run() -> Iterator[None]:
        returned.append((yield from steps))

    running = run()
    while True:
        for _ in itertools.islice(running, size):
            pass
        if returned:
            return returned[0]
        left = items_left()
        yield
        resume_message(left)


def encode(key: int, version: int, message: Any, protocol: Protocol = BROKER_PROTOCOL) -> list[Buffer]:
    """Return a message's bytes as a list of buffers; record batches are the caller's own buffers."""
    functions = _encoder(message.__class__, key, version, protocol)
    if functions.encode is not None:
        return [functions.encode(message)]
    assert functions.encode_parts is not None
    parts: list[Buffer] = []
    functions.encode_parts(message, parts.append)
    return parts


def encode_in_slices(key: int, version: int, message: Any, items: int) -> Generator[None, None, list[Buffer]]:
    """Encode a message as ``encode`` does, and yield after every so many items.

    Returns:
        Its bytes: record batches are the caller's own buffers, what stands between them is joined.
    """
    api = _api(key, version, BROKER_PROTOCOL)
    functions = stepwise_codec(message.__class__, version, api.is_flexible(version))
    parts: list[Buffer] = []
    between: list[Buffer] = []
    small: list[Buffer] = []

    def fold() -> None:
        """Join the slice's parts: to join those of all slices at the end would take as long as many slices."""
        between.append(joined(small))
        small.clear()

    def append(part: Buffer) -> None:
        if len(part) < _SMALL_BYTES:
            small.append(part)
            return
        fold()
        parts.extend((joined(between), part))
        between.clear()

    for _ in _sliced(functions.encode(message, append), items):
        fold()
        yield
    fold()
    return [*parts, joined(between)]


def response_header(
    key: int,
    version: int,
    correlation_id: int,
    body_bytes: int,
    tags: Tags = NO_TAGS,
    protocol: Protocol = BROKER_PROTOCOL,
) -> bytes:
    """Return the length and the header that stand before a response's body; tags only where it is flexible."""
    if version >= protocol.apis[key].flexible_from and key != API_VERSIONS:
        section = b"\0" if tags is NO_TAGS else encode_tags(tags)
        return _RESPONSE.pack(body_bytes + 4 + len(section), correlation_id) + section
    return _RESPONSE.pack(body_bytes + 4, correlation_id)


def response_frame(
    key: int, version: int, correlation_id: int, message: Any, protocol: Protocol = BROKER_PROTOCOL
) -> list[Buffer]:
    """Return a whole response as a list of buffers, its length first."""
    body = encode(key, version, message, protocol)
    size = sum(map(len, body))
    return [response_header(key, version, correlation_id, size, protocol=protocol), *body]


def request_frame(
    key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    message: Any,
    tags: Tags = NO_TAGS,
    protocol: Protocol = BROKER_PROTOCOL,
) -> list[Buffer]:
    """Return a whole request as a list of buffers, its length first; tags only where its header is flexible."""
    api = _api(key, version, protocol)
    header = _FIXED.pack(key, version, correlation_id)
    if key != CONTROLLED_SHUTDOWN or version > 0:
        encoded = None if client_id is None else client_id.encode()
        header += _SHORT.pack(-1 if encoded is None else len(encoded)) + (encoded or b"")
    if version >= api.flexible_from:
        header += b"\0" if tags is NO_TAGS else encode_tags(tags)
    body = encode(key, version, message, protocol)
    return [_LENGTH.pack(len(header) + sum(map(len, body))) + header, *body]


def read_response_header(
    key: int, version: int, frame: memoryview, protocol: Protocol = BROKER_PROTOCOL
) -> tuple[int, int]:
    """Return a response's correlation id and where its body begins.

    Raises:
        MalformedMessage: the frame ends too early.
    """
    correlation_id, body_at, _ = read_tagged_response_header(key, version, frame, protocol)
    return correlation_id, body_at


def read_tagged_response_header(
    key: int, version: int, frame: memoryview, protocol: Protocol = BROKER_PROTOCOL
) -> tuple[int, int, Tags]:
    """Return a response's correlation id, where its body begins, and its tags.

    Raises:
        MalformedMessage: the frame ends too early, or a tag is malformed.
    """
    try:
        (correlation_id,) = _LENGTH.unpack_from(frame)
        if version >= protocol.apis[key].flexible_from and key != API_VERSIONS:
            if not frame[4]:
                return correlation_id, 5, NO_TAGS
            tags, body_at = decode_tags(frame, 4)
            return correlation_id, body_at, tags
    except (struct.error, IndexError, UnicodeDecodeError) as problem:
        raise MalformedMessage(f"not a response header: {problem}") from problem
    return correlation_id, 4, NO_TAGS


def joined(parts: Sequence[Buffer]) -> bytes:
    """Return buffers one behind the other as bytes."""
    return b"".join(parts)
