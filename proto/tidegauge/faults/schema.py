"""The declared faults and actions as JSON Schema (draft 2020-12), for programs in other languages."""

from __future__ import annotations

from typing import Any, assert_never

from tidegauge.errors import ErrorCode
from tidegauge.faults.actions import ACTIONS, ZOOKEEPER, ActionKind
from tidegauge.faults.model import PLANES, Alternatives, Declaration, FaultKind, Parameter
from tidegauge.faults.table import FAULTS

_BROKER = {"type": "integer", "minimum": 0}
_PARTITION = {"type": "string", "pattern": "^.+-[0-9]+$"}


def vocabulary() -> dict[str, Any]:
    """Return the schemas of all faults and all actions, each by its name."""
    return {"faults": schema(), "actions": {kind.name: schema_of_action(kind) for kind in ACTIONS.values()}}


def schema() -> dict[str, Any]:
    """Return every declared fault by its name."""
    return {kind.name: schema_of(kind) for kind in FAULTS.values()}


def schema_of(kind: FaultKind) -> dict[str, Any]:
    """Return one fault's schema: an object with the broker and the parameters."""
    broker = {**_BROKER, "description": "The broker"}
    return _object(kind, broker, {"x-acts-on": list(kind.acts_on)})


def schema_of_action(kind: ActionKind) -> dict[str, Any]:
    """Return one action's schema: an object with its target (``broker``) and the parameters."""
    target: dict[str, Any] = {**_BROKER, "description": "The broker"}
    if kind.room == "process":
        target = {"anyOf": [_BROKER, {"const": ZOOKEEPER}], "description": "The broker, or the cluster's own ZooKeeper"}
    return _object(kind, target, {"x-acts-on": [kind.room], "x-button": kind.button})


def _object(kind: Declaration, broker: dict[str, Any], about: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": kind.meaning,
        **about,
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
            ids = {"type": "array", "items": _BROKER, "minItems": 1}
            return {"anyOf": [{"type": "string", "enum": list(PLANES)}, ids]}
        case "partition":
            return dict(_PARTITION)
        case "partitions":
            return {"type": "array", "items": _PARTITION}
        case "time":
            return {"type": "string", "format": "date-time"}
        case "text":
            return {"type": "string", "minLength": 1}
        case _:
            assert_never(parameter.kind)


def _schema_of_alternatives(alternatives: Alternatives) -> dict[str, Any]:
    given: list[dict[str, Any]] = [{"required": [name]} for name in alternatives.names]
    if alternatives.is_required:
        return {"oneOf": given}
    return {"not": {"required": list(alternatives.names)}}
