"""docs/compatibility.md: counts for each suite on both sides, and every test that does not pass, with the reason.

A suite's section is written from its record of both sides; a suite that has none on this machine keeps its section.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from outside.results import KAFKA, SIDES, TIDEGAUGE, Outcome, Record, Result, class_of, verdict
from outside.suites import NOT_RUN, SUITES, Suite

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
REASONS = Path(__file__).with_name("reasons.toml")
HEAD = """# Compatibility: the pass list

Results of suites that others wrote. Each is fetched at the version given here, run unchanged against a
Tidegauge cluster and against Apache Kafka 3.9.1 (ZooKeeper mode) with the same settings on the same machine, and
compared test by test; Kafka's own integration tests are from 4.3.1, and their clusters are in KRaft mode.
`make outside` fetches, runs and writes this page; `make outside SUITE=aiokafka` does it for one suite. Results
recorded under `build/outside` are not run again (`AGAIN=1` does that). A test that fails is repeated by itself, and has
passed when the repetition passes: the suites' own time limits are made for quiet machines.

Releases of Python packages have no tests in them; `OUTSIDE_CHECKOUTS` names a directory with checkouts of the
repositories `aiokafka`, `kafka-python` and `confluent-kafka-python`, without which those suites are skipped, as are
others where Maven, Go or apt is missing.

For clients in failovers see [clients.md](clients.md). How both respond to single requests, byte by
byte, is compared by `make differential`.

## Counts

Each column has the tests that passed, failed and were skipped.

"""
ABORTED = "org.opentest4j.TestAbortedException: "
"""JUnit's prefix of the reason why a test was aborted, which counts as skipped."""
TABLE_HEAD = "| suite | version | Apache Kafka | Tidegauge | passed on Kafka alone |"


@dataclass(frozen=True, slots=True)
class Compared:
    """One suite's results on both sides, by test; ``repeated`` counts those with more than one try, by side."""

    suite: Suite
    kafka: Mapping[str, Result]
    tidegauge: Mapping[str, Result]
    repeated: Mapping[str, int]

    def tests(self, kafka: Sequence[Outcome | None], tidegauge: Sequence[Outcome | None]) -> list[str]:
        """Return the tests with these outcomes on each side; None: not reported."""
        names = sorted(self.kafka.keys() | self.tidegauge.keys())
        return [
            name
            for name in names
            if _outcome(self.kafka, name) in kafka and _outcome(self.tidegauge, name) in tidegauge
        ]


def _outcome(results: Mapping[str, Result], test: str) -> Outcome | None:
    return results[test].outcome if test in results else None


def record_of(directory: Path, suite: str, side: str) -> Record:
    """Return the record of a suite on a side under ``build/outside``."""
    return Record(directory / f"{suite}-{side}.jsonl")


def compared(directory: Path, suite: Suite) -> Compared | None:
    """Return a suite's results in classes that both sides ran, if any."""
    tries = {side: record_of(directory, suite.name, side).tries() for side in SIDES}
    if not all(tries.values()):
        return None
    if suite.classes:
        both = set.intersection(*({class_of(test) for test in of} for of in tries.values()))
        tries = {
            side: {test: made for test, made in of.items() if class_of(test) in both} for side, of in tries.items()
        }
        if not both:
            return None
    found = {side: {test: verdict(made) for test, made in of.items()} for side, of in tries.items()}
    again = {side: sum(len(made) > 1 for made in of.values()) for side, of in tries.items()}
    return Compared(suite, found[KAFKA], found[TIDEGAUGE], again)


def write(directory: Path) -> None:
    """Write the page from all records there are."""
    former = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    reasons = tomllib.loads(REASONS.read_text(encoding="utf-8"))
    PAGE.write_text(rendered(former, [compared(directory, suite) for suite in SUITES.values()], reasons), "utf-8")


def rendered(former: str, found: Sequence[Compared | None], reasons: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page with these results, and the former page's for others."""
    new = {one.suite.name: one for one in found if one is not None}
    rows, sections = [TABLE_HEAD, "|---|---|---|---|---|"], []
    for suite in SUITES.values():
        if suite.name in new:
            row, section = _row(new[suite.name]), _section(new[suite.name], reasons.get(suite.name, {}))
        else:
            row, section = _former_row(former, suite), _former_section(former, suite)
        rows.append(row)
        if section:
            sections.append(section)
    skipped = [f"- {name}: {why}." for name, why in NOT_RUN.items()]
    not_run = "\n".join(["## Not run", "", *skipped, ""])
    return HEAD + "\n".join([*rows, "", *sections, not_run])


def _counts(results: Mapping[str, Result]) -> str:
    outcomes = [result.outcome for result in results.values()]
    return ", ".join(str(outcomes.count(one)) for one in (Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED))


def _only_on_kafka(one: Compared) -> list[str]:
    return one.tests([Outcome.PASSED], [Outcome.FAILED, Outcome.SKIPPED, None])


def _row(one: Compared) -> str:
    link = f"[{one.suite.title}](#{one.suite.name})"
    counts = f"{_counts(one.kafka)} | {_counts(one.tidegauge)} | {len(_only_on_kafka(one))}"
    return f"| {link} | {one.suite.version} | {counts} |"


def _former_row(former: str, suite: Suite) -> str:
    start = f"| [{suite.title}](#{suite.name}) |"
    kept = [line for line in former.splitlines() if line.startswith(start)]
    return kept[0] if kept else f"| {suite.title} | {suite.version} | not run yet | not run yet | |"


def _former_section(former: str, suite: Suite) -> str:
    found = re.search(rf"^## {re.escape(suite.name)}\n.*?(?=^## )", former, re.MULTILINE | re.DOTALL)
    return found[0].rstrip("\n") + "\n" if found else ""


def _section(one: Compared, reasons: Mapping[str, str]) -> str:
    lines = [f"## {one.suite.name}", "", f"{one.suite.title}, {one.suite.version}. {one.suite.how}".rstrip()]
    ran = {class_of(test) for test in one.kafka}
    if ran < set(one.suite.classes):
        names = ", ".join(sorted(name.rpartition(".")[2] for name in ran))
        lines[-1] += f" Counted are {len(ran)} of its {len(one.suite.classes)} classes: {names}."
    if any(one.repeated.values()):
        lines[-1] += f" Repeated: {one.repeated[KAFKA]} tests on Kafka, {one.repeated[TIDEGAUGE]} on Tidegauge."
    both = one.tests([Outcome.FAILED], [Outcome.FAILED, Outcome.SKIPPED, None])
    here = one.tests([Outcome.FAILED, Outcome.SKIPPED, None], [Outcome.PASSED])
    for title, tests, results in (
        ("passes on Kafka, not on Tidegauge", _only_on_kafka(one), one.tidegauge),
        ("fails on both", both, one.kafka),
        ("passes on Tidegauge alone", here, one.kafka),
    ):
        if tests:
            lines += ["", f"| {title} | why |", "|---|---|"]
            lines += [f"| `{test}` | {_why(test, results, reasons)} |" for test in tests]
    return "\n".join([*lines, ""])


def _why(test: str, results: Mapping[str, Result], reasons: Mapping[str, str]) -> str:
    """Return the written reason of a test or its class, else the suite's."""
    place, _, name = test.rpartition("::")
    said = (results[test].text if test in results else "not reported").removeprefix(ABORTED)
    written = reasons.get(name) or reasons.get(place.rpartition(".")[2])
    return written or "`" + said.replace("|", "/").replace("`", "'") + "`"
