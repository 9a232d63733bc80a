"""Two clusters on one time line: the same actions by two rules, moment by moment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegauge_lab.play.stories import stories
from tidegauge_proof.hand.beside import Beside
from tidegauge_proof.hand.desk import Desk
from tidegauge_proof.hand.schedule import read_schedule
from tidegauge_proof.hand.session import Session
from tidegauge_proof.hand.settings import RULE_NAMES

HIGH_WATERMARK, TODAY = 0, len(RULE_NAMES) - 1


def ask(desk: Desk, **wanted: Any) -> dict[str, Any]:
    return json.loads(desk.request(json.dumps(wanted)))


def kinds(moment: dict[str, Any]) -> set[str]:
    return {one["kind"] for one in moment["verdict"]}


def test_an_old_rule_loses_what_todays_rule_keeps_in_the_same_actions() -> None:
    desk = Desk()
    ask(desk, op="story", scenario=next(one for one in stories() if one["name"] == "tour")["scenario"])
    lost = ask(desk, op="story_to", place=99)
    found = ask(desk, op="beside", rule=TODAY)
    assert len(found["moments"]) == len(lost["actions"]) + 1, "one moment for each action, and one for the start"
    assert "lost" in kinds(lost["view"])
    assert kinds(found["moments"][-1]) == {"kept"}
    assert {one["refused"] for one in found["moments"]} == {""}


def test_by_the_same_rule_both_clusters_are_the_same() -> None:
    session = Session()
    session.play(read_schedule("1~r0~p1-2-0.h1.p1-1-0.k0.t18000.s0.t5000"))
    last = Beside(HIGH_WATERMARK).follow(session.schedule)[-1]
    assert last == {name: session.view[name] for name in ("brokers", "partitions", "verdict")} | {"refused": ""}


def test_what_was_played_is_not_played_again_and_going_back_begins_again() -> None:
    beside = Beside(TODAY)
    longer = read_schedule("1~r0~p1-2-0.k0.t18000.s0")
    first = [*beside.follow(longer.first(2))]
    assert beside.follow(longer)[:3] == first
    assert beside.follow(longer) == Beside(TODAY).follow(longer)
    assert beside.follow(longer.first(1)) == first[:2]
    other = read_schedule("1~r0u1~p1-2-0")
    assert beside.follow(other) == Beside(TODAY).follow(other)


def test_an_action_without_an_object_there_is_left_out_with_its_reason() -> None:
    """By today's rule there is no request for the end of an epoch, so it can't be delivered."""
    session = Session()
    session.play(read_schedule("1~r1~p1-2-0.h1.k1.t18000.s1"))
    session.do(session.schedule.actions[0])
    ours = Beside(TODAY)
    ours.follow(session.schedule)
    flying = read_schedule("1~r0h1~p1-2-0.d1")
    assert [bool(one["refused"]) for one in Beside(TODAY).follow(flying)] == [False, False, False]
    gone = flying.then(flying.actions[1])
    assert [bool(one["refused"]) for one in Beside(TODAY).follow(gone)] == [False, False, False, True]


@pytest.mark.parametrize("rule", [-1, len(RULE_NAMES), "kip-320", None, True])
def test_a_rule_that_is_none_is_refused(rule: object) -> None:
    assert "whole number" in ask(Desk(), op="beside", rule=rule)["error"]
