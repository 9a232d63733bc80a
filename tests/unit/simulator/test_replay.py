"""Replaying traces: what must hold, what must break, and the error for a file that is no trace.

The traces in ``traces/`` are the shortest counterexamples of weaker protocols, found by model checking. Two lists are
held here: the six that break on a core that does what Kafka did under the older rules, and the nine that need two
liberties of the model (a truncation at a new epoch of the same leader, an epoch look-up at a broker that does not
lead). Under KIP-320 nothing may break.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge_proof.cli.replay import replay_verb
from tidegauge_proof.simulator.replay import Outcome, Replay, replay
from tidegauge_proof.simulator.trace import Trace, TraceError, read_trace

TRACES = sorted((Path(__file__).parent / "traces").glob("*.json"))
RULES = {"V0": "high-watermark", "V1": "kip-101", "V2": "kip-279", "V3": "kip-320"}
BREAK = {
    ("V0", "EpochsMonotone"),
    ("V0", "FollowerPrefixOfLeader"),
    ("V1", "EpochsMonotone"),
    ("V1", "LogMatchingHw"),
    ("V2", "EpochsMonotone"),
    ("V2", "LogMatchingHw"),
}
BREAK_AS_MODEL = {
    ("V0", "LogMatchingHw"),
    ("V0", "StrongIsr"),
    ("V0", "WeakIsr"),
    ("V1", "FollowerPrefixOfLeader"),
    ("V1", "StrongIsr"),
    ("V1", "WeakIsr"),
    ("V2", "FollowerPrefixOfLeader"),
    ("V2", "StrongIsr"),
    ("V2", "WeakIsr"),
}


def read(path: Path) -> Trace:
    return read_trace(path.read_text())


def key(trace: Trace) -> tuple[str, str]:
    return trace.weakness[:2], trace.breaks


def broken(outcome: Outcome) -> set[str]:
    return {violation["invariant"] for violation in outcome.violations}


def steps(*given: dict[str, Any], rule: str = "kip-320", as_model: bool = False) -> Outcome:
    trace = {"id": "by hand", "replicas": ["r1", "r2", "r3"], "steps": given}
    return replay(read_trace(json.dumps(trace)), rule, as_model=as_model)


def controller(epoch: int, leader: str | None, *isr: str) -> dict[str, Any]:
    return {"do": "controller", "leader": leader, "epoch": epoch, "isr": isr or ("r1", "r2", "r3")}


def reported(replica: str, epoch: int) -> dict[str, Any]:
    return {"do": "leader_and_isr", "replica": replica, "epoch": epoch}


def append(leader: str) -> dict[str, Any]:
    return {"do": "append", "leader": leader}


def fetch(follower: str, leader: str) -> dict[str, Any]:
    return {"do": "fetch", "follower": follower, "leader": leader}


def leader_isr(leader: str, *isr: str, accepted: bool = True) -> dict[str, Any]:
    return {"do": "leader_isr", "leader": leader, "isr": isr, "accepted": accepted}


def power_loss(replica: str, keep: int) -> dict[str, Any]:
    return {"do": "power_loss", "replica": replica, "keep_leo": keep}


EVALUATE_R1 = {"do": "evaluate_hw", "leader": "r1"}


def test_the_traces_are_all_there():
    """Five for each of the three older rules, four for the first try at KIP-320: the lists cover the fifteen."""
    keys = [key(read(path)) for path in TRACES]
    assert len(keys) == 19
    assert {one for one in keys if one[0] != "V3"} == BREAK | BREAK_AS_MODEL
    assert len(BREAK | BREAK_AS_MODEL) == 15


@pytest.mark.parametrize("as_model", [False, True])
@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_under_kip_320_every_trace_holds(path: Path, as_model: bool):
    """The model's liberties are no liberties there: every epoch starts again, and nothing is asked."""
    outcome = replay(read(path), "kip-320", as_model=as_model)
    assert outcome.held, outcome.violations


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_under_its_own_rule_a_trace_breaks_what_it_names_or_nothing(path: Path):
    """Six break at or before the last step; the others hold, since no rule set here is weaker than Kafka was."""
    trace = read(path)
    outcome = replay(trace, RULES[trace.weakness[:2]])
    if key(trace) in BREAK:
        assert trace.breaks in broken(outcome)
        assert all(violation["step"] <= len(trace.steps) for violation in outcome.violations)
    else:
        assert outcome.held, outcome.violations


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.stem)
def test_with_the_liberties_of_the_model_all_fifteen_break(path: Path):
    trace = read(path)
    outcome = replay(trace, RULES[trace.weakness[:2]], as_model=True)
    assert (trace.breaks in broken(outcome)) == (trace.weakness[:2] != "V3")


