"""Has the markers of decided transactions written, and completes the transactions.

Contract: markers are sent of a transaction when the record of its decision is committed. Each of its partitions gets
the marker, or has been deleted; after the last one the record of the completion is written, once. A failed write is
repeated without end, with the partition's leader looked up again, until the marker is written, the partition is
deleted, or another coordinator or a newer epoch owns the transaction. A failure of one partition holds up no other
transaction.

Deviations from Kafka, none of which another broker or a client can see: a marker that failed is repeated after
``RETRY_BACKOFF_MS`` (Kafka: at once, at the pace of the network), and where Kafka's broker exits on an error that no
broker should send, the marker is repeated too and the error is logged.
Source: TransactionMarkerChannelManager, TransactionMarkerRequestCompletionHandler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import TransactionMarker
from tidegauge_broker.coordinator.effects import FindLeaders, MarkersOfTransaction, WriteMarkers
from tidegauge_broker.coordinator.events import NO_BROKER, LeadersFound, MarkersWritten
from tidegauge_broker.coordinator.runtime import TransactionRuntime
from tidegauge_broker.coordinator.timers import Timer
from tidegauge_broker.coordinator.transaction.shard import TransactionShard
from tidegauge_broker.coordinator.transaction.states import OUTCOME_OF
from tidegauge_broker.coordinator.transaction.storing import Owned, Store
from tidegauge_broker.coordinator.transaction.transaction import Change

RETRY_BACKOFF_MS = 50
"""Before a failed marker or completion is repeated; reconnect.backoff.ms of Kafka's channel for markers."""
_WRITTEN = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""The partition has the marker, or can't have data of a transaction."""
_RETRIABLE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
_OVERTAKEN = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
"""A newer epoch of the producer or of the coordinator has been there: this coordinator gives up."""
_MOVED_ON = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


class Completion:
    """A decided transaction whose markers are being written; ``change`` is what follows."""

    __slots__ = ("change", "marker", "owned")

    def __init__(self, owned: Owned, change: Change) -> None:
        transaction = owned.transaction
        self.owned = owned
        self.change = change
        self.marker = TransactionMarker(
            transaction.producer_id,
            transaction.producer_epoch,
            OUTCOME_OF[transaction.state],
            owned.shard.leader_epoch,
            transaction.client_version,
        )

    @property
    def transactional_id(self) -> str:
        """Whose transaction it is."""
        return self.owned.transaction.transactional_id


class _Entry(NamedTuple):
    """Partitions that the marker of a completion still has to be written to."""

    completion: Completion
    partitions: tuple[TopicPartition, ...]


