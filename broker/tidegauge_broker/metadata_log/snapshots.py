"""Snapshots of the metadata log, piece by piece: a control batch, batches of records, a control batch.

The first batch has the header and, under kraft.version 1, the kraft.version and the voters; the last one has the
footer. Offsets run from 0 within the file; each batch has the snapshot's epoch. ``bootstrap.checkpoint`` has the same
form. No file is touched here: the caller writes and syncs what it gets.
Source: ``org.apache.kafka.snapshot.RecordsSnapshotWriter`` and ``RecordsSnapshotReader``; KIP-630, KIP-853.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.control_messages.kraft_version_record import KRaftVersionRecord
from tidegauge.kafka.kraft.control_messages.snapshot_footer_record import SnapshotFooterRecord
from tidegauge.kafka.kraft.control_messages.snapshot_header_record import SnapshotHeaderRecord
from tidegauge.kafka.kraft.control_messages.voters_record import VotersRecord
from tidegauge.record_batch import Buffer
from tidegauge_broker.metadata_log.batches import (
    MAX_BATCH_BYTES,
    MetadataBatch,
    control_batch,
    data_batch,
    read_batches,
)

MAX_BATCH_RECORDS = 1024
"""Records in one batch (``RaftSnapshotWriter`` of the snapshot generator)."""
_RECORD_OVERHEAD_BYTES = 32
"""An upper bound of the bytes that a record takes besides its value."""


class SnapshotWriter:
    """Turns a snapshot's content into batches; times are arguments in ms.

    Call ``begin`` once, ``append`` any number of times, ``finish`` once.
    """

    def __init__(self, epoch: int) -> None:
        """Begin a file; ``epoch`` is the leader epoch of the last record that the snapshot contains."""
        self._epoch = epoch
        self._next_offset = 0

    def begin(self, last_contained_ms: int, kraft_version: int, voters: VotersRecord | None, now_ms: int) -> bytes:
        """Return the first batch.

        Args:
            last_contained_ms: when the last record that the snapshot contains was appended; 0 if there is none.
            kraft_version: the kraft.version at the snapshot's end; 0 is not written.
            voters: the voter set at the snapshot's end; not written under kraft.version 0.
            now_ms: the time of the batch.
        """
        messages: list[object] = [SnapshotHeaderRecord(last_contained_log_timestamp=last_contained_ms)]
        if kraft_version > 0:
            messages.append(KRaftVersionRecord(kraft_version=kraft_version))
            if voters is not None:
                messages.append(voters)
        return self._control(messages, now_ms)

    def append(self, values: Sequence[bytes], now_ms: int) -> Iterator[bytes]:
        """Yield the batches of some metadata records, given by their values."""
        batch: list[bytes] = []
        size = 0
        for value in values:
            needed = len(value) + _RECORD_OVERHEAD_BYTES
            if batch and (len(batch) == MAX_BATCH_RECORDS or size + needed > MAX_BATCH_BYTES):
                yield self._data(batch, now_ms)
                batch, size = [], 0
            batch.append(value)
            size += needed
        if batch:
            yield self._data(batch, now_ms)

    def finish(self, now_ms: int) -> bytes:
        """Return the last batch."""
        return self._control([SnapshotFooterRecord()], now_ms)

    def _control(self, messages: Sequence[object], now_ms: int) -> bytes:
        at, self._next_offset = self._next_offset, self._next_offset + len(messages)
        return control_batch(messages, at, self._epoch, now_ms)

    def _data(self, values: Sequence[bytes], now_ms: int) -> bytes:
        at, self._next_offset = self._next_offset, self._next_offset + len(values)
        return data_batch(values, at, self._epoch, now_ms)


def read_snapshot(buffer: Buffer) -> Iterator[MetadataBatch]:
    """Yield the batches of a snapshot, one at a time; its last batch is yielded only if nothing is behind it.

    Raises:
        TidegaugeError: CORRUPT_MESSAGE, a batch can't be read, offsets do not run from 0, the header is not
            first, or the footer is not last. This is how an unfinished snapshot is recognised.
    """
    next_offset = 0
    is_finished = False
    for batch in read_batches(buffer):
        if is_finished:
            raise _malformed("there are batches behind the footer")
        if batch.header.base_offset != next_offset:
            raise _malformed(f"offset {next_offset} is followed by {batch.header.base_offset}")
        for at, message in enumerate(batch.control):
            if isinstance(message, SnapshotHeaderRecord) != (next_offset + at == 0):
                raise _malformed("its header must be the first record, and only that")
            is_finished = is_finished or isinstance(message, SnapshotFooterRecord)
        if next_offset == 0 and not batch.control:
            raise _malformed("its first record is not a header")
        next_offset = batch.header.next_offset
        yield batch
    if not is_finished:
        raise _malformed("it ends without a footer, so it was never finished")


def _malformed(reason: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"The snapshot can't be read: {reason}")


def encode_bootstrap(values: Sequence[bytes], header_ms: int, records_ms: int, footer_ms: int) -> bytes:
    """Return ``bootstrap.checkpoint`` with these metadata records, as ``kafka-storage format`` writes it.

    Args:
        values: the records' values, the feature level of metadata.version first (BootstrapMetadata).
        header_ms: the time of the first batch.
        records_ms: the time of the records.
        footer_ms: the time of the last batch.
    """
    writer = SnapshotWriter(epoch=0)
    first = writer.begin(0, 0, None, header_ms)
    return b"".join([first, *writer.append(values, records_ms), writer.finish(footer_ms)])
