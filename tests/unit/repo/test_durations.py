"""The workers of `make test` end together: the longest files come first, by a list of durations that is up to date."""

from __future__ import annotations

import re

from tests.durations import FILE, ROOT, in_order, read_durations, write_durations

WORKERS = int(re.findall(r"^WORKERS \?= (\d+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[0])


def test_the_longest_come_first_and_unknown_integration_tests_before_them() -> None:
    seconds = {"tests/integration/a.py": 5.0, "tests/unit/b.py": 70.0, "tests/integration/c.py": 300.5}
    paths = ["tests/unit/new.py", "tests/integration/a.py", "tests/unit/b.py", "tests/integration/new.py"]
    assert in_order([*paths, "tests/integration/c.py"], seconds) == [
        "tests/integration/new.py",
        "tests/integration/c.py",
        "tests/unit/b.py",
        "tests/integration/a.py",
        "tests/unit/new.py",
    ]


def test_what_is_written_is_read_and_small_files_are_left_out() -> None:
    text = write_durations({"b.py": 2.04, "a.py": 2.04, "c.py": 0.1, "d.py": 100.0})
    assert text.splitlines() == ["  100.0 d.py", "    2.0 a.py", "    2.0 b.py"]
    assert read_durations(text) == {"d.py": 100.0, "a.py": 2.0, "b.py": 2.0}


def test_the_workers_end_together() -> None:
    """By the durations of the last record; a file that takes longer than all others together would have to be split."""
    known = read_durations(FILE.read_text(encoding="utf-8"))
    seconds = {path: took for path, took in known.items() if (ROOT / path).exists()}
    assert len(seconds) > 50
    ends = [0.0] * WORKERS
    for path in in_order(seconds, seconds):
        ends[ends.index(min(ends))] += seconds[path]
    assert max(ends) - min(ends) < 0.05 * max(ends)
