"""One rule away, and the exhaustive search finds it within small bounds, every time and by a shortest schedule.

The mutants come from the random search (mutants.py). The table here has the bounds within which each is found.
Mutants that it does not name need larger bounds, or parts that the explored cluster has not (clients, controllers that
overlap); docs/results/explorations.md has the list.
"""

from __future__ import annotations

import pytest
from mutants import CONTROLS, MUTANTS, Mutant

from tidegauge_proof.exhaustive.cluster import KAFKA, Bounds
from tidegauge_proof.exhaustive.explorer import Explorer

PAIR = Bounds(replicas=2, records=2, elections=2)
ON_THE_WAY = Bounds(replicas=2, records=1, elections=1, messages=1)
CRASHES = Bounds(replicas=2, records=2, elections=3, controller=KAFKA, crashes=1)
THREE = Bounds(replicas=3, records=1, elections=1)
MODEL = Bounds(replicas=3, records=2, elections=2)
"""The bounds of the published models: a quarter of a million states until these break, half a minute or more."""

KILLED = {
    "M1": (PAIR, "WeakIsr", 12),
    "M2": (PAIR, "WeakIsr", 13),
    "M2b": (PAIR, "WeakIsr", 10),
    "M3": (PAIR, "WeakIsr", 11),
    "M4": (THREE, "StrongIsr", 11),
    "M5": (PAIR, "EpochsMonotone", 9),
    "M7": (PAIR, "WeakIsr", 6),
    "M8": (PAIR, "LeaderInIsrOrNone", 4),
    "M9-expand": (ON_THE_WAY, "WeakIsr", 7),
    "M9-shrink": (PAIR, "I4", 3),
    "M10": (CRASHES, "CommittedInIsr", 6),
    "M13": (PAIR, "WeakIsr", 8),
    "M14": (PAIR, "WeakIsr", 6),
    "M15": (THREE, "WeakIsr", 6),
    "commit-majority": (THREE, "WeakIsr", 6),
    "commit-alone": (PAIR, "WeakIsr", 3),
    "commit-on-sending": (PAIR, "WeakIsr", 5),
    "rollback": (ON_THE_WAY, "StrongIsr", 10),
    "epochs-unchecked": (PAIR, "EpochsMonotone", 9),
    "join-anybody": (PAIR, "WeakIsr", 6),
    "isr-leader-epoch": (PAIR, "LeaderInIsrOrNone", 4),
    "same-epoch": (CRASHES, "LogMatchingRaft", 7),
    "prefers-anybody": (CRASHES, "StrongIsr", 6),
    "removes-the-last": (CRASHES, "IsrNotEmpty", 5),
}
"""The bounds, the invariant that is broken first, and the steps of its shortest schedule."""
KILLED_LATE = {"M6": (MODEL, "WeakIsr", 13), "M12": (MODEL, "FollowerPrefixOfLeader", 13)}
"""The same, of those that need three replicas and three epochs; they run in ``make test-long``."""
NAMED = {mutant.id: mutant for mutant in (*MUTANTS, *CONTROLS)}


@pytest.mark.parametrize("name", [*KILLED, *(pytest.param(name, marks=pytest.mark.long) for name in KILLED_LATE)])
def test_without_a_rule_some_schedule_breaks_an_invariant(name: str, monkeypatch: pytest.MonkeyPatch):
    bounds, invariant, steps = (KILLED | KILLED_LATE)[name]
    without(NAMED[name], monkeypatch)
    (found, *_) = Explorer(bounds, "kip-320", fail_fast=True).run().found
    assert (found.invariant, len(found.schedule)) == (invariant, steps)


@pytest.mark.long
@pytest.mark.parametrize("name", ["asks-first", "none"])
def test_with_every_rule_no_schedule_does(name: str, monkeypatch: pytest.MonkeyPatch):
    """So the findings above come from the missing rule, and not from the exploration itself."""
    without(NAMED[name], monkeypatch)
    for bounds in (ON_THE_WAY, PAIR):
        result = Explorer(bounds, "kip-320").run()
        assert result.complete
        assert result.found == []


def without(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name, value in mutant.patches:
        monkeypatch.setattr(owner, name, value)
