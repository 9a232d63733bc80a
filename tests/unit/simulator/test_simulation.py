"""Simulated histories: the clean core breaks nothing, older rules do, and a seed is a history.

The simulator's ``checker`` has the checks after every event. Longer searches carry ``long``.
"""

from __future__ import annotations

import gc
import json
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tidegauge_broker.replica.messages import ACKS_ALL, CoreSettings, TopicRules
from tidegauge_controller.zookeeper.decisions.context import ControllerSettings
from tidegauge_lab.scenario.loader import parse
from tidegauge_proof.cli.simulate import simulate
from tidegauge_proof.simulator import schedule_scenario
from tidegauge_proof.simulator.actions import ACTIONS, swarm_of
from tidegauge_proof.simulator.acts import UNDESCRIBED
from tidegauge_proof.simulator.checker import Checker
from tidegauge_proof.simulator.controllers.zookeeper import sim_controller
from tidegauge_proof.simulator.coverage import Coverage
from tidegauge_proof.simulator.memory_log import MemoryLog
from tidegauge_proof.simulator.search import SearchPlan, search
from tidegauge_proof.simulator.shrink import shrink
from tidegauge_proof.simulator.simulation import heal, history_of, replay_schedule
from tidegauge_proof.simulator.swarm import MAY_LOSE, MUST_SURVIVE, Lots
from tidegauge_proof.simulator.world import World

OLDER_RULES = ("high-watermark", "kip-101", "kip-279")


def test_kip_320_breaks_nothing():
    """And the histories are worth something: epochs pass, controllers change, records are acknowledged."""
    histories = [history_of(seed, 500) for seed in range(20)]
    assert [history.violation for history in histories] == [None] * len(histories)
    assert sum(history.leader_epochs for history in histories) > 100
    assert sum(history.controller_epochs for history in histories) > 60
    assert sum(history.acknowledged for history in histories) > 200


def test_what_power_losses_take_is_lost_by_name_only():
    """May lose: acknowledged records go with the last in-sync copy only, are named, and no replica stays different."""
    histories = [history_of(seed, 500, power=MAY_LOSE) for seed in range(30)]
    assert [history.violation for history in histories] == [None] * 30
    lost = [words for history in histories for words in history.lost]
    assert any("with the last in-sync copy, on broker" in words for words in lost)
    assert any("acknowledged with acks=all: records" in words for words in lost)


@pytest.mark.parametrize("power", [MUST_SURVIVE, MAY_LOSE])
def test_what_happens_in_one_log_directory_stays_there(power: str):
    """Directories fail in the midst of a step, batches are damaged, logs meet defects; other partitions never notice.

    As in Kafka each partition's append and read fails by itself (ReplicaManager.appendToLocalLog, readFromLog), and
    LogDirFailureHandler takes the replicas of a failed directory offline.
    """
    coverage = Coverage()
    histories = [history_of(seed, 500, power=power, coverage=coverage, directories=2) for seed in range(12)]
    assert [history.violation for history in histories] == [None] * len(histories)
    assert {"fail_directory", "damage_batch", "raise_defect", "mend"} <= set(coverage.events)
    assert {state[0] for state in coverage.states} >= {"offline", "leader", "follower", "dead"}


def test_histories_of_one_directory_are_what_they_were():
    """A seed of the record in docs/simulation.md means the same history with ``--directories 1``."""
    with_one = [history_of(seed, 300, directories=1) for seed in range(8)]
    by_seed = [history_of(seed, 300) for seed in range(8)]
    alike = [one == other for one, other in zip(with_one, by_seed, strict=True)]
    assert alike == [history.directories == 1 for history in by_seed]
    assert {True, False} <= set(alike)


@pytest.mark.parametrize(
    ("seed", "power"),
    [
        (3_042_417, MUST_SURVIVE),
        (3_049_806, MUST_SURVIVE),
        (3_049_806, MAY_LOSE),
        (3_011_530, MAY_LOSE),
        (3_074_854, MUST_SURVIVE),
        (3_142_149, MAY_LOSE),
        (3_247_467, MUST_SURVIVE),
    ],
)
def test_what_the_long_search_found_is_cured(seed: int, power: str):
    """Seeds that broke an invariant, the last by the controller's own fault (docs/simulation.md, "Findings")."""
    assert history_of(seed, 1000, power=power, directories=1).violation is None


