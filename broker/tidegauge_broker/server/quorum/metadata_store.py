"""The disk of a quorum's node: the metadata log on a ``PartitionLog``, ``quorum-state``, and the snapshots.

Rules:
    1. Appends, truncations and reads are done on the event loop, in the page cache. Work on the disk blocks and
       runs in a pool thread: ``flush``, ``persist``, ``install``, ``clean``.
    2. At the start the whole log is checked and synced (``KafkaRaftLog.createLog`` never takes a shutdown for clean),
       and snapshots below the log's start and the files of unfinished ones are removed.
    3. A log that begins above 0 needs a snapshot there; a snapshot beyond the log's end replaces the log.
    4. ``quorum-state`` is written to a temporary file, synced and renamed (``FileQuorumStateStore``).
Source: ``KafkaRaftLog``, ``FileQuorumStateStore``; KIP-595, KIP-630.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.json_text import uuid_text
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge.settings import INT_MAX, LONG_MAX, Values
from tidegauge_broker.log.files import DISK, Disk, StorageError
from tidegauge_broker.log.log_directory import LogDirectory
from tidegauge_broker.log.log_state import LogSettings
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.log.recovery import LoadPlan, load_log, make_log
from tidegauge_broker.metadata_log.batches import data_batch, read_batches
from tidegauge_broker.metadata_log.formatting import METADATA_PARTITION
from tidegauge_broker.metadata_log.quorum_state import (
    FILE_NAME,
    CorruptQuorumState,
    decode_quorum_state,
    encode_quorum_state,
)
from tidegauge_broker.metadata_log.raft_records import encode_batch, to_batch
from tidegauge_broker.replica.messages import EpochEntry
from tidegauge_broker.server.quorum.snapshot_files import SnapshotFiles, SnapshotHead
from tidegauge_controller.raft.log_view import LogView
from tidegauge_controller.raft.values import Batch, ElectionState, OffsetAndEpoch, VoterSet
from tidegauge_controller.raft.voter_history import VoterHistory

TOPIC = "__cluster_metadata"
TOPIC_ID = bytes(15) + b"\x01"
"""The id of the metadata log's topic (Uuid.METADATA_TOPIC_ID)."""
BOOTSTRAP = OffsetAndEpoch(0, 0)
_READ_BYTES = 1024 * 1024


class Opened(NamedTuple):
    """The content of a node's disk at the start of its process."""

    log: LogView
    history: VoterHistory
    election: ElectionState


class _MetadataDirectory(LogDirectory):
    """The log directory of a metadata log, which has no checkpoint of recovery points (rule 2)."""

    def write_recovery_points(self) -> None:
        """Write nothing: the file belongs to the logs of topics."""


