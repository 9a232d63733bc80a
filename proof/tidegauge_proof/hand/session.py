"""A person at a cluster: a schedule that grows, and goes back by being replayed. Pure; texts in, texts out.

``Session.request`` is the whole interface of the page's worker: a JSON object in, a JSON object out, whatever comes in.
Errors are sentences in ``error``; a request that is refused has changed nothing.
"""

from __future__ import annotations

import json
from typing import Any

from tidegauge_lab.timeline.event_lines import event_line, mark_of
from tidegauge_lab.timeline.patches import changes
from tidegauge_proof.hand import facts
from tidegauge_proof.hand.actions import KINDS, Action, ActionError, read_action
from tidegauge_proof.hand.driven import HandDriven
from tidegauge_proof.hand.schedule import (
    MOST_ACTIONS,
    Schedule,
    ScheduleError,
    read_schedule,
    read_settings,
    write_schedule,
)
from tidegauge_proof.hand.settings import FIELDS, RULE_NAMES, Settings
from tidegauge_proof.hand.table import rows_of
from tidegauge_proof.hand.verdict import Verdicts

Json = dict[str, Any]
MOST_REQUEST_CHARACTERS = 100_000
OPS = ("open", "begin", "do", "back", "vocabulary")


class Session:
    """One cluster and the schedule that has made it what it is.

    Attributes:
        ops: the operations of ``request``.
        view: what the page shows, as it is after the last action.
    """

    ops: tuple[str, ...] = OPS

    def __init__(self) -> None:
        self.begin(Settings())

    def begin(self, settings: Settings) -> None:
        """Begin again, with a new cluster."""
        self.schedule = Schedule(settings)
        self.cluster = HandDriven(settings)
        self._verdicts = Verdicts()
        self.view = self._look(0, "")
        self._base = self.view
        self._seen = len(self.cluster.events)
        self.steps: list[Json] = []
        self.rows: list[Json] = list(rows_of(self.cluster.events, 0))
        self.sentences: list[str] = []
        self._number = 0

    # The interface

    def request(self, text: str) -> str:
        """Carry out a request: ``{"op": "do", "action": {"do": "kill", "broker": 0}}``; return the response."""
        try:
            if len(text) > MOST_REQUEST_CHARACTERS:
                raise ScheduleError(f"a request has at most {MOST_REQUEST_CHARACTERS} characters")
            wanted = json.loads(text)
            if not isinstance(wanted, dict) or not isinstance(wanted.get("op"), str):
                raise ScheduleError("a request is an object with an op")
            respond = getattr(self, f"_on_{wanted['op']}", None) if wanted["op"] in self.ops else None
            if respond is None:
                raise ScheduleError(f"there is no op {wanted['op'][:40]!r}; there are {', '.join(self.ops)}")
            return json.dumps(respond(wanted), separators=(",", ":"))
        except (ActionError, ScheduleError) as refused:
            return json.dumps({"error": str(refused)})
        except (ValueError, RecursionError):
            return json.dumps({"error": "this is no JSON"})

    def _on_open(self, wanted: Json) -> Json:
        text = wanted.get("schedule", "")
        if not isinstance(text, str):
            raise ScheduleError("a schedule is text")
        self.play(read_schedule(text) if text else Schedule())
        return self._whole()

    def _on_begin(self, wanted: Json) -> Json:
        settings = wanted.get("settings", {})
        if not isinstance(settings, dict):
            raise ScheduleError("settings are an object")
        self.begin(read_settings(settings))
        return self._whole()

    def _on_do(self, wanted: Json) -> Json:
        before = len(self.steps)
        said = self.do(read_action(wanted.get("action"), self.schedule.settings))
        return self._state() | {"said": said, "added": self.steps[before:], "view": self.view}

    def _on_back(self, wanted: Json) -> Json:
        count = wanted.get("count")
        if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= len(self.schedule.actions):
            raise ScheduleError(f"go back to an action from 0 to {len(self.schedule.actions)}")
        self.play(self.schedule.first(count))
        return self._whole()

    # Actions

    def play(self, schedule: Schedule) -> None:
        """Begin again, and do a schedule's actions; one that has no object any more is left out.

        A schedule by itself never has such an action; one that was written by another version, or by a stranger, may.
        """
        self.begin(schedule.settings)
        for action in schedule.actions:
            try:
                self.do(action)
            except ActionError as refused:
                raise ScheduleError(
                    f"action {len(self.schedule.actions) + 1} of this schedule ({action.kind}) has no object: {refused}"
                ) from None

    def do(self, action: Action) -> str:
        """Do an action.

        Raises:
            ActionError: it has no object now, or the schedule is full.
        """
        if len(self.schedule.actions) >= MOST_ACTIONS:
            raise ActionError(f"a schedule has at most {MOST_ACTIONS} actions: begin again")
        said = self.cluster.labelled(self.cluster.do(action))
        self.schedule = self.schedule.then(action)
        self.sentences.append(said)
        self._take_events(action, said)
        return said

    def _take_events(self, action: Action, said: str) -> None:
        """Make the steps of the page's time line; the last one of an action has what the action changed."""
        number, now_ms = len(self.schedule.actions), facts.virtual_ms(self.cluster)
        new = self.cluster.events[self._seen :]
        self._seen = len(self.cluster.events)
        self.rows += rows_of(new, number)
        view = self._look(number, said)
        patch = [change for key in view for change in changes(self.view.get(key), view[key], (key,))]
        self.view = view
        lines = [(event, event_line(0, event), mark_of(event)) for event in new]
        for _, line, mark in lines:
            self._add(line | {"time": now_ms, "patch": [], "mark": mark, "action": number})
        kind = "fault" if action.kind in _HARMS else "action"
        own = {"source": f"action {number}", "partition": "", "kind": kind, "text": said}
        self._add(own | {"time": now_ms, "patch": patch, "mark": "", "action": number})

    def _look(self, number: int, said: str) -> Json:
        return facts.view_of(self.cluster) | {"verdict": self._verdicts.look(self.cluster, number, said)}

    def _add(self, step: Json) -> None:
        self._number += 1
        self.steps.append(step | {"number": self._number})

    def _whole(self) -> Json:
        return self._state() | {"base": self._base, "steps": self.steps, "view": self.view, "said": ""}

    def _state(self) -> Json:
        """Return what the page shows beside the view."""
        cluster = self.cluster
        return {
            "schedule": write_schedule(self.schedule),
            "rule": self.schedule.settings.rule_name,
            "settings": {one.name: getattr(self.schedule.settings, one.name) for one in FIELDS if one.is_shown},
            "actions": [
                {"do": action.kind, "values": action.values, "said": said}
                for action, said in zip(self.schedule.actions, self.sentences, strict=True)
            ],
            "messages": facts.messages_of(cluster),
            "logs": facts.logs_of(cluster),
            "books": facts.books_of(cluster),
            "verdict": facts.verdict_of(cluster),
            "rows": self.rows,
            "time": facts.virtual_ms(cluster),
        }

    def _on_vocabulary(self, wanted: Json) -> Json:
        """Return what can be done and set, with bounds and meanings."""
        del wanted
        return {
            "actions": {
                kind.name: {
                    "meaning": kind.meaning,
                    "parameters": [
                        {"name": one.name, "least": one.least, "most": one.most, "broker": one.is_broker}
                        for one in kind.parameters
                    ],
                }
                for kind in KINDS.values()
            },
            "settings": [{"name": one.name, "least": one.least, "most": one.most} for one in FIELDS if one.is_shown],
            "rules": list(RULE_NAMES),
        }


_HARMS = frozenset({"kill", "pause", "power_loss", "cut_link", "end_session", "lose", "hold_fetch", "delay"})
