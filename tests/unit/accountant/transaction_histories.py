"""Small histories of transactions, written as a client writes them: JSON objects, one a line."""

from __future__ import annotations

import json
from pathlib import Path

from tidegauge_lab.accountant.reading.client_history import read_client_histories
from tidegauge_lab.accountant.transactions.judging import Judgement, judge


class Writer:
    """Writes a history; time advances by one with every line."""

    def __init__(self) -> None:
        self.lines: list[dict] = []
        self._numbers: dict[str, int] = {}

    def invoke(self, process: str, op: str, **fields: object) -> tuple[str, int]:
        number = self._numbers.setdefault(process, 0)
        self._numbers[process] += 1
        line = {"type": "invoke", "process": process, "number": number, "time_us": self._now(), "op": op}
        self.lines.append(line | fields)
        return process, number

    def end(self, key: tuple[str, int], kind: str = "ok", **fields: object) -> None:
        self.lines.append({"type": kind, "process": key[0], "number": key[1], "time_us": self._now()} | fields)

    def _now(self) -> int:
        return 1_000 + len(self.lines)

    # Whole operations

    def send(self, process: str, transaction: str | None, value: str, offset: int, kind: str = "ok", partition=0):
        key = self.invoke(process, "send", transaction=transaction, topic="t", partition=partition, value=value)
        if kind != "none":
            self.end(key, kind, **({"offset": offset} if kind == "ok" else {}))

    def commit(self, process: str, transaction: str, kind: str = "ok", op: str = "commit") -> None:
        key = self.invoke(process, op, transaction=transaction)
        if kind != "none":
            self.end(key, kind)

    def abort(self, process: str, transaction: str, kind: str = "ok") -> None:
        self.commit(process, transaction, kind, "abort")

    def poll(self, process: str, *records: tuple[int, str], partition=0, **fields: object) -> None:
        names = ("transaction", "isolation")
        key = self.invoke(process, "poll", **{name: fields.pop(name) for name in names if name in fields})
        self.end(key, records=[["t", partition, offset, value] for offset, value in records], **fields)

    def final(self, *records: tuple[int, str], end: int, partition=0, begin: int = 0) -> None:
        name = f"t-{partition}"
        self.poll(f"final-{partition}", *records, partition=partition, ends={name: end}, begins={name: begin})

    def positions(self, process: str, transaction: str | None, offset: int, kind: str = "ok") -> None:
        key = self.invoke(process, "send-offsets", transaction=transaction, group="g", offsets={"in-0": offset})
        self.end(key, kind)

    def found_positions(self, process: str, offset: int) -> None:
        self.end(self.invoke(process, "read-offsets", group="g"), offsets={"in-0": offset})

    # Judging

    def text(self) -> str:
        return "".join(json.dumps(line) + "\n" for line in self.lines)

    def judged(self, directory: Path) -> Judgement:
        path = directory / "history.jsonl"
        path.write_text(self.text())
        return judge(read_client_histories([path]))

    def kinds(self, directory: Path) -> dict[str, int]:
        return {kind.value: count for kind, count in self.judged(directory).found.counts.items()}
