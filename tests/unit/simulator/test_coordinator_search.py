"""``tidegauge simulate --world``: many histories with coordinators, in sittings, and what a user reads of them."""

from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_proof.cli.simulate import simulate
from tidegauge_proof.simulator import coordinator_search as module
from tidegauge_proof.simulator.coordinator_search import (
    EXACTLY_ONCE,
    FORCED,
    GROUPS,
    KINDS,
    KRAFT,
    KRAFT_WITHOUT_ELR,
    QUORUM,
    TRANSACTIONS,
    CoordinatorFinding,
    CoordinatorPlan,
    CoordinatorResult,
    search_coordinators,
    search_coordinators_in_pieces,
)
from tidegauge_proof.simulator.exactly_once.forced_schedules import SCHEDULES, forced_of
from tidegauge_proof.simulator.exactly_once.network import LATE, LATE_ENDS, MODES, TIMELY
from tidegauge_proof.simulator.search import IS_COMPILED
from tidegauge_proof.simulator.world import World

HASTY_SEEDS = 12
"""Among so many histories the mutant below is found."""
PLAN = CoordinatorPlan(GROUPS, seed=3, runs=4, steps=200)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that acknowledges what it appends at once."""
    append = GroupRuntime.append_record

    def append_hastily(self: GroupRuntime, partition: int, batch: bytes, outcome) -> None:
        append(self, partition, batch, lambda *_: None)
        outcome(ErrorCode.NONE, 0)

    monkeypatch.setattr(GroupRuntime, "append_record", append_hastily)


def timeless(result: CoordinatorResult) -> CoordinatorResult:
    result.seconds = 0.0
    return result


def test_the_same_seeds_give_the_same_result_in_one_piece_and_in_parts():
    whole = timeless(search_coordinators(PLAN))
    parts = CoordinatorResult()
    for seed, runs in ((3, 1), (4, 3)):
        parts.merge(search_coordinators(CoordinatorPlan(GROUPS, seed, runs, 200)))
    assert whole == timeless(parts)
    assert (whole.runs, whole.steps) == (4, 800)
    assert whole.events > whole.steps, "a step is more than one event"


def test_several_processes_give_what_one_gives():
    plan = CoordinatorPlan(GROUPS, seed=3, runs=4, steps=50)
    assert timeless(search_coordinators(plan, jobs=2)) == timeless(search_coordinators(plan))


def test_a_result_with_violations_passes_between_processes():
    """Exceptions with two arguments do not; so violations are kept as values."""
    result = CoordinatorResult(1, 7, findings=[CoordinatorFinding(3, 7, "G1", "why")])
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301 - our own bytes


@pytest.mark.parametrize(
    ("world", "requests"),
    [(TRANSACTIONS, TIMELY), (TRANSACTIONS, LATE), *((EXACTLY_ONCE, mode) for mode in MODES), (FORCED, TIMELY)],
)
def test_each_world_counts_its_events_in_every_mode(world: str, requests: str):
    result = search_coordinators(CoordinatorPlan(world, seed=14, runs=1, steps=300, requests=requests))
    assert not result.findings
    assert result.events > 100
    assert set(result.counts) == set(KINDS[world].counts)


def test_events_of_coordinators_count_beside_those_of_the_cluster(monkeypatch: pytest.MonkeyPatch):
    alone = {QUORUM, KRAFT, KRAFT_WITHOUT_ELR}
    of_both = {world: CoordinatorPlan(world, steps=200).history(14).inputs for world in KINDS if world not in alone}
    monkeypatch.setattr(World, "inputs", 0)
    for world, inputs in of_both.items():
        assert 0 < CoordinatorPlan(world, steps=200).history(14).inputs < inputs


# Pieces


def no_search(*_: object, **__: object) -> CoordinatorResult:
    raise AssertionError("this piece stands in the file")


@pytest.mark.usefixtures("hasty")
def test_a_search_goes_on_where_its_file_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """With violations, which are in the file, too; half a line, of a machine that stopped, is no piece."""
    plan = CoordinatorPlan(GROUPS, seed=0, runs=5, steps=300)
    file = tmp_path / "record.jsonl"
    whole = timeless(search_coordinators(plan))
    assert whole.findings, "seeds that break a rule are worth more here"
    in_pieces = partial(search_coordinators_in_pieces, plan, file, piece_runs=2)
    assert timeless(in_pieces()) == whole
    lines = file.read_text().splitlines()
    assert [(one["seed"], one["runs"]) for one in map(json.loads, lines)] == [(0, 2), (2, 2), (4, 1)]
    file.write_text(f"{lines[0]}\n{lines[1][:60]}")
    assert timeless(in_pieces()) == whole
    monkeypatch.setattr(module, "search_coordinators", no_search)
    assert timeless(in_pieces()) == whole


def test_worlds_and_modes_keep_to_themselves_in_one_file(tmp_path: Path):
    file = tmp_path / "record.jsonl"
    for world, requests in ((GROUPS, TIMELY), (TRANSACTIONS, TIMELY), (TRANSACTIONS, LATE)):
        plan = CoordinatorPlan(world, runs=1, steps=20, requests=requests)
        assert search_coordinators_in_pieces(plan, file).runs == 1
    names = [(line["world"], line["requests"]) for line in map(json.loads, file.read_text().splitlines())]
    assert names == [(GROUPS, TIMELY), (TRANSACTIONS, TIMELY), (TRANSACTIONS, LATE)]


@pytest.mark.usefixtures("hasty")
def test_a_piece_that_a_violation_ended_is_not_recorded(tmp_path: Path):
    file = tmp_path / "record.jsonl"
    plan = CoordinatorPlan(GROUPS, runs=HASTY_SEEDS, steps=300)
    result = search_coordinators_in_pieces(plan, file, fail_fast=True)
    assert len(result.findings) == 1
    assert result.runs < HASTY_SEEDS
    assert not file.exists()


def test_every_schedule_of_faults_has_a_seed():
    assert {forced_of(seed) for seed in range(10, 10 + len(SCHEDULES))} == set(SCHEDULES)
    assert len(set(SCHEDULES)) == len(SCHEDULES)


# The verb


@pytest.mark.usefixtures("hasty")
def test_a_violation_is_reported_with_its_seed_and_its_last_steps():
    done = CliRunner().invoke(simulate, ["--groups", "--runs", str(HASTY_SEEDS), "--jobs", "1", "--fail-fast"])
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    (broken,) = [line for line in lines if " breaks G" in line]
    seed, step = broken.split()[1].rstrip(":"), broken.split()[3]
    assert f"  {int(step) - 1:4}  " in done.stdout, "the steps before it"
    again = CliRunner().invoke(simulate, ["--groups", "--seed", seed, "--runs", "1", "--jobs", "1", "-o", "json"])
    assert (again.exit_code, [one["step"] for one in json.loads(again.stdout)["violations"]]) == (1, [int(step)])


def test_the_verb_keeps_a_record(tmp_path: Path):
    file = tmp_path / "record.jsonl"
    arguments = ["--world", "exactly-once", "--requests", "late", "--runs", "2", "--steps", "40", "--jobs", "1"]
    arguments += ["--record", str(file), "-o", "json"]
    first: dict[str, Any] = json.loads(CliRunner().invoke(simulate, arguments).stdout)
    assert (first["world"], first["requests"], first["runs"], first["steps"]) == ("exactly-once", "late", 2, 80)
    assert first["compiled"] is IS_COMPILED
    assert json.loads(file.read_text())["compiled"] is IS_COMPILED
    assert json.loads(CliRunner().invoke(simulate, arguments).stdout) == first, "seconds included: nothing was run"
    refused = CliRunner().invoke(simulate, [*arguments[:-4], "--record", str(tmp_path / "no" / "file")])
    assert refused.exit_code != 0
    assert "can not be used" in refused.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--groups", "--mode", "may-lose", "--power", "none"], "--groups takes no --mode, --power"),
        (["--world", "forced", "--svg", "x.svg"], "--world forced takes no --svg"),
        (["--requests", LATE], "--world topics takes no --requests"),
        (["--world", "transactions", "--requests", LATE_ENDS], "--world transactions takes no --requests late-ends"),
    ],
)
def test_options_of_other_worlds_are_refused(arguments: list[str], words: str):
    refused = CliRunner().invoke(simulate, arguments)
    assert refused.exit_code == 2
    assert words in refused.stderr
