"""Many histories, one for each seed, on several cores; which of them broke an invariant.

Run r of a search has the seed ``seed + r``, so that a violation is had again by that seed and one run. The result does
not depend on how many processes share the work: runs are counted in their order.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Generator, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing import get_context, resource_tracker
from typing import NamedTuple

from tidegauge_proof.simulator import world
from tidegauge_proof.simulator.coverage import EACH, Coverage
from tidegauge_proof.simulator.simulation import DEFAULT_POWER, DEFAULT_RULE, history_of

_CHUNK = 10
IS_COMPILED = not (world.__file__ or "").endswith(".py")
"""Whether the simulator runs as machine code (tidegauge.machine_code)."""


class Finding(NamedTuple):
    """An invariant that a run broke; ``step`` counts from 1, and is one more than all for what showed at the end."""

    seed: int
    run: int
    step: int
    invariant: str
    message: str


class RunSummary(NamedTuple):
    """A process's report of one run."""

    run: int
    steps: int
    events: int
    finding: Finding | None
    acknowledged: int
    leader_epochs: int
    lost: tuple[str, ...]
    coverage: Coverage | None


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The plan of a search: runs ``0 .. runs - 1`` of so many steps each, from a first seed on.

    ``directories``: log directories of each broker; None: what each seed says.
    """

    seed: int = 0
    runs: int = 1000
    steps: int = 500
    rule: str = DEFAULT_RULE
    power: str = DEFAULT_POWER
    directories: int | None = None


@dataclass(slots=True)
class SearchResult:
    """The result of a search. ``runs`` and ``steps`` are done ones; ``lost`` names what power losses took, by seed.

    ``losses`` counts them, also if they are not named (record.py).
    ``events`` is what the state machines under test were given: calls of brokers' cores, and controllers' requests to
    ZooKeeper.
    """

    runs: int = 0
    steps: int = 0
    events: int = 0
    seconds: float = 0.0
    acknowledged: int = 0
    leader_epochs: int = 0
    findings: list[Finding] = field(default_factory=list)
    lost: list[tuple[int, str]] = field(default_factory=list)
    losses: int = 0
    coverage: Coverage = field(default_factory=Coverage)


@dataclass(slots=True)
class Ongoing:
    """A running search, for those who watch it or interrupt it.

    Attributes:
        done: the result of the pieces that have ended (record.py); empty if there are none.
        now: what came of the runs since.
    """

    done: SearchResult = field(default_factory=SearchResult)
    now: SearchResult = field(default_factory=SearchResult)

    @property
    def runs(self) -> int:
        """How many runs have been done."""
        return self.done.runs + self.now.runs

    @property
    def violations(self) -> int:
        """How many of them broke an invariant."""
        return len(self.done.findings) + len(self.now.findings)


class SimulatorFailed(Exception):
    """Not an invariant broke, but the simulator; the text says in which run."""


def search(plan: SearchPlan, *, jobs: int = 1, fail_fast: bool = False, ongoing: Ongoing | None = None) -> SearchResult:
    """Run all, or up to the first that breaks an invariant.

    Args:
        plan: what to search.
        jobs: how many processes share the work.
        fail_fast: stop at the first violation.
        ongoing: is kept up to date; a search that is interrupted leaves it there.

    Raises:
        SimulatorFailed: the simulator has a fault of its own.
    """
    result = SearchResult() if ongoing is None else ongoing.now
    started = time.perf_counter()
    with closing(_summaries(plan, jobs)) as summaries:
        for summary in summaries:
            result.runs += 1
            result.seconds = time.perf_counter() - started
            result.steps += summary.steps
            result.events += summary.events
            result.acknowledged += summary.acknowledged
            result.leader_epochs += summary.leader_epochs
            if summary.coverage is not None:
                result.coverage.add(summary.coverage)
            result.lost += [(plan.seed + summary.run, words) for words in summary.lost]
            result.losses += len(summary.lost)
            if summary.finding is not None:
                result.findings.append(summary.finding)
                if fail_fast:
                    break
    result.seconds = time.perf_counter() - started
    return result


def _summaries(plan: SearchPlan, jobs: int) -> Generator[RunSummary, None, None]:
    chunks = [range(first, min(first + _CHUNK, plan.runs)) for first in range(0, plan.runs, _CHUNK)]
    if jobs == 1 or len(chunks) == 1:
        for runs in chunks:
            for run in runs:
                yield _run(plan, run)
        return
    pool = ProcessPoolExecutor(min(jobs, len(chunks)), mp_context=get_context("spawn"))
    try:
        with without_ctrl_c():
            waiting = [pool.submit(_run_chunk, plan, runs) for runs in chunks]
        for future in waiting:
            yield from future.result()
    finally:
        pool.shutdown(cancel_futures=True)


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Start processes that Ctrl-C does not reach: they end when their search does, and print nothing.

    They inherit that the signal is blocked. A Ctrl-C meanwhile counts for this process when the block has ended.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed meanwhile.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    resource_tracker.ensure_running()  # if started later, it unblocks the signal
    came: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # a signal that waits comes now, and is noted
        signal.signal(signal.SIGINT, before)
        if came and callable(before):
            before(signal.SIGINT, None)


def _run_chunk(plan: SearchPlan, runs: range) -> list[RunSummary]:
    return [_run(plan, run) for run in runs]


def _run(plan: SearchPlan, run: int) -> RunSummary:
    seed = plan.seed + run
    coverage = Coverage() if run % EACH == 0 else None
    try:
        history = history_of(seed, plan.steps, plan.rule, plan.power, coverage, plan.directories)
    except Exception as problem:
        words = str(problem) or type(problem).__name__
        raise SimulatorFailed(f"run {run} (seed {seed}): {words}") from problem
    violation = history.violation
    finding = None
    if violation is not None:
        finding = Finding(seed, run, history.steps, violation.invariant, violation.message)
    lost = tuple(history.lost)
    return RunSummary(
        run, history.steps, history.inputs, finding, history.acknowledged, history.leader_epochs, lost, coverage
    )
