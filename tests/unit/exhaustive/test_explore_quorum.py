"""``tidegauge explore --world quorum`` as a user meets it."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result
from tests.unit.simulator import quorum_mutants

from tidegauge_proof.cli.explore import explore


def run(*words: str) -> Result:
    return CliRunner().invoke(explore, ["--world", "quorum", *words])


def test_it_says_that_it_has_seen_all() -> None:
    result = run("--timeouts", "1")
    assert result.exit_code == 0, result.output
    assert "325 states and 982 transitions of a quorum, 15 steps deep, in " in result.stdout
    assert "Complete: there is no other state within the bounds.\nAll invariants held.\n" in result.stdout


def test_each_bound_reaches_the_search() -> None:
    words = "--voters 2 --observers 1 --kraft-version 1 --epochs 2 --timeouts 3 --records 4 --crashes 1 --power-cuts 2"
    more = "--losses 3 --late 4 --changes 1 --snapshots 2 --split --max-states 10"
    result = run(*words.split(), *more.split(), "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["world"], found["states"], found["complete"]) == ("quorum", 10, False)
    assert found["bounds"] == {
        "voters": 2,
        "observers": 1,
        "version": 1,
        "epochs": 2,
        "records": 4,
        "kills": 1,
        "power_losses": 2,
        "losses": 3,
        "late": 4,
        "changes": 1,
        "snapshots": 2,
        "timeouts": 3,
        "split": True,
    }


def test_a_violation_is_printed_as_a_shortest_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum_mutants.a_pre_vote_counts_as_a_vote(monkeypatch)
    result = run("--fail-fast")
    assert result.exit_code == 1
    assert "Stopped at the first violation." in result.stdout
    assert "Q1 is broken in 4 steps:" in result.stdout
    assert "    1  a timer of node 0 runs out\n" in result.stdout
    assert "PreVoteRequest of node 0 arrives at node 1\n" in result.stdout
    [violation] = json.loads(run("--fail-fast", "-o", "json").stdout)["violations"]
    assert (violation["invariant"], violation["steps"], len(violation["schedule"])) == ("Q1", 4, 4)
    assert violation["message"] == "Q1: epoch 1 has the leaders 0 and 1"


def test_a_search_that_was_bounded_says_so() -> None:
    assert "Bounded at 50 states: there are more within the bounds." in run("--max-states", "50").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--changes 1", "--changes needs --kraft-version 1"),
        ("--voters 4 --observers 1", "takes at most 4"),
        ("--replicas 3", "--world quorum takes no --replicas"),
        ("--ticks 1", "--world quorum takes no --ticks"),
        ("--world group --epochs 2", "--world group takes no --epochs"),
        ("--world replication --snapshots 1", "--world replication takes no --snapshots"),
    ],
)
def test_options_without_effect_are_refused(words: str, said: str) -> None:
    result = run(*words.split())
    assert result.exit_code == 2
    assert said in result.stderr
