"""The shipped scenarios: their fixed names, that each teaches something and checks it, and the settings all have."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tidegauge_lab.cli.scenario import held, scenario
from tidegauge_lab.scenario import broker_steps, state_steps, steps
from tidegauge_lab.scenario.group_steps import ExpectGroup, StartConsumer
from tidegauge_lab.scenario.loader import load, shipped_names
from tidegauge_lab.scenario.model import TRUNCATION_RULE
from tidegauge_lab.scenario.share_steps import ExpectShare, StartMember
from tidegauge_lab.scenario.transaction_steps import ExpectRead, ExpectTransaction, StartProducer

NAMES = [
    "clock-behind",
    "commit-failed",
    "commit-without-response",
    "coordinator-dies-completing",
    "coordinator-dies-deciding",
    "coordinator-dies-reconciling",
    "crash-before-commit",
    "data-leader-dies",
    "divergence-cured",
    "divergence-high-watermark",
    "elr-all-unclean",
    "elr-off-loses",
    "elr-saves",
    "fenced-controller",
    "hanging-found",
    "hanging-transaction",
    "kip-279-cured",
    "kip-279-fast-failover",
    "last-replica-standing",
    "late-end",
    "late-end-cured",
    "leader-dies-before-epoch-answer",
    "loss-by-restart",
    "loss-cured",
    "loss-high-watermark",
    "lost-end-response",
    "min-insync-replicas",
    "new-topic-noticed",
    "offsets-leader-dies",
    "one-offsets-replica",
    "partition-changes-hands",
    "pattern-on-the-broker",
    "producer-fencing",
    "protocol-migration",
    "quorum-committed-stays",
    "quorum-cut-off-leader",
    "quorum-leader-removed",
    "quorum-lost-disk",
    "quorum-majority-lost",
    "quorum-new-voter",
    "quorum-older-epoch",
    "quorum-returning-voter",
    "quorum-split-vote",
    "quorum-uncommitted-vanishes",
    "rebalance-storm",
    "restart-within-session",
    "revocation-too-late",
    "share-aborted-data",
    "share-acknowledgement-lost",
    "share-coordinator-dies",
    "share-count-forgotten",
    "share-lock-ends",
    "share-poison-record",
    "share-reset-surprises",
    "share-zombie-leader",
    "stale-member-epoch",
    "static-member-unreleased",
    "static-members",
    "unclean-election",
    "uniform-and-range",
    "walkthrough-purgatory",
    "walkthrough-three-replicas",
    "walkthrough-two-replicas",
    "zombie-follower-cured",
    "zombie-follower-kip-279",
    "zombie-leader",
    "zombie-producer",
]
OLD_RULES = {
    "loss-high-watermark": "high-watermark",
    "loss-by-restart": "high-watermark",
    "divergence-high-watermark": "high-watermark",
    "kip-279-fast-failover": "kip-101",
    "zombie-follower-kip-279": "kip-279",
}
DOCS = Path(__file__).parents[3] / "docs" / "scenarios.md"


def test_the_names_are_those_that_tests_from_outside_rely_on() -> None:
    assert shipped_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_says_what_it_teaches_and_ends_with_checked_expectations(name: str) -> None:
    story = load(name)
    assert story.name == name
    assert story.title.endswith(".")
    assert "\n" not in story.title
    assert story.teaches
    assert story.rule
    last = story.steps[-1]
    assert any(isinstance(step, state_steps.Verify) for step in story.steps), "the accountant looks too"
    if isinstance(last, ExpectGroup):
        assert any(isinstance(step, StartConsumer) for step in story.steps)
        return
    if isinstance(last, ExpectShare):
        assert any(isinstance(step, StartMember) for step in story.steps)
        return
    if isinstance(last, ExpectTransaction):
        assert any(isinstance(step, StartProducer) for step in story.steps)
        assert any(isinstance(step, ExpectRead) for step in story.steps), "what readers see is what counts"
        return
    assert isinstance(last, state_steps.Expect)
    for attribute in ("leader", "epoch", "isr", "hw", "log", "epochs", "diverged"):
        assert getattr(last, attribute) is not None, attribute


@pytest.mark.parametrize("name", [name for name in NAMES if load(name).mode == "zookeeper"])
def test_the_controller_lives_to_the_end(name: str) -> None:
    story = load(name)
    for step in story.steps:
        if isinstance(step, broker_steps.Kill | broker_steps.Stop | broker_steps.DropUnsynced):
            assert story.controller not in step.brokers, f"line {step.line}"


def test_each_older_rule_has_a_story_and_its_cure_by_today_s_or_the_next_rule() -> None:
    assert {name: load(name).settings[TRUNCATION_RULE] for name in OLD_RULES} == OLD_RULES
    assert TRUNCATION_RULE not in load("loss-cured").settings
    assert TRUNCATION_RULE not in load("divergence-cured").settings
    assert load("kip-279-cured").settings[TRUNCATION_RULE] == "kip-279"
    assert TRUNCATION_RULE not in load("zombie-follower-cured").settings


def test_list_prints_a_line_each_name_two_spaces_one_sentence() -> None:
    result = CliRunner().invoke(scenario, ["list"])
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert sorted(line.split("  ", 1)[0] for line in lines) == sorted(NAMES)
    assert all(line.split("  ", 1)[1] == load(line.split("  ", 1)[0]).title for line in lines)


def test_list_as_json_is_one_document() -> None:
    for arguments in (["list", "-o", "json"], ["-o", "json", "list"]):
        result = CliRunner().invoke(scenario, arguments)
        assert sorted(one["name"] for one in json.loads(result.stdout)) == sorted(NAMES)


def test_show_prints_the_file_and_as_json_what_was_understood() -> None:
    text = CliRunner().invoke(scenario, ["show", "zombie-leader"]).stdout
    assert text.startswith("title: A leader that is partitioned from ZooKeeper")
    shown = json.loads(CliRunner().invoke(scenario, ["show", "zombie-leader", "-o", "json"]).stdout)
    assert shown["cluster"]["controller"] == 0
    assert (shown["steps"][0]["verb"], shown["steps"][0]["text"]) == ("produce", "produce m1")
    lines = text.splitlines()
    assert all(step["verb"] in lines[step["line"] - 1] for step in shown["steps"])


def test_a_wrong_file_is_refused_with_its_line_and_exit_1(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text("title: x\ncluster: {brokers: 1}\ntopics:\n  - {name: t, assignment: 0}\nsteps:\n  - kil: 0\n")
    for verb in ("show", "run"):
        result = CliRunner().invoke(scenario, [verb, str(file)])
        assert result.exit_code == 1
        assert result.stderr == f"{file}:6: there is no 'kil' among the steps; did you mean kill?\n"
        assert result.stdout == ""
    result = CliRunner().invoke(scenario, ["run", str(file), "-o", "json"])
    assert json.loads(result.stderr)["error"]["name"] == "INVALID_REQUEST"


def test_the_page_names_every_scenario_every_step_and_every_argument() -> None:
    page = DOCS.read_text(encoding="utf-8")
    for name in NAMES:
        assert f"`{name}`" in page, name
    for verb, step in steps.STEPS.items():
        assert f"`{verb}`" in page, verb
        for argument in step.arguments():
            assert f"`{argument}`" in page, f"{verb}: {argument}"


@pytest.mark.parametrize(
    ("expectations", "words"),
    [
        (0, "played to its end; it expects nothing"),
        (1, "its one expectation held"),
        (2, "all 2 expectations held"),
    ],
)
def test_the_last_line_counts_in_singular_and_plural(expectations: int, words: str) -> None:
    assert held(expectations) == words


def test_the_mode_of_a_run_is_asked_for_or_given_by_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    """--zookeeper would have no effect on a cluster without ZooKeeper; a scenario of ZooKeeper alone says so."""
    monkeypatch.delenv("TIDEGAUGE_MODE", raising=False)
    for words in (["elr-saves"], ["loss-cured", "--kraft"]):
        refused = CliRunner().invoke(scenario, ["run", *words, "--zookeeper", "127.0.0.1:2181"])
        assert refused.exit_code == 2
        assert "plays in KRaft mode, whose cluster has no ZooKeeper: leave --zookeeper out" in refused.output
    for words, mode in ((["--kraft"], ""), ([], "kraft")):
        monkeypatch.setenv("TIDEGAUGE_MODE", mode)
        refused = CliRunner().invoke(scenario, ["run", "fenced-controller", *words])
        assert refused.exit_code == 1
        assert "fenced-controller can't be played in KRaft mode: it shows /controller_epoch" in refused.output
    monkeypatch.setenv("TIDEGAUGE_MODE", "raft")
    assert "TIDEGAUGE_MODE is 'raft'" in CliRunner().invoke(scenario, ["run", "loss-cured"]).output
