"""The records of a fetch response that a reader of committed data skips (KIP-98, isolation level read_committed). Pure.

A broker sends all records below the last stable offset, aborted transactions' too, and names the latter. The
list may be longer than the records need; it is in no order. Rules (Kafka's CompletedFetch):
    1. Before a batch every listed transaction that begins at or below its last offset counts as being read.
    2. An ABORT marker of a producer ends its transaction; a COMMIT marker, or one of a producer without a listed
       transaction, changes nothing.
    3. Transactional records of a producer with such a transaction are skipped. Markers are no records anyway.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from tidegauge.record_batch import BatchHeader
from tidegauge.transaction_marker import Outcome, read_marker

IsolationLevel = Literal["read_uncommitted", "read_committed"]


class Aborted(NamedTuple):
    """An aborted transaction: where its records begin in the partition, and whose it is."""

    first_offset: int
    producer_id: int


def without_aborted(data: bytes, headers: Iterable[BatchHeader], aborted: Sequence[Aborted]) -> deque[BatchHeader]:
    """Return the batches of a response without aborted transactions.

    Args:
        data: the response's batches.
        headers: their headers, in order.
        aborted: what the broker listed.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, a marker is malformed.
    """
    waiting = deque(sorted(aborted))
    being_read: set[int] = set()
    kept: deque[BatchHeader] = deque()
    for header in headers:
        while waiting and waiting[0].first_offset <= header.last_offset:
            being_read.add(waiting.popleft().producer_id)
        if header.is_control:
            marker = read_marker(data, header)
            if marker is not None and marker.outcome is Outcome.ABORT:
                being_read.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in being_read:
            continue
        kept.append(header)
    return kept
