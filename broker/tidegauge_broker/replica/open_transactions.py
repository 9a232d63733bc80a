"""The open transactions of a partition, and how far a reader of committed data may therefore read.

Contract: pure. The partition's core keeps one and moves it when it decides an append, so that the last stable offset is
right within the very step; the log rebuilds one together with its producer state.

Rules (KIP-98; Kafka's ProducerStateManager and UnifiedLog.fetchLastStableOffsetMetadata):
    1. A transactional batch of a producer without an open transaction opens one at its base offset.
    2. A marker completes the producer's open transaction, if there is one. Data become readable when the marker itself
       is replicated: until the high watermark has passed it, the completed transaction is held, and is unstable like an
       open one.
    3. The first unstable offset is the smallest first offset of both kinds, and not below the log start offset. The
       last stable offset is that, or the high watermark if it is smaller. It is exclusive, as every end offset.
"""

from __future__ import annotations

from bisect import insort
from typing import NamedTuple


class CompletedTransaction(NamedTuple):
    """A transaction whose marker was appended: where its data begin, and the marker's offset (inclusive)."""

    first_offset: int
    marker_offset: int
    producer_id: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as .txnindex keeps it and as it is named to readers of committed data.

    Attributes:
        producer_id: whose it was.
        first_offset: where its data begin.
        last_offset: the offset of its marker (inclusive, as in Kafka).
        last_stable_offset: the last stable offset that it left, once the marker was replicated.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class OpenTransactions:
    """The transactions of one partition that keep readers of committed data waiting."""

    __slots__ = ("_open", "_unreplicated")

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        """First offsets by producer id; they rise in the order of insertion, as the appends do."""
        self._unreplicated: list[CompletedTransaction] = []
        """Rising by first offset."""

    def __bool__(self) -> bool:
        return bool(self._open or self._unreplicated)

    def __len__(self) -> int:
        """Return how many transactions are open."""
        return len(self._open)

    def copy(self) -> OpenTransactions:
        """Return another one with the same content."""
        other = OpenTransactions()
        other._open = dict(self._open)
        other._unreplicated = list(self._unreplicated)
        return other

    def first_offset_of(self, producer_id: int) -> int | None:
        """Return where the producer's open transaction begins; None if it has none."""
        return self._open.get(producer_id)

    def open(self, producer_id: int, first_offset: int) -> None:
        """Note a transactional batch: rule 1."""
        self._open.setdefault(producer_id, first_offset)

    def complete(self, producer_id: int, marker_offset: int) -> CompletedTransaction | None:
        """Note a marker; return the transaction that it completes, None if none was open."""
        first_offset = self._open.pop(producer_id, None)
        return None if first_offset is None else CompletedTransaction(first_offset, marker_offset, producer_id)

    def hold(self, completed: CompletedTransaction) -> None:
        """Keep a completed transaction unstable until its marker is replicated: rule 2."""
        insort(self._unreplicated, completed)

    def replicated(self, high_watermark: int) -> None:
        """Forget the completed transactions whose marker is below the high watermark."""
        if self._unreplicated:
            self._unreplicated = [one for one in self._unreplicated if one.marker_offset >= high_watermark]

    def first_unstable_offset(self, log_start_offset: int) -> int | None:
        """Return the smallest offset that may still be aborted, or None: rule 3."""
        first = next(iter(self._open.values()), None)
        if self._unreplicated and (first is None or self._unreplicated[0].first_offset < first):
            first = self._unreplicated[0].first_offset
        return None if first is None else max(first, log_start_offset)

    def last_stable_offset_after(self, completed: CompletedTransaction) -> int:
        """Return the last stable offset after a completed transaction, once replicated.

        It is what .txnindex keeps of an aborted one: the first offset of the next open transaction, or the offset after
        the marker (ProducerStateManager.lastStableOffset).
        """
        return next(iter(self._open.values()), completed.marker_offset + 1)
