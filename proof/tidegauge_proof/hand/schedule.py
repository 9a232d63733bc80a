"""A schedule as text for an address: version, settings, actions. ``1~b3i1r3u0f0h0c0~p1-2-0.k0.t18000``.

Rules:
    1. The text holds everything: the same schedule gives the same history, to the last event, in every Python.
    2. A version that is not known is refused by a sentence, never guessed at.
    3. Reading is bounded: text above ``MOST_CHARACTERS`` or with more than ``MOST_ACTIONS`` is refused before it is
       looked into.
    4. Settings that are left out have their defaults, and defaults are left out when written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import factorial
from typing import Any

from tidegauge_proof.hand.actions import BY_LETTER, KINDS, Action, ActionError, checked
from tidegauge_proof.hand.settings import FIELDS, Settings

VERSION = 1
MOST_ACTIONS = 400
MOST_CHARACTERS = 8000
_SETTING = re.compile(r"([a-z])(\d{1,6})")
_ACTION = re.compile(r"(b[a-z]|[a-zA-Z])(\d{1,6}(?:-\d{1,6})*)?", re.ASCII)


class ScheduleError(ValueError):
    """A text that is no schedule; the message is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Settings, and the actions in their order."""

    settings: Settings = field(default_factory=Settings)
    actions: tuple[Action, ...] = ()

    def then(self, action: Action) -> Schedule:
        """Return the schedule with one more action."""
        return Schedule(self.settings, (*self.actions, action))

    def first(self, count: int) -> Schedule:
        """Return its first actions."""
        return Schedule(self.settings, self.actions[:count])


def write_schedule(schedule: Schedule) -> str:
    """Return a schedule as text of RFC 3986's unreserved characters."""
    settings = write_settings(schedule.settings)
    actions = ".".join(KINDS[kind].letter + "-".join(map(str, values)) for kind, values in schedule.actions)
    return f"{VERSION}~{settings}~{actions}"


def write_settings(settings: Settings) -> str:
    """Return settings as a schedule writes them (rule 4)."""
    default = Settings()
    return "".join(
        f"{one.letter}{getattr(settings, one.name)}"
        for one in FIELDS
        if getattr(settings, one.name) != getattr(default, one.name)
    )


def read_schedule(text: str) -> Schedule:
    """Read a schedule.

    Raises:
        ScheduleError: the text is none; the message says why.
    """
    if len(text) > MOST_CHARACTERS:
        raise ScheduleError(f"this schedule has {len(text)} characters; at most {MOST_CHARACTERS} are read")
    version, mark, rest = text.partition("~")
    if not mark or not re.fullmatch(r"[0-9]{1,6}", version):
        raise ScheduleError("this is no schedule: it begins with a version number and ~")
    if int(version) != VERSION:
        raise ScheduleError(
            f"this schedule is of version {int(version)}; this page reads version {VERSION}. Open it with the "
            "Tidegauge that wrote it"
        )
    settings_text, mark, actions_text = rest.partition("~")
    if not mark:
        raise ScheduleError("this is no schedule: after the settings, ~ is missing")
    settings = read_settings(dict(_settings_in(settings_text)))
    parts = actions_text.split(".") if actions_text else []
    if len(parts) > MOST_ACTIONS:
        raise ScheduleError(f"this schedule has {len(parts)} actions; at most {MOST_ACTIONS} are read")
    return Schedule(settings, tuple(_action(number, part, settings) for number, part in enumerate(parts, 1)))


def _settings_in(text: str) -> list[tuple[str, int]]:
    found, end = [], 0
    names = {one.letter: one.name for one in FIELDS}
    for match in _SETTING.finditer(text):
        if match.start() != end or match[1] not in names:
            break
        found.append((names[match[1]], int(match[2])))
        end = match.end()
    if end != len(text):
        raise ScheduleError(f"the settings of this schedule can't be read from {text[end : end + 20]!r} on")
    return found


def read_settings(values: dict[str, object]) -> Settings:
    """Return settings of numbers by their names.

    Raises:
        ScheduleError: one is not known, or not within its bounds.
    """
    numbers: dict[str, int] = {}
    for name, value in values.items():
        known = next((one for one in FIELDS if one.name == name), None)
        if known is None:
            raise ScheduleError(f"there is no setting {str(name)[:40]!r}")
        if not isinstance(value, int) or isinstance(value, bool) or not known.least <= value <= known.most:
            raise ScheduleError(
                f"{name} is {str(value)[:20]}; it must be a whole number from {known.least} to {known.most}"
            )
        numbers[name] = value
    given: dict[str, Any] = dict(numbers)
    settings = Settings(**given)
    for one in (settings.placed, settings.second, settings.transactions_at, settings.offsets_at):
        digits = str(one)
        if one and (len(set(digits)) < len(digits) or not set(digits) <= set("12345")):
            raise ScheduleError(f"{one} is no assignment: its digits are different brokers from 1 to 5")
    replicas = min(map(len, settings.data_assignments)) if settings.placed else settings.replicas
    if settings.min_insync_replicas > replicas:
        raise ScheduleError(
            f"min.insync.replicas is {settings.min_insync_replicas}, and there are {replicas} replicas: "
            "acks=all would be refused for ever (NOT_ENOUGH_REPLICAS)"
        )
    if settings.order >= (most := factorial(settings.replicas)):
        raise ScheduleError(f"order is {settings.order}; {settings.replicas} replicas have {most} orders, from 0")
    return settings


def _action(number: int, text: str, settings: Settings) -> Action:
    match = _ACTION.fullmatch(text)
    kind = None if match is None else BY_LETTER.get(match[1])
    if match is None or kind is None:
        raise ScheduleError(f"action {number} of this schedule can't be read: {text[:20]!r}")
    values = tuple(int(one) for one in match[2].split("-")) if match[2] else ()
    try:
        return checked(kind, values, settings)
    except ActionError as problem:
        raise ScheduleError(f"action {number} of this schedule: {problem}") from None
