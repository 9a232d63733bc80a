"""Frames: a request's header and body out of the bytes of one frame, a response as a list of buffers.

A frame is a length (int32) and as many bytes. A request's header is (key, version, correlation id, client id), with
tagged fields behind it where the version is flexible; the client id keeps its int16 length even then. A response's
header is the correlation id, with tagged fields where the version is flexible, except ApiVersions: a client that does
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
    """Read the header of a request of a known API, in any version.

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


class ApiCodec:
    """The codec of the messages of one API in one version; ``codec_of`` makes each once.

    Attributes:
        api: the row of the API.
        version: of requests and responses.
        request_class: class of the requests.
        response_class: class of the responses.
    """

    __slots__ = (
        *("_has_response_tags", "_is_control", "_is_flexible", "_request", "_response", "api"),
        *("request_class", "response_class", "version"),
    )

    def __init__(self, api: Api, version: int, request_class: type, response_class: type) -> None:
        self.api = api
        self.version = version
        self.request_class = request_class
        self.response_class = response_class
        self._is_flexible = api.is_flexible(version)
        self._has_response_tags = self._is_flexible and api.key != API_VERSIONS
        self._is_control = api.key in _CONTROL
        self._request = codec(request_class, version, self._is_flexible)
        self._response = codec(response_class, version, self._is_flexible)

    def decode_request(self, buffer: memoryview, offset: int = 0) -> tuple[Any, int]:
        """Return a request's value and the offset behind it.

        Bytes behind the request are not an error: some clients send them.

        Raises:
            MalformedMessage: the bytes are no such message.
        """
        return self._decode(self._request, buffer, offset, is_large=self._is_control)

    def decode_response(self, buffer: memoryview, offset: int = 0) -> tuple[Any, int]:
        """Return a response's value and the offset behind it, as ``decode_request`` does."""
        return self._decode(self._response, buffer, offset, is_large=True)

    def _decode(self, functions: Codec, buffer: memoryview, offset: int, *, is_large: bool) -> tuple[Any, int]:
        begin_message(is_large=is_large)
        try:
            message, end = functions.decode(buffer, offset)
        except (struct.error, IndexError, UnicodeDecodeError) as problem:
            raise self._not_readable(problem) from problem
        if end > len(buffer):
            raise self._too_long()
        return message, end

    def _not_readable(self, problem: Exception) -> MalformedMessage:
        return MalformedMessage(f"not a message of {self.api.name} v{self.version}: {problem}")

    def _too_long(self) -> MalformedMessage:
        return MalformedMessage(f"a message of {self.api.name} v{self.version} ends behind its frame")

    def decode_in_slices(
        self, buffer: memoryview, offset: int, items: int, *, response: bool = False
    ) -> Generator[None, None, Any]:
        """Decode a request or a response, and yield after each ``items`` items: other messages may be decoded then.

        Returns:
            The message.

        Raises:
            MalformedMessage: the bytes are no such message.
        """
        kind = self.response_class if response else self.request_class
        functions = stepwise_codec(kind, self.version, self._is_flexible)
        begin_message(is_large=response or self._is_control)
        try:
            message, end = yield from _sliced(functions.decode(buffer, offset), items)
        except (struct.error, IndexError, UnicodeDecodeError) as problem:
            raise self._not_readable(problem) from problem
        if end > len(buffer):
            raise self._too_long()
        return message

    def encode(self, message: Any) -> list[Buffer]:
        """Return a message's bytes as buffers; record batches are not copied."""
        functions = self._response
        if message.__class__ is not self.response_class:
            assert message.__class__ is self.request_class, f"{message.__class__} is no message of {self.api.name}"
            functions = self._request
        if functions.encode is not None:
            return [functions.encode(message)]
        assert functions.encode_parts is not None
        parts: list[Buffer] = []
        functions.encode_parts(message, parts.append)
        return parts

    def encode_in_slices(self, message: Any, items: int) -> Generator[None, None, list[Buffer]]:
        """Encode a message as ``encode`` does, and yield after each ``items`` items.

        Returns:
            The buffers: record batches are the caller's own, the bytes between them are joined.
        """
        functions = stepwise_codec(message.__class__, self.version, self._is_flexible)
        parts: list[Buffer] = []
        between: list[Buffer] = []
        small: list[Buffer] = []

        def fold() -> None:
            """Join the slice's parts: joining all slices at the end would take as long as many slices."""
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

    def response_frame(self, correlation_id: int, body: Sequence[Buffer], tags: Tags = NO_TAGS) -> list[Buffer]:
        """Return a response's frame as buffers; tags in flexible headers only."""
        size = sum(map(len, body))
        if self._has_response_tags:
            section = b"\0" if tags is NO_TAGS else encode_tags(tags)
            return [_RESPONSE.pack(size + 4 + len(section), correlation_id) + section, *body]
        return [_RESPONSE.pack(size + 4, correlation_id), *body]

    def request_frame(
        self, correlation_id: int, client_id: str | None, message: Any, tags: Tags = NO_TAGS
    ) -> list[Buffer]:
        """Return a request's frame as buffers; tags in flexible headers only."""
        return self.framed_request(correlation_id, client_id, self.encode(message), tags)

    def framed_request(
        self, correlation_id: int, client_id: str | None, body: Sequence[Buffer], tags: Tags = NO_TAGS
    ) -> list[Buffer]:
        """Return what ``request_frame`` does, of a message that is encoded already."""
        key, version = self.api.key, self.version
        header = _FIXED.pack(key, version, correlation_id)
        if key != CONTROLLED_SHUTDOWN or version > 0:
            encoded = None if client_id is None else client_id.encode()
            header += _SHORT.pack(-1 if encoded is None else len(encoded)) + (encoded or b"")
        if self._is_flexible:
            header += b"\0" if tags is NO_TAGS else encode_tags(tags)
        return [_LENGTH.pack(len(header) + sum(map(len, body))) + header, *body]

    def read_response_header(self, frame: memoryview) -> tuple[int, int, Tags]:
        """Return a response's correlation id, where its body begins, and its tags.

        Raises:
            MalformedMessage: the frame ends too early, or a tag is malformed.
        """
        try:
            (correlation_id,) = _LENGTH.unpack_from(frame)
            if self._has_response_tags:
                if not frame[4]:
                    return correlation_id, 5, NO_TAGS
                tags, body_at = decode_tags(frame, 4)
                return correlation_id, body_at, tags
        except (struct.error, IndexError, UnicodeDecodeError) as problem:
            raise MalformedMessage(f"not a response header: {problem}") from problem
        return correlation_id, 4, NO_TAGS


