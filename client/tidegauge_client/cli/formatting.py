r"""Bytes in, bytes out: escapes, key separators, and kcat's format strings.

A format is ``%t`` topic, ``%p`` partition, ``%o`` offset, ``%T`` timestamp in ms, ``%k`` key, ``%v`` value, ``%h``
headers, ``%K`` and ``%S`` their lengths in bytes (-1 for null, as kcat), ``%%``; with the escapes ``\n \t \r \0 \\
\xHH``. Nothing is added, null prints as nothing, bytes are unchanged.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tidegauge_client.records import Headers
from tidegauge_client.subscription import ConsumerRecord

_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_HEX_DIGITS = 2

Part = Callable[[ConsumerRecord], bytes]


def _length(content: bytes | None) -> bytes:
    return b"-1" if content is None else b"%d" % len(content)


def _headers(headers: Headers) -> bytes:
    return b",".join(name.encode() + b"=" + (content or b"") for name, content in headers)


_FIELDS: dict[str, Part] = {
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % record.timestamp_ms,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
    "h": lambda record: _headers(record.headers),
    "K": lambda record: _length(record.key),
    "S": lambda record: _length(record.value),
}


def _pieces(text: str, *, has_fields: bool = True) -> Iterator[tuple[bytes, str]]:
    """Yield literal bytes with ``""``, or a field's letter with ``b""``."""
    position = 0
    while position < len(text):
        character = text[position]
        following = text[position + 1 : position + 2]
        position += 1
        if character == "\\":
            position += 1
            if following == "x":
                digits = text[position : position + _HEX_DIGITS]
                position += _HEX_DIGITS
                try:
                    yield bytes.fromhex(digits if len(digits) == _HEX_DIGITS else "?"), ""
                except ValueError:
                    raise ValueError(
                        f"'\\x{digits}' is not an escape; write \\xHH with two hexadecimal digits"
                    ) from None
            elif following in _ESCAPES:
                yield _ESCAPES[following], ""
            else:
                raise ValueError(f"'\\{following}' is not an escape; there are \\n \\t \\r \\0 \\\\ \\xHH")
        elif character == "%" and has_fields:
            position += 1
            yield b"", following or " "
        else:
            yield character.encode(errors="surrogateescape"), ""


def unescape(text: str) -> bytes:
    r"""Return the bytes of a text with escapes; a percent sign is literal.

    Raises:
        ValueError: an unknown escape, or nothing is left.
    """
    result = b"".join(literal for literal, _ in _pieces(text, has_fields=False))
    if not result:
        raise ValueError("a separator must not be empty")
    return result


def compile_format(text: str) -> Callable[[ConsumerRecord], bytes]:
    """Return a function that formats a record.

    Raises:
        ValueError: an unknown field or escape.
    """
    parts: list[bytes | Part] = []
    for literal, letter in _pieces(text):
        if letter == "%":
            parts.append(b"%")
        elif letter in _FIELDS:
            parts.append(_FIELDS[letter])
        elif letter:
            raise ValueError(f"'%{letter.strip()}' is not a field; there are %t %p %o %T %k %v %h %K %S %%")
        else:
            parts.append(literal)
    return _printer(_joined(parts))


def _joined(parts: Sequence[bytes | Part]) -> list[bytes | Part]:
    joined: list[bytes | Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, bytes) and isinstance(last, bytes):
            joined[-1] = last + part
        else:
            joined.append(part)
    return joined


def _printer(parts: Sequence[bytes | Part]) -> Callable[[ConsumerRecord], bytes]:
    def render(record: ConsumerRecord) -> bytes:
        return b"".join(part if isinstance(part, bytes) else part(record) for part in parts)

    return render


def parse_header(text: bytes) -> tuple[str, bytes]:
    """Read ``name=value``.

    Raises:
        ValueError: there is no ``=``, no name, or the name is not UTF-8.
    """
    name, equals, content = text.partition(b"=")
    if not equals or not name:
        raise ValueError(f"'{text.decode(errors='replace')}' is not a header; write NAME=VALUE")
    try:
        return name.decode(), content
    except UnicodeDecodeError:
        raise ValueError(f"the header name '{name.decode(errors='replace')}' is not UTF-8") from None


def parse_headers(text: bytes) -> list[tuple[str, bytes]]:
    """Read headers as ``%h`` prints them: ``name=value,name=value``; empty bytes are no headers.

    Raises:
        ValueError: one of them is malformed.
    """
    return [parse_header(one) for one in text.split(b",")] if text else []


def json_bytes(content: bytes | None) -> Any:
    """Return text if the bytes are UTF-8, else ``{"base64": ...}``; null is null."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def content_of(written: Any) -> bytes | None:
    """Return the bytes from which ``json_bytes`` made a value.

    Raises:
        ValueError: ``json_bytes`` did not make it.
    """
    if written is None:
        return None
    if isinstance(written, str):
        return written.encode()
    if isinstance(written, dict) and set(written) == {"base64"}:
        return base64.b64decode(written["base64"], validate=True)
    raise ValueError("neither text nor base64")


def record_json(record: ConsumerRecord, topic_id: str = "") -> dict[str, Any]:
    """Return one record as a JSON object, with its topic's id if known."""
    return {
        "topic": record.topic,
        **({"topic_id": topic_id} if topic_id else {}),
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": "LogAppendTime" if record.timestamp_type else "CreateTime",
        "leader_epoch": record.leader_epoch,
        "key": json_bytes(record.key),
        "value": json_bytes(record.value),
        "headers": [[name, json_bytes(content)] for name, content in record.headers],
    }
