"""InitProducerId: a producer id for a transactional id, with an epoch that fences earlier users of the id.

Source: TransactionCoordinator (handleInitProducerId, prepareInitProducerIdTransit); KIP-98, KIP-360.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.transactions import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, InitProducerId, InitProducerIdResult
from tidegauge_broker.coordinator.effects import AllocateProducerId
from tidegauge_broker.coordinator.events import ProducerIdAllocated
from tidegauge_broker.coordinator.runtime import TransactionRuntime
from tidegauge_broker.coordinator.transaction.ending import Ending
from tidegauge_broker.coordinator.transaction.states import DECIDED, ONGOING
from tidegauge_broker.coordinator.transaction.storing import Owned, Store
from tidegauge_broker.coordinator.transaction.transaction import EXHAUSTED_EPOCH, Change, Transaction


class Initializing:
    """Handles InitProducerId. Where a producer id is needed the request starts again when there is one."""

    def __init__(self, runtime: TransactionRuntime, store: Store, ending: Ending) -> None:
        self._runtime = runtime
        self._store = store
        self._ending = ending

    def handle(self, request: InitProducerId, token: object) -> None:
        """Handle a request."""
        self._handle(request, token, None)

    def allocated(self, event: ProducerIdAllocated) -> None:
        """Continue the request that needed a producer id."""
        self._runtime.arrived(event.allocation_id, "InitProducerId", event.error, event.producer_id)

    def _handle(self, request: InitProducerId, token: object, producer_id: int | None) -> None:
        """Handle a request.

        Args:
            request: the request.
            token: for the response.
            producer_id: a new one, if it was found to be needed; it is lost if it is not needed any more.
        """
        transactional_id = request.transactional_id
        if transactional_id is None:
            if producer_id is None:
                self._allocate(request, token)
            else:
                self._runtime.respond(token, InitProducerIdResult(producer_id=producer_id, producer_epoch=0))
            return
        if not transactional_id:
            self._refuse(token, ErrorCode.INVALID_REQUEST)
        elif not 0 < request.timeout_ms <= self._runtime.settings.transaction_max_timeout_ms:
            self._refuse(token, ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        else:
            self._initialize(transactional_id, request, token, producer_id)

    def _initialize(
        self, transactional_id: str, request: InitProducerId, token: object, producer_id: int | None
    ) -> None:
        shard = self._store.shard_of(transactional_id)
        if isinstance(shard, ErrorCode):
            self._refuse(token, shard)
            return
        transaction = shard.transactions.get(transactional_id)
        if transaction is None:
            if producer_id is None:
                self._allocate(request, token)
                return
            transaction = Transaction(transactional_id, producer_id, request.timeout_ms, self._runtime.wall_ms)
            shard.transactions[transactional_id] = transaction
        error = _error_before(transaction, request)
        if error is not ErrorCode.NONE:
            self._refuse(token, error)
            return
        owned = Owned(shard, transaction)
        if transaction.state is ONGOING:
            self._fence(owned, token)
        elif _needs_new_producer_id(transaction, request) and producer_id is None:
            self._allocate(request, token)
        else:
            self._change(owned, request, token, producer_id)

    def _fence(self, owned: Owned, token: object) -> None:
        """Abort the open transaction with an epoch that no producer has; the client comes again."""

        def aborted(error: ErrorCode) -> None:
            self._refuse(token, ErrorCode.CONCURRENT_TRANSACTIONS if error is ErrorCode.NONE else error)

        self._ending.fence_and_abort(owned, aborted)

    def _change(self, owned: Owned, request: InitProducerId, token: object, producer_id: int | None) -> None:
        transaction, now_ms = owned.transaction, self._runtime.wall_ms
        expected_epoch = _expected_epoch(request)
        change: Change | ErrorCode
        if _needs_new_producer_id(transaction, request):
            assert producer_id is not None
            change = transaction.prepare_next_producer_id(
                producer_id, request.timeout_ms, now_ms, keeps_last_epoch=expected_epoch is not None
            )
        else:
            change = transaction.prepare_next_epoch(request.timeout_ms, expected_epoch, now_ms)
        if isinstance(change, ErrorCode):
            self._refuse(token, change)
            return
        granted = InitProducerIdResult(producer_id=change.producer_id, producer_epoch=change.producer_epoch)

        def stored(error: ErrorCode) -> None:
            self._runtime.respond(token, granted if error is ErrorCode.NONE else InitProducerIdResult(error))

        self._store.store(owned, change, stored)

    def _allocate(self, request: InitProducerId, token: object) -> None:
        def allocated(error: ErrorCode, producer_id: int) -> None:
            if error is ErrorCode.NONE:
                self._handle(request, token, producer_id)
            else:
                self._refuse(token, error)

        self._runtime.effects.append(AllocateProducerId(self._runtime.awaited(allocated)))

    def _refuse(self, token: object, error: ErrorCode) -> None:
        self._runtime.respond(token, InitProducerIdResult(error))


def _expected_epoch(request: InitProducerId) -> int | None:
    return None if request.producer_epoch == NO_PRODUCER_EPOCH else request.producer_epoch


def _error_before(transaction: Transaction, request: InitProducerId) -> ErrorCode:
    """Return why an InitProducerId can't be taken now; NONE if it can."""
    if transaction.pending_state is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if _expected_epoch(request) is not None and not _is_expected_producer(transaction, request):
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.state in DECIDED else ErrorCode.NONE


def _is_expected_producer(transaction: Transaction, request: InitProducerId) -> bool:
    """Return whether the producer that a request names may be the present one.

    It may if the id was created just now (the producer recovers from an expired one), if the producer id is the present
    one, or if it is the one before and was exhausted: then the response with the present one may have been lost.
    """
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or request.producer_id == transaction.producer_id
        or (
            request.producer_id == transaction.last_producer_id != NO_PRODUCER_ID
            and request.producer_epoch >= EXHAUSTED_EPOCH
        )
    )


def _needs_new_producer_id(transaction: Transaction, request: InitProducerId) -> bool:
    """Whether the epoch can't be raised, for a producer that expects the present one or none."""
    expected = _expected_epoch(request)
    return transaction.is_epoch_exhausted and (expected is None or expected == transaction.producer_epoch)
