"""What a process keeps in memory of the metadata log: the image of the committed batches."""

from __future__ import annotations

from collections.abc import Callable

from tidegauge_controller.metadata.image import MetadataImage, Provenance
from tidegauge_controller.metadata.loader import MetadataLoader
from tidegauge_proof.simulator.checker import Violation
from tidegauge_proof.simulator.quorum.quorum_disk import QuorumDisk


class MetadataNode:
    """The committed metadata as one process has loaded them, from offset 0 on.

    Args:
        seen: is called with the image behind each batch.

    Attributes:
        next_offset: behind the last batch that was taken in.
    """

    def __init__(self, seen: Callable[[MetadataImage], None] = lambda _: None) -> None:
        self.next_offset = 0
        self._seen = seen
        self._loader = MetadataLoader()
        self._taken = 0

    @property
    def image(self) -> MetadataImage:
        """The image of what was taken in."""
        return self._loader.image

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open behind the image."""
        return self._loader.in_transaction

    def take(self, disk: QuorumDisk, high_watermark: int | None) -> bool:
        """Take in the batches below the high watermark; return whether there were any."""
        before = self.next_offset
        while self._taken < len(disk.log) and disk.log[self._taken].end_offset <= (high_watermark or 0):
            batch = disk.log[self._taken]
            at = Provenance(batch.end_offset - 1, batch.epoch, batch.timestamp_ms)
            if batch.control:
                self._loader.pass_over(at)
            else:
                proposals = batch.payload
                assert isinstance(proposals, tuple)
                records = [record for proposal in proposals for record in proposal]
                faults = self._loader.load(records, batch.base_offset, batch.epoch, batch.timestamp_ms)
                if faults:
                    raise Violation("C1", f"a committed record can't be replayed: {faults[0]}")
            self._taken += 1
            self.next_offset = batch.end_offset
            self._seen(self._loader.image)
        return self.next_offset > before
