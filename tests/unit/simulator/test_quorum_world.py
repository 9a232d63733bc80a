"""Histories of a quorum of controllers: the invariants of Raft hold in each, and a seed gives one history."""

from __future__ import annotations

import pytest

from tidegauge_proof.simulator.quorum.quorum_history import quorum_history_of

SEEDS = range(12)
STEPS = 60


@pytest.mark.parametrize("seed", SEEDS)
def test_no_invariant_breaks(seed: int):
    """Q1 to Q14 of ``quorum_checker``, with static voters and with voters in the log."""
    history = quorum_history_of(seed, STEPS)
    assert history.violation is None, f"{history.violation.invariant}: {history.violation.message}"


def test_a_seed_gives_one_history():
    first, second = (quorum_history_of(3, STEPS, tells=True) for _ in range(2))
    assert first.story == second.story
    assert (first.inputs, first.elections, first.commits) == (second.inputs, second.elections, second.commits)
