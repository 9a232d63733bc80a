"""Crashes in any step of a broker's logs, beside one another, in two log directories: nothing that was kept is lost.

``crash_twin.py`` says what must be found after each start, ``crash_world.py`` what may happen before it, and
``crash_disk.py`` what a kill and a loss of power leave. A failure names its seed, and the shortest script that fails.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.log.crash_scripts import Script, script_of
from tests.unit.log.crash_world import Process, World, Wrong


@pytest.fixture(autouse=True)
def no_real_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Syncs are noted all the same."""
    monkeypatch.setattr("tidegauge_broker.log.files.os.fsync", lambda _descriptor: None)


_numbers = itertools.count()


def run(directory: Path, script: Script) -> World:
    """Play a script; then start twice more: the second start finds what the first one has left, and nothing else.

    Raises:
        Wrong: a rule does not hold.
    """
    world = World(directory / str(next(_numbers)))
    try:
        for process in script:
            world.play(process)
        world.play(Process((("remove deleted", 0, 0),)))
        world.open_and_check_twice()
    finally:
        world.remove()
    return world


def failure_of(directory: Path, script: Script) -> Exception | None:
    try:
        run(directory, script)
    except Exception as problem:  # noqa: BLE001 - whatever it is, the script shows it
        return problem
    return None


def shortest(fails: Callable[[Script], bool], script: Script) -> Script:
    """Leave out processes, steps and crashes as long as it still fails."""
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for candidate in _shorter(script):
            if fails(candidate):
                script, is_shorter = candidate, True
                break
    return script


def _shorter(script: Script) -> list[Script]:
    found: list[Script] = [(*script[:at], *script[at + 1 :]) for at in range(len(script))]
    for at, process in enumerate(script):
        for size in (8, 4, 2, 1):
            for start in range(0, len(process.steps), size):
                steps = (*process.steps[:start], *process.steps[start + size :])
                found.append((*script[:at], process._replace(steps=steps), *script[at + 1 :]))
        if process.torn:
            found.append((*script[:at], process._replace(torn=False), *script[at + 1 :]))
        if process.last is not None:
            found.append((*script[:at], process._replace(last=None), *script[at + 1 :]))
    return found


def text_of(script: Script) -> str:
    return "(\n" + "".join(f"    {process},\n" for process in script) + ")"


def search(directory: Path, seeds: range, seconds: float = float("inf")) -> int:
    """Play the scripts of seeds; return how many."""
    until = time.monotonic() + seconds
    for count, seed in enumerate(seeds):
        if time.monotonic() > until:
            return count
        script = script_of(seed)
        problem = failure_of(directory, script)
        if problem is not None:
            kind = type(problem)
            short = shortest(lambda one, kind=kind: type(failure_of(directory, one)) is kind, script)
            last = failure_of(directory, short)
            raise Wrong(f"seed {seed}: {last!r} after\n{text_of(short)}") from last
    return len(seeds)


def test_logs_live_through_crashes_in_any_step(tmp_path: Path) -> None:
    """Among the stories of these seeds: a compaction without its recovery point, a segment that is named by a gap."""
    search(tmp_path, range(24))


@pytest.mark.long
def test_logs_live_through_crashes_in_any_step_for_long(tmp_path: Path) -> None:
    """``CRASH_SEEDS=from-to`` plays others."""
    first, last = os.environ.get("CRASH_SEEDS", "1000-3000").split("-")
    search(tmp_path, range(int(first), int(last)))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(6))
def test_a_crash_before_every_change_of_a_process(tmp_path: Path, seed: int) -> None:
    """Each process of a script ends before each of its changes, once by a kill, once by a loss of power."""
    script = tuple(process._replace(last=None, torn=False) for process in script_of(seed)[:2])
    counts = run(tmp_path, script).changes
    for at, count in enumerate(counts[: len(script)]):
        for last in range(count):
            for end in ("kill", "power"):
                search_one = (*script[:at], script[at]._replace(last=last, end=end), *script[at + 1 :])
                problem = failure_of(tmp_path, search_one)
                assert problem is None, text_of(search_one)
