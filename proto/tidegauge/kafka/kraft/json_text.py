"""Messages as the JSON that Kafka's tools print: the generated ``JsonConverter`` classes, written by Jackson.

Fields are in the order of the definition. A tagged field that has its default is left out, and so is a field outside
the version. A UUID is base64url without padding, bytes are base64, a double is written as Java's ``Double.toString``
(in quotes if it is not finite).
"""

from __future__ import annotations

import base64
import dataclasses
import math
from typing import Any

from tidegauge.java_text import double_text
from tidegauge.kafka.fields import WIRE, Wire

_IRREGULAR = {"kraft_version": "kRaftVersion", "kraft_version_feature": "kRaftVersionFeature"}
"""Names whose capitals in Kafka's definitions do not follow from Python's name."""
_ESCAPES = {code: f"\\u{code:04X}" for code in range(32)} | {
    8: "\\b",
    9: "\\t",
    10: "\\n",
    12: "\\f",
    13: "\\r",
    ord('"'): '\\"',
    ord("\\"): "\\\\",
}


def json_name(name: str) -> str:
    """Return the JSON name of a field, from its name in Python."""
    if name in _IRREGULAR:
        return _IRREGULAR[name]
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)


def json_text(message: Any, version: int) -> str:
    """Return a message of one version as one line of JSON."""
    parts = []
    for field in dataclasses.fields(message):
        wire: Wire = field.metadata[WIRE]
        value = getattr(message, field.name)
        if version not in wire.versions or (wire.tag is not None and _is_default(value, field.default)):
            continue
        parts.append(f'"{json_name(field.name)}":{_value(value, wire, version)}')
    return "{" + ",".join(parts) + "}"


def quoted(text: str) -> str:
    """Return a JSON string as Jackson writes it, with the fewest escapes."""
    return '"' + text.translate(_ESCAPES) + '"'


def uuid_text(uuid: bytes) -> str:
    """Return sixteen bytes as Kafka's ``Uuid.toString`` does: base64url without padding."""
    return base64.urlsafe_b64encode(uuid).decode().rstrip("=")


def _is_default(value: Any, default: Any) -> bool:
    return value is not None and not value if default == () else bool(value == default)


def _value(value: Any, wire: Wire, version: int) -> str:
    if value is None:
        return "null"
    match wire.kind:
        case "array":
            item = Wire(wire.item) if isinstance(wire.item, str) else Wire("struct", item=wire.item)
            return "[" + ",".join(_value(one, item, version) for one in value) + "]"
        case "struct":
            return json_text(value, version)
        case "string":
            return quoted(value)
        case "uuid":
            return f'"{uuid_text(value)}"'
        case "bytes":
            return f'"{base64.b64encode(value).decode()}"'
        case "bool":
            return "true" if value else "false"
        case "float64":
            text = double_text(value)
            return text if math.isfinite(value) else f'"{text}"'
        case _:
            return str(value)
