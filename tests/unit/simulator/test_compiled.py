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
import hashlib, json, random, sys
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
print(json.dumps({"compiled": search.IS_COMPILED, "digests": digests}))
"""
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
) -> dict[str, object]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([path, os.environ.get("PYTHONPATH", "")])}
    environment["TIDEGAUGE_COMPILED"] = machine_code
    done = subprocess.run(
        [sys.executable, "-c", tells, json.dumps(searches)], env=environment, capture_output=True, text=True, check=True
    )
    print(done.stderr)
    response: dict[str, object] = json.loads(done.stdout)
    return response


def test_without_a_compiler_it_says_so_and_nothing_is_left(tmp_path: Path):
    """``make simulate-long`` then goes on interpreted, and by no means with what was compiled of other sources."""
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


def test_a_wheel_that_cannot_be_made_is_an_error(tmp_path: Path):
    """Whoever asked for a wheel wants one, and must not have to look for it."""
    tool = [sys.executable, str(ROOT / "tools" / "compile_packages.py"), "--wheel", str(tmp_path / "dist")]
    done = subprocess.run(
        [*tool, str(tmp_path / "compiled")],
        env={**os.environ, "CC": "no-such-compiler"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert not (tmp_path / "dist").exists()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_seed_is_the_same_history_compiled():
    """Both modes, the older rules with their violations, and schedules in words."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "compile_packages.py")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    if not DIRECTORY.is_dir():
        pytest.skip(done.stderr.strip())
    compiled, interpreted = reported(str(DIRECTORY)), reported("", "off")
    assert (compiled["compiled"], interpreted["compiled"]) == (True, False)
    assert Path(str(compiled["file"])).is_relative_to(DIRECTORY)
    assert compiled["digests"] == interpreted["digests"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_seed_is_the_same_history_of_coordinators_compiled():
    """Each world's steps in words, counts and dice."""
    if not DIRECTORY.is_dir():
        pytest.skip("there is no compiled simulator")
    compiled = reported(str(DIRECTORY), "on", TELLS_OF_COORDINATORS, SEARCHES_OF_COORDINATORS)
    interpreted = reported("", "off", TELLS_OF_COORDINATORS, SEARCHES_OF_COORDINATORS)
    assert (compiled["compiled"], interpreted["compiled"]) == (True, False)
    assert compiled["digests"] == interpreted["digests"]


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_compiled_simulator_shares_work_among_processes(tmp_path: Path):
    """What processes tell one another is made of compiled classes, too."""
    if not DIRECTORY.is_dir():
        pytest.skip("there is no compiled simulator")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(DIRECTORY), os.environ.get("PYTHONPATH", "")])}
    found = []
    for jobs in ("1", "2"):
        arguments = ["simulate", "--runs", "60", "--steps", "200", "--truncation", "high-watermark", "--jobs", jobs]
        verb = "from tidegauge_client.cli.main import main; main()"
        command = [sys.executable, "-c", verb, *arguments, "-o", "json"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        found.append({k: v for k, v in json.loads(done.stdout).items() if "second" not in k})
    assert found[0]["compiled"]
    assert found[0]["violations"]
    assert found[0] == found[1]
