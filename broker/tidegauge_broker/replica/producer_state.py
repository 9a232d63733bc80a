"""Idempotent and transactional producers: which batch has been seen, which may come next, whose transaction is open.

Contract: the state belongs to the log, which calls ``update`` after every append (as leader, as follower, at
recovery alike); only a leader calls ``check``, before it appends. So every replica holds the same state as far
as it holds the same batches, and a new leader recognises the duplicates of the old one.

Rules (ProducerAppendInfo, ProducerStateEntry; KIP-98):
    1. A batch equal to one of the last five by (epoch, first and last sequence) is a duplicate: it succeeds with
       the original offset, and nothing is appended. There is no error 46.
    2. An epoch below the stored one: INVALID_PRODUCER_EPOCH.
    3. A higher epoch must begin at sequence 0, unless nothing is stored: OUT_OF_ORDER_SEQUENCE_NUMBER.
    4. The same epoch continues at the last sequence + 1; 2147483647 is followed by 0. A producer of which nothing
       is stored may begin anywhere; one with an epoch but no batch begins at 0. A duplicate older than the window
       is out of order.
    5. A transactional batch opens the producer's transaction, if none is open; while one is open, a batch outside of it
       is refused: INVALID_TXN_STATE.
    6. A marker of an epoch below the stored one: INVALID_PRODUCER_EPOCH; of transactions v2 also one of the same epoch,
       unless it repeats the marker that has ended the transaction, or the epoch is the highest (KAFKA-19999). Of a
       coordinator epoch below the stored one: TRANSACTION_COORDINATOR_FENCED. It ends the transaction that is open, and
       takes epoch and coordinator epoch along: with a higher epoch the batches are forgotten, else sequences run on
       across transactions. A marker that comes with version -1, which no transaction has, is refused first.
    7. A producer whose transaction is open does not expire. Others expire by the time of their last batch or marker,
       which is the time of its records and may be earlier than the one before (ProducerStateEntry.addBatch).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import NO_PRODUCER_ID, BatchHeader, increment_sequence
from tidegauge.transaction_marker import TransactionMarker
from tidegauge.transactions import NO_PRODUCER_EPOCH
from tidegauge_broker.replica.open_transactions import CompletedTransaction, OpenTransactions

WINDOW = 5
"""Batches kept for each producer; a client may have as many in flight."""
RAISES_EPOCH = 2
"""The transaction.version from which a marker's epoch is higher than its batches' (KIP-890, part 2)."""
UNKNOWN_VERSION = -1
"""The transaction.version of a marker that does not say any (TransactionVersion.TV_UNKNOWN)."""
_HIGHEST_EPOCH = 2**15 - 1


class BatchSpan(NamedTuple):
    """One appended batch: its sequences and offsets."""

    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def base_offset(self) -> int:
        """Offset of the first record."""
        return self.last_offset - self.offset_delta


@dataclass(slots=True)
class ProducerEntry:
    """The state of one producer; the newest batch is last.

    Attributes:
        coordinator_epoch: of the transaction coordinator that wrote the last marker; -1 without one.
        transaction_start: first offset of the open transaction; None if none is open.
    """

    producer_id: int
    producer_epoch: int
    batches: deque[BatchSpan] = field(default_factory=lambda: deque(maxlen=WINDOW))
    last_timestamp_ms: int = -1
    coordinator_epoch: int = -1
    transaction_start: int | None = None

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest record; -1 without a batch."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerCheck(NamedTuple):
    """Verdict on a batch: an error, a duplicate, or neither (append it)."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    duplicate: BatchSpan | None = None


_APPEND = ProducerCheck()


def _is_of_open_epoch(marker: TransactionMarker, entry: ProducerEntry | None) -> bool:
    """Return whether a marker of transactions v2 has the epoch of an open transaction, which none can have."""
    return (
        entry is not None
        and marker.transaction_version >= RAISES_EPOCH
        and marker.producer_epoch == entry.producer_epoch != _HIGHEST_EPOCH
        and entry.transaction_start is not None
    )


