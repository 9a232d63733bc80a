"""A history of transactions (docs/histories.md) for a checker that Tidegauge's authors did not write: adya.

adya (https://crates.io/crates/adya) infers Adya's dependency graph as Jepsen's Elle does, from Elle's format. A
partition is a list, a record that is sent an append, and a consumer's records since its assignment
a read of the list's beginning. Kafka's promises are serializable so, but for two anomalies: see ``PERMITTED``.

Elle knows no offsets, so the log is read in their order once more: records acknowledged or given to readers of
committed records, as jepsen.tests.kafka takes the order of versions from the offsets.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.clients.programs import fetched_into, run, which

from tidegauge_lab.accountant.transactions.model import (
    Assign,
    Fate,
    Operation,
    Outcome,
    Place,
    Poll,
    Send,
    Transactions,
    fate_of,
)

VERSION = "0.1.0"
PERMITTED = frozenset({"G0", "G1b"})
"""Kafka lets writes of transactions interleave in a partition (G0), and a poll may end amid a transaction's records
(G1b); jepsen.tests.kafka leaves both out too."""
NOTHING = "empty-transaction-graph"
"""No transaction depends on another one, so there is nothing to find between them."""
_OUTCOMES = {Fate.COMMITTED: "ok", Fate.ABORTED: "fail", Fate.UNKNOWN: "info", Fate.BOTH: "ok"}
Step = list[Any]
"""A step of Elle's transactions: ["append", list, value] or ["r", list, values]."""


class _Translation:
    def __init__(self, history: Transactions) -> None:
        self._history = history
        ends = defaultdict(list)
        for end in history.ends:
            ends[end.transaction].append(end)
        self._fate_of: Callable[[str], Fate] = lambda name: fate_of(ends.get(name, ()))
        self._log = self._whole_log()
        self.transactions: list[tuple[str, list[Step]]] = []

    def _outcome(self, send: Send) -> str:
        if send.outcome is Outcome.FAIL:
            return "fail"
        if send.transaction is not None:
            return _OUTCOMES[self._fate_of(send.transaction)]
        return send.outcome.value

    def _whole_log(self) -> dict[Place, dict[int, str]]:
        """Return the committed values by offset; the first acknowledged one counts."""
        log: dict[Place, dict[int, str]] = defaultdict(dict)
        for send in self._history.sends:
            if send.outcome is Outcome.OK and send.offset is not None and self._outcome(send) == "ok":
                log[send.place].setdefault(send.offset, send.value)
        for poll in self._history.polls:
            for seen in poll.records if poll.is_committed and poll.outcome is Outcome.OK else ():
                log[seen.place].setdefault(seen.offset, seen.value)
        return log

    def _below(self, place: Place, offset: int) -> list[str]:
        return [value for at, value in sorted(self._log[place].items()) if at < offset]

    def translate(self) -> None:
        """Do all of it."""
        steps: dict[str, list[Step]] = defaultdict(list)
        for operation in self._in_order():
            if isinstance(operation, Send):
                append = ["append", str(operation.place), operation.value]
                if operation.transaction is None or operation.outcome is Outcome.FAIL:
                    self.transactions.append((self._outcome(operation), [append]))
                else:
                    steps[operation.transaction].append(append)
        for poll, reads in self._reads():
            if poll.transaction is not None:
                steps[poll.transaction] = _with_reads(steps[poll.transaction], reads)
            elif poll.ends:  # all that is read at the end is one look at all partitions
                self.transactions.append(("ok", reads))
            else:
                self.transactions += [("ok", [read]) for read in reads]
        for name, mine in steps.items():
            self.transactions.append((_OUTCOMES[self._fate_of(name)], mine))
        for place in self._log:
            self.transactions.append(("ok", [["r", str(place), self._below(place, 2**63)]]))

    def _in_order(self) -> Sequence[Operation]:
        every: list[Operation] = [*self._history.sends, *self._history.polls, *self._history.assigns]
        return sorted(every, key=lambda one: (one.process, one.number))

    def _reads(self) -> Iterator[tuple[Poll, list[Step]]]:
        """Yield the polls of readers of committed records, with the records given of each partition up to then."""
        given: dict[tuple[str, Place], list[str]] = {}
        for operation in self._in_order():
            if isinstance(operation, Assign) or (isinstance(operation, Poll) and operation.ends):
                given = {at: values for at, values in given.items() if at[0] != operation.process}
            if not isinstance(operation, Poll) or not operation.is_committed or operation.outcome is not Outcome.OK:
                continue
            touched = dict.fromkeys(operation.ends)
            for place, begin in operation.begins.items():
                given.setdefault((operation.process, place), self._below(place, begin))
            for place, offset, value in operation.records:
                given.setdefault((operation.process, place), self._below(place, offset)).append(value)
                touched[place] = None
            yield operation, [["r", str(at), list(given.get((operation.process, at), []))] for at in touched]


def _with_reads(steps: list[Step], reads: list[Step]) -> list[Step]:
    """Return a transaction's steps with its last reads, as jepsen.tests.kafka counts."""
    again = {read[1] for read in reads}
    return [one for one in steps if one[0] != "r" or one[1] not in again] + reads


def as_lists(history: Transactions) -> str:
    """Return a history in Elle's format for lists, as JSON lines."""
    translation = _Translation(history)
    translation.translate()
    lines: list[dict[str, Any]] = []
    for process, (outcome, steps) in enumerate(translation.transactions):
        asked = [[kind, key, None] if kind == "r" else [kind, key, value] for kind, key, value in steps]
        for kind, value in (("invoke", asked), (outcome, steps)):
            lines.append({"index": len(lines), "type": kind, "process": process, "value": value})
    return "".join(json.dumps(line) + "\n" for line in lines)


def checker() -> Path:
    """Return adya's program, built once.

    Raises:
        Unavailable: there is no cargo, or crates.io can't be reached.
    """

    def build(directory: Path) -> None:
        words = ["--version", VERSION, "--locked", "--no-default-features"]
        run([which("cargo"), "install", "adya", *words, "--root", str(directory)], directory)
        shutil.rmtree(directory / "target", ignore_errors=True)

    return fetched_into(f"adya-{VERSION}", build) / "bin" / "adya"


def anomalies(history: Transactions, directory: Path) -> set[str]:
    """Return adya's anomalies that Kafka does not permit, by adya's names."""
    path = directory / "lists.jsonl"
    path.write_text(as_lists(history))
    command = [str(checker()), "check", "--json", "-m", "list-append", "-c", "serializable", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode in {0, 1, 2}, done.stdout + done.stderr
    found: list[str] = json.loads(done.stdout)["anomaly_types"]
    assert done.returncode < 2 or found == [NOTHING], done.stdout
    return set(found) - PERMITTED - {NOTHING}
