"""Follows the committed records of the metadata log into images; every node of a KRaft cluster does.

Rules (``MetadataLoader``, ``KafkaRaftClient.ListenerContext``):
    1. Records are taken in up to the high watermark, in order, each once. A node that begins, or whose log now begins
       beyond what it has taken in, loads the newest snapshot first, once that is known to be committed.
    2. Observers see an image after each portion of the log; states in between may be skipped.
    3. Long work does not hold the event loop: a large log is loaded in portions, and a portion of many records,
       or a snapshot, in a thread.
    4. A record that can't be decoded or replayed is reported and skipped; the owner decides whether the process may
       continue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.kafka.compiler import MalformedMessage
from tidegauge.kafka.kraft.record_types import MetadataRecord, decode_record
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge_broker.metadata_log.batches import MetadataBatch, read_batches
from tidegauge_broker.metadata_log.snapshots import read_snapshot
from tidegauge_broker.server.quorum.metadata_store import MetadataStore
from tidegauge_controller.metadata.image import MetadataImage, Provenance
from tidegauge_controller.metadata.loader import MetadataLoader, ReplayFault
from tidegauge_controller.metadata.records import made
from tidegauge_controller.raft import effects
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.values import OffsetAndEpoch

_PORTION_BYTES = 32 * 1024
"""Bytes of the log that are taken in before others get their turn; a single batch may be larger."""
_THREAD_FROM_BYTES = 128 * 1024
"""Size from which a portion is taken in by a thread."""

OnImage = Callable[[MetadataImage], None]
OnFault = Callable[[ReplayFault], None]


class _Loaded(NamedTuple):
    """The result of one portion: the beginning of the next one, and the skipped records."""

    next_offset: int
    faults: list[ReplayFault]


class CommittedMetadata:
    """An observer of the node (``driver.Observer``) with the image of the committed records.

    Args:
        node: the node.
        store: its disk.
        on_image: is called with each new image.
        on_fault: is called with each record that was skipped.

    Attributes:
        next_offset: the offset behind the last record that was taken in.
        loaded_bytes: size of the records that were taken in since the last snapshot was loaded or written.
    """

    def __init__(self, node: RaftNode, store: MetadataStore, on_image: OnImage, on_fault: OnFault) -> None:
        self.next_offset = 0
        self.loaded_bytes = 0
        self._node = node
        self._store = store
        self._on_image = on_image
        self._on_fault = on_fault
        self._loader = MetadataLoader()
        self._high_watermark = 0
        self._has_begun = False
        self._is_busy = False
        self._work: asyncio.Task[None] | None = None

    @property
    def image(self) -> MetadataImage:
        """The image of the records taken in, without records of an open metadata transaction."""
        return self._loader.image

    @property
    def in_transaction(self) -> bool:
        """Whether a metadata transaction is open behind the image."""
        return self._loader.in_transaction

    @property
    def is_caught_up(self) -> bool:
        """Whether all records that are known to be committed were taken in."""
        return self._has_begun and self.next_offset >= self._high_watermark and not self._is_busy

    @property
    def snapshot_id(self) -> OffsetAndEpoch | None:
        """The id that a snapshot of the image has; None if none may be made (``SnapshotGenerator``)."""
        at = self.image.provenance
        if self.image.is_empty or self._loader.in_transaction or not self._loader.is_batch_aligned:
            return None
        return OffsetAndEpoch(at.offset + 1, at.epoch)

    # Observer

    def high_watermark_moved(self, effect: effects.HighWatermarkMoved) -> None:
        """Take in the committed records."""
        self._high_watermark = effect.high_watermark
        self._go_on()

    def state_changed(self, effect: effects.StateChanged) -> None:
        """Do nothing: committed records stay so under any leader."""

    def leadership_changed(self, effect: effects.LeadershipChanged) -> None:
        """Do nothing, for the same reason."""

    def proposal_decided(self, effect: effects.Proposed | effects.NotProposed) -> None:
        """Do nothing: a proposal is no committed record yet."""

    # Portions

    def _go_on(self) -> None:
        """Take in the next portion; the one after it follows in a later turn of the event loop."""
        if self._is_busy:
            return
        try:
            self._take_portion()
        except TidegaugeError as problem:
            self._stop(self.next_offset, problem)

    def _take_portion(self) -> None:
        snapshot = self._snapshot_to_load()
        if snapshot is not None:
            self._begin(self._load_snapshot(snapshot))
            return
        if not self._has_begun:
            self.next_offset = self._node.log.start_offset
            self._has_begun = True
        if self.next_offset >= self._high_watermark:
            return
        data = self._store.read(self.next_offset, _PORTION_BYTES, self._high_watermark)
        if not data:
            return  # the log is being replaced by a snapshot; its end is the next high watermark
        if len(data) >= _THREAD_FROM_BYTES:
            self._begin(self._load_in_thread(data))
            return
        self._taken_in(self._take(data), len(data))
        if self.next_offset < self._high_watermark:
            self._is_busy = True
            asyncio.get_running_loop().call_soon(self._resume)

    def _resume(self) -> None:
        self._is_busy = False
        self._go_on()

    def _begin(self, work: object) -> None:
        self._is_busy = True
        self._work = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type] # a coroutine

    def _snapshot_to_load(self) -> OffsetAndEpoch | None:
        newest = self._node.log.newest_snapshot
        if newest is None or newest.offset > self._high_watermark:
            return None
        return newest if not self._has_begun or self.next_offset < self._node.log.start_offset else None

    async def _load_in_thread(self, data: bytes) -> None:
        try:
            loaded = await asyncio.to_thread(self._take, data)
        except TidegaugeError as problem:
            self._stop(self.next_offset, problem)
            return
        self._taken_in(loaded, len(data))
        self._resume()

    def _stop(self, offset: int, problem: TidegaugeError | OSError) -> None:
        """Report that the log, or a snapshot, can't be read; nothing more is taken in."""
        self._is_busy = True
        self._on_fault(ReplayFault(offset, problem.message if isinstance(problem, TidegaugeError) else str(problem)))

    def _take(self, data: bytes) -> _Loaded:
        faults: list[ReplayFault] = []
        next_offset = self.next_offset
        for batch in read_batches(data):
            header = batch.header
            if batch.control:
                at = Provenance(header.next_offset - 1, header.leader_epoch, header.max_timestamp_ms)
                self._loader.pass_over(at)
            else:
                records = list(_records(batch, faults, header.base_offset))
                faults += self._loader.load(records, header.base_offset, header.leader_epoch, header.max_timestamp_ms)
            next_offset = header.next_offset
        return _Loaded(next_offset, faults)

    def _taken_in(self, loaded: _Loaded, size_bytes: int) -> None:
        self.next_offset = loaded.next_offset
        self.loaded_bytes += size_bytes
        for fault in loaded.faults:
            self._on_fault(fault)
        self._on_image(self.image)

    async def _load_snapshot(self, snapshot: OffsetAndEpoch) -> None:
        try:
            faults = await asyncio.to_thread(self._take_snapshot, snapshot)
        except FileNotFoundError:
            pass  # a newer one has replaced it
        except (TidegaugeError, OSError) as problem:
            self._stop(snapshot.offset, problem)
            return
        else:
            self._has_begun = True
            self.loaded_bytes = 0
            self._taken_in(_Loaded(snapshot.offset, faults), 0)
        self._resume()

    def _take_snapshot(self, snapshot: OffsetAndEpoch) -> list[ReplayFault]:
        data = self._store.snapshots.path_of(snapshot).read_bytes()
        faults: list[ReplayFault] = []
        batches = list(read_snapshot(data))
        last_contained_ms = self._store.snapshots.head_of(snapshot).last_contained_ms
        records = (record for batch in batches for record in _records(batch, faults, snapshot.offset))
        at = Provenance(snapshot.offset - 1, snapshot.epoch, last_contained_ms)
        return self._loader.load_snapshot(records, at) + faults

    def close(self) -> None:
        """Take in nothing more."""
        self._is_busy = True
        if self._work is not None:
            self._work.cancel()


def _records(batch: MetadataBatch, faults: list[ReplayFault], offset: int) -> Iterator[MetadataRecord]:
    """Yield a batch's records; one that can't be decoded is reported, and a record without effect takes its place."""
    for at, value in enumerate(batch.values):
        try:
            yield decode_record(value)
        except MalformedMessage as problem:
            faults.append(ReplayFault(offset + at, str(problem)))
            yield made(NoOpRecord())
