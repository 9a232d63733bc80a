"""The members of share groups in scenarios (share_player.py, share_ranges.py) on fakes of members and brokers."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.share_explanation import ShareFacts
from tidegauge_client.share_member import Delivered, Says
from tidegauge_client.share_views import BrokerShares, KeptShare, LedShare, Records
from tidegauge_lab.scenario import share_steps
from tidegauge_lab.scenario.narration import narrated
from tidegauge_lab.scenario.outcome import StepFailed, described, expected_of
from tidegauge_lab.scenario.share_player import SharePlayer, differences
from tidegauge_lab.scenario.share_ranges import Range, difference, ranges
from tidegauge_lab.scenario.yaml_reader import MalformedYaml, read_yaml

AT = TopicPartition("story", 0)
MOVED = TidegaugeError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it moved")


class Member:
    """Gives the test's records, one fetch after the other, and notes acknowledgements."""

    member_id, group_id, at = "a", "q", AT

    def __init__(self, *fetched: list[Delivered] | TidegaugeError, refusal: TidegaugeError | None = None) -> None:
        self._fetched = list(fetched)
        self._refusal = refusal
        self.said: list[Mapping[int, Says]] = []
        self.asked: list[int] = []
        self.is_abandoned = False

    async def join(self) -> None:
        """Nothing: it is one already."""

    async def leave(self) -> None:
        """Nothing."""

    def abandon(self) -> None:
        self.is_abandoned = True

    async def fetch(self, max_records: int, wait_ms: int) -> list[Delivered]:
        assert wait_ms > 0
        self.asked.append(max_records)
        found = self._fetched.pop(0) if self._fetched else []
        if isinstance(found, TidegaugeError):
            raise found
        return found

    async def acknowledge(self, offsets: Mapping[int, Says]) -> None:
        self.said.append(offsets)
        if self._refusal is not None:
            raise self._refusal


class ClusterConnections:
    """Runs what members do at once."""

    def __init__(self, member: Member, facts: ShareFacts | None = None) -> None:
        self.member = member
        self.facts = facts
        self.configs: list[tuple[str, dict[str, str]]] = []

    def new_member(self, *_: Any) -> Any:
        return self.member

    def begun(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            work.send(None)
        except StopIteration as end:
            done.set_result(end.value)
        except TidegaugeError as problem:
            done.set_exception(problem)
        return done

    def set_group_config(self, group: str, config: dict[str, str]) -> None:
        self.configs.append((group, config))

    def begin_share_group(self, group: str, at: TopicPartition, offset: int) -> ErrorCode:
        del group, at
        return ErrorCode.NONE if offset == 0 else ErrorCode.NON_EMPTY_GROUP

    def look_at_share(self, *_: Any) -> ShareFacts:
        assert self.facts is not None
        return self.facts


def few_times(problems: Callable[[], Sequence[str]], limit_seconds: float | None = None) -> None:
    """A wait that looks three times."""
    del limit_seconds
    found: Sequence[str] = ()
    for _ in range(3):
        found = problems()
        if not found:
            return
    raise StepFailed("; ".join(found))


def player(member: Member, facts: ShareFacts | None = None, history: Path | None = None) -> SharePlayer:
    path = history or Path(os.devnull)
    made = SharePlayer(ClusterConnections(member, facts), few_times, lambda _: AT, path, lambda _: None)
    made._members["a"] = member  # type: ignore[assignment] # as start_member puts it there, without its loop
    made._offsets["a"] = {}
    return made


def fetch(*values: str, **more: Any) -> share_steps.ShareFetch:
    return share_steps.ShareFetch(line=1, member="a", values=values, **more)


def test_a_fetch_goes_on_until_all_values_are_there_and_asks_for_no_more() -> None:
    """Records near their limit are delivered apart from others, and a leader may have moved."""
    member = Member([Delivered(0, "m1", 2)], MOVED, [Delivered(1, "m2", 2)])
    player(member).do(fetch("m1", "m2", delivery=2))
    assert member.asked == [2, 1, 1]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (fetch("m1"), "a got m2, not m1"),
        (fetch(), "a got m2, not nothing"),
        (fetch("m2", delivery=2), "the numbers of deliveries are m2 1, not 2"),
        (fetch("m2", "m3"), "a has got m2 so far, not m2, m3"),
    ],
)
def test_a_fetch_that_gives_something_else_fails(step: share_steps.ShareFetch, message: str) -> None:
    with pytest.raises(StepFailed) as failed:
        player(Member([Delivered(5, "m2", 1)])).do(step)
    assert failed.value.message == message


