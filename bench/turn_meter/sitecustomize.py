# ruff: noqa: SLF001 - asyncio has no public place to measure a turn
"""Measures each turn of an event loop in CPU time of its thread; ``loop_turns.py`` puts this on the path of its nodes.

A process reports when it ends: a file in TURNS_DIRECTORY with its longest turns, a line of JSON each, and its longest
garbage collections. ``TURNS_DIRECTORY/phase`` names the workload that a turn belongs to.
"""

import asyncio
import atexit
import gc
import heapq
import json
import os
import time
from pathlib import Path

_directory = Path(os.environ["TURNS_DIRECTORY"])
_phase = _directory / "phase"
_KEPT = 5
_FROM_SECONDS = 0.002
_longest: dict[str, list[tuple[float, str]]] = {}
_run = asyncio.events.Handle._run
_is_in_turn = [False]
"""Whether a turn is running: collections while modules are imported, or at the end, keep no connection waiting."""
_began: list[float] = [0.0]
"""When the collection in progress began."""


def _note(kind: str, seconds: float, what: str) -> None:
    try:
        phase = _phase.read_text()
    except OSError:
        phase = "start"
    kept = _longest.setdefault(f"{phase} {kind}", [])
    heapq.heappush(kept, (seconds, what))
    if len(kept) > _KEPT:
        heapq.heappop(kept)


def _measured(handle: asyncio.Handle) -> None:
    callback, began = handle._callback, time.thread_time()  # a handle that is cancelled meanwhile forgets it
    _is_in_turn[0] = True
    _run(handle)
    _is_in_turn[0] = False
    seconds = time.thread_time() - began
    if seconds > _FROM_SECONDS:
        task = getattr(callback, "__self__", None)
        coroutine = task.get_coro() if isinstance(task, asyncio.Task) else callback
        _note("turn", seconds, getattr(coroutine, "__qualname__", str(coroutine))[:100])


def _collected(phase: str, _: dict[str, int]) -> None:
    if phase == "start":
        _began[0] = time.thread_time()
    elif _is_in_turn[0] and (seconds := time.thread_time() - _began[0]) > _FROM_SECONDS:
        _note("collection", seconds, "gc")


def _report() -> None:
    lines = [
        json.dumps({"what": name, "ms": round(1000 * seconds, 1), "where": where})
        for name, kept in _longest.items()
        for seconds, where in sorted(kept, reverse=True)
    ]
    (_directory / f"{os.getpid()}.jsonl").write_text("\n".join([*lines, ""]))


asyncio.events.Handle._run = _measured  # type: ignore[method-assign] # the meter is what this file is for
gc.callbacks.append(_collected)
atexit.register(_report)
os.register_at_fork(after_in_child=_longest.clear)
