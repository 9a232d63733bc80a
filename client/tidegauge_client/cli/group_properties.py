"""``--consumer-property`` of ``consume --group``: the settings of a group's member by Kafka's names. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, cast


class GroupSettings(TypedDict, total=False):
    """Arguments of ``GroupConsumer`` that a property sets."""

    group_instance_id: str
    client_id: str
    partition_assignment_strategy: list[str]
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    auto_offset_reset: Literal["latest", "earliest", "none"]


def _boolean(text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise ValueError("it must be true or false")
    return text.lower() == "true"


def _milliseconds(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise ValueError("it must be a number of milliseconds")
    return int(text)


def _reset(text: str) -> str:
    if text not in {"latest", "earliest", "none"}:
        raise ValueError("it must be latest, earliest or none")
    return text


_SIMPLE_NAMES = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}


def _strategies(text: str) -> list[str]:
    return [_SIMPLE_NAMES.get(one.strip(), one.strip()) for one in text.split(",") if one.strip()]


_PROPERTIES: Mapping[str, Callable[[str], Any]] = {
    "group.instance.id": str,
    "client.id": str,
    "partition.assignment.strategy": _strategies,
    "session.timeout.ms": _milliseconds,
    "heartbeat.interval.ms": _milliseconds,
    "max.poll.interval.ms": _milliseconds,
    "enable.auto.commit": _boolean,
    "auto.commit.interval.ms": _milliseconds,
    "auto.offset.reset": _reset,
}


def parse_properties(texts: Sequence[str]) -> GroupSettings:
    """Read ``name=value`` pairs; the last one of a name counts.

    Raises:
        ValueError: a property is unknown or malformed; the message says which.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or name not in _PROPERTIES:
            raise ValueError(f"'{text}' is not a property; write NAME=VALUE with one of {', '.join(_PROPERTIES)}")
        try:
            found[name.replace(".", "_")] = _PROPERTIES[name](value)
        except ValueError as problem:
            raise ValueError(f"{name}={value}: {problem}") from None
    return cast("GroupSettings", found)
