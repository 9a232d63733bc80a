"""Runs outside suites against Tidegauge and Apache Kafka, and writes docs/compatibility.md: ``make outside``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fetched import Unavailable

from outside import page
from outside.results import SIDES, Outcome, Record, Result, class_of, verdict
from outside.sides import cluster
from outside.suites import SUITES, Suite, Task

RESULTS = page.ROOT / "build" / "outside"
REPEAT_LIMIT_SECONDS = 900.0


def main() -> None:
    """Run the requested suites; a suite that can't be had here is skipped, and says why."""
    options = _options(sys.argv[1:])
    for name in options.suite or SUITES:
        try:
            prepared = SUITES[name].prepare()
        except Unavailable as problem:
            print(f"{name}: skipped: {problem}", flush=True)
            continue
        for side in options.side or SIDES:
            record = page.record_of(RESULTS, name, side)
            if options.again:
                record.forget()
            try:
                _bring_to_its_end(SUITES[name], side, prepared, record, options)
            except Unavailable as problem:
                print(f"{name} on {side}: skipped: {problem}", flush=True)
    page.write(RESULTS)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="outside", description=__doc__)
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="may be repeated; all without it")
    parser.add_argument("--side", action="append", choices=SIDES, help="may be repeated; both without it")
    parser.add_argument("--again", action="store_true", help="forget what is recorded")
    parser.add_argument("--only", action="append", metavar="CLASS", help="of a suite's classes; may be repeated")
    parser.add_argument("--repeat", type=int, default=1, help="how many times tests that fail are repeated")
    return parser.parse_args(arguments)


def _bring_to_its_end(suite: Suite, side: str, prepared: Path, record: Record, options: argparse.Namespace) -> None:
    """Run all tests without a record, then repeat those that failed, as often as is wanted."""
    for classes in _not_recorded(suite, record, options.only or ()):
        _run(suite, side, prepared, record, classes)
    for _ in range(options.repeat):
        tests = _to_repeat(record, options.repeat)
        if tests:
            _run(suite, side, prepared, record, tests)
    counted = [verdict(made).outcome for made in record.tries().values()]
    said = ", ".join(f"{counted.count(one)} {one}" for one in Outcome)
    print(f"{suite.name} {suite.version} on {side}: {said}", flush=True)


def _not_recorded(suite: Suite, record: Record, only: Sequence[str]) -> list[list[str]]:
    """Return the classes or tests of each run that is left."""
    if not suite.classes:
        return [] if record.tries() else [[]]
    known = {class_of(test) for test in record.tries()}
    chosen = [name for name in suite.classes if not only or name.rpartition(".")[2] in only]
    return [[name] for name in chosen if name not in known]


def _to_repeat(record: Record, repeat: int) -> list[str]:
    tries = record.tries()
    return [test for test, made in tries.items() if verdict(made).outcome is Outcome.FAILED and len(made) <= repeat]


def _run(suite: Suite, side: str, prepared: Path, record: Record, names: Sequence[str]) -> None:
    """One run, on a cluster of its own; its log is kept when tests failed.

    Args:
        suite: the suite.
        side: whose cluster it is.
        prepared: the directory that ``Suite.prepare`` returned.
        record: takes the results.
        names: a class, or tests that are repeated; all tests if there are none.
    """
    whole = not names or set(names) <= set(suite.classes)
    logs = RESULTS / "logs" / f"{suite.name}-{side}-{'all' if whole else 'again'}"
    logs.mkdir(parents=True, exist_ok=True)
    limit = suite.limit_seconds if whole else min(suite.limit_seconds, REPEAT_LIMIT_SECONDS)
    began = time.monotonic()
    with cluster(side, suite.shape) as at:
        found = suite.run(Task(prepared, at.servers, names, logs, limit, at.proxies, side))
    if not found:
        raise Unavailable(f"it reported no test; see {logs.relative_to(page.ROOT)}")
    wanted = found if whole else _asked_for(names, found)
    record.add(wanted, os.getloadavg()[0])
    failed = [one.test for one in wanted if one.outcome is Outcome.FAILED]
    seconds = time.monotonic() - began
    print(f"{suite.name} on {side}: {len(wanted)} tests in {seconds:.0f} s, failed: {failed}", flush=True)


def _asked_for(tests: Sequence[str], found: Sequence[Result]) -> list[Result]:
    """Return the results of tests; a test without one has failed."""
    reported = {one.test: one for one in found}
    return [reported.get(test, Result(test, Outcome.FAILED, "it was not reported")) for test in tests]


if __name__ == "__main__":
    main()