class Markers:
    """The markers of a coordinator.

    Attributes:
        store: set before the first use.
    """

    store: Store

    def __init__(self, runtime: TransactionRuntime) -> None:
        self._runtime = runtime
        self._completions: dict[str, Completion] = {}
        self._lookups: dict[int, list[_Entry]] = {}
        self._queues: dict[int, list[_Entry]] = {}
        self._in_flight: dict[int, tuple[int, list[_Entry]]] = {}
        self._busy: set[int] = set()
        self._leaderless: list[_Entry] = []
        self._failed: list[_Entry] = []
        self._unwritten: list[Completion] = []
        self._retry: Timer | None = None
        self._last_id = 0

    # For metrics and views

    @property
    def unknown_destinations(self) -> int:
        """The number of markers that wait for their partition's leader to come back."""
        return len(self._leaderless)

    @property
    def unwritten_completions(self) -> int:
        """The number of transactions that have all their markers, but no record of it yet."""
        return len(self._unwritten)

    def has(self, transactional_id: str) -> bool:
        """Return whether the transaction of an id is being completed here."""
        return transactional_id in self._completions or any(
            completion.transactional_id == transactional_id for completion in self._unwritten
        )

    # Methods for the coordinator

    def complete(self, owned: Owned) -> None:
        """Have the markers of a transaction written whose decision is committed (addTxnMarkersToSend)."""
        self.begin(self.prepare(owned))

    def prepare(self, owned: Owned) -> Completion:
        """Set the completion of a decided transaction pending; nothing is sent before ``begin``."""
        completion = Completion(owned, owned.transaction.prepare_completion(self._runtime.wall_ms))
        self._completions[completion.transactional_id] = completion
        return completion

    def begin(self, completion: Completion) -> None:
        """Have the markers of a prepared completion written: the decision is committed."""
        partitions = tuple(completion.owned.transaction.partitions)
        if partitions:
            self._look_up([_Entry(completion, partitions)])
        else:
            self._write_completion_if_due(completion)

    def drop(self, shard: TransactionShard, transactional_id: str | None = None) -> None:
        """Forget the pending markers of a partition, or of one id in it, that this broker no longer coordinates."""

        def stays(completion: Completion) -> bool:
            is_meant = transactional_id in {None, completion.transactional_id}
            return completion.owned.shard is not shard or not is_meant

        def others(entries: list[_Entry]) -> list[_Entry]:
            return [entry for entry in entries if stays(entry.completion)]

        self._completions = {name: completion for name, completion in self._completions.items() if stays(completion)}
        self._queues = {broker_id: others(queue) for broker_id, queue in self._queues.items()}
        self._leaderless, self._failed = others(self._leaderless), others(self._failed)
        self._unwritten = [completion for completion in self._unwritten if stays(completion)]

    def leaders_found(self, event: LeadersFound) -> None:
        """Queue markers for the leaders of their partitions; markers of deleted partitions count as written."""
        for entry in self._lookups.pop(event.lookup_id, ()):
            self._attempt(entry, partial(self._take_leaders, entry, event.leaders))
        self._send()

    def markers_written(self, event: MarkersWritten) -> None:
        """Take the response to a request, or its failure."""
        broker_id, entries = self._in_flight.pop(event.request_id, (NO_BROKER, []))
        self._busy.discard(broker_id)
        if event.errors is None:
            # Markers queued behind the request have the same destination, which is looked up again too.
            entries = entries + self._queues.pop(broker_id, [])
            for completion, partitions in entries:
                self._repeat(completion, partitions)
        else:
            for entry in entries:
                errors = event.errors.get(entry.completion.marker.producer_id, {})
                self._attempt(entry, partial(self._take_results, *entry, errors))
        self._send()

    # Steps

    def _attempt(self, entry: _Entry, decide: Callable[[], None]) -> None:
        """Run a decision about the transaction of an entry, unless its leadership has ended."""
        owned = entry.completion.owned
        if owned.is_valid:
            self._runtime.attempt(owned.owner, decide)

    def _take_leaders(self, entry: _Entry, leaders: Mapping[TopicPartition, int]) -> None:
        completion = entry.completion
        by_broker: dict[int, list[TopicPartition]] = {}
        for topic_partition in entry.partitions:
            leader = leaders.get(topic_partition)
            if leader is None:
                self._runtime.log(
                    f"Couldn't find leader endpoint for partition {topic_partition} while trying to send "
                    f"transaction markers for {completion.transactional_id}; it is likely deleted already and "
                    "hence can be skipped"
                )
                completion.owned.transaction.remove_partition(topic_partition)
            else:
                by_broker.setdefault(leader, []).append(topic_partition)
        self._queue(completion, by_broker)
        self._write_completion_if_due(completion)

    def _look_up(self, entries: list[_Entry]) -> None:
        self._last_id += 1
        self._lookups[self._last_id] = entries
        partitions = dict.fromkeys(partition for entry in entries for partition in entry.partitions)
        self._runtime.effects.append(FindLeaders(self._last_id, tuple(partitions)))

    def _queue(self, completion: Completion, by_broker: dict[int, list[TopicPartition]]) -> None:
        for broker_id, partitions in by_broker.items():
            entry = _Entry(completion, tuple(partitions))
            if broker_id == NO_BROKER:
                self._leaderless.append(entry)
                self._start_retry_timer()
            else:
                self._queues.setdefault(broker_id, []).append(entry)

    def _send(self) -> None:
        """Send the queued markers to every broker that has no request in flight."""
        for broker_id in [one for one, queue in self._queues.items() if queue and one not in self._busy]:
            entries = self._queues.pop(broker_id)
            self._last_id += 1
            self._in_flight[self._last_id] = broker_id, entries
            self._busy.add(broker_id)
            markers = tuple(MarkersOfTransaction(entry.completion.marker, entry.partitions) for entry in entries)
            self._runtime.effects.append(WriteMarkers(self._last_id, broker_id, markers))

    def _take_results(
        self, completion: Completion, partitions: tuple[TopicPartition, ...], errors: Mapping[TopicPartition, ErrorCode]
    ) -> None:
        again: list[TopicPartition] = []
        is_overtaken = False
        for topic_partition in partitions:
            error = errors.get(topic_partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            if error in _WRITTEN:
                completion.owned.transaction.remove_partition(topic_partition)
            elif error in _OVERTAKEN:
                is_overtaken = True
                self._give_up(completion, topic_partition, error)
            else:
                self._log_failure(completion, topic_partition, error)
                again.append(topic_partition)
        if is_overtaken:
            return
        if again:
            self._repeat(completion, again)
        else:
            self._write_completion_if_due(completion)

    def _log_failure(self, completion: Completion, topic_partition: TopicPartition, error: ErrorCode) -> None:
        self._runtime.log(
            f"Sending {completion.transactional_id}'s transaction marker for partition {topic_partition} has failed "
            f"with error {error.name}, retrying with current coordinator epoch {completion.marker.coordinator_epoch}",
            "info" if error in _RETRIABLE else "error",
        )

    def _give_up(self, completion: Completion, topic_partition: TopicPartition, error: ErrorCode) -> None:
        """Stop completing a transaction: its id gets CONCURRENT_TRANSACTIONS here until the next load."""
        self._runtime.log(
            f"Sending {completion.transactional_id}'s transaction marker for partition {topic_partition} has "
            f"permanently failed with error {error.name} with the current coordinator epoch "
            f"{completion.marker.coordinator_epoch}; cancel sending any more transaction markers"
        )
        self._forget(completion)

    def _forget(self, completion: Completion) -> bool:
        """Remove a completion, and no later one of the same id; return whether it was there (KAFKA-16352)."""
        if self._completions.get(completion.transactional_id) is not completion:
            return False
        del self._completions[completion.transactional_id]
        return True

    def _repeat(self, completion: Completion, partitions: Iterable[TopicPartition]) -> None:
        if completion.owned.is_valid:
            self._failed.append(_Entry(completion, tuple(partitions)))
            self._start_retry_timer()

    def _start_retry_timer(self) -> None:
        if self._retry is None:
            # All markers share this timer, whichever decision starts it.
            at_ms = self._runtime.now_ms + RETRY_BACKOFF_MS
            self._retry = self._runtime.timers.start(at_ms, "MarkerRetry", self._retry_all)

    def _retry_all(self) -> None:
        """Repeat what failed: completions that could not be written, and markers, after looking up their leaders."""
        self._retry = None
        unwritten, self._unwritten = self._unwritten, []
        for completion in unwritten:
            if completion.owned.is_valid:
                self._runtime.attempt(completion.owned.owner, partial(self._write_completion, completion))
        entries = self._leaderless + self._failed
        self._leaderless, self._failed = [], []
        if entries:
            self._look_up(entries)

    def _write_completion_if_due(self, completion: Completion) -> None:
        """Write the record of the completion when no partition is left (maybeWriteTxnCompletion)."""
        if not completion.owned.transaction.partitions and self._forget(completion):
            self._write_completion(completion)

    def _write_completion(self, completion: Completion) -> None:
        def stored(error: ErrorCode) -> None:
            if error is ErrorCode.NONE:
                return
            if error in _MOVED_ON:
                self._runtime.log(
                    f"No longer the coordinator for transactionalId: {completion.transactional_id} while trying to "
                    "append to transaction log, skip writing to transaction log"
                )
            elif completion.owned.is_valid:
                self._runtime.log(
                    f"Not available to append the completion of {completion.transactional_id}: {error.name}; retry "
                    "appending",
                    "info" if error is ErrorCode.COORDINATOR_NOT_AVAILABLE else "error",
                )
                self._unwritten.append(completion)
                self._start_retry_timer()

        self.store.store(completion.owned, completion.change, stored, is_retried=True)
