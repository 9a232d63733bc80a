"""Every schedule of a small quorum of the real Raft nodes: searches to their end, and rules that they miss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.unit.simulator import quorum_mutants as mutants
from tests.unit.simulator.quorum_mutants import Mutant

from tidegauge_controller.raft.states import Follower
from tidegauge_proof.exhaustive.breadth_first import Exploration
from tidegauge_proof.exhaustive.quorum_explorer import QuorumExplorer, words_of
from tidegauge_proof.exhaustive.quorum_small import QuorumBounds, QuorumState, SmallQuorum
from tidegauge_proof.simulator.checker import Violation

ONE_ELECTION = QuorumBounds(epochs=1, timeouts=2)
TWO_EPOCHS = QuorumBounds(epochs=2, timeouts=2)
ONE_CHANGE = QuorumBounds(version=1, epochs=1, timeouts=1, changes=1)
ONE_SNAPSHOT = QuorumBounds(epochs=1, timeouts=2, snapshots=1)


def explored(bounds: QuorumBounds, *, fail_fast: bool = False) -> Exploration:
    return QuorumExplorer(SmallQuorum(bounds), fail_fast=fail_fast).run()


def test_every_schedule_of_one_election_with_two_candidates_holds() -> None:
    found = explored(ONE_ELECTION)
    assert found.complete
    assert found.found == []
    assert found.states > 3000


def test_every_schedule_of_one_change_of_the_voter_set_holds() -> None:
    found = explored(ONE_CHANGE)
    assert found.complete
    assert found.found == []
    assert found.states > 3000


def test_every_schedule_of_one_snapshot_holds() -> None:
    """KIP-630: a follower that lags behind the leader's log gets the snapshot, and goes on behind it."""
    found = explored(ONE_SNAPSHOT)
    assert found.complete
    assert found.found == []
    assert found.states > 8000


def test_a_follower_installs_the_snapshot_of_a_leader_whose_log_begins_behind_it() -> None:
    quorum = SmallQuorum(replace(ONE_SNAPSHOT, timeouts=1))
    installed = {
        (cell.node.log.start_offset, cell.node.high_watermark)
        for state in walked(quorum)
        for cell in state.cells
        if isinstance(cell.node.state, Follower) and cell.disk.snapshots and not cell.disk.log
    }
    assert installed == {(1, 1)}


def test_the_same_bounds_give_the_same_states() -> None:
    bounds = replace(ONE_ELECTION, timeouts=1)
    first, second = explored(bounds), explored(bounds)
    assert (first.states, first.transitions, first.digest) == (second.states, second.transitions, second.digest)


def walked(quorum: SmallQuorum) -> Iterator[QuorumState]:
    """Yield all states, those apart that differ in the names of nodes alone."""
    first = quorum.begin()
    seen, waiting = {first}, [first]
    while waiting:
        state = waiting.pop()
        yield state
        for action in quorum.actions(state):
            reached = quorum.apply(state, action)
            if reached is not None and reached not in seen:
                seen.add(reached)
                waiting.append(reached)


def test_states_that_differ_in_names_alone_count_as_one() -> None:
    """The search that tells nodes apart finds no state that the other one lacks."""
    bounds = QuorumBounds(epochs=1, timeouts=1, records=1)
    quorum = SmallQuorum(bounds)
    states = list(walked(quorum))
    classes = {quorum.key(state) for state in states}
    assert len(classes) == explored(bounds).states
    assert len(classes) * 4 < len(states)


def test_a_response_as_a_step_of_its_own_leads_to_all_other_states_too() -> None:
    bounds = replace(ONE_ELECTION, timeouts=1)
    apart = SmallQuorum(replace(bounds, split=True))
    classes = {apart.key(state) for state in walked(apart)}
    together = SmallQuorum(bounds)
    assert {together.key(state) for state in walked(together)} <= classes


