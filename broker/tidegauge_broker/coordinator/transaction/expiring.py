"""Removes transactional ids that were not used for transactional.id.expiration.ms.

Source: TransactionStateManager (removeExpiredTransactionalIds, writeTombstonesForExpiredTransactionalIds).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import HEADER_BYTES
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.runtime import ALL_REPLICAS, TransactionRuntime
from tidegauge_broker.coordinator.transaction.records import transaction_key
from tidegauge_broker.coordinator.transaction.shard import TransactionShard
from tidegauge_broker.coordinator.transaction.states import DEAD, EXPIRABLE
from tidegauge_broker.coordinator.transaction.storing import Owned
from tidegauge_broker.coordinator.transaction.transaction import Transaction

_TOMBSTONE_BYTES = 20
"""Upper bound of what a tombstone takes beside its key: six variable-length numbers and the attributes."""


class Expiring:
    """Expires transactional ids."""

    def __init__(self, runtime: TransactionRuntime) -> None:
        self._runtime = runtime

    def expire(self, shard: TransactionShard) -> None:
        """Write tombstones for a partition's expired ids, and remove the ids when they are committed."""
        deadline_ms = self._runtime.wall_ms - self._runtime.settings.transactional_id_expiration_ms
        expired = [
            transaction
            for transaction in shard.transactions.values()
            if transaction.pending_state is None
            and transaction.state in EXPIRABLE
            and transaction.update_ms <= deadline_ms
        ]
        for part in _parts(expired, self._runtime.settings.max_message_bytes):
            self._remove(shard, part)

    def _remove(self, shard: TransactionShard, expired: Sequence[Transaction]) -> None:
        for transaction in expired:
            self._runtime.attempt(shard.owner(transaction.transactional_id), transaction.prepare_expiration)

        def outcome(error: ErrorCode, _base_offset: int) -> None:
            for owned in [Owned(shard, transaction) for transaction in expired]:
                if owned.is_valid:
                    self._runtime.attempt(owned.owner, partial(self._removed, owned, error))

        tombstones = [Record(transaction_key(transaction.transactional_id), None) for transaction in expired]
        self._runtime.append(
            shard.partition,
            batch_of(tombstones, self._runtime.wall_ms),
            outcome,
            acks=ALL_REPLICAS,
            timeout_ms=self._runtime.settings.request_timeout_ms,
        )

    def _removed(self, owned: Owned, error: ErrorCode) -> None:
        """Take the outcome of an id's tombstone."""
        if error is ErrorCode.NONE:
            self._forget(owned.shard, owned.transaction)
            return
        owned.transaction.pending_state = None
        self._runtime.log(
            f"Failed to remove expired transactionalId: {owned.transaction.transactional_id} from cache. "
            f"Tombstone append error code: {error.name}",
            "warning",
        )

    def _forget(self, shard: TransactionShard, transaction: Transaction) -> None:
        del shard.transactions[transaction.transactional_id]
        self._runtime.note(
            "transaction",
            transaction.transactional_id,
            old=transaction.state.value,
            new=DEAD.value,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            coordinator_epoch=shard.leader_epoch,
            partitions=[],
        )


def _parts(expired: Sequence[Transaction], max_bytes: int) -> Iterator[list[Transaction]]:
    """Yield the ids in parts whose tombstones fit into one batch each."""
    part: list[Transaction] = []
    size_bytes = HEADER_BYTES
    for transaction in expired:
        tombstone_bytes = len(transaction_key(transaction.transactional_id)) + _TOMBSTONE_BYTES
        if part and size_bytes + tombstone_bytes > max_bytes:
            yield part
            part, size_bytes = [], HEADER_BYTES
        part.append(transaction)
        size_bytes += tombstone_bytes
    if part:
        yield part