@pytest.mark.parametrize("seed", [60_200_973, 60_228_544, 60_232_570, 60_234_686])
def test_histories_of_two_directories_that_broke_hold(seed: int):
    """A response of a process before, epochs beyond the end after a failed append, an offline member of the ISR."""
    assert history_of(seed, 1000, directories=2).violation is None


def test_a_broker_that_asked_to_shut_down_and_never_heard_goes_in_the_end():
    """Its replica has been stopped, and no LeaderAndIsr of the same leader epoch starts it again (seed 3,074,854)."""
    world = World((1, 2, 3), CoreSettings(replica_lag_time_max_ms=2000), TopicRules(), Checker(1))
    world.kill(2)
    world.expire(2)
    world.start(2)
    world.decide_all()
    for broker_id in world.brokers:
        world.deliver_all(broker_id)
    assert world.state_now.isr == (1, 3)
    world.leave(2, 1)
    while not world.controllers[1].queues[2]:
        world.decide(1, 1)
    world.deliver_all(2)
    world.expire(1)
    world.end_term(1)
    assert (world.leaving, world.unheard) == (set(), {2})
    heal(world)
    assert set(world.state_now.isr) == {1, 2, 3}
    assert world.unheard == set()


def test_what_was_acknowledged_before_its_directory_failed_in_the_same_event_is_committed():
    """One LeaderAndIsr commits a record of the first partition, and fails to write the epochs of the third.

    The replica is offline before it can be looked at. Seed 10,450,005 of consume, transform, produce called the
    acknowledged record not committed.
    """
    checkers = [Checker(1) for _ in range(3)]
    world = World((1, 2), CoreSettings(replica_lag_time_max_ms=2000), TopicRules(), *checkers)
    first, _, third = world.partitions
    world.produce(1, ACKS_ALL, 1, timeout_ms=10_000)
    world.kill(2)
    world.expire(2)
    world.decide_all()
    world.fail_directory(1, 0, writes_left=2)
    world.deliver_all(1)
    assert first.brokers[1].is_offline
    assert third.brokers[1].is_offline
    assert len(first.checker.committed) == 1


@pytest.mark.parametrize(("power", "begin"), [(MUST_SURVIVE, 40), (MAY_LOSE, 5)])
def test_kafkas_rule_for_unseen_restarts_is_found_out(power: str, begin: int, monkeypatch: pytest.MonkeyPatch):
    """``controller.failover.trusts.restarted.brokers=true``; the same seeds acquit the default."""
    kafkas = ControllerSettings(leader_imbalance_percentage=0, trusts_restarted_brokers=True)
    monkeypatch.setattr(sim_controller, "SETTINGS", kafkas)
    first = next(seed for seed in range(begin, 300) if history_of(seed, 500, power=power).violation is not None)
    monkeypatch.undo()
    assert history_of(first, 500, power=power).violation is None


@pytest.mark.parametrize("rule", OLDER_RULES)
def test_an_older_rule_is_found_out(rule: str):
    """Random search alone finds the flaw of each: committed records that are lost, or logs that differ for good."""
    result = search(SearchPlan(runs=400, rule=rule), fail_fast=True)
    assert [finding.invariant for finding in result.findings] in (
        ["StrongIsr"],
        ["LogMatchingHw"],
        ["EpochsMonotone"],
        ["Converges"],
    )


def test_the_oldest_rule_loses_and_diverges():
    """Both flaws are found by chance: committed records that an in-sync replica truncates, and logs that differ."""
    found = {finding.invariant for finding in search(SearchPlan(runs=25, rule="high-watermark")).findings}
    assert {"StrongIsr", "LogMatchingHw"} <= found


def test_the_same_seed_gives_the_same_history():
    """To the last number drawn, and so to the step and the words of a violation."""
    one, other = history_of(7, 300), history_of(7, 300)
    assert one == other
    assert len(one.schedule) == 300
    assert history_of(8, 300).schedule != one.schedule


def test_a_recorded_schedule_gives_the_same_history():
    """Shrinking relies on it."""
    result = search(SearchPlan(runs=300, rule="high-watermark"), fail_fast=True)
    seed = result.findings[0].seed
    history = history_of(seed, 500, "high-watermark")
    again = replay_schedule(seed, history.schedule, "high-watermark", tells=True)
    assert (again.steps, str(again.violation)) == (history.steps, str(history.violation))
    assert again.schedule == history.schedule


