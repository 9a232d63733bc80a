"""Histories of share groups: each guarantee has a history that breaks it, and an innocent one beside it (KIP-932)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge.errors import TidegaugeError
from tidegauge_lab.accountant.reading.share_history import read_share_histories
from tidegauge_lab.accountant.shares.findings import MEANINGS, NOTES, Breach
from tidegauge_lab.accountant.shares.judging import ShareJudgement, judge_shares
from tidegauge_lab.accountant.shares.telling import share_lines, to_json
from tidegauge_lab.cli.verify import verify


class History:
    """Lines of a history; each operation begins and ends at times of its own, one after the other."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self._numbers: dict[str, int] = {}
        self._now_us = 0

    def _tick(self) -> int:
        self._now_us += 10
        return self._now_us

    def begin(self, process: str, op: str, **fields: Any) -> tuple[str, int]:
        key = process, self._numbers.get(process, 0)
        self._numbers[process] = key[1] + 1
        self._add("invoke", key, op=op, **fields)
        return key

    def end(self, key: tuple[str, int], kind: str = "ok", **fields: Any) -> None:
        self._add(kind, key, **fields)

    def _add(self, kind: str, key: tuple[str, int], **fields: Any) -> None:
        self.lines.append({"type": kind, "process": key[0], "number": key[1], "time_us": self._tick(), **fields})

    def sent(self, *values: str, first: int = 0) -> None:
        for offset, value in enumerate(values, first):
            key = self.begin("p", "send", topic="t", partition=0, value=value)
            self.end(key, offset=offset)

    def given(self, process: str, *offsets: int, count: int | None = 1, **fields: Any) -> None:
        key = self.begin(process, "acquire", group="g", **fields)
        self.end(key, records=[["t", 0, one, f"v{one}", count] for one in offsets])

    def says(self, process: str, what: str, *offsets: int, kind: str = "ok") -> None:
        key = self.begin(process, "acknowledge", group="g", records=[["t", 0, one, what] for one in offsets])
        self.end(key, kind)

    def altered(self, offset: int, kind: str = "ok") -> None:
        self.end(self.begin("admin", "alter-offsets", group="g", offsets={"t-0": offset}), kind)

    def starts(self, offset: int) -> None:
        self.end(self.begin("admin", "read-starts", group="g"), offsets={"t-0": offset})

    def write(self, path: Path) -> Path:
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def judged(history: History, tmp_path: Path) -> Iterator[Any]:
    def judge() -> ShareJudgement:
        return judge_shares(read_share_histories([history.write(tmp_path / "h.jsonl")]))

    return judge


@pytest.mark.parametrize(
    ("word", "kind"), [("accept", Breach.ACCEPTED_AGAIN), ("reject", Breach.REJECTED_AGAIN), ("release", None)]
)
def test_a_record_that_was_ended_is_not_given_again(
    history: History, judged: Any, word: str, kind: Breach | None
) -> None:
    """An acceptance that was acknowledged is durable; a release is the opposite."""
    history.given("a", 0, 1)
    history.says("a", word, 0)
    history.given("b", 0, count=2)
    found = judged().found
    assert list(found.counts) == ([] if kind is None else [kind])
    if kind is not None:
        assert found.examples[kind] == [
            f"'v0', offset 0 of t-0 in group g: {word} of a was acknowledged before b began the fetch that was given it"
        ]


@pytest.mark.parametrize("kind", ["fail", "info", None])
def test_a_word_that_was_not_acknowledged_ends_nothing(history: History, judged: Any, kind: str | None) -> None:
    """The leader may have died before it was written."""
    history.given("a", 0)
    key = history.begin("a", "acknowledge", group="g", records=[["t", 0, 0, "accept"]])
    if kind is not None:
        history.end(key, kind)
    history.given("b", 0)
    assert judged().is_clean


