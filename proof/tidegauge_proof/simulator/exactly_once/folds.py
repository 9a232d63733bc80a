"""The meaning of a log's batches, folded from the first one on by rules of its own: the dumb twin of the product.

A fold belongs to a prefix of a log; prefixes are known by their hash (``MemoryLog.chain``), so each is folded once,
whatever number of replicas holds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from tidegauge.record_batch import BatchHeader, iterate_headers
from tidegauge.transaction_marker import Outcome, read_marker
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.memory_log import MemoryLog

_EVERYTHING = 1 << 30


class Known(NamedTuple):
    """The known state of a producer."""

    epoch: int
    last_sequence: int
    coordinator_epoch: int
    first_offset: int | None


class Ended(NamedTuple):
    """A transaction with its marker."""

    producer_id: int
    epoch: int
    first_offset: int
    marker_offset: int
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Fold:
    """The state after a prefix of a log.

    Attributes:
        producers: by id.
        ended: the transactions that had data, by marker.
        aborted: what .txnindex must hold: producer id, first offset, offset of the marker, last stable offset.
        markers: every marker: producer id, epoch and outcome.
        fences: the highest epoch of a marker, by producer id.
    """

    producers: dict[int, Known] = field(default_factory=dict[int, Known])
    ended: tuple[Ended, ...] = ()
    aborted: tuple[tuple[int, int, int, int], ...] = ()
    markers: frozenset[tuple[int, int, Outcome]] = frozenset()
    fences: dict[int, int] = field(default_factory=dict[int, int])

    def open_offsets(self) -> list[int]:
        """Return where the open transactions begin."""
        return [one.first_offset for one in self.producers.values() if one.first_offset is not None]

    def last_stable_offset(self, high_watermark: int, known_from: int = 0) -> int:
        """Return up to where a reader of committed data may read.

        Args:
            high_watermark: the replica's.
            known_from: transactions whose marker lies below are not known to be unreplicated: they were completed
                before the snapshot from which the replica's state was rebuilt.
        """
        held = [
            one.first_offset
            for one in self.ended
            if one.marker_offset >= high_watermark and one.marker_offset >= known_from
        ]
        return min([*self.open_offsets(), *held, high_watermark])

    def with_batch(self, header: BatchHeader, data: bytes) -> Fold:
        """Return the fold of the prefix that ends with one more batch."""
        if header.producer_id < 0:
            return self
        return self._with_marker(header, data) if header.is_control else self._with_data(header)

    def _with_data(self, header: BatchHeader) -> Fold:
        producer_id = header.producer_id
        if header.is_transactional and header.producer_epoch < self.fences.get(producer_id, -1):
            raise Violation(
                "T12", f"epoch {header.producer_epoch} of {producer_id} writes after a marker of a newer epoch"
            )
        before = self.producers.get(producer_id, Known(-1, -1, -1, None))
        first = before.first_offset
        if header.is_transactional and first is None:
            first = header.base_offset
        known = Known(header.producer_epoch, header.last_sequence, before.coordinator_epoch, first)
        return replace(self, producers={**self.producers, producer_id: known})

    def _with_marker(self, header: BatchHeader, data: bytes) -> Fold:
        marker = read_marker(data, header)
        assert marker is not None
        producer_id, epoch = marker.producer_id, marker.producer_epoch
        before = self.producers.get(producer_id, Known(-1, -1, -1, None))
        sequence = before.last_sequence if before.epoch == epoch else -1
        producers = {**self.producers, producer_id: Known(epoch, sequence, marker.coordinator_epoch, None)}
        ended, aborted, first = self.ended, self.aborted, before.first_offset
        if first is not None:
            ended = (*ended, Ended(producer_id, epoch, first, header.base_offset, marker.outcome))
            if marker.outcome is Outcome.ABORT:
                others = [one.first_offset for one in producers.values() if one.first_offset is not None]
                stable = min([*others, header.base_offset + 1])
                aborted = (*aborted, (producer_id, first, header.base_offset, stable))
        return Fold(
            producers,
            ended,
            aborted,
            self.markers | {(producer_id, epoch, marker.outcome)},
            {**self.fences, producer_id: max(epoch, self.fences.get(producer_id, -1))},
        )


class Folds:
    """The folds of all logs of one partition."""

    def __init__(self) -> None:
        self._by_prefix: dict[int, Fold] = {0: Fold()}

    def of(self, log: MemoryLog, end_offset: int | None = None) -> Fold:
        """Return the fold of a log up to an offset between batches; None: all."""
        end = log.log_end_offset if end_offset is None else end_offset
        known = self._by_prefix.get(log.chain[end])
        if known is not None:
            return known
        begin = end
        while log.chain[begin] not in self._by_prefix:
            begin -= 1
        fold = self._by_prefix[log.chain[begin]]
        for header, data in batches_of(log, begin, end):
            fold = fold.with_batch(header, data)
            self._by_prefix[log.chain[header.next_offset]] = fold
        return fold


def batches_of(log: MemoryLog, begin: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """Return the batches between two offsets, each as a buffer of its own."""
    if begin >= end:
        return
    data = log.read(begin, end, _EVERYTHING)
    for header in iterate_headers(data):
        yield header.alone(), data[header.position : header.position + header.size_bytes]
