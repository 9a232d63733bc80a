"""EndTxn, and the abort of transactions that timed out or whose producer is fenced.

The response to an EndTxn is sent when the decision is committed, before any marker is written. An EndTxn names no
transaction: before version 5 a late one ends any transaction of that epoch that is open. From version 5 on each end
raises the epoch, so that a late one is fenced and a repeated one recognised (KIP-890, part 2); an abort without a
transaction raises it, too. A producer whose epochs are exhausted continues with another producer id.
Source: TransactionCoordinator (endTransaction, abortTimedOutTransactions).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidegauge.errors import ErrorCode
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import NO_PRODUCER_ID, EndTxn, EndTxnResult, TransactionState
from tidegauge_broker.coordinator.effects import AllocateProducerId
from tidegauge_broker.coordinator.runtime import TransactionRuntime
from tidegauge_broker.coordinator.transaction.markers import Markers
from tidegauge_broker.coordinator.transaction.states import COMPLETE, DECIDED, EMPTY, ONGOING, OUTCOME_OF
from tidegauge_broker.coordinator.transaction.storing import Owned, Store
from tidegauge_broker.coordinator.transaction.transaction import EXHAUSTED_EPOCH, V2, Change, Transaction


class Ending:
    """Ends transactions."""

    def __init__(self, runtime: TransactionRuntime, store: Store, markers: Markers) -> None:
        self._runtime = runtime
        self._store = store
        self._markers = markers

    def handle(self, request: EndTxn, token: object) -> None:
        """Handle an EndTxn."""
        if request.raises_epoch:
            self._handle_raising(request, token, NO_PRODUCER_ID)
            return

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

    # Transactions v2

    def _handle_raising(self, request: EndTxn, token: object, next_producer_id: int) -> None:
        """Handle an EndTxn of version 5; again from scratch when there is the other producer id that it needs."""

        def refuse(error: ErrorCode) -> None:
            self._runtime.respond(token, EndTxnResult(error))

        owned = self._store.find(request.transactional_id)
        if isinstance(owned, ErrorCode):
            refuse(owned)
            return
        transaction = owned.transaction
        error = _raising_error(transaction, request)
        if error is not ErrorCode.NONE:
            refuse(error)
        elif _is_repeated(transaction, request):
            self._runtime.respond(token, _present(transaction))
        else:

            def ended(error: ErrorCode) -> None:
                self._runtime.respond(token, EndTxnResult(error) if error is not ErrorCode.NONE else granted)

            def begin(producer_id: int) -> None:
                self._handle_raising(request, token, producer_id)

            granted = self._end_raising(owned, request.outcome, ended, next_producer_id, begin)

    def _end_raising(
        self,
        owned: Owned,
        outcome: Outcome,
        on_end: Callable[[ErrorCode], None],
        next_producer_id: int,
        again: Callable[[int], None],
    ) -> EndTxnResult:
        """End a transaction, or abort without one, in a higher epoch.

        Args:
            owned: the transactional id.
            outcome: the decision.
            on_end: called with its error, or NONE when it is committed.
            next_producer_id: for a producer whose epochs are exhausted, if one was allocated.
            again: called with it when it is.

        Returns:
            The producer's id and epoch from now on, if the decision is committed.
        """
        transaction = owned.transaction
        if not transaction.is_epoch_exhausted:
            next_producer_id = NO_PRODUCER_ID
        elif next_producer_id == NO_PRODUCER_ID:

            def allocated(error: ErrorCode, producer_id: int) -> None:
                if error is ErrorCode.NONE:
                    again(producer_id)
                else:
                    on_end(error)

            self._runtime.effects.append(AllocateProducerId(self._runtime.awaited(allocated)))
            return EndTxnResult()
        change = transaction.prepare_raising_end(outcome, self._runtime.wall_ms, next_producer_id)
        self._end(owned, change, on_end)
        if next_producer_id != NO_PRODUCER_ID:
            return EndTxnResult(producer_id=next_producer_id, producer_epoch=0)
        return EndTxnResult(producer_id=change.producer_id, producer_epoch=change.producer_epoch)

    def _abort_raising(self, owned: Owned, on_end: Callable[[ErrorCode], None], next_producer_id: int) -> None:
        """Abort an open transaction in a higher epoch, for the coordinator itself; if it is open still."""
        transaction = owned.transaction
        if not owned.is_valid or transaction.pending_state is not None or transaction.state is not ONGOING:
            on_end(ErrorCode.CONCURRENT_TRANSACTIONS)
            return
        again = partial(self._abort_raising, owned, on_end)
        self._end_raising(owned, Outcome.ABORT, on_end, next_producer_id, again)

    # The coordinator's own aborts

    def fence_and_abort(self, owned: Owned, on_end: Callable[[ErrorCode], None]) -> None:
        """Abort an Ongoing transaction in an epoch that its producer does not have.

        The raised epoch counts at once, so that the producer is fenced; if the record of it can't be written, the next
        attempt uses the same epoch again instead of the one after (KAFKA-9666). With transaction.version 2 the abort
        itself raises the epoch, once, when its record is committed (KAFKA-19367).
        """
        if self._runtime.settings.transaction_version >= V2:
            self._abort_raising(owned, on_end, NO_PRODUCER_ID)
            return
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
        """Abort the open transactions that exceed their timeout."""
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


def _raising_error(transaction: Transaction, request: EndTxn) -> ErrorCode:
    """Return the error of an EndTxn of version 5.

    NONE: it ends a transaction, aborts without one, or is a repeat.
    """
    state, outcome = transaction.state, request.outcome
    if transaction.pending_state is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    is_retry = _names_the_epoch_before(transaction, request)
    if request.producer_id != transaction.producer_id and not is_retry:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if state in DECIDED:
        if not is_retry:
            return ErrorCode.PRODUCER_FENCED
        return ErrorCode.CONCURRENT_TRANSACTIONS if OUTCOME_OF[state] is outcome else ErrorCode.INVALID_TXN_STATE
    if is_retry and state in COMPLETE:
        return ErrorCode.NONE if OUTCOME_OF[state] is outcome else ErrorCode.INVALID_TXN_STATE
    if request.producer_epoch != transaction.producer_epoch:
        return ErrorCode.PRODUCER_FENCED
    is_allowed = state is ONGOING or outcome is Outcome.ABORT
    return ErrorCode.NONE if is_allowed else ErrorCode.INVALID_TXN_STATE


def _names_the_epoch_before(transaction: Transaction, request: EndTxn) -> bool:
    """Whether a request has the epoch before the last end, which raised it, or the former producer id's."""
    if request.producer_id == transaction.producer_id:
        return request.producer_epoch == transaction.producer_epoch - 1
    is_before = request.producer_id == transaction.last_producer_id != NO_PRODUCER_ID
    return is_before and request.producer_epoch == EXHAUSTED_EPOCH and transaction.producer_epoch == 0


def _is_repeated(transaction: Transaction, request: EndTxn) -> bool:
    return transaction.state in COMPLETE and _names_the_epoch_before(transaction, request)


def _present(transaction: Transaction) -> EndTxnResult:
    return EndTxnResult(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)


def _repeated(state: TransactionState, outcome: Outcome) -> ErrorCode:
    """Return the error of an EndTxn without an open transaction, possibly a repeat."""
    if state is EMPTY or OUTCOME_OF[state] is not outcome:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.NONE if state in COMPLETE else ErrorCode.CONCURRENT_TRANSACTIONS
