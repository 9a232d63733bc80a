"""The batches of aborted transactions in a log that is compacted, and the markers that are no longer needed.

Contract: the cleaner passes over the batches in offset order, once to map the keys and once to write what stays, each
time with an object of its own.

Rules (LogCleaner's CleanedTransactionMetadata; KIP-98):
    1. The data of an aborted transaction go at the first sight; of no key do they hide the latest value.
    2. A marker stays as long as the pass meets data of its transaction, aborted ones that go with this pass too: until
       then readers need it. After that it may go, when its delete horizon has passed.
    3. The new segment's .txnindex lists the aborted transactions whose markers it keeps by rule 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop

from tidegauge.record_batch import BatchHeader
from tidegauge.transaction_marker import Outcome, TransactionMarker
from tidegauge_broker.replica.open_transactions import AbortedTransaction


class CleanedTransactions:
    """One pass over a log's batches."""

    def __init__(self) -> None:
        self._expected: list[tuple[int, AbortedTransaction]] = []
        self._aborted: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()

    def expect(self, aborted: Iterable[AbortedTransaction]) -> None:
        """Note the aborted transactions that the index lists for the batches to come; some may be known already."""
        self._expected += ((one.first_offset, one) for one in aborted)
        heapify(self._expected)

    def _begin_up_to(self, offset: int) -> None:
        while self._expected and self._expected[0][0] <= offset:
            _, one = heappop(self._expected)
            self._aborted.setdefault(one.producer_id, one)

    def is_aborted(self, header: BatchHeader) -> bool:
        """Pass over a batch of records; return whether its transaction was aborted."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        self._with_data.add(header.producer_id)
        return header.producer_id in self._aborted

    def end(self, header: BatchHeader, marker: TransactionMarker | None) -> tuple[bool, AbortedTransaction | None]:
        """Pass over a marker.

        Args:
            header: the control batch's.
            marker: its content; None if the batch is empty.

        Returns:
            Whether it may be removed, by rule 2, and the entry that the new segment's index needs if it stays.
        """
        self._begin_up_to(header.last_offset)
        if marker is None:
            return True, None
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        entry = self._aborted.pop(header.producer_id, None) if marker.outcome is Outcome.ABORT else None
        return not had_data, entry if had_data else None