def test_an_error_that_is_expected_ends_the_fetch_and_another_one_fails_it() -> None:
    refused = TidegaugeError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "no")
    player(Member(MOVED, refused)).do(fetch(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))
    with pytest.raises(StepFailed, match="ended with GROUP_AUTHORIZATION_FAILED"):
        player(Member(refused)).do(fetch("m1"))
    with pytest.raises(StepFailed, match="ended without GROUP_AUTHORIZATION_FAILED"):
        player(Member()).do(fetch(error=ErrorCode.GROUP_AUTHORIZATION_FAILED))


def test_an_acknowledgement_is_of_what_the_member_has_got_and_ends_as_its_step_says() -> None:
    state = TidegaugeError(ErrorCode.INVALID_RECORD_STATE, "late")
    member = Member([Delivered(7, "m1", 1)], refusal=state)
    played = player(member)
    played.do(fetch("m1"))
    played.do(
        share_steps.Acknowledge(
            line=1, member="a", values=("m1",), type="release", error=ErrorCode.INVALID_RECORD_STATE
        )
    )
    assert member.said == [{7: Says.RELEASE}]
    with pytest.raises(StepFailed) as failed:
        played.do(share_steps.Acknowledge(line=1, member="a", values=("m1",)))
    assert failed.value.message == "the acknowledgement of a ended with INVALID_RECORD_STATE, not NONE. late"
    with pytest.raises(StepFailed, match="a has not got m2"):
        played.do(share_steps.Acknowledge(line=1, member="a", values=("m2",)))


def test_a_response_that_is_awaited_later_is_looked_at_once() -> None:
    played = player(Member([Delivered(0, "m1", 1)]))
    played.do(fetch("m1"))
    played.do(share_steps.Acknowledge(line=1, member="a", values=("m1",), answer="later"))
    with pytest.raises(StepFailed, match="wait_acknowledge comes first"):
        played.do(share_steps.Acknowledge(line=1, member="a", values=("m1",)))
    played.do(share_steps.WaitAcknowledge(line=1, member="a"))
    with pytest.raises(StepFailed, match="no acknowledgement whose response is awaited"):
        played.do(share_steps.WaitAcknowledge(line=1, member="a"))


def test_members_end_and_are_then_no_members_any_more() -> None:
    member = Member()
    played = player(member)
    played.do(share_steps.KillMember(line=1, member="a"))
    assert member.is_abandoned
    with pytest.raises(StepFailed, match="there is no member a"):
        played.do(fetch("m1"))
    other = Member()
    ended = player(other)
    ended.close()
    assert other.is_abandoned


def test_an_offset_that_cannot_be_altered_fails_its_step_unless_that_is_expected() -> None:
    begin = share_steps.BeginShareGroup(line=1, group="q", offset=3)
    with pytest.raises(StepFailed, match="ended with NON_EMPTY_GROUP"):
        player(Member()).do(begin)
    player(Member()).do(share_steps.BeginShareGroup(line=1, group="q", offset=0))
    player(Member()).do(share_steps.BeginShareGroup(line=1, group="q", offset=3, error=ErrorCode.NON_EMPTY_GROUP))


def test_what_members_were_given_and_have_said_is_judged(tmp_path: Path) -> None:
    """The history has the format of docs/histories.md."""
    again = Member([Delivered(0, "m1", 1)], MOVED, [Delivered(0, "m1", 1)])
    played = player(again, history=tmp_path / "h.jsonl")
    played.do(share_steps.BeginShareGroup(line=1, group="q", offset=0))
    played.do(fetch("m1"))
    played.do(share_steps.VerifyShares(line=1, found={}))
    played.do(share_steps.Acknowledge(line=1, member="a", values=("m1",)))
    played.do(fetch("m1"))
    with pytest.raises(StepFailed) as failed:
        played.do(share_steps.VerifyShares(line=1, found={}))
    assert failed.value.message == "the accountant finds 1 accepted-again, not nothing"
    played.do(share_steps.VerifyShares(line=1, found={"accepted-again": 1}))
    played.close()


# Facts

LED = LedShare("q", AT, "active", 2, 1, 3, 6, 1, (Records(3, 4, "acquired", 1, "a"), Records(5, 5, "archived", 5)))
KEPT = KeptShare("q", AT, 0, 1, 2, -1, 0, (Records(5, 5, "archived", 5),))
FACTS = ShareFacts("q", AT, 1, 2, None, frozenset({1}), {1: BrokerShares(led=(LED,))})


