"""Scenario files: errors are reported with file and line, all at once, before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.faults.model import FaultKind, WantedFault
from tidegauge.faults.table import INJECT_DISK, INJECT_ERROR, ISOLATE
from tidegauge.partition import TopicPartition
from tidegauge_lab.scenario import broker_steps, fault_steps, state_steps, step_base, wait_steps
from tidegauge_lab.scenario.loader import ScenarioError, in_kraft, load, parse, shipped_names
from tidegauge_lab.scenario.narration import narrated
from tidegauge_lab.scenario.readers import NO_LEADER, LoggedRecord

HEAD = """\
title: A story.
cluster: {brokers: 3, controller: 0, settings: {replica.truncation.rule: kip-101}}
topics:
  - {name: story, assignment: [0, 1, 2]}
steps:
"""


def problems(text: str) -> list[str]:
    """The lines of the error, without the file's name."""
    with pytest.raises(ScenarioError) as refused:
        parse(text, "a.yaml")
    lines = str(refused.value).splitlines()
    assert all(line.startswith("a.yaml:") for line in lines), lines
    return [line.removeprefix("a.yaml:") for line in lines]


def step(text: str) -> step_base.Step:
    """The one step of a scenario."""
    [found] = parse(HEAD + "  - " + text, "a.yaml").steps
    return found


def test_a_scenario_is_read() -> None:
    story = parse(HEAD + "  - kill: 1\n    note: the leader\n  - wait_leader: none\n", "folder/a-story.yaml")
    assert (story.name, story.title, story.brokers, story.controller) == ("a-story", "A story.", 3, 0)
    assert story.first_partition == TopicPartition("story", 0)
    assert story.all_settings["auto.leader.rebalance.enable"] == "false"
    assert story.all_settings["replica.lag.time.max.ms"] == "600000"
    assert story.all_settings["replica.truncation.rule"] == "kip-101"
    kill, wait = story.steps
    assert kill == broker_steps.Kill(line=6, note="the leader", brokers=(1,))
    assert isinstance(wait, wait_steps.WaitLeader)
    assert (wait.line, wait.leader) == (8, NO_LEADER)


def test_the_main_argument_stands_alone_or_by_its_name() -> None:
    assert step("kill: [1, 2]") == step("kill: {brokers: [1, 2]}")
    assert step("produce: m1") == broker_steps.Produce(line=6, values=("m1",), acks=-1)
    assert step("produce: 17") == broker_steps.Produce(line=6, values=("17",))
    assert step("wait_hw: {0: 1, 2: 3}") == step("wait_hw: {hw: {0: 1, 2: 3}}")


def assert_fault(read: object, broker: int, kind: FaultKind, values: dict[str, object]) -> None:
    assert isinstance(read, fault_steps.FaultStep)
    assert (read.line, read.verb, read.broker) == (6, kind.name, broker)
    assert read.fault == WantedFault(kind, values)


