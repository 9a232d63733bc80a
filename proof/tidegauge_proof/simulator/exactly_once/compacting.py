"""A log as the cleaner leaves it: what compaction keeps of the part that it may touch, by the product's own rules.

The passes are ``log/cleaner.py``'s, without files: keys are mapped, then each batch is kept, rewritten or left
out, with the same rules (``OffsetMap``, ``Retention``, ``CleanedTransactions``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidegauge.record_batch import BatchHeader, read_header
from tidegauge.transaction_marker import read_marker
from tidegauge_broker.log.cleaned_transactions import CleanedTransactions
from tidegauge_broker.log.compaction import OffsetMap, Retention
from tidegauge_broker.replica.open_transactions import AbortedTransaction
from tidegauge_proof.simulator.exactly_once.folds import batches_of
from tidegauge_proof.simulator.memory_log import MemoryLog

Batch = tuple[BatchHeader, bytes]
_CAPACITY = 1 << 20


def compacted(log: MemoryLog, end_offset: int, now_ms: int, passes: int) -> list[Batch]:
    """Return the batches of a log below an offset after some compactions.

    Args:
        log: the log.
        end_offset: at or below the last stable offset, between two batches.
        now_ms: the time of the first compaction. Nothing is retained for long: what one compaction finds without
            need goes with the next.
        passes: how many compactions.
    """
    batches, index = list(batches_of(log, 0, end_offset)), list(log.aborted)
    for number in range(passes):
        batches, index = _pass(log, batches, index, end_offset, now_ms + number)
    return batches


def _pass(
    log: MemoryLog, batches: Sequence[Batch], index: Iterable[AbortedTransaction], end_offset: int, now_ms: int
) -> tuple[list[Batch], list[AbortedTransaction]]:
    expected = [one for one in index if one.first_offset < end_offset]
    mapping, writing = CleanedTransactions(), CleanedTransactions()
    mapping.expect(expected)
    writing.expect(expected)
    offsets = OffsetMap(_CAPACITY, 0)
    for header, data in batches:
        if header.is_control:
            mapping.end(header, read_marker(data, header))
        is_aborted = not header.is_control and mapping.is_aborted(header)
        offsets.add_batch(data, header, 0, is_aborted=is_aborted)
    offsets.end_offset = end_offset
    entries = log.producer_state.entries()
    retention = Retention(
        offsets,
        {entry.producer_id: entry.batches[-1].last_offset for entry in entries if entry.batches},
        0,
        now_ms,
        {entry.producer_id: entry.producer_epoch for entry in entries if not entry.batches},
        end_offset,
    )
    kept: list[Batch] = []
    kept_index: list[AbortedTransaction] = []
    for header, data in batches:
        if header.is_control:
            may_go, entry = writing.end(header, read_marker(data, header))
            kept_index += [] if entry is None else [entry]
            rest = retention.filter_marker(data, header, may_go=may_go)
        else:
            is_aborted = writing.is_aborted(header)
            rest = retention.filter_batch(data, header, is_aborted=is_aborted)
        if rest:
            kept.append((read_header(rest), rest))
    return kept, kept_index
