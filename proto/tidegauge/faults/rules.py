"""Rules for requests of clients: the requests that each matches, and its effect. The one declaration.

Rules:
    1. The fields ``keys`` to ``observe`` are the fields of kfake's faults, so one file of rules works for both.
    2. A field that is left out means every request; the fields that are given must all fit.
    3. A rule counts the requests that it means, over all brokers; ``nth`` is the first that it affects, ``count`` how
       many, -1 without limit. Its chance for the n-th request comes from its seed and n alone.
    4. An error of a rule that names a topic is set in the results of the topic's partitions that match. The request's
       other partitions have their effect (docs/steering.md lists the APIs for which this holds).
    5. A rule meets requests over both wires, if an RPC of gRPC has the API, and gRPC has what the rule names and does
       (``Rule.acts_on``).

Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.apis import KAFKA, WIRES, is_over_grpc
from tidegauge.kafka.apis import APIS
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.near_names import did_you_mean

MAX_DELAY_MS = 24 * 3_600_000
MAX_BYTES_PER_SECOND = 1 << 40
MAX_THROTTLE_MS = (1 << 31) - 1
MAX_NUMBER = (1 << 53) - 1
"""Whole numbers that every language's JSON keeps (RFC 8259, section 6)."""
_NAMES = {api.name: api.name for api in APIS.values()} | {str(key): api.name for key, api in APIS.items()}
_KEY = {"anyOf": [{"type": "string", "enum": sorted(_NAMES)}, {"type": "integer", "minimum": 0}]}
_ERROR = {"anyOf": [{"type": "string", "enum": list(ErrorCode.__members__)}, {"type": "integer", "minimum": -1}]}


def _text(about: str) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "description": about}


def _flag(about: str) -> dict[str, Any]:
    return {"type": "boolean", "default": False, "description": about}


def _integer(about: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER, "description": about}


def _integers(about: str) -> dict[str, Any]:
    return {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1, "description": about}


SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "The requests that a rule matches, and its effect on them",
    "properties": {
        "keys": {"type": "array", "items": _KEY, "minItems": 1, "description": "APIs by Kafka's name or number"},
        "nodes": _integers("Only at these brokers"),
        "topic": _text("Only requests that name this topic"),
        "topic_id": _text("The same by the topic's id, as Kafka writes it"),
        "partitions": _integers("Only requests that name one of these partitions of the topic"),
        "group": _text("Only requests about this consumer group"),
        "txn_id": _text("Only requests about this transactional id"),
        "resource": _text("Only requests that name this resource (configurations)"),
        "client_id": _text("Only requests of clients with this client.id"),
        "top_level": _flag("The error is at the top of the response instead of in its items"),
        "error": {**_ERROR, "description": "The error that the response carries, by Kafka's name or number"},
        "count": {**_integer("How many requests; -1: all"), "minimum": -1, "default": 1},
        "observe": _flag("Count only; the requests proceed as without the rule"),
        "nth": {**_integer("The first request that is affected"), "minimum": 1, "default": 1},
        "probability": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": 1,
            "default": 1,
            "description": "Chance of each request to be affected",
        },
        "seed": {**_integer("Seed of the chances"), "default": 0},
        "after_effect": _flag("The request takes effect; the rule changes its response"),
        "delay_ms": {"type": "integer", "minimum": 1, "maximum": MAX_DELAY_MS, "description": "Delay, in milliseconds"},
        "disconnect": _flag("Close the connection instead of a response"),
        "hold": _flag("Park the response until the rule is deleted"),
        "freeze": _flag("Freeze the connection: this request and those behind it wait until the rule is deleted"),
        "bytes_per_second": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_BYTES_PER_SECOND,
            "description": "Bandwidth: the request counts as arrived, and the response is sent, at this rate",
        },
        "throttle_time_ms": {
            "type": "integer",
            "minimum": 1,
            "maximum": MAX_THROTTLE_MS,
            "description": "The throttle time that the response states, in milliseconds",
        },
        "sticky": _flag("The rule is in force at a broker that is started again, too"),
    },
    "additionalProperties": False,
}
_EFFECTS = ("error", "delay_ms", "disconnect", "hold", "freeze", "bytes_per_second", "throttle_time_ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A parsed rule; its fields are listed in ``SCHEMA``.

    Attributes:
        keys: names of APIs; empty: all.
        error: its number; None: none.
    """

    keys: frozenset[str] = frozenset()
    nodes: frozenset[int] = frozenset()
    topic: str = ""
    partitions: frozenset[int] = frozenset()
    group: str = ""
    txn_id: str = ""
    resource: str = ""
    client_id: str = ""
    top_level: bool = False
    error: int | None = None
    count: int = 1
    observe: bool = False
    nth: int = 1
    probability: float = 1.0
    seed: int = 0
    after_effect: bool = False
    delay_ms: int = 0
    disconnect: bool = False
    hold: bool = False
    freeze: bool = False
    bytes_per_second: int = 0
    throttle_time_ms: int = 0
    sticky: bool = False

    @property
    def acts_on(self) -> tuple[str, ...]:
        """The wires whose requests it can meet. Rule 5."""
        over_grpc = not self.keys or any(map(is_over_grpc, self.keys))
        is_grpcs = not (self.resource or self.top_level or self.throttle_time_ms or self.bytes_per_second)
        return WIRES if over_grpc and is_grpcs else (KAFKA,)

    def is_affected(self, seen: int, met: int) -> bool:
        """Whether the rule affects its ``seen``-th matching request, after ``met`` affected ones. Rule 3."""
        if seen < self.nth or (self.count >= 0 and met >= self.count):
            return False
        return self.probability >= 1 or Random(f"{self.seed}/{seen}").random() < self.probability


def read_rule(value: Mapping[str, Any]) -> Rule:
    """Read a rule that fits ``SCHEMA``; its topic id has been replaced by the topic's name.

    Raises:
        TidegaugeError: INVALID_REQUEST, its fields contradict each other, or an API or error does not exist.
    """
    found = dict(value)
    if "keys" in found:
        found["keys"] = frozenset(_api(key) for key in found["keys"])
    for name in ("nodes", "partitions"):
        if name in found:
            found[name] = frozenset(found[name])
    if "error" in found:
        found["error"] = _error(found["error"])
    rule = Rule(**found)
    if problem := _problem(rule):
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, problem)
    return rule


def _problem(rule: Rule) -> str:
    effects = [
        rule.error is not None,
        rule.delay_ms > 0,
        rule.disconnect,
        rule.hold,
        rule.freeze,
        rule.bytes_per_second > 0,
        rule.throttle_time_ms > 0,
    ]
    if rule.observe and any(effects):
        return "a rule observes, or it does something: not both"
    if not rule.observe and not any(effects):
        return f"give an effect: {', '.join(_EFFECTS)}, or observe"
    if rule.error is not None and rule.disconnect:
        return "a closed connection carries no error: give error or disconnect"
    if rule.hold and rule.freeze:
        return "hold parks a response, freeze a connection: not both"
    if rule.disconnect and (rule.freeze or rule.bytes_per_second or rule.throttle_time_ms):
        return "a closed connection sends no response: disconnect goes with delay_ms and hold alone"
    if rule.error is not None and not rule.keys:
        return "an error needs keys: each API has its own form of it"
    if rule.partitions and not rule.topic:
        return "partitions need a topic: give the topic too"
    if rule.top_level and rule.error is None:
        return "top_level places an error: give the error too"
    return "count is 1 or more, or -1 for all" if rule.count == 0 else ""


def _api(key: str | int) -> str:
    if str(key) not in _NAMES:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST, f"Kafka's protocol has no API {key!r}{did_you_mean(str(key), _NAMES)}"
        )
    return _NAMES[str(key)]


def _error(error: str | int) -> int:
    code = ErrorCode.__members__.get(error) if isinstance(error, str) else ErrorCode.of(error)
    if code is None or (isinstance(error, int) and int(code) != error):
        hint = did_you_mean(str(error), ErrorCode.__members__)
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"Kafka's protocol has no error {error!r}{hint}")
    if code is ErrorCode.NONE:
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, "NONE is no error; a rule that only counts says observe")
    return int(code)
