"""Records of aborted transactions: a group that reads committed records archives them when it acquires them.

Source: SharePartition (filterAbortedTransactionalAcquiredRecords, fetchAbortedTransactionRecordBatches).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegauge_broker.share.acquiring import Acquired, LogBatch, Read
from tidegauge_broker.share.states import RecordState
from tidegauge_broker.share.window import Window


def without_aborted(window: Window, read: Read, acquired: Sequence[Acquired]) -> list[Acquired]:
    """Archive the records of aborted transactions, and return the acquired records without them."""
    left = list(acquired)
    for batch in aborted_batches(read):
        floor = window.in_flight.floor(batch.base_offset)
        first_offset = batch.base_offset if floor is None else floor.first_offset
        in_flight = window.in_flight.between(first_offset, batch.last_offset)
        window.archive(in_flight, batch.base_offset, batch.last_offset, RecordState.ACQUIRED, counts_as_complete=True)
        left = [part for one in left for part in _without(one, batch)]
    return left


def aborted_batches(read: Read) -> Iterator[LogBatch]:
    """Yield the batches of aborted transactions; the markers that abort them are not among them."""
    begins = sorted(read.aborted, key=lambda one: one.first_offset)
    aborted: set[int] = set()
    for batch in read.batches:
        if batch.producer_id < 0:
            continue
        while begins and begins[0].first_offset <= batch.last_offset:
            aborted.add(begins.pop(0).producer_id)
        if batch.is_abort_marker:
            aborted.discard(batch.producer_id)
        elif batch.is_transactional and batch.producer_id in aborted:
            yield batch


def _without(acquired: Acquired, batch: LogBatch) -> Iterator[Acquired]:
    """Yield the parts of acquired records before and behind a batch."""
    first_offset, last_offset, delivery_count = acquired
    if last_offset < batch.base_offset or first_offset > batch.last_offset:
        yield acquired
        return
    if first_offset < batch.base_offset:
        yield Acquired(first_offset, batch.base_offset - 1, delivery_count)
    if last_offset > batch.last_offset:
        yield Acquired(batch.last_offset + 1, last_offset, delivery_count)
