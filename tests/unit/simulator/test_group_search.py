"""``tidegauge simulate --groups``: many histories of a group, and what a user reads of them."""

from __future__ import annotations

import json
import pickle

import pytest
from click.testing import CliRunner

from tidegauge.errors import ErrorCode
from tidegauge_broker.coordinator.runtime import GroupRuntime
from tidegauge_proof.cli.simulate import simulate
from tidegauge_proof.simulator.groups.group_search import GroupFinding, GroupSearchResult, search_groups

HASTY_SEEDS = 12
"""Among so many histories the mutant below is found."""


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that acknowledges what it appends at once."""
    append = GroupRuntime.append_record

    def append_hastily(self: GroupRuntime, partition: int, batch: bytes, outcome) -> None:
        append(self, partition, batch, lambda *_: None)
        outcome(ErrorCode.NONE, 0)

    monkeypatch.setattr(GroupRuntime, "append_record", append_hastily)


def test_the_same_seeds_give_the_same_result_in_one_process_and_in_parts():
    whole = search_groups(range(4), 200, jobs=1, fail_fast=False, report=lambda _: None)
    parts = GroupSearchResult()
    for seeds in (range(1), range(1, 4)):
        parts.merge(search_groups(seeds, 200, jobs=1, fail_fast=False, report=lambda _: None))
    assert whole == parts
    assert (whole.runs, whole.steps) == (4, 800)


def test_a_result_with_violations_passes_between_processes():
    """Exceptions with two arguments do not; so violations are kept as values."""
    result = GroupSearchResult(1, 7, findings=[GroupFinding(3, 7, "G1", "why")])
    assert pickle.loads(pickle.dumps(result)) == result  # noqa: S301 - our own bytes


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


def test_options_of_topics_alone_are_refused():
    refused = CliRunner().invoke(simulate, ["--groups", "--mode", "may-lose", "--power", "none"])
    assert refused.exit_code == 2
    assert "--groups takes no --mode, --power" in refused.stderr