MISSED: tuple[tuple[Mutant, QuorumBounds, str], ...] = (
    (mutants.votes_twice, ONE_ELECTION, "Q2"),
    (mutants.grants_before_the_vote_is_written, ONE_ELECTION, "Q2"),
    (mutants.half_of_the_voters_is_a_majority, ONE_ELECTION, "Q1"),
    (mutants.a_pre_vote_counts_as_a_vote, ONE_ELECTION, "Q1"),
    (mutants.forgets_its_vote_at_a_restart, replace(ONE_ELECTION, kills=1), "Q2"),
    (mutants.does_not_compare_logs, TWO_EPOCHS, "Q6"),
    (mutants.commits_records_of_former_epochs, TWO_EPOCHS, "Q7"),
    (mutants.a_minority_commits, ONE_ELECTION, "Q9"),
    (mutants.a_leader_counts_what_it_has_not_flushed, ONE_ELECTION, "Q9"),
    (mutants.a_follower_fetches_before_its_flush, ONE_ELECTION, "Q9"),
    (mutants.two_changes_at_once, replace(ONE_CHANGE, changes=2), "Q10"),
    (mutants.changes_before_its_epoch_is_committed, ONE_CHANGE, "Q10"),
    (mutants.a_change_is_acknowledged_before_its_commit, ONE_CHANGE, "Q11"),
    (mutants.a_removed_leader_counts_itself, ONE_CHANGE, "Q9"),
    (mutants.a_log_behind_a_snapshot_has_no_last_epoch, replace(TWO_EPOCHS, snapshots=1), "Q13"),
    (mutants.the_log_does_not_begin_behind_an_installed_snapshot, ONE_SNAPSHOT, "Q13"),
)
"""Rules that are taken away, the bounds of a search, and the invariant that it finds broken first."""


@pytest.mark.parametrize(("mutant", "bounds", "invariant"), MISSED, ids=lambda one: getattr(one, "__name__", ""))
def test_a_rule_that_is_taken_away_is_missed(
    mutant: Mutant, bounds: QuorumBounds, invariant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant(monkeypatch)
    [found] = explored(bounds, fail_fast=True).found
    assert found.invariant == invariant
    assert all(words_of(action) for action in found.schedule)


def test_the_schedule_that_is_found_leads_to_the_violation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figure 8 of the Raft paper in its least form: what a former leader appended is committed by its count alone."""
    mutants.commits_records_of_former_epochs(monkeypatch)
    [found] = explored(TWO_EPOCHS, fail_fast=True).found
    quorum = SmallQuorum(TWO_EPOCHS)
    state = quorum.begin()
    for action in found.schedule[:-1]:
        # Calls and messages are objects of the search: the step with the same words is the same.
        reached = [quorum.apply(state, one) for one in quorum.actions(state) if words_of(one) == words_of(action)]
        [state] = [one for one in reached if one is not None][:1]
    with pytest.raises(Violation, match="Q7"):
        for one in quorum.actions(state):
            if words_of(one) == words_of(found.schedule[-1]):
                quorum.apply(state, one)


LONG = (
    replace(TWO_EPOCHS, timeouts=3),
    replace(TWO_EPOCHS, split=True),
    replace(TWO_EPOCHS, records=1),
    replace(TWO_EPOCHS, power_losses=1),
    replace(TWO_EPOCHS, losses=1, late=1),
    replace(TWO_EPOCHS, version=1, changes=1),
    replace(TWO_EPOCHS, voters=2, observers=1, version=1, changes=1),
    replace(TWO_EPOCHS, snapshots=2),
    replace(TWO_EPOCHS, snapshots=1, power_losses=1),
    replace(TWO_EPOCHS, snapshots=1, losses=1),
    replace(TWO_EPOCHS, voters=2, observers=1, version=1, changes=1, snapshots=1),
)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "bounds",
    LONG,
    ids=[
        *("three-timeouts", "late-responses", "record", "power-loss", "late-message", "removal", "addition"),
        *("snapshots", "snapshot-and-power-loss", "snapshot-and-lost-message", "snapshot-and-addition"),
    ],
)
def test_every_schedule_over_two_epochs_holds(bounds: QuorumBounds) -> None:
    """Some 15,000 to 270,000 states each, in at most a minute of processor time."""
    found = explored(bounds)
    assert found.complete
    assert found.found == []
