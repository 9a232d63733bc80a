"""Committed batches become images. The records of a metadata transaction show all at once, or never.

Source: ``org.apache.kafka.image.loader.MetadataBatchLoader`` and ``MetadataLoader``; KIP-868.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka.metadata_records.abort_transaction_record import AbortTransactionRecord
from tidegauge.kafka.metadata_records.begin_transaction_record import BeginTransactionRecord
from tidegauge.kafka.metadata_records.end_transaction_record import EndTransactionRecord
from tidegauge_controller.metadata.delta import MetadataDelta, UnreplayableRecord
from tidegauge_controller.metadata.image import EMPTY, MetadataImage, Provenance


class ReplayFault(NamedTuple):
    """A record that was skipped since it can't be replayed."""

    offset: int
    sentence: str


class MetadataLoader:
    """Takes in committed batches, and holds the image of the records that may be seen.

    A record that can't be replayed is reported and skipped, as a broker does; a controller ends instead.

    Args:
        image: of the records that were loaded before.

    Attributes:
        image: the newest image that may be seen.
        is_batch_aligned: whether it ends where a batch ends, so that a snapshot may be made of it.
        in_transaction: whether a metadata transaction is open.
    """

    def __init__(self, image: MetadataImage = EMPTY) -> None:
        self.image = image
        self.is_batch_aligned = True
        self.in_transaction = False
        self._delta = MetadataDelta(image)

    def load_snapshot(self, records: Iterable[MetadataRecord], provenance: Provenance) -> list[ReplayFault]:
        """Replace everything by a snapshot; return the records that were skipped."""
        faults: list[ReplayFault] = []
        delta = MetadataDelta(EMPTY)
        for record in records:
            try:
                delta.replay(record, provenance.offset)
            except UnreplayableRecord as problem:
                faults.append(ReplayFault(provenance.offset, str(problem)))
        self.image = delta.image(provenance)
        self._delta = MetadataDelta(self.image)
        self.in_transaction, self.is_batch_aligned = False, True
        return faults

    def load(
        self, records: Sequence[MetadataRecord], base_offset: int, epoch: int, timestamp_ms: int
    ) -> list[ReplayFault]:
        """Take in one committed batch; return the records that were skipped.

        Args:
            records: its records.
            base_offset: the offset of the first one.
            epoch: the leader epoch of the batch.
            timestamp_ms: when it was appended.
        """
        faults: list[ReplayFault] = []
        for at, record in enumerate(records):
            offset = base_offset + at
            try:
                if isinstance(record.message, BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord):
                    self._transaction(record.message, Provenance(offset - 1, epoch, timestamp_ms), is_first=at == 0)
                else:
                    self._delta.replay(record, offset)
            except UnreplayableRecord as problem:
                faults.append(ReplayFault(offset, str(problem)))
        if not self.in_transaction:
            self._show(Provenance(base_offset + len(records) - 1, epoch, timestamp_ms))
            self.is_batch_aligned = True
        return faults

    def pass_over(self, provenance: Provenance) -> None:
        """Take in a control batch, which changes no metadata; the image ends behind it if no transaction is open."""
        if not self.in_transaction:
            self._show(provenance)
            self.is_batch_aligned = True

    def _show(self, provenance: Provenance) -> None:
        self.image = self._delta.image(provenance)

    def _transaction(
        self,
        message: BeginTransactionRecord | EndTransactionRecord | AbortTransactionRecord,
        before: Provenance,
        *,
        is_first: bool,
    ) -> None:
        if isinstance(message, BeginTransactionRecord):
            if self.in_transaction:
                raise UnreplayableRecord("Encountered BeginTransactionRecord while already in a transaction")
            self._show(before)
            self.is_batch_aligned = is_first
            self.in_transaction = True
            return
        if not self.in_transaction:
            raise UnreplayableRecord(
                f"Encountered {type(message).__name__} without having seen a BeginTransactionRecord"
            )
        if isinstance(message, AbortTransactionRecord):
            self._delta = MetadataDelta(self.image)
        self.in_transaction = False
