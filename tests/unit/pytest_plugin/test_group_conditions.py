"""The condition of ``wait_group``, and the actual state that it reports."""

from __future__ import annotations

import pytest

from tidegauge.partition import TopicPartition
from tidegauge_client.admin_groups import GroupDescription, MemberDescription
from tidegauge_client.group_tables import OffsetRow
from tidegauge_lab.group_conditions import GroupCondition

AT, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
MEMBER = MemberDescription("m", None, "app", "/127.0.0.1", (AT,))
GROUP = GroupDescription("g", "Stable", "consumer", "range", (MEMBER,), 1, 4, "a member left", ())
READ_TO_5 = OffsetRow(AT, 5, 8, MEMBER)


def test_a_group_that_is_so_has_no_problem() -> None:
    """The generation may be a later one, the lag a smaller one."""
    assert GroupCondition("Stable", 1, 3, 3).problem(GROUP, [READ_TO_5]) is None
    assert GroupCondition().problem(GROUP) is None
    exact = GroupCondition("Stable", 1, 4, 3, {"app": {AT}}, {AT: 5}, is_exact=True)
    assert exact.problem(GROUP, [READ_TO_5]) is None
    assert exact.text == ("state Stable, members 1, generation 4, lag 3, assignment app:orders-0, committed orders-0@5")


@pytest.mark.parametrize(
    ("condition", "problem"),
    [
        (GroupCondition(state="Empty"), "group g is Stable: a member left"),
        (GroupCondition(members=2), "group g has 1 member"),
        (GroupCondition(generation=5), "group g is in generation 4"),
        (GroupCondition(lag=2), "group g lags by 3 offsets"),
        (GroupCondition(lag=4, is_exact=True), "group g lags by 3 offsets"),
        (GroupCondition(generation=3, is_exact=True), "group g is in generation 4"),
        (GroupCondition(assignment={"app": [AT, OTHER]}), "app reads orders-0"),
        (GroupCondition(assignment={"other": []}), "group g has no member other"),
        (GroupCondition(committed={AT: 6}), "group g has committed offset 5 of orders-0"),
        (GroupCondition(committed={OTHER: 6}), "group g has committed no offset of orders-1"),
    ],
)
def test_what_is_true_instead(condition: GroupCondition, problem: str) -> None:
    assert condition.problem(GROUP, [READ_TO_5]) == problem


def test_a_partition_without_a_commit_or_an_end_is_not_read() -> None:
    for row in (OffsetRow(AT, None, 8, MEMBER), OffsetRow(AT, 5, None, MEMBER)):
        assert GroupCondition(lag=100).problem(GROUP, [row]) == "group g has no known lag in orders-0"


def test_a_member_that_reads_nothing_does_not_lag() -> None:
    assert GroupCondition(lag=0).problem(GROUP, [OffsetRow(None, None, None, MEMBER)]) is None


def test_a_state_that_kafka_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="'stable' is no state of a group"):
        GroupCondition(state="stable")


def test_a_committed_offset_beyond_the_end_makes_up_for_no_unread_record() -> None:
    """After an unclean election: 3 unread in one partition, and -3 in the other one, were a lag of 0 together."""
    beyond = OffsetRow(OTHER, 9, 6, MEMBER)
    assert GroupCondition(lag=0).problem(GROUP, [READ_TO_5, beyond]) == "group g lags by 3 offsets"
    assert GroupCondition(lag=0).problem(GROUP, [beyond]) is None, "nothing is unread there"