def test_arguments_become_values_of_their_kind() -> None:
    produced = step("produce: {values: [a, b], acks: 0, via: 2, answer: later, error: NOT_ENOUGH_REPLICAS}")
    assert produced == broker_steps.Produce(
        line=6, values=("a", "b"), acks=0, via=2, answer="later", error=ErrorCode.NOT_ENOUGH_REPLICAS
    )
    cut = step("isolate: {broker: 1, from: [0, 2], direction: in}")
    assert_fault(cut, 1, ISOLATE, {"from": [0, 2], "direction": "in"})
    slow = step("isolate: {broker: 1, from: zookeeper, delay_ms: 200}")
    assert_fault(slow, 1, ISOLATE, {"from": "zookeeper", "delay_ms": 200})
    failing = step("inject_error: {broker: 0, rpc: Produce, error: NOT_ENOUGH_REPLICAS, nth: 3, probability: 0.5}")
    wanted = {"rpc": "Produce", "error": "NOT_ENOUGH_REPLICAS", "nth": 3, "probability": 0.5}
    assert_fault(failing, 0, INJECT_ERROR, wanted)
    disk = step("inject_disk: {broker: 2, errno: ENOSPC, operation: append, path: story-0}")
    assert_fault(disk, 2, INJECT_DISK, {"errno": "ENOSPC", "operation": "append", "path": "story-0"})
    expected = step("expect: {log: {1: [m1@0, m2]}, epochs: {0: [[0, 0], [2, 5]]}, isr: [], leader: none}")
    assert isinstance(expected, state_steps.Expect)
    assert expected.log == {1: (LoggedRecord("m1", 0), LoggedRecord("m2"))}
    assert expected.epochs == {0: ((0, 0), (2, 5))}
    assert (expected.isr, expected.leader, expected.hw) == ((), NO_LEADER, None)
    started = step("start: {brokers: 1, held: story-0, after_power_cut: true}")
    assert started == broker_steps.Start(line=6, brokers=(1,), held=(TopicPartition("story", 0),), after_power_cut=True)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("prodce: m1", "6: there is no 'prodce' among the steps; did you mean produce?"),
        ("produce: {values: m1, ack: all}", "6: there is no 'ack' in produce; did you mean acks?"),
        ("produce: {acks: all}", "6: produce needs 'values'"),
        ("produce: {values: m1, acks: 2}", "6: acks is all, 1 or 0, not '2'"),
        ("produce: {values: m1, error: OOPS}", "6: there is no error OOPS"),
        ("produce: []", "6: at least one is expected, but the list is empty"),
        ("kill: one", "6: a broker id, controller, leader-of:T-P, follower-of:T-P, coordinator-of:group:G, "),
        ("kill: -1", "6: a number (0 or more) is expected, not '-1'"),
        ("kill: 3", "6: there is no broker 3 in this scenario"),
        ("wait_hw: {3: 1}", "6: there is no broker 3 in this scenario"),
        ("wait_hw: 1", "6: broker ids with a value each are expected, not '1'"),
        ("wait_hw: {0: x}", "6: a number (0 or more) is expected, not 'x'"),
        ("wait_leader: nobody", "6: a broker id or none is expected, not 'nobody'"),
        ("elect: clean", "6: preferred or unclean is expected, not 'clean'"),
        ("isolate: 1", "6: isolate needs its arguments by name: broker, from, direction"),
        ("isolate: {broker: 1, from: 1}", "6: broker 1 can't be isolated from itself"),
        ("isolate: {broker: 1, from: clients, direction: out}", "6: a broker makes no calls to clients"),
        (
            "isolate: {broker: 1, from: 0, delay_ms: 5, drop: 0.5}",
            "6: calls are delayed or dropped: give delay_ms or drop, at most one",
        ),
        ("isolate: {broker: 1, from: 0, drop: 2}", "6: a probability (more than 0, at most 1) is expected, not '2'"),
        ("inject_error: {broker: 1, error: NOT_CONTROLLER}", "6: inject_error needs 'rpc'"),
        (
            "inject_error: {broker: 1, rpc: Produce}",
            "6: say how the calls fail: give error or grpc_status, exactly one",
        ),
        ("inject_error: {broker: 1, rpc: Prodce, grpc_status: UNAVAILABLE}", "6: there is no API or RPC 'Prodce'"),
        ("inject_error: {broker: 1, rpc: Produce, grpc_status: GONE}", "6: gRPC has no status GONE"),
        (
            "inject_error: {broker: 1, rpc: DescribeReplicas, error: NOT_CONTROLLER}",
            "6: the response of DescribeReplicas has no place",
        ),
        ("inject_error: {broker: 1, rpc: Produce, error: NOT_CONTROLLER, nth: 0}", "6: a number of 1 or more"),
        ("inject_disk: {broker: 1}", "6: say what the disk does: give delay_ms or errno, exactly one"),
        ("inject_disk: {broker: 1, errno: EEK}", "6: EEK is no error of the operating system"),
        ("inject_disk: {broker: 1, delay_ms: 1, operation: write}", "6: append or sync or truncate or replace or"),
        ("clear_faults: 3", "6: there is no broker 3 in this scenario"),
        (
            "isolate: {broker: 1, from: disk}",
            "6: brokers or zookeeper or clients or controllers is expected, not 'disk'",
        ),
        ("hold_fetch: {brokers: 1, release: 1}", "6: true or false is expected, not '1'"),
        ("wait_isr: {isr: 1, partition: story}", "6: 'story' is not a partition; write TOPIC-PARTITION"),
        ("wait_isr: {isr: 1, partition: story-1}", "6: there is no partition story-1 in this scenario"),
        ("start: {brokers: 1, held: other-0}", "6: there is no partition other-0 in this scenario"),
        ("table: {phase: x, since: y, leader: 0, followers: 1}", "6: nothing was marked 'y' before this step"),
        ("expect: {answers: {m9: ack}}", "6: 'm9' was not produced before this step"),
        ("wait_answer: m9", "6: 'm9' was not produced before this step"),
        ("expect: {epochs: {0: [1]}}", "6: [epoch, start offset] is expected, not '1'"),
        ("expect: {log: {0: [m1@x]}}", "6: a record is expected as VALUE or VALUE@EPOCH, not 'm1@x'"),
        ("expect: {isr: 1}", "6: a list is expected, not '1'"),
        ("kill", "6: a step is a verb with its arguments, not 'kill'"),
        ("{kill: 1, stop: 2}", "6: a step has one verb, not 2: kill, stop"),
        ("{note: nothing}", "6: a step has one verb, not 0"),
        ("kill: {brokers: 1", "7: while parsing a flow mapping expected ',' or '}'"),
    ],
)
def test_a_wrong_step_is_reported_with_its_line(text: str, problem: str) -> None:
    [found] = problems(HEAD + "  - " + text + "\n")
    assert found.startswith(problem)


