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
from outside.results import SIDES, Outcome, Record, Result, verdict
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
                _bring_to_its_end(SUITES[name], side, prepared, record, options.repeat)
            except Unavailable as problem:
                print(f"{name} on {side}: skipped: {problem}", flush=True)
    page.write(RESULTS)


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="outside", description=__doc__)
    parser.add_argument("--suite", action="append", choices=list(SUITES), help="may be repeated; all without it")
    parser.add_argument("--side", action="append", choices=SIDES, help="may be repeated; both without it")
    parser.add_argument("--again", action="store_true", help="forget what is recorded")
    parser.add_argument("--repeat", type=int, default=1, help="how many times tests that fail are repeated")
    return parser.parse_args(arguments)


def _bring_to_its_end(suite: Suite, side: str, prepared: Path, record: Record, repeat: int) -> None:
    """Run the suite if it has no record, then repeat failed tests that were not repeated yet."""
    rounds = 0 if record.tries() else 1
    for number in range(rounds + repeat):
        everything = number == 0 and rounds == 1
        tests = [] if everything else _to_repeat(record, repeat)
        if not everything and not tests:
            break
        _run(suite, side, prepared, record, tests)
    counted = [verdict(made).outcome for made in record.tries().values()]
    said = ", ".join(f"{counted.count(one)} {one}" for one in Outcome)
    print(f"{suite.name} {suite.version} on {side}: {said}", flush=True)


def _to_repeat(record: Record, repeat: int) -> list[str]:
    tries = record.tries()
    return [test for test, made in tries.items() if verdict(made).outcome is Outcome.FAILED and len(made) <= repeat]


def _run(suite: Suite, side: str, prepared: Path, record: Record, tests: Sequence[str]) -> None:
    """One run on a cluster of its own; its log is kept when tests failed."""
    logs = RESULTS / "logs" / f"{suite.name}-{side}-{'again' if tests else 'all'}"
    logs.mkdir(parents=True, exist_ok=True)
    limit = min(suite.limit_seconds, REPEAT_LIMIT_SECONDS) if tests else suite.limit_seconds
    began = time.monotonic()
    with cluster(side, suite.shape) as at:
        found = suite.run(Task(prepared, at.servers, tests, logs, limit, at.proxies, side))
    if not found:
        raise Unavailable(f"it reported no test; see {logs.relative_to(page.ROOT)}")
    reported = {one.test for one in found}
    missing = [Result(test, Outcome.FAILED, "it was not reported") for test in tests if test not in reported]
    wanted = [one for one in found if not tests or one.test in tests]
    record.add([*wanted, *missing], os.getloadavg()[0])
    failed = [one.test for one in wanted if one.outcome is Outcome.FAILED]
    seconds = time.monotonic() - began
    print(f"{suite.name} on {side}: {len(wanted)} tests in {seconds:.0f} s, failed: {failed}", flush=True)


if __name__ == "__main__":
    main()
