"""Many histories of a consumer group, in several processes, and what came of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context

from tidegauge_proof.simulator.groups.group_history import GroupHistory, group_history_of
from tidegauge_proof.simulator.search import without_ctrl_c

_CHUNK_RUNS = 2


@dataclass(frozen=True, slots=True)
class GroupFinding:
    """A violation; ``seed`` alone gives the same history again."""

    seed: int
    step: int
    invariant: str
    message: str


@dataclass(slots=True)
class GroupSearchResult:
    """What came of the histories.

    Attributes:
        runs, steps: how many were done.
        commits: acknowledged commits of a partition.
        rebalances: completed ones, over all histories.
        loads: completed loads of a coordinator.
        died_with: what coordinators were in the middle of when their processes died, with the number of histories.
        findings: violations, by seed.
    """

    runs: int = 0
    steps: int = 0
    commits: int = 0
    rebalances: int = 0
    loads: int = 0
    died_with: dict[str, int] = field(default_factory=dict[str, int])
    findings: list[GroupFinding] = field(default_factory=list[GroupFinding])

    def add(self, history: GroupHistory) -> None:
        """Count a history."""
        self.runs += 1
        self.steps += history.steps
        self.commits += history.commits
        self.rebalances += history.generations
        self.loads += history.loads
        for moment in history.died_with:
            self.died_with[moment] = self.died_with.get(moment, 0) + 1
        if history.violation is not None:
            broken = history.violation
            self.findings.append(GroupFinding(history.seed, history.steps, broken.invariant, str(broken.message)))

    def merge(self, other: GroupSearchResult) -> None:
        """Count the histories of another result."""
        self.runs += other.runs
        self.steps += other.steps
        self.commits += other.commits
        self.rebalances += other.rebalances
        self.loads += other.loads
        for moment, histories in other.died_with.items():
            self.died_with[moment] = self.died_with.get(moment, 0) + histories
        self.findings += other.findings


def search_groups(
    seeds: range, steps: int, *, jobs: int, fail_fast: bool, report: Callable[[GroupSearchResult], None]
) -> GroupSearchResult:
    """Run a history for each seed.

    Args:
        seeds: their seeds.
        steps: of each.
        jobs: processes; with one none is started.
        fail_fast: end with the first violation.
        report: called with the result so far after some histories.

    Returns:
        The result; the same seeds give the same one, unless ``fail_fast`` ended it.
    """
    result = GroupSearchResult()
    chunks = [seeds[at : at + _CHUNK_RUNS] for at in range(0, len(seeds), _CHUNK_RUNS)]
    if jobs == 1 or len(chunks) == 1:
        for seed in seeds:
            result.add(group_history_of(seed, steps))
            report(result)
            if fail_fast and result.findings:
                break
        return result
    pool = ProcessPoolExecutor(min(jobs, len(chunks)), mp_context=get_context("spawn"))
    try:
        with without_ctrl_c():
            waiting = [pool.submit(_chunk, chunk, steps) for chunk in chunks]
        for done in waiting:
            result.merge(done.result())
            report(result)
            if fail_fast and result.findings:
                break
    finally:
        pool.shutdown(cancel_futures=True)
    return result


def _chunk(seeds: range, steps: int) -> GroupSearchResult:
    result = GroupSearchResult()
    for seed in seeds:
        result.add(group_history_of(seed, steps))
    return result
