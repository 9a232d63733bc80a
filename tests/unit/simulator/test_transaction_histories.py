"""Transactions under faults: real coordinators on real cores, and a checker that notices when a rule is missing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tidegauge.errors import ErrorCode
from tidegauge.transaction_marker import Outcome
from tidegauge_broker.coordinator.events import LeadersFound, MarkersWritten
from tidegauge_broker.coordinator.runtime import Runtime
from tidegauge_broker.coordinator.transaction import adding as adding_module
from tidegauge_broker.coordinator.transaction import initializing as initializing_module
from tidegauge_broker.coordinator.transaction import markers as markers_module
from tidegauge_broker.coordinator.transaction import shard as shard_module
from tidegauge_broker.coordinator.transaction.adding import Adding
from tidegauge_broker.coordinator.transaction.ending import Ending
from tidegauge_broker.coordinator.transaction.initializing import Initializing
from tidegauge_broker.coordinator.transaction.markers import Completion, Markers
from tidegauge_broker.coordinator.transaction.resuming import Resuming
from tidegauge_broker.coordinator.transaction.states import DECIDED
from tidegauge_broker.coordinator.transaction.storing import Owned, Store
from tidegauge_broker.coordinator.transaction.transaction import Transaction
from tidegauge_proof.simulator.transactions.transaction_checker import TransactionChecker
from tidegauge_proof.simulator.transactions.transaction_history import transaction_history_of

STEPS = 1000
E = ErrorCode


@pytest.mark.parametrize("allows_late", [False, pytest.param(True, marks=pytest.mark.long)])
def test_histories_hold_and_do_something(allows_late):
    """Kills meet coordinators in the middle of everything that a coordinator can be in the middle of."""
    transactions = committed = markers = loads = 0
    died_with: set[str] = set()
    for seed in range(60):
        history = transaction_history_of(seed, STEPS, allows_late=allows_late)
        assert history.violation is None, f"seed {seed}, step {history.steps}: {history.violation}"
        transactions += history.transactions
        committed += history.committed
        markers += history.markers
        loads += history.loads
        died_with |= history.died_with
    assert transactions > 200
    assert committed > 40
    assert markers > 300
    assert loads > 100
    assert {"Empty, Ongoing pending", "Ongoing, PrepareCommit pending", "Ongoing, PrepareAbort pending"} <= died_with
    assert {"PrepareCommit, CompleteCommit pending", "PrepareAbort, CompleteAbort pending", "Empty"} <= died_with


def test_a_deposed_coordinator_may_repeat_a_completion_while_its_successor_has_the_next_transaction_open():
    """The append timed out before another broker led; it reaches no other log, and the markers are there."""
    assert transaction_history_of(10_721_300, STEPS).violation is None


def test_a_seed_gives_the_same_history():
    assert transaction_history_of(7, 400, tells=True).story == transaction_history_of(7, 400, tells=True).story


def test_a_transaction_that_is_loaded_and_lost_leaves_no_reader_waiting():
    """Its coordinator had loaded it from above the high watermark, acknowledged its partitions, and died."""
    history = transaction_history_of(10_400_158, 1000)
    assert history.violation is None, f"step {history.steps}: {history.violation}"


def test_a_coordinator_that_missed_anothers_epoch_begins_again():
    """1 leads epoch 6 by a preferred election, and writes markers; 2, which led 5 and hears of 7 alone, leads again.

    It went on with coordinator epoch 5, was refused, and gave its transactions up. Kafka's does
    (test_an_epoch_between_two_of_the_same_leader_may_have_been_anothers).
    """
    history = transaction_history_of(10_402_129, 1000, allows_late=True)
    assert history.violation is None, str(history.violation)


def test_a_decision_that_was_loaded_and_lost_leaves_its_transaction_whole():
    """A flaw of 3.9 that is cured (docs/transactions.md): a load reads above the high watermark, and sends markers.

    The decision was on two of three members of the ISR; the one that had led and the one that loaded it die.
    """
    history = transaction_history_of(10_421_338, 1000)
    assert history.violation is None, f"step {history.steps}: {history.violation}"


def test_a_decision_that_was_loaded_and_lost_tears_its_transaction_where_its_markers_are_sent_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    """The same history by Kafka's rule: T4 notices when the markers leave, and without T4 readers see a part."""
    sends_the_markers_of_loaded_decisions_at_once(monkeypatch)
    violation = transaction_history_of(10_421_338, 1000).violation
    assert violation is not None
    assert violation.invariant == "T4"
    monkeypatch.setattr(TransactionChecker, "marking", _nothing)
    violation = transaction_history_of(10_421_338, 1000).violation
    assert violation is not None
    assert violation.invariant == "T7"
    assert "is read: [1, 1, 0]" in str(violation)


