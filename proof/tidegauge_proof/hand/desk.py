"""The whole interface of the page's worker: a session, its story, a second cluster, the search for flaws. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidegauge_proof.hand.beside import Beside
from tidegauge_proof.hand.flaws import MOST_AT_ONCE, Flaw, search, standstill
from tidegauge_proof.hand.scenario_file import COMMAND, as_scenario
from tidegauge_proof.hand.schedule import ScheduleError, read_schedule, write_schedule
from tidegauge_proof.hand.session import OPS, Session
from tidegauge_proof.hand.settings import RULE_NAMES
from tidegauge_proof.hand.story import Story
from tidegauge_proof.own_rules import NAME as OWN
from tidegauge_proof.own_rules import OwnRuleError, OwnRules

Json = dict[str, Any]
MOST_SEED = 10**9


class Desk(Session):
    """A session with stories, scenario files and a search; requests and responses are JSON (``Session.request``)."""

    ops = (*OPS, "story", "story_to", "scenario", "search", "beside", "rule")

    def __init__(self) -> None:
        super().__init__()
        self._scenario: Json | None = None
        self._story: Story | None = None
        self._beside: Beside | None = None
        self._own: OwnRules | None = None

    def _on_story(self, wanted: Json) -> Json:
        """Begin a story: ``scenario`` has the plain values of its file."""
        scenario = wanted.get("scenario")
        if not isinstance(scenario, dict):
            raise ScheduleError("a story is an object")
        try:
            self._story, self._scenario = Story(self, scenario), scenario
        except (KeyError, TypeError, AttributeError, ValueError) as problem:
            if isinstance(problem, ScheduleError):
                raise
            raise ScheduleError("this is no scenario") from None
        return self._whole() | {"story": {"place": 0, "over": self._story.is_over, "done": [], "wrong": []}}

    def _on_story_to(self, wanted: Json) -> Json:
        """Play the story up to a step: further, or from the start again if that is behind."""
        place = wanted.get("place")
        if self._story is None or self._scenario is None:
            raise ScheduleError("there is no story: choose one")
        if not isinstance(place, int) or isinstance(place, bool) or place < 0:
            raise ScheduleError("a step of a story is a whole number, 0 or more")
        if place < self._story.place or self._story.is_behind:
            self._story = Story(self, self._scenario)
        found: Json = {"place": self._story.place, "over": self._story.is_over, "done": [], "wrong": []}
        while self._story.place < place and not self._story.is_over:
            found = self._story.next()
        return self._whole() | {"story": found | {"failed": self._story.failed}}

    def _on_beside(self, wanted: Json) -> Json:
        """Return a second cluster's view after each action, by another rule."""
        rule = whole_number(wanted, "rule", len(RULE_NAMES) - 1)
        if self._beside is None or self._beside.rule != rule:
            self._beside = Beside(rule)
        return {"rule": rule, "moments": self._beside.follow(self.schedule)}

    def _on_rule(self, wanted: Json) -> Json:
        """Take in a rule of the caller, and try whether a cluster gets anywhere with it."""
        code = wanted.get("code")
        if not isinstance(code, str):
            raise ScheduleError("a rule is text")
        try:
            self._own = OwnRules(code)
        except OwnRuleError as problem:
            raise ScheduleError(str(problem)) from None
        stuck = standstill(self._own)
        return {"names": list(self._own.names), "fault": self._own.fault, "found": _json_of(stuck, OWN)}

    def _on_open(self, wanted: Json) -> Json:
        """Play a schedule; with ``own`` by the rules that were taken in last."""
        if wanted.get("own") is not True:
            return super()._on_open(wanted)
        schedule = read_schedule(str(wanted.get("schedule", "")))
        self.play(replace(schedule, settings=replace(schedule.settings, own=self._own)))
        return self._whole()

    def _on_scenario(self, wanted: Json) -> Json:
        """Return the schedule as a scenario file, and the command that plays it."""
        del wanted
        return {"text": as_scenario(self), "command": COMMAND}

    def _on_search(self, wanted: Json) -> Json:
        """Try some seeds, by a rule or by those taken in; the page asks again for as long as the person wants."""
        seed = whole_number(wanted, "seed", MOST_SEED)
        count = whole_number(wanted, "count", MOST_AT_ONCE)
        rule = whole_number(wanted, "rule", len(RULE_NAMES) - 1)
        own = self._own if wanted.get("own") is True else None
        flaw = search(seed, count, rule, own)
        fault = "" if own is None else own.fault
        tried = count if flaw is None else flaw.seed - seed + 1
        return {"found": _json_of(flaw, RULE_NAMES[rule] if own is None else OWN), "tried": tried, "fault": fault}


def _json_of(flaw: Flaw | None, rule: str) -> Json | None:
    if flaw is None:
        return None
    return {"seed": flaw.seed, "schedule": write_schedule(flaw.schedule), "broken": flaw.broken, "rule": rule}


def whole_number(wanted: Json, name: str, most: int) -> int:
    """Return a number of a request.

    Raises:
        ScheduleError: it is none from 0 to ``most``.
    """
    value = wanted.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise ScheduleError(f"{name} is a whole number from 0 to {most}")
    return value
