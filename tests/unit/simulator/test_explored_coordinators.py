"""All schedules of a group and of a transaction on a coordinator that dies: explored to the end, by eyes that see.

The statements are G1 to G9 and T1 to T10 of the simulator's checkers (group_checker.py, transaction_checker.py). The
removed rules are the same as in the histories with the same names.
"""

from __future__ import annotations

import json
import os
import sys
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from tests.unit.simulator import test_group_histories as of_groups
from tests.unit.simulator import test_transaction_histories as of_transactions

from tidegauge.machine_code import Use
from tidegauge_proof.cli import explore_coordinators
from tidegauge_proof.cli.explore import explore
from tidegauge_proof.exhaustive.breadth_first import Exploration
from tidegauge_proof.exhaustive.canonical import canonical
from tidegauge_proof.exhaustive.coordinated import GROUP, TRANSACTION, CoordinatorBounds, CoordinatorExplorer, words_of
from tidegauge_proof.exhaustive.group_cluster import GroupCluster
from tidegauge_proof.exhaustive.machines import Cell, Machines
from tidegauge_proof.exhaustive.snapshot import dump, load
from tidegauge_proof.exhaustive.transaction_cluster import TransactionCluster

World = GroupCluster | TransactionCluster


def world_of(world: str, **bounds: int) -> World:
    wanted = CoordinatorBounds(world, **bounds)
    return GroupCluster(wanted) if world == GROUP else TransactionCluster(wanted)


def explored(world: str, *, max_states: int = 1_000_000, fail_fast: bool = False, **bounds: int) -> Exploration:
    return CoordinatorExplorer(world_of(world, **bounds), max_states=max_states, fail_fast=fail_fast).run()


def _hold(result: Exploration, states: int, transitions: int) -> None:
    assert [(found.invariant, found.message) for found in result.found] == []
    assert result.complete
    assert (result.states, result.transitions) == (states, transitions)


# Complete within bounds

SMALL: list[tuple[str, dict[str, int], int, int]] = [
    (GROUP, {}, 377, 709),
    (GROUP, {"commits": 1}, 2297, 4935),
    (TRANSACTION, {"producers": 1}, 271, 598),
]
"""Bounds, with how many states and transitions there are."""


@pytest.mark.parametrize(("world", "bounds", "states", "transitions"), SMALL)
def test_small_bounds_are_explored_to_their_end_and_hold(
    world: str, bounds: dict[str, int], states: int, transitions: int
):
    _hold(explored(world, **bounds), states, transitions)


LARGE: list[tuple[str, dict[str, int], int, int]] = [
    (TRANSACTION, {"producers": 1, "crashes": 1}, 6970, 18948),
    (TRANSACTION, {}, 28615, 98810),
]


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("world", "bounds", "states", "transitions"), LARGE)
def test_larger_bounds_are_explored_to_their_end_and_hold(
    world: str, bounds: dict[str, int], states: int, transitions: int
):
    _hold(explored(world, **bounds), states, transitions)


@pytest.mark.parametrize("world", [GROUP, TRANSACTION])
def test_the_same_bounds_give_the_same_states(world: str):
    one, other = (explored(world, crashes=1, max_states=200) for _ in range(2))
    assert (one.digest, one.states, one.transitions) == (other.digest, other.states, other.transitions)
    assert one.states == 200
    assert not one.complete


# States


