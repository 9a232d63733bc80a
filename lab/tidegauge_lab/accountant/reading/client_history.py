"""Reads histories of transactions that any client may have written (docs/histories.md); see ``history_lines``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegauge_lab.accountant.reading.history_lines import (
    Line,
    Make,
    Refused,
    in_order,
    number,
    positions,
    read_operations,
    required,
    text,
    whole,
)
from tidegauge_lab.accountant.reading.history_lines import place as place_of
from tidegauge_lab.accountant.transactions.model import (
    NO_PARTITION,
    Assign,
    End,
    Operation,
    Place,
    Poll,
    ReadOffsets,
    Seen,
    Send,
    SendOffsets,
    Transactions,
)


def read_client_histories(paths: Sequence[Path]) -> Transactions:
    """Read a history.

    Raises:
        TidegaugeError: INVALID_REQUEST, a file can't be read, or lines are refused: each by file, number and reason.
    """
    reading = _Reading()
    read_operations(paths, _MAKERS, reading.add, _take_result)
    history = reading.history
    for kind in (
        history.sends,
        history.send_offsets,
        history.ends,
        history.polls,
        history.assigns,
        history.read_offsets,
    ):
        in_order(kind)
    return history


@dataclass(slots=True)
class _Reading:
    history: Transactions = field(default_factory=Transactions)
    _values: dict[str, str] = field(default_factory=dict[str, str])
    _processes: dict[str, tuple[str, str]] = field(default_factory=dict[str, Any])

    def add(self, where: str, operation: Operation) -> None:
        """Take an operation that was read at a place."""
        self._check(where, operation)
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


def _take_result(operation: Operation, line: Line) -> None:
    """Take what the outcome ``ok`` of an operation brings."""
    match operation:
        case Send():
            operation.offset = None if line.get("offset") is None else number(line, "offset")
            if operation.place.partition == NO_PARTITION:
                operation.place = Place(operation.place.topic, number(line, "partition"))
        case Poll():
            operation.records = _records(line)
            operation.begins, operation.ends = positions(line, "begins"), positions(line, "ends")
        case ReadOffsets():
            operation.offsets = positions(line, "offsets", is_needed=True)
        case _:
            pass


# Fields


def _transaction(line: Line) -> str | None:
    return None if line.get("transaction") is None else text(line, "transaction")


def _records(line: Line) -> list[Seen]:
    given = required(line, "records")
    if not isinstance(given, list):
        raise Refused(f"the field 'records' is {given!r}, not a list")
    records: list[Seen] = []
    for one in given:
        if not isinstance(one, list) or len(one) != 4 or not isinstance(one[3], str):
            raise Refused(f'the record {one!r} is not as ["orders", 0, 17, "value"]: topic, partition, offset, value')
        records.append(Seen(place_of(one[0], one[1]), whole(one[2], "offset"), one[3]))
    return records


# Operations


def _send(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    topic, partition = required(line, "topic"), required(line, "partition")
    place = place_of(topic, 0 if partition is None else partition)
    if partition is None:
        place = Place(place.topic, NO_PARTITION)
    return Send(*key, time_us, transaction=_transaction(line), place=place, value=text(line, "value"))


def _send_offsets(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    offsets = positions(line, "offsets", is_needed=True)
    return SendOffsets(*key, time_us, transaction=_transaction(line), group=text(line, "group"), offsets=offsets)


def _commit(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    return End(*key, time_us, transaction=text(line, "transaction"), is_commit=True)


def _abort(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    return End(*key, time_us, transaction=text(line, "transaction"), is_commit=False)


def _poll(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    isolation = line.get("isolation", "read_committed")
    if isolation not in ("read_committed", "read_uncommitted"):
        raise Refused(f"the isolation {isolation!r} is neither read_committed nor read_uncommitted")
    return Poll(*key, time_us, transaction=_transaction(line), is_committed=isolation == "read_committed")


def _assign(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    del line
    return Assign(*key, time_us)


def _read_offsets(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    return ReadOffsets(*key, time_us, group=text(line, "group"))


_MAKERS: dict[str, Make[Operation]] = {
    "send": _send,
    "send-offsets": _send_offsets,
    "commit": _commit,
    "abort": _abort,
    "poll": _poll,
    "assign": _assign,
    "read-offsets": _read_offsets,
}