def test_all_problems_are_reported_by_line() -> None:
    found = problems(HEAD + "  - kill: x\n  - prodce: m1\n  - stop: 9\n")
    assert [line.split(":")[0] for line in found] == ["6", "7", "8"]


def test_a_value_is_produced_once_since_it_names_its_record() -> None:
    [found] = problems(HEAD + "  - produce: m1\n  - produce: [m2, m1]\n")
    assert found == "7: 'm1' was produced before; values name records, so each is used once"


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("kip-101", "kip-100", "2: Invalid value kip-100 for configuration replica.truncation.rule"),
        ("replica.truncation.rule", "replica.truncation.rul", "2: Unknown broker setting: replica.truncation.rul"),
        ("{replica.truncation.rule: kip-101}", "{log.dirs: /x}", "2: log.dirs can't be set"),
        ("brokers: 3", "brokers: 99", "2: a scenario has at most 9 brokers"),
        ("brokers: 3, ", "", "2: cluster needs 'brokers'"),
        ("controller: 0", "controller: 3", "2: there is no broker 3"),
        ("controller: 0", "controler: 0", "2: there is no 'controler' in cluster; did you mean controller?"),
        ("[0, 1, 2]", "[0, 1, 5]", "4: there is no broker 5 in this scenario"),
        ("name: story, ", "", "4: a topic needs 'name'"),
        ("name: story", "name: a/b", "4: "),
        ("title: A story.\n", "", "1: a scenario needs 'title'"),
    ],
)
def test_a_wrong_head_is_reported_with_its_line(old: str, new: str, problem: str) -> None:
    found = problems((HEAD + "  - produce: m1\n").replace(old, new))
    assert found[0].startswith(problem), found


def test_a_file_is_loaded_by_its_path_and_a_shipped_scenario_by_its_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(HEAD + "  - produce: m1\n")
    assert load(str(file)).name == "mine"
    assert load("loss-high-watermark").name == "loss-high-watermark"


def test_a_name_that_does_not_exist_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(TidegaugeError, match="did you mean loss-cured") as refused:
        load("loss-curd")
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(TidegaugeError, match="scenario list"):
        load("qqqqqq")


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ("{coordinator_of: g}", "'g' names no group"),
        ("{leader_of: story-7}", "story-7"),
        ("{leads: story-0}", "a broker id, controller, leader-of:T-P, follower-of:T-P"),
        ("{leader_of: story-0, coordinator_of: group:g}", "is expected"),
    ],
)
def test_a_role_that_cannot_be_had_is_reported_before_anything_runs(target: str, problem: str) -> None:
    [found] = problems(HEAD + f"  - kill: {target}\n")
    assert problem in found


QUORUM = """\
title: A quorum.
cluster: {mode: kraft, brokers: 1, controllers: 3, features: {eligible.leader.replicas.version: 0}}
topics: [{name: t, assignment: [0]}]
steps: [{kill: 3002}, {wait_quorum: any}, {wait_quorum: 3001}, {wait_quorum: none}]
"""


