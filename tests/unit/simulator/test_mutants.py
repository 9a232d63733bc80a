"""One rule away, and the simulator must notice: else nothing is proved by its silence (docs/simulation.md).

Two searches share the work: random histories (``simulate``: every message, fault and disk) and random traces (the steps
of ``replay``, the state space of the published models). Mutants found within seconds run always, the rest is ``long``;
docs/simulation.md has the table with seeds and times. A rule that can be missing unnoticed is a missing check.
"""

from __future__ import annotations

import json

import pytest
from mutants import CONTROLS, DISK_MUTANTS, MUTANTS, Mutant
from tests.examples import examples
from tests.unit.simulator.model_search import as_json, random_trace, shortened

from tidegauge_proof.simulator.replay import replay
from tidegauge_proof.simulator.simulation import history_of
from tidegauge_proof.simulator.trace import read_trace

BY_TRACES = {
    "M2": 0,
    "M3": 166,
    "M4": 0,
    "M5": 248,
    "M6": 6000,
    "epochs-unchecked": 540,
    "diverging-unfenced": 6000,
}
"""Found soonest by traces; the seed is where the search begins."""
FIRST_SEEDS = {"unreported": 213}
"""Of a search that would pass over hundreds of histories before it finds the flaw."""
SLOW = {"M2", "M6", "rollback", "zombie-overwrites", "diverging-unfenced"}
"""Take longer than a test of every day should."""


def traces_until_broken(seed: int, limit: int) -> str:
    """Return the invariant that the first bad trace breaks, if any; shorten the trace."""
    for number in range(seed, seed + limit):
        found = random_trace(number, 50, "kip-320")
        if not found.outcome.held:
            short = shortened(found)
            assert len(short.trace.steps) <= len(found.trace.steps)
            return str(short.outcome.violations[0]["invariant"])
    return ""


def histories_until_broken(limit: int) -> str:
    """Return the invariant that the first bad history of one partition breaks."""
    for seed in range(limit):
        violation = history_of(seed, 500, directories=1).violation
        if violation is not None:
            return violation.invariant
    return ""


def disk_histories_until_broken(limit: int, first: int = 0) -> str:
    """Return the invariant that the first bad history with two directories breaks."""
    for seed in range(first, first + limit):
        violation = history_of(seed, 500, directories=2).violation
        if violation is not None:
            return violation.invariant
    return ""


def look_for(mutant: Mutant, monkeypatch: pytest.MonkeyPatch, limit: int) -> str:
    for owner, name, value in mutant.patches:
        monkeypatch.setattr(owner, name, value)
    if mutant.id in BY_TRACES:
        return traces_until_broken(BY_TRACES[mutant.id], 10 * limit)
    return histories_until_broken(limit)


def test_there_are_enough_of_them():
    """All fourteen published variants that are rules and not faults, and our own: forty at least."""
    ids = [mutant.id for mutant in MUTANTS]
    published = {"M1", "M2", "M2b", "M3", "M4", "M5", "M6", "M7", "M8", "M12", "M13", "M14", "M15"}
    assert published | {"M9-expand", "M9-shrink"} <= set(ids)
    assert len(set(ids)) == len(ids) >= 40
    assert set(ids) >= SLOW | set(BY_TRACES)


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.id not in SLOW], ids=lambda mutant: mutant.id)
def test_without_a_rule_something_breaks(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    assert look_for(mutant, monkeypatch, 300), f"nothing breaks where this does not hold: {mutant.rule}"


@pytest.mark.parametrize("mutant", DISK_MUTANTS, ids=lambda mutant: mutant.id)
def test_a_failure_that_is_not_kept_to_its_partition_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    """With two log directories: a step that ends at the first failure, a read that loses effects, and their kind."""
    for owner, name, value in mutant.patches:
        monkeypatch.setattr(owner, name, value)
    assert disk_histories_until_broken(300, FIRST_SEEDS.get(mutant.id, 0)), (
        f"nothing breaks where this does not hold: {mutant.rule}"
    )


@pytest.mark.long
@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.id in SLOW], ids=lambda mutant: mutant.id)
def test_without_a_rule_something_breaks_in_the_end(mutant: Mutant, monkeypatch: pytest.MonkeyPatch):
    assert look_for(mutant, monkeypatch, 6000), f"nothing breaks where this does not hold: {mutant.rule}"


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.id)
def test_with_every_rule_nothing_breaks(control: Mutant, monkeypatch: pytest.MonkeyPatch):
    for owner, name, value in control.patches:
        monkeypatch.setattr(owner, name, value)
    assert histories_until_broken(examples(15)) == ""
    assert disk_histories_until_broken(examples(10)) == ""
    assert traces_until_broken(0, examples(100)) == ""


def test_power_losses_break_no_trace():
    """Records lost with power are named, and their loss breaks nothing below the other replicas' high watermarks."""
    found = [random_trace(seed, 60, "kip-320", power=0.7) for seed in range(100)]
    assert all(one.outcome.held for one in found)
    assert any(one.outcome.lost_by_power for one in found)


def test_a_found_trace_is_a_file_that_breaks_the_same(monkeypatch: pytest.MonkeyPatch):
    """So a counterexample can be kept and replayed: here of a leader that commits what one follower has."""
    mutant = next(one for one in MUTANTS if one.id == "M15")
    for owner, name, value in mutant.patches:
        monkeypatch.setattr(owner, name, value)
    found = next(one for seed in range(100) if not (one := random_trace(seed, 50, "kip-320")).outcome.held)
    short = shortened(found)
    again = replay(read_trace(json.dumps(as_json(short))), "kip-320")
    assert again.violations == short.outcome.violations
    assert len(short.trace.steps) <= 12
    monkeypatch.undo()
    assert replay(read_trace(json.dumps(as_json(short))), "kip-320").held
