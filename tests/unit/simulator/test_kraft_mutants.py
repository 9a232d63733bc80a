"""Each rule of a cluster in KRaft mode is missed when it is taken away."""

from __future__ import annotations

import pytest
from tests.unit.simulator.kraft_mutants import MUTANTS, Mutant

from tidegauge_proof.simulator.kraft.kraft_history import kraft_history_of

STEPS = 60


def _name(given: object) -> str:
    return getattr(given, "__name__", str(given))


@pytest.mark.parametrize(("mutant", "seed", "invariant"), MUTANTS, ids=_name)
def test_a_history_misses_the_rule(mutant: Mutant, seed: int, invariant: str, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    violation = kraft_history_of(seed, STEPS).violation
    assert violation is not None
    assert violation.invariant == invariant


def test_the_histories_of_the_mutants_break_nothing_without_them():
    for seed in {seed for _, seed, _ in MUTANTS}:
        assert kraft_history_of(seed, STEPS).violation is None
