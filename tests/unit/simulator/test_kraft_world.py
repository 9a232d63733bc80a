"""Histories of whole clusters in KRaft mode: nothing breaks, and without eligible leader replicas the loss is found."""

from __future__ import annotations

import pytest

from tidegauge_proof.simulator.kraft.kraft_history import KRaftHistory, kraft_history_of

STEPS = 60


@pytest.fixture(scope="module")
def histories() -> list[KRaftHistory]:
    return [kraft_history_of(seed, STEPS) for seed in range(4)]


def test_nothing_breaks_with_eligible_leader_replicas(histories: list[KRaftHistory]):
    """KIP-966: no acknowledged record is lost, but for unclean elections that are recorded."""
    assert [(one.seed, one.violation) for one in histories if one.violation is not None] == []


def test_the_histories_have_something_to_find(histories: list[KRaftHistory]):
    assert sum(one.acknowledged for one in histories) > 10
    assert sum(one.images for one in histories) > 100
    assert sum(one.elections for one in histories) > len(histories)
    assert sum(one.reassigned for one in histories) > 0
    assert sum(one.snapshots_loaded for one in histories) > 0


def test_a_seed_gives_one_history():
    one, other = (kraft_history_of(1, 30, tells=True) for _ in range(2))
    assert one.story == other.story
    assert (one.inputs, one.images, one.acknowledged) == (other.inputs, other.images, other.acknowledged)


def test_without_eligible_leader_replicas_an_acknowledged_record_is_lost():
    """The last member of the ISR loses power and leads again with less: ``eligible.leader.replicas.version`` 0."""
    violation = kraft_history_of(17, STEPS, elr=False).violation
    assert violation is not None
    assert violation.invariant == "K1"
    with_elr = kraft_history_of(17, STEPS).violation
    assert with_elr is None


def test_a_registration_that_outlives_its_process_does_not_replace_the_next_one():
    """Seed 1249: both waited at a paused controller, and the live broker sent heartbeats by a stale epoch for ever."""
    assert kraft_history_of(1249, 200).violation is None


@pytest.mark.long
def test_many_histories_break_nothing():
    found = [one for seed in range(1000, 1400) if (one := kraft_history_of(seed, 200).violation) is not None]
    assert found == []
