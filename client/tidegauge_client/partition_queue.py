"""Batches of one partition: their order, and the sequence numbers of an idempotent producer.

Nothing here waits or sends; time is an argument (monotonic ms).

Rules (KafkaProducer: RecordAccumulator, TransactionManager, ProducerBatch):
    1. A batch gets its bytes and its sequence when it is first taken, and keeps both over retries; the sequence of the
       next batch is higher by its number of records, and 2147483647 is followed by 0.
    2. At most ``max_in_flight`` batches of a partition are in flight, and no batch gets a sequence that is five batches
       or more ahead of one that is not acknowledged: a leader remembers five batches of a producer, and would take the
       repetition of an older one for a gap. (Kafka's responses come in order, which gives the same.)
    3. A batch to be retried goes back to its place in the order of sequences, and is sent again only when no earlier
       one is in flight: after a failure there is one batch in flight until the gap is closed.
    4. OUT_OF_ORDER_SEQUENCE_NUMBER for a batch behind one that is still to be retried: the failure of that one caused
       it, and both are sent again, in order. For the oldest batch: the leader lost what it had acknowledged, or an
       earlier batch left a gap when it failed; the partition goes on under a new producer epoch from sequence 0.
    5. A batch that failed, by an error that is not retried or by its delivery timeout, may or may not be in the log: no
       new batch is taken until the responses to later ones tell, or a new epoch begins.
    6. No batch is ever in the log under two sequences. A new epoch begins only when no batch of the partition is in
       flight, and it numbers only batches of which every request was rejected with a definite error. A batch that may
       be in the log keeps its sequence: it is sent again under this one until a response tells, or reported as of
       unknown outcome. KafkaProducer renumbers such a batch too (TransactionManager.bumpIdempotentProducerEpoch and
       TxnPartitionEntry.startSequencesAtBeginning), and can write it twice; see docs/fidelity.md.
    7. Other partitions change to the new epoch when they have no batch of the old one left.
    8. Until the first batch under an identity is acknowledged it is alone in flight: a leader without state of a
       producer accepts any first sequence (ProducerAppendInfo.checkSequence). If it rejected the first batch for the
       moment and accepted the second, the first could never be written any more. KafkaProducer leaves that gap open.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import COMPRESSION_NAMES, MAX_SEQUENCE, increment_sequence, read_header
from tidegauge_client.records import BatchBuilder, NewRecord, decode_batches, encode_batch, restamp

NO_SEQUENCE = -1
REMEMBERED_BATCHES = 5
"""Batches of a producer that a leader remembers (ProducerStateEntry.NUM_BATCHES_TO_RETAIN)."""


class RecordMetadata(NamedTuple):
    """Position of an acknowledged record; with acks=0 it is not known, and the offset is -1."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class OutcomeUnknown(TidegaugeError):
    """A failure that says nothing about an earlier attempt, whose outcome is unknown."""

    @property
    def definite(self) -> bool:
        """Return False: the record may be in the log."""
        return False


class Promise(Protocol):
    """The methods of ``asyncio.Future`` that complete it."""

    def done(self) -> bool:
        """Return whether the future is complete or cancelled."""
        ...

    def set_result(self, result: RecordMetadata, /) -> None:
        """Acknowledge the record."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Report the record as failed."""


class Identity(NamedTuple):
    """Producer id and epoch of an idempotent producer."""

    producer_id: int
    producer_epoch: int


