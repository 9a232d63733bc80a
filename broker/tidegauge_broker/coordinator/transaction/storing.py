"""Finds a transactional id, and writes its changes to __transaction_state.

Contract: ``store`` emits the append of one record. The change is applied, and the caller is called, by the outcome of
the append and never before. A failed append leaves the id as it was, although its record may be in the log, where it
counts for the next coordinator.
Source: TransactionStateManager (getTransactionState, appendTransactionToLog).
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.errors import ErrorCode
from tidegauge.groups import partition_of
from tidegauge_broker.coordinator.group.storing import MOVED_ERRORS, TOO_LARGE_ERRORS, UNAVAILABLE_ERRORS
from tidegauge_broker.coordinator.led_partitions import LedPartitions, ShardState
from tidegauge_broker.coordinator.owner import Owner
from tidegauge_broker.coordinator.runtime import ALL_REPLICAS, TransactionRuntime
from tidegauge_broker.coordinator.text_limits import is_too_long
from tidegauge_broker.coordinator.transaction.records import transaction_batch
from tidegauge_broker.coordinator.transaction.shard import TransactionShard
from tidegauge_broker.coordinator.transaction.transaction import Change, Transaction

_LOST = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""Another coordinator, or the next load, resumes the transaction."""


class Owned:
    """A transactional id under the leadership in which it was found; ``is_valid`` ends with that leadership."""

    __slots__ = ("shard", "transaction")

    def __init__(self, shard: TransactionShard, transaction: Transaction) -> None:
        self.shard = shard
        self.transaction = transaction

    @property
    def owner(self) -> Owner:
        """The name of the id for the timers, outcomes and requests that belong to it."""
        return self.shard.owner(self.transaction.transactional_id)

    @property
    def is_valid(self) -> bool:
        """Whether the shard is served still, and the id has not expired."""
        known = self.shard.transactions.get(self.transaction.transactional_id)
        return self.shard.state is ShardState.ACTIVE and known is self.transaction


class Store:
    """The transactional ids of a coordinator."""

    def __init__(self, runtime: TransactionRuntime, led: LedPartitions[TransactionShard]) -> None:
        self._runtime = runtime
        self._led = led

    def shard_of(self, transactional_id: str) -> TransactionShard | ErrorCode:
        """Return the shard that serves an id, or a request's error."""
        if is_too_long(transactional_id):
            return ErrorCode.INVALID_REQUEST
        shard = self._led.shards.get(partition_of(transactional_id, self._runtime.settings.partitions))
        if shard is None or shard.state is ShardState.FAILED:
            return ErrorCode.NOT_COORDINATOR
        if shard.state is not ShardState.ACTIVE:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return ErrorCode.UNKNOWN_SERVER_ERROR if transactional_id in shard.refused else shard

    def find(self, transactional_id: str | None) -> Owned | ErrorCode:
        """Return a transactional id for its producer's request, or the error."""
        if not transactional_id:
            return ErrorCode.INVALID_REQUEST
        shard = self.shard_of(transactional_id)
        if isinstance(shard, ErrorCode):
            return shard
        transaction = shard.transactions.get(transactional_id)
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING if transaction is None else Owned(shard, transaction)

    def store(
        self, owned: Owned, change: Change, on_end: Callable[[ErrorCode], None], *, is_retried: bool = False
    ) -> None:
        """Write a prepared change, with the transaction's own timeout, and call back.

        Args:
            owned: the transactional id.
            change: the prepared change.
            on_end: called with NONE when the record is committed and the change applied; else with the error for the
                client.
            is_retried: whether the caller repeats the append after an error, so that the pending state stays.
        """

        def outcome(error: ErrorCode, _base_offset: int) -> None:
            result = coordinator_error(error)
            if result is ErrorCode.NONE:
                if owned.is_valid:
                    self._complete(owned, change)
                else:
                    result = self._loss(owned)
            elif owned.is_valid and (not is_retried or result in _LOST):
                owned.transaction.pending_state = None
            on_end(result)

        transactional_id, now_ms = owned.transaction.transactional_id, self._runtime.wall_ms
        self._runtime.append(
            owned.shard.partition,
            transaction_batch(transactional_id, change, now_ms, self._runtime.settings.transaction_version),
            outcome,
            acks=ALL_REPLICAS,
            timeout_ms=change.timeout_ms,
        )

    def _complete(self, owned: Owned, change: Change) -> None:
        transaction = owned.transaction
        old = transaction.state
        transaction.complete(change, is_kafka_4=self._runtime.settings.is_kafka_4)
        owned.shard.is_committed = True
        self._runtime.note(
            "transaction",
            transaction.transactional_id,
            old=old.value,
            new=change.state.value,
            producer_id=change.producer_id,
            producer_epoch=change.producer_epoch,
            coordinator_epoch=owned.shard.leader_epoch,
            partitions=[str(topic_partition) for topic_partition in change.partitions],
        )

    def _loss(self, owned: Owned) -> ErrorCode:
        """Return the error of a successful append whose leadership has ended."""
        current = self.shard_of(owned.transaction.transactional_id)
        return current if isinstance(current, ErrorCode) else ErrorCode.NOT_COORDINATOR


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """Return the error that a client gets for an append's error."""
    if error in UNAVAILABLE_ERRORS or error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if error in MOVED_ERRORS:
        return ErrorCode.NOT_COORDINATOR
    return ErrorCode.UNKNOWN_SERVER_ERROR if error in TOO_LARGE_ERRORS else error
