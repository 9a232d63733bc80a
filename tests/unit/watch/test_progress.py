"""How far a story is that is played step by step (lab/tidegauge_lab/watch/progress.py)."""

from __future__ import annotations

from tidegauge_lab.scenario.loader import parse
from tidegauge_lab.scenario.outcome import Outcome, PlayedStep
from tidegauge_lab.watch.progress import Phase, Progress

STORY = parse(
    """\
title: A story.
teaches: Something.
rule: A rule.
cluster: {brokers: 2}
topics:
  - {name: story, assignment: [0, 1]}
steps:
  - produce: m1
    note: the first
  - expect: {leader: 0, leo: {0: 1, 1: 1}, remote_leo: {1: 1}}
  - mark: later
""",
    "story.yaml",
)


def begun() -> Progress:
    progress = Progress(STORY)
    progress.on_stage("/somewhere")
    return progress


def states(progress: Progress) -> list[str]:
    return [step["state"] for step in progress.as_json()["steps"]]


def ended(*lines: str, failure: str = "") -> Outcome:
    played = [PlayedStep(8 + place, "produce", "", 1.5, line) for place, line in enumerate(lines)]
    return Outcome("story", failure, steps=played, expectations=2)


def test_no_step_is_played_that_was_not_asked_for():
    progress = begun()
    assert not progress.may_begin(0)
    assert states(progress) == ["next", "later", "later"]
    progress.next()
    assert (progress.may_begin(0), progress.may_begin(1)) == (True, False)
    progress.begin(0)
    assert (progress.phase, states(progress)) == (Phase.PLAYING, ["playing", "later", "later"])
    progress.next()
    assert not progress.may_begin(1), "a second press while a step is played asks for nothing"
    progress.end_step(ended("a"))
    assert (progress.phase, states(progress)) == (Phase.WAITING, ["held", "next", "later"])


def test_all_that_follow_can_be_asked_for_and_taken_back():
    progress = begun()
    progress.play_on()
    assert [progress.may_begin(number) for number in range(3)] == [True, True, True]
    progress.begin(0)
    assert progress.plays_on
    progress.pause()
    assert not progress.plays_on
    progress.end_step(ended("a"))
    assert not progress.may_begin(1)
    progress.next()
    assert progress.may_begin(1)
    assert not progress.plays_on, "one step is no playing on"


def test_a_step_that_fails_is_the_last_one():
    progress = begun()
    progress.play_on()
    progress.begin(0)
    progress.end_step(ended("a"))
    progress.begin(1)
    progress.end_step(ended("a", "b", failure="line 9: expect: the leader is 1, not 0"))
    progress.end()
    assert (progress.phase, progress.problem) == (Phase.FAILED, "line 9: expect: the leader is 1, not 0")
    assert states(progress) == ["held", "failed", "later"]
    assert progress.is_at_end
    assert not progress.plays_on


def test_what_goes_wrong_outside_of_a_step_is_a_problem_too():
    progress = Progress(STORY)
    progress.fail("there is no Java")
    assert (progress.as_json()["phase"], progress.as_json()["problem"]) == ("failed", "there is no Java")
    progress = begun()
    progress.next()
    progress.begin(0)
    progress.fail("not at its end after 120 s")
    assert states(progress) == ["failed", "later", "later"], "the step in hand did not end"


def test_a_story_that_was_played_is_over():
    progress = begun()
    progress.play_on()
    for number in range(3):
        progress.begin(number)
        progress.end_step(ended(*"abc"[: number + 1]))
    progress.end()
    assert (progress.phase, states(progress)) == (Phase.OVER, ["held"] * 3)


def test_a_step_has_its_sentence_its_note_and_what_is_expected():
    first, second, third = begun().as_json()["steps"]
    assert (first["sentence"], first["note"], first["expected"]) == ("Produce m1 with acks=all", "the first", [])
    assert (second["sentence"], second["expected"]) == ("", ["leader 0", "LEO 0:1 1:1", "remote LEO 1:1"])
    assert third["sentence"] == "mark later", "a step without a sentence is shown as it stands in the file"


def test_the_state_stands_where_it_has_changed():
    progress = begun()
    progress.play_on()
    for number in range(3):
        progress.begin(number)
    progress.end_step(ended("1: 1/0*", "1: 1/0*", "1: 1/1*"))
    assert [step["line"] for step in progress.as_json()["steps"]] == ["1: 1/0*", "", "1: 1/1*"]


def test_the_story_has_its_words_before_it_begins():
    shown = Progress(STORY).as_json()
    assert (shown["title"], shown["teaches"], shown["rule"]) == ("A story.", "Something.", "A rule.")
    assert shown["cluster"] == ["2 brokers, controller 0", "story-0 on 0,1"]
    assert (shown["phase"], shown["directory"]) == ("starting", "")


def audited(*details: str) -> Progress:
    progress = begun()
    progress.play_on()
    progress.end_step(Outcome("story", "", steps=[PlayedStep(8, "verify", "", 1.5, details=list(details))]))
    return progress


def test_a_story_has_no_verdict_before_the_accountant_has_looked():
    assert begun().as_json()["verdict"] == []


def test_a_lost_record_is_the_verdict_of_a_story_though_it_was_expected():
    """All expectations held, and yet the class must see that a record is lost."""
    found = audited("lost: record 1 ('m2') is not in the log", "phantom: something else").as_json()["verdict"]
    assert found == [{"kind": "told", "text": "lost: record 1 ('m2') is not in the log", "step": 1}]


def test_a_cure_is_a_verdict_too():
    assert audited().as_json()["verdict"] == [{"kind": "kept", "values": [], "holders": []}]