class _Followed(Machines):
    """Keeps every event of the coordinator, beside a coordinator that is never frozen."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[bytes, list[tuple[Any, ...]]] = {}

    def apply(self, cell: Cell, *event: Any) -> tuple[Cell, Any]:
        after, out = super().apply(cell, *event)
        if cell.key in self.live:
            self.live.setdefault(after.key, [*self.live[cell.key], event])
        return after, out


BUSY = {"crashes": 2, "resignations": 1, "failures": 2, "losses": 2, "duplicates": 2, "ticks": 3, "restarts": 1}


@pytest.mark.parametrize(("world", "more"), [(GROUP, {"commits": 2, "leaves": 1, "static": 1}), (TRANSACTION, {})])
def test_a_coordinator_that_is_frozen_after_every_event_goes_the_way_of_one_that_never_is(
    world: str, more: dict[str, int]
):
    for seed in range(3):
        random = Random(seed)
        cluster = world_of(world, **BUSY, **more)
        cluster.machines = followed = _Followed()
        state = cluster.begin()
        first = type(state.server.machine())()
        followed.live = {canonical(first): []}
        state = cluster.begin()
        for _ in range(60):
            state = cluster.apply(state, random.choice(list(cluster.actions(state))))
        events = followed.live[state.server.key]
        assert len(events) > 20
        for event in events:
            first.handle(event)
        assert canonical(first) == state.server.key
        assert first.facts() == state.server.facts


def test_functions_keep_what_they_have_from_around_them():
    """Two that share a variable still do, and one that refers to itself does."""
    kept = [1]

    def count(step: int = 2) -> int:
        kept[0] += step
        return kept[0] if kept[0] > 3 else count()

    again, values = load(dump((count, kept)))
    assert (again(), values, kept) == (5, [5], [1])


# Rules taken away

SEEN: list[tuple[Any, dict[str, int], set[str]]] = [
    (of_groups.responds_before_the_record_is_committed, {}, {"G4"}),
    (of_groups.acknowledges_commits_at_once, {"commits": 1}, {"G4", "G5"}),
    (of_groups.takes_commits_of_any_generation, {"commits": 1}, {"G6"}),
    (of_groups.takes_commits_while_completing, {"commits": 1}, {"G6"}),
    (of_groups.forgets_assignments_in_a_load, {"crashes": 1}, {"G7"}),
    (of_groups.leaves_failed_commits_pending, {"commits": 1}, {"G5"}),
    (of_groups.parks_what_it_should_respond_to, {}, {"G8", "G9"}),
    (of_transactions.applies_changes_before_they_are_committed, {}, {"T4"}),
    (of_transactions.marks_before_the_decision_is_committed, {}, {"T4"}),
    (of_transactions.completes_without_waiting_for_markers, {}, {"T3"}),
    (of_transactions.takes_failed_markers_for_written, {"failures": 1}, {"T3"}),
    (of_transactions.takes_lost_markers_for_written, {"losses": 1}, {"T3"}),
    (of_transactions.marks_one_partition_only, {}, {"T3"}),
    (of_transactions.commits_what_was_aborted, {}, {"T2"}),
    (of_transactions.responds_twice, {}, {"Once"}),
    (of_transactions.sends_no_markers_after_a_load, {"crashes": 1}, {"Load"}),
    (of_transactions.sends_the_markers_of_loaded_decisions_at_once, {"crashes": 1}, {"T4"}),
    (of_transactions.takes_a_refused_decision_for_committed, {"crashes": 1, "failures": 1}, {"T4"}),
    (of_transactions.forgets_partitions_in_a_load, {"crashes": 1}, {"Load"}),
    (of_transactions.verifies_everything, {}, {"Fence"}),
    (of_transactions.does_not_check_the_producer, {}, {"Fence"}),
]


def _is_seen(rule: Any, bounds: dict[str, int], invariants: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    rule(monkeypatch)
    world = GROUP if rule.__module__ == of_groups.__name__ else TRANSACTION
    result = explored(world, max_states=4000, fail_fast=True, **bounds)
    assert {found.invariant for found in result.found} <= invariants
    (found,) = result.found
    words = words_of(world_of(world), found)
    assert len(words) == len(found.schedule) + (found.steps < len(found.schedule))


@pytest.mark.parametrize(("rule", "bounds", "invariants"), SEEN, ids=lambda one: getattr(one, "__name__", None))
def test_without_a_rule_a_schedule_is_found(
    rule: Any, bounds: dict[str, int], invariants: set[str], monkeypatch: pytest.MonkeyPatch
):
    _is_seen(rule, bounds, invariants, monkeypatch)


# The verb


def test_the_verb_says_that_it_has_seen_all():
    done = CliRunner().invoke(explore, ["--world", "group"])
    assert done.exit_code == 0, done.output
    assert "377 states and 709 transitions of a group" in done.stdout
    assert (
        "Complete: there is no other state within the bounds, and from each all comes to rest in order." in done.stdout
    )
    assert "All invariants held." in done.stdout


def test_a_compiled_verb_says_that_it_goes_on_interpreted(monkeypatch: pytest.MonkeyPatch):
    """Functions that a coordinator keeps for later can't be copied out of machine code, so the process is replaced."""
    started: list[tuple[str, list[str], dict[str, str]]] = []

    def replace_process(path: str, arguments: list[str], environment: dict[str, str]) -> None:
        started.append((path, arguments, environment))
        raise SystemExit(0)

    monkeypatch.setattr(explore_coordinators, "IN_USE", Use(is_compiled=True))
    monkeypatch.setattr(os, "execve", replace_process)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-I", "tidegauge", "explore", "--world", "group"])
    done = CliRunner().invoke(explore, ["--world", "group"])
    ((path, arguments, environment),) = started
    assert (path, arguments) == (sys.executable, [sys.executable, "-I", "tidegauge", "explore", "--world", "group"])
    assert environment == {**os.environ, "TIDEGAUGE_COMPILED": "off"}
    assert done.stderr.startswith("Interpreted, since ")
    assert done.stdout == ""


def test_the_verb_prints_a_shortest_schedule(monkeypatch: pytest.MonkeyPatch):
    of_groups.responds_before_the_record_is_committed(monkeypatch)
    done = CliRunner().invoke(explore, ["--world", "group", "--fail-fast"])
    assert done.exit_code == 1
    assert "G4 is broken in 5 steps:" in done.stdout
    assert "    1  JoinGroup of m0 arrives" in done.stdout
    found = json.loads(CliRunner().invoke(explore, ["--world", "group", "--fail-fast", "-o", "json"]).stdout)
    (violation,) = found["violations"]
    assert (violation["invariant"], violation["steps"], len(violation["schedule"])) == ("G4", 5, 5)
    assert found["bounds"]["crashes"] == 0
    assert not found["complete"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--world", "group", "--replicas", "3"], "--world group takes no --replicas"),
        (["--world", "transaction", "--commits", "1"], "--world transaction takes no --commits"),
        (["--world", "group", "--transactions", "1"], "--world group takes no --transactions"),
        (["--losses", "1"], "--world replication takes no --losses"),
    ],
)
def test_bounds_of_other_worlds_are_refused(arguments: list[str], words: str):
    refused = CliRunner().invoke(explore, arguments)
    assert refused.exit_code == 2
    assert words in refused.stderr
