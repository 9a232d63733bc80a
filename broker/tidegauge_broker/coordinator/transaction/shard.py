"""One led partition of __transaction_state: the transactional ids that live there, and their load from the log.

Contract: what is loaded depends on the records alone; the last one of an id counts, a tombstone removes it. The log is
read to its LEO, so that a change whose request failed may count after all.
Source: TransactionStateManager (loadTransactionMetadata, addLoadedTransactionsToCache, TxnMetadataCacheEntry).
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.record_batch import Buffer
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_broker.coordinator.led_partitions import LedPartition, ShardState
from tidegauge_broker.coordinator.record_codec import UnknownKey, read_batches
from tidegauge_broker.coordinator.runtime import TransactionRuntime
from tidegauge_broker.coordinator.transaction.records import read_transaction, read_transaction_key
from tidegauge_broker.coordinator.transaction.states import SHARD_TRANSITIONS
from tidegauge_broker.coordinator.transaction.transaction import Transaction


class TransactionShard(LedPartition):
    """A partition that this broker leads.

    Args:
        on_loaded: called when the partition is served.
        on_unloaded: called when it is served no longer; its requests get NOT_COORDINATOR.

    Attributes:
        is_committed: a record is committed that was written after the load, and so is all that was loaded. The log is
            loaded to its LEO, so that before that another leader may lack what was loaded.
    """

    def __init__(
        self,
        runtime: TransactionRuntime,
        on_loaded: Callable[[TransactionShard], None],
        on_unloaded: Callable[[TransactionShard], None],
        partition: int,
        leader_epoch: int,
        since_ms: int,
    ) -> None:
        self._runtime = runtime
        self._on_loaded = on_loaded
        self._on_unloaded = on_unloaded
        self.transactions: dict[str, Transaction] = {}
        self.is_committed = False
        super().__init__(runtime, partition, leader_epoch, since_ms, SHARD_TRANSITIONS)

    def replay(self, batches: Buffer) -> None:
        """Take the next part of the log; see LedPartition."""
        for batch in read_batches(batches):
            if batch.header.is_control:
                continue
            for key, value in batch.records:
                if key is None:
                    raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"a record of {TRANSACTION_TOPIC} has no key")
                transactional_id = read_transaction_key(key)
                if isinstance(transactional_id, UnknownKey):
                    self.unknown_versions.add(transactional_id.version)
                elif value is None:
                    self.transactions.pop(transactional_id, None)
                else:
                    self.transactions[transactional_id] = read_transaction(transactional_id, value)

    def activate(self) -> None:
        """End the load, serve what was read, and go on with what was decided."""
        runtime = self._runtime
        name = f"{TRANSACTION_TOPIC}-{self.partition}"
        took_ms = runtime.now_ms - self.since_ms
        runtime.log(
            f"Finished loading {len(self.transactions)} transaction metadata from {name} in {took_ms} milliseconds"
        )
        self.change_state(ShardState.ACTIVE, transactions=len(self.transactions), load_ms=took_ms)
        self._on_loaded(self)

    def forget(self) -> None:
        """Drop the transactional ids that were read."""
        self.transactions = {}

    def unload(self) -> None:
        """Forget the transactional ids, at once."""
        self._runtime.log(
            f"Unloaded transaction metadata for {TRANSACTION_TOPIC}-{self.partition} of coordinator epoch "
            f"{self.leader_epoch}: {len(self.transactions)} transactional ids"
        )
        self._on_unloaded(self)
        self.transactions = {}
        self.change_state(ShardState.UNLOADED)
