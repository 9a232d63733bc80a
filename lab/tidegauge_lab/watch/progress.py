"""Progress of a story that the page plays step by step: requested and played steps. Pure.

Rules:
    1. A step is played when it was asked for: one by "next", all that follow by "play on"; "pause" takes the rest
       back, and a step that has begun goes on.
    2. The first step that does not do what it says is the last one. The cluster stays until the story is ended, so that
       one can look.
    3. A failure outside of a step (the cluster does not start, the limit is over) is a problem in one sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tidegauge_lab.scenario.model import Scenario
from tidegauge_lab.scenario.narration import LEGEND, narrated
from tidegauge_lab.scenario.outcome import Outcome, PlayedStep, described, expected_of, settings_lines

Json = dict[str, Any]
_GRAVE = ("lost: ", "lost-tail: ", "diverged: ")
"""How a step's details begin that name a lost record, or logs that differ (``accountant.books.Kind``)."""


class Phase(StrEnum):
    """Where a story is."""

    STARTING = "starting"
    WAITING = "waiting"
    PLAYING = "playing"
    OVER = "over"
    FAILED = "failed"


@dataclass(slots=True)
class Progress:
    """One run of a story.

    Attributes:
        story: the story that is played.
        phase: its present phase.
        asked: so many steps may be played.
        is_on: whether all that follow were asked for.
        begun: so many steps have begun.
        played: those that have ended; the last of them may have failed.
        problem: why it failed; empty otherwise.
        expectations: how many held, or were looked at last.
        directory: the cluster's; empty before there is one.
    """

    story: Scenario
    phase: Phase = Phase.STARTING
    asked: int = 0
    is_on: bool = False
    begun: int = 0
    played: list[PlayedStep] = field(default_factory=list)
    problem: str = ""
    expectations: int = 0
    directory: str = ""

    @property
    def steps(self) -> int:
        """How many the story has."""
        return len(self.story.steps)

    @property
    def plays_on(self) -> bool:
        """Whether steps follow that are asked for already."""
        return self.is_on and self.asked > self.begun and not self.is_at_end

    @property
    def is_at_end(self) -> bool:
        """Whether nothing follows."""
        return self.phase in {Phase.OVER, Phase.FAILED}

    def on_stage(self, directory: str) -> None:
        """Note that the cluster is up."""
        self.phase, self.directory = Phase.WAITING, directory

    def next(self) -> None:
        """Ask for one step more (rule 1); while one is played nothing is asked for, so that two presses are one."""
        if self.phase is not Phase.PLAYING:
            self.asked, self.is_on = min(self.begun + 1, self.steps), False

    def play_on(self) -> None:
        """Ask for all that follow."""
        self.asked, self.is_on = self.steps, True

    def pause(self) -> None:
        """Ask for nothing after the step that is played (rule 1)."""
        self.asked, self.is_on = self.begun, False

    def may_begin(self, number: int) -> bool:
        """Whether a step was asked for."""
        return number < self.asked

    def begin(self, number: int) -> None:
        """Note that a step begins."""
        self.phase, self.begun = Phase.PLAYING, number + 1

    def end_step(self, outcome: Outcome) -> None:
        """Note that the step in hand has ended, and how."""
        self.played = list(outcome.steps)
        self.expectations = outcome.expectations
        if outcome.failure:
            self.phase, self.problem = Phase.FAILED, outcome.failure
        else:
            self.phase = Phase.WAITING

    def end(self) -> None:
        """Note that all steps were played, or one failed."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.OVER

    def fail(self, problem: str) -> None:
        """Note that the run came to its end before the story did (rule 3)."""
        self.phase, self.problem = Phase.FAILED, problem

    def as_json(self) -> Json:
        """Return what the page shows of it."""
        return {
            "name": self.story.name,
            "title": self.story.title,
            "teaches": self.story.teaches.strip(),
            "rule": self.story.rule.strip(),
            "cluster": settings_lines(self.story),
            "legend": list(LEGEND),
            "phase": self.phase.value,
            "playsOn": self.plays_on,
            "problem": self.problem,
            "expectations": self.expectations,
            "directory": self.directory,
            "verdict": self._verdict(),
            "steps": [self._step(number) for number in range(self.steps)],
        }

    def _verdict(self) -> list[Json]:
        """Return the accountant's last verdict, as for the stage; empty before."""
        return verdict_of([(number, one.details) for number, one in enumerate(self.played) if one.verb == "verify"])

    def _step(self, number: int) -> Json:
        step = self.story.steps[number]
        expected = expected_of(step)
        shown: Json = {
            "sentence": narrated(step) or ("" if expected or step.note else described(step)),
            "note": step.note.strip(),
            "expected": expected,
            "state": self._state_of(number),
        }
        if number < len(self.played):
            played = self.played[number]
            before = self.played[number - 1].state if number else ""
            shown |= {
                "seconds": played.seconds,
                "details": played.details,
                "line": played.state if played.state != before else "",
                "logs": played.logs,
                "table": [list(row) for row in played.table],
            }
        return shown

    def _state_of(self, number: int) -> str:
        """Return ``held``, ``failed``, ``playing``, ``next`` or ``later``."""
        failed = self.phase is Phase.FAILED
        if number < len(self.played):
            return "failed" if failed and number == len(self.played) - 1 else "held"
        if number == len(self.played) and number < self.begun:
            return "failed" if failed else "playing"
        return "next" if number == self.begun and self.phase is Phase.WAITING else "later"


def verdict_of(audits: Sequence[tuple[int, Sequence[str]]]) -> list[Json]:
    """Return the accountant's last verdict, as for the stage; empty before.

    Args:
        audits: the steps ``verify`` that were played, by their places from 0, with their details.
    """
    if not audits:
        return []
    place, details = audits[-1]
    found: list[Json] = [{"kind": "told", "text": one, "step": place + 1} for one in details if one.startswith(_GRAVE)]
    return found or [{"kind": "kept", "values": [], "holders": []}]
