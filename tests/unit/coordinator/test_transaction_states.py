"""Every request in every state of a transactional id: the error, and the state afterwards.

The rows come from TransactionCoordinator (prepareInitProducerIdTransit, handleAddPartitionsToTransaction,
handleVerifyPartitionsInTransaction, endTransaction) of Kafka 3.9.
"""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction_harness import ABORT, COMMIT, T0, T1, TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.transaction.states import ALLOWED, COMPLETED, DECIDED, EXPIRABLE, STATUS
from tidegauge_broker.coordinator.transaction.transaction import Transaction

S = TransactionState
E = ErrorCode


def _markers_held(harness: TransactionHarness, outcome) -> None:
    harness.ongoing()
    harness.holds_markers = True
    assert harness.end(outcome) is E.NONE


def _ended(harness: TransactionHarness, outcome) -> None:
    harness.ongoing()
    assert harness.end(outcome) is E.NONE


def _adding(harness: TransactionHarness) -> None:
    harness.ongoing()
    harness.holds = True
    harness.send_add(T1)


def _initializing(harness: TransactionHarness) -> None:
    harness.init()
    harness.holds = True
    harness.send_init(0, 0)


def _ending(harness: TransactionHarness) -> None:
    harness.ongoing()
    harness.holds = True
    harness.send_end()


SETUPS = {
    "Empty": lambda harness: harness.init(),
    "Ongoing": lambda harness: harness.ongoing(),
    "PrepareCommit": lambda harness: _markers_held(harness, COMMIT),
    "PrepareAbort": lambda harness: _markers_held(harness, ABORT),
    "CompleteCommit": lambda harness: _ended(harness, COMMIT),
    "CompleteAbort": lambda harness: _ended(harness, ABORT),
    "Empty, pending Empty": _initializing,
    "Ongoing, pending Ongoing": _adding,
    "Ongoing, pending PrepareCommit": _ending,
}
"""How to bring producer 0 in epoch 0 into a state. The present epoch stays 0 while a change is pending."""

REQUESTS = {
    "commit": lambda harness: harness.error(harness.send_end(COMMIT)),
    "abort": lambda harness: harness.error(harness.send_end(ABORT)),
    "add a new partition": lambda harness: harness.add(T1),
    "add a known partition": lambda harness: harness.add(T0),
    "add offsets": lambda harness: harness.add_offsets(),
    "verify": lambda harness: harness.verify(T0)[T0],
    "init": lambda harness: harness.init().error,
    "init in epoch 0": lambda harness: harness.init(0, 0).error,
    "commit in a lower epoch": lambda harness: harness.error(harness.send_end(COMMIT, epoch=-1)),
    "commit in a higher epoch": lambda harness: harness.error(harness.send_end(COMMIT, epoch=1)),
    "commit of another producer": lambda harness: harness.error(harness.send_end(COMMIT, producer_id=7, epoch=3)),
    "add in another epoch": lambda harness: harness.add(T0, epoch=1),
    "add of another producer": lambda harness: harness.add(T0, producer_id=7, epoch=3),
    "verify in another epoch": lambda harness: harness.verify(T0, epoch=1)[T0],
    "verify another producer": lambda harness: harness.verify(T0, producer_id=7, epoch=3)[T0],
    "init of another producer": lambda harness: harness.init(7, 0).error,
    "init in another epoch": lambda harness: harness.init(0, 5).error,
}
NOT_PENDING = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
BUSY, BAD, OK = E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE, E.NONE
EXPECTED = {
    #                           Empty                    Ongoing  PrepareC PrepareA CompleteC CompleteA
    "commit": (BAD, OK, BUSY, BUSY, OK, BAD),
    "abort": (BAD, OK, BUSY, BUSY, BAD, OK),
    "add a new partition": (OK, OK, BUSY, BUSY, OK, OK),
    "add a known partition": (OK, OK, BUSY, BUSY, OK, OK),
    "add offsets": (OK, OK, BUSY, BUSY, OK, OK),
    "verify": (E.TRANSACTION_ABORTABLE, OK, BUSY, BUSY, E.TRANSACTION_ABORTABLE, E.TRANSACTION_ABORTABLE),
    "init": (OK, BUSY, BUSY, BUSY, OK, OK),
    "init in epoch 0": (OK, BUSY, BUSY, BUSY, OK, OK),
    "init in another epoch": (E.PRODUCER_FENCED, BUSY, BUSY, BUSY, E.PRODUCER_FENCED, E.PRODUCER_FENCED),
}
"""Errors by request, for the states of NOT_PENDING. A decided transaction has CompleteX pending, which comes first."""
FENCED = {
    "commit in a lower epoch": E.PRODUCER_FENCED,
    "commit in a higher epoch": E.PRODUCER_FENCED,
    "commit of another producer": E.INVALID_PRODUCER_ID_MAPPING,
    "add in another epoch": E.PRODUCER_FENCED,
    "add of another producer": E.INVALID_PRODUCER_ID_MAPPING,
    "verify in another epoch": E.PRODUCER_FENCED,
    "verify another producer": E.INVALID_PRODUCER_ID_MAPPING,
}
"""A stale producer gets these in every state, pending or not: that check is the first."""