@functools.cache
def codec_of(key: int, version: int, protocol: Protocol = BROKER_PROTOCOL) -> ApiCodec:
    """Return the codec of one version of an API, cached.

    Raises:
        UnsupportedRequest: no such API, or no such version of it.
    """
    api = protocol.apis.get(key)
    if api is None or not api.has(version):
        raise UnsupportedRequest(f"API key {key} with version {version}")
    request_class, response_class = (protocol.message_class(key, response=response) for response in (False, True))
    return ApiCodec(api, version, request_class, response_class)


def _sliced(steps: Generator[None, None, Result], size: int) -> Generator[None, None, Result]:
    """Run steps and yield after every ``size`` of them, under the message's own limit of items."""
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


def decode(
    key: int,
    version: int,
    buffer: memoryview,
    offset: int = 0,
    *,
    response: bool = False,
    protocol: Protocol = BROKER_PROTOCOL,
) -> tuple[Any, int]:
    """Return a message's value and the offset behind it.

    Bytes behind the message are not an error: some clients send them.

    Raises:
        UnsupportedRequest: no such API or version.
        MalformedMessage: the bytes are no such message.
    """
    found = codec_of(key, version, protocol)
    return found.decode_response(buffer, offset) if response else found.decode_request(buffer, offset)


def encode(key: int, version: int, message: Any, protocol: Protocol = BROKER_PROTOCOL) -> list[Buffer]:
    """Return a message's bytes as buffers; record batches are not copied."""
    return codec_of(key, version, protocol).encode(message)


def response_frame(
    key: int, version: int, correlation_id: int, message: Any, protocol: Protocol = BROKER_PROTOCOL
) -> list[Buffer]:
    """Return a whole response as a list of buffers, its length first."""
    found = codec_of(key, version, protocol)
    return found.response_frame(correlation_id, found.encode(message))


def request_frame(
    key: int,
    version: int,
    correlation_id: int,
    client_id: str | None,
    message: Any,
    tags: Tags = NO_TAGS,
    protocol: Protocol = BROKER_PROTOCOL,
) -> list[Buffer]:
    """Return a request's frame as buffers; tags in flexible headers only."""
    return codec_of(key, version, protocol).request_frame(correlation_id, client_id, message, tags)


def read_response_header(
    key: int, version: int, frame: memoryview, protocol: Protocol = BROKER_PROTOCOL
) -> tuple[int, int]:
    """Return a response's correlation id and where its body begins.

    Raises:
        MalformedMessage: the frame ends too early.
    """
    correlation_id, body_at, _ = codec_of(key, version, protocol).read_response_header(frame)
    return correlation_id, body_at


def joined(parts: Sequence[Buffer]) -> bytes:
    """Return buffers one behind the other as bytes."""
    return b"".join(parts)