@pytest.mark.parametrize("seed", [1, 5, 7])
def test_a_history_is_the_same_whether_it_is_described_or_not(seed: int):
    """A step is described only for a reader, and each step then says more than that it was done."""
    history = history_of(seed, 200, "high-watermark")
    described = replay_schedule(seed, history.schedule, "high-watermark", tells=True)
    assert (described.steps, str(described.violation), described.inputs) == (
        history.steps,
        str(history.violation),
        history.inputs,
    )
    assert (history.story, UNDESCRIBED in described.story) == ([], False)
    assert len([done for done in described.story if done is not None]) > 100


@pytest.mark.parametrize("weights", [[0.5, 0.0, 2.5, 24.0, 0.35], [0.003, 1.0, 0.0, 0.0125]])
def test_lots_fall_as_often_as_the_weights_say(weights: list[float]):
    """Each number stands for the place at which the rising sum of the weights passes it."""
    lots = Lots(weights)
    rising = [*accumulate(round(weight * 1000) for weight in weights)]
    assert lots.end == rising[-1]
    assert all(lots.place(number) == bisect_right(rising, number) for number in range(lots.end))


def test_most_of_a_history_needs_no_garbage_collector():
    """Its logs are let go of at its end: the search for cycles would cost a twentieth of all time."""
    gc.collect()
    gc.disable()
    try:
        assert history_of(3, 100).acknowledged
        assert not [log for log in gc.get_objects() if isinstance(log, MemoryLog) and log.records]
    finally:
        gc.enable()


def test_a_violation_is_made_short():
    """Some twenty steps instead of hundreds, with a word for each."""
    result = search(SearchPlan(runs=300, rule="high-watermark"), fail_fast=True)
    history = history_of(result.findings[0].seed, 500, "high-watermark")
    short = shrink(history, "high-watermark")
    assert short.violation is not None
    assert history.violation is not None
    assert short.violation.invariant == history.violation.invariant
    assert len(short.schedule) < 60
    assert all(short.story[:-1])


def test_a_search_gives_the_same_on_one_core_and_on_two():
    """Runs are counted in their order, also those up to the first violation."""
    plan = SearchPlan(seed=0, runs=12, steps=300, rule="high-watermark")
    one, two = search(plan), search(plan, jobs=2)
    assert one.findings == two.findings
    assert (one.runs, one.steps, one.acknowledged) == (two.runs, two.steps, two.acknowledged)
    assert one.findings
    first = search(plan, jobs=2, fail_fast=True)
    assert first.findings == one.findings[:1]
    assert first.runs == one.findings[0].run + 1


def test_swarms_differ():
    """Faults that always come together hide one another: each is missing in some histories."""
    swarms = [swarm_of(seed, "kip-320", MUST_SURVIVE) for seed in range(100)]
    assert {swarm.min_insync_replicas for swarm in swarms} == {1, 2}
    assert {len(swarm.replicas) for swarm in swarms} == {2, 3, 4}
    assert {(swarm.power, swarm.flushes) for swarm in swarms} == {("unreported", False), ("any", True)}
    first = len(ACTIONS) - 7
    faults = list(zip(*(swarm.weights[first : len(ACTIONS)] for swarm in swarms), strict=True))
    assert all(0 in weights and max(weights) > 0 for weights in faults)
    several = [swarm for swarm in swarms if swarm.directories == 2]
    assert 25 < len(several) < 55
    assert {swarm.partitions for swarm in several} == {2, 3}
    faults = list(zip(*(swarm.weights[len(ACTIONS) : -1] for swarm in several), strict=True))
    assert len(faults) == 3
    assert all(0 in weights and max(weights) > 0 for weights in faults)


# The verb


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(simulate, arguments)
    return result.exit_code, result.stdout


def test_the_verb_prints_one_document():
    code, out = run("--runs", "3", "--steps", "100", "--jobs", "1", "--seed", "5", "-o", "json")
    document: dict[str, Any] = json.loads(out)
    assert code == 0
    keys = ["seed", "runs", "steps", "seconds", "steps_per_second", "truncation", "violations"]
    assert list(document) == [*keys, "mode", "lost", "coverage", "events", "events_per_second", "losses", "compiled"]
    assert document["events"] > document["steps"]
    assert (document["losses"], document["compiled"]) == (0, False)
    assert (document["mode"], document["lost"]) == (MUST_SURVIVE, [])
    assert document["coverage"]["states"] > 5
    assert sum(document["coverage"]["events"].values()) > 90
    assert (document["seed"], document["runs"], document["steps"]) == (5, 3, 300)
    assert (document["truncation"], document["violations"]) == ("kip-320", [])


