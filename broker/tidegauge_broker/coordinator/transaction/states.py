"""The states of a transactional id, and which may follow which: one table, drawn in docs/transactions.md.

Source: TransactionState, its ids and ``validPreviousStates``, in Kafka's TransactionMetadata.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.led_partitions import ShardState, ShardTransition

EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

STATUS = {state: number for number, state in enumerate(TransactionState)}
"""The number of a state in a record."""
STATE_OF_STATUS = {number: state for state, number in STATUS.items()}


class Transition(NamedTuple):
    """One row: ``old`` is None for the first state."""

    old: TransactionState | None
    new: TransactionState
    when: str


TRANSITIONS = (
    Transition(None, EMPTY, "first InitProducerId"),
    Transition(EMPTY, EMPTY, "InitProducerId"),
    Transition(COMPLETE_COMMIT, EMPTY, "InitProducerId"),
    Transition(COMPLETE_ABORT, EMPTY, "InitProducerId"),
    Transition(EMPTY, ONGOING, "partitions are added"),
    Transition(ONGOING, ONGOING, "more partitions are added"),
    Transition(COMPLETE_COMMIT, ONGOING, "partitions are added"),
    Transition(COMPLETE_ABORT, ONGOING, "partitions are added"),
    Transition(ONGOING, PREPARE_COMMIT, "EndTxn commits"),
    Transition(ONGOING, PREPARE_ABORT, "EndTxn aborts"),
    Transition(ONGOING, PREPARE_EPOCH_FENCE, "InitProducerId, or the transaction timed out: pending only"),
    Transition(PREPARE_EPOCH_FENCE, PREPARE_ABORT, "with the epoch raised by one"),
    Transition(EMPTY, PREPARE_ABORT, "EndTxn v5 aborts, without a transaction"),
    Transition(COMPLETE_COMMIT, PREPARE_ABORT, "EndTxn v5 aborts, without a transaction"),
    Transition(COMPLETE_ABORT, PREPARE_ABORT, "EndTxn v5 aborts, without a transaction"),
    Transition(PREPARE_COMMIT, COMPLETE_COMMIT, "every partition has its marker"),
    Transition(PREPARE_ABORT, COMPLETE_ABORT, "every partition has its marker"),
    Transition(EMPTY, DEAD, "unused for transactional.id.expiration.ms: a tombstone is written"),
    Transition(COMPLETE_COMMIT, DEAD, "unused for transactional.id.expiration.ms: a tombstone is written"),
    Transition(COMPLETE_ABORT, DEAD, "unused for transactional.id.expiration.ms: a tombstone is written"),
)
ALLOWED = frozenset((row.old, row.new) for row in TRANSITIONS)
EXPIRABLE = frozenset(row.old for row in TRANSITIONS if row.new is DEAD)
"""The states in which a transactional id may expire (isExpirationAllowed)."""
DECIDED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""The transaction's outcome is committed, and its markers are being written."""
WRITTEN = frozenset(TransactionState) - {DEAD, PREPARE_EPOCH_FENCE}
"""The states that records have; the other two exist in memory alone."""
COMPLETE = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})
PREPARED = {Outcome.COMMIT: PREPARE_COMMIT, Outcome.ABORT: PREPARE_ABORT}
COMPLETED = {PREPARE_COMMIT: COMPLETE_COMMIT, PREPARE_ABORT: COMPLETE_ABORT}
OUTCOME_OF = {
    PREPARE_COMMIT: Outcome.COMMIT,
    PREPARE_ABORT: Outcome.ABORT,
    COMPLETE_COMMIT: Outcome.COMMIT,
    COMPLETE_ABORT: Outcome.ABORT,
}

SHARD_TRANSITIONS = (
    ShardTransition(None, ShardState.LOADING, "elected"),
    ShardTransition(ShardState.LOADING, ShardState.ACTIVE, "the log was read to its LEO"),
    ShardTransition(ShardState.LOADING, ShardState.FAILED, "the log could not be read to its LEO"),
    ShardTransition(ShardState.LOADING, ShardState.UNLOADED, "resigned"),
    ShardTransition(ShardState.ACTIVE, ShardState.UNLOADED, "resigned"),
    ShardTransition(ShardState.FAILED, ShardState.UNLOADED, "resigned, or elected again"),
)
