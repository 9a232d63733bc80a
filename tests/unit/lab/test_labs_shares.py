"""Checks of the labs about Kafka 4's groups: what half-done work lacks."""

from __future__ import annotations

from typing import Any

from tests.lab_stories import ORDERS, Story, facts, said

from tidegauge_lab.labs.evidence import Evidence, StoredRecord

RECORDS = [StoredRecord(offset, None, value) for offset, value in enumerate(["apple", "poison", "pear"])]
RECORDS_OF = {(ORDERS, 1): RECORDS}


class Shares(Story):
    """A story in which leaders report on the share partition of group packing."""

    def share(self, broker: int, start: int, *records: list[Any], cause: str = "ShareFetch") -> Shares:
        fields = {"group": "packing", "state": "active", "start_offset": start, "records": list(records)}
        self.note(f"broker-{broker}", "share", cause=cause, **fields)
        return self

    def killed(self, broker: int, action: str = "kill") -> Shares:
        super().killed(broker, action)
        return self


def taken(first: int, last: int, count: int = 1) -> list[Any]:
    return [first, last, "acquired", count, "m", False]


# 16. A reconciliation


def test_a_group_that_was_never_stopped_passes_and_one_that_was_does_not():
    def group(story: Story, new: str, members: int, generation: int) -> Story:
        return story.note("broker-1", "group", group="picking", new=new, members=members, generation=generation)

    story = group(Story(), "Stable", 1, 2)
    assert said("reconciliation", story.evidence()) == (False, "Group picking has never had two members")
    group(story, "Assigning", 2, 3)
    assert said("reconciliation", story.evidence()) == (False, "Its members have not come to their new assignment")
    group(story, "Reconciling", 2, 3)
    group(story, "Stable", 2, 3)
    passed, text = said("reconciliation", story.evidence())
    assert passed
    assert text == "It was never in PreparingRebalance: no member had to give up what it keeps"
    group(story, "PreparingRebalance", 2, 4)
    assert said("reconciliation", story.evidence())[0] is False


# 17. A record that no member can process


def test_an_archived_record_passes_once_all_others_are_accepted():
    story = Shares().share(1, 0, taken(0, 2))
    assert said("poison-record", story.evidence(**orders())) == (
        False,
        "Each lock has ended with a word of its member",
    )
    story.share(1, 0, [0, 2, "available", 1, None, False], cause="LockExpiration").share(1, 0, taken(0, 2, 2))
    assert said("poison-record", story.evidence(**orders())) == (
        False,
        "'poison', at offset 1, was delivered 2 times and is not archived",
    )
    story.share(1, 1, [1, 1, "archived", 3, None, True], taken(2, 2, 2))
    assert said("poison-record", story.evidence(**orders())) == (
        False,
        "The start offset of the group is 1 of 3: not all other records are accepted",
    )
    story.share(1, 3)
    assert said("poison-record", story.evidence(**orders())) == (
        True,
        "The start offset is 3: the group is done with all records, and 'poison' is still in the log",
    )
    story.share(1, 3, taken(1, 1, 4))
    assert said("poison-record", story.evidence(**orders()))[0] is False


# 18. The knowledge of a new leader


def test_what_a_dead_leader_alone_knew_is_delivered_again_and_what_was_written_is_not():
    story = Shares().share(1, 0, taken(0, 2))
    assert said("forgotten-deliveries", story.evidence(**orders()))[1] == (
        "Broker 1, which has given the records, lives"
    )
    story.share(1, 1, taken(1, 2)).killed(1)
    assert said("forgotten-deliveries", story.evidence(**orders())) == (
        False,
        "No other leader has given it again",
    )
    story.share(2, 1, taken(1, 2))
    assert said("forgotten-deliveries", story.evidence(**orders())) == (False, "The start offset is 1 of 3")
    done = Shares().share(1, 0, taken(0, 2)).share(1, 1, taken(1, 2)).killed(1).share(2, 1, taken(1, 2)).share(2, 3)
    assert said("forgotten-deliveries", done.evidence(**orders())) == (
        True,
        "The record at offset 0, accepted before, did not come again, and all 3 records are done",
    )
    again = Shares().share(1, 0, taken(0, 2)).share(1, 1, taken(1, 2)).killed(1).share(2, 0, taken(0, 2)).share(2, 3)
    assert said("forgotten-deliveries", again.evidence(**orders()))[0] is False


def test_a_leader_that_dies_when_all_is_acknowledged_shows_nothing():
    story = Shares().share(1, 0, taken(0, 2)).share(1, 3).killed(1)
    assert said("forgotten-deliveries", story.evidence(**orders())) == (
        False,
        "When broker 1 died, each of its records had been acknowledged",
    )
    assert said("forgotten-deliveries", Evidence())[0] is False


def orders() -> dict[str, Any]:
    return {"records": RECORDS_OF, "partitions": {ORDERS: facts(1, {1: 3}, {1: 3})}}