class Batch:
    """Records of one partition that are sent together.

    Attributes:
        place: its place in the partition's order; a half of a split batch has a longer one.
        created_ms: when its first record was appended; the delivery timeout counts from here.
        promises: the future of each record.
        timestamps_ms: the timestamp of each record.
        reserved_bytes: buffer memory that it occupies.
        data: its bytes once it was taken; None while records may be added.
        identity, base_sequence: once it was taken, with idempotence.
        ordinal: how many batches of its partition got a sequence before it.
        attempts: how often it was sent.
        retry_at_ms: end of the back-off.
        leader_epoch: epoch of the leader to which it was last sent; a newer leader ends the back-off (KIP-951).
        is_expired: whether its futures have failed by the delivery timeout, though a response may still arrive.
        may_be_written: whether an attempt ended without a definite response, so that the leader may have it.
        failure: why its records have failed; None: they have not. Their futures need not know, if they were cancelled.
    """

    __slots__ = (
        "attempts", "base_sequence", "builder", "created_ms", "data", "failure", "identity", "is_expired",
        "last_problem", "leader_epoch", "may_be_written", "ordinal", "place", "promises", "reserved_bytes",
        "retry_at_ms", "timestamps_ms", "topic_partition",
    )  # fmt: skip

    def __init__(
        self,
        topic_partition: TopicPartition,
        place: tuple[int, ...],
        created_ms: float,
        builder: BatchBuilder | None,
    ) -> None:
        self.topic_partition = topic_partition
        self.place = place
        self.created_ms = created_ms
        self.builder = builder
        self.promises: list[Promise] = []
        self.timestamps_ms: list[int] = []
        self.reserved_bytes = 0
        self.data: bytes | None = None
        self.identity: Identity | None = None
        self.base_sequence = NO_SEQUENCE
        self.ordinal = 0
        self.attempts = 0
        self.retry_at_ms = 0.0
        self.leader_epoch = -1
        self.is_expired = False
        self.may_be_written = False
        self.failure: TidegaugeError | None = None
        self.last_problem: BaseException | None = None

    @property
    def record_count(self) -> int:
        """Return the number of records in it."""
        return len(self.promises)

    @property
    def last_sequence(self) -> int:
        """Return the sequence of its last record."""
        return increment_sequence(self.base_sequence, self.record_count - 1)

    def close(self) -> bytes:
        """Close the batch and return its bytes; no record can be added any more."""
        if self.data is None:
            assert self.builder is not None, "a batch without a builder has its bytes"
            self.data = self.builder.build()
            self.builder = None
        return self.data

    def stamp(self, identity: Identity, base_sequence: int) -> None:
        """Give it a producer id, epoch and sequence (rule 1; again only under rule 6)."""
        self.identity = identity
        self.base_sequence = base_sequence
        self.data = restamp(
            self.close(),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            base_sequence=base_sequence,
        )


