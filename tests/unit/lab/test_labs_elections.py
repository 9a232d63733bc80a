"""Checks of the labs about elections and about a slow follower: what half-done work lacks."""

from __future__ import annotations

import pytest
from tests.lab_stories import ORDERS, Story, facts, said

from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import Group, StoredRecord

# 6. An unclean election

OTHERS = {(ORDERS, 2): tuple(StoredRecord(*one) for one in [(0, None, "a", 0), (1, None, "v", 3), (2, None, "w", 3)])}


def unclean() -> Story:
    story = Story().elected(1, 0, [1, 2]).leo(1, 0, 1).hw(1, 0, 1).killed(2).elected(1, 1, [1], "remove-from-isr")
    story.leo(1, 1, 3).hw(1, 1, 3).group("shop", "Stable").killed(1).elected(2, 3, [2], "unclean")
    return story.note("broker-2", "epoch", leader_epoch=3, start_offset=1)


@pytest.mark.parametrize(("committed", "passed"), [(4, True), (3, False)])
def test_a_group_that_reads_on_behind_what_it_lost_passes(committed: int, passed: bool):
    evidence = unclean().evidence(
        partitions={ORDERS: facts(2, {2: 4}, {2: 4}, epoch=3)},
        records=OTHERS,
        groups={"shop": Group("Empty", 1, committed={ORDERS: committed})},
    )
    assert said("unclean-election", evidence)[0] is passed


def test_a_clean_election_and_a_group_that_read_only_later_do_not_pass():
    clean = Story().elected(1, 0, [1, 2]).killed(1).elected(2, 1, [2], "offline")
    assert said("unclean-election", clean.evidence()) == (False, "Every leader of orders-0 was elected from the ISR")
    late = unclean()
    late.events = [one for one in late.events if one["kind"] != "group"]
    assert said("unclean-election", late.group("shop", "Stable").evidence(groups={"shop": Group("Empty", 1)})) == (
        False,
        "No consumer group had read them",
    )


# 7. A slow follower


def slow() -> Story:
    story = Story().elected(1, 0, [1, 2, 0]).leo(1, 0, 1)
    story.note("broker-1", "isr", old=[1, 2, 0], new=[1, 0], state="pending-shrink", cause="IsrExpiration")
    return story.isr(1, [1, 0]).hw(1, 0, 1).leo(1, 1, 2).hw(1, 1, 2)


def test_a_follower_that_held_a_record_back_and_is_back_in_the_isr_passes():
    assert said("slow-follower", slow().isr(1, [1, 0, 2]).evidence())[0]


def test_a_follower_that_is_still_out_of_the_isr_does_not_pass():
    evidence = slow().evidence(partitions={ORDERS: facts(1, {1: 2}, {1: 2}, isr=[1, 0])})
    assert said("slow-follower", evidence) == (False, "Broker 2 is not back in the ISR 1,0")


def test_a_dead_follower_is_not_a_slow_one():
    assert said("slow-follower", slow().killed(2).evidence()) == (False, "Broker 2 was dead or paused, and not slow")


# 8. Preferred leaders

SECOND = TopicPartition("orders", 1)


def moved() -> Story:
    return Story().elected(1, 0, [1, 2, 0]).killed(1, "stop").elected(2, 1, [2, 0], "controlled-shutdown")


def test_a_leadership_that_a_preferred_election_gave_back_passes():
    story = moved().isr(2, [2, 0, 1]).elected(1, 2, [2, 0, 1], "preferred")
    evidence = story.evidence(partitions={ORDERS: facts(1, {1: 0, 2: 0, 0: 0}, {}, epoch=2)})
    assert said("preferred-leader", evidence) == (
        True,
        "A preferred election gave orders-0 back, each in a higher leader epoch: orders-0 in 2",
    )


def test_a_preferred_leader_that_only_came_back_follows():
    evidence = moved().isr(2, [2, 0, 1]).evidence(partitions={ORDERS: facts(2, {1: 0, 2: 0, 0: 0}, {}, epoch=1)})
    assert said("preferred-leader", evidence) == (
        False,
        "orders-0 is not led by its preferred leader by a preferred election",
    )


def test_a_preferred_leader_that_is_still_down_does_not_pass():
    evidence = moved().evidence(partitions={ORDERS: facts(2, {2: 0, 0: 0}, {}, epoch=1)})
    assert said("preferred-leader", evidence) == (False, "The ISR still lacks broker 1")


# 9. Two controllers


def slept() -> Story:
    return Story().controller(0, "elected", 1).elected(0, 0, [0, 1, 2]).killed(0, "pause").controller(1, "elected", 2)


def test_a_controller_that_was_replaced_while_it_slept_and_stepped_down_passes():
    story = slept().elected(1, 2, [1, 2], "offline", by=1).controller(0, "resigned", 1).leo(1, 0, 1)
    assert said("controller", story.evidence()) == (True, "Records are written: broker 1 appended offset 0 of orders-0")


def test_a_controller_that_still_sleeps_has_not_stepped_down():
    passed, text = said("controller", slept().elected(1, 2, [1, 2], "offline", by=1).evidence())
    assert not passed
    assert text == "Broker 0 still believes that it is the controller"


def test_a_controller_that_was_killed_was_not_asleep():
    story = Story().controller(0, "elected", 1).killed(0).controller(1, "elected", 2)
    assert said("controller", story.evidence())[1] == "Broker 0 was not asleep when broker 1 became the controller"


def test_a_former_controller_that_decides_something_is_named():
    story = slept().elected(1, 2, [1, 2], "offline", by=0).controller(0, "resigned", 1)
    passed, text = said("controller", story.evidence())
    assert not passed
    assert "must not happen" in text