def test_a_fetch_that_ran_at_the_time_of_the_acceptance_may_have_been_first(history: History, judged: Any) -> None:
    history.given("a", 0)
    fetch = history.begin("b", "acquire", group="g")
    history.says("a", "accept", 0)
    history.end(fetch, records=[["t", 0, 0, "v0", 2]])
    assert judged().is_clean


@pytest.mark.parametrize(("outcome", "is_clean"), [("ok", True), ("info", True), ("fail", False)])
def test_an_altered_offset_lets_a_group_have_its_records_again(
    history: History, judged: Any, outcome: str, is_clean: bool
) -> None:
    history.given("a", 0)
    history.says("a", "accept", 0)
    history.altered(0, outcome)
    history.given("a", 0)
    assert judged().is_clean is is_clean


def test_an_alteration_before_the_acceptance_excuses_nothing(history: History, judged: Any) -> None:
    history.altered(0)
    history.given("a", 0)
    history.says("a", "accept", 0)
    history.given("b", 0)
    assert list(judged().found.counts) == [Breach.ACCEPTED_AGAIN]


def test_a_late_word_of_a_record_that_is_done_is_noted_and_breaks_nothing(history: History, judged: Any) -> None:
    """Acknowledgements of records before the start offset get no error, and are ignored."""
    history.given("a", 0)
    history.given("b", 0, count=2)
    history.says("b", "accept", 0)
    history.says("a", "accept", 0)
    judgement = judged()
    assert judgement.is_clean
    assert judgement.found.counts == {Breach.TWO_ENDS: 1}


def test_a_record_before_the_start_must_have_been_given_to_a_member(history: History, judged: Any) -> None:
    history.sent("v0", "v1", "v2", "v3")
    history.altered(1)
    history.given("a", 1)
    history.says("a", "accept", 1)
    history.starts(3)
    assert judged().found.examples == {
        Breach.PASSED_OVER: ["'v2', offset 2 of t-0 in group g; the start offset is 3"]
    }, "0 is before the group's begin, and 3 is still to come"


@pytest.mark.parametrize(("fetches", "is_checked"), [(2, True), (3, False)])
def test_fetches_without_an_outcome_may_have_had_a_record_until_its_limit(
    history: History, judged: Any, fetches: int, is_checked: bool
) -> None:
    """A record that three dead members were given, and no other one, is archived at a limit of 3."""
    history.sent("v0", "v1")
    history.altered(0)
    for number in range(fetches):
        history.begin(f"dead {number}", "acquire", group="g")
    history.given("a", 1, limit=3)
    history.starts(2)
    judgement = judged()
    assert (Breach.PASSED_OVER in judgement.found.counts) is is_checked
    unchecked = ["passed-over of group g at t-0: fetches without an outcome"]
    assert judgement.not_checked == ([] if is_checked else unchecked)


def test_a_group_whose_begin_is_not_known_is_not_called_incomplete(history: History, judged: Any) -> None:
    history.sent("v0", "v1")
    history.given("a", 1)
    history.starts(2)
    judgement = judged()
    assert judgement.is_clean
    assert judgement.not_checked == ["passed-over of group g at t-0: no alter-offsets gives its first offset"]


def test_a_start_offset_never_falls_unless_it_is_altered(history: History, judged: Any) -> None:
    history.starts(5)
    history.starts(4)
    assert judged().found.examples[Breach.START_BACK] == ["group g at t-0: 5, then 4"]


def test_an_altered_start_offset_may_fall(history: History, judged: Any) -> None:
    history.starts(5)
    history.altered(2)
    history.starts(2)
    assert judged().is_clean


def test_a_count_above_the_limit_and_two_values_at_an_offset(history: History, judged: Any) -> None:
    history.given("a", 0, count=2, limit=2)
    history.given("a", 0, count=3, limit=2)
    key = history.begin("b", "acquire", group="h")
    history.end(key, records=[["t", 0, 0, "other", None]])
    assert judged().found.examples == {
        Breach.BEYOND_LIMIT: ["'v0', offset 0 of t-0 in group g: delivery 3 of at most 2"],
        Breach.TWO_VALUES: ["offset 0 of t-0: 'other' and 'v0'"],
    }