class PartitionQueue:
    """The batches of one partition.

    Attributes:
        pending: not in flight, in the order in which they are sent; only the last may be open.
        in_flight: sent, without a response.
        tracked: those with a sequence that are neither acknowledged nor failed, by sequence.
        next_sequence: for the next batch taken.
        next_ordinal: how many batches got a sequence.
        last_acked_sequence: -1 before the first in this epoch.
        unresolved: whether a batch failed whose outcome is not known (rule 5).
        needs_new_epoch: whether it must go on under a new epoch (rules 4 and 6).
    """

    __slots__ = (
        "identity", "in_flight", "last_acked_sequence", "needs_new_epoch", "next_ordinal", "next_sequence", "pending",
        "topic_partition", "tracked", "unresolved",
    )  # fmt: skip

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.pending: deque[Batch] = deque()
        self.in_flight: list[Batch] = []
        self.tracked: list[Batch] = []
        self.identity: Identity | None = None
        self.next_sequence = 0
        self.next_ordinal = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.unresolved = False
        self.needs_new_epoch = False

    def may_take(self, producer: Identity | None, max_in_flight: int) -> bool:
        """Return whether the first pending batch may be sent (rules 2 to 8)."""
        if not self.pending or len(self.in_flight) >= max_in_flight:
            return False
        if producer is None:
            return True
        if self.needs_new_epoch or (self.in_flight and self.last_acked_sequence == NO_SEQUENCE):
            return False
        first = self.pending[0]
        if first.base_sequence != NO_SEQUENCE:
            return self.tracked[0] is first
        if self.tracked and self.next_ordinal - self.tracked[0].ordinal >= REMEMBERED_BATCHES:
            return False
        return not self.unresolved and (self.identity == producer or not (self.tracked or self.in_flight))

    def take(self, producer: Identity | None) -> Batch:
        """Take the first pending batch, to be sent now; ``may_take`` has allowed it."""
        batch = self.pending.popleft()
        if producer is None:
            batch.close()
        elif batch.base_sequence == NO_SEQUENCE:
            if self.identity != producer:
                self._begin(producer)
            batch.stamp(producer, self.next_sequence)
            self.next_sequence = increment_sequence(self.next_sequence, batch.record_count)
            batch.ordinal = self.next_ordinal
            self.next_ordinal += 1
            self.tracked.append(batch)
        self.in_flight.append(batch)
        batch.attempts += 1
        return batch

    def _begin(self, identity: Identity) -> None:
        self.identity = identity
        self.next_sequence = 0
        self.last_acked_sequence = NO_SEQUENCE
        self.unresolved = False
        self.needs_new_epoch = False

    def begin_epoch(self, identity: Identity) -> list[Batch]:
        """Begin to number the batches to be retried from sequence 0; return those that must not be renumbered (rule 6).

        Returns:
            Batches that may be in the log under their old sequences. They are no longer in the queue; the caller
            reports them.
        """
        assert not self.in_flight, "a batch in flight must keep its sequence"
        self._begin(identity)
        uncertain = [batch for batch in self.tracked if batch.may_be_written]
        for batch in uncertain:
            self.tracked.remove(batch)
            self.pending.remove(batch)
        for batch in self.tracked:
            batch.stamp(identity, self.next_sequence)
            self.next_sequence = increment_sequence(self.next_sequence, batch.record_count)
        return uncertain

    def acknowledged(self, batch: Batch) -> None:
        """Note that the leader has acknowledged the batch."""
        self.in_flight.remove(batch)
        if batch.identity is None:
            return
        if batch in self.tracked:
            self.tracked.remove(batch)
        if self.last_acked_sequence == NO_SEQUENCE or _is_after(batch.last_sequence, self.last_acked_sequence):
            self.last_acked_sequence = batch.last_sequence

    def requeue(self, batch: Batch) -> None:
        """Put a batch back into its place among the pending ones (rule 3)."""
        self.in_flight.remove(batch)
        self._put_back(batch)

    def _put_back(self, batch: Batch) -> None:
        position = 0
        while position < len(self.pending) and self.pending[position].place < batch.place:
            position += 1
        self.pending.insert(position, batch)

    def out_of_order(self, batch: Batch) -> None:
        """Handle a batch for which the leader expected another sequence (rule 4)."""
        if self.tracked[0] is batch:
            self.needs_new_epoch = True
        self.requeue(batch)

    def failed(self, batch: Batch) -> None:
        """Remove a batch that is not sent again, after an error that is final or came too late (rule 5)."""
        self.in_flight.remove(batch)
        if batch in self.tracked:
            self.tracked.remove(batch)
            self.unresolved = True

    def expire(self, batch: Batch) -> None:
        """Expire a batch after its delivery timeout (rule 5); a batch in flight waits for its response all the same."""
        if batch in self.in_flight:
            batch.is_expired = True
        else:
            self.pending.remove(batch)
        if batch in self.tracked:
            self.tracked.remove(batch)
            self.unresolved = True

    def resolve(self) -> None:
        """Find out whether the batches that failed are in the log, once nothing is left to tell (rule 5)."""
        if not self.unresolved or self.tracked or self.in_flight:
            return
        self.unresolved = False
        expected = 0 if self.last_acked_sequence == NO_SEQUENCE else increment_sequence(self.last_acked_sequence, 1)
        if expected != self.next_sequence:
            self.needs_new_epoch = True

    def dropped(self, batch: Batch) -> None:
        """Note the end of an expired batch whose response tells nothing, or never comes."""
        self.in_flight.remove(batch)

    def split(self, batch: Batch) -> list[Batch]:
        """Split a batch that is too large for the broker in two, with the same sequences (KIP-126)."""
        assert batch.data is not None, "it was sent"
        self.in_flight.remove(batch)
        records = [NewRecord(r.value, r.key, r.timestamp_ms, r.headers) for r in decode_batches(batch.data)]
        header = read_header(batch.data)
        compression = COMPRESSION_NAMES[header.compression]
        middle = len(records) // 2
        halves: list[Batch] = []
        for begin, end in ((0, middle), (middle, len(records))):
            half = Batch(batch.topic_partition, (*batch.place, len(halves)), batch.created_ms, None)
            half.promises = batch.promises[begin:end]
            half.timestamps_ms = batch.timestamps_ms[begin:end]
            half.reserved_bytes = (batch.reserved_bytes + len(halves)) // 2
            half.data = encode_batch(
                records[begin:end], compression=compression, is_transactional=header.is_transactional
            )
            half.attempts = batch.attempts
            half.may_be_written = batch.may_be_written
            half.ordinal = batch.ordinal
            if batch.identity is not None:
                half.stamp(batch.identity, increment_sequence(batch.base_sequence, begin))
            halves.append(half)
        if batch in self.tracked:
            place = self.tracked.index(batch)
            self.tracked[place : place + 1] = halves
        for half in halves:
            self._put_back(half)
        return halves


def _is_after(sequence: int, other: int) -> bool:
    """Return whether one sequence comes after another; sequences wrap around."""
    return 0 < (sequence - other) % (MAX_SEQUENCE + 1) <= MAX_SEQUENCE // 2
