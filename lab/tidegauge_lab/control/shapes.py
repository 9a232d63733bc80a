"""JSON Schema (draft 2020-12), the part that the interface's bodies use, and a check of a value against it. Pure.

Contract: ``problem`` returns the first thing that is wrong with a value, as a sentence that names the place. The
schemas are those that the OpenAPI document shows, so description and acceptance agree.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tidegauge.counted import counted
from tidegauge.near_names import did_you_mean, near_names

Schema = Mapping[str, Any]

_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "null": lambda value: value is None,
}
_SHOWN_CHARACTERS = 80
_LISTED_NAMES = 12
_ARTICLES = {"object": "an object", "array": "a list", "string": "a text", "boolean": "true or false",
             "integer": "a whole number", "number": "a number", "null": "null"}  # fmt: skip


def object_of(
    properties: Mapping[str, Schema], required: Sequence[str] = (), about: str = "", **more: Any
) -> dict[str, Any]:
    """Return the schema of an object with these fields and no others."""
    return {
        "type": "object",
        **({"description": about} if about else {}),
        "properties": dict(properties),
        **({"required": list(required)} if required else {}),
        "additionalProperties": False,
        **more,
    }


def map_of(values: Schema, about: str) -> dict[str, Any]:
    """Return the schema of a non-empty object with such values."""
    return {"type": "object", "description": about, "additionalProperties": dict(values), "minProperties": 1}


def list_of(items: Schema, about: str, at_least: int = 0) -> dict[str, Any]:
    """Return the schema of a list."""
    return {"type": "array", "description": about, "items": dict(items), **({"minItems": at_least} if at_least else {})}


def integer(about: str, minimum: int = 0, **more: Any) -> dict[str, Any]:
    """Return the schema of a whole number."""
    return {"type": "integer", "description": about, "minimum": minimum, **more}


def text(about: str, **more: Any) -> dict[str, Any]:
    """Return the schema of a text that is not empty."""
    return {"type": "string", "description": about, "minLength": 1, **more}


def flag(about: str, *, default: bool) -> dict[str, Any]:
    """Return the schema of true or false."""
    return {"type": "boolean", "description": about, "default": default}


def shown(value: Any) -> str:
    """Return a value as its JSON, shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."


def problem(schema: Schema, value: Any, at: str = "") -> str:
    """Return the defect of a value and its place; empty if valid."""
    name = at or "the body"
    if "anyOf" in schema:
        found = [problem(one, value, at) for one in schema["anyOf"]]
        if all(found):
            kinds = " or ".join(_called(one) for one in schema["anyOf"])
            fitting = [
                text
                for one, text in zip(schema["anyOf"], found, strict=True)
                if "type" in one and _TYPES[one["type"]](value)
            ]
            return fitting[0] if fitting else f"{name} is {kinds}, not {shown(value)}"
        return ""
    kind = schema.get("type")
    if kind is not None and not _TYPES[kind](value):
        return f"{name} is {_ARTICLES[kind]}, not {shown(value)}"
    if "enum" in schema and value not in schema["enum"]:
        return f"{name} is {_one_of(schema['enum'], value)}, not {shown(value)}"
    if isinstance(value, dict):
        return _object_problem(schema, value, at)
    if isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            return f"{name} has at least {counted(schema['minItems'], 'entry', 'entries')}, not {len(value)}"
        entries = (problem(schema.get("items", {}), one, f"{at}[{place}]") for place, one in enumerate(value))
        return next((one for one in entries if one), "")
    if isinstance(value, str):
        return f"{name} is not empty" if len(value) < schema.get("minLength", 0) else ""
    return _number_problem(schema, value, name)


def _object_problem(schema: Schema, value: Mapping[str, Any], at: str) -> str:
    name = at or "the body"
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key, one in value.items():
        place = f"{at}.{key}" if at else key
        if key in known:
            wrong = problem(known[key], one, place)
        elif others is False:
            hint = did_you_mean(key, known, f"; there is {', '.join(known) or 'none'}")
            wrong = f"there is no field {key!r} in {name}{hint}"
        else:
            wrong = "" if others is True else problem(others, one, place)
        if wrong:
            return wrong
    for key in schema.get("required", ()):
        if key not in value:
            return f"{name} needs {key!r}"
    if len(value) < schema.get("minProperties", 0):
        return f"{name} is not empty"
    return _alternatives_problem(schema, value, name)


def _alternatives_problem(schema: Schema, value: Mapping[str, Any], name: str) -> str:
    """Check fields that exclude each other: ``oneOf``, ``not``, and ``allOf`` of such."""
    for one in schema.get("allOf", ()):
        if wrong := _alternatives_problem(one, value, name):
            return wrong
    if "oneOf" in schema:
        ways = [one["required"] for one in schema["oneOf"]]
        given = [way for way in ways if all(key in value for key in way)]
        if len(given) != 1:
            return f"{name} has exactly one of {', '.join('+'.join(way) for way in ways)}, not {len(given)} of them"
    if "not" in schema and all(key in value for key in schema["not"]["required"]):
        return f"{name} has at most one of {', '.join(schema['not']['required'])}"
    return ""


def _number_problem(schema: Schema, value: Any, name: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    # Written so that NaN is out of every range.
    if "minimum" in schema and not value >= schema["minimum"]:
        return f"{name} is {schema['minimum']} or more, not {value}"
    if "exclusiveMinimum" in schema and not value > schema["exclusiveMinimum"]:
        return f"{name} is more than {schema['exclusiveMinimum']}, not {value}"
    if "maximum" in schema and not value <= schema["maximum"]:
        return f"{name} is {schema['maximum']} or less, not {value}"
    return ""


def _one_of(names: Sequence[Any], value: Any = None) -> str:
    """Return which values there are; of many the ones that are near."""
    if len(names) <= _LISTED_NAMES:
        return f"one of {', '.join(one if isinstance(one, str) else shown(one) for one in names)}"
    near = near_names(str(value), [one for one in names if not str(one).isdigit()], most=3)
    return f"one of {len(names)} names" + (f" (near: {', '.join(near)})" if near else "")


def _called(schema: Schema) -> str:
    if "enum" in schema:
        return _one_of(schema["enum"])
    return _ARTICLES.get(schema.get("type", ""), "another value")
