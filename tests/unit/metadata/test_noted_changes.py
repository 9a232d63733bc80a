"""The event log about the step from one image to another beside elections: fencing, eligible leaders."""

from __future__ import annotations

from dataclasses import replace

from tidegauge_controller.metadata.image import (
    EMPTY,
    MetadataImage,
    PartitionRegistration,
    RegisteredBroker,
    TopicImage,
)
from tidegauge_controller.metadata.noted_changes import changes_of_eligible_leaders, fencings
from tidegauge_controller.metadata.sorted_map import SortedMap

FENCED = RegisteredBroker(1, 1, "", (), {})
ALIVE = replace(FENCED, fenced=False)
AT = PartitionRegistration((1, 2, 3), ("a", "b", "c"), (1, 2), 1, leader_epoch=4)


def with_brokers(**brokers: RegisteredBroker) -> MetadataImage:
    return replace(EMPTY, brokers=SortedMap({int(name[1:]): one for name, one in brokers.items()}))


def with_state(state: PartitionRegistration | None) -> MetadataImage:
    topics = {} if state is None else {"id": TopicImage("t", "id", SortedMap({0: state}))}
    return replace(EMPTY, topics=SortedMap(topics))


def test_a_broker_is_fenced_and_unfenced_and_first_registers_fenced() -> None:
    """KIP-631: a registration is fenced until the broker has caught up with the metadata."""
    assert list(fencings(with_brokers(), with_brokers(_1=FENCED))) == []
    assert list(fencings(with_brokers(_1=FENCED, _2=ALIVE), with_brokers(_1=ALIVE, _2=FENCED))) == [
        (1, False),
        (2, True),
    ]
    again = replace(FENCED, epoch=7)
    assert list(fencings(with_brokers(_1=ALIVE), with_brokers(_1=again))) == [(1, True)], "it has restarted"
    assert list(fencings(with_brokers(_1=FENCED), with_brokers(_1=again))) == []
    assert list(fencings(with_brokers(_1=ALIVE), with_brokers())) == [], "an unregistered broker is in no image"


def test_eligible_leaders_change_with_or_without_an_election() -> None:
    """KIP-966: what leaves an ISR that is too small stays eligible; the last leader is kept apart."""
    shrunk = replace(AT, isr=(1,), elr=(2,))
    [one] = changes_of_eligible_leaders(with_state(AT), with_state(shrunk))
    assert (str(one.at), one.old, one.new, one.last_known) == ("t-0", (), (2,), ())
    none = replace(shrunk, isr=(), leader=-1, elr=(), last_known_elr=(1,), leader_epoch=5)
    [one] = changes_of_eligible_leaders(with_state(shrunk), with_state(none))
    assert (one.old, one.new, one.last_known) == ((2,), (), (1,))
    assert list(changes_of_eligible_leaders(with_state(None), with_state(AT))) == []
    assert list(changes_of_eligible_leaders(with_state(shrunk), with_state(replace(shrunk, leader_epoch=9)))) == []
    assert list(changes_of_eligible_leaders(with_state(shrunk), with_state(None))) == [], "the topic was deleted"
