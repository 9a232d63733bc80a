"""The compiled simulator is the same simulator: each seed's history, to the last number drawn and the last record.

Compiling takes minutes, so this is long; without a C compiler it is skipped and says why.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DIRECTORY = ROOT / "build" / "compiled"
TELLS = """
import hashlib, json, sys, time
from tidegauge_proof.simulator import search, simulation, world

def words(history):
    return repr((
        history.seed, history.steps, str(history.violation), history.schedule, history.story, history.events,
        history.lost, history.inputs, history.acknowledged, history.leader_epochs, history.controller_epochs,
    ))

digests, events = {}, 0
started = time.process_time()
for rule, power in json.loads(sys.argv[1]):
    digest = hashlib.sha256()
    for seed in range(60):
        history = simulation.history_of(seed, 500, rule, power)
        events += history.inputs
        digest.update(words(history).encode())
        if history.violation is not None and seed % 4 == 0:
            told = simulation.replay_schedule(seed, history.schedule, rule, power, tells=True)
            digest.update(words(told).encode())
    digests[f"{rule} {power}"] = digest.hexdigest()
print(json.dumps({"file": world.__file__, "compiled": search.IS_COMPILED, "digests": digests}))
print(round(events / (time.process_time() - started)), "events a second of processor time", file=sys.stderr)
"""
SEARCHES = [
    ["kip-320", "must-survive"],
    ["kip-320", "may-lose"],
    ["kip-320", "uncommitted"],
    ["high-watermark", "must-survive"],
    ["kip-101", "may-lose"],
    ["kip-279", "must-survive"],
]


TELLS_OF_COORDINATORS = """
import hashlib, importlib, json, random, sys
from tidegauge_proof.simulator import coordinator_search, search

digests, drawn = {}, []
begin = random.Random.__init__
def keep(self, *arguments):
    begin(self, *arguments)
    drawn.append(self)
random.Random.__init__ = keep
for world, requests, steps, seeds in json.loads(sys.argv[1]):
    digest = hashlib.sha256()
    for seed in range(seeds):
        drawn.clear()
        plan = coordinator_search.CoordinatorPlan(world, 0, 1, steps, requests)
        history = plan.history(seed, tells=True)
        counts = [getattr(history, name) for name in coordinator_search.KINDS[world].counts]
        last = [one.getstate() for one in drawn]
        words = (history.steps, str(history.violation), history.story, history.inputs, history.loads, counts, last)
        digest.update(repr((*words, sorted(history.died_with))).encode())
        assert drawn, "the dice are of another kind"
    digests[f"{world} {requests}"] = digest.hexdigest()