def test_a_value_that_no_history_has_sent_is_a_note(history: History, judged: Any) -> None:
    history.sent("v0")
    history.given("a", 0, 1)
    judgement = judged()
    assert judgement.found.counts == {Breach.UNKNOWN_VALUE: 1}
    assert judgement.is_clean


def test_what_was_given_how_often_to_whom(history: History, judged: Any) -> None:
    history.given("a", 0, 1, 2, 3)
    history.says("a", "release", 1)
    history.given("b", 1, count=2)
    history.given("b", 2, count=2)
    history.says("b", "accept", 1, 2)
    history.says("a", "reject", 0)
    history.says("a", "accept", 2, kind="fail")
    judgement = judged()
    (group,) = judgement.groups.values()
    assert (group.records, group.deliveries, dict(group.times)) == (4, 6, {1: 2, 2: 2})
    assert (group.after_release, group.after_silence) == (1, 1)
    lines = list(share_lines(judgement))
    assert lines[:4] == [
        "History of 7 operations of share groups",
        "Group g: 4 records given 6 times; 2 accepted, 1 rejected, 1 neither",
        "    2 given again: 1 after a release, 1 because a lock ended, a connection closed or a leader died",
        "    a: given 4, accepted 0, released 1, rejected 1",
    ]
    assert lines[-1] == "The history keeps every guarantee that was checked."
    document = to_json(judgement)
    assert document["groups"]["g"]["times"] == {"1": 2, "2": 2}
    assert document["members"]["b"] == {"given": 2, "accepted": 2, "released": 0, "rejected": 0}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"op": "poll"}, "the op 'poll' is none of send, acquire, acknowledge, alter-offsets, read-starts"),
        ({"op": "acknowledge", "group": "g", "records": [["t", 0, 0, "maybe"]]}, "one of accept, release, reject"),
        ({"op": "acknowledge", "group": "g"}, "the field 'records' is missing"),
        ({"op": "acquire"}, "the field 'group' is missing"),
        ({"op": "alter-offsets", "group": "g", "offsets": {"t": 1}}, "'t' in 'offsets' is no partition"),
    ],
)
def test_what_is_not_as_the_format_says_is_refused_by_line(
    history: History, tmp_path: Path, line: dict[str, Any], words: str
) -> None:
    history.lines.append({"type": "invoke", "process": "a", "number": 0, "time_us": 1, **line})
    with pytest.raises(TidegaugeError) as refused:
        read_share_histories([history.write(tmp_path / "h.jsonl")])
    assert "h.jsonl:1" in refused.value.message
    assert words in refused.value.message


def test_records_of_another_form_are_refused(history: History, tmp_path: Path) -> None:
    key = history.begin("a", "acquire", group="g")
    history.end(key, records=[["t", 0, 0, "v"]])
    with pytest.raises(TidegaugeError, match="topic, partition, offset, value, count"):
        read_share_histories([history.write(tmp_path / "h.jsonl")])


def test_verify_judges_a_history_without_a_cluster(history: History, tmp_path: Path) -> None:
    history.given("a", 0)
    history.says("a", "accept", 0)
    path = str(history.write(tmp_path / "h.jsonl"))
    assert CliRunner().invoke(verify, ["--shares", path]).exit_code == 0
    history.given("b", 0)
    history.write(tmp_path / "h.jsonl")
    done = CliRunner().invoke(verify, ["--shares", path])
    assert (done.exit_code, done.output.splitlines()[-1]) == (1, "The history breaks: an accepted record is done.")
    document = json.loads(CliRunner().invoke(verify, ["--shares", path, "-o", "json"]).output)["shares"]
    assert (document["clean"], document["counts"]["accepted-again"]) == (False, 1)


def test_every_kind_has_a_meaning_and_what_breaks_something_a_guarantee() -> None:
    assert MEANINGS.keys() == set(Breach)
    assert {kind for kind, meaning in MEANINGS.items() if not meaning.guarantee} == NOTES
