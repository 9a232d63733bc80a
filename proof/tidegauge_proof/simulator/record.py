"""A long search in pieces, each with a line in a file, so that it can be done in several sittings.

The file is a list of JSON objects, one a line: the plan (``truncation``, ``mode``, ``steps_each``, ``seed``,
``runs``, ``directories``: null if each seed chose) and the result (``steps``, ``events``, ``acknowledged``,
``leader_epochs``, ``losses``, ``violations``, ``seconds``, ``cpu_seconds``, ``compiled``). A piece in the file is
not run again, and counts as if it had been. A piece that was broken off leaves no line; half a line (the power failed)
is passed over. Records lost with power are counted and not listed: the seed lists them again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from tidegauge_proof.simulator.search import IS_COMPILED, Finding, Ongoing, SearchPlan, SearchResult, search

PIECE_RUNS = 2000
"""Histories in a piece: half a minute to two minutes on two cores, where each has a thousand steps."""


def search_in_pieces(
    plan: SearchPlan,
    record: Path,
    *,
    jobs: int = 1,
    fail_fast: bool = False,
    piece_runs: int = PIECE_RUNS,
    ongoing: Ongoing | None = None,
) -> SearchResult:
    """Run what the file does not have yet; the result covers all pieces, its coverage only the ones run now.

    Raises:
        SimulatorFailed: the simulator has a fault of its own.
        OSError: the file can't be read or written.
    """
    known = {_name(line): line for line in lines_of(record)}
    ongoing = Ongoing() if ongoing is None else ongoing
    result = ongoing.done
    for piece in _pieces(plan, piece_runs):
        line = known.get(_name_of(piece))
        if line is None:
            before = cpu_seconds()
            found = search(piece, jobs=jobs, fail_fast=fail_fast, ongoing=ongoing)
            result.coverage.add(found.coverage)
            line = _line(piece, found, cpu_seconds() - before)
            if found.runs == piece.runs:
                with record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        ongoing.now = SearchResult()
        _add(result, line, plan.seed)
        if fail_fast and result.findings:
            break
    return result


def _pieces(plan: SearchPlan, piece_runs: int) -> Iterator[SearchPlan]:
    for first in range(0, plan.runs, piece_runs):
        yield replace(plan, seed=plan.seed + first, runs=min(piece_runs, plan.runs - first))


def lines_of(record: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a record; none if there is no file yet."""
    if not record.exists():
        return []
    lines: list[dict[str, Any]] = []
    text = record.read_text(encoding="utf-8")
    for words in text.splitlines():
        try:
            line = json.loads(words)
        except ValueError:
            continue
        lines.append(line)
    if text and not text.endswith("\n"):  # so that the next line does not go on where a broken one ends
        with record.open("a", encoding="utf-8") as file:
            file.write("\n")
    return lines


_NAMED_BY = ("truncation", "mode", "steps_each", "seed", "runs", "directories")


def _name(line: dict[str, Any]) -> tuple[object, ...]:
    return tuple({"directories": 1, **line}.get(key) for key in _NAMED_BY)


def _name_of(piece: SearchPlan) -> tuple[object, ...]:
    return piece.rule, piece.power, piece.steps, piece.seed, piece.runs, piece.directories


def _line(piece: SearchPlan, found: SearchResult, cpu_seconds: float) -> dict[str, Any]:
    return {
        **dict(zip(_NAMED_BY, _name_of(piece), strict=True)),
        "runs": found.runs,
        "steps": found.steps,
        "events": found.events,
        "acknowledged": found.acknowledged,
        "leader_epochs": found.leader_epochs,
        "losses": found.losses,
        "violations": [finding._asdict() for finding in found.findings],
        "seconds": round(found.seconds, 3),
        "cpu_seconds": round(cpu_seconds, 3),
        "compiled": IS_COMPILED,
    }


def _add(result: SearchResult, line: dict[str, Any], first_seed: int) -> None:
    result.runs += line["runs"]
    result.steps += line["steps"]
    result.events += line["events"]
    result.acknowledged += line["acknowledged"]
    result.leader_epochs += line["leader_epochs"]
    result.losses += line["losses"]
    result.seconds += line["seconds"]
    for violation in line["violations"]:
        finding = Finding(**violation)
        result.findings.append(finding._replace(run=finding.seed - first_seed))


def cpu_seconds() -> float:
    """Return the processor time of this process and its ended children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
