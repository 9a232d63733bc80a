"""Each rule of the Raft node is missed when it is taken away."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.simulator.quorum_mutants import BY_HISTORY, BY_SCHEDULE, Mutant

from tidegauge_proof.simulator.quorum.quorum_history import quorum_history_of


def _name(given: object) -> str:
    return getattr(given, "__name__", str(given))


@pytest.mark.parametrize(("mutant", "seed", "steps", "invariant"), BY_HISTORY, ids=_name)
def test_a_history_misses_the_rule(
    mutant: Mutant, seed: int, steps: int, invariant: str, monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    violation = quorum_history_of(seed, steps).violation
    assert violation is not None
    assert violation.invariant == invariant


@pytest.mark.parametrize(("mutant", "schedule"), BY_SCHEDULE, ids=_name)
def test_a_schedule_misses_the_rule(mutant: Mutant, schedule: Callable[[], None], monkeypatch: pytest.MonkeyPatch):
    schedule()
    mutant(monkeypatch)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        schedule()
