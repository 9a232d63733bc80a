"""The image that files of a metadata log hold, read without a node: by verbs, while a process may write them. Pure.

The newest snapshot comes first, then the batches behind it. A batch that is incomplete at the log's end is left out: a
process may be writing it. Source: ``org.apache.kafka.image.loader.MetadataLoader``, ``SnapshotFileReader``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.kraft.record_types import MetadataRecord, decode_record
from tidegauge_broker.metadata_log.batches import MetadataBatch, read_batches
from tidegauge_broker.metadata_log.snapshot_names import SnapshotName
from tidegauge_broker.metadata_log.snapshots import read_snapshot
from tidegauge_controller.metadata.image import MetadataImage, Provenance
from tidegauge_controller.metadata.loader import MetadataLoader


class OfflineImage(NamedTuple):
    """The image that files hold.

    Attributes:
        image: of the records that may be seen.
        remarks: sentences about omitted records.
    """

    image: MetadataImage
    remarks: list[str]


class OfflineLoader:
    """Takes in files in their order; ``result`` is their image."""

    def __init__(self) -> None:
        self._loader = MetadataLoader()
        self._remarks: list[str] = []
        self._next_offset = 0

    @property
    def result(self) -> OfflineImage:
        """The image of the records so far."""
        remarks = list(self._remarks)
        if self._loader.in_transaction:
            remarks.append("a metadata transaction is open at the end: its records are left out")
        return OfflineImage(self._loader.image, remarks)

    def take_snapshot(self, data: bytes, name: SnapshotName) -> None:
        """Take in a snapshot.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, it can't be read.
        """
        batches = list(read_snapshot(data))
        records = (record for batch in batches for record in self._records(batch))
        timestamp_ms = max((batch.header.max_timestamp_ms for batch in batches), default=-1)
        faults = self._loader.load_snapshot(records, Provenance(name.end_offset - 1, name.epoch, timestamp_ms))
        self._remarks += [fault.sentence for fault in faults]
        self._next_offset = name.end_offset

    def take_segment(self, data: bytes, *, is_last: bool, until: int | None = None) -> None:
        """Take in a segment of the log; batches below the snapshot's end are passed over.

        Args:
            data: the file's content.
            is_last: whether it is the log's last one, whose end may be incomplete.
            until: the high watermark, if it is known; batches from it on are not committed, and left out.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, a batch can't be read, or batches are missing before it.
        """
        try:
            for batch in read_batches(data):
                if until is not None and batch.header.base_offset >= until:
                    return
                self._take(batch)
        except TidegaugeError as problem:
            if not is_last or problem.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            self._remarks.append(f"what follows offset {self._next_offset - 1} is left out: {problem.message}")

    def _take(self, batch: MetadataBatch) -> None:
        header = batch.header
        if header.next_offset <= self._next_offset:
            return
        if header.base_offset > self._next_offset:
            text = f"the batch with base offset {header.base_offset} follows offset {self._next_offset - 1}"
            raise TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"{text}: records between them are missing")
        if batch.control:
            self._loader.pass_over(Provenance(header.next_offset - 1, header.leader_epoch, header.max_timestamp_ms))
        else:
            faults = self._loader.load(
                list(self._records(batch)), header.base_offset, header.leader_epoch, header.max_timestamp_ms
            )
            self._remarks += [f"the record at offset {fault.offset} is skipped: {fault.sentence}" for fault in faults]
        self._next_offset = header.next_offset

    def _records(self, batch: MetadataBatch) -> Iterator[MetadataRecord]:
        for at, value in enumerate(batch.values):
            try:
                yield decode_record(value)
            except MalformedMessage as problem:
                offset = batch.header.base_offset + at
                self._remarks.append(f"the record at offset {offset} is skipped: {problem}")


def newest(names: Iterable[SnapshotName]) -> SnapshotName | None:
    """Return the newest snapshot with records, or None: 0-0 has none."""
    return max((one for one in names if one.end_offset > 0), default=None)
