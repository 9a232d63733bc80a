"""Checks of the labs about acknowledgement: what half-done work lacks."""

from __future__ import annotations

from dataclasses import replace

from tests.lab_stories import ORDERS, Story, facts, said

from tidegauge_lab.labs.evidence import Evidence

# 1. A dead follower


def waiting() -> Story:
    return Story().elected(1, 0, [1, 2, 0]).leo(1, 0, 1).hw(1, 0, 1).killed(2)


def waited() -> Story:
    return waiting().leo(1, 1, 2).elected(1, 1, [1, 0]).hw(1, 1, 2).leo(1, 2, 3).hw(1, 2, 3)


def test_a_record_that_waited_for_the_dead_follower_passes():
    evidence = waited().evidence(partitions={ORDERS: facts(1, {1: 3, 0: 3}, {1: 3}, isr=[1, 0])})
    assert said("acks-all", evidence) == (
        True,
        "Offset 2, written when the dead broker was out of the ISR, was committed after 0.1 s: all means the in-sync "
        "replicas",
    )


def test_without_a_record_while_the_dead_was_in_the_isr_nothing_was_waited_for():
    passed, text = said("acks-all", waiting().elected(1, 1, [1, 0]).leo(1, 1, 2).hw(1, 1, 2).evidence())
    assert not passed
    assert text.startswith("No record was written in the 0.2 s in which broker 2 was dead and still in the ISR")


def test_the_death_of_the_leader_is_not_that_of_a_follower():
    story = Story().elected(1, 0, [1, 2, 0]).killed(1).leo(2, 0, 1).elected(2, 1, [2, 0]).hw(2, 0, 1)
    assert said("acks-all", story.evidence())[0] is False


def test_a_record_that_is_not_committed_yet_does_not_pass():
    story = waiting().leo(1, 1, 2).elected(1, 1, [1, 0])
    assert said("acks-all", story.evidence()) == (False, "The high watermark has not passed offset 1 yet")


# 2. Too few in sync


def test_one_record_is_refused_and_one_is_in_the_log_without_acknowledgement():
    story = Story().elected(0, 0, [0, 1, 2]).elected(0, 1, [0, 1]).leo(0, 0, 1).hw(0, 0, 1).leo(0, 1, 2)
    passed, text = said("min-insync-replicas", story.elected(0, 2, [0]).evidence())
    assert passed
    assert "nothing was appended" in text


def test_a_record_that_was_committed_before_the_second_death_was_not_caught_in_between():
    story = Story().elected(0, 0, [0, 1, 2]).elected(0, 1, [0, 1]).leo(0, 0, 1).hw(0, 0, 1).elected(0, 2, [0])
    passed, text = said("min-insync-replicas", story.evidence())
    assert not passed
    assert text.startswith("When the ISR shrank to one replica, every record was committed already")


def test_a_record_with_acks_1_below_min_insync_replicas_is_named():
    story = Story().elected(0, 0, [0, 1, 2]).elected(0, 1, [0, 1]).leo(0, 0, 1).hw(0, 0, 1).leo(0, 1, 2)
    passed, text = said("min-insync-replicas", story.elected(0, 2, [0]).leo(0, 2, 3).evidence())
    assert not passed
    assert text == "Offset 2 was appended with one replica in sync, so it was not written with acks=all"


# 3. One round late


def test_a_record_on_every_replica_that_no_consumer_may_read_passes():
    held = {ORDERS: frozenset({2, 0})}
    everywhere = facts(1, {1: 1, 2: 1, 0: 1}, {1: 0})
    evidence = Evidence(partitions={ORDERS: everywhere}, held=held)
    assert said("high-watermark", evidence) == (True, "The high watermark is 0, so no consumer can read offset 0")
    assert said("high-watermark", replace(evidence, held={})) == (
        False,
        "The followers on brokers 2,0 are not held, so the high watermark is about to move",
    )


def test_a_record_that_a_replica_lacks_and_one_that_is_committed_do_not_pass():
    held = {ORDERS: frozenset({2, 0})}
    lacking = Evidence(partitions={ORDERS: facts(1, {1: 1, 2: 1, 0: 0}, {1: 0})}, held=held)
    assert said("high-watermark", lacking) == (
        False,
        "Offset 0 is not yet on broker 0, so the high watermark is 0",
    )
    committed = Evidence(partitions={ORDERS: facts(1, {1: 1, 2: 1, 0: 1}, {1: 1})}, held=held)
    assert said("high-watermark", committed)[0] is False