# Effects of single steps


def test_a_controller_without_unclean_elections_refuses():
    """An ISR that is no part of the real one, a leader outside of it, and an epoch that has passed."""
    outcome = steps(
        controller(0, "r1", "r1", "r2"),
        controller(1, "r3", "r2", "r3"),
        controller(1, "r1", "r2"),
        controller(0, "r2", "r2"),
        reported("r2", 1),
        reported("r1", 0),
    )
    assert [one["step"] for one in outcome.refused] == [2, 3, 4, 5]
    assert "no part of the ISR {r1,r2}" in outcome.refused[0]["why"]
    assert outcome.refused[3]["why"] == "the controller decided nothing in epoch 1"


def test_an_equal_or_lower_epoch_is_refused():
    outcome = steps(controller(0, "r1"), controller(1, "r2"), reported("r1", 1), reported("r1", 1), reported("r1", 0))
    assert [one["step"] for one in outcome.refused] == [4, 5]
    assert outcome.refused[1]["why"].startswith("STALE_CONTROLLER_EPOCH")


def test_a_record_is_appended_where_a_broker_leads_in_its_own_view():
    outcome = steps(controller(0, "r1"), append("r1"), reported("r1", 0), reported("r2", 0), append("r1"), append("r2"))
    assert [one["step"] for one in outcome.refused] == [2, 6]


def test_a_fetch_brings_one_record_and_reports_it():
    """One record, though two are there; and the request after it tells the leader, whose high watermark moves."""
    given = [controller(0, "r1", "r1", "r2"), reported("r1", 0), reported("r2", 0), append("r1"), append("r1")]
    trace = {"id": "by hand", "replicas": ["r1", "r2", "r3"], "steps": [*given, fetch("r2", "r1")]}
    run = Replay(read_trace(json.dumps(trace)), "kip-320")
    assert run.run().refused == []
    leader, follower, idle = run.image().replicas.values()
    assert (len(leader.records), leader.high_watermark) == (2, 1)
    assert (len(follower.records), follower.high_watermark) == (1, 0)
    assert (len(idle.records), idle.leader_epoch) == (0, -1)


def test_who_lacks_a_committed_record_may_not_join():
    """Kafka's join condition is the core's own; the driver only says who lags."""
    outcome = steps(
        controller(0, "r1", "r1"), reported("r1", 0), reported("r2", 0), append("r1"), leader_isr("r1", "r1", "r2")
    )
    assert [one["step"] for one in outcome.refused] == [5]
    assert "r2 ends at 0; to join it needs the high watermark 1" in outcome.refused[0]["why"]


def test_one_isr_change_is_in_flight_at_most():
    """A proposal that never arrived stays pending, and the high watermark waits for the larger set."""
    outcome = steps(
        controller(0, "r1"),
        reported("r1", 0),
        leader_isr("r1", "r1", "r2", accepted=False),
        leader_isr("r1", "r1"),
        append("r1"),
        EVALUATE_R1,
    )
    assert [(one["step"], one["why"]) for one in outcome.refused] == [
        (4, "r1 waits for the response to an earlier ISR change")
    ]


def test_a_leader_of_a_past_epoch_changes_no_isr():
    """The controller's check of the leader epoch."""
    outcome = steps(controller(0, "r1"), reported("r1", 0), controller(1, "r2"), leader_isr("r1", "r1"))
    assert outcome.refused[0]["why"].startswith("FENCED_LEADER_EPOCH")


