"""Reads histories of transactions that any client may have written (docs/histories.md).

Rules:
    1. A history is one or more files of JSON objects, one a line. Operations and their outcomes are found by process
       and number; the order of the lines and of the files does not matter otherwise.
    2. Every line is read before anything is judged. What is not as docs/histories.md says is refused, with file, line
       and reason; the first ``MAX_REFUSED`` such lines are named.
    3. The last line of a file may be incomplete, where its writer died: it is left out if no newline ends it.
    4. An operation without an outcome is of unknown outcome.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_lab.accountant.transactions.model import (
    NO_PARTITION,
    Assign,
    End,
    Operation,
    Outcome,
    Place,
    Poll,
    ReadOffsets,
    Seen,
    Send,
    SendOffsets,
    Transactions,
)

MAX_REFUSED = 10
INVOKE = "invoke"
_OUTCOMES = {one.value: one for one in Outcome}
_MAX_OFFSET = 2**63 - 1


class Refused(Exception):
    """A line is not as the format says; the text says why."""


Line = Mapping[str, Any]


def read_client_histories(paths: Sequence[Path]) -> Transactions:
    """Read a history.

    Raises:
        TidegaugeError: INVALID_REQUEST, a file can't be read, or lines are refused: each by file, number and reason.
    """
    reading = _Reading()
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
    return reading.history


@dataclass(slots=True)
class _Reading:
    history: Transactions = field(default_factory=Transactions)
    refused: list[str] = field(default_factory=list[str])
    _open: dict[tuple[str, int], tuple[str, Operation]] = field(default_factory=dict[Any, Any])
    _known: dict[tuple[str, int], str] = field(default_factory=dict[Any, str])
    _outcomes: list[tuple[str, Line]] = field(default_factory=list[Any])
    _values: dict[str, str] = field(default_factory=dict[str, str])
    _processes: dict[str, tuple[str, str]] = field(default_factory=dict[str, Any])

    def take(self, where: str, raw: bytes) -> None:
        """Take a line; outcomes wait until all invocations are known."""
        try:
            line = _parsed(raw)
            kind = _text(line, "type")
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
        history = self.history
        for kind in (
            history.sends,
            history.send_offsets,
            history.ends,
            history.polls,
            history.assigns,
            history.read_offsets,
        ):
            kind.sort(key=lambda one: (one.invoked_us, one.process, one.number))

    def _invoke(self, where: str, line: Line) -> None:
        key = _text(line, "process"), _number(line, "number")
        if key in self._known:
            raise Refused(f"operation {key[1]} of {key[0]!r} was invoked before, at {self._known[key]}")
        name = _text(line, "op")
        make = _MAKERS.get(name)
        if make is None:
            raise Refused(f"the op {name!r} is none of {', '.join(_MAKERS)}")
        operation = make(line, key, _number(line, "time_us"))
        self._check(where, operation)
        self._known[key] = where
        self._open[key] = (where, operation)
        history = self.history
        match operation:
            case Send():
                history.sends.append(operation)
            case SendOffsets():
                history.send_offsets.append(operation)
            case End():
                history.ends.append(operation)
            case Poll():
                history.polls.append(operation)
            case ReadOffsets():
                history.read_offsets.append(operation)
            case Assign():
                history.assigns.append(operation)
            case _:
                raise AssertionError(operation)

    def _check(self, where: str, operation: Operation) -> None:
        """Refuse a value that is not unique, and a transaction of two processes: nothing could be said of them."""
        if isinstance(operation, Send):
            before = self._values.setdefault(operation.value, where)
            if before is not where:
                raise Refused(f"the value {operation.value!r} was sent before, at {before}: values must be unique")
        name = operation.transaction if isinstance(operation, (Send, SendOffsets, End, Poll)) else None
        if name is not None:
            process, first = self._processes.setdefault(name, (operation.process, where))
            if process != operation.process:
                raise Refused(f"transaction {name!r} is of process {process!r}, by {first}")

    def _complete(self, line: Line) -> None:
        key = _text(line, "process"), _number(line, "number")
        known = self._open.pop(key, None)
        if known is None:
            raise Refused(
                f"operation {key[1]} of {key[0]!r} has an outcome already"
                if key in self._known
                else f"operation {key[1]} of {key[0]!r} was never invoked"
            )
        _, operation = known
        outcome, time_us = _OUTCOMES[_text(line, "type")], _number(line, "time_us")
        if time_us < operation.invoked_us:
            raise Refused(f"time_us is {time_us}, before the invocation at {operation.invoked_us}")
        if outcome is Outcome.OK:
            _take_result(operation, line)
        operation.outcome, operation.completed_us = outcome, time_us


def _take_result(operation: Operation, line: Line) -> None:
    """Take what the outcome ``ok`` of an operation brings."""
    match operation:
        case Send():
            operation.offset = None if line.get("offset") is None else _number(line, "offset")
            if operation.place.partition == NO_PARTITION:
                operation.place = Place(operation.place.topic, _number(line, "partition"))
        case Poll():
            operation.records = _records(line)
            operation.begins, operation.ends = _positions(line, "begins"), _positions(line, "ends")
        case ReadOffsets():
            operation.offsets = _positions(line, "offsets", is_needed=True)
        case _:
            pass


# Fields


def _parsed(raw: bytes) -> Line:
    try:
        line = json.loads(raw)
    except ValueError as problem:
        raise Refused(f"this is no JSON: {problem}") from None
    if not isinstance(line, dict):
        raise Refused("this is no JSON object")
    return line


def _field(line: Line, name: str) -> Any:
    if name not in line:
        raise Refused(f"the field {name!r} is missing")
    return line[name]


def _text(line: Line, name: str) -> str:
    value = _field(line, name)
    if not isinstance(value, str) or not value:
        raise Refused(f"the field {name!r} is {value!r}, not a text of one character or more")
    return value


def _number(line: Line, name: str) -> int:
    return _whole(_field(line, name), name)


def _whole(value: object, name: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MAX_OFFSET:
        raise Refused(f"the field {name!r} is {value!r}, not a whole number from 0 on")
    return value


def _transaction(line: Line) -> str | None:
    return None if line.get("transaction") is None else _text(line, "transaction")


def _place(topic: object, partition: object) -> Place:
    if not isinstance(topic, str) or not topic:
        raise Refused(f"the topic is {topic!r}, not a text of one character or more")
    return Place(topic, _whole(partition, "partition"))


def _positions(line: Line, name: str, *, is_needed: bool = False) -> dict[Place, int]:
    """Return positions, which are written as {"TOPIC-PARTITION": OFFSET}."""
    given = _field(line, name) if is_needed else line.get(name) or {}
    if not isinstance(given, dict):
        raise Refused(f'the field {name!r} is {given!r}, not an object such as {{"orders-0": 5}}')
    positions: dict[Place, int] = {}
    for text, offset in given.items():
        topic, dash, partition = text.rpartition("-")
        if not dash or not topic or not partition.isascii() or not partition.isdecimal():
            raise Refused(f"{text!r} in {name!r} is no partition, such as orders-0")
        positions[Place(topic, int(partition))] = _whole(offset, name)
    return positions


def _records(line: Line) -> list[Seen]:
    given = _field(line, "records")
    if not isinstance(given, list):
        raise Refused(f"the field 'records' is {given!r}, not a list")
    records: list[Seen] = []
    for one in given:
        if not isinstance(one, list) or len(one) != 4 or not isinstance(one[3], str):
            raise Refused(f'the record {one!r} is not as ["orders", 0, 17, "value"]: topic, partition, offset, value')
        records.append(Seen(_place(one[0], one[1]), _whole(one[2], "offset"), one[3]))
    return records


# Operations


def _send(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    topic, partition = _field(line, "topic"), _field(line, "partition")
    place = _place(topic, 0 if partition is None else partition)
    if partition is None:
        place = Place(place.topic, NO_PARTITION)
    return Send(*key, time_us, transaction=_transaction(line), place=place, value=_text(line, "value"))


def _send_offsets(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    offsets = _positions(line, "offsets", is_needed=True)
    return SendOffsets(*key, time_us, transaction=_transaction(line), group=_text(line, "group"), offsets=offsets)


def _commit(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    return End(*key, time_us, transaction=_text(line, "transaction"), is_commit=True)


def _abort(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    return End(*key, time_us, transaction=_text(line, "transaction"), is_commit=False)


def _poll(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    isolation = line.get("isolation", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise Refused(f"the isolation {isolation!r} is neither read_committed nor read_uncommitted")
    return Poll(*key, time_us, transaction=_transaction(line), is_committed=isolation == "read_committed")


def _assign(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    del line
    return Assign(*key, time_us)


def _read_offsets(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    return ReadOffsets(*key, time_us, group=_text(line, "group"))


_MAKERS: dict[str, Callable[[Line, tuple[str, int], int], Operation]] = {
    "send": _send,
    "send-offsets": _send_offsets,
    "commit": _commit,
    "abort": _abort,
    "poll": _poll,
    "assign": _assign,
    "read-offsets": _read_offsets,
}
