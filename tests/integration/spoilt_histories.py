"""Recorded histories of transactions, spoilt on purpose: each as if the cluster had broken one guarantee.

A spoil takes a recording and returns the lines of a history in which one thing is changed. Beside it are
all findings that ``verify`` must have then: if one wrong thing is two anomalies (a missing record also tears its
transaction), both.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidegauge_lab.accountant.transactions.findings import Anomaly

Line = dict[str, Any]


@dataclass
class Recorded:
    """A history of copiers.

    Attributes:
        lines: all of it.
        target: the topic that was written in transactions; a reader called ``reader`` has read it.
    """

    lines: list[Line]
    target: str

    @classmethod
    def read(cls, path: Path, target: str) -> Recorded:
        """Read a file; the last line of a client that was killed may be incomplete."""
        lines: list[Line] = []
        for text in path.read_text().splitlines():
            try:
                lines.append(json.loads(text))
            except ValueError:
                continue
        return cls(lines, target)

    def text(self) -> str:
        """Return the file's content."""
        return "".join(json.dumps(line) + "\n" for line in self.lines)

    def done(self, op: str, **fields: object) -> Iterator[tuple[Line, Line]]:
        """Yield the operations of a kind that succeeded, with their outcomes."""
        ok = {(line["process"], line["number"]): line for line in self.lines if line["type"] == "ok"}
        for line in self.lines:
            outcome = ok.get((line["process"], line["number"]))
            wanted = {"op": op, **fields}
            if outcome is not None and all(line.get(name) == value for name, value in wanted.items()):
                yield line, outcome

    def committed_sends(self) -> list[tuple[Line, Line]]:
        """Return the acknowledged records of transactions whose commit was acknowledged."""
        names = {line["transaction"] for line, _ in self.done("commit")}
        return [pair for pair in self.done("send", topic=self.target) if pair[0]["transaction"] in names]

    def marker_offset(self, line: Line) -> int:
        """Return the offset of the first marker in a record's partition."""
        sends = self.done("send", **_where(line))
        taken = {outcome["offset"] for _, outcome in sends}
        return next(offset for offset in range(min(taken), max(taken) + 2) if offset not in taken)

    def polls(self) -> list[list[Any]]:
        """Return the reader's records, a list for each poll with some."""
        polls = [outcome["records"] for line, outcome in self.done("poll") if line["process"].startswith("reader")]
        return [records for records in polls if records]

    def append(self, process: str, op: str, result: Line | None = None, kind: str = "ok", **fields: object) -> None:
        """Append an operation of a process, after all that it did."""
        numbers = [line["number"] for line in self.lines if line["process"] == process]
        time_us = 1 + max(line["time_us"] for line in self.lines)
        begin = {"process": process, "number": 1 + max(numbers, default=-1), "time_us": time_us}
        self.lines += [{"type": "invoke", "op": op, **begin, **fields}, {"type": kind, **begin, **(result or {})}]


def _inconsistent_offsets(it: Recorded) -> None:
    it.polls()[0][0][3] = "another value"


def _duplicated(it: Recorded) -> None:
    topic, partition, _, value = it.polls()[0][0]
    it.append("other reader", "poll", {"records": [[topic, partition, 10**9, value]]})


def _aborted_read(it: Recorded) -> None:
    names = {line["transaction"] for line, _ in it.done("abort")}
    line, outcome = next(pair for pair in it.done("send", topic=it.target) if pair[0]["transaction"] in names)
    seen = [line["topic"], line["partition"], outcome["offset"], line["value"]]
    it.append("other reader", "poll", {"records": [seen]})


def _intermediate_read(it: Recorded) -> None:
    line, outcome = it.committed_sends()[0]
    seen = [line["topic"], line["partition"], outcome["offset"], line["value"]]
    it.append("early reader", "poll", {"records": [seen]})
    for one in it.lines[-2:]:
        one["time_us"] = line["time_us"]


def _of(line: Line) -> Line:
    return {"transaction": line["transaction"]}


def _lost_write(it: Recorded) -> None:
    line, _ = it.committed_sends()[0]
    it.append("other", "send", {"offset": it.marker_offset(line)}, **_where(line), value="lost")


def _where(line: Line) -> Line:
    return {"topic": line["topic"], "partition": line["partition"]}


def _unseen(it: Recorded) -> None:
    line, _ = it.committed_sends()[0]
    it.append("other", "send", {"offset": 10**9}, **_where(line), value="beyond the end")


