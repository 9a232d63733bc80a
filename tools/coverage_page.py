#!/usr/bin/env python3
"""Writes docs/results/coverage.md: coverage of the unit tests by room, and mutants that they see.

Usage::

    python -m tools.coverage_page build/coverage.json
    python -m tools.coverage_page --mutation build/mutation.jsonl

Each keeps the other's table. ``make coverage`` and ``make mutation`` call it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tidegauge.page_sections import with_section

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/results/coverage.md"
DEPTH = {"broker": 3, "controller": 3, "client": 3, "lab": 3, "proof": 3, "proto": 3}
"""Parts of a path that make a room, by the first one."""


class Lines(NamedTuple):
    """Statements and branches, and how many of them were run."""

    statements: int = 0
    run: int = 0
    branches: int = 0
    taken: int = 0

    def plus(self, summary: Mapping[str, Any]) -> Lines:
        """Return the sum with a file's summary."""
        return Lines(
            self.statements + summary["num_statements"],
            self.run + summary["covered_lines"],
            self.branches + summary["num_branches"],
            self.taken + summary["covered_branches"],
        )

    @property
    def percent(self) -> str:
        """Statements and branches together, as coverage.py counts them."""
        total = self.statements + self.branches
        return f"{100 * (self.run + self.taken) / total:.1f}" if total else "-"


def room_of(path: str) -> str:
    """Return the room of a file: its package, and the directory in it."""
    parts = path.split("/")
    return "/".join(parts[: min(DEPTH.get(parts[0], 2), len(parts) - 1)])


def coverage_table(report: Mapping[str, Any]) -> str:
    """Return the table of a report of coverage.py."""
    rooms: dict[str, Lines] = {}
    for path, found in report["files"].items():
        room = room_of(path)
        rooms[room] = rooms.get(room, Lines()).plus(found["summary"])
    rows = [
        f"| `{room}` | {of_room.statements} | {of_room.branches} | {of_room.percent} |"
        for room, of_room in sorted(rooms.items())
    ]
    whole = Lines().plus(report["totals"])
    return "\n".join(
        [
            "| room | statements | branches | % run |",
            "|---|---|---|---|",
            *rows,
            f"| all | {whole.statements} | {whole.branches} | {whole.percent} |",
        ]
    )


def mutation_table(lines: Iterable[str]) -> str:
    """Return the table of the last figure of each room."""
    rooms = {row["room"]: row for row in map(json.loads, lines)}
    return "\n".join(
        [
            "| room | mutants tried | seen by its unit tests | seed |",
            "|---|---|---|---|",
            *(f"| {room} | {row['tried']} | {row['seen']} | {row['seed']} |" for room, row in sorted(rooms.items())),
        ]
    )


def _markers(table: str) -> tuple[str, str]:
    return f"<!-- {table}: made by make {table} -->", f"<!-- {table}: end -->"


def main() -> int:
    """Write the page; return 0."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("coverage", nargs="?", type=Path, help="the JSON report of coverage.py")
    parser.add_argument("--mutation", type=Path, help="the figures of tools/mutation.py")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    if options.coverage:
        report = json.loads(options.coverage.read_text(encoding="utf-8"))
        page = with_section(page, *_markers("coverage"), coverage_table(report))
    if options.mutation:
        figures = options.mutation.read_text(encoding="utf-8").splitlines()
        page = with_section(page, *_markers("mutation"), mutation_table(figures))
    PAGE.write_text(page, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