def test_power_takes_the_last_member_and_the_loss_is_named():
    """Last replica standing: what only r1 had is lost, and counts against nothing below the high watermark."""
    outcome = steps(
        controller(0, "r1"),
        reported("r1", 0),
        reported("r2", 0),
        append("r1"),
        fetch("r2", "r1"),
        leader_isr("r1", "r1"),
        append("r1"),
        EVALUATE_R1,
        power_loss("r1", 1),
        controller(2, "r1", "r1"),
        reported("r1", 0),
        reported("r1", 2),
        append("r1"),
        EVALUATE_R1,
        reported("r2", 2),
        fetch("r2", "r1"),
        leader_isr("r1", "r1", "r2"),
    )
    assert outcome.held, outcome.violations
    assert outcome.lost_by_power == [{"step": 9, "replica": "r1", "offset": 1, "epoch": 0}]
    assert [one["step"] for one in outcome.refused] == [11]
    assert outcome.refused[0]["why"].startswith("STALE_BROKER_EPOCH")


def test_power_takes_a_member_out_of_the_isr():
    """The controller's next epoch has a leader among the rest; the LeaderAndIsr of that epoch exists."""
    outcome = steps(
        controller(0, "r1"), reported("r1", 0), append("r1"), power_loss("r1", 0), reported("r2", 1), append("r2")
    )
    assert outcome.refused == []
    assert outcome.held


def test_truncate_removes_and_brings_nothing():
    """A zombie's record goes by a diverging response; what the new leader has comes with the next fetch only."""
    zombie = (
        controller(0, "r1"),
        reported("r1", 0),
        append("r1"),
        controller(1, "r2"),
        reported("r2", 1),
        append("r2"),
    )
    outcome = steps(*zombie, reported("r1", 1), {"do": "truncate", "follower": "r1", "leader": "r2"}, fetch("r1", "r2"))
    assert outcome.refused == []
    assert outcome.held


def test_a_reconciled_follower_is_held_to_its_leader():
    """FollowerPrefixOfLeader is asked of no follower that has not heard from its leader yet (V3 breaks so)."""
    zombie = (
        controller(0, "r1"),
        reported("r1", 0),
        append("r1"),
        controller(1, "r2"),
        reported("r2", 1),
        append("r2"),
    )
    assert steps(*zombie, reported("r1", 1)).held
    assert broken(steps(*zombie, reported("r1", 1), fetch("r1", "r2"), rule="high-watermark")) == set()


# The two stories that tell KIP-101, KIP-279 and KIP-320 apart

PRIVATE_EPOCH = (
    controller(1, "r1", "r1", "r2"),
    reported("r1", 1),
    reported("r2", 1),
    append("r1"),
    fetch("r2", "r1"),
    controller(2, "r2", "r2", "r1"),
    reported("r2", 2),
    append("r1"),  # a zombie: it has not heard of epoch 2, and never will
    append("r2"),  # and epoch 2 is known to r2 alone
    controller(3, "r1", "r1"),
    reported("r1", 3),
    append("r1"),
    reported("r2", 3),
    fetch("r2", "r1"),
    leader_isr("r1", "r1", "r2"),
    EVALUATE_R1,
)

ZOMBIE_FOLLOWER = (
    controller(1, "r1"),
    reported("r1", 1),
    reported("r2", 1),
    reported("r3", 1),
    append("r1"),
    fetch("r3", "r1"),
    controller(2, "r2"),
    reported("r2", 2),
    reported("r1", 2),  # knows no epoch's end from r2 and truncates to its high watermark, 0
    controller(3, "r1", "r1", "r3"),
    reported("r1", 3),
    append("r1"),
    append("r1"),
    fetch("r3", "r1"),  # still in epoch 1, at offset 1
    reported("r3", 3),
    EVALUATE_R1,
)


@pytest.mark.parametrize(("rule", "breaks"), [("kip-101", True), ("kip-279", False), ("kip-320", False)])
def test_a_private_epoch_convicts_kip_101_alone(rule: str, breaks: bool):
    """KAFKA-6361: the response about an epoch that the leader never had names no epoch, so a record of it stays."""
    outcome = steps(*PRIVATE_EPOCH, rule=rule)
    assert ({"LogMatchingHw", "FollowerPrefixOfLeader"} <= broken(outcome)) == breaks
    assert outcome.held != breaks