def _torn(it: Recorded) -> None:
    line, _ = it.committed_sends()[0]
    it.append(line["process"], "send", **_where(line), **_of(line), value="the other half")


def _two_outcomes(it: Recorded) -> None:
    line, _ = next(it.done("commit"))
    it.append(line["process"], "abort", **_of(line))


def _poll_skip(it: Recorded) -> None:
    records = max(it.polls(), key=len)
    del records[len(records) // 2]


def _nonmonotonic_poll(it: Recorded) -> None:
    records = it.polls()[0]
    records.append(records[-1])


def _nonmonotonic_send(it: Recorded) -> None:
    sends = it.committed_sends()
    first, first_ok = sends[0]
    second, second_ok = next(
        pair for pair in sends[1:] if (pair[0]["process"], _where(pair[0])) == (first["process"], _where(first))
    )
    numbers = first["number"], second["number"]
    second["number"], first["number"] = second_ok["number"], first_ok["number"] = numbers


def _circular(it: Recorded) -> None:
    sends = it.committed_sends()
    one = sends[0]
    other = next(pair for pair in sends if pair[0]["process"] != one[0]["process"])
    for reader, (line, outcome) in ((one, other), (other, one)):
        seen = [line["topic"], line["partition"], outcome["offset"], line["value"]]
        it.append(reader[0]["process"], "poll", {"records": [seen]}, **_of(reader[0]))


def _aborted_offsets(it: Recorded) -> None:
    line, _ = next(it.done("abort"))
    positions = {"group": "other", "offsets": {"in-0": 7}}
    it.append(line["process"], "send-offsets", **positions, **_of(line))
    it.append("other", "read-offsets", {"offsets": positions["offsets"]}, group="other")


def _lost_offsets(it: Recorded) -> None:
    names = {line["transaction"] for line, _ in it.done("commit")}
    line, _ = next(pair for pair in it.done("send-offsets") if pair[0]["transaction"] in names)
    it.append("other", "read-offsets", {"offsets": line["offsets"]}, group=line["group"])


def _unknown_value(it: Recorded) -> None:
    it.append("other reader", "poll", {"records": [[it.target, 0, 10**9, "of another client"]]})


def _spoilt(spoil: Callable[[Recorded], None]) -> Callable[[Recorded], str]:
    def text(recorded: Recorded) -> str:
        it = copy.deepcopy(recorded)
        spoil(it)
        return it.text()

    return text


SPOILS: dict[Anomaly, tuple[Callable[[Recorded], str], dict[str, int]]] = {
    Anomaly.INCONSISTENT_OFFSETS: (_spoilt(_inconsistent_offsets), {"inconsistent-offsets": 1, "unknown-value": 1}),
    Anomaly.DUPLICATED: (_spoilt(_duplicated), {"duplicated": 1}),
    Anomaly.ABORTED_READ: (_spoilt(_aborted_read), {"aborted-read": 1}),
    Anomaly.INTERMEDIATE_READ: (_spoilt(_intermediate_read), {"intermediate-read": 1}),
    Anomaly.LOST: (_spoilt(_lost_write), {"lost-write": 1}),
    Anomaly.UNSEEN: (_spoilt(_unseen), {"unseen": 1}),
    Anomaly.TORN: (_spoilt(_torn), {"torn-transaction": 1, "lost-write": 1}),
    Anomaly.TWO_OUTCOMES: (_spoilt(_two_outcomes), {"two-outcomes": 1}),
    Anomaly.SKIPPED: (_spoilt(_poll_skip), {"poll-skip": 1}),
    Anomaly.READ_AGAIN: (_spoilt(_nonmonotonic_poll), {"nonmonotonic-poll": 1}),
    Anomaly.REORDERED: (_spoilt(_nonmonotonic_send), {"nonmonotonic-send": 1}),
    Anomaly.CIRCULAR: (_spoilt(_circular), {"circular-information-flow": 1}),
    Anomaly.OFFSETS_OF_ABORTED: (_spoilt(_aborted_offsets), {"aborted-offsets": 1}),
    Anomaly.OFFSETS_LOST: (_spoilt(_lost_offsets), {"lost-offsets": 1}),
    Anomaly.UNKNOWN_VALUE: (_spoilt(_unknown_value), {"unknown-value": 1}),
}