@pytest.mark.parametrize("request_name", EXPECTED)
@pytest.mark.parametrize("state", NOT_PENDING)
def test_a_request_gets_the_error_of_its_state(state, request_name):
    harness = TransactionHarness()
    SETUPS[state](harness)
    assert harness.state() is S(state)
    assert REQUESTS[request_name](harness) is EXPECTED[request_name][NOT_PENDING.index(state)]


@pytest.mark.parametrize("request_name", FENCED)
@pytest.mark.parametrize("state", SETUPS)
def test_producer_id_and_epoch_are_checked_before_the_state(state, request_name):
    """First the producer id (INVALID_PRODUCER_ID_MAPPING), then the epoch, either way (KAFKA-9600), then what pends."""
    harness = TransactionHarness()
    SETUPS[state](harness)
    before = harness.view()
    assert REQUESTS[request_name](harness) is FENCED[request_name]
    assert harness.view() == before


@pytest.mark.parametrize("request_name", [name for name in EXPECTED if name != "verify"])
@pytest.mark.parametrize("state", [name for name in SETUPS if "pending" in name])
def test_while_a_change_is_pending_everything_gets_concurrent_transactions(state, request_name):
    harness = TransactionHarness()
    SETUPS[state](harness)
    before, written = harness.view(), len(harness.log)
    assert REQUESTS[request_name](harness) is BUSY
    assert (harness.view(), len(harness.log)) == (before, written)


def test_verification_does_not_look_at_what_is_pending():
    """handleVerifyPartitionsInTransaction: the partition's leader checks again at the append."""
    harness = TransactionHarness()
    _adding(harness)
    assert harness.verify(T0, T1) == {T0: OK, T1: E.TRANSACTION_ABORTABLE}
    harness.release()
    assert harness.verify(T0, T1) == {T0: OK, T1: OK}


@pytest.mark.parametrize("state", NOT_PENDING)
def test_an_init_of_another_producer_id_is_fenced_unless_a_change_is_pending(state):
    harness = TransactionHarness()
    SETUPS[state](harness)
    expected = BUSY if harness.pending() is not None else E.PRODUCER_FENCED
    assert REQUESTS["init of another producer"](harness) is expected


def test_the_table_is_that_of_kafka():
    """validPreviousStates of every TransactionState, and their numbers; Kafka 4 aborts without a transaction."""
    previous = {
        S.EMPTY: {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.ONGOING: {S.ONGOING, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.PREPARE_COMMIT: {S.ONGOING},
        S.PREPARE_ABORT: {S.ONGOING, S.PREPARE_EPOCH_FENCE, S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT},
        S.COMPLETE_COMMIT: {S.PREPARE_COMMIT},
        S.COMPLETE_ABORT: {S.PREPARE_ABORT},
        S.DEAD: {S.EMPTY, S.COMPLETE_ABORT, S.COMPLETE_COMMIT},
        S.PREPARE_EPOCH_FENCE: {S.ONGOING},
    }
    for new in S:
        assert {old for old in S if (old, new) in ALLOWED} == previous[new], new
    assert [STATUS[state] for state in (S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)] == [0, 1, 2, 3]
    assert [STATUS[state] for state in (S.COMPLETE_COMMIT, S.COMPLETE_ABORT, S.DEAD, S.PREPARE_EPOCH_FENCE)] == [
        4,
        5,
        6,
        7,
    ]
    assert {S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT} == EXPIRABLE
    assert set(COMPLETED) == DECIDED


@pytest.mark.parametrize("old", S)
@pytest.mark.parametrize("new", S)
def test_a_transition_that_is_not_in_the_table_is_refused(old, new):
    transaction = Transaction("tx", 0, 60_000, 0)
    transaction.state = old
    if (old, new) in ALLOWED:
        transaction._prepare(new, 1)
        assert transaction.pending_state is new
        with pytest.raises(AssertionError, match="is already about to be"):
            transaction._prepare(new, 1)
    else:
        with pytest.raises(AssertionError, match="may not change"):
            transaction._prepare(new, 1)
