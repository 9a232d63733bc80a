"""One transactional id: its state, and its changes, which are prepared, written, and then completed.

Contract: a change is prepared (``prepare_...``), which sets ``pending_state`` and changes nothing else; its record is
appended; when that is committed ``complete`` applies it. ``pending_state`` is the lock of the protocol: while it is set
nothing else is prepared.
Source: TransactionMetadata and TxnTransitMetadata of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP_MS, TransactionState
from tidegauge_broker.coordinator.transaction.states import (
    ALLOWED,
    COMPLETED,
    DEAD,
    DECIDED,
    EMPTY,
    ONGOING,
    PREPARE_EPOCH_FENCE,
    PREPARED,
)

MAX_EPOCH = 2**15 - 1
"""The highest epoch, to which only fencing raises."""
EXHAUSTED_EPOCH = MAX_EPOCH - 1
"""From this epoch on a producer gets a new producer id instead of a higher epoch (isEpochExhausted)."""


V2 = 2
"""``client_version`` of a producer that speaks transactions v2."""


class Change(NamedTuple):
    """A change of a transactional id, applied when its record is committed.

    Attributes:
        last_producer_id: the producer id before; with ``last_producer_epoch`` for retries of InitProducerId (KIP-360).
        next_producer_id: of a decision that has exhausted the epochs: the producer's next id.
        client_version: 2: the producer speaks transactions v2 (KIP-890, part 2); else 0.
    """

    state: TransactionState
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    last_producer_epoch: int
    timeout_ms: int
    partitions: tuple[TopicPartition, ...]
    start_ms: int
    update_ms: int
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0


class Transaction:
    """The state of one transactional id; times are ms.

    Attributes:
        partitions: in the transaction, in the order in which they were added; of a decided one those without marker.
        start_ms: when the first partition was added; -1 before any transaction, kept after its end.
        has_failed_epoch_fence: the epoch was raised to abort a transaction, but the record could not be written: the
            next attempt uses the same epoch (KAFKA-9666).
    """

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int, update_ms: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.last_producer_id = NO_PRODUCER_ID
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.timeout_ms = timeout_ms
        self.state = EMPTY
        self.pending_state: TransactionState | None = None
        self.partitions: dict[TopicPartition, None] = {}
        self.start_ms = NO_TIMESTAMP_MS
        self.update_ms = update_ms
        self.has_failed_epoch_fence = False
        self.next_producer_id = NO_PRODUCER_ID
        self.client_version = 0

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the producer can't get a higher epoch."""
        return self.producer_epoch >= EXHAUSTED_EPOCH

    def has_timed_out(self, now_ms: int) -> bool:
        """Whether a transaction is open for longer than its timeout, and nothing is pending."""
        return self.pending_state is None and self.state is ONGOING and self.start_ms + self.timeout_ms < now_ms

    # Changes

    def as_loaded(self) -> Change:
        """Return the loaded record as a change, which changes nothing when written."""
        return Change(
            self.state,
            self.producer_id,
            self.producer_epoch,
            self.last_producer_id,
            self.last_producer_epoch,
            self.timeout_ms,
            tuple(self.partitions),
            self.start_ms,
            self.update_ms,
            self.next_producer_id,
            self.client_version,
        )

    def prepare_epoch_fence(self) -> Change:
        """Prepare an Ongoing transaction's abort with an epoch that the producer does not have."""
        epoch = self.producer_epoch if self.has_failed_epoch_fence else self.producer_epoch + 1
        assert epoch <= MAX_EPOCH, f"The epoch of {self.transactional_id} can't be raised: InitProducerId stops before"
        return self._prepare(
            PREPARE_EPOCH_FENCE,
            self.update_ms,
            producer_epoch=epoch,
            last_producer_epoch=NO_PRODUCER_EPOCH,
            partitions=self.partitions,
            start_ms=self.start_ms,
        )

    def fence(self, epoch: int) -> None:
        """Make way for PrepareAbort, in memory: the epoch counts from now on, even if the record is not written."""
        assert self.pending_state is PREPARE_EPOCH_FENCE, self.pending_state
        assert self.producer_epoch <= epoch <= MAX_EPOCH, f"epoch {epoch} after {self.producer_epoch}"
        self.pending_state = None
        self.producer_epoch = epoch
        self.last_producer_epoch = NO_PRODUCER_EPOCH

    def prepare_next_epoch(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> Change | ErrorCode:
        """Prepare an InitProducerId that keeps the producer id.

        Args:
            timeout_ms: of the producer's transactions from now on.
            expected_epoch: which the producer says it has; None: it says nothing.
            now_ms: the time.

        Returns:
            The change. It repeats the last one if the producer expects the epoch before, whose successor it never got.
            PRODUCER_FENCED if it expects another epoch. UNKNOWN_SERVER_ERROR if there is no higher one, which Kafka
            throws as IllegalStateException.
        """
        if self.is_epoch_exhausted:
            return ErrorCode.UNKNOWN_SERVER_ERROR
        if expected_epoch is None:
            epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        elif self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
            epoch, last_epoch = self.producer_epoch + 1, self.producer_epoch
        elif expected_epoch == self.last_producer_epoch:
            epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        else:
            return ErrorCode.PRODUCER_FENCED
        assert self.producer_epoch <= epoch <= EXHAUSTED_EPOCH, f"epoch {epoch} after {self.producer_epoch}"
        return self._prepare(EMPTY, now_ms, producer_epoch=epoch, last_producer_epoch=last_epoch, timeout_ms=timeout_ms)

    def prepare_next_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keeps_last_epoch: bool
    ) -> Change:
        """Prepare an InitProducerId of a producer whose epoch is exhausted.

        Args:
            producer_id: the new one.
            timeout_ms: of the producer's transactions from now on.
            now_ms: the time.
            keeps_last_epoch: whether a retry that expects the present epoch is recognised.
        """
        last_epoch = self.producer_epoch if keeps_last_epoch else NO_PRODUCER_EPOCH
        return self._prepare(
            EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
        )

    def prepare_partitions(self, added: Iterable[TopicPartition], now_ms: int, client_version: int = 0) -> Change:
        """Prepare that partitions are added, to the open transaction or to a new one."""
        start_ms = self.start_ms if self.state is ONGOING else now_ms
        return self._prepare(
            ONGOING,
            now_ms,
            partitions=self.partitions | dict.fromkeys(added),
            start_ms=start_ms,
            client_version=client_version,
        )

    def prepare_end(self, outcome: Outcome, now_ms: int) -> Change:
        """Prepare the decision about an Ongoing transaction."""
        return self._prepare(PREPARED[outcome], now_ms, partitions=self.partitions, start_ms=self.start_ms)

    def prepare_raising_end(self, outcome: Outcome, now_ms: int, next_producer_id: int = NO_PRODUCER_ID) -> Change:
        """Prepare a decision that raises the epoch; without an open transaction it aborts nothing (KIP-890, part 2).

        Args:
            outcome: the decision.
            now_ms: the time.
            next_producer_id: the next id of a producer whose epochs are exhausted.
        """
        assert self.is_epoch_exhausted == (next_producer_id != NO_PRODUCER_ID), "an exhausted epoch needs another id"
        is_open = self.state is ONGOING
        return self._prepare(
            PREPARED[outcome],
            now_ms,
            producer_epoch=min(self.producer_epoch + 1, MAX_EPOCH),
            last_producer_epoch=self.producer_epoch,
            partitions=self.partitions if is_open else (),
            start_ms=self.start_ms if is_open else now_ms,
            next_producer_id=next_producer_id,
            client_version=V2,
        )

    def prepare_completion(self, now_ms: int) -> Change:
        """Prepare what follows when all markers are written. Its record bears the time of this preparation."""
        self.has_failed_epoch_fence = False
        if self.next_producer_id == NO_PRODUCER_ID:
            return self._prepare(COMPLETED[self.state], now_ms, start_ms=self.start_ms)
        return self._prepare(
            COMPLETED[self.state],
            now_ms,
            producer_id=self.next_producer_id,
            producer_epoch=0,
            start_ms=self.start_ms,
            next_producer_id=NO_PRODUCER_ID,
        )

    def prepare_expiration(self) -> None:
        """Prepare the id's removal; see ``states``."""
        self._prepare(DEAD, self.update_ms)

    def _prepare(
        self,
        state: TransactionState,
        update_ms: int,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        last_producer_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: Iterable[TopicPartition] = (),
        start_ms: int = NO_TIMESTAMP_MS,
        next_producer_id: int | None = None,
        client_version: int | None = None,
    ) -> Change:
        """Set the pending state; fields that are not given stay."""
        assert self.pending_state is None, f"{self.transactional_id} is already about to be {self.pending_state}"
        assert (self.state, state) in ALLOWED, f"A transaction may not change from {self.state} to {state}"
        self.pending_state = state
        return Change(
            state,
            self.producer_id if producer_id is None else producer_id,
            self.producer_epoch if producer_epoch is None else producer_epoch,
            self.producer_id,
            self.last_producer_epoch if last_producer_epoch is None else last_producer_epoch,
            self.timeout_ms if timeout_ms is None else timeout_ms,
            tuple(partitions),
            start_ms,
            update_ms,
            self.next_producer_id if next_producer_id is None else next_producer_id,
            self.client_version if client_version is None else client_version,
        )

    def complete(self, change: Change, *, is_kafka_4: bool = False) -> None:
        """Apply a change whose record is committed (completeTransitionTo).

        Args:
            change: the prepared change.
            is_kafka_4: whether a new producer has no start time of its first transaction; before Kafka 4 the last
            producer's stays.
        """
        assert self.pending_state is change.state, f"{self.pending_state} is pending, not {change.state}"
        assert (self.state, change.state) in ALLOWED, (
            f"A transaction may not change from {self.state} to {change.state}"
        )
        if change.state is EMPTY:
            self.timeout_ms = change.timeout_ms
            if is_kafka_4:
                self.start_ms = change.start_ms
        else:
            is_same = (change.producer_id, change.producer_epoch) == (self.producer_id, self.producer_epoch)
            assert is_same or change.client_version == V2, "only an end of transactions v2 raises the epoch"
            self.start_ms = change.start_ms
            self.partitions = dict.fromkeys(change.partitions)
        if change.state is EMPTY or change.client_version == V2:
            self.producer_id, self.producer_epoch = change.producer_id, change.producer_epoch
            self.last_producer_id, self.last_producer_epoch = change.last_producer_id, change.last_producer_epoch
        self.next_producer_id, self.client_version = change.next_producer_id, change.client_version
        self.update_ms = change.update_ms
        self.pending_state = None
        self.state = change.state

    def remove_partition(self, topic_partition: TopicPartition) -> None:
        """Take out a partition that has its marker, or that was deleted."""
        assert self.state in DECIDED, f"{self.transactional_id} is {self.state}: no marker can have been written"
        self.partitions.pop(topic_partition, None)
