"""One request as the control reads it: path, query and body, checked by the endpoint's schemas. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidegauge.partition import TopicPartition
from tidegauge_lab.control.endpoints import WAIT_TIMEOUT_MS, Endpoint
from tidegauge_lab.control.problems import malformed
from tidegauge_lab.control.shapes import problem, shown

MAX_BODY_BYTES = 1024 * 1024
_MOST_DIGITS = 18


@dataclass(frozen=True, slots=True)
class ControlRequest:
    """A request's words, checked.

    Attributes:
        path: the values of the names in the path, as text.
        query: of those that were given.
        body: the JSON object; empty if there was none.
    """

    path: Mapping[str, str]
    query: Mapping[str, Any]
    body: Mapping[str, Any]

    @property
    def timeout_seconds(self) -> float:
        """How long to wait."""
        return float(self.body.get("timeout_ms", WAIT_TIMEOUT_MS)) / 1000

    def number(self, name: str) -> int:
        """Return a value of the path that is a whole number.

        Raises:
            RefusedError: 400, it is none.
        """
        text = self.path[name]
        if not is_number(text):
            raise malformed(f"{name} is a whole number of at most {_MOST_DIGITS} digits, not {shown(text)}")
        return int(text)


def is_number(text: str) -> bool:
    """Return whether a text is a whole number of limited length."""
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def read(endpoint: Endpoint, path: Mapping[str, str], query: Sequence[tuple[str, str]], body: bytes) -> ControlRequest:
    """Read a request.

    Raises:
        RefusedError: 400, it does not fit the endpoint.
    """
    return ControlRequest(path, _query(endpoint, query), _body(endpoint, body))


def _query(endpoint: Endpoint, query: Sequence[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in query:
        if name in found:
            raise malformed(f"{name} is in this query twice")
        if name not in endpoint.query:
            known = ", ".join(endpoint.query) or "none"
            raise malformed(f"there is no field {name!r} in this query; there is {known}")
        schema = endpoint.query[name]
        wants_number = schema.get("type") == "integer"
        found[name] = int(text) if wants_number and is_number(text) else text
        if wrong := problem(schema, found[name], name):
            raise malformed(wrong)
    return found


def _body(endpoint: Endpoint, body: bytes) -> dict[str, Any]:
    if not body.strip():
        if endpoint.needs_body:
            raise malformed("this request needs a body: a JSON object")
        return {}
    if endpoint.body is None:
        raise malformed("this request takes no body")
    try:
        value = json.loads(body, object_pairs_hook=_object, parse_constant=_no_constant)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except (ValueError, RecursionError) as wrong:
        raise malformed(f"the body is no JSON: {wrong}") from None
    if wrong_field := problem(endpoint.body, value):
        raise malformed(wrong_field)
    assert isinstance(value, dict), "every body's schema describes an object"
    return value


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a field is there twice")
    return found


def _no_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def partition_in(text: str) -> TopicPartition:
    """Read ``TOPIC-PARTITION``.

    Raises:
        RefusedError: 400, it is none.
    """
    try:
        return TopicPartition.parse(text)
    except ValueError as wrong:
        raise malformed(str(wrong)) from None