class ProducerState:
    """All producers of one partition.

    Attributes:
        transactions: which of them have an open transaction; after a replay of batches also the completed ones, of
            which only the core knows whether they are replicated.
    """

    __slots__ = ("_entries", "transactions")

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}
        self.transactions = OpenTransactions()

    @classmethod
    def from_entries(cls, entries: Iterable[ProducerEntry]) -> ProducerState:
        """Return the state that a snapshot file holds."""
        state = cls()
        for entry in entries:
            state._entries[entry.producer_id] = entry
        started = ((e.transaction_start, e.producer_id) for e in state._entries.values())
        for start, producer_id in sorted((start, who) for start, who in started if start is not None):
            state.transactions.open(producer_id, start)
        return state

    def entries(self) -> list[ProducerEntry]:
        """All producers, by id, for a snapshot file."""
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    def check(
        self,
        header: BatchHeader,
        *,
        is_unverified: bool = False,
        lowest_sequence: int | None = None,
        has_sequence: bool = True,
        begins_at_zero: bool = False,
    ) -> ProducerCheck:
        """Judge a producer's batch before it is appended, in Kafka's order. Changes nothing.

        Args:
            header: of the batch.
            is_unverified: it may not open a transaction, and would (KIP-890): INVALID_TXN_STATE.
            lowest_sequence: where the batch may begin at most (``Verifications``, rule 3); None: anywhere.
            has_sequence: False for a batch of a coordinator: neither duplicates nor sequences are looked at.
            begins_at_zero: whether a producer of which no batch is kept must begin at 0 (transactions v2).
        """
        if header.producer_id == NO_PRODUCER_ID:
            return _APPEND
        entry = self._entries.get(header.producer_id)
        if has_sequence and entry is not None and header.producer_epoch == entry.producer_epoch:
            last_sequence = header.last_sequence
            for span in entry.batches:
                if span.first_sequence == header.base_sequence and span.last_sequence == last_sequence:
                    return ProducerCheck(duplicate=span)
        if is_unverified:
            return ProducerCheck(ErrorCode.INVALID_TXN_STATE, "Record was not part of an ongoing transaction")
        if entry is not None and header.producer_epoch < entry.producer_epoch:
            return ProducerCheck(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} is {header.producer_epoch}, which is smaller than the last "
                f"seen epoch {entry.producer_epoch}",
            )
        if has_sequence:
            refused = self._check_sequence(header, entry, lowest_sequence, begins_at_zero=begins_at_zero)
            if refused is not None:
                return refused
        if entry is not None and entry.transaction_start is not None and not header.is_transactional:
            return ProducerCheck(
                ErrorCode.INVALID_TXN_STATE,
                f"Expected transactional write from producer {header.producer_id} at offset {header.base_offset}: "
                f"its transaction has been open since offset {entry.transaction_start}",
            )
        return _APPEND

    @staticmethod
    def _check_sequence(
        header: BatchHeader, entry: ProducerEntry | None, lowest_sequence: int | None, *, begins_at_zero: bool
    ) -> ProducerCheck | None:
        """Return why a batch is out of sequence; None: it is in sequence."""
        if begins_at_zero and header.base_sequence != 0 and (entry is None or not entry.batches):
            known = "0 expected of a producer of transactions v2 with no existing state"
        elif lowest_sequence is not None and header.base_sequence > lowest_sequence:
            known = f"{lowest_sequence} (earliest seen sequence)"
        elif entry is None:
            return None
        else:
            newer_epoch = header.producer_epoch > entry.producer_epoch
            if header.base_sequence == (0 if newer_epoch else increment_sequence(entry.last_sequence, 1)):
                return None
            known = f"{entry.last_sequence} (current end sequence number)"
        return ProducerCheck(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence} (incoming seq. "
            f"number), {known}",
        )

    def has_open(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a transaction of this very epoch of a producer is open."""
        entry = self._entries.get(producer_id)
        return entry is not None and entry.transaction_start is not None and entry.producer_epoch == producer_epoch

    def is_stale(self, producer_id: int, producer_epoch: int) -> bool:
        """Return whether a higher epoch of a producer is known."""
        entry = self._entries.get(producer_id)
        return entry is not None and producer_epoch < entry.producer_epoch

    def check_marker(self, marker: TransactionMarker) -> ProducerCheck:
        """Judge a marker before it is appended: rule 6. Changes nothing."""
        if marker.transaction_version == UNKNOWN_VERSION:
            return ProducerCheck(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"The marker of producer {marker.producer_id} does not say the version of its transaction",
            )
        entry = self._entries.get(marker.producer_id)
        last_epoch = NO_PRODUCER_EPOCH if entry is None else entry.producer_epoch
        if marker.producer_epoch < last_epoch or _is_of_open_epoch(marker, entry):
            compared = "<=" if marker.transaction_version >= RAISES_EPOCH else "<"
            return ProducerCheck(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {marker.producer_id} is {marker.producer_epoch}, which is {compared} the last "
                f"seen epoch {last_epoch} (TV{marker.transaction_version})",
            )
        if entry is not None and marker.coordinator_epoch < entry.coordinator_epoch:
            return ProducerCheck(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"Invalid coordinator epoch for producer {marker.producer_id}: {marker.coordinator_epoch} (zombie), "
                f"{entry.coordinator_epoch} (current)",
            )
        return _APPEND

    def update_marker(self, header: BatchHeader, marker: TransactionMarker) -> CompletedTransaction | None:
        """Note an appended marker, on any replica: nothing is refused here.

        Args:
            header: the control batch's.
            marker: its content.

        Returns:
            The transaction that it completes; None if none was open.
        """
        entry = self._entries.get(marker.producer_id)
        if entry is None:
            entry = self._entries[marker.producer_id] = ProducerEntry(marker.producer_id, marker.producer_epoch)
        elif entry.producer_epoch != marker.producer_epoch:
            entry.producer_epoch = marker.producer_epoch
            entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = header.max_timestamp_ms
        entry.transaction_start = None
        return self.transactions.complete(marker.producer_id, header.last_offset)

    def update(self, header: BatchHeader) -> None:
        """Note an appended batch of records; ``update_marker`` notes markers."""
        if header.producer_id == NO_PRODUCER_ID or header.is_control:
            return
        entry = self._entries.get(header.producer_id)
        if entry is None:
            entry = self._entries[header.producer_id] = ProducerEntry(header.producer_id, header.producer_epoch)
        elif entry.producer_epoch != header.producer_epoch:
            entry.producer_epoch = header.producer_epoch
            entry.batches.clear()
        entry.batches.append(
            BatchSpan(
                header.base_sequence,
                header.last_sequence,
                header.last_offset,
                header.last_offset_delta,
                header.max_timestamp_ms,
            )
        )
        entry.last_timestamp_ms = header.max_timestamp_ms
        if header.is_transactional and entry.transaction_start is None:
            entry.transaction_start = header.base_offset
            self.transactions.open(header.producer_id, header.base_offset)

    def clear(self) -> None:
        """Forget all producers."""
        self._entries.clear()
        self.transactions = OpenTransactions()

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers idle for ``expiration_ms`` or longer (producer.id.expiration.ms); rule 7."""
        idle = [
            entry.producer_id
            for entry in self._entries.values()
            if now_ms - entry.last_timestamp_ms >= expiration_ms and entry.transaction_start is None
        ]
        for producer_id in idle:
            del self._entries[producer_id]
