"""Why a share group (KIP-932) is as it is: each sentence from its facts, and the facts from what brokers say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.unit.client.test_newest_views import NEW, Cluster, coming, shows, with_offsets_topic

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.cli import explain_group
from tidegauge_client.cli.explain_group import group_headline
from tidegauge_client.group_descriptions import GroupDescription, MemberDescription, Reconciliation
from tidegauge_client.group_explanation import GroupFacts, OffsetsPartition
from tidegauge_client.group_explanation import explain_group as explained
from tidegauge_client.sentences import Sentence
from tidegauge_client.share_groups import ShareOffset

HELD = OffsetsPartition(TopicPartition("__consumer_offsets", 3), 1, 7, (1, 2, 0), (1, 2, 0))
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def member(name: str, *assigned: TopicPartition, epoch: int = 5) -> MemberDescription:
    return MemberDescription(name, None, "c", "/127.0.0.1", assigned, reconciliation=Reconciliation(epoch))


def facts(
    *members: MemberDescription, offsets: dict[TopicPartition, ShareOffset] | None = None, **more: Any
) -> GroupFacts:
    state = "Stable" if members else "Empty"
    group = GroupDescription(
        "g", state, "share", "simple", members, 1, 5, "", (), group_type="share", assignment_epoch=5
    )
    return replace(GroupFacts("g", HELD, frozenset({0, 1, 2}), group, share_offsets=offsets or {}), **more)


def said(found: GroupFacts, about: str) -> list[Sentence]:
    return [sentence for sentence in explained(found) if sentence.about == about]


def test_a_share_group_has_an_epoch_and_neither_a_generation_nor_a_rebalance() -> None:
    found = facts(member("a", T0), member("b", T0))
    assert group_headline(found) == "Group g: Stable, epoch 5, 2 members, coordinator 1"
    [sentence] = said(found, "group")
    assert sentence.text == "The share group is Stable in epoch 5 with 2 members, assigned by simple."
    assert "may be assigned to several" in sentence.rule
    assert not any("rebalance" in one.text + one.change for one in explained(found))


def test_without_members_its_start_offsets_stay() -> None:
    """ShareGroup.shouldExpire is false: offsets.retention.minutes is not of share groups."""
    [sentence] = said(facts(), "group")
    assert "has no members: nothing is delivered" in sentence.text
    assert "does not expire" in sentence.rule


def test_a_member_that_has_not_heard_of_its_assignment_or_has_none() -> None:
    [late, idle] = said(facts(member("a", T0, epoch=4), member("b"), member("c", T0)), "member")
    assert (late.subject, idle.subject) == ("a", "b")
    assert "is in epoch 4, and has not heard of the assignment of epoch 5." in late.text
    assert "is assigned no partition" in idle.text


def test_what_is_not_done_and_where_most_of_it_is() -> None:
    offsets = {T0: ShareOffset(3, 2), T1: ShareOffset(0, 5)}
    [unread, total] = said(facts(member("a", T0), offsets=offsets), "lag")
    assert unread.text == "No member is assigned t-1: 5 of t-1 are delivered to none."
    assert total.text == "7 offsets over 2 partitions are not done, the largest in t-1 (5)."
    assert "`tidegauge explain share:g/t-1`" in total.change
    [alone] = said(facts(offsets={T0: ShareOffset(3, 1)}), "lag")
    assert alone.text == "1 offset over 1 partition is not done."
    [done] = said(facts(member("a", T0), offsets={T0: ShareOffset(3, 0), T1: ShareOffset(3, 0)}), "lag")
    assert (done.text, done.change) == ("0 offsets over 2 partitions are not done.", "")


def test_a_partition_of_which_nothing_is_written_has_no_lag() -> None:
    [sentence] = said(facts(member("a", T0), offsets={T0: ShareOffset(None, None)}), "lag")
    assert sentence.text.startswith("t-0 has no start offset yet")
    assert "share.auto.offset.reset" in sentence.rule


def test_below_min_isr_no_member_joins_or_leaves() -> None:
    [sentence] = said(facts(partition=replace(HELD, isr=(1,), min_isr=2)), "offsets-topic")
    assert sentence.text.startswith("No member can join or leave: ")


async def gathered(monkeypatch: pytest.MonkeyPatch, share_offsets: Any) -> GroupFacts:
    """Gather a group whose member has t-0, which there is, and t-1, which there is not."""
    monkeypatch.setattr(explain_group, "settings_of", coming(((), "")))
    admin: Any = Cluster(dict.fromkeys((0, 1, 2), with_offsets_topic(shows(NEW, 0))))
    monkeypatch.setattr(admin, "describe_group", coming(facts(member("a", T0, T1)).group))
    monkeypatch.setattr(admin, "share_offsets", share_offsets, raising=False)
    return await explain_group.gather_group(admin, "g")


async def test_its_offsets_are_the_share_coordinators_and_no_commit_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OffsetFetch of a share group gets GROUP_ID_NOT_FOUND, so that nothing else would be known of it."""
    found = await gathered(monkeypatch, coming({T0: ShareOffset(3, 2)}))
    assert (found.share_offsets, found.problem) == ({T0: ShareOffset(3, 2)}, ErrorCode.NONE)
    assert (found.leaderless, found.deleted) == (frozenset(), {T1})


async def test_offsets_that_are_refused_leave_the_rest_known(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> Any:
        raise TidegaugeError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no")

    found = await gathered(monkeypatch, refuse)
    assert (found.problem, found.deleted) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, {T1})
    assert any("share group is Stable" in one.text for one in explained(found))
