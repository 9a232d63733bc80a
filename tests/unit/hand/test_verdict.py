"""The verdict on acknowledged records: lost ones, since which action, by which rule; and that nothing is lost."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tidegauge_lab.play.stories import stories
from tidegauge_lab.watch.page_files import page_file
from tidegauge_proof.hand.desk import Desk
from tidegauge_proof.hand.schedule import read_schedule
from tidegauge_proof.hand.session import Session
from tidegauge_proof.hand.settings import RULE_NAMES


def verdict_after(schedule: str) -> list[dict[str, Any]]:
    session = Session()
    session.play(read_schedule(schedule))
    return session.view["verdict"]


def of_story(name: str) -> dict[str, Any]:
    desk = Desk()
    story = next(one for one in stories() if one["name"] == name)
    desk.request(json.dumps({"op": "story", "scenario": story["scenario"]}))
    return json.loads(desk.request(json.dumps({"op": "story_to", "place": 99})))


def test_a_lost_record_is_named_with_its_action_and_the_rule_that_lost_it() -> None:
    """KIP-101: a follower that truncates to its own high watermark loses committed records."""
    lost = of_story("tour")["view"]["verdict"][0]
    assert (lost["kind"], lost["values"], lost["acks"], lost["by"], lost["rule"]) == (
        "lost",
        ["m2"],
        "all",
        "truncation",
        "high-watermark",
    )
    assert lost["said"] == "Broker 2 started on its old disks."


def test_the_cure_keeps_all_on_every_replica() -> None:
    assert of_story("tour-cured")["view"]["verdict"] == [
        {"kind": "kept", "values": ["m1", "m2", "m3"], "holders": [0, 1, 2]}
    ]


def test_a_broken_invariant_names_records_by_their_values() -> None:
    texts = [one["text"] for one in of_story("kip-279-fast-failover")["view"]["verdict"] if one["kind"] == "broken"]
    assert len(texts) == 1
    assert "(m" in texts[0]
    assert "CRC" not in texts[0]


@pytest.mark.parametrize(
    ("schedule", "causes"),
    [
        # acks=1: the leader dies before a follower has fetched.
        ("1~~h1.h2.p1-1-0.k0.t18000.u1.u2.s0.t5000", "acks"),
        # An unclean election: the one replica in sync is dead, and one that is not leads.
        ("1~b2u1~p1-2-0.h1.p1-1-0.t40000.p1-2-0.k0.t18000.u1.s0.t5000", "acks unclean"),
        # Power lost at once by all that had the record: Kafka flushes no append by default.
        ("1~b2~p1-2-0.w0.w1.t18000.s0.s1.t5000", "power"),
    ],
)
def test_the_cause_is_the_strongest_of_the_things_that_happened(schedule: str, causes: str) -> None:
    bad = [one for one in verdict_after(schedule) if one["kind"] in {"lost", "missing"}]
    assert " ".join(one["by"] for one in bad) == causes


def test_going_back_takes_the_verdict_back() -> None:
    """The past is exact: each step of the time line has the verdict of its moment."""
    whole = of_story("tour")
    shown = dict(whole["base"])
    verdicts = []
    for step in whole["steps"]:
        for path, *value in step["patch"]:
            if path == ["verdict"]:
                shown["verdict"] = value[0]
        verdicts.append(tuple(one["kind"] for one in shown["verdict"]))
    assert verdicts[0] == ()
    assert ("kept",) in verdicts
    assert verdicts[-1] == ("lost", "broken")


def test_the_page_has_a_sentence_for_each_rule_and_cause_in_both_languages() -> None:
    text = page_file("stage.js")
    english, chinese = text[text.index("  en: {") : text.index("  zh: {")], text[text.index("  zh: {") :]
    for name in [*RULE_NAMES, "acks", "power", "unclean", "lost", "missing", "unread", "broken", "kept"]:
        pattern = rf'"?{re.escape(name)}"?: "'
        assert re.search(pattern, english), name
        assert re.search(pattern, chinese), name