def test_late_requests_tear_transactions_as_in_kafka():
    """The flaw of 3.9 (docs/transactions.md): with late requests T7 does not hold, and only with them."""
    found = (
        transaction_history_of(seed, 2 * STEPS, allows_late=True, judges=True).violation for seed in range(71, 471)
    )
    violation = next(one for one in found if one is not None)
    assert violation.invariant == "T7"


# One rule less each


def _nothing(*_: object) -> None:
    """Stands for a call that is left out."""


def applies_changes_before_they_are_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Runtime.append

    def hasty(self: Runtime, partition, batch, outcome, **fields) -> None:
        append(self, partition, batch, _nothing, **fields)
        outcome(E.NONE, 0)

    monkeypatch.setattr(Runtime, "append", hasty)


def responds_before_the_decision_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(self: Ending, owned, change, on_end) -> None:
        on_end(E.NONE)
        self._store.store(owned, change, lambda error: None if error else self._markers.complete(owned))

    monkeypatch.setattr(Ending, "_end", end)


def marks_before_the_decision_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(self: Ending, owned, change, on_end) -> None:
        self._store.store(owned, change, on_end)
        owned.transaction.complete(change)
        self._markers.complete(owned)
        owned.transaction.complete = _nothing

    monkeypatch.setattr(Ending, "_end", end)


def sends_no_markers_after_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resuming, "resume", _nothing)


def sends_the_markers_of_loaded_decisions_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(self: Resuming, shard: shard_module.TransactionShard) -> None:
        for transaction in shard.transactions.values():
            if transaction.state in DECIDED:
                self._markers.complete(Owned(shard, transaction))

    monkeypatch.setattr(Resuming, "resume", hasty)


def takes_a_refused_decision_for_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(self: Resuming, loaded, *_: ErrorCode) -> None:
        for completion in loaded.completions:
            self._markers.begin(completion)

    monkeypatch.setattr(Resuming, "_repeat", careless)


def does_not_repeat_a_refused_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Resuming, "_repeat", _nothing)


def completes_without_waiting_for_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    def write(self: Markers, completion: Completion) -> None:
        if self._forget(completion):
            self._write_completion(completion)

    monkeypatch.setattr(Markers, "_write_completion_if_due", write)


def takes_failed_markers_for_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markers_module, "_WRITTEN", markers_module._WRITTEN | markers_module._RETRIABLE)


def takes_lost_markers_for_written(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Markers.markers_written

    def deaf(self: Markers, event: MarkersWritten) -> None:
        if event.errors is None:
            _, entries = self._in_flight[event.request_id]
            errors: dict = {}
            for completion, partitions in entries:
                errors.setdefault(completion.marker.producer_id, {}).update(dict.fromkeys(partitions, E.NONE))
            event = MarkersWritten(event.request_id, errors)
        written(self, event)

    monkeypatch.setattr(Markers, "markers_written", deaf)


def does_not_repeat_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Markers, "_repeat", _nothing)


def does_not_repeat_completions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Markers, "_start_retry_timer", _nothing)


def takes_partitions_without_leader_for_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Markers.leaders_found

    def careless(self: Markers, event: LeadersFound) -> None:
        known = {name: leader for name, leader in event.leaders.items() if leader >= 0}
        found(self, LeadersFound(event.lookup_id, known))

    monkeypatch.setattr(Markers, "leaders_found", careless)


