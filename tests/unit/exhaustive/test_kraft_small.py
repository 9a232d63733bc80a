"""The smallest cluster in KRaft mode, explored: steps, states that are alike, and the loss that ELR prevents."""

from __future__ import annotations

import pytest

from tidegauge_proof.exhaustive.kraft_small import (
    KILL,
    POWER_LOSS,
    START,
    STOP,
    WRITE,
    Act,
    KRaftBounds,
    explore_kraft,
    options,
    played,
    state_of,
)
from tidegauge_proof.simulator.checker import Violation

LOSS = [(Act(WRITE),), (Act(STOP, 1),), (Act(POWER_LOSS, 2),), (Act(START, 2),)]
NOTHING = KRaftBounds(records=0, flushes=0, stops=0, kills=0, power_losses=0, haste=False)


def test_the_last_member_of_the_isr_leads_again_with_less_only_without_eligible_leaders() -> None:
    """KIP-966: broker 1 left in order with the record, broker 2 loses it with its power and comes back first."""
    with pytest.raises(Violation, match="K1"):
        played(KRaftBounds(elr=False), LOSS)
    world = played(KRaftBounds(), LOSS)
    assert world is not None
    [(_, _, state)] = world.checker.newest.all_partitions()
    assert (state.leader, state.elr) == (-1, (1,))
    led = played(KRaftBounds(stops=2), [*LOSS, (Act(START, 1),)])
    assert led is not None
    [(_, _, state)] = led.checker.newest.all_partitions()
    assert (state.leader, set(state.isr)) == (1, {1, 2})


def test_steps_are_single_acts_and_in_haste_pairs_within_the_bounds() -> None:
    bounds = KRaftBounds(flushes=0, stops=0, kills=1, power_losses=0, records=1)
    assert list(options(bounds, [])) == [
        *[(Act(WRITE),), (Act(KILL, 1),), (Act(KILL, 2),), (Act(START, 1),), (Act(START, 2),)],
        *[(Act(WRITE), Act(KILL, one)) for one in (1, 2)],
        *[(Act(WRITE), Act(START, one)) for one in (1, 2)],
        *[(Act(KILL, one), other) for one in (1, 2) for other in (Act(WRITE), Act(START, 1), Act(START, 2))],
        *[(Act(START, one), other) for one in (1, 2) for other in (Act(WRITE), Act(KILL, 1), Act(KILL, 2))],
    ]
    used = [(Act(WRITE), Act(KILL, 1))]
    assert list(options(bounds, used)) == [(Act(START, 1),), (Act(START, 2),)]


def test_what_can_not_happen_is_no_step() -> None:
    assert played(KRaftBounds(), [(Act(START, 1),)]) is None, "it runs"
    assert played(KRaftBounds(), [(Act(KILL, 1),), (Act(POWER_LOSS, 1),)]) is None, "it is dead"


def test_states_at_rest_are_alike_whatever_the_epochs_and_times() -> None:
    """A kill and a return leave the same, with the rest between them or without."""
    there = played(KRaftBounds(), [(Act(KILL, 2),), (Act(START, 2),)])
    again = played(KRaftBounds(), [(Act(KILL, 2), Act(START, 2))])
    assert there is not None
    assert again is not None
    steps = [(Act(KILL, 2),), (Act(START, 2),)]
    assert state_of(there, steps) == state_of(again, steps)
    assert state_of(there, steps) != state_of(there, steps[:1]), "what is left of the bounds counts"


def test_an_exploration_ends_where_nothing_is_new() -> None:
    found = explore_kraft(NOTHING)
    assert (found.states, found.transitions, found.depth, found.complete, found.found) == (1, 0, 0, True, [])
    written = explore_kraft(KRaftBounds(records=1, flushes=0, stops=0, kills=0, power_losses=0, haste=False))
    assert (written.states, written.transitions, written.depth, written.acknowledged) == (2, 1, 1, 1)
    assert not explore_kraft(KRaftBounds(records=2), max_states=1).complete


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("elr", [True, False])
def test_every_schedule_with_one_unclean_restart(elr: bool) -> None:
    """With eligible leaders neither of two records is lost; without them the search finds the loss, in four acts."""
    found = explore_kraft(KRaftBounds(elr=elr, records=2, flushes=0, kills=0))
    assert found.complete
    assert found.states > 500
    if elr:
        assert found.found == []
    else:
        [loss] = found.found
        assert (loss.invariant, sum(map(len, loss.schedule))) == ("K1", 4)
