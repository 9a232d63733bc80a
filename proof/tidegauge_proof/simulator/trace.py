"""A trace: the steps by which a replication protocol was driven into the ground, to be tried on the core.

The format is JSON: ``id``, ``weakness``, ``breaks``, ``replicas`` (names) and ``steps``; a step has the action
(``do``), to whom, and perhaps what the weaker protocol reached by it, which is not read here. The meaning
of each step is in ``replay.py``. An unknown key or step is refused: a trace that is half understood proves nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class TraceError(ValueError):
    """A file is no trace; the text is one sentence for people, with the line if there is one."""


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace as it was read; ``steps`` are numbered from 1 and checked, with broker ids instead of names.

    Attributes:
        replicas: the names; the broker id of a replica is its place in here, from 1.
        steps: each with ``do`` and the keys of its kind.
    """

    id: str
    weakness: str
    breaks: str
    replicas: tuple[str, ...]
    steps: tuple[Mapping[str, Any], ...]

    def name(self, broker_id: int) -> str:
        """Return what the trace calls a broker."""
        return self.replicas[broker_id - 1]


class _Reader:
    """Reads the values of one step; every refusal names the step and its line."""

    def __init__(self, replicas: tuple[str, ...], number: int, step: object, place: str) -> None:
        self._where = f"step {number}{place}"
        if not isinstance(step, dict):
            raise TraceError(f"{self._where} is no object")
        self._replicas = replicas
        self._step: dict[str, Any] = step

    def fail(self, problem: str) -> TraceError:
        return TraceError(f"{self._where}: {problem}")

    def _value(self, key: str) -> Any:
        if key not in self._step:
            raise self.fail(f"{key} is missing")
        return self._step[key]

    def _id(self, key: str, name: object) -> int:
        if name not in self._replicas:
            raise self.fail(f"{key} is {name!r}, which is none of the replicas {', '.join(self._replicas)}")
        return self._replicas.index(str(name)) + 1

    def replica(self, key: str) -> int:
        return self._id(key, self._value(key))

    def leader(self, key: str) -> int | None:
        name = self._value(key)
        return None if name is None else self._id(key, name)

    def isr(self, key: str) -> tuple[int, ...]:
        names = self._value(key)
        if not isinstance(names, list):
            raise self.fail(f"{key} is no list of replicas")
        ids = tuple(self._id(key, name) for name in names)
        if len(set(ids)) != len(ids):
            raise self.fail(f"{key} names a replica twice")
        return ids

    def number(self, key: str) -> int:
        value = self._value(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self.fail(f"{key} is {value!r}; it must be a whole number, 0 or more")
        return value

    def flag(self, key: str) -> bool:
        value = self._step.get(key, True)
        if not isinstance(value, bool):
            raise self.fail(f"{key} is {value!r}; it must be true or false")
        return value

    def kind(self) -> str:
        value = self._value("do")
        if value not in _KEYS:
            raise self.fail(f"do is {value!r}; known are {', '.join(_KEYS)}")
        return str(value)


_Read = Callable[[_Reader, str], Any]
_KEYS: dict[str, dict[str, _Read]] = {
    "controller": {"leader": _Reader.leader, "epoch": _Reader.number, "isr": _Reader.isr},
    "leader_and_isr": {"replica": _Reader.replica, "epoch": _Reader.number},
    "append": {"leader": _Reader.replica},
    "fetch": {"follower": _Reader.replica, "leader": _Reader.replica},
    "evaluate_hw": {"leader": _Reader.replica},
    "leader_isr": {"leader": _Reader.replica, "isr": _Reader.isr, "accepted": _Reader.flag},
    "truncate": {"follower": _Reader.replica, "leader": _Reader.replica},
    "power_loss": {"replica": _Reader.replica, "keep_leo": _Reader.number},
}
"""Required keys of each step. Other keys of a step are information for people."""


def read_trace(text: str) -> Trace:
    """Read a trace.

    Raises:
        TraceError: why it is none.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError as problem:
        raise TraceError(f"line {problem.lineno}, column {problem.colno}: no JSON ({problem.msg})") from None
    if not isinstance(value, dict):
        raise TraceError("a trace is a JSON object")
    replicas = value.get("replicas")
    if not isinstance(replicas, list) or not replicas or not all(isinstance(name, str) for name in replicas):
        raise TraceError("replicas is missing, or no list of names")
    if len(set(replicas)) != len(replicas):
        raise TraceError("replicas names one twice")
    steps = value.get("steps")
    if not isinstance(steps, list):
        raise TraceError("steps is missing, or no list")
    lines = [text.count("\n", 0, found.start()) + 1 for found in re.finditer(r'"do"\s*:', text)]
    names = tuple(replicas)
    checked = []
    for number, step in enumerate(steps, 1):
        reader = _Reader(names, number, step, f" (line {lines[number - 1]})" if len(lines) == len(steps) else "")
        kind = reader.kind()
        checked.append({"do": kind} | {key: read(reader, key) for key, read in _KEYS[kind].items()})
    words = {key: str(value.get(key, "")) for key in ("id", "weakness", "breaks")}
    return Trace(words["id"], words["weakness"], words["breaks"], names, tuple(checked))
