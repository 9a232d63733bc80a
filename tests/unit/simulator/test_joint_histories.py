"""Consume, transform, produce under faults: both coordinators and replicated data, and a checker that misses rules.

The statements are T1 to T14 of proof/tidegauge_proof/simulator/exactly_once/joint_checker.py.
"""

from __future__ import annotations

import pytest
from tests.unit.simulator.joint_mutants import FORCED, FOUND, MUTANTS, QUICK

from tidegauge.errors import ErrorCode
from tidegauge.groups import FetchedOffset, OffsetFetch, OffsetFetchResult, TxnOffsetCommit, TxnOffsetCommitResult
from tidegauge.transactions import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    InitProducerId,
    InitProducerIdResult,
)
from tidegauge_proof.simulator.dice import Dice
from tidegauge_proof.simulator.exactly_once.clients import CONSUMER, OUTPUTS, Copier, Produce
from tidegauge_proof.simulator.exactly_once.forced_history import forced_history_of
from tidegauge_proof.simulator.exactly_once.joint_history import joint_history_of
from tidegauge_proof.simulator.exactly_once.network import LATE_ENDS, MODES, TIMELY
from tidegauge_proof.simulator.exactly_once.stage import staged

STEPS = 3000


def test_a_history_holds_and_does_something():
    history = joint_history_of(14, STEPS)
    assert history.violation is None, f"step {history.steps}: {history.violation}"
    assert history.committed
    assert history.copied
    assert history.reads
    assert history.loads


def test_a_seed_gives_the_same_history():
    assert joint_history_of(7, 500, tells=True).story == joint_history_of(7, 500, tells=True).story


def test_a_commit_whose_leader_went_offline_in_the_event_that_committed_it_counts():
    """One LeaderAndIsr commits it, responds, and then meets a log directory that fails."""
    history = joint_history_of(10_450_005, STEPS)
    assert history.violation is None, f"step {history.steps}: {history.violation}"


def test_a_marker_that_is_sent_again_does_not_end_offsets_behind_it():
    """It is committed while the append of the next transaction's offsets is in flight; that one is aborted.

    Found by seed 10,100,062 in a history with late ends. The rule that the schedule needs is one of the mutants.
    """
    seed, forced, _ = FORCED["a_marker_ends_offsets_behind_it"]
    history = forced_history_of(seed, *forced)
    assert history.violation is None, f"step {history.steps}: {history.violation}"
    assert tuple(history.struck) == forced


def test_a_high_watermark_that_falls_before_it_is_looked_at_is_known_to_the_checker():
    """A process finds 9 in its checkpoint, and its leader's first response says 8: within one event of a history.

    So a transaction whose marker is at 8 was replicated; after a truncation the product looks at 8 alone.
    """
    stage = staged(0, TIMELY)
    replica = stage.cluster.partitions[OUTPUTS[0]].brokers[1]
    stage.world.kill(1)
    stage.world.start(1)
    replica.checkpoint = 9
    assert stage.checker.passed(replica, "since its start", 8) == 9
    assert stage.checker.passed(replica, "since its start", 7) == 9
    assert stage.checker.passed(replica, "since it was truncated", 8) == 8
    assert stage.checker.passed(replica, "since it was truncated", 10) == 10


def test_a_copier_commits_as_the_member_that_read_the_input():
    """A rebalance in the midst of a transaction fences it: Kafka's consumer joins the next generation in poll alone.

    Seed 10,400,303, in which the group had given the copied partition to another member, copied a record twice.
    """
    copier = Copier("c0", 10_000, Dice(1), None)
    member = copier.member
    member.member_id, member.generation, member.assignment, member.is_stable = "c0-1", 3, b"\0", True
    asked = copier.next_ask()
    while not isinstance(asked.request, TxnOffsetCommit):
        copier.take(_success(asked.request))
        if isinstance(asked.request, Produce):
            member.generation, member.assignment = 4, b""
        asked = copier.next_ask()
    assert (asked.request.generation, asked.request.member_id) == (3, "c0-1")


