"""Results of the tests of an outside suite: read from the suite's own report, kept as JSON lines, one for each try."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from xml.etree import ElementTree as ET

TEXT_LIMIT = 300
KAFKA, TIDEGAUGE = "kafka", "tidegauge"
SIDES = (KAFKA, TIDEGAUGE)


class Outcome(StrEnum):
    """How a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """One try of one test.

    Attributes:
        test: its name in the suite.
        outcome: how it ended.
        text: the line that says why, for one that failed or was skipped.
        seconds: how long it took, as the suite says.
        load: the machine's load average over a minute when the try ended.
    """

    test: str
    outcome: Outcome
    text: str = ""
    seconds: float = 0.0
    load: float = 0.0


class Record:
    """The tries of one suite on one side, in the order in which they were made.

    Args:
        path: the file of JSON lines; it need not exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, results: Iterable[Result], load: float) -> None:
        """Append tries, with the machine's load average."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            for result in results:
                file.write(json.dumps(asdict(replace(result, load=round(load, 1)))) + "\n")

    def tries(self) -> dict[str, list[Result]]:
        """Return the tries of each test; skip an incomplete line."""
        found: dict[str, list[Result]] = {}
        for result in self._lines():
            found.setdefault(result.test, []).append(result)
        return found

    def _lines(self) -> Iterator[Result]:
        if not self._path.exists():
            return
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                fields = json.loads(line)
            except json.JSONDecodeError:
                continue
            yield Result(**(fields | {"outcome": Outcome(fields["outcome"])}))

    def forget(self) -> None:
        """Remove all tries."""
        self._path.unlink(missing_ok=True)


def verdict(tries: Iterable[Result]) -> Result:
    """Return the last try that passed, or else the last one.

    A test that fails on a busy machine and passes when it is repeated has passed; the record keeps both.
    """
    made = list(tries)
    return next((one for one in reversed(made) if one.outcome is Outcome.PASSED), made[-1])


def class_of(test: str) -> str:
    """Return the outermost class of a test of JUnit's."""
    return test.partition("::")[0].partition("$")[0]


def first_line(text: str) -> str:
    """Return the first line that says something, without colours, at most ``TEXT_LIMIT`` characters."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text)
    lines = (line.strip() for line in plain.splitlines())
    return next((line for line in lines if line), "")[:TEXT_LIMIT]


def from_junit(report: str) -> list[Result]:
    """Read the XML that pytest and jest write: a test is ``class::name``.

    Raises:
        ValueError: it is no such report.
    """
    try:
        root = ET.fromstring(report)  # noqa: S314 - pytest wrote it a moment ago
    except ET.ParseError as problem:
        raise ValueError(f"the suite's report can't be read: {problem}") from None
    return list(_one_of_each(map(_from_case, root.iter("testcase"))))


def _from_case(case: ET.Element) -> Result:
    names = (case.get("classname", ""), case.get("name", ""))
    test, seconds = "::".join(name for name in names if name), float(case.get("time", "0"))
    for tag, outcome in (("failure", Outcome.FAILED), ("error", Outcome.FAILED), ("skipped", Outcome.SKIPPED)):
        if (found := case.find(tag)) is not None:
            return Result(test, outcome, first_line(found.get("message") or found.text or ""), seconds)
    return Result(test, Outcome.PASSED, "", seconds)


def _one_of_each(results: Iterable[Result]) -> Iterable[Result]:
    """Merge what pytest reports twice, as it does with a test that passes and then fails in its teardown."""
    found: dict[str, Result] = {}
    for result in results:
        if result.test not in found or result.outcome is Outcome.FAILED:
            found[result.test] = result
    return found.values()


_GO_OUTCOMES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}
_GO_NOISE = re.compile(r"^(=== |--- |\[\d\d:\d\d|PASS|FAIL|ok |exit status)")


def from_go(output: str) -> list[Result]:
    """Read the JSON lines of ``go tool test2json``: tests, without the parts that they consist of.

    A test that has begun and not ended, because the run was out of time or has panicked, has failed.
    """
    said: dict[str, list[str]] = {}
    found: dict[str, Result] = {}
    for event in _events(output):
        test = str(event.get("Test", ""))
        if not test or "/" in test:
            continue
        lines = said.setdefault(test, [])
        line = str(event.get("Output", ""))
        if line.strip() and not _GO_NOISE.match(line.strip()):
            lines.append(line)
        if (outcome := _GO_OUTCOMES.get(str(event["Action"]))) is not None:
            why = "" if outcome is Outcome.PASSED else first_line("".join(lines))
            found[test] = Result(test, outcome, why, float(str(event.get("Elapsed", 0))))
    unfinished = (Result(test, Outcome.FAILED, "it did not end in time") for test in said if test not in found)
    return [*found.values(), *unfinished]


def _events(output: str) -> Iterator[Mapping[str, object]]:
    for line in output.splitlines():
        if line.startswith('{"'):
            try:
                yield json.loads(line)
            except json.JSONDecodeError:  # the last line of a run that was killed
                return


_LIBRDKAFKA = re.compile(
    r"^\[(?P<skipped>\d{4}_\w+) .*SKIPPING TEST: (?P<reason>.*)"
    r"|=+ Test (?P<passed>\d{4}_\w+) PASSED =+"
    r'|^### Test "(?P<failed>\d{4}_\w+).*" failed at .*###\s*\n(?P<why>.*)',
    re.MULTILINE,
)


def from_librdkafka(output: str) -> list[Result]:
    """Read what librdkafka's test-runner prints of each test; its table is missing where a failure ends it."""
    found: dict[str, Result] = {}
    for line in _LIBRDKAFKA.finditer(re.sub(r"\x1b\[[0-9;]*m", "", output)):
        if test := line["failed"]:
            found[test] = Result(test, Outcome.FAILED, first_line(line["why"]))
        elif test := line["passed"]:
            found.setdefault(test, Result(test, Outcome.PASSED))
        else:
            found[line["skipped"]] = Result(line["skipped"], Outcome.SKIPPED, first_line(line["reason"]))
    return list(found.values())
