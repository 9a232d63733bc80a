"""DescribeTransactions, ListTransactions, and the views for the lab and the metrics; nothing here changes anything.

Source: TransactionCoordinator (handleDescribeTransactions), TransactionStateManager (listTransactionStates); KIP-664.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from tidegauge.errors import ErrorCode
from tidegauge.transactions import (
    DescribeTransactionResult,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResult,
    TransactionState,
)
from tidegauge_broker.coordinator.transaction.shard import TransactionShard
from tidegauge_broker.coordinator.transaction.states import DECIDED
from tidegauge_broker.coordinator.transaction.storing import Owned
from tidegauge_broker.coordinator.transaction.transaction import Transaction
from tidegauge_broker.coordinator.views import TransactionView

_STATES = frozenset(state.value for state in TransactionState)


def described(transactional_id: str, found: Owned | ErrorCode) -> DescribeTransactionResult:
    """Return the description of an id; an unknown one gives TRANSACTIONAL_ID_NOT_FOUND."""
    if isinstance(found, ErrorCode):
        unknown = found is ErrorCode.INVALID_PRODUCER_ID_MAPPING
        return DescribeTransactionResult(transactional_id, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if unknown else found)
    transaction = found.transaction
    return DescribeTransactionResult(
        transactional_id,
        ErrorCode.NONE,
        transaction.state.value,
        transaction.timeout_ms,
        transaction.start_ms,
        transaction.producer_id,
        transaction.producer_epoch,
        tuple(transaction.partitions),
    )


def listed(transactions: Iterable[Transaction], request: ListTransactions, now_ms: int) -> ListTransactionsResult:
    """Return the ids that pass a request's filters; report unknown state names."""
    states, producer_ids, duration_ms = set(request.states), set(request.producer_ids), request.duration_ms
    return ListTransactionsResult(
        unknown_state_filters=tuple(dict.fromkeys(name for name in request.states if name not in _STATES)),
        transactions=[
            ListedTransaction(transaction.transactional_id, transaction.producer_id, transaction.state.value)
            for transaction in transactions
            if (not producer_ids or transaction.producer_id in producer_ids)
            and (not states or transaction.state.value in states)
            and (duration_ms < 0 or now_ms - transaction.start_ms > duration_ms)
        ],
    )


def viewed(shard: TransactionShard, transaction: Transaction, *, is_completing: bool) -> TransactionView:
    """Return the full truth about an id.

    Args:
        shard: the id's partition.
        transaction: the id's state.
        is_completing: whether its markers are being written.
    """
    return TransactionView(
        transactional_id=transaction.transactional_id,
        partition=shard.partition,
        coordinator_epoch=shard.leader_epoch,
        state=transaction.state,
        pending_state=transaction.pending_state,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        last_producer_id=transaction.last_producer_id,
        last_producer_epoch=transaction.last_producer_epoch,
        timeout_ms=transaction.timeout_ms,
        partitions=tuple(transaction.partitions),
        start_time_ms=transaction.start_ms,
        last_update_ms=transaction.update_ms,
        has_failed_epoch_fence=transaction.has_failed_epoch_fence,
        is_given_up=transaction.state in DECIDED and bool(transaction.partitions) and not is_completing,
        transactions_version=0 if transaction.state is TransactionState.EMPTY else max(transaction.client_version, 1),
    )


def counted(transactions: Iterable[Transaction]) -> dict[TransactionState, int]:
    """Return how many ids are in each state."""
    return dict(Counter(transaction.state for transaction in transactions))