def held() -> ShareFacts:
    from tidegauge_client.group_explanation import OffsetsPartition  # noqa: PLC0415 - of this one alone

    partition = OffsetsPartition(TopicPartition("__share_group_state", 0), 0, 0, (0,), (0,))
    return ShareFacts("q", AT, 1, 2, partition, frozenset({1}), {**FACTS.shares, 0: BrokerShares(kept=(KEPT,))})


def expects(**what: Any) -> share_steps.ExpectShare:
    return share_steps.ExpectShare(line=1, group="q", **what)


def test_what_is_true_instead_of_an_expectation_is_said() -> None:
    records = (Range(3, 4, "acquired", 1, "a"), Range(5, 5, "archived"))
    durable = (Range(5, 5, "archived", 5),)
    assert differences(expects(start=3, end=6, records=records, durable_start=-1, durable=durable), held()) == []
    assert differences(expects(start=4, end=7, durable_start=3, durable_leader_epoch=3, durable=()), held()) == [
        "the start offset is 3, not 4",
        "the end offset is 6, not 7",
        "the durable start offset is -1, not 3",
        "the durable leader epoch is 2, not 3",
        "durable are 5: archived x5, not none",
    ]
    assert differences(expects(records=(), broker=0), FACTS) == ["share:q/story-0 is not loaded at broker 0"]
    assert differences(expects(durable=()), FACTS) == ["the share coordinator keeps no state of share:q/story-0"]
    player(Member(), held()).do(expects(start=3))
    with pytest.raises(StepFailed, match="the start offset is 3, not 2"):
        player(Member(), held()).do(expects(start=2))


@pytest.mark.parametrize(
    ("wanted", "is_so"),
    [
        (Range(3, 4, "acquired"), True),
        (Range(3, 4, "acquired", 1), True),
        (Range(3, 4, "acquired", 2), False),
        (Range(3, 4, "acquired", 1, "b"), False),
        (Range(3, 4, "available"), False),
        (Range(3, 5, "acquired"), False),
        (Range(3, 4, "acquired", is_being_written=True), False),
    ],
)
def test_what_a_range_leaves_out_is_not_compared(wanted: Range, is_so: bool) -> None:
    found = [Records(3, 4, "acquired", 1, "a")]
    assert (difference([wanted], found, "in flight are") == []) is is_so
    assert difference([wanted, wanted], found, "in flight are") != []


def test_ranges_are_read_as_they_are_shown() -> None:
    text = (
        "{0: available x2, 1-3: acquired x1 by a, 4: acknowledged, 5: archived x1 by b (being written), 6-9: unknown}"
    )
    found = ranges(read_yaml(text))
    assert "{" + ", ".join(map(str, found)) + "}" == text
    assert found[1] == Range(1, 3, "acquired", 1, "a")
    assert found[3].is_being_written


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[0]", "offsets with the state of their records are expected"),
        ("{x: available}", "an offset or FIRST-LAST is expected, not 'x'"),
        ("{3-1: available}", "offsets are written FIRST-LAST"),
        ("{0: gone}", "STATE, STATE xCOUNT or STATE xCOUNT by MEMBER is expected"),
        ("{0: [available]}", "STATE, STATE xCOUNT or STATE xCOUNT by MEMBER is expected"),
    ],
)
def test_ranges_of_another_form_are_refused_with_what_is_expected(text: str, message: str) -> None:
    with pytest.raises(MalformedYaml, match=message):
        ranges(read_yaml(text))


def test_steps_have_sentences_and_expectations_none() -> None:
    later = share_steps.Acknowledge(line=1, member="a", values=("m1",), type="renew", answer="later")
    assert narrated(later) == "Member a renews its lock on m1; the response is awaited later"
    assert narrated(fetch("m1", delivery=2)) == "Member a fetches and gets m1, which is delivery 2"
    assert narrated(fetch()) == "Member a fetches and gets nothing"
    wait = share_steps.WaitShare(line=1, group="q", start=2, durable_start=-1, records=())
    assert narrated(wait) == ("Wait until share group q begins at 2, has nothing in flight, no start on disk")
    step = expects(start=3, durable_start=-1)
    assert narrated(step) == ""
    assert described(step) == "expect_share group=q start=3 durable_start=none"
    assert expected_of(step) == ["group q", "start 3", "durable start none"]