def test_a_cluster_in_kraft_mode_has_controllers_that_steps_name() -> None:
    story = parse(QUORUM, "q")
    assert (story.mode, story.controllers, story.nodes) == ("kraft", 3, [0, 3000, 3001, 3002])
    assert story.features == {"eligible.leader.replicas.version": 0}
    assert parse(QUORUM.replace("controllers: 3, ", ""), "q").controllers == 3, "three, if nothing is said"


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("kill: 3002", "kill: 3003", "there is no broker 3003 in this scenario"),
        ("mode: kraft, ", "", "controllers and features belong to mode: kraft"),
        ("mode: kraft", "mode: raft", "zookeeper"),
        ("assignment: [0]", "assignment: [3000]", "there is no broker 3000 in this scenario"),
        ("wait_quorum: any", "wait_quorum: some", "a controller's id, any or none is expected"),
    ],
)
def test_what_a_quorum_does_not_have_is_named(old: str, new: str, sentence: str) -> None:
    with pytest.raises(ScenarioError, match=sentence):
        parse(QUORUM.replace(old, new), "q")


def test_a_controller_is_named_as_one_in_the_story() -> None:
    kill, _, wait, _ = parse(QUORUM, "q").steps
    assert narrated(kill) == "Kill controller 3002 (SIGKILL)"
    assert narrated(wait) == "Wait until controller 3001 leads the quorum"
    for text, words in (("true", "a controller leads the quorum in another epoch"), ("false", ", still in the same")):
        one = parse(QUORUM.replace("wait_quorum: any", f"wait_quorum: {{leader: any, changed: {text}}}"), "q").steps[1]
        assert words in narrated(one)


IN_BOTH = (
    HEAD
    + """\
  - kill: 2
  - wait_epoch: 1
    kraft: {epoch: 0}
    note: of a dead follower
  - expect: {epoch: 1, isr: [0, 1]}
    kraft: {epoch: 0}
  - verify: {lost: 1}
    kraft: {lost: 2}
"""
)


def test_a_step_may_have_other_values_in_kraft_mode() -> None:
    """KIP-497 and Kafka 3.6: a dead broker that led nothing costs no leader epoch there; the rest stays."""
    story = parse(IN_BOTH.replace("kip-101}", "kip-101, zookeeper.session.timeout.ms: 6000}"), "a.yaml")
    _, wait, expect, verify = story.steps
    assert (wait.epoch, expect.epoch, verify.found) == (1, 1, {"lost": 1})  # type: ignore[attr-defined]
    adapted = story.in_kraft(1)
    kill, wait, expect, verify = adapted.steps
    assert kill is story.steps[0]
    assert (wait.epoch, wait.note, expect.epoch, verify.found) == (  # type: ignore[attr-defined]
        *(0, "of a dead follower", 0),
        {"lost": 2},
    )
    assert expect.isr == (0, 1)  # type: ignore[attr-defined]
    assert (adapted.mode, adapted.controllers, adapted.is_adapted) == ("kraft", 1, True)
    assert adapted.settings == {"replica.truncation.rule": "kip-101", "broker.session.timeout.ms": "6000"}
    assert adapted.in_kraft(3) is adapted, "it is in KRaft mode already"


def test_what_is_of_zookeeper_mode_alone_says_why() -> None:
    story = parse(HEAD.replace("controller: 0", "zookeeper_only: it is about znodes") + "  - kill: 1\n", "a.yaml")
    with pytest.raises(TidegaugeError, match="a can't be played in KRaft mode: it is about znodes"):
        story.in_kraft()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (QUORUM.replace("{kill: 3002}", "{kill: 3002, kraft: 3001}"), "values under 'kraft' are for a scenario"),
        (QUORUM.replace("mode: kraft", "mode: kraft, zookeeper_only: x"), "zookeeper_only is said of a story"),
        (HEAD.replace("controller: 0", "zookeeper_only: x") + "  - kill: 1\n    kraft: 2\n", "values under 'kraft'"),
        (HEAD + "  - wait_epoch: 1\n    kraft: {epok: 0}\n", "not a mapping"),
        (HEAD + "  - expect: {epoch: 1}\n    kraft: {epok: 0}\n", "not a mapping|there is no 'epok'"),
        (HEAD + "  - kill: 1\n    kraft: some\n", "'some'"),
    ],
)
def test_what_can_not_differ_is_refused(text: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        parse(text, "a.yaml")


@pytest.mark.parametrize("name", shipped_names())
def test_a_shipped_scenario_plays_in_kraft_mode_or_says_why_not(name: str) -> None:
    """All that its steps name is there in that mode, too."""
    if load(name).zookeeper_only:
        with pytest.raises(TidegaugeError, match="can't be played in KRaft mode: "):
            in_kraft(name)
    else:
        assert in_kraft(name).mode == "kraft"
