"""Many histories with coordinators, in several processes and in several sittings, and what came of them.

A world is one kind of history; each has counts of its own. Histories do not depend on each other: their seed, their
world and how late requests may be is all that they are made of. With a record a search is done in pieces, each a line
of JSON in a file: the plan (``world``, ``requests``, ``steps_each``, ``seed``, ``runs``) and its result
(``steps``, ``events``, ``counts``, ``died_with``, ``violations``, ``seconds``, ``cpu_seconds``, ``compiled``). A piece
in the file is not run again, and counts as if it had been.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tidegauge_proof.simulator.consumer_groups.consumer_history import consumer_history_of
from tidegauge_proof.simulator.coordinator_history import History
from tidegauge_proof.simulator.exactly_once.forced_history import forced_history_of
from tidegauge_proof.simulator.exactly_once.forced_schedules import forced_of
from tidegauge_proof.simulator.exactly_once.joint_history import joint_history_of
from tidegauge_proof.simulator.exactly_once.network import LATE, LATE_ENDS, TIMELY
from tidegauge_proof.simulator.groups.group_history import group_history_of
from tidegauge_proof.simulator.kraft.kraft_history import kraft_history_of
from tidegauge_proof.simulator.quorum.quorum_history import quorum_history_of
from tidegauge_proof.simulator.record import cpu_seconds, lines_of
from tidegauge_proof.simulator.search import IS_COMPILED, without_ctrl_c
from tidegauge_proof.simulator.shares.share_history import share_history_of
from tidegauge_proof.simulator.transactions.transaction_history import transaction_history_of

PIECE_RUNS = 200
"""Histories in a piece: five seconds to two minutes."""
_CHUNK_RUNS = 2

GROUPS, TRANSACTIONS, EXACTLY_ONCE, FORCED, QUORUM = "groups", "transactions", "exactly-once", "forced", "quorum"
CONSUMER_GROUPS, SHARE, TRANSACTIONS_V2 = "consumer-groups", "share", "transactions-v2"
KRAFT, KRAFT_WITHOUT_ELR = "kraft", "kraft-without-elr"


class Kind(NamedTuple):
    """One kind of histories.

    Attributes:
        words: what a history is of.
        history_of: runs a seed; its arguments are the seed, the steps, how late requests may be, and whether to tell.
        requests: how late they may be.
        counts: fields of the history that are summed up, each with its name in the report.
    """

    words: str
    history_of: Callable[[int, int, str, bool], History]
    requests: tuple[str, ...]
    counts: dict[str, str]


def _group(seed: int, steps: int, requests: str, tells: bool) -> History:
    del requests
    return group_history_of(seed, steps, tells=tells)


def _consumer_group(seed: int, steps: int, requests: str, tells: bool) -> History:
    del requests
    return consumer_history_of(seed, steps, tells=tells)


def _share(seed: int, steps: int, requests: str, tells: bool) -> History:
    del requests
    return share_history_of(seed, steps, tells=tells)


def _transaction(seed: int, steps: int, requests: str, tells: bool) -> History:
    return transaction_history_of(seed, steps, allows_late=requests == LATE, tells=tells)


def _transaction_v2(seed: int, steps: int, requests: str, tells: bool) -> History:
    return transaction_history_of(seed, steps, allows_late=requests == LATE, tells=tells, version=2)


def _joint(seed: int, steps: int, requests: str, tells: bool) -> History:
    return joint_history_of(seed, steps, requests, tells=tells)


def _forced(seed: int, steps: int, requests: str, tells: bool) -> History:
    del steps, requests
    return forced_history_of(seed, *forced_of(seed), tells=tells)


def _quorum(seed: int, steps: int, requests: str, tells: bool) -> History:
    del requests
    return quorum_history_of(seed, steps, tells=tells)


def _kraft(seed: int, steps: int, requests: str, tells: bool) -> History:
    del requests
    return kraft_history_of(seed, steps, tells=tells)


def _kraft_without_elr(seed: int, steps: int, requests: str, tells: bool) -> History:
    del requests
    return kraft_history_of(seed, steps, elr=False, tells=tells)


_TRANSACTION_COUNTS = {"transactions": "transactions", "committed": "committed", "markers": "markers"}
_JOINT_COUNTS = {
    "transactions": "transactions",
    "committed": "committed",
    "aborted": "aborted",
    "copied": "copied records",
    "reads": "reads",
}
_KRAFT_COUNTS = {
    "acknowledged": "acknowledged batches",
    "elections": "elections of the quorum",
    "images": "images",
    "visible_losses": "records that recorded unclean elections took",
}
KINDS: dict[str, Kind] = {
    GROUPS: Kind("a group", _group, (TIMELY,), {"generations": "rebalances", "commits": "acknowledged commits"}),
    CONSUMER_GROUPS: Kind(
        "a consumer group",
        _consumer_group,
        (TIMELY,),
        {"epochs": "epochs", "moves": "assignments that added partitions", "commits": "acknowledged commits"},
    ),
    SHARE: Kind(
        "a share group",
        _share,
        (TIMELY,),
        {"deliveries": "deliveries", "done": "acknowledged records", "leaders": "leaders"},
    ),
    TRANSACTIONS: Kind(
        "transactions",
        _transaction,
        (TIMELY, LATE),
        _TRANSACTION_COUNTS,
    ),
    TRANSACTIONS_V2: Kind("transactions v2", _transaction_v2, (TIMELY, LATE), _TRANSACTION_COUNTS),
    EXACTLY_ONCE: Kind("consume, transform, produce", _joint, (TIMELY, LATE, LATE_ENDS), _JOINT_COUNTS),
    FORCED: Kind(
        "consume, transform, produce with faults at named steps",
        _forced,
        (TIMELY,),
        {**_JOINT_COUNTS, "strikes": "faults that found their step"},
    ),
    QUORUM: Kind(
        "a quorum of controllers",
        _quorum,
        (TIMELY,),
        {
            "elections": "elections",
            "commits": "commits",
            "voter_changes": "changes of the voters",
            "snapshots": "snapshots fetched",
        },
    ),
    KRAFT: Kind("a cluster in KRaft mode", _kraft, (TIMELY,), _KRAFT_COUNTS),
    KRAFT_WITHOUT_ELR: Kind(
        "a cluster in KRaft mode without eligible leader replicas", _kraft_without_elr, (TIMELY,), _KRAFT_COUNTS
    ),
}


@dataclass(frozen=True, slots=True)
class CoordinatorPlan:
    """The plan of a search: a history for each seed from the first on.

    Attributes:
        world: a name of ``KINDS``.
        steps: of each history; forced ones have as many as they need.
        requests: how late they may be.
    """

    world: str
    seed: int = 0
    runs: int = 1000
    steps: int = 500
    requests: str = TIMELY

    def history(self, seed: int, *, tells: bool = False) -> History:
        """Run one seed."""
        return KINDS[self.world].history_of(seed, self.steps, self.requests, tells)


@dataclass(frozen=True, slots=True)
class CoordinatorFinding:
    """A violation; ``seed`` alone gives the same history again."""

    seed: int
    step: int
    invariant: str
    message: str


@dataclass(slots=True)
class CoordinatorResult:
    """The result of the histories.

    Attributes:
        runs, steps: how many were done.
        events: what the code under test was given: calls of brokers' cores, requests of controllers to ZooKeeper, and
            calls of coordinators.
        seconds: that they took.
        loads: completed loads of a coordinator.
        counts: the world's, by field of its histories.
        died_with: what coordinators were in the middle of when their processes died, with the number of histories.
        findings: violations, by seed.
    """

    runs: int = 0
    steps: int = 0
    events: int = 0
    seconds: float = 0.0
    loads: int = 0
    counts: Counter[str] = field(default_factory=Counter[str])
    died_with: Counter[str] = field(default_factory=Counter[str])
    findings: list[CoordinatorFinding] = field(default_factory=list[CoordinatorFinding])

    def add(self, plan: CoordinatorPlan, history: History) -> None:
        """Count a history."""
        self.runs += 1
        self.steps += history.steps
        self.events += history.inputs
        self.loads += history.loads
        self.counts.update({name: getattr(history, name) for name in KINDS[plan.world].counts})
        self.died_with.update(history.died_with)
        if history.violation is not None:
            broken = history.violation
            self.findings.append(CoordinatorFinding(history.seed, history.steps, broken.invariant, str(broken.message)))

    def merge(self, other: CoordinatorResult) -> None:
        """Count the histories of another result."""
        self.runs += other.runs
        self.steps += other.steps
        self.events += other.events
        self.seconds += other.seconds
        self.loads += other.loads
        self.counts.update(other.counts)
        self.died_with.update(other.died_with)
        self.findings += other.findings

    def sum(self, other: CoordinatorResult) -> CoordinatorResult:
        """Return what came of both."""
        both = CoordinatorResult()
        both.merge(self)
        both.merge(other)
        return both


Report = Callable[[CoordinatorResult], None]
"""Is given the result so far after some histories."""


def search_coordinators(
    plan: CoordinatorPlan, *, jobs: int = 1, fail_fast: bool = False, report: Report = lambda _: None
) -> CoordinatorResult:
    """Run a history for each seed.

    Args:
        plan: what to search.
        jobs: processes; with one none is started.
        fail_fast: end with the first violation.
        report: called with the result so far after some histories.

    Returns:
        The result; but for its seconds the same plan gives the same one, unless ``fail_fast`` ended it.
    """
    result = CoordinatorResult()
    begun = time.perf_counter()
    for part in _parts(plan, jobs):
        result.merge(part)
        result.seconds = time.perf_counter() - begun
        report(result)
        if fail_fast and result.findings:
            break
    return result


def _parts(plan: CoordinatorPlan, jobs: int) -> Iterator[CoordinatorResult]:
    seeds = range(plan.seed, plan.seed + plan.runs)
    if jobs == 1 or plan.runs <= _CHUNK_RUNS:
        for seed in seeds:
            yield _chunk(plan, range(seed, seed + 1))
        return
    chunks = [seeds[at : at + _CHUNK_RUNS] for at in range(0, len(seeds), _CHUNK_RUNS)]
    pool = ProcessPoolExecutor(min(jobs, len(chunks)), mp_context=get_context("spawn"))
    try:
        with without_ctrl_c():
            waiting = [pool.submit(_chunk, plan, chunk) for chunk in chunks]
        for done in waiting:
            yield done.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _chunk(plan: CoordinatorPlan, seeds: range) -> CoordinatorResult:
    result = CoordinatorResult()
    for seed in seeds:
        result.add(plan, plan.history(seed))
    return result


# In pieces


def search_coordinators_in_pieces(
    plan: CoordinatorPlan,
    record: Path,
    *,
    jobs: int = 1,
    fail_fast: bool = False,
    report: Report = lambda _: None,
    piece_runs: int = PIECE_RUNS,
) -> CoordinatorResult:
    """Run what the file does not have yet; the result covers all pieces.

    Raises:
        OSError: the file can't be read or written.
    """
    known = {tuple(line.get(key) for key in _NAMED_BY): line for line in lines_of(record)}
    total = CoordinatorResult()
    for first in range(0, plan.runs, piece_runs):
        piece = replace(plan, seed=plan.seed + first, runs=min(piece_runs, plan.runs - first))
        line = known.get(_name_of(piece))
        if line is None:
            before = cpu_seconds()
            found = search_coordinators(
                piece, jobs=jobs, fail_fast=fail_fast, report=partial(_report_sum, report, total)
            )
            line = _line(piece, found, cpu_seconds() - before)
            if found.runs == piece.runs:
                with record.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
        total = total.sum(_result_of(line))
        report(total)
        if fail_fast and total.findings:
            break
    return total


def _report_sum(report: Report, done: CoordinatorResult, now: CoordinatorResult) -> None:
    report(done.sum(now))


_NAMED_BY = ("world", "requests", "steps_each", "seed", "runs")


def _name_of(piece: CoordinatorPlan) -> tuple[object, ...]:
    return piece.world, piece.requests, piece.steps, piece.seed, piece.runs


def _line(piece: CoordinatorPlan, found: CoordinatorResult, cpu: float) -> dict[str, Any]:
    return {
        **dict(zip(_NAMED_BY, _name_of(piece), strict=True)),
        "runs": found.runs,
        "steps": found.steps,
        "events": found.events,
        "loads": found.loads,
        "counts": dict(sorted(found.counts.items())),
        "died_with": dict(sorted(found.died_with.items())),
        "violations": [asdict(finding) for finding in found.findings],
        "seconds": round(found.seconds, 3),
        "cpu_seconds": round(cpu, 3),
        "compiled": IS_COMPILED,
    }


def _result_of(line: dict[str, Any]) -> CoordinatorResult:
    return CoordinatorResult(
        line["runs"],
        line["steps"],
        line["events"],
        line["seconds"],
        line["loads"],
        Counter(line["counts"]),
        Counter(line["died_with"]),
        [CoordinatorFinding(**violation) for violation in line["violations"]],
    )
