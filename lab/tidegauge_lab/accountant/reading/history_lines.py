"""Histories that clients have written, as JSON lines: operations with their outcomes, and the values of their fields.

Rules:
    1. A history is one or more files of JSON objects, one a line. Operations and their outcomes are found by process
       and number; the order of the lines and of the files does not matter otherwise.
    2. Every line is read before anything is judged. A line that violates docs/histories.md is refused, with file, line
       and reason; the first ``MAX_REFUSED`` such lines are named.
    3. The last line of a file may be incomplete, where its writer died: it is left out if no newline ends it.
    4. An operation without an outcome is of unknown outcome.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.accountant.transactions.model import Operation, Outcome, Place

MAX_REFUSED = 10
INVOKE = "invoke"
_OUTCOMES = {one.value: one for one in Outcome}
_MAX_OFFSET = 2**63 - 1
Line = Mapping[str, Any]
Op = TypeVar("Op", bound=Operation)
Make = Callable[[Line, tuple[str, int], int], Op]
"""Makes an operation of an ``invoke`` line, its process and number, and its time in microseconds."""


class Refused(Exception):
    """A line is not as the format says; the text says why."""


def read_operations(
    paths: Sequence[Path],
    makers: Mapping[str, Make[Op]],
    added: Callable[[str, Op], None],
    take_result: Callable[[Op, Line], None],
) -> None:
    """Read the operations of a history.

    Args:
        paths: its files.
        makers: of the operations that there are, by ``op``.
        added: called with the place of an operation, and the operation; may raise ``Refused``.
        take_result: takes what the outcome ``ok`` of an operation brings; may raise ``Refused``.

    Raises:
        TidegaugeError: INVALID_REQUEST, a file can't be read, or lines are refused: each by file, number and reason.
    """
    reading = _Reading(makers, added, take_result)
    for path in paths:
        try:
            data = path.read_bytes()
        except OSError as problem:
            words = f"the history {path} can't be read: {problem.strerror}"
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, words) from None
        lines = data.split(b"\n")
        for number, raw in enumerate(lines, 1):
            if raw.strip() and number < len(lines):
                reading.take(f"{path}:{number}", raw)
            elif raw.strip():
                reading.take_last(f"{path}:{number}", raw)
    reading.end()
    if reading.refused:
        more = len(reading.refused) - MAX_REFUSED
        shown = "; ".join(reading.refused[:MAX_REFUSED]) + (f"; and {more} more" if more > 0 else "")
        raise TidegaugeError(ErrorCode.INVALID_REQUEST, f"the history is not as docs/histories.md says: {shown}")


class _Reading:
    """The lines of a history, one after the other."""

    def __init__(
        self,
        makers: Mapping[str, Make[Any]],
        added: Callable[[str, Any], None],
        take_result: Callable[[Any, Line], None],
    ) -> None:
        self.refused: list[str] = []
        self._makers = makers
        self._added = added
        self._take_result = take_result
        self._open: dict[tuple[str, int], Operation] = {}
        self._known: dict[tuple[str, int], str] = {}
        self._outcomes: list[tuple[str, Line]] = []

    def take(self, where: str, raw: bytes) -> None:
        """Take a line; outcomes wait until all invocations are known."""
        try:
            line = _parsed(raw)
            kind = text(line, "type")
            if kind == INVOKE:
                self._invoke(where, line)
            elif kind in _OUTCOMES:
                self._outcomes.append((where, line))
            else:
                raise Refused(f"the type {kind!r} is none of invoke, ok, fail and info")
        except Refused as problem:
            self.refused.append(f"{where}: {problem}")

    def take_last(self, where: str, raw: bytes) -> None:
        """Take a line that no newline ends: its writer may have died in it."""
        try:
            _parsed(raw)
        except Refused:
            return
        self.take(where, raw)

    def end(self) -> None:
        """Give the operations their outcomes."""
        for where, line in self._outcomes:
            try:
                self._complete(line)
            except Refused as problem:
                self.refused.append(f"{where}: {problem}")

    def _invoke(self, where: str, line: Line) -> None:
        key = text(line, "process"), number(line, "number")
        if key in self._known:
            raise Refused(f"operation {key[1]} of {key[0]!r} was invoked before, at {self._known[key]}")
        name = text(line, "op")
        make = self._makers.get(name)
        if make is None:
            raise Refused(f"the op {name!r} is none of {', '.join(self._makers)}")
        operation = make(line, key, number(line, "time_us"))
        self._added(where, operation)
        self._known[key] = where
        self._open[key] = operation

    def _complete(self, line: Line) -> None:
        key = text(line, "process"), number(line, "number")
        operation = self._open.pop(key, None)
        if operation is None:
            raise Refused(
                f"operation {key[1]} of {key[0]!r} has an outcome already"
                if key in self._known
                else f"operation {key[1]} of {key[0]!r} was never invoked"
            )
        outcome, time_us = _OUTCOMES[text(line, "type")], number(line, "time_us")
        if time_us < operation.invoked_us:
            raise Refused(f"time_us is {time_us}, before the invocation at {operation.invoked_us}")
        if outcome is Outcome.OK:
            self._take_result(operation, line)
        operation.outcome, operation.completed_us = outcome, time_us


def in_order(operations: list[Any]) -> None:
    """Sort operations by their invocations."""
    operations.sort(key=lambda one: (one.invoked_us, one.process, one.number))


# Fields


def _parsed(raw: bytes) -> Line:
    try:
        line = json.loads(raw)
    except ValueError as problem:
        raise Refused(f"this is no JSON: {problem}") from None
    if not isinstance(line, dict):
        raise Refused("this is no JSON object")
    return line


def required(line: Line, name: str) -> Any:
    """Return a field that must be there."""
    if name not in line:
        raise Refused(f"the field {name!r} is missing")
    return line[name]


def text(line: Line, name: str) -> str:
    """Return a text of one character or more."""
    value = required(line, name)
    if not isinstance(value, str) or not value:
        raise Refused(f"the field {name!r} is {value!r}, not a text of one character or more")
    return value


def number(line: Line, name: str) -> int:
    """Return a whole number from 0 on."""
    return whole(required(line, name), name)


def whole(value: object, name: str) -> int:
    """Return a value as a whole number from 0 on."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_OFFSET:
        raise Refused(f"the field {name!r} is {value!r}, not a whole number from 0 on")
    return value


def place(topic: object, partition: object) -> Place:
    """Return a partition."""
    if not isinstance(topic, str) or not topic:
        raise Refused(f"the topic is {topic!r}, not a text of one character or more")
    return Place(topic, whole(partition, "partition"))


def positions(line: Line, name: str, *, is_needed: bool = False) -> dict[Place, int]:
    """Return positions, which are written as {"TOPIC-PARTITION": OFFSET}."""
    given = required(line, name) if is_needed else line.get(name) or {}
    if not isinstance(given, dict):
        raise Refused(f'the field {name!r} is {given!r}, not an object such as {{"orders-0": 5}}')
    found: dict[Place, int] = {}
    for words, offset in given.items():
        topic, dash, partition = words.rpartition("-")
        if not dash or not topic or not partition.isascii() or not partition.isdecimal():
            raise Refused(f"{words!r} in {name!r} is no partition, such as orders-0")
        found[Place(topic, int(partition))] = whole(offset, name)
    return found