def marks_one_partition_only(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = Markers._look_up

    def careless(self: Markers, entries) -> None:
        for completion, partitions in entries:
            for name in partitions[1:]:
                completion.owned.transaction.remove_partition(name)
        look_up(self, [entry._replace(partitions=entry.partitions[:1]) for entry in entries])

    monkeypatch.setattr(Markers, "_look_up", careless)


def commits_what_was_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = dict.fromkeys(markers_module.OUTCOME_OF, Outcome.COMMIT)
    monkeypatch.setattr(markers_module, "OUTCOME_OF", outcomes)


def marks_in_the_epoch_before(monkeypatch: pytest.MonkeyPatch) -> None:
    init = Completion.__init__

    def late(self: Completion, owned, change) -> None:
        init(self, owned, change)
        self.marker = self.marker._replace(producer_epoch=self.marker.producer_epoch - 1)

    monkeypatch.setattr(Completion, "__init__", late)


def never_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ending, "abort_timed_out", _nothing)


def does_not_check_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adding_module, "_producer_error", lambda *_: E.NONE)


def verifies_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Adding, "_verified", lambda _, request: dict.fromkeys(request.partitions, E.NONE))


def leaves_failed_changes_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store.store

    def forgetful(self: Store, owned, change, on_end, *, is_retried: bool = False) -> None:
        del is_retried
        store(self, owned, change, on_end, is_retried=True)

    monkeypatch.setattr(Store, "store", forgetful)


def forgets_partitions_in_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    read = shard_module.read_transaction

    def poor(name: str, value: bytes) -> Transaction:
        transaction = read(name, value)
        transaction.partitions.clear()
        return transaction

    monkeypatch.setattr(shard_module, "read_transaction", poor)


def loads_the_first_record_of_an_id(monkeypatch: pytest.MonkeyPatch) -> None:
    replay = shard_module.TransactionShard.replay

    def first(self: shard_module.TransactionShard, batches) -> None:
        before = dict(self.transactions)
        replay(self, batches)
        self.transactions |= before

    monkeypatch.setattr(shard_module.TransactionShard, "replay", first)


def keeps_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare = Transaction.prepare_next_epoch

    def same(self: Transaction, timeout_ms, expected_epoch, now_ms):
        change = prepare(self, timeout_ms, expected_epoch, now_ms)
        return change._replace(producer_epoch=max(self.producer_epoch, 0))

    monkeypatch.setattr(Transaction, "prepare_next_epoch", same)


def does_not_abort_for_a_new_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Initializing, "_fence", lambda self, _, token: self._refuse(token, E.CONCURRENT_TRANSACTIONS))
    monkeypatch.setattr(Ending, "abort_timed_out", _nothing)


def changes_while_a_change_is_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initializing_module, "_error_before", lambda *_: E.NONE)


def responds_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    end = Ending._end

    def twice(self: Ending, owned, change, on_end) -> None:
        def again(error: ErrorCode) -> None:
            on_end(error)
            on_end(error)

        end(self, owned, change, again)

    monkeypatch.setattr(Ending, "_end", twice)


MUTANTS: tuple[Callable[[pytest.MonkeyPatch], None], ...] = (
    applies_changes_before_they_are_committed,
    responds_before_the_decision_is_committed,
    marks_before_the_decision_is_committed,
    sends_no_markers_after_a_load,
    sends_the_markers_of_loaded_decisions_at_once,
    takes_a_refused_decision_for_committed,
    does_not_repeat_a_refused_decision,
    completes_without_waiting_for_markers,
    takes_failed_markers_for_written,
    takes_lost_markers_for_written,
    does_not_repeat_markers,
    does_not_repeat_completions,
    takes_partitions_without_leader_for_deleted,
    marks_one_partition_only,
    commits_what_was_aborted,
    marks_in_the_epoch_before,
    never_times_out,
    does_not_check_the_producer,
    verifies_everything,
    leaves_failed_changes_pending,
    forgets_partitions_in_a_load,
    loads_the_first_record_of_an_id,
    keeps_the_epoch,
    does_not_abort_for_a_new_producer,
    changes_while_a_change_is_pending,
    responds_twice,
)


SLOW = {verifies_everything, keeps_the_epoch}
"""Take longer than a test of every day should."""


@pytest.mark.parametrize(
    "mutant",
    [pytest.param(one, marks=[pytest.mark.long] if one in SLOW else [], id=one.__name__) for one in MUTANTS],
)
def test_without_a_rule_something_breaks(mutant, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    found = (transaction_history_of(seed, STEPS).violation for seed in range(200))
    assert any(violation is not None for violation in found)
