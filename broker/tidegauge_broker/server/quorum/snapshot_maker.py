"""Writes a snapshot of the committed metadata when enough records or enough time have passed since the last one.

Each node decides by itself. The snapshot is written in a thread; the image that it is made of never changes.
Source: ``org.apache.kafka.image.publisher.SnapshotGenerator``, ``MetadataLogConfig``; KIP-630.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from tidegauge.errors import TidegaugeError
from tidegauge.kafka.kraft.record_types import encode_record
from tidegauge.settings import Values
from tidegauge_broker.metadata_log.raft_records import voters_message
from tidegauge_broker.metadata_log.snapshots import SnapshotWriter
from tidegauge_broker.server.quorum.committed_metadata import CommittedMetadata
from tidegauge_broker.server.quorum.driver import QuorumDriver
from tidegauge_broker.server.quorum.metadata_store import MetadataStore
from tidegauge_controller.metadata.image import MetadataImage
from tidegauge_controller.metadata.snapshot import snapshot_records
from tidegauge_controller.raft import events
from tidegauge_controller.raft.values import OffsetAndEpoch, VoterSet

LOG = logging.getLogger("tidegauge.quorum")


class SnapshotMaker:
    """Writes snapshots of the committed metadata when they are due.

    Args:
        committed: the image.
        driver: of the node, which learns of a new snapshot.
        store: the node's disk.
        settings: the node's.
        now_ms: the node's clock.
        wall_ms: the wall clock, for the times in the file.
    """

    def __init__(
        self,
        committed: CommittedMetadata,
        driver: QuorumDriver,
        store: MetadataStore,
        settings: Values,
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
    ) -> None:
        self._committed = committed
        self._driver = driver
        self._store = store
        self._max_bytes = settings.integer("metadata.log.max.record.bytes.between.snapshots")
        self._interval_ms = settings.integer("metadata.log.max.snapshot.interval.ms")
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._last_ms = now_ms()
        self._work: asyncio.Task[None] | None = None
        self._is_disabled = False

    def disable(self) -> None:
        """Write no more snapshots: a record was skipped, and a snapshot would hide that for good."""
        self._is_disabled = True

    def consider(self) -> None:
        """Begin a snapshot of the image if one is due and none is being written."""
        if self._work is not None or self._is_disabled:
            return
        is_old = 0 < self._interval_ms <= self._now_ms() - self._last_ms
        if not is_old and self._committed.loaded_bytes < self._max_bytes:
            return
        snapshot = self._committed.snapshot_id
        if snapshot is None or snapshot in self._driver.node.log.snapshots:
            return
        self._last_ms = self._now_ms()
        self._committed.loaded_bytes = 0
        image, history = self._committed.image, self._driver.node.history
        version, voters = history.version_at(snapshot.offset), history.voters_at(snapshot.offset)
        self._work = asyncio.get_running_loop().create_task(self._make(snapshot, image, version, voters))

    async def _make(self, snapshot: OffsetAndEpoch, image: MetadataImage, version: int, voters: VoterSet) -> None:
        try:
            await asyncio.to_thread(self._write, snapshot, image, version, voters)
        except (TidegaugeError, OSError) as problem:
            text = problem.message if isinstance(problem, TidegaugeError) else str(problem)
            LOG.warning("The snapshot at offset %d can't be written: %s", snapshot.offset, text)
        else:
            LOG.info("Snapshot %020d-%010d is written", *snapshot)
            self._driver.give(events.SnapshotCreated(snapshot))
        finally:
            self._work = None

    def _write(self, snapshot: OffsetAndEpoch, image: MetadataImage, version: int, voters: VoterSet) -> None:
        position = 0
        try:
            for data in self._pieces(snapshot, image, version, voters):
                self._store.snapshots.write(snapshot, position, data)
                position += len(data)
            self._store.snapshots.finish(snapshot)
        except OSError:
            self._store.snapshots.drop(snapshot)
            raise

    def _pieces(
        self, snapshot: OffsetAndEpoch, image: MetadataImage, version: int, voters: VoterSet
    ) -> Iterator[bytes]:
        writer, now_ms = SnapshotWriter(snapshot.epoch), self._wall_ms()
        yield writer.begin(image.provenance.timestamp_ms, version, voters_message(voters), now_ms)
        values = [encode_record(record.message, record.version) for record in snapshot_records(image)]
        yield from writer.append(values, now_ms)
        yield writer.finish(now_ms)

    def close(self) -> None:
        """Begin no more; a thread that writes a snapshot leaves an unfinished file, which the next start removes."""
        self._is_disabled = True
        if self._work is not None:
            self._work.cancel()