def test_a_copier_knows_two_coordinators_of_its_group():
    """Its consumer's, which gets heartbeats and OffsetFetch, and its producer's: either finds another one by itself.

    Broker 0 was partitioned from the others, and went on giving out offsets to the consumer that the producer had
    committed at the next coordinator long before.
    """
    copier = Copier("c0", 10_000, Dice(1), None)
    member = copier.member
    member.member_id, member.generation, member.assignment, member.is_stable = "c0-1", 3, b"\0", True
    member.broker, copier.brokers["group"] = 1, 1
    asked = copier.next_ask()
    while not isinstance(asked.request, OffsetFetch):
        copier.take(_success(asked.request))
        asked = copier.next_ask()
    assert asked.to == CONSUMER
    copier.take(OffsetFetchResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    copier.next_ask()
    assert (member.broker, copier.brokers["group"]) == (1, 1)
    copier.take(OffsetFetchResult(ErrorCode.NOT_COORDINATOR))
    asked = copier.next_ask()
    assert (member.broker, copier.brokers["group"]) == (-1, 1)
    member.broker = 2
    while not isinstance(asked.request, TxnOffsetCommit):
        copier.take(_success(asked.request))
        asked = copier.next_ask()
    assert asked.to == "group"
    committed = asked.request.offsets[0].topic_partition
    copier.take(TxnOffsetCommitResult({committed: ErrorCode.NOT_COORDINATOR}))
    copier.next_ask()
    assert (member.broker, copier.brokers["group"]) == (2, -1)


def test_what_a_copier_gives_up_says_which_coordinators_it_looks_for():
    copier = Copier("c0", 10_000, Dice(1), None)
    member = copier.member
    member.member_id, member.generation, member.assignment, member.is_stable = "c0-1", 3, b"\0", True
    copier.next_ask()
    member.broker, copier.brokers = 1, {"transaction": 1, "group": 1}
    copier.give_up(forgets=False)
    copier.next_ask()
    copier.give_up(forgets=True)
    assert (member.broker, copier.brokers) == (1, {"transaction": -1, "group": -1})
    asked = copier.next_ask()
    copier.take(_success(asked.request))
    copier.brokers = {"transaction": 1, "group": 1}
    assert isinstance(copier.next_ask().request, OffsetFetch)
    copier.give_up(forgets=True)
    assert (member.broker, copier.brokers) == (-1, {"transaction": 1, "group": 1})


def _success(request):
    match request:
        case InitProducerId():
            return InitProducerIdResult(ErrorCode.NONE, 1, 0)
        case OffsetFetch():
            return OffsetFetchResult(offsets={at: FetchedOffset(0) for at in request.partitions})
        case AddPartitionsToTxn():
            return AddPartitionsToTxnResult(dict.fromkeys(request.partitions, ErrorCode.NONE))
        case AddOffsetsToTxn():
            return AddOffsetsToTxnResult(ErrorCode.NONE)
    assert isinstance(request, Produce)
    return ErrorCode.NONE


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_histories_hold_and_do_something(mode):
    """Kills meet transaction coordinators in the middle of everything that they can be in the middle of."""
    committed = aborted = copied = reads = loads = 0
    died_with: set[str] = set()
    for seed in (*range(60), 142):  # in the last a broker dies while its transaction coordinator loads
        history = joint_history_of(seed, STEPS, mode)
        assert history.violation is None, f"seed {seed}, step {history.steps}: {history.violation}"
        committed += history.committed
        aborted += history.aborted
        copied += history.copied
        reads += history.reads
        loads += history.loads
        died_with |= history.died_with
    assert committed > 60
    assert aborted > 30
    assert copied > 120
    assert reads > 200
    assert loads > 200
    assert {"Ongoing", "load"} <= died_with


@pytest.mark.long
def test_late_ends_tear_transactions_as_in_kafka():
    """The flaw of 3.9 (docs/transactions.md): with late ends T11 and T13 do not hold, and only with them."""
    found = (joint_history_of(seed, 2 * STEPS, LATE_ENDS, judges=True).violation for seed in range(400))
    violation = next(one for one in found if one is not None)
    assert violation.invariant in {"T11", "T13"}


def _first_broken(mode: str, first_seed: int, histories: int) -> str:
    """Return the invariant that the first bad history breaks; empty if none does."""
    for seed in range(first_seed, first_seed + histories):
        violation = joint_history_of(seed, STEPS, mode).violation
        if violation is not None:
            return violation.invariant
    return ""


def test_there_are_enough_mutants():
    names = [mutant.__name__ for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 20
    assert {*names} >= {*FOUND} > QUICK
    assert {*names} >= {*FORCED}
    assert len({*FOUND, *FORCED}) >= 22


@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.__name__ in QUICK], ids=lambda one: one.__name__)
def test_without_a_rule_something_breaks(mutant, monkeypatch: pytest.MonkeyPatch):
    mode, seed, invariant = FOUND[mutant.__name__]
    mutant(monkeypatch)
    assert _first_broken(mode, seed, 1) == invariant


@pytest.mark.long
@pytest.mark.parametrize("mutant", [one for one in MUTANTS if one.__name__ in FOUND], ids=lambda one: one.__name__)
def test_without_a_rule_the_search_finds_it(mutant, monkeypatch: pytest.MonkeyPatch):
    mode, seed, _ = FOUND[mutant.__name__]
    mutant(monkeypatch)
    assert _first_broken(mode, 0, seed + 1)


FAST = {
    "decided_transactions_are_not_resumed",
    "loaded_decisions_are_taken_for_committed",
    "a_new_producer_inherits_the_transaction",
    "an_old_coordinator_may_write_markers",
    "a_load_forgets_whose_offsets_are_pending",
    "a_marker_ends_offsets_behind_it",
    "the_marker_decides_the_order_of_commits",
    "a_coordinator_that_was_replaced_gives_out_stable_offsets",
}
"""A fifth of a second or less each."""


@pytest.mark.parametrize(
    "mutant",
    [
        pytest.param(one, id=one.__name__, marks=[] if one.__name__ in FAST else [pytest.mark.long])
        for one in MUTANTS
        if one.__name__ in FORCED
    ],
)
def test_without_a_rule_a_fault_at_a_step_breaks_something(mutant, monkeypatch: pytest.MonkeyPatch):
    seed, forced, invariant = FORCED[mutant.__name__]
    mutant(monkeypatch)
    violation = forced_history_of(seed, *forced).violation
    assert violation is not None
    assert violation.invariant == invariant


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(FORCED))
def test_with_the_rule_the_same_history_holds(name):
    seed, forced, _ = FORCED[name]
    history = forced_history_of(seed, *forced)
    assert history.violation is None, f"step {history.steps}: {history.violation}"
    assert tuple(history.struck) == forced
