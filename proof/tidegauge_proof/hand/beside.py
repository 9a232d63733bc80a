"""The same actions on a second cluster, by another truncation rule: an old rule and its cure on one time line. Pure.

Rules:
    1. Both clusters have the same settings but for the rule, and get the same actions, so that the numbers of actions
       are the time line of both.
    2. An action that has no object on the second cluster (its message is not in flight there) is left out there, and
       its refusal is kept.
    3. Actions are not played twice: while the schedule only grows, the second cluster follows it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tidegauge_proof.hand.actions import ActionError
from tidegauge_proof.hand.schedule import Schedule
from tidegauge_proof.hand.session import Session

Json = dict[str, Any]
_SHOWN = ("brokers", "partitions", "verdict")


class Beside:
    """A second cluster that follows a schedule.

    Args:
        rule: place of its rule in ``RULE_NAMES``.
    """

    def __init__(self, rule: int) -> None:
        self.rule = rule
        self._followed: Schedule | None = None
        self._session = Session()
        self._moments: list[Json] = []

    def follow(self, schedule: Schedule) -> list[Json]:
        """Return the second cluster's view at the start and after each action.

        ``refused`` is why an action had no object there; else it is empty.
        """
        followed = self._followed
        if followed is None or schedule.settings != followed.settings or not _begins_with(schedule, followed):
            self._session.begin(replace(schedule.settings, rule=self.rule, own=None))
            self._moments = [self._moment("")]
            followed = schedule.first(0)
        for action in schedule.actions[len(followed.actions) :]:
            try:
                self._session.do(action)
                refused = ""
            except ActionError as problem:
                refused = str(problem)
            self._moments.append(self._moment(refused))
        self._followed = schedule
        return self._moments

    def _moment(self, refused: str) -> Json:
        view = self._session.view
        return {name: view[name] for name in _SHOWN} | {"refused": refused}


def _begins_with(schedule: Schedule, begin: Schedule) -> bool:
    return schedule.actions[: len(begin.actions)] == begin.actions
