"""Rules of the caller: the ladder of exercises fails and is cured, faults are sentences, and nothing hangs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tidegauge_lab.play.stories import exercises
from tidegauge_proof.exhaustive.cluster import Bounds
from tidegauge_proof.exhaustive.explorer import Explorer
from tidegauge_proof.hand.desk import Desk
from tidegauge_proof.hand.flaws import MOST_AT_ONCE, search, standstill
from tidegauge_proof.hand.settings import RULE_NAMES
from tidegauge_proof.own_rules import MOST_CHARACTERS, OwnRuleError, OwnRules

TODAY = len(RULE_NAMES) - 1
CUTS = "def truncate(epochs, end, high_watermark, leader_epoch, leader_end):\n    "
EACH = pytest.mark.parametrize("exercise", exercises(), ids=lambda one: one["name"])


def broken_by(code: str) -> str:
    """Return the invariant that the page would find broken, if any."""
    own = OwnRules(code)
    flaw = standstill(own)
    for seed in range(0, 200, MOST_AT_ONCE):
        flaw = flaw or search(seed, MOST_AT_ONCE, TODAY, own)
    assert own.fault == ""
    return "" if flaw is None else flaw.broken


def ask(desk: Desk, **wanted: Any) -> dict[str, Any]:
    return json.loads(desk.request(json.dumps(wanted)))


@EACH
def test_the_rule_that_is_given_breaks(exercise: dict[str, Any]) -> None:
    assert broken_by(exercise["code"])


@EACH
def test_the_solution_holds(exercise: dict[str, Any]) -> None:
    assert broken_by(exercise["solution"]) == ""


@EACH
def test_every_exercise_is_in_both_languages(exercise: dict[str, Any]) -> None:
    texts = [exercise["title"], exercise["task"], *exercise["hints"]]
    assert len(exercise["hints"]) >= 2
    for text in texts:
        assert set(text) == {"en", "zh"}
        assert any("\u4e00" <= one <= "\u9fff" for one in text["zh"])


def test_the_last_solution_holds_in_every_schedule_of_a_small_cluster() -> None:
    """Two replicas, two records, three epochs; the code that is given does not."""
    last = exercises()[-1]
    bounds = Bounds(records=2)
    assert Explorer(bounds, OwnRules(last["solution"])).run().found == []
    assert Explorer(bounds, OwnRules(last["code"]), fail_fast=True).run().found


def test_an_election_decides_for_kafkas_controller_in_the_exploration() -> None:
    bounds = Bounds(controller="kafka", sessions=1, records=1)
    assert Explorer(bounds, OwnRules("def elect(assigned, live, in_sync):\n    return live[0]\n")).run().found


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def truncate(", "is no Python"),
        ("x = 1", "defines no rule"),
        ("truncate = 5", "defines no rule"),
        ("def truncate(a, b): return 0", "it must take (epochs, end, high_watermark, leader_epoch, leader_end)"),
        ("1 / 0", "raises ZeroDivisionError: division by zero (line 1)"),
        ("while True:\n    pass", "does not end"),
        ("while True:\n    try:\n        pass\n    except BaseException:\n        pass", "has a try"),
        ("#" * (MOST_CHARACTERS + 1), "at most"),
    ],
)
def test_a_text_that_is_no_rule_is_refused_by_a_sentence(code: str, said: str) -> None:
    with pytest.raises(OwnRuleError) as refused:
        OwnRules(code)
    assert said in str(refused.value)
    assert said in ask(Desk(), op="rule", code=code)["error"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (f"{CUTS}return 1 / 0", "truncate in the rule raises ZeroDivisionError: division by zero (line 2)"),
        (f"{CUTS}return end + 1", "it must return an offset from 0 to"),
        (f"{CUTS}return None", "it must return an offset from 0 to"),
        (f"{CUTS}return True", "it must return an offset from 0 to"),
        (f"{CUTS}while True:\n        pass", "does not end"),
        ("def high_watermark(current, leader_end, ends):\n    return -1", "an offset from 0 to"),
        ("def elect(assigned, live, in_sync):\n    return 17", "one of the live replicas"),
    ],
)
def test_a_fault_of_a_rule_is_kept_and_kafkas_decision_taken(code: str, said: str) -> None:
    own = OwnRules(code)
    found = [standstill(own), search(0, MOST_AT_ONCE, TODAY, own)]
    assert said in own.fault
    assert found == [None, None], "Kafka's decision stands in, and the search says nothing of the rule"


def test_asking_again_for_ever_ends() -> None:
    """A follower may ask again only if it truncates something and leaves something."""
    own = OwnRules(f"{CUTS}return end, True")
    search(0, MOST_AT_ONCE, TODAY, own)
    assert own.fault == ""


def test_the_desk_opens_what_breaks_a_rule_by_that_rule() -> None:
    desk = Desk()
    own_mark = next(one for one in exercises() if one["name"] == "own-mark")
    assert ask(desk, op="rule", code=own_mark["code"]) == {"names": ["truncate"], "fault": "", "found": None}
    found = ask(desk, op="search", seed=0, count=MOST_AT_ONCE, rule=TODAY, own=True)["found"]
    by_own = ask(desk, op="open", schedule=found["schedule"], own=True)
    assert (by_own["rule"], by_own["view"]["verdict"][0]["kind"]) == ("own", "broken")
    assert ask(desk, op="back", count=len(by_own["actions"]))["view"]["verdict"] == by_own["view"]["verdict"]
    by_kafka = ask(desk, op="open", schedule=found["schedule"])
    assert (by_kafka["rule"], {one["kind"] for one in by_kafka["view"]["verdict"]}) == ("kip-320", {"kept"})
