"""All batches that a producer has not finished, by partition. Nothing here waits or sends.

Contract: the producer appends records; the sender asks which partitions are ready, takes their first batches, and
reports the outcome of each to its queue. Time is an argument (monotonic ms).

A batch is ready when it is full, when linger.ms has passed, when the back-off of a retry has passed or a newer leader
is known (KIP-951), or when the producer is hurried; and when the order of its partition allows it
(``partition_queue``).

Source: ``org.apache.kafka.clients.producer.internals.RecordAccumulator``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum

from tidegauge.partition import TopicPartition
from tidegauge_client.partition_queue import Batch, Identity, PartitionQueue, Promise
from tidegauge_client.records import BatchBuilder, Headers

MAX_PRODUCER_EPOCH = 32767


class Room(Enum):
    """State of the open batch before and after a record was appended."""

    LEFT = "left"
    """The record was added to an open batch, which takes more."""
    NEW = "new"
    """The record opened a batch, whose linger.ms begins."""
    NONE = "none"
    """The record filled a batch, or found one that was full."""


# An enumeration's members are looked up several times for each record, and cost more than a name of the module.
_LEFT, _NEW, _NONE = Room.LEFT, Room.NEW, Room.NONE


class Accumulator:
    """All batches of a producer.

    Attributes:
        incomplete: batches whose records are neither acknowledged nor failed.
        producer: producer id and epoch for new batches; None without idempotence, or before an id was assigned.
    """

    def __init__(
        self,
        *,
        batch_size_bytes: int,
        linger_ms: float,
        compression: str,
        max_in_flight: int,
        idempotence: bool,
        is_transactional: bool = False,
    ) -> None:
        self._batch_size_bytes = batch_size_bytes
        self._linger_ms = linger_ms
        self._compression = compression
        self._max_in_flight = max_in_flight
        self._idempotence = idempotence
        self._is_transactional = is_transactional
        self._queues: dict[TopicPartition, PartitionQueue] = {}
        self._serial = 0
        self.incomplete: set[Batch] = set()
        self.producer: Identity | None = None

    def queue(self, topic_partition: TopicPartition) -> PartitionQueue:
        """Return the queue of a partition."""
        found = self._queues.get(topic_partition)
        if found is None:
            found = self._queues[topic_partition] = PartitionQueue(topic_partition)
        return found

    def queue_length(self, topic_partition: TopicPartition) -> int:
        """Return the number of batches that wait for a partition."""
        found = self._queues.get(topic_partition)
        return 0 if found is None else len(found.pending)

    def append(
        self,
        topic_partition: TopicPartition,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: Headers,
        promise: Promise,
        *,
        reserved_bytes: int,
        now_ms: float,
    ) -> Room:
        """Add a record to the partition's open batch, or to a new one."""
        queue = self._queues.get(topic_partition) or self.queue(topic_partition)
        pending = queue.pending
        batch = pending[-1] if pending else None
        builder = None if batch is None else batch.builder
        room = _LEFT
        if batch is None or builder is None or not builder.append(value, key, timestamp_ms, headers):
            room = _NEW
            if batch is not None and builder is not None:
                batch.close()
                room = _NONE
            builder = BatchBuilder(
                compression=self._compression,
                max_size_bytes=self._batch_size_bytes,
                is_transactional=self._is_transactional,
            )
            self._serial += 1
            batch = Batch(topic_partition, (self._serial,), now_ms, builder)
            fits = builder.append(value, key, timestamp_ms, headers)
            assert fits, "a batch takes its first record, however large"
            pending.append(batch)
            self.incomplete.add(batch)
        batch.promises.append(promise)
        batch.timestamps_ms.append(timestamp_ms)
        batch.reserved_bytes += reserved_bytes
        return _NONE if builder.size_bytes >= self._batch_size_bytes else room

    def ready(
        self, now_ms: float, *, is_hurried: bool, leader_epoch: Callable[[TopicPartition], int]
    ) -> tuple[list[TopicPartition], float]:
        """Return the partitions whose first batch may be sent, and the next time to look.

        Args:
            now_ms: the time.
            is_hurried: whether not to linger (flush, stop, or exhausted buffer memory).
            leader_epoch: returns the newest known leader epoch of a partition, -1 without a leader.
        """
        found = []
        look_again_ms = math.inf
        if self._idempotence and self.producer is None:
            return [], look_again_ms
        for topic_partition, queue in self._queues.items():
            if not queue.may_take(self.producer, self._max_in_flight):
                continue
            first = queue.pending[0]
            if first.attempts:
                is_new_leader = leader_epoch(topic_partition) > first.leader_epoch
                due_ms = now_ms if is_new_leader else first.retry_at_ms
            elif is_hurried or first.builder is None or self._is_full(first.builder):
                due_ms = now_ms
            else:
                due_ms = first.created_ms + self._linger_ms
            if due_ms <= now_ms:
                found.append(topic_partition)
            else:
                look_again_ms = min(look_again_ms, due_ms)
        return found, look_again_ms

    def patient_since_ms(self, topic_partition: TopicPartition) -> float:
        """Return when linger.ms ended for a ready batch; -inf if waiting gains nothing.

        Waiting gains nothing for a retry, for a batch with another one behind it, because a request holds one batch of
        a partition, and for a full batch with an earlier one in flight.
        """
        queue = self._queues[topic_partition]
        first = queue.pending[0]
        is_full = first.builder is None or self._is_full(first.builder)
        if first.attempts or len(queue.pending) > 1 or (is_full and queue.in_flight):
            return -math.inf
        return first.created_ms + self._linger_ms

    def _is_full(self, builder: BatchBuilder) -> bool:
        return builder.size_bytes >= self._batch_size_bytes

    def take(self, topic_partition: TopicPartition) -> Batch:
        """Take a ready partition's first batch, to be sent now."""
        return self.queue(topic_partition).take(self.producer)

    def expire(self, now_ms: float, delivery_timeout_ms: float) -> tuple[list[Batch], float]:
        """Expire the batches whose delivery timeout has passed.

        Returns:
            The expired batches, and when the next one expires.
        """
        late = sorted(
            (batch for batch in self.incomplete if now_ms - batch.created_ms >= delivery_timeout_ms),
            key=lambda batch: batch.place,
        )
        for batch in late:
            self.queue(batch.topic_partition).expire(batch)
            self.incomplete.discard(batch)
        oldest_ms = min((batch.created_ms for batch in self.incomplete), default=math.inf)
        return late, oldest_ms + delivery_timeout_ms

    def settle_epochs(self) -> list[Batch]:
        """Begin a new producer epoch where a partition needs one and has no batch in flight (rules 4 to 6).

        Without an epoch left, ``producer`` becomes None: a new producer id must be requested. Within a transaction only
        the coordinator raises the epoch, after an abort: all that waits for such a partition is returned.

        Returns:
            Batches that may be in the log and so can't continue under another sequence; the caller reports them.
        """
        uncertain: list[Batch] = []
        if self.producer is None:
            return uncertain
        for queue in self._queues.values():
            queue.resolve()
            if not queue.needs_new_epoch or queue.in_flight or self.producer is None:
                continue
            if self._is_transactional:
                uncertain += {*queue.tracked, *queue.pending}
                queue.tracked.clear()
                queue.pending.clear()
                continue
            if queue.identity == self.producer:
                producer_id, epoch = self.producer
                self.producer = None if epoch == MAX_PRODUCER_EPOCH else Identity(producer_id, epoch + 1)
            if self.producer is not None:
                uncertain += queue.begin_epoch(self.producer)
        self.incomplete.difference_update(uncertain)
        return uncertain

    def split(self, batch: Batch) -> None:
        """Split a batch that is too large for the broker in two (KIP-126)."""
        self.incomplete.discard(batch)
        self.incomplete.update(self.queue(batch.topic_partition).split(batch))

    def abandon(self) -> list[Batch]:
        """Drop everything, for a producer that stops or can't continue; return the dropped batches in order."""
        left = sorted(self.incomplete, key=lambda batch: batch.place)
        self.incomplete.clear()
        self._queues.clear()
        return left
