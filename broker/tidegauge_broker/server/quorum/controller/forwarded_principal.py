"""The principal of a forwarded request: ``DefaultPrincipalData``, an int16 version before a flexible message. Pure.

Source: ``DefaultKafkaPrincipalBuilder.serialize`` and ``deserialize``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.compiler import read_uvarint
from tidegauge.principal import Principal

_VERSION = 0


def decode_principal(data: bytes | None) -> Principal:
    """Return a principal.

    Raises:
        TidegaugeError: PRINCIPAL_DESERIALIZATION_FAILURE, there is none, or it can't be read.
    """
    if data is None:
        raise _unreadable("it is missing")
    view = memoryview(bytes(data))
    try:
        if int.from_bytes(view[:2], "big", signed=True) != _VERSION or len(view) < len(b"vvtnaf"):
            raise _unreadable("its version is unknown")
        kind, at = _text(view, 2)
        name, at = _text(view, at)
        if len(view) < at + 1:
            raise _unreadable("it ends too early")
    except (IndexError, UnicodeDecodeError) as problem:
        raise _unreadable(str(problem)) from None
    return Principal(kind, name)


def _text(view: memoryview, at: int) -> tuple[str, int]:
    length, at = read_uvarint(view, view[at], at + 1) if view[at] > 127 else (view[at], at + 1)
    end = at + length - 1
    if length < 1 or end > len(view):
        raise _unreadable("a text in it ends too late")
    return str(view[at:end], "utf-8"), end


def _unreadable(why: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"The forwarded principal can't be read: {why}")