def test_the_verb_names_a_violation_by_a_seed_that_gives_it_again():
    rule = ("--truncation", "high-watermark", "--jobs", "1", "-o", "json")
    code, out = run("--runs", "300", "--fail-fast", *rule)
    (found,) = json.loads(out)["violations"]
    assert code == 1
    assert list(found) == ["seed", "run", "step", "invariant", "message"]
    code, out = run("--runs", "1", "--seed", str(found["seed"]), *rule)
    assert code == 1
    assert json.loads(out)["violations"] == [found | {"run": 0}]


def test_the_verb_prints_a_short_schedule():
    code, out = run("--runs", "300", "--fail-fast", "--truncation", "high-watermark", "--jobs", "1")
    assert code == 1
    assert " breaks " in out
    assert "break StrongIsr in" in out or "break LogMatchingHw in" in out or "break Converges in" in out


def test_the_verb_draws_a_violation_and_writes_a_scenario(tmp_path: Path):
    """The picture shows the brokers' lanes; the scenario is one that the lab takes (it was run on real processes)."""
    files = ("--svg", str(tmp_path / "x.svg"), "--scenario", str(tmp_path / "x.yaml"))
    code, _ = run("--runs", "300", "--fail-fast", "--truncation", "high-watermark", "--jobs", "1", *files)
    assert code == 1
    picture = (tmp_path / "x.svg").read_text()
    assert picture.startswith("<svg")
    assert "broker 1" in picture
    scenario = parse((tmp_path / "x.yaml").read_text(), "x.yaml")
    assert scenario.settings["replica.truncation.rule"] == "high-watermark"
    assert len(scenario.steps) > 5


def test_the_verb_writes_the_short_schedule_as_a_scenario(tmp_path: Path):
    """Acts that the lab can do become steps, the rest comments; the lab takes the file."""
    file = tmp_path / "x.yaml"
    code, _ = run("--runs", "30", "--fail-fast", "--truncation", "kip-101", "--jobs", "1", "--schedule", str(file))
    assert code == 1
    text = file.read_text()
    assert parse(text, "x.yaml").settings["replica.truncation.rule"] == "kip-101"
    assert "  - kill: " in text
    assert "  # not forced: " in text


def test_where_no_story_is_found_the_scenario_is_the_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tidegauge_proof.cli.simulate.find_story", lambda *_: None)
    file = tmp_path / "x.yaml"
    run("--runs", "30", "--fail-fast", "--truncation", "high-watermark", "--jobs", "1", "--scenario", str(file))
    assert file.read_text().startswith("title: The short schedule of seed ")


@pytest.mark.parametrize("power", [MUST_SURVIVE, MAY_LOSE])
def test_every_printed_history_is_a_scenario_that_the_lab_takes(power: str):
    """Whole histories: every action occurs, and what it says becomes a step or a comment."""
    for seed in range(12):
        reported = replay_schedule(seed, history_of(seed, 300, power=power).schedule, power=power, tells=True)
        text = schedule_scenario.as_scenario(reported, power=power)
        scenario = parse(text, "x.yaml")
        assert len(scenario.steps) == text.count("\n  - ") - text.count("\n  - {name")


def test_the_verb_refuses_what_makes_no_sense():
    assert run("--runs", "0")[0] == 2
    assert run("--truncation", "kip-1")[0] == 2
    assert run("--seed", "-1")[0] == 2


def test_the_verb_ends_with_3_if_the_simulator_itself_fails(monkeypatch: pytest.MonkeyPatch):
    def fails(*_: object) -> None:
        raise KeyError("what")

    monkeypatch.setattr("tidegauge_proof.simulator.search.history_of", fails)
    assert run("--runs", "1", "--jobs", "1")[0] == 3


# Longer searches


@pytest.mark.long
def test_ten_million_events_break_nothing():
    """Permitted losses are named."""
    for power, first in ((MUST_SURVIVE, 1_000_000), (MAY_LOSE, 2_000_000)):
        result = search(SearchPlan(seed=first, runs=5000, steps=1000, power=power), jobs=2)
        assert result.findings == []
        assert result.steps == 5_000_000
        assert bool(result.lost) == (power == MAY_LOSE)
