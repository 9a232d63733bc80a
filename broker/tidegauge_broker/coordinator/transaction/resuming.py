"""Resumes the decided transactions of a partition that was loaded, once their decisions are known to be committed.

The log is loaded to its LEO, so a decision above the high watermark is among the loaded ones. If its markers were
sent at once and all brokers that have its record died, the next coordinator would know of an open transaction, and end
the partitions without a marker its own way: a part of the transaction committed, the rest aborted. Kafka 3.9 sends them
at once (TransactionStateManager.loadTransactionMetadata).

Contract: after a load the record of one decision is written once more, as it was loaded. When that is committed, so is
all that lies before it in the log, which is everything that was loaded; then the markers of all decided transactions
are sent. An append that fails is repeated until it succeeds or the partition is another coordinator's. Meanwhile each
decided transaction has its completion pending, so that its requests get CONCURRENT_TRANSACTIONS.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_broker.coordinator.group.storing import MOVED_ERRORS, UNAVAILABLE_ERRORS
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.runtime import ALL_REPLICAS, TransactionRuntime
from tidegauge_broker.coordinator.transaction.markers import RETRY_BACKOFF_MS, Completion, Markers
from tidegauge_broker.coordinator.transaction.records import transaction_batch
from tidegauge_broker.coordinator.transaction.shard import TransactionShard
from tidegauge_broker.coordinator.transaction.states import DECIDED
from tidegauge_broker.coordinator.transaction.storing import Owned
from tidegauge_broker.coordinator.transaction.transaction import Change

_PASSING = UNAVAILABLE_ERRORS | MOVED_ERRORS | {ErrorCode.REQUEST_TIMED_OUT}
"""Errors of an append that are to be expected while replicas are away, or just before a resignation."""


class _Loaded(NamedTuple):
    """The state that waits for a load's decisions to be committed.

    Attributes:
        transactional_id: whose decision is written again.
        decision: that decision, as it was loaded.
        completions: of all that the partition has decided.
    """

    shard: TransactionShard
    transactional_id: str
    decision: Change
    completions: Sequence[Completion]


class Resuming:
    """Completes the transactions that were decided under an earlier leader."""

    def __init__(self, runtime: TransactionRuntime, markers: Markers) -> None:
        self._runtime = runtime
        self._markers = markers

    def resume(self, shard: TransactionShard) -> None:
        """Write a decision of a partition that was loaded again; all its markers are sent when that is committed.

        The decision with the fewest partitions is taken: a record that the topic's max.message.bytes has come to
        refuse must not hold up the others.
        """
        decided = [transaction for transaction in shard.transactions.values() if transaction.state in DECIDED]
        if not decided:
            return
        smallest = min(decided, key=lambda transaction: len(transaction.partitions))
        decision = smallest.as_loaded()
        completions: list[Completion] = []

        def prepare(owned: Owned) -> None:
            completions.append(self._markers.prepare(owned))

        for owned in [Owned(shard, transaction) for transaction in decided]:
            self._runtime.attempt(owned.owner, partial(prepare, owned))
        self._confirm(_Loaded(shard, smallest.transactional_id, decision, completions), ErrorCode.NONE)

    def _confirm(self, loaded: _Loaded, last_error: ErrorCode) -> None:
        if loaded.shard.state is not ShardState.ACTIVE:
            return

        def outcome(error: ErrorCode, _base_offset: int) -> None:
            if loaded.shard.state is not ShardState.ACTIVE:
                return
            if error is ErrorCode.NONE:
                loaded.shard.is_committed = True
                for completion in loaded.completions:
                    if completion.owned.is_valid:
                        self._runtime.attempt(completion.owned.owner, partial(self._markers.begin, completion))
            else:
                self._repeat(loaded, error, last_error)

        self._runtime.append(
            loaded.shard.partition,
            transaction_batch(
                loaded.transactional_id,
                loaded.decision,
                self._runtime.wall_ms,
                self._runtime.settings.transaction_version,
            ),
            outcome,
            acks=ALL_REPLICAS,
            timeout_ms=self._runtime.settings.request_timeout_ms,
        )

    def _repeat(self, loaded: _Loaded, error: ErrorCode, last_error: ErrorCode) -> None:
        """Write the decision again a while later; an error is logged once, however often it comes in a row."""
        if error is not last_error:
            self._runtime.log(
                f"Not available to append a loaded decision of {TRANSACTION_TOPIC}-{loaded.shard.partition} again, of "
                f"{loaded.transactional_id}: {error.name}; retry appending, the markers of {len(loaded.completions)} "
                "transactions wait for it",
                "info" if error in _PASSING else "error",
            )
        at_ms = self._runtime.now_ms + RETRY_BACKOFF_MS
        self._runtime.start_timer(at_ms, "DecisionRetry", partial(self._confirm, loaded, error))
