"""Partitions of data, as a transaction sees them: a model of what their leaders check, without replication.

A partition has one log that is never lost; what its real leader does under failovers is the replication core's affair
and simulated there. The checks follow ProducerAppendInfo and VerificationStateEntry: the epoch, the coordinator's
epoch, and the guard of the verification (KIP-890).
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome, TransactionMarker

V2 = 2


class Datum(NamedTuple):
    """One record of a transaction."""

    producer_id: int
    producer_epoch: int
    value: str


class DataPartition:
    """One partition.

    Attributes:
        log: records and markers.
        open: the epoch of the open transaction of a producer id, and its first offset.
    """

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.log: list[Datum | TransactionMarker] = []
        self.open: dict[int, tuple[int, int]] = {}
        self._epochs: dict[int, int] = {}
        self._coordinator_epochs: dict[int, int] = {}
        self._guards: dict[int, object] = {}

    def guard(self, producer_id: int) -> object | None:
        """Return a verification's guard; None if the producer has an open transaction."""
        return None if producer_id in self.open else self._guards.setdefault(producer_id, object())

    def guard_of_epoch(self, producer_id: int, epoch: int) -> object | None:
        """Return the guard of an addition (v2); None if this transaction is open."""
        is_open = producer_id in self.open and self.open[producer_id][0] == epoch
        return None if is_open else self._guards.setdefault(producer_id, object())

    def append(self, datum: Datum, guard: object | None) -> ErrorCode:
        """Append a record; one that is there already is acknowledged again."""
        if datum in self.log and datum.producer_id in self.open:
            return ErrorCode.NONE
        if datum.producer_id not in self.open and (guard is None or self._guards.get(datum.producer_id) is not guard):
            return ErrorCode.INVALID_TXN_STATE
        if datum.producer_epoch < self._epochs.get(datum.producer_id, -1):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        self._epochs[datum.producer_id] = datum.producer_epoch
        self._guards.pop(datum.producer_id, None)
        self.open.setdefault(datum.producer_id, (datum.producer_epoch, len(self.log)))
        self.log.append(datum)
        return ErrorCode.NONE

    def mark(self, marker: TransactionMarker) -> ErrorCode:
        """Append a marker."""
        if marker.producer_epoch < self._epochs.get(marker.producer_id, -1):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.transaction_version >= V2 and self._is_of_another_transaction(marker):
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if marker.coordinator_epoch < self._coordinator_epochs.get(marker.producer_id, -1):
            return ErrorCode.TRANSACTION_COORDINATOR_FENCED
        self._epochs[marker.producer_id] = marker.producer_epoch
        self._coordinator_epochs[marker.producer_id] = marker.coordinator_epoch
        self._guards.pop(marker.producer_id, None)
        self.open.pop(marker.producer_id, None)
        self.log.append(marker)
        return ErrorCode.NONE

    def _is_of_another_transaction(self, marker: TransactionMarker) -> bool:
        """Return whether a marker of v2 has no higher epoch than the records.

        Source: ProducerAppendInfo.checkProducerEpoch (KIP-890, part 2): the same epoch is a repeated marker.
        """
        return marker.producer_id in self.open and marker.producer_epoch <= self._epochs.get(marker.producer_id, -1)

    def last_stable_offset(self) -> int:
        """Return where the oldest open transaction begins; else the end."""
        return min((first for _, first in self.open.values()), default=len(self.log))

    def committed(self) -> list[str]:
        """Return what a reader of committed records sees, in log order."""
        seen: list[tuple[int, str]] = []
        pending: dict[int, list[tuple[int, str]]] = {}
        for offset, entry in enumerate(self.log[: self.last_stable_offset()]):
            if isinstance(entry, Datum):
                pending.setdefault(entry.producer_id, []).append((offset, entry.value))
            else:
                ended = pending.pop(entry.producer_id, [])
                seen += ended if entry.outcome is Outcome.COMMIT else []
        return [value for _, value in sorted(seen)]
