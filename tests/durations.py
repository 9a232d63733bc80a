"""How long each test file takes, so that the workers of ``make test`` end together: the longest files come first.

``make test`` gives whole files to its workers (``--dist loadfile``), the next one to whoever is nearly done. In this
order only small files are left at the end. ``durations.txt`` has a line per file, seconds and path; ``make durations``
writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = Path(__file__).with_suffix(".txt")
SMALLEST_SECONDS = 0.5
"""Files that take less are not listed, so that the list does not change with every run."""


def read_durations(text: str) -> dict[str, float]:
    """Read seconds by path."""
    lines = (line.split() for line in text.splitlines())
    return {path: float(seconds) for seconds, path in lines}


def write_durations(seconds: Mapping[str, float]) -> str:
    """Write them, longest first."""
    listed = sorted(
        ((path, took) for path, took in seconds.items() if took >= SMALLEST_SECONDS), key=lambda one: (-one[1], one[0])
    )
    return "".join(f"{took:7.1f} {path}\n" for path, took in listed)


def in_order(paths: Iterable[str], seconds: Mapping[str, float]) -> list[str]:
    """Sort files, longest first. An integration test that was never timed comes before all others."""

    def key(path: str) -> float:
        return -seconds.get(path, float("inf") if path.startswith("tests/integration/") else 0.0)

    return sorted(paths, key=key)
