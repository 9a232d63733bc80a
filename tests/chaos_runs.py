"""The matrix of Kafka clients' faults and workloads, run in pieces: ``make chaos`` (docs/chaos.md).

``--record-chaos TIMES`` runs the faults that have been run less often, each until it has been run that many times. Each
cell, a fault under a workload, is noted as soon as it is judged, in ``chaos_runs.jsonl`` (``chaos_runs_kraft.jsonl``
in KRaft mode), so a run that is broken off loses one fault at most, and the next one continues. At the end of a run the
table in docs/results/chaos.md is written from all lines. ``--chaos-seconds`` is the time after which no fault begins.

A line of a failed cell has the assertion in ``why``; ``cause``, the explanation, is added by hand.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.modes import MODE

from tidegauge_client.cluster_file import KRAFT_MODE, ZOOKEEPER_MODE

HERE = Path(__file__).parent
PAGE = HERE.parent / "docs" / "results" / "chaos.md"
FAULT, WORKLOAD = "after_fault", "workload"
"""Parameters of the tests that are cells."""
WHY_LENGTH = 300


class Record(NamedTuple):
    """The runs in one mode, and their place on the page.

    Attributes:
        file: a line for each run.
        begin: what stands before the table.
        end: what stands behind it.
    """

    file: Path
    begin: str
    end: str


RECORDS = {
    ZOOKEEPER_MODE: Record(
        HERE / "chaos_runs.jsonl", "<!-- The table: make chaos -->\n", "<!-- End of make chaos -->\n"
    ),
    KRAFT_MODE: Record(
        HERE / "chaos_runs_kraft.jsonl", "<!-- The table: make chaos KRAFT=1 -->\n", "<!-- End of KRAFT=1 -->\n"
    ),
}
RECORD = RECORDS[MODE]


class Run(NamedTuple):
    """A cell that was run.

    Attributes:
        fault: its name.
        workload: its name.
        at: when it was judged, in UTC.
        load: of the machine, the average of a minute.
        seconds: that it took; the fault's count for the first workload that is judged.
        why: what failed; empty: it passed.
        cause: the explanation of a failure.
    """

    fault: str
    workload: str
    at: str
    load: float
    seconds: float
    why: str = ""
    cause: str = ""


def read_runs(text: str) -> list[Run]:
    """Read the lines of the record."""
    return [Run(**json.loads(line)) for line in text.splitlines()]


def write_run(run: Run) -> str:
    """Write a line of the record, without empty fields."""
    return json.dumps({name: value for name, value in run._asdict().items() if value != ""}) + "\n"


def known_runs(record: Record = RECORD) -> list[Run]:
    """Return all runs of a record."""
    return read_runs(record.file.read_text(encoding="utf-8")) if record.file.exists() else []


def times_run(fault: str, runs: Iterable[Run]) -> int:
    """Return how often a fault has been run under its most frequent workload."""
    return max(Counter(one.workload for one in runs if one.fault == fault).values(), default=0)


def cells_to_run(cells: Sequence[tuple[str, str]], times: int, runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return the cells that have been run too rarely, the rarest faults' first."""
    counts = Counter((one.fault, one.workload) for one in runs)
    of_fault = {fault: min(counts[cell] for cell in cells if cell[0] == fault) for fault, _ in cells}
    return sorted((cell for cell in cells if of_fault[cell[0]] < times), key=lambda cell: of_fault[cell[0]])


# The table


