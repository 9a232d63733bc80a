"""Shipped scenarios on a cluster that is driven by hand, the file that a schedule becomes, and the search for flaws."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import tidegauge_lab.scenario
from tidegauge_lab.scenario.loader import load
from tidegauge_proof.hand.desk import Desk
from tidegauge_proof.hand.flaws import search
from tidegauge_proof.hand.scenario_file import as_scenario
from tidegauge_proof.hand.schedule import read_schedule, write_schedule
from tidegauge_proof.hand.session import Session
from tidegauge_proof.hand.settings import RULE_NAMES
from tidegauge_proof.hand.story import Story, unplayable

FILES = sorted((Path(next(iter(tidegauge_lab.scenario.__path__))) / "files").glob("*.yaml"))
NAMES = [file.stem for file in FILES]
PLAYED = {
    "commit-failed",
    "commit-without-response",
    "coordinator-dies-completing",
    "coordinator-dies-deciding",
    "crash-before-commit",
    "data-leader-dies",
    "divergence-cured",
    "divergence-high-watermark",
    "fenced-controller",
    "hanging-found",
    "hanging-transaction",
    "kip-279-cured",
    "kip-279-fast-failover",
    "last-replica-standing",
    "late-end",
    "late-end-cured",
    "loss-by-restart",
    "loss-high-watermark",
    "lost-end-response",
    "min-insync-replicas",
    "offsets-leader-dies",
    "one-offsets-replica",
    "producer-fencing",
    "rebalance-storm",
    "restart-within-session",
    "static-members",
    "walkthrough-purgatory",
    "walkthrough-three-replicas",
    "walkthrough-two-replicas",
    "zombie-follower-cured",
    "zombie-follower-kip-279",
    "zombie-leader",
    "zombie-producer",
}


@cache
def scenario(name: str) -> dict[str, Any]:
    """Return a shipped scenario as its file has it."""
    return yaml.safe_load(FILES[NAMES.index(name)].read_text())


def test_the_scenarios_that_need_no_operating_system_are_played() -> None:
    assert {name for name in NAMES if not unplayable(scenario(name))} == PLAYED


@pytest.mark.parametrize("name", sorted(PLAYED))
def test_every_expectation_of_a_played_scenario_holds(name: str) -> None:
    """The same file plays on real processes (test_scenarios.py): both must come to the same states."""
    session = Session()
    story = Story(session, scenario(name))
    while not story.is_over:
        step = story.place + 1
        assert story.next()["wrong"] == [], f"step {step}"
    again = Session()
    again.play(read_schedule(write_schedule(session.schedule)))
    assert again.rows == session.rows


@pytest.mark.parametrize("name", sorted(set(NAMES) - PLAYED))
def test_a_scenario_that_is_not_played_is_refused_with_the_reason(name: str) -> None:
    desk = Desk()
    said = json.loads(desk.request(json.dumps({"op": "story", "scenario": scenario(name)})))
    assert said["error"] == f"this scenario does not play here: it {unplayable(scenario(name))}"


def test_a_story_goes_on_and_back_by_steps() -> None:
    desk = Desk()

    def ask(**wanted: Any) -> dict[str, Any]:
        return json.loads(desk.request(json.dumps(wanted)))

    ask(op="story", scenario=scenario("loss-high-watermark"))
    there = ask(op="story_to", place=12)
    further = ask(op="story_to", place=30)
    assert further["story"]["over"]
    assert further["verdict"]["lost"] == ["LOST: m2 was acknowledged (acks=all) at offset 1, and no replica has it"]
    back = ask(op="story_to", place=12)
    assert [back[key] for key in ("view", "logs", "schedule")] == [there[key] for key in ("view", "logs", "schedule")]


def test_a_story_begins_again_if_a_person_has_done_something_else() -> None:
    desk = Desk()
    desk.request(json.dumps({"op": "story", "scenario": scenario("walkthrough-two-replicas")}))
    desk.request(json.dumps({"op": "story_to", "place": 2}))
    desk.request(json.dumps({"op": "do", "action": {"do": "kill", "broker": 1}}))
    said = json.loads(desk.request(json.dumps({"op": "story_to", "place": 3})))
    assert "k1" not in said["schedule"]


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda one: (
            st.lists(one)
            | st.dictionaries(st.sampled_from(["cluster", "topics", "steps", "name", "assignment", "produce"]), one)
        ),
        max_leaves=8,
    )
)
def test_whatever_is_given_as_a_story_is_played_or_refused(scenario: object) -> None:
    assert json.loads(Desk().request(json.dumps({"op": "story", "scenario": scenario})))


@pytest.mark.parametrize("name", sorted(PLAYED))
def test_what_was_played_is_a_scenario_file_that_the_lab_reads(name: str, tmp_path: Path) -> None:
    session = Session()
    story = Story(session, scenario(name))
    while not story.is_over:
        story.next()
    file = tmp_path / "played.yaml"
    file.write_text(as_scenario(session))
    assert load(str(file)).steps


def test_the_search_finds_the_flaw_of_the_oldest_rule_and_none_of_todays() -> None:
    flaw = search(0, 10, RULE_NAMES.index("high-watermark"))
    assert flaw is not None
    session = Session()
    session.play(flaw.schedule)
    assert session.cluster.broken == flaw.broken
    assert len(flaw.schedule.actions) <= 12
    assert search(0, 3, RULE_NAMES.index("kip-320")) is None


def test_the_table_of_stories_says_which_play_and_why_the_others_do_not() -> None:
    reasons = {name: unplayable(scenario(name)) for name in NAMES}
    rows = [
        f"| `{name}` | {'no' if reason else 'yes'} | {reason.replace('_', chr(92) + '_')} |"
        for name, reason in reasons.items()
    ]
    page = (Path(__file__).parents[3] / "docs" / "play.md").read_text()
    table = page.partition("<!-- stories -->\n")[2].partition("\n<!-- end -->")[0]
    assert table.splitlines()[2:] == rows