@pytest.mark.parametrize(("rule", "breaks"), [("kip-101", True), ("kip-279", True), ("kip-320", False)])
def test_a_zombie_follower_convicts_all_before_kip_320(rule: str, breaks: bool):
    """KAFKA-6880: a wrong record in the middle of a log whose last epoch is right."""
    outcome = steps(*ZOMBIE_FOLLOWER, rule=rule)
    assert ({"StrongIsr", "FollowerPrefixOfLeader"} <= broken(outcome)) == breaks
    assert outcome.held != breaks


# Files that are no traces


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1, column 1: no JSON"),
        ('{"replicas": ["a"],\n "steps": [}', "line 2, column 12: no JSON"),
        ("[]", "a trace is a JSON object"),
        ('{"steps": []}', "replicas is missing"),
        ('{"replicas": ["a", "a"], "steps": []}', "replicas names one twice"),
        ('{"replicas": ["a"]}', "steps is missing"),
        ('{"replicas": ["a"], "steps": [1]}', "step 1 is no object"),
        ('{"replicas": ["a"],\n"steps": [\n{"do": "jump"}]}', "step 1 (line 3): do is 'jump'; known are controller,"),
        ('{"replicas": ["a"], "steps": [{"do": "append"}]}', "step 1 (line 1): leader is missing"),
        ('{"replicas": ["a"], "steps": [{"do": "append", "leader": "b"}]}', "leader is 'b', which is none of the"),
        (
            '{"replicas": ["a"], "steps": [{"do": "controller", "leader": null, "epoch": -1, "isr": ["a"]}]}',
            "epoch is -1; it must be a whole number, 0 or more",
        ),
        (
            '{"replicas": ["a"], "steps": [{"do": "controller", "leader": null, "epoch": 0, "isr": ["a", "a"]}]}',
            "isr names a replica twice",
        ),
        ('{"replicas": ["a"], "steps": [{"do": "leader_isr", "leader": "a", "isr": "a"}]}', "isr is no list"),
        (
            '{"replicas": ["a"], "steps": [{"do": "leader_isr", "leader": "a", "isr": [], "accepted": 1}]}',
            "accepted is 1; it must be true or false",
        ),
    ],
)
def test_what_is_no_trace_is_reported_in_one_sentence(text: str, words: str):
    with pytest.raises(TraceError) as reported_so:
        read_trace(text)
    assert words in str(reported_so.value)
    assert "\n" not in str(reported_so.value)


# The verb


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(replay_verb, arguments)
    return result.exit_code, result.stdout


def test_the_verb_prints_a_line_for_each_file_and_ends_with_0():
    code, out = run(*(str(path) for path in TRACES), "-o", "json")
    lines = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert [line["file"] for line in lines] == [str(path) for path in TRACES]
    assert all(list(line) == ["file", "rule", "held", "violations", "refused"] for line in lines)
    assert {(line["rule"], line["held"]) for line in lines} == {("kip-320", True)}


def test_the_verb_ends_with_1_on_a_violation():
    path = TRACES[0].with_name("kip101-logmatchinghw.json")
    code, out = run("--truncation", "kip-101", str(path), "-o", "json")
    assert code == 1
    assert {"step": 16, "invariant": "LogMatchingHw"} in json.loads(out)["violations"]
    code, out = run("--truncation", "kip-101", str(path))
    assert (code, "LogMatchingHw at step 16" in out) == (1, True)


def test_the_verb_grants_liberties_when_asked():
    path = str(TRACES[0].with_name("kip279-strongisr.json"))
    assert run("--truncation", "kip-279", path)[0] == 0
    assert run("--truncation", "kip-279", "--as-model", path)[0] == 1


def test_the_verb_replays_nothing_if_a_file_is_no_trace(tmp_path: Path):
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    assert run(str(TRACES[0]), str(bad)) == (2, "")
    assert run(str(TRACES[0]), str(tmp_path / "missing.json")) == (2, "")
    assert run("--truncation", "kip-1", str(TRACES[0])) == (2, "")


def test_the_verb_ends_with_3_if_the_replay_itself_fails(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object, **__: object) -> Outcome:
        raise KeyError("what")

    monkeypatch.setattr("tidegauge_proof.cli.replay.replay", fails)
    assert run(str(TRACES[0]))[0] == 3
