"""Each rule of the Raft node is missed when it is taken away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.simulator.quorum_mutants import BY_HISTORY, BY_SCHEDULE, Mutant
from tests.unit.simulator.test_quorum_schedules import MISSED

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


def test_the_table_of_the_results_has_every_rule_with_its_conviction():
    table = (Path(__file__).parents[3] / "docs/results/rules-taken-away.md").read_text(encoding="utf-8")
    rows = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines() if line.startswith("| ")}
    for mutant, seed, _, invariant in BY_HISTORY:
        assert f"histories, seed {seed} ({invariant})" in rows[_name(mutant).replace("_", " ")]
    for mutant, schedule in BY_SCHEDULE:
        assert f"::{_name(schedule)}`" in rows[_name(mutant).replace("_", " ")]
    for mutant, _, invariant in MISSED:
        assert f"search ({invariant})" in rows[_name(mutant).replace("_", " ")]
    assert len({_name(mutant) for mutant, *_ in (*BY_HISTORY, *BY_SCHEDULE, *MISSED)}) >= 30
