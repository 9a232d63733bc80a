"""The transaction coordinator of one broker: events in, effects out.

Finds the transactional id of a request, runs loads one after the other, and the timers. Reads no clock, no log, no
metadata cache and no network: time, records, producer ids and leaders are arguments.
Source: TransactionCoordinator and TransactionStateManager of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.groups import partition_of
from tidegauge.transactions import (
    TRANSACTION_TOPIC,
    AddOffsetsToTxn,
    AddOffsetsToTxnResult,
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    DescribeTransaction,
    DescribeTransactionResult,
    EndTxn,
    EndTxnResult,
    InitProducerId,
    InitProducerIdResult,
    ListTransactions,
    ListTransactionsResult,
    TransactionResult,
)
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.driven import Driven
from tidegauge_broker.coordinator.events import (
    LeadersFound,
    MarkersWritten,
    ProducerIdAllocated,
    ShutDown,
    TransactionEvent,
    TransactionRequestArrived,
)
from tidegauge_broker.coordinator.led_partitions import LedPartitions, ShardState
from tidegauge_broker.coordinator.owner import Owner
from tidegauge_broker.coordinator.reading import only_reads
from tidegauge_broker.coordinator.runtime import TransactionRuntime
from tidegauge_broker.coordinator.settings import TransactionSettings
from tidegauge_broker.coordinator.text_limits import is_too_long
from tidegauge_broker.coordinator.transaction.adding import Adding
from tidegauge_broker.coordinator.transaction.describing import counted, described, listed, viewed
from tidegauge_broker.coordinator.transaction.ending import Ending
from tidegauge_broker.coordinator.transaction.expiring import Expiring
from tidegauge_broker.coordinator.transaction.initializing import Initializing
from tidegauge_broker.coordinator.transaction.markers import Markers
from tidegauge_broker.coordinator.transaction.resuming import Resuming
from tidegauge_broker.coordinator.transaction.shard import TransactionShard
from tidegauge_broker.coordinator.transaction.storing import Owned, Store
from tidegauge_broker.coordinator.views import TransactionGauges, TransactionView


class TransactionCoordinator(Driven[TransactionRuntime, TransactionEvent]):
    """Coordinates the transactions of the partitions of __transaction_state that this broker leads."""

    def __init__(self, settings: TransactionSettings, now_ms: int, wall: WallTime | None = None) -> None:
        runtime = TransactionRuntime(settings, now_ms, wall)
        self._led = LedPartitions(
            runtime, TRANSACTION_TOPIC, "transaction state", self._new_shard, takes_effect_at_once=True
        )
        super().__init__(runtime, self._led)
        self._markers = Markers(runtime)
        self._store = self._markers.store = Store(self._runtime, self._led)
        self._resuming = Resuming(self._runtime, self._markers)
        self._ending = Ending(self._runtime, self._store, self._markers)
        self._initializing = Initializing(self._runtime, self._store, self._ending)
        self._adding = Adding(self._runtime, self._store)
        self._expiring = Expiring(self._runtime)
        runtime.abandon, runtime.fail = self._abandon, _failed_unexpectedly
        self._events |= {
            TransactionRequestArrived: self._on_request,
            ProducerIdAllocated: self._initializing.allocated,
            LeadersFound: self._markers.leaders_found,
            MarkersWritten: self._markers.markers_written,
        }
        self._requests: dict[type, Callable[[Any, object], None]] = {
            InitProducerId: self._initializing.handle,
            AddPartitionsToTxn: self._adding.handle,
            AddOffsetsToTxn: self._adding.handle_offsets,
            EndTxn: self._ending.handle,
            DescribeTransaction: self._describe,
            ListTransactions: self._list,
        }
        for interval_ms, cause, action in (
            (settings.abort_timed_out_interval_ms, "TransactionTimeout", self._abort_timed_out),
            (settings.remove_expired_interval_ms, "TransactionalIdExpiration", self._remove_expired),
        ):
            self._schedule(now_ms + interval_ms, interval_ms, cause, action)

    # Methods for the shell

    def gauges(self) -> TransactionGauges:
        """Return the current gauges, for the metrics."""
        return TransactionGauges(
            counted(owned.transaction for owned in self._owned()),
            self._markers.unknown_destinations,
            self._markers.unwritten_completions,
        )

    def transaction_view(self, transactional_id: str) -> TransactionView | None:
        """Return a transactional id's full state; None if not on this broker."""
        found = self._store.find(transactional_id)
        return None if isinstance(found, ErrorCode) else self._view(found)

    def transaction_views(self) -> list[TransactionView]:
        """Return the full truth about all transactional ids of this broker."""
        return [self._view(owned) for owned in self._owned()]

    def shard_states(self) -> dict[int, ShardState]:
        """Return the state of every partition that this broker loads or serves."""
        return self._led.states()

    def _view(self, owned: Owned) -> TransactionView:
        is_completing = self._markers.has(owned.transaction.transactional_id)
        return viewed(owned.shard, owned.transaction, is_completing=is_completing)

    def _owned(self) -> Iterator[Owned]:
        for shard in self._led.active():
            for transaction in list(shard.transactions.values()):
                yield Owned(shard, transaction)

    # Leadership, outcomes and timers

    def _new_shard(self, partition: int, leader_epoch: int, since_ms: int) -> TransactionShard:
        return TransactionShard(
            self._runtime, self._resuming.resume, self._markers.drop, partition, leader_epoch, since_ms
        )

    def _on_shut_down(self, _event: ShutDown) -> None:
        """Stop: the ids are forgotten, so that their requests get NOT_COORDINATOR."""
        super()._on_shut_down(_event)
        self._led.clear()

    def _abort_timed_out(self) -> None:
        self._ending.abort_timed_out(list(self._owned()))

    def _remove_expired(self) -> None:
        for shard in self._led.active():
            self._expiring.expire(shard)

    # Requests

    def _on_request(self, event: TransactionRequestArrived) -> None:
        request, token = event.request, event.token
        self._runtime.cause = type(request).__name__
        decide = partial(self._requests[type(request)], request, token)
        if only_reads(request):
            self._runtime.read(token, request, decide)
            return
        assert not isinstance(request, ListTransactions)
        transactional_id = "" if is_too_long(request.transactional_id) else request.transactional_id or ""
        owner = Owner(partition_of(transactional_id, self._runtime.settings.partitions), transactional_id)
        self._runtime.open(token, owner, request)
        self._runtime.attempt(owner, decide)

    def _abandon(self, owner: Owner, cause: str) -> None:
        shard = self._led.shards.get(owner.partition)
        if shard is not None and owner.key:
            self._markers.drop(shard, owner.key)
            shard.take_out_of_service(owner.key, cause)

    def _describe(self, request: DescribeTransaction, token: object) -> None:
        if self._is_active:
            result = described(request.transactional_id, self._store.find(request.transactional_id))
        else:
            result = DescribeTransactionResult(request.transactional_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self._runtime.respond(token, result)

    def _list(self, request: ListTransactions, token: object) -> None:
        if not self._is_active:
            result = ListTransactionsResult(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif ShardState.LOADING in self._led.states().values():
            result = ListTransactionsResult(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        else:
            result = listed((owned.transaction for owned in self._owned()), request, self._runtime.wall_ms)
        self._runtime.respond(token, result)


_FAILURES: dict[type, Callable[[Any, ErrorCode], TransactionResult]] = {
    InitProducerId: lambda _, error: InitProducerIdResult(error),
    AddPartitionsToTxn: lambda request, error: AddPartitionsToTxnResult(dict.fromkeys(request.partitions, error)),
    AddOffsetsToTxn: lambda _, error: AddOffsetsToTxnResult(error),
    EndTxn: lambda _, error: EndTxnResult(error),
    DescribeTransaction: lambda request, error: DescribeTransactionResult(request.transactional_id, error),
    ListTransactions: lambda _, error: ListTransactionsResult(error),
}


def _failed_unexpectedly(request: Any) -> TransactionResult:
    """Return the response after an unexpected failure."""
    return _FAILURES[type(request)](request, ErrorCode.UNKNOWN_SERVER_ERROR)
