"""AddPartitionsToTxn and AddOffsetsToTxn, and the verification that partitions are in a transaction (KIP-890).

Partitions that a transaction has already are not written again, except while nothing is committed since a load: the
loaded records may not be committed, and are lost if the next leader lacks them. Their records would then lie in a
transaction that no coordinator knows, and readers of committed records would wait there forever. Kafka 3.9 writes
nothing.
Source: TransactionCoordinator (handleAddPartitionsToTransaction, handleVerifyPartitionsInTransaction).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tidegauge.errors import ErrorCode
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import TopicPartition
from tidegauge.transactions import (
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
)
from tidegauge_broker.coordinator.runtime import TransactionRuntime
from tidegauge_broker.coordinator.transaction.states import DECIDED, ONGOING
from tidegauge_broker.coordinator.transaction.storing import Owned, Store
from tidegauge_broker.coordinator.transaction.transaction import MAX_EPOCH, V2, Transaction


class Adding:
    """Adds partitions to transactions."""

    def __init__(self, runtime: TransactionRuntime, store: Store) -> None:
        self._runtime = runtime
        self._store = store

    def handle(self, request: AddPartitionsToTxn, token: object) -> None:
        """Handle an AddPartitionsToTxn of one transaction."""
        if request.verify_only:
            self._runtime.respond(token, AddPartitionsToTxnResult(self._verified(request)))
            return

        def respond(error: ErrorCode) -> None:
            self._runtime.respond(token, AddPartitionsToTxnResult(dict.fromkeys(request.partitions, error)))

        self._add(request, request.partitions, respond, is_implicit=request.is_implicit)

    def handle_offsets(self, request: AddOffsetsToTxn, token: object) -> None:
        """Handle an AddOffsetsToTxn: the group itself is not looked at."""

        def respond(error: ErrorCode) -> None:
            self._runtime.respond(token, AddOffsetsToTxnResult(error))

        self._add(request, (TopicPartition(OFFSETS_TOPIC, request.offsets_partition),), respond)

    def _add(
        self,
        request: AddPartitionsToTxn | AddOffsetsToTxn,
        partitions: tuple[TopicPartition, ...],
        respond: Callable[[ErrorCode], None],
        *,
        is_implicit: bool = False,
    ) -> None:
        owned = self._store.find(request.transactional_id)
        if isinstance(owned, ErrorCode):
            respond(owned)
            return
        transaction = owned.transaction
        error = _producer_error(transaction, request.producer_id, request.producer_epoch)
        is_kafka_4 = self._runtime.settings.is_kafka_4
        if is_kafka_4 and transaction.pending_state is not None:
            respond(ErrorCode.CONCURRENT_TRANSACTIONS)  # first: the producer id and the epoch may be about to change
        elif error is not ErrorCode.NONE:
            respond(error)
        elif transaction.pending_state is not None or transaction.state in DECIDED:
            respond(ErrorCode.CONCURRENT_TRANSACTIONS)
        elif (
            transaction.state is ONGOING
            and owned.shard.is_committed
            and transaction.partitions.keys() >= set(partitions)
        ):
            respond(ErrorCode.NONE)
        else:
            version = V2 if is_implicit and is_kafka_4 else 0
            change = transaction.prepare_partitions(partitions, self._runtime.wall_ms, version)
            self._store.store(owned, change, respond)

    def _verified(self, request: AddPartitionsToTxn) -> Mapping[TopicPartition, ErrorCode]:
        """Return for each partition whether the producer's transaction has it.

        A pending state does not matter: the partition's leader checks again at the append.
        """
        owned = self._store.find(request.transactional_id)
        error = _verification_error(owned, request)
        if error is not ErrorCode.NONE or isinstance(owned, ErrorCode):
            return dict.fromkeys(request.partitions, error)
        present = owned.transaction.partitions
        return {
            one: ErrorCode.NONE if one in present else ErrorCode.TRANSACTION_ABORTABLE for one in request.partitions
        }


def _verification_error(owned: Owned | ErrorCode, request: AddPartitionsToTxn) -> ErrorCode:
    if isinstance(owned, ErrorCode):
        return owned
    error = _producer_error(owned.transaction, request.producer_id, request.producer_epoch)
    if error is ErrorCode.NONE and owned.transaction.state in DECIDED:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return error


def _producer_error(transaction: Transaction, producer_id: int, producer_epoch: int) -> ErrorCode:
    """Return why a request is not from an id's current producer.

    This is checked before anything about the state.

    The highest epoch belongs to an abort, and no producer has been given it. Kafka lets a client that guesses it open
    a transaction, which no coordinator can abort (prepareFenceProducerEpoch throws IllegalStateException).
    """
    if producer_id != transaction.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    is_fenced = producer_epoch != transaction.producer_epoch or producer_epoch == MAX_EPOCH
    return ErrorCode.PRODUCER_FENCED if is_fenced else ErrorCode.NONE
