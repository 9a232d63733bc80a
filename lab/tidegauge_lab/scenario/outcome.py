"""The outcome of a scenario: its steps in words, how far it got, and why it failed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from tidegauge.counted import counted
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_lab.local.roles import Role
from tidegauge_lab.scenario import facts, table
from tidegauge_lab.scenario.model import Scenario
from tidegauge_lab.scenario.narration import LEGEND, narrated
from tidegauge_lab.scenario.readers import NO_LEADER, LoggedRecord
from tidegauge_lab.scenario.step_base import Step

NOTE_INDENT = " " * 9
WIDTH = 120
PROSE_WIDTH = 80
_SHORT = frozenset({"leo", "hw", "lso", "isr"})


IN_KRAFT = (
    "Played in KRaft mode: a quorum of controllers has ZooKeeper's part here, and heartbeats take the place of its "
    "sessions. A broker that led nothing costs no leader epoch when it dies, so that epochs may be lower than in "
    "ZooKeeper mode."
)


Speak = Callable[[str], str]
"""Gives a text in the reader's language."""


class StepFailed(Exception):
    """Raised when a step does not do what it says; ``message`` has the actual state."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


@dataclass(slots=True)
class PlayedStep:
    """One step of a run.

    Attributes:
        line: in the file.
        verb: of the step.
        text: the step in words.
        seconds: since the scenario's first step.
        state: of the step's partition afterwards, in one line.
        table: rows that it printed.
        details: what it reported meanwhile, a line each.
        logs: the records of each replica, where the story shows them after this step.
    """

    line: int
    verb: str
    text: str
    seconds: float
    state: str = ""
    table: list[table.Row] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Outcome:
    """The outcome of a scenario.

    Attributes:
        failure: empty if every expectation held, else ``line N: ACTUAL STATE``.
    """

    name: str
    failure: str = ""
    seconds: float = 0.0
    steps: list[PlayedStep] = field(default_factory=list)
    expectations: int = 0

    @property
    def passed(self) -> bool:
        """Whether every step did what it says."""
        return not self.failure

    def as_json(self) -> dict[str, Any]:
        """For ``-o json``."""
        return {
            "name": self.name,
            "passed": self.passed,
            "failure": self.failure or None,
            "seconds": round(self.seconds, 3),
            "expectations": self.expectations,
            "steps": [{**asdict(step), "table": [row._asdict() for row in step.table]} for step in self.steps],
        }


def headline(step: Step, seconds: float, *, verbose: bool, speak: Speak = str) -> list[str]:
    """Return what is printed of a step before it is done: when, what, its author's note; verbose: its line in the file.

    A step without a sentence, such as an expectation, begins with its note; without one it is not printed at all.
    """
    reported = [words for words in (speak(narrated(step)), *speak(step.note).splitlines()) if words]
    if not reported and not verbose:
        return []
    first, *notes = reported or [described(step)]
    if reported and first.partition(" ")[0].strip(",;.").isalpha():  # not the name of a record
        first = first[0].upper() + first[1:]
    lines = [f"{seconds:6.1f}s  {first}", *(f"{NOTE_INDENT}{note}" for note in notes)]
    if verbose and reported:
        text = f"line {step.line}: {described(step)}"
        indent = f"{NOTE_INDENT}  "
        lines += textwrap.wrap(
            text, WIDTH, initial_indent=indent, subsequent_indent=f"{indent}  ", break_on_hyphens=False
        )
    return lines


def described(step: Step) -> str:
    """Return a step in one line: the verb, and arguments other than defaults."""
    words = [value if name == step.main else f"{name}={value}" for name, value in _arguments(step)]
    return " ".join([step.verb, *words])


def expected_of(step: Step) -> list[str]:
    """Return a step's expectations, a line each: ``LEO 1:2 2:1``; none for other steps."""
    if not step.is_expectation:
        return []
    return [f"{' '.join(map(_word, name.split('_')))} {value}" for name, value in _arguments(step)]


def _word(name: str) -> str:
    return name.upper() if name in _SHORT else name


def _arguments(step: Step) -> list[tuple[str, str]]:
    """Return the arguments that differ from the defaults, for people."""
    found = [
        (argument.attribute if argument.attribute == step.main else name, step.value_of(argument), argument.default)
        for name, argument in step.arguments().items()
    ]
    return [(name, _shown(value)) for name, value, default in found if value is not None and value != default]


def _shown(value: object) -> str:
    if isinstance(value, ErrorCode):
        return value.name
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return " ".join(f"{key}:{_shown(one)}" for key, one in value.items())
    if isinstance(value, list | tuple) and not isinstance(value, TopicPartition | LoggedRecord | Role):
        return "[" + ",".join(_shown(one) for one in value) + "]" if len(value) != 1 else _shown(value[0])
    return "none" if value == NO_LEADER else str(value)


def introduction(scenario: Scenario, speak: Speak = str) -> list[str]:
    """Return what stands before the first step, by ``speak`` in the reader's language."""
    lines = _paragraphs(f"{scenario.name}: {speak(scenario.title)}", "")
    if scenario.teaches:
        lines += ["", *_paragraphs(scenario.teaches, "  ", speak)]
    if scenario.rule:
        lines += ["", *_paragraphs(f"{speak('Rule:')} {speak(scenario.rule)}", "  ")]
    if scenario.is_adapted:
        lines += ["", *_paragraphs(IN_KRAFT, "  ", speak)]
    lines += ["", *(f"  {speak(line)}" for line in settings_lines(scenario))]
    return [*lines, "", *(line for sentence in LEGEND for line in _paragraphs(sentence, "  ", speak)), ""]


def _paragraphs(text: str, indent: str, speak: Speak = str) -> list[str]:
    """Return prose wrapped for a terminal; a paragraph that is a list or a table stays as it is."""
    lines: list[str] = []
    for paragraph in re.split(r"\n{2,}", text.strip("\n")):
        given = speak(paragraph).splitlines()
        is_prose = not any(line.startswith((" ", "- ", "* ", "|")) for line in given)
        lines += [""] if lines else []
        lines += (
            textwrap.wrap(
                " ".join(given),
                PROSE_WIDTH,
                initial_indent=indent,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
            if is_prose
            else [f"{indent}{line}" for line in given]
        )
    return lines


def settings_lines(scenario: Scenario) -> list[str]:
    """Return the cluster and its topics in words, a line each."""
    settings = "".join(f", {name}={value}" for name, value in scenario.settings.items())
    lines = [f"{counted(scenario.brokers, 'broker')}, controller {scenario.controller}{settings}"]
    for topic in scenario.topics:
        replicas = ", ".join(
            f"{topic.name}-{number} on {facts.numbers(one)}" for number, one in enumerate(topic.assignment)
        )
        config = "".join(f", {name}={value}" for name, value in topic.config.items())
        lines.append(f"{replicas}{config}")
    return lines


def as_json(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario as ``show -o json`` prints it."""
    return {
        "name": scenario.name,
        "title": scenario.title,
        "teaches": scenario.teaches,
        "rule": scenario.rule,
        "limit_seconds": scenario.limit_seconds,
        "cluster": {
            "brokers": scenario.brokers,
            "controller": scenario.controller,
            "settings": dict(scenario.all_settings),
        },
        "topics": [
            {"name": topic.name, "assignment": topic.assignment, "config": dict(topic.config)}
            for topic in scenario.topics
        ],
        "steps": [
            {
                "line": step.line,
                "verb": step.verb,
                "text": described(step),
                "sentence": narrated(step),
                "note": step.note,
            }
            for step in scenario.steps
        ],
    }