class MetadataStore:
    """The disk of a quorum's node.

    Args:
        directory: the node's metadata directory; it exists and is formatted.
        settings: the node's.
        now_ms: the node's clock.
        disk: changes files.
    """

    def __init__(self, directory: Path, settings: Values, now_ms: Callable[[], int], disk: Disk = DISK) -> None:
        self._log_directory = _MetadataDirectory(directory, disk)
        self._path = directory / METADATA_PARTITION
        self._settings = settings
        self._now_ms = now_ms
        self._disk = disk
        self._log_settings = _log_settings(settings)
        self._log: PartitionLog | None = None
        self.snapshots = SnapshotFiles(self._path, disk)

    @property
    def log(self) -> PartitionLog:
        """The log; ``open`` has been called."""
        assert self._log is not None
        return self._log

    # Opening

    def open(self, static_voters: VoterSet) -> Opened:
        """Lock the directory, check the log, and return what it holds. Blocks.

        Raises:
            TidegaugeError: another process uses the directory, or a file in it can't be used.
            OSError: the disk refused.
        """
        self._log_directory.lock()
        self._path.mkdir(exist_ok=True)
        election = self._read_election()
        log = self._log = self._load()
        snapshots = self._fitting_snapshots(log)
        history = VoterHistory(static_voters)
        base = next((one for one in snapshots if one.offset == log.log_start_offset), None)
        if base is not None:
            head = self._head_of(base)
            history.restart(head.voter_set, head.kraft_version, is_bootstrap=base == BOOTSTRAP)
        history.replay_all(self._control_batches())
        self.flush()
        start, end = log.log_start_offset, log.log_end_offset
        epochs = [OffsetAndEpoch(max(entry.start_offset, start), entry.epoch) for entry in log.epochs]
        return Opened(LogView(start, end, end, epochs, snapshots), history, election)

    def _head_of(self, snapshot: OffsetAndEpoch) -> SnapshotHead:
        """Return what the snapshot at the log's start says of the voters.

        Raises:
            TidegaugeError: KAFKA_STORAGE_ERROR, it is damaged.
        """
        try:
            return self.snapshots.head_of(snapshot)
        except TidegaugeError as problem:
            raise TidegaugeError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{self.snapshots.path_of(snapshot)} can't be used: {problem.message}. It holds the voters and the "
                "metadata below the log: restore the file, or format the directory again and add the node as a new "
                "voter",
            ) from None

    def _read_election(self) -> ElectionState:
        path = self._path / FILE_NAME
        try:
            return decode_quorum_state(path.read_bytes()).state
        except FileNotFoundError:
            return ElectionState()
        except CorruptQuorumState as problem:
            raise TidegaugeError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"{path} can't be used: {problem}. It holds the node's vote, so the node must not go on without it: "
                "restore the file, or remove the voter from the quorum, format its directory and add it again",
            ) from None

    def _load(self) -> PartitionLog:
        plan = LoadPlan(
            clean=False,
            recovery_point=0,
            log_start_offset=0,
            now_ms=self._now_ms(),
            producer_id_expiration_ms=INT_MAX,
            disk=self._disk,
        )
        has_log = any(self._path.glob("*.log"))
        state = (
            load_log(self._path, self._log_settings, plan)
            if has_log
            else make_log(self._path, self._log_settings, plan)
        )
        partition = TopicPartition(TOPIC, 0)
        log = PartitionLog(partition, self._path, self._log_directory, state, self._log_settings, self._now_ms)
        if not state.topic_id:
            log.write_topic_id(uuid_text(TOPIC_ID))
        return log

    def _fitting_snapshots(self, log: PartitionLog) -> list[OffsetAndEpoch]:
        """Return the fitting snapshots, and fit the log to them (KafkaRaftLog.recoverSnapshots)."""
        found = self.snapshots.listed()
        for one in [one for one in found if one.offset < log.log_start_offset]:
            self._disk.remove(self.snapshots.path_of(one))
            found.remove(one)
        newest = found[-1] if found else None
        last_epoch = log.epochs[-1].epoch if log.epochs else 0
        if newest is not None and (newest.epoch > last_epoch or newest.offset > log.log_end_offset) and newest.offset:
            self._restart_at(newest.offset)
            for one in found[:-1]:
                self._disk.remove(self.snapshots.path_of(one))
            return [newest]
        if log.log_start_offset > 0:
            if not found:
                raise TidegaugeError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"{self._path}: the log begins at offset {log.log_start_offset}, and no snapshot holds what came "
                    "before it. Restore the snapshot, or format the directory again and add the node as a new voter",
                )
            log.advance_log_start(found[0].offset)
        return found

    def _control_batches(self) -> Iterator[Batch]:
        """Yield the control batches of the log."""
        log = self.log
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            data = log.read(offset, log.log_end_offset, _READ_BYTES, at_least_one_batch=True)
            if not data:
                return
            for batch in read_batches(data):
                offset = batch.header.next_offset
                if batch.control:
                    yield to_batch(batch)

    # The log

    @staticmethod
    def encoded(batch: Batch) -> bytes:
        """Return a batch's bytes in the log; a leader's batch keeps its own."""
        payload = batch.payload
        if isinstance(payload, bytes | memoryview):
            return bytes(payload)
        if batch.control:
            return encode_batch(batch)
        assert isinstance(payload, tuple)
        values = [value for values in payload for value in values]
        return data_batch(values, batch.base_offset, batch.epoch, batch.timestamp_ms)

    def append(self, batch: Batch, data: bytes | None = None) -> None:
        """Append a batch.

        Args:
            batch: what.
            data: ``encoded``, if that was made before.

        Raises:
            StorageError: the disk refused.
        """
        data = self.encoded(batch) if data is None else data
        self.log.append_as_follower(data, [read_header(data)])

    def note_epochs(self, epochs: list[OffsetAndEpoch]) -> None:
        """Keep the leader epochs of the log, if they have changed; the next flush writes them."""
        entries = [EpochEntry(entry.epoch, entry.offset) for entry in epochs]
        if list(self.log.epochs) != entries:
            self.log.write_epochs(entries, sync=False)

    def read(self, from_offset: int, max_bytes: int, end_offset: int = LONG_MAX) -> bytes:
        """Return complete batches from an offset on, at least one if possible.

        Args:
            from_offset: not below the log's start.
            max_bytes: limit of more than one batch.
            end_offset: batches that reach beyond it are left out.

        Raises:
            StorageError: the disk refused.
        """
        return self.log.read(from_offset, end_offset, max_bytes, at_least_one_batch=True)

    def truncate(self, end_offset: int) -> None:
        """Make ``end_offset`` the log's end.

        Raises:
            StorageError: the disk refused.
        """
        self.log.truncate_to(end_offset)

    def flush(self) -> None:
        """Bring the log to the disk. Blocks.

        Raises:
            StorageError: the disk refused.
        """
        self.log.flush()

    # The election

    def persist(self, election: ElectionState, kraft_version: int, voters: VoterSet) -> None:
        """Replace ``quorum-state``; it is on the disk when this returns. Blocks.

        Raises:
            OSError: the disk refused.
        """
        self._disk.replace(self._path / FILE_NAME, encode_quorum_state(election, kraft_version, voters.ids))

    # Snapshots

    def install(self, snapshot: OffsetAndEpoch) -> SnapshotHead:
        """Put a fetched snapshot in the place of the log, with any content, and of older snapshots. Blocks.

        Raises:
            TidegaugeError: CORRUPT_MESSAGE, the snapshot is not whole.
            OSError: the disk refused.
        """
        head = self.snapshots.finish(snapshot)
        self._restart_at(snapshot.offset)
        for one in self.snapshots.listed():
            if one != snapshot:
                self._retire(one)
        self.flush()
        return head

    def _restart_at(self, offset: int) -> None:
        self.log.truncate_fully(offset)
        self.log.write_epochs([], sync=True)

    def _retire(self, snapshot: OffsetAndEpoch) -> None:
        delay_ms = self._settings.integer("internal.metadata.delete.delay.millis")
        self._log_directory.delete_later([self.snapshots.retire(snapshot)], self._now_ms() + delay_ms)

    def clean(self, snapshots: list[OffsetAndEpoch], high_watermark: int, wall_ms: int) -> int | None:
        """Delete old snapshots and the records that they hold, as retention says (KafkaRaftLog.maybeClean). Blocks.

        Args:
            snapshots: those that the node knows, ascending.
            high_watermark: nothing above it is deleted.
            wall_ms: the wall-clock time.

        Returns:
            the new start of the log; None if it has not moved.

        Raises:
            StorageError: the disk refused.
        """
        start: int | None = None
        kept = list(snapshots)
        while len(kept) > 1 and self._must_clean(kept, wall_ms) and kept[1].offset <= high_watermark:
            start = kept[1].offset
            self.log.advance_log_start(start)
            self.log.delete_old_segments(high_watermark, wall_ms)
            self._retire(kept.pop(0))
        self._log_directory.remove_due(self._now_ms())
        return start

    def _must_clean(self, snapshots: list[OffsetAndEpoch], wall_ms: int) -> bool:
        max_bytes = self._settings.integer("metadata.max.retention.bytes")
        max_ms = self._settings.integer("metadata.max.retention.ms")
        size = self.log.size_bytes + sum(map(self.snapshots.size_of, snapshots))
        if max_bytes >= 0 and size > max_bytes:
            return True
        return 0 <= max_ms < wall_ms - self.snapshots.head_of(snapshots[0]).last_contained_ms

    def close(self) -> None:
        """Close the log and release the directory. Blocks.

        A disk that refuses has been reported when it did; the log is recovered at the next start.
        """
        try:
            if self._log is not None and not self._log.is_closed:
                self._close_log(self._log)
        finally:
            self._log_directory.unlock()

    @staticmethod
    def _close_log(log: PartitionLog) -> None:
        try:
            log.close()
        except StorageError:
            log.give_up()


def _log_settings(settings: Values) -> LogSettings:
    """Return the settings of the log, without limits of retention.

    The retention settings apply to snapshots.
    """
    segment_bytes = settings["internal.metadata.log.segment.bytes"]
    return LogSettings(
        segment_bytes=settings.integer("metadata.log.segment.bytes") if segment_bytes is None else segment_bytes,
        segment_ms=settings.integer("metadata.log.segment.ms"),
        segment_jitter_ms=0,
        segment_index_bytes=10 * 1024 * 1024,
        index_interval_bytes=4096,
        flush_messages=LONG_MAX,
        flush_ms=LONG_MAX,
        file_delete_delay_ms=settings.integer("internal.metadata.delete.delay.millis"),
        retention_bytes=-1,
        retention_ms=-1,
        cleanup_policy=("delete",),
        delete_retention_ms=0,
        min_compaction_lag_ms=0,
        max_compaction_lag_ms=LONG_MAX,
        min_cleanable_dirty_ratio=0.5,
    )
