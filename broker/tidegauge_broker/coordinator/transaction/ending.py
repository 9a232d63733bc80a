"""EndTxn, and the abort of transactions that timed out or whose producer is fenced.

The response to an EndTxn is sent when the decision is committed, before any marker is written. An EndTxn names no
transaction: a late one ends whatever transaction of that epoch is open, as in Kafka before KIP-890 part 2.
Source: TransactionCoordinator (endTransaction, abortTimedOutTransactions).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidegauge.errors import ErrorCode
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import EndTxn, EndTxnResult, TransactionState
from tidegauge_broker.coordinator.runtime import TransactionRuntime
from tidegauge_broker.coordinator.transaction.markers import Markers
from tidegauge_broker.coordinator.transaction.states import COMPLETE, EMPTY, ONGOING, OUTCOME_OF
from tidegauge_broker.coordinator.transaction.storing import Owned, Store
from tidegauge_broker.coordinator.transaction.transaction import Change


class Ending:
    """Ends transactions."""

    def __init__(self, runtime: TransactionRuntime, store: Store, markers: Markers) -> None:
        self._runtime = runtime
        self._store = store
        self._markers = markers

    def handle(self, request: EndTxn, token: object) -> None:
        """Handle an EndTxn."""

        def respond(error: ErrorCode) -> None:
            self._runtime.respond(token, EndTxnResult(error))

        owned = self._store.find(request.transactional_id)
        if isinstance(owned, ErrorCode):
            respond(owned)
            return
        transaction = owned.transaction
        if request.producer_id != transaction.producer_id:
            respond(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        elif request.producer_epoch != transaction.producer_epoch:
            respond(ErrorCode.PRODUCER_FENCED)
        elif transaction.pending_state is not None:
            respond(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif transaction.state is not ONGOING:
            respond(_repeated(transaction.state, request.outcome))
        else:
            self._end(owned, transaction.prepare_end(request.outcome, self._runtime.wall_ms), respond)

    def fence_and_abort(self, owned: Owned, on_end: Callable[[ErrorCode], None]) -> None:
        """Abort an Ongoing transaction in an epoch that its producer does not have.

        The raised epoch counts at once, so that the producer is fenced; if the record of it can't be written, the next
        attempt uses the same epoch again instead of the one after (KAFKA-9666).
        """
        transaction = owned.transaction
        transaction.fence(transaction.prepare_epoch_fence().producer_epoch)

        def ended(error: ErrorCode) -> None:
            if error is not ErrorCode.NONE and owned.is_valid:
                transaction.has_failed_epoch_fence = True
                self._runtime.log(
                    "The coordinator failed to write an epoch fence transition for producer "
                    f"{transaction.transactional_id} to the transaction log with error {error.name}. The epoch was "
                    f"increased to {transaction.producer_epoch} but not returned to the client",
                    "warning",
                )
            on_end(error)

        self._end(owned, transaction.prepare_end(Outcome.ABORT, self._runtime.wall_ms), ended)

    def abort_timed_out(self, transactions: list[Owned]) -> None:
        """Abort those of the transactions that are open for longer than their timeout."""
        for owned in transactions:
            if owned.transaction.has_timed_out(self._runtime.wall_ms):
                self._runtime.attempt(owned.owner, partial(self._abort_timed_out, owned))

    def _abort_timed_out(self, owned: Owned) -> None:
        transactional_id = owned.transaction.transactional_id

        def ended(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                self._runtime.log(
                    f"Completed rollback of ongoing transaction for transactionalId {transactional_id} due to timeout"
                )
            else:
                self._runtime.log(
                    f"Rollback of ongoing transaction for transactionalId {transactional_id} failed due to error "
                    f"{error.name}",
                    "warning",
                )

        self.fence_and_abort(owned, ended)

    def _end(self, owned: Owned, change: Change, on_end: Callable[[ErrorCode], None]) -> None:
        def stored(error: ErrorCode) -> None:
            on_end(error)
            if error is ErrorCode.NONE:
                self._markers.complete(owned)

        self._store.store(owned, change, stored)


def _repeated(state: TransactionState, outcome: Outcome) -> ErrorCode:
    """Return the error of an EndTxn for a transaction that is not open: it may repeat the one that ended it."""
    if state is EMPTY or OUTCOME_OF[state] is not outcome:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.NONE if state in COMPLETE else ErrorCode.CONCURRENT_TRANSACTIONS
