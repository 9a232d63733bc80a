"""Reads histories of share groups that any client may have written (docs/histories.md); see ``history_lines``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tidegauge_lab.accountant.reading.history_lines import (
    Line,
    Make,
    Refused,
    in_order,
    number,
    place,
    positions,
    read_operations,
    required,
    text,
    whole,
)
from tidegauge_lab.accountant.shares.model import (
    Acknowledge,
    Acquire,
    AlterOffsets,
    Given,
    ReadStarts,
    Said,
    Says,
    ShareHistory,
)
from tidegauge_lab.accountant.transactions.model import Operation, Send

_SAYS = {one.value: one for one in Says}


def read_share_histories(paths: Sequence[Path]) -> ShareHistory:
    """Read a history.

    Raises:
        TidegaugeError: INVALID_REQUEST, a file can't be read, or lines are refused: each by file, number and reason.
    """
    history = ShareHistory()
    values: dict[str, str] = {}

    def add(where: str, operation: Operation) -> None:
        match operation:
            case Send() if operation.transaction is not None:
                pass  # whether it is committed is not for this history to say
            case Send():
                before = values.setdefault(operation.value, where)
                if before is not where:
                    raise Refused(f"the value {operation.value!r} was sent before, at {before}: values must be unique")
                history.sends.append(operation)
            case Acquire():
                history.acquires.append(operation)
            case Acknowledge():
                history.acknowledges.append(operation)
            case AlterOffsets():
                history.alterations.append(operation)
            case ReadStarts():
                history.starts.append(operation)
            case _:
                raise AssertionError(operation)

    read_operations(paths, _MAKERS, add, _take_result)
    for kind in (history.sends, history.acquires, history.acknowledges, history.alterations, history.starts):
        in_order(kind)
    return history


def _take_result(operation: Operation, line: Line) -> None:
    match operation:
        case Send():
            operation.offset = None if line.get("offset") is None else number(line, "offset")
        case Acquire():
            operation.records = _given(line)
        case ReadStarts():
            operation.offsets = positions(line, "offsets", is_needed=True)
        case _:
            pass


def _given(line: Line) -> list[Given]:
    records: list[Given] = []
    for one in _list(line):
        if not isinstance(one, list) or len(one) != 5 or not isinstance(one[3], str):
            raise Refused(
                f'the record {one!r} is not as ["orders", 0, 17, "value", 1]: topic, partition, offset, value, count'
            )
        count = None if one[4] is None else whole(one[4], "count")
        records.append(Given(place(one[0], one[1]), whole(one[2], "offset"), one[3], count))
    return records


def _said(line: Line) -> list[Said]:
    records: list[Said] = []
    for one in _list(line):
        if not isinstance(one, list) or len(one) != 4 or one[3] not in _SAYS:
            raise Refused(
                f'the record {one!r} is not as ["orders", 0, 17, "accept"]: topic, partition, offset, and one of '
                f"{', '.join(_SAYS)}"
            )
        records.append(Said(place(one[0], one[1]), whole(one[2], "offset"), _SAYS[one[3]]))
    return records


def _list(line: Line) -> list[object]:
    given = required(line, "records")
    if not isinstance(given, list):
        raise Refused(f"the field 'records' is {given!r}, not a list")
    return given


def _send(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    at = place(required(line, "topic"), required(line, "partition"))
    transaction = None if line.get("transaction") is None else text(line, "transaction")
    return Send(*key, time_us, transaction=transaction, place=at, value=text(line, "value"))


def _acquire(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    limit = None if line.get("limit") is None else number(line, "limit")
    return Acquire(*key, time_us, group=text(line, "group"), limit=limit)


def _acknowledge(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    return Acknowledge(*key, time_us, group=text(line, "group"), records=_said(line))


def _alter(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    return AlterOffsets(*key, time_us, group=text(line, "group"), offsets=positions(line, "offsets", is_needed=True))


def _read_starts(line: Line, key: tuple[str, int], time_us: int) -> Operation:
    return ReadStarts(*key, time_us, group=text(line, "group"))


_MAKERS: dict[str, Make[Operation]] = {
    "send": _send,
    "acquire": _acquire,
    "acknowledge": _acknowledge,
    "alter-offsets": _alter,
    "read-starts": _read_starts,
}
