"""One led partition of __transaction_state: the transactional ids that live there, and their load from the log.

Contract: the result of a load depends on the records alone; the last one of an id counts, a tombstone removes it. The
log is read to its LEO, so that a change whose request failed may count after all. A value that cannot be decoded, or
makes no sense, costs its transactional id, which is refused with the cause; a key that cannot be decoded names none,
and is skipped.
Source: TransactionStateManager (loadTransactionMetadata, addLoadedTransactionsToCache, TxnMetadataCacheEntry).
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge.errors import TidegaugeError
from tidegauge.record_batch import Buffer
from tidegauge.transactions import TRANSACTION_TOPIC
from tidegauge_broker.coordinator.led_partitions import LedPartition, ShardState
from tidegauge_broker.coordinator.owner import Owner
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
        refused: why transactional ids are out of service until the next load: their record could not be served, or a
            decision about them failed unexpectedly.
        is_committed: a record written after the load is committed, and so are all loaded ones. The log is
            loaded to its LEO, so before that another leader may lack some of them.
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
        self.refused: dict[str, str] = {}
        self.unreadable_keys: list[str] = []
        self.is_committed = False
        super().__init__(runtime, partition, leader_epoch, since_ms, SHARD_TRANSITIONS)

    def replay(self, batches: Buffer) -> None:
        """Take the next part of the log; see LedPartition."""
        for batch in read_batches(batches):
            if batch.header.is_control:
                continue
            for key, value in batch.records:
                self._replay_record(key or b"", value)

    def _replay_record(self, key: bytes, value: bytes | None) -> None:
        try:
            transactional_id = read_transaction_key(key)
        except TidegaugeError as problem:
            self.unreadable_keys.append(problem.message)
            return
        if isinstance(transactional_id, UnknownKey):
            self.unknown_versions.add(transactional_id.version)
            return
        self.transactions.pop(transactional_id, None)
        self.refused.pop(transactional_id, None)
        if value is not None:
            try:
                self.transactions[transactional_id] = read_transaction(transactional_id, value)
            except TidegaugeError as problem:
                self.refused[transactional_id] = problem.message

    def activate(self) -> None:
        """End the load, serve the loaded ids, and resume decided transactions."""
        runtime = self._runtime
        name = f"{TRANSACTION_TOPIC}-{self.partition}"
        took_ms = runtime.now_ms - self.since_ms
        runtime.log(
            f"Finished loading {len(self.transactions)} transaction metadata from {name} in {took_ms} milliseconds"
        )
        if self.unreadable_keys:
            runtime.log(
                f"Ignoring {len(self.unreadable_keys)} records of {name} whose keys cannot be read, so that they "
                f"belong to no transactional id; the first: {self.unreadable_keys[0]}",
                "warning",
            )
            self.unreadable_keys = []
        for transactional_id, cause in self.refused.items():
            self._log_refused(transactional_id, cause)
        self.change_state(ShardState.ACTIVE, transactions=len(self.transactions), load_ms=took_ms)
        self._on_loaded(self)

    def forget(self) -> None:
        """Drop the transactional ids that were read."""
        self.transactions, self.refused, self.unreadable_keys = {}, {}, []

    def unload(self) -> None:
        """Forget the transactional ids, at once."""
        self._runtime.log(
            f"Unloaded transaction metadata for {TRANSACTION_TOPIC}-{self.partition} of coordinator epoch "
            f"{self.leader_epoch}: {len(self.transactions)} transactional ids"
        )
        self._on_unloaded(self)
        self.transactions, self.refused = {}, {}
        self.change_state(ShardState.UNLOADED)

    def owner(self, transactional_id: str) -> Owner:
        """Return an id's name as owner of timers, outcomes and requests."""
        return Owner(self.partition, transactional_id)

    def take_out_of_service(self, transactional_id: str, cause: str) -> None:
        """Forget an id about which a decision has failed; its state, which may be half changed, is not looked at."""
        self.transactions.pop(transactional_id, None)
        self.refused[transactional_id] = cause
        self._log_refused(transactional_id, cause)

    def _log_refused(self, transactional_id: str, cause: str) -> None:
        self._runtime.log(
            f"Transactional id '{transactional_id}' ({TRANSACTION_TOPIC}-{self.partition}) is out of service: {cause}. "
            "Its requests get UNKNOWN_SERVER_ERROR, and a transaction of it that is open stays open; other ids are "
            "served. Another leader of the partition, or a restart of this one, loads it again.",
            "error",
        )
