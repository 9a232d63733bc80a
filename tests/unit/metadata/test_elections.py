"""The strategy of an election, as two images show it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidegauge_controller.metadata.elections import Elected, elections
from tidegauge_controller.metadata.image import (
    EMPTY,
    MetadataImage,
    PartitionRegistration,
    RegisteredBroker,
    TopicImage,
)
from tidegauge_controller.metadata.sorted_map import SortedMap
from tidegauge_controller.rules.election import Strategy

BEFORE = PartitionRegistration((1, 2, 3), ("a", "b", "c"), (1, 2, 3), 2, leader_epoch=4)


def image(state: PartitionRegistration | None, **brokers: RegisteredBroker) -> MetadataImage:
    """An image with one partition, or none, and three brokers that are alive but for those that are given."""
    known = {number: RegisteredBroker(number, 1, "", (), {}, fenced=False) for number in (1, 2, 3)}
    known |= {int(name.removeprefix("of_")): one for name, one in brokers.items()}
    topics = {} if state is None else {"id": TopicImage("t", "id", SortedMap({0: state}))}
    return replace(EMPTY, topics=SortedMap(topics), brokers=SortedMap(known))


def found(old: PartitionRegistration | None, new: PartitionRegistration, **brokers: RegisteredBroker) -> list[Elected]:
    return list(elections(image(old), image(new, **brokers)))


@pytest.mark.parametrize(
    ("changed", "brokers", "strategy"),
    [
        ({"leader": 1}, {}, Strategy.PREFERRED),
        ({"leader": 3}, {"of_2": {"fenced": True}}, Strategy.OFFLINE),
        ({"leader": 1}, {"of_2": {"fenced": True}}, Strategy.OFFLINE),
        ({"leader": -1, "isr": ()}, {"of_2": {"fenced": True}}, Strategy.OFFLINE),
        ({"leader": 1}, {"of_2": {"fenced": False, "in_controlled_shutdown": True}}, Strategy.CONTROLLED_SHUTDOWN),
        ({"leader": 3, "recovering": True}, {"of_2": {"fenced": True}}, Strategy.UNCLEAN),
        ({"leader": 3, "replicas": (3, 1)}, {}, Strategy.REASSIGN),
    ],
)
def test_the_strategy_is_what_the_images_show(
    changed: dict[str, object], brokers: dict[str, dict[str, bool]], strategy: Strategy
) -> None:
    """KIP-455, KIP-631, KIP-966: what each kind of election leaves in the metadata."""
    after = replace(BEFORE, leader_epoch=5, **changed)  # type: ignore[arg-type] # fields of any partition
    others = {name: RegisteredBroker(2, 1, "", (), {}, **fields) for name, fields in brokers.items()}
    [one] = found(BEFORE, after, **others)
    assert (str(one.at), one.strategy, one.state) == ("t-0", strategy, after)


def test_a_new_partition_gets_its_first_leader() -> None:
    [one] = found(None, BEFORE)
    assert one.strategy is Strategy.INITIAL


def test_an_isr_that_changes_is_no_election_and_a_deleted_topic_neither() -> None:
    """A dead follower costs no leader epoch in KRaft mode."""
    assert found(BEFORE, replace(BEFORE, isr=(1, 2), partition_epoch=9)) == []
    assert list(elections(image(BEFORE), image(None))) == []