files = {name: importlib.import_module(name).__file__ for name in json.loads(sys.argv[2])}
print(json.dumps({"files": files, "compiled": search.IS_COMPILED, "digests": digests}))
"""
WORLDS = [
    "tidegauge_broker.coordinator.coordinator",
    "tidegauge_broker.coordinator.transaction.coordinator",
    "tidegauge_proof.simulator.coordinator_world",
    "tidegauge_proof.simulator.groups.group_checker",
    "tidegauge_proof.simulator.transactions.transaction_checker",
    "tidegauge_proof.simulator.exactly_once.joint_checker",
]
"""Modules of coordinators and their worlds that are compiled."""
SEARCHES_OF_COORDINATORS = [
    ["groups", "timely", 500, 12],
    ["transactions", "timely", 500, 12],
    ["transactions", "late", 500, 12],
    ["exactly-once", "timely", 1000, 6],
    ["exactly-once", "late", 1000, 6],
    ["exactly-once", "late-ends", 1000, 6],
    ["forced", "timely", 0, 12],
]


def reported(
    path: str, machine_code: str = "on", tells: str = TELLS, searches: list[list[Any]] = SEARCHES
) -> dict[str, Any]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
    environment["TIDEGAUGE_COMPILED"] = machine_code
    command = [sys.executable, "-c", tells, json.dumps(searches), json.dumps(WORLDS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    response: dict[str, Any] = json.loads(done.stdout)
    return response


@pytest.fixture(scope="module")
def directory() -> Path:
    """Compile these sources, which takes minutes the first time; return the directory."""
    tool = [sys.executable, str(ROOT / "tools" / "compile_packages.py")]
    done = subprocess.run(tool, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    if not DIRECTORY.is_dir():
        pytest.skip(done.stderr.strip())
    return DIRECTORY


def verb(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a verb of the command line, compiled."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")])}
    main = "from tidegauge_client.cli.main import main; main()"
    command = [sys.executable, "-c", main, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_without_a_compiler_it_says_so_and_nothing_is_left(tmp_path: Path):
    """``make simulate-long`` then runs interpreted, and never with modules compiled from other sources."""
    directory = tmp_path / "compiled"
    directory.mkdir()
    tool = [sys.executable, str(ROOT / "tools" / "compile_packages.py"), str(directory)]
    done = subprocess.run(
        tool, env={**os.environ, "CC": "no-such-compiler"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr == (
        "Nothing is compiled: there is no C compiler (no-such-compiler). Brokers and simulator run interpreted.\n"
    )
    assert not directory.exists()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_seed_is_the_same_history_compiled(directory: Path):
    """Both modes, the older rules with their violations, and schedules in words."""
    compiled, interpreted = reported(str(directory)), reported("", "off")
    assert (compiled["compiled"], interpreted["compiled"]) == (True, False)
    assert Path(str(compiled["file"])).is_relative_to(directory)
    assert compiled["digests"] == interpreted["digests"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_seed_is_the_same_history_of_coordinators_compiled(directory: Path):
    """Each world's steps in words, counts and dice, in every mode."""
    compiled = reported(str(directory), "on", TELLS_OF_COORDINATORS, SEARCHES_OF_COORDINATORS)
    interpreted = reported("", "off", TELLS_OF_COORDINATORS, SEARCHES_OF_COORDINATORS)
    assert (compiled["compiled"], interpreted["compiled"]) == (True, False)
    for module in WORLDS:
        assert Path(str(compiled["files"][module])).is_relative_to(directory), module
    assert compiled["digests"] == interpreted["digests"]


LEFT = """
import gc, json, sys
from collections import Counter
from tidegauge_proof.simulator import coordinator_search, search

for world, requests, steps, seeds in json.loads(sys.argv[1]):
    for seed in range(seeds):
        coordinator_search.CoordinatorPlan(world, 0, 1, steps, requests).history(seed)
gc.collect()
left = Counter(type(one).__name__ for one in gc.get_objects())
print(json.dumps({"compiled": search.IS_COMPILED, "worlds": left["World"], "brokers": left["MemoryBroker"]}))
"""


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_nothing_of_a_compiled_history_is_left(directory: Path):
    """A search of millions of histories has to fit into memory: each is freed, cycles and all."""
    left = reported(str(directory), "on", LEFT, SEARCHES_OF_COORDINATORS)
    assert left == {"compiled": True, "worlds": 0, "brokers": 0}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("arguments", "is_broken"),
    [
        (["--truncation", "high-watermark", "--runs", "60", "--steps", "200"], True),
        (["--world", "exactly-once", "--requests", "late", "--runs", "6", "--steps", "200"], False),
    ],
    ids=["topics", "exactly-once"],
)
def test_the_compiled_simulator_shares_work_among_processes(directory: Path, arguments: list[str], is_broken: bool):
    """Messages between processes are made of compiled classes, too."""
    found = []
    for jobs in ("1", "2"):
        done = verb(directory, "simulate", *arguments, "--jobs", jobs, "-o", "json")
        assert done.returncode == is_broken, done.stderr
        found.append({k: v for k, v in json.loads(done.stdout).items() if "second" not in k})
    assert found[0]["compiled"]
    assert bool(found[0]["violations"]) is is_broken
    assert found[0] == found[1]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_compiled_verb_explores_coordinators_interpreted(directory: Path):
    """It replaces its own process, says so, and finds what it always finds."""
    done = verb(directory, "explore", "--world", "group", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("Interpreted, since ")
    found = json.loads(done.stdout)
    assert (found["states"], found["transitions"], found["complete"]) == (377, 709, True)
