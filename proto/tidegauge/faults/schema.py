"""The declared faults as JSON Schema (draft 2020-12), for whoever asks for them in another language than Python."""

from __future__ import annotations

from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.faults.model import PLANES, Alternatives, FaultKind, Parameter
from tidegauge.faults.table import FAULTS


def schema() -> dict[str, Any]:
    """Return every declared fault by its name."""
    return {kind.name: schema_of(kind) for kind in FAULTS.values()}


def schema_of(kind: FaultKind) -> dict[str, Any]:
    """Return the schema of one fault: an object with the broker and the fault's parameters."""
    broker = {"type": "integer", "minimum": 0, "description": "The broker"}
    return {
        "type": "object",
        "description": kind.meaning,
        "x-acts-on": list(kind.acts_on),
        "properties": {"broker": broker, **{one.name: _schema_of_parameter(one) for one in kind.parameters}},
        "required": ["broker", *(one.name for one in kind.parameters if one.is_required)],
        "additionalProperties": False,
        **({"allOf": [_schema_of_alternatives(one) for one in kind.alternatives]} if kind.alternatives else {}),
    }


def _schema_of_parameter(parameter: Parameter) -> dict[str, Any]:
    found = {**_type_of(parameter), "description": parameter.meaning}
    if parameter.default not in (None, "", ErrorCode.NONE.name):
        found["default"] = parameter.default
    if parameter.unit:
        found["x-unit"] = parameter.unit
    return found


def _type_of(parameter: Parameter) -> dict[str, Any]:
    match parameter.kind:
        case "integer":
            return {"type": "integer", "minimum": parameter.minimum, "maximum": parameter.maximum}
        case "number":
            return {"type": "number", "exclusiveMinimum": parameter.minimum, "maximum": parameter.maximum}
        case "flag":
            return {"type": "boolean"}
        case "choice":
            return {"type": "string", "enum": list(parameter.choices)}
        case "error":
            return {"type": "string", "enum": [code.name for code in ErrorCode if code is not ErrorCode.NONE]}
        case "peers":
            ids = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
            return {"anyOf": [{"type": "string", "enum": list(PLANES)}, ids]}
    return {"type": "string", "minLength": 1}


def _schema_of_alternatives(alternatives: Alternatives) -> dict[str, Any]:
    given: list[dict[str, Any]] = [{"required": [name]} for name in alternatives.names]
    if alternatives.is_required:
        return {"oneOf": given}
    return {"not": {"required": list(alternatives.names)}}
