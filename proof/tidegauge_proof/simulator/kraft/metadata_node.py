"""The metadata log in a process's memory: the image of a snapshot, if any, and the batches behind."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable

from tidegauge_controller.metadata.image import MetadataImage, Provenance
from tidegauge_controller.metadata.loader import MetadataLoader
from tidegauge_controller.metadata.snapshot import snapshot_records
from tidegauge_controller.raft.values import Batch
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.quorum.quorum_disk import QuorumDisk


class MetadataNode:
    """The committed metadata as one process has loaded them, from offset 0 on.

    Args:
        seen: is called with the image behind each batch.

    Attributes:
        next_offset: behind the last batch that was taken in.
        snapshots_loaded: how often it began again with a snapshot.
    """

    def __init__(self, seen: Callable[[MetadataImage], None] = lambda _: None) -> None:
        self.next_offset = 0
        self._seen = seen
        self._loader = MetadataLoader()
        self.snapshots_loaded = 0

    @property
    def image(self) -> MetadataImage:
        """The image of all batches taken in."""
        return self._loader.image

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open behind the image."""
        return self._loader.in_transaction

    def take(self, disk: QuorumDisk, high_watermark: int | None) -> bool:
        """Take in the batches below the high watermark; return whether there were any."""
        before = self.next_offset
        if before < disk.start_offset:
            self._load_snapshot(disk)
        first = bisect_left(disk.log, self.next_offset, key=lambda batch: batch.base_offset)
        for batch in disk.log[first:]:
            if batch.end_offset > (high_watermark or 0):
                break
            _replay(self._loader, [batch])
            self.next_offset = batch.end_offset
            self._seen(self._loader.image)
        return self.next_offset > before

    def _load_snapshot(self, disk: QuorumDisk) -> None:
        """Replace the image by the image in the snapshot at the log's start, which is written and read as a file is."""
        content = next(content for key, content in disk.snapshots.items() if key.offset == disk.start_offset)
        written = MetadataLoader()
        _replay(written, content.batches)
        self._loader = MetadataLoader()
        faults = self._loader.load_snapshot(snapshot_records(written.image), written.image.provenance)
        if faults:
            raise Violation("C1", f"a record of a snapshot can't be replayed: {faults[0]}")
        self.next_offset = disk.start_offset
        self.snapshots_loaded += 1
        self._seen(self._loader.image)


def _replay(loader: MetadataLoader, batches: Iterable[Batch]) -> None:
    """Take committed batches in."""
    for batch in batches:
        if batch.control:
            loader.pass_over(Provenance(batch.end_offset - 1, batch.epoch, batch.timestamp_ms))
            continue
        proposals = batch.payload
        assert isinstance(proposals, tuple)
        records = [record for proposal in proposals for record in proposal]
        faults = loader.load(records, batch.base_offset, batch.epoch, batch.timestamp_ms)
        if faults:
            raise Violation("C1", f"a committed record can't be replayed: {faults[0]}")
