"""The image of a group keeps totals, so that a heartbeat costs no look at all members; they follow from the records."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from tests.unit.coordinator.consumer_groups.consumer_harness import ConsumerHarness, joining

from tidegauge_broker.coordinator.consumer_group.assignors.java_order import JavaMap, java_set
from tidegauge_broker.coordinator.consumer_group.image import GroupImage


def check(image: GroupImage) -> None:
    """Compare the totals with the members."""
    members = image.members.values()
    assert image.behind == {one.member_id for one in members if not one.is_reconciled_to(image.assignment_epoch)}
    assert image.regex_members == Counter(one.topic_regex for one in members if one.topic_regex)
    assert image.subscribed_regexes == {one.topic_regex for one in members} - {""}


def image_of(broker: ConsumerHarness) -> GroupImage:
    shard = broker.coordinator._shard_of("g")
    assert shard is not None
    return shard.consumer_groups["g"].image


@pytest.mark.parametrize("seed", range(20))
def test_state_and_regexes_of_a_group_follow_from_its_members_after_each_record(seed: int) -> None:
    """Members join, beat, change their expression, leave and expire; another broker loads the group."""
    chance = random.Random(seed)
    broker = ConsumerHarness()
    epochs: dict[str, int] = {}
    for _ in range(60):
        member = chance.choice("abcd")
        if member not in epochs:
            fields = {"topic_regex": chance.choice(["t.*", "t4", ""])} if chance.random() < 0.6 else {}
            epochs[member] = broker.ask(joining(member, "t4", **fields)).member_epoch
        elif chance.random() < 0.1:
            broker.beat(member, -1)
            del epochs[member]
        elif chance.random() < 0.05:
            broker.after(13_000)
            epochs.clear()
        else:
            fields = {"topic_regex": chance.choice(["t.*", "t5", ""])} if chance.random() < 0.2 else {}
            response = broker.beat(member, epochs[member], owned=(), **fields)
            if response.error:
                del epochs[member]
            else:
                epochs[member] = response.member_epoch
        check(image_of(broker))
    check(image_of(broker.successor()))


@pytest.mark.parametrize("count", [0, 1, 12, 13, 24, 25, 300])
def test_keys_that_are_put_together_iterate_as_those_that_were_put_one_by_one(count: int) -> None:
    """The table of java.util.HashMap keeps the order in a slot when it grows (HashMap.resize)."""
    chance = random.Random(count)
    keys = [chance.randrange(4 * count) for _ in range(count)]
    for capacity in (1, 16, 64):
        one_by_one: JavaMap[int, None] = JavaMap(capacity)
        for key in keys:
            one_by_one.put(key, None)
        together = java_set(keys, capacity)
        assert list(together) == list(one_by_one)
        for made in (together, one_by_one):
            made.put(-7, None)
            made.remove(keys[0] if keys else 0)
        assert list(together) == list(one_by_one)
