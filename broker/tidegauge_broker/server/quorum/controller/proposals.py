"""The records of a decision in portions that one batch of the log can hold.

Source: ``QuorumController.appendRecords``, ``BatchAccumulator``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from tidegauge.kafka.kraft.record_types import encode_record
from tidegauge_broker.metadata_log.batches import MAX_BATCH_BYTES
from tidegauge_controller.metadata.decisions.view import MAX_RECORDS_PER_REQUEST, Decision


class Proposal(NamedTuple):
    """Records that are proposed together: their values, and their size in all."""

    values: tuple[bytes, ...]
    size_bytes: int


def proposals_of(decision: Decision[Any]) -> Iterator[Proposal]:
    """Yield the records of a decision in portions that one batch can hold; an atomic decision's all at once."""
    values: list[bytes] = []
    size_bytes = 0
    for record in decision.records:
        value = encode_record(record.message, record.version)
        is_full = len(values) >= MAX_RECORDS_PER_REQUEST or size_bytes + len(value) > MAX_BATCH_BYTES // 2
        if values and is_full and not decision.atomic:
            yield Proposal(tuple(values), size_bytes)
            values, size_bytes = [], 0
        values.append(value)
        size_bytes += len(value)
    yield Proposal(tuple(values), size_bytes)
