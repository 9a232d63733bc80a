"""Idempotent producers: which batch has been seen, which may come next.

Contract: the state belongs to the log, which calls ``update`` after every append (as leader, as follower, at
recovery alike); only a leader calls ``check``, before it appends. So every replica holds the same state as far
as it holds the same batches, and a new leader recognises the duplicates of the old one.

Rules (ProducerAppendInfo, ProducerStateEntry; KIP-98):
    1. A batch equal to one of the last five by (epoch, first and last sequence) is a duplicate: it succeeds with
       the original offset, and nothing is appended. There is no error 46.
    2. An epoch below the stored one: INVALID_PRODUCER_EPOCH.
    3. A higher epoch must begin at sequence 0, unless nothing is stored: OUT_OF_ORDER_SEQUENCE_NUMBER.
    4. The same epoch goes on at the last sequence + 1; 2147483647 is followed by 0. A producer of which nothing
       is stored may begin anywhere; one with an epoch but no batch begins at 0. A duplicate older than the window
       is out of order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import NO_PRODUCER_ID, BatchHeader, increment_sequence

WINDOW = 5
"""Batches kept for each producer; a client may have as many in flight."""


class BatchSpan(NamedTuple):
    """One appended batch: its sequences, and where it lies."""

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
    """What is known of one producer; the newest batch is last."""

    producer_id: int
    producer_epoch: int
    batches: deque[BatchSpan] = field(default_factory=lambda: deque(maxlen=WINDOW))
    last_timestamp_ms: int = -1

    @property
    def last_sequence(self) -> int:
        """Sequence of the newest record; -1 where no batch is kept."""
        return self.batches[-1].last_sequence if self.batches else -1


class ProducerCheck(NamedTuple):
    """Verdict on a batch: an error, a duplicate, or neither (append it)."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    duplicate: BatchSpan | None = None


_APPEND = ProducerCheck()


class ProducerState:
    """All producers of one partition."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int, ProducerEntry] = {}

    @classmethod
    def from_entries(cls, entries: Iterable[ProducerEntry]) -> ProducerState:
        """Return the state that a snapshot file holds."""
        state = cls()
        for entry in entries:
            state._entries[entry.producer_id] = entry
        return state

    def entries(self) -> list[ProducerEntry]:
        """All producers, by id, for a snapshot file."""
        return [self._entries[producer_id] for producer_id in sorted(self._entries)]

    def check(self, header: BatchHeader) -> ProducerCheck:
        """Judge a producer's batch before it is appended. Changes nothing."""
        if header.producer_id == NO_PRODUCER_ID:
            return _APPEND
        entry = self._entries.get(header.producer_id)
        if entry is None:
            return _APPEND
        if header.producer_epoch == entry.producer_epoch:
            last_sequence = header.last_sequence
            for span in entry.batches:
                if span.first_sequence == header.base_sequence and span.last_sequence == last_sequence:
                    return ProducerCheck(duplicate=span)
        if header.producer_epoch < entry.producer_epoch:
            return ProducerCheck(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"Epoch of producer {header.producer_id} is {header.producer_epoch}, which is smaller than the last "
                f"seen epoch {entry.producer_epoch}",
            )
        return self._check_sequence(header, entry)

    @staticmethod
    def _check_sequence(header: BatchHeader, entry: ProducerEntry) -> ProducerCheck:
        newer_epoch = header.producer_epoch > entry.producer_epoch
        expected = 0 if newer_epoch else increment_sequence(entry.last_sequence, 1)
        if header.base_sequence == expected:
            return _APPEND
        return ProducerCheck(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Out of order sequence number for producer {header.producer_id}: {header.base_sequence} (incoming seq. "
            f"number), {entry.last_sequence} (current end sequence number)",
        )

    def update(self, header: BatchHeader) -> None:
        """Note an appended batch. Control batches carry no sequence and are not noted."""
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
        entry.last_timestamp_ms = max(entry.last_timestamp_ms, header.max_timestamp_ms)

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget producers idle for ``expiration_ms`` or longer (producer.id.expiration.ms)."""
        idle = [e.producer_id for e in self._entries.values() if now_ms - e.last_timestamp_ms >= expiration_ms]
        for producer_id in idle:
            del self._entries[producer_id]
