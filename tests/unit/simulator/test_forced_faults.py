"""Faults that strike at each named step of a transaction: every step is reached, and T1 to T14 hold after each fault.

The statements come from proof/tidegauge_proof/simulator/exactly_once/joint_checker.py.
"""

from __future__ import annotations

import pytest

from tidegauge_proof.simulator.exactly_once.forced_history import Forced, forced_history_of
from tidegauge_proof.simulator.exactly_once.forced_steps import FENCING, LOADING, STEPS

FAULTS = ("kill", "kill-silently", "bounce", "pause", "isolate")
LEADERS = ("transactions", "offsets", "output")
QUICK = (
    ("InitProducerId appended", "kill", "transactions"),
    ("AddPartitionsToTxn replicated", "kill", "transactions"),
    ("data replicated", "kill", "output"),
    ("TxnOffsetCommit pending", "kill", "offsets"),
    ("PrepareCommit replicated", "kill", "transactions"),
    ("some markers committed", "kill-silently", "transactions"),
    ("marker of offsets appended", "kill", "offsets"),
    ("markers responded to", "kill-silently", "transactions"),
    ("CompleteCommit appended", "pause", "transactions"),
    ("data acknowledged", "isolate", "offsets"),
)
"""A tenth of a second or so each; the others run in ``make test-long``."""


def _hold(*forced: Forced, seed: int = 0) -> None:
    history = forced_history_of(seed, *forced)
    assert history.violation is None, f"{forced}, step {history.steps}: {history.violation}"
    assert tuple(history.struck) == forced, "a step was not reached"
    assert history.committed
    assert history.copied


@pytest.mark.parametrize("forced", [Forced(*one) for one in QUICK], ids=str)
def test_a_fault_at_a_step_breaks_nothing(forced):
    _hold(forced)


@pytest.mark.long
@pytest.mark.parametrize("whom", LEADERS)
@pytest.mark.parametrize("fault", FAULTS)
def test_every_step_is_reached_and_its_faults_break_nothing(fault, whom):
    for step in STEPS:
        _hold(Forced(step, fault, whom))


@pytest.mark.long
@pytest.mark.parametrize("whom", LEADERS)
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("of_copier", ["restart", "pause"])
def test_every_step_of_a_fence_is_reached_and_its_faults_break_nothing(of_copier, fault, whom):
    """The producer begins again, or stands still until its transaction times out."""
    for step in FENCING:
        _hold(Forced("data acknowledged", of_copier, "copier"), Forced(step, fault, whom))


@pytest.mark.long
@pytest.mark.parametrize("before", ["PrepareCommit replicated", "some markers appended", "TxnOffsetCommit pending"])
@pytest.mark.parametrize("fault", FAULTS)
def test_every_step_of_a_load_is_reached_and_its_faults_break_nothing(fault, before):
    """The next coordinator is struck while it reads its log."""
    for step in LOADING:
        first = "transactions" if "transactions" in step else "offsets"
        for whom in LEADERS:
            _hold(Forced(before, "kill", first), Forced(step, fault, whom))


def test_the_same_arguments_give_the_same_history():
    forced = Forced("markers sent", "kill", "transactions")
    assert forced_history_of(3, forced, tells=True).story == forced_history_of(3, forced, tells=True).story