def rendered(runs: Sequence[Run]) -> str:
    """Return the page's text: sums, a row for each fault, and failures."""
    if not runs:
        return "Nothing has been run.\n"
    workloads = list(dict.fromkeys(one.workload for one in runs))
    failed = [one for one in runs if one.why]
    loads = [one.load for one in runs]
    cells = {(one.fault, one.workload) for one in runs}
    sums = (
        f"{len(cells)} cells of {len({one.fault for one in runs})} faults, run {len(runs)} times: "
        f"{len(runs) - len(failed)} passed, {len(failed)} failed. {runs[0].at} to {runs[-1].at}, load average "
        f"{min(loads):g} to {max(loads):g} (median {statistics.median(loads):g})."
    )
    lines = [sums, "", f"| fault | {' | '.join(f'`{one}`' for one in workloads)} | seconds |"]
    lines += [f"|---|{'---:|' * len(workloads)}---:|"]
    lines += [_row(fault, workloads, runs) for fault in dict.fromkeys(one.fault for one in runs)]
    lines += [
        "",
        "A cell shows how many of its runs passed; seconds: of a fault with all its verdicts, the mean of its runs.",
    ]
    if failed:
        lines += ["", "| failed at | fault | workload | seen | cause |", "|---|---|---|---|---|"]
        lines += [
            f"| {one.at} | `{one.fault}` | `{one.workload}` | {_cell(one.why)} | {_cell(one.cause) or 'not known'} |"
            for one in failed
        ]
    return "\n".join([*lines, ""])


def _row(fault: str, workloads: Sequence[str], runs: Iterable[Run]) -> str:
    of_fault = [one for one in runs if one.fault == fault]
    shown = []
    for workload in workloads:
        of_cell = [one for one in of_fault if one.workload == workload]
        shown.append(f"{sum(not one.why for one in of_cell)} of {len(of_cell)}" if of_cell else "")
    times = max(1, times_run(fault, of_fault))
    seconds = round(sum(one.seconds for one in of_fault) / times)
    return f"| `{fault}` | {' | '.join(shown)} | {seconds} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def with_table(page: str, runs: Sequence[Run], record: Record = RECORD) -> str:
    """Return the page with the table of these runs in the record's place."""
    before, _, rest = page.partition(record.begin)
    _, _, after = rest.partition(record.end)
    return f"{before}{record.begin}\n{rendered(runs)}\n{record.end}{after}"


# The run


def cell_of(item: pytest.Item) -> tuple[str, str] | None:
    """Return the fault and the workload of a test that is a cell."""
    parameters: Mapping[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    return (parameters[FAULT], parameters[WORKLOAD]) if parameters.keys() >= {FAULT, WORKLOAD} else None


class ChaosRecorder:
    """Chooses the cells that have not been run often enough, notes each result, and writes the table at the end.

    Args:
        times: how often each cell shall have been run.
        seconds: after that many no fault begins.
    """

    def __init__(self, times: int, seconds: float) -> None:
        self._times, self._end = times, time.monotonic() + seconds
        self._cells: dict[str, tuple[str, str]] = {}
        self._took: defaultdict[str, float] = defaultdict(float)
        self._why: dict[str, str] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave the tests that are cells, in their order; the others are deselected."""
        by_cell = {cell: item for item in items if (cell := cell_of(item)) is not None}
        chosen = [by_cell[cell] for cell in cells_to_run(list(by_cell), self._times, known_runs())]
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
        self._cells = {item.nodeid: cell for cell, item in by_cell.items() if item in chosen}

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Let no further fault begin when the time is over."""
        at, then = cell_of(item), None if nextitem is None else cell_of(nextitem)
        if time.monotonic() > self._end and at is not None and (then is None or then[0] != at[0]):
            item.session.shouldstop = "the time is over"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note a cell when its test is over; what could not be tried is no run."""
        if report.nodeid not in self._cells:
            return
        self._took[report.nodeid] += report.duration
        if report.outcome == "skipped":
            self._cells.pop(report.nodeid)
        elif report.outcome == "failed":
            self._why.setdefault(report.nodeid, first_words(report))
        if report.when == "teardown":
            self._note(report.nodeid)

    def _note(self, nodeid: str) -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        load, seconds = round(os.getloadavg()[0], 1), round(self._took[nodeid], 1)
        run = Run(*self._cells[nodeid], at, load, seconds, self._why.get(nodeid, ""))
        with RECORD.file.open("a", encoding="utf-8") as file:
            file.write(write_run(run))

    def pytest_sessionfinish(self) -> None:
        """Write the table from the whole record."""
        PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), known_runs()), encoding="utf-8")


def first_words(report: pytest.TestReport) -> str:
    """Return what a failed test says, in one line."""
    crash = getattr(report.longrepr, "reprcrash", None)
    text = str(report.longrepr) if crash is None else crash.message
    return " ".join(text.split())[:WHY_LENGTH]
