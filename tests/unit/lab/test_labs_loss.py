"""Checks of the labs about loss: what half-done work lacks."""

from __future__ import annotations

from tests.lab_stories import ORDERS, Story, facts, said

from tidegauge.partition import TopicPartition
from tidegauge_lab.labs.evidence import StoredRecord

CURED = TopicPartition("cured", 0)
KEPT = StoredRecord(0, None, "kept", 0)
NEXT = StoredRecord(1, None, "next", 2)
EVERYWHERE = {(ORDERS, broker): (KEPT, NEXT) for broker in (1, 2, 0)}


# 4. acks=1


def died_alone() -> Story:
    story = Story().elected(1, 0, [1, 2, 0]).leo(1, 0, 1).leo(2, 0, 1, "FetchResponse").leo(0, 0, 1, "FetchResponse")
    return story.hw(1, 0, 1).leo(1, 1, 2).killed(1).elected(2, 2, [2, 0], "offline")


def test_a_record_that_its_leader_truncated_and_whose_offset_another_one_has_passes():
    story = died_alone().leo(2, 1, 2).truncated(1, 2, 1)
    evidence = story.evidence(partitions={ORDERS: facts(2, {1: 2, 2: 2, 0: 2}, {2: 2}, epoch=2)}, records=EVERYWHERE)
    passed, text = said("acks-1", evidence)
    assert passed
    assert text.startswith("All three replicas agree")


def test_an_old_leader_that_has_not_come_back_has_truncated_nothing():
    assert said("acks-1", died_alone().leo(2, 1, 2).evidence()) == (
        False,
        "No former leader of orders-0 has truncated its log",
    )


def test_a_record_that_a_follower_had_fetched_was_not_alone():
    story = Story().elected(1, 0, [1, 2, 0]).leo(1, 0, 1).leo(2, 0, 1, "FetchResponse").hw(1, 0, 1).killed(1)
    passed, text = said("acks-1", story.elected(2, 1, [2, 0], "offline").evidence())
    assert not passed
    assert text.startswith("Every record of orders-0 was fetched by a follower before the leader died")


def test_a_replica_without_the_next_record_is_named():
    story = died_alone().leo(2, 1, 2).truncated(1, 2, 1)
    lacking = EVERYWHERE | {(ORDERS, 1): (KEPT,)}
    evidence = story.evidence(partitions={ORDERS: facts(2, {1: 1, 2: 2, 0: 2}, {2: 2}, epoch=2)}, records=lacking)
    assert said("acks-1", evidence) == (False, "That record is not yet on broker 1")


# 5. Truncation by the high watermark, and by epochs

LOST = {(ORDERS, 0): (StoredRecord(0, None, "m2", 2),)}
ALL = tuple(StoredRecord(*one) for one in [(0, None, "m1", 0), (1, None, "m2", 2)])


def old_rule() -> Story:
    story = Story().elected(1, 0, [1, 2, 0]).leo(1, 0, 1).leo(0, 0, 1, "FetchResponse").leo(2, 0, 1, "FetchResponse")
    story.hw(1, 0, 1).killed(1).elected(2, 1, [2, 0], "offline").truncated(0, 1, 0)
    return story.killed(2).elected(0, 2, [0], "offline").leo(0, 0, 1)


def todays_rule(story: Story) -> Story:
    cured = story.at("cured").elected(1, 0, [1, 2, 0]).leo(1, 0, 1).hw(1, 0, 1).killed(1)
    return cured.elected(2, 1, [2, 0], "offline").killed(2).elected(0, 2, [0], "offline").leo(0, 1, 2)


def test_the_record_that_the_old_rule_loses_and_todays_rule_keeps_passes():
    states = {ORDERS: facts(0, {0: 1}, {0: 1}, epoch=2), CURED: facts(0, {0: 2}, {0: 2}, epoch=2)}
    evidence = todays_rule(old_rule()).evidence(partitions=states, records=LOST | {(CURED, 0): ALL})
    passed, text = said("truncation", evidence)
    assert passed
    assert "offset 0 is still 'm1' of leader epoch 0" in text


def test_the_old_rule_alone_is_half_the_lab():
    evidence = old_rule().evidence(partitions={ORDERS: facts(0, {0: 1}, {0: 1}, epoch=2)}, records=LOST)
    assert said("truncation", evidence) == (False, "cured-0 has lost 0 leaders so far")


def test_a_record_that_the_next_leader_gave_back_is_not_lost():
    story = Story().elected(1, 0, [1, 2, 0]).leo(1, 0, 1).hw(1, 0, 1).killed(1)
    story.elected(2, 1, [2, 0], "offline").truncated(0, 1, 0).leo(0, 0, 1, "FetchResponse")
    evidence = story.evidence(partitions={ORDERS: facts(2, {2: 1, 0: 1}, {2: 1}, epoch=1)}, records={(ORDERS, 2): ALL})
    assert said("truncation", evidence) == (False, "Offset 0 of orders-0 is not lost")


def test_a_truncation_of_what_was_not_committed_is_no_loss():
    story = Story().elected(1, 0, [1, 2, 0]).leo(1, 0, 2).hw(1, 0, 1).killed(1).elected(2, 1, [2, 0], "offline")
    passed, text = said("truncation", story.truncated(1, 2, 1).evidence())
    assert not passed
    assert text == "No replica of orders-0 has truncated a record that was committed"
