"""One log directory (an entry of ``log.dirs``): its lock, its owner, its checkpoint files, and whether it still works.

Rules (LogManager.lockLogDirs, MetaPropertiesEnsemble, LogDirFailureChannel):
    1. One process at a time uses a directory, a broker of Apache Kafka among them: ``.lock`` is held by advisory locks
       that the kernel drops with the process, so a kill leaves nothing to clean up.
    2. A directory belongs to one broker of one cluster, for good (meta.properties).
    3. After an I/O error the directory is offline until the process restarts; all its logs refuse everything.
    4. A corrupt checkpoint is reported and counts as empty: that costs a longer recovery, never a record.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.log import checkpoints
from tidegauge_broker.log.checkpoints import CorruptCheckpoint, OffsetCheckpoint
from tidegauge_broker.log.files import DISK, Disk, StorageError

if TYPE_CHECKING:
    from tidegauge_broker.log.partition_log import PartitionLog

DELETE_SUFFIX = "-delete"
STRAY_SUFFIX = "-stray"
"""The suffix of a log's directory that belongs to no replica any more (KRaft mode); nothing reads it."""
_MAX_NAME_LENGTH = 255

_logger = logging.getLogger(__name__)


class LogDirectory:
    """A locked log directory and the logs in it."""

    def __init__(self, path: Path, disk: Disk = DISK) -> None:
        self.path = path
        self.disk = disk
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.futures: dict[TopicPartition, PartitionLog] = {}
        """Copies of replicas that move here from another log directory (``future_logs.py``)."""
        self.offline = False
        self.failure = ""
        """The reason why it is offline; empty: it is not."""
        self.was_clean = False
        self.is_trusted = True
        """Whether all its logs may be marked as cleanly closed in the end."""
        self.on_failure: Callable[[Path], None] = lambda _path: None
        """Called with the path when the directory goes offline, by the thread that met the failure."""
        self._high_watermarks = OffsetCheckpoint(path / checkpoints.REPLICATION_OFFSET_CHECKPOINT, disk)
        self._recovery_points = OffsetCheckpoint(path / checkpoints.RECOVERY_POINT_CHECKPOINT, disk)
        self._log_start_offsets = OffsetCheckpoint(path / checkpoints.LOG_START_OFFSET_CHECKPOINT, disk)
        self._cleaner_offsets = OffsetCheckpoint(path / checkpoints.CLEANER_OFFSET_CHECKPOINT, disk)
        self._cleaned: dict[TopicPartition, int] = {}
        self._cleaned_lock = threading.Lock()
        self._lock_descriptor = -1
        self.broker_epoch = -1
        """The broker epoch of the registration that ends, for the mark of a clean shutdown (KIP-966)."""
        self._written_starts: dict[TopicPartition, int] = {}
        self._high_watermark_lock = threading.Lock()
        self._recovery_point_lock = threading.Lock()
        self._log_start_lock = threading.Lock()
        self._deletions: dict[Path, int] = {}
        self._deletions_lock = threading.Lock()

    def all_logs(self) -> list[PartitionLog]:
        """Return the future logs and, behind them, the current ones."""
        return [*self.futures.values(), *self.logs.values()]

    # Owning it

    def share(self) -> None:
        """Use the directory under a lock that another part of this process holds.

        Raises:
            StorageError: it cannot be used at all.
        """
        try:
            self.disk.begin(self.path)
        except OSError as error:
            raise self._unusable(error) from None

    def lock(self) -> None:
        """Create the directory if need be, and lock it for this process.

        Raises:
            TidegaugeError: KAFKA_STORAGE_ERROR, another process uses it.
            StorageError: it cannot be used at all.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.path / checkpoints.LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._unusable(error) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock of the other kind excludes Apache Kafka's brokers, which take theirs with FileChannel.tryLock: on
            # Linux the two kinds do not see each other.
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise TidegaugeError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Failed to acquire lock on file {checkpoints.LOCK_FILE} in {self.path}: another broker process is "
                f"using this directory; stop it, or choose another directory in log.dirs",
            ) from None
        self._lock_descriptor = descriptor
        try:
            self.disk.begin(self.path)
        except OSError as error:
            self.unlock()
            raise self._unusable(error) from None

    def _unusable(self, error: OSError) -> StorageError:
        return StorageError(
            f"Log directory {self.path} cannot be used: {error.strerror}; check the path and its permissions"
        )

    def unlock(self) -> None:
        """Release the lock, so that another process can use the directory."""
        if self._lock_descriptor >= 0:
            self.disk.end()
            os.close(self._lock_descriptor)
            self._lock_descriptor = -1

    def claim(self, broker_id: int, cluster_id: str, now_ms: int) -> None:
        """Check that meta.properties names this broker and cluster; write it if it does not exist or lacks one.

        Raises:
            TidegaugeError: INCONSISTENT_CLUSTER_ID, or INVALID_CONFIG for another broker's directory.
            StorageError: the file cannot be read.
        """
        path = self.path / checkpoints.META_PROPERTIES
        try:
            meta = checkpoints.read_meta_properties(self.path)
        except (CorruptCheckpoint, OSError) as problem:
            raise StorageError(f"{path} cannot be read: {problem}") from None
        if meta is not None and meta.cluster_id not in {None, cluster_id}:
            raise TidegaugeError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Invalid cluster.id in {path}: expected {cluster_id}, but read {meta.cluster_id}; the directory "
                f"belongs to another cluster, so use another one, or connect to that cluster",
            )
        if meta is not None and meta.broker_id not in {None, broker_id}:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG,
                f"Stored node id {meta.broker_id} doesn't match previous node id {broker_id} in {path}: the directory "
                f"belongs to broker {meta.broker_id}; set broker.id to {meta.broker_id}, or use another directory",
            )
        if meta is None or None in meta:
            checkpoints.write_meta_properties(self.path, broker_id, cluster_id, now_ms, self.disk)

    # Failing

    def check_online(self) -> None:
        """Refuse if the log directory has failed.

        Raises:
            StorageError: it has.
        """
        if self.offline:
            raise StorageError(f"The log dir {self.path} is already offline due to a previous IO exception")

    def failed(self, error: OSError, what: str) -> StorageError:
        """Take the directory offline; returns the error to raise."""
        words = f"Error while {what} in dir {self.path}: {error.strerror or error}"
        was_online, self.offline = not self.offline, True
        _logger.error("Error while %s in dir %s: %s; the directory is offline now", what, self.path, error)
        if was_online:
            self.failure = words
            self.on_failure(self.path)
        return StorageError(words)

    # Deleting

    def delete_later(self, paths: Iterable[Path], at_ms: int) -> None:
        """Note files and directories to be removed from a time (ms) on."""
        with self._deletions_lock:
            self._deletions.update(dict.fromkeys(paths, at_ms))

    def delete_logs(self, logs: Sequence[PartitionLog], now_ms: int) -> None:
        """Rename the directories of logs that nothing uses any more, and note them to be removed later.

        The log directory is synced, and its checkpoints are written, once.

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        self.check_online()
        directory = self.path
        try:
            for log in logs:
                directory = log.directory
                renamed = self.path / deleted_name(log.topic_partition, uuid.uuid4().hex)
                self.disk.rename(directory, renamed)
                self.delete_later([renamed], now_ms + log.settings.file_delete_delay_ms)
                _logger.info(
                    "Log for partition %s is renamed to %s and is scheduled for deletion", log.topic_partition, renamed
                )
            self.disk.sync_directory(self.path)
        except OSError as error:
            raise self.failed(error, f"renaming {directory}") from error
        self.write_recovery_points()
        self.write_log_start_offsets()
        self._forget_high_watermarks()
        for log in logs:
            self.forget_cleaned(log.topic_partition)

    def set_aside(self, log: PartitionLog) -> None:
        """Rename the directory of a log that belongs to no replica any more; its files stay, for the operator.

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        renamed = self.path / deleted_name(log.topic_partition, uuid.uuid4().hex, STRAY_SUFFIX)
        try:
            self.disk.rename(log.directory, renamed)
            self.disk.sync_directory(self.path)
        except OSError as error:
            raise self.failed(error, f"renaming {log.directory}") from error
        _logger.info("The log of %s is stray and is renamed to %s", log.topic_partition, renamed)
        self.write_recovery_points()
        self.write_log_start_offsets()
        self._forget_high_watermarks()
        self.forget_cleaned(log.topic_partition)

    def directory_renamed(self, former: Path, path: Path) -> None:
        """Follow the rename of a log's directory: files in it that wait to be removed are now elsewhere."""
        with self._deletions_lock:
            self._deletions = {
                path / file.name if file.parent == former else file: at_ms for file, at_ms in self._deletions.items()
            }

    def remove_due(self, now_ms: int) -> None:
        """Remove the files whose delete delay is over. Blocks.

        Raises:
            StorageError: the disk refused; the directory is offline.
        """
        with self._deletions_lock:
            due = [path for path, at_ms in self._deletions.items() if at_ms <= now_ms]
            for path in due:
                del self._deletions[path]
        for path in due:
            try:
                if path.is_dir():
                    self.disk.remove_directory(path)
                    _logger.info("Deleted log %s", path)
                else:
                    self.disk.remove(path)
            except FileNotFoundError:
                continue  # it was removed with its partition's directory
            except OSError as error:
                raise self.failed(error, f"deleting {path}") from error

    # Closing

    def close_logs(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Close all logs, write the checkpoints; and the clean-shutdown mark if every log was closed cleanly."""
        try:
            self.write_high_watermarks(lambda: high_watermarks)
            for log in self.all_logs():
                self._close_log(log)
            self.write_recovery_points()
            self.write_log_start_offsets()
            if self.is_trusted:
                checkpoints.write_clean_shutdown(self.path, self.disk, self.broker_epoch)
        except (StorageError, OSError) as error:
            _logger.error("%s was not closed cleanly: %s", self.path, error)  # noqa: TRY400 - the error says it all

    @staticmethod
    def _close_log(log: PartitionLog) -> None:
        if log.is_closed:
            return
        try:
            log.close()
        except StorageError:
            raise
        except Exception as error:  # noqa: BLE001 - one log that can't be closed must not keep the others from it
            _logger.error("The log of %s could not be closed: %r", log.topic_partition, error)  # noqa: TRY400 - as above
            log.give_up()

    # Checkpoints

    def create_checkpoints(self) -> None:
        """Make those files that are missing, empty, as Kafka does when it starts (CheckpointFile's constructor).

        Raises:
            OSError: the disk refused.
        """
        for checkpoint in (
            self._high_watermarks,
            self._recovery_points,
            self._log_start_offsets,
            self._cleaner_offsets,
        ):
            checkpoint.create_missing()

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """Read replication-offset-checkpoint; empty if it is corrupt."""
        return self._read(self._high_watermarks)

    def read_recovery_points(self) -> dict[TopicPartition, int]:
        """Read recovery-point-offset-checkpoint; empty if it is corrupt: then everything is recovered."""
        return self._read(self._recovery_points)

    def read_log_start_offsets(self) -> dict[TopicPartition, int]:
        """Read log-start-offset-checkpoint; empty if it is corrupt."""
        self._written_starts = self._read(self._log_start_offsets)
        return dict(self._written_starts)

    def load_cleaner_offsets(self) -> None:
        """Read cleaner-offset-checkpoint; if it is corrupt, everything counts as not compacted yet."""
        self._cleaned = self._read(self._cleaner_offsets)

    def first_dirty_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset below which a log was compacted, or None."""
        return self._cleaned.get(topic_partition)

    def note_cleaned(
        self, topic_partition: TopicPartition, first_dirty_offset: int, *, is_void: Callable[[], bool] = lambda: False
    ) -> None:
        """Write how far a log has been compacted, unless that is void: no truncation or deletion can come between."""
        with self._cleaned_lock:
            if is_void():
                return
            self._cleaned[topic_partition] = first_dirty_offset
            self._write(self._cleaner_offsets, self._cleaned)

    def lower_cleaned(self, topic_partition: TopicPartition, offset: int) -> None:
        """Lower a truncated log's cleaner checkpoint: what comes above the offset is not compacted."""
        with self._cleaned_lock:
            if self._cleaned.get(topic_partition, 0) > offset:
                self._cleaned[topic_partition] = offset
                self._write(self._cleaner_offsets, self._cleaned)

    def forget_cleaned(self, topic_partition: TopicPartition) -> None:
        """Remove a deleted log from the cleaner checkpoint."""
        with self._cleaned_lock:
            if self._cleaned.pop(topic_partition, None) is not None:
                self._write(self._cleaner_offsets, self._cleaned)

    @staticmethod
    def _read(checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
        try:
            return checkpoint.read()
        except CorruptCheckpoint as problem:
            _logger.warning("%s; it is treated as empty", problem)
            return {}

    def fit_checkpoints(
        self, named: AbstractSet[TopicPartition], high_watermarks: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Fit the checkpoints to the logs that were loaded, and return the high watermarks that fit.

        A process that is killed between a deletion or a truncation and the checkpoints leaves some that name logs which
        do not exist here any more, or offsets beyond a log's end. They do not apply to the log of a new topic of that
        name, nor to records appended behind that end.

        Args:
            named: the partitions in the checkpoints of recovery points and log start offsets.
            high_watermarks: replication-offset-checkpoint.

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        ends = {log.topic_partition: log.log_end_offset for log in self.all_logs()}
        if named - ends.keys():
            self.write_recovery_points()
        with self._cleaned_lock:
            cleaned = _fitted(self._cleaned, ends)
            if cleaned != self._cleaned:
                self._cleaned = cleaned
                self._write(self._cleaner_offsets, cleaned)
        fitted = _fitted(high_watermarks, ends)
        if fitted != high_watermarks:
            self.write_high_watermarks(lambda: fitted)
        return fitted

    def write_high_watermarks(self, values_of: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """Replace replication-offset-checkpoint.

        The values are asked for under the lock: else a pool thread could write an older, higher one over the one that a
        truncation has just lowered.
        """
        with self._high_watermark_lock:
            self._write(self._high_watermarks, values_of())

    def _forget_high_watermarks(self) -> None:
        """Remove deleted logs from replication-offset-checkpoint.

        The log of a new topic of that name would else begin with the deleted one's high watermark, if the broker is
        killed before the next checkpoint.
        """
        with self._high_watermark_lock:
            written = self._read(self._high_watermarks)
            left = {at: value for at, value in written.items() if at in self.logs or at in self.futures}
            if left != written:
                self._write(self._high_watermarks, left)

    def write_recovery_points(self) -> None:
        """Replace recovery-point-offset-checkpoint from the logs.

        The points are read under the lock: else a pool thread could write an older, higher one over the point
        that a truncation has just lowered. A point that a log start took along is worth nothing without that log start,
        which is therefore written first.
        """
        with self._recovery_point_lock:
            logs = self.all_logs()
            points = {log.topic_partition: log.recovery_point for log in logs}
            if self._starts() != self._written_starts:
                self.write_log_start_offsets()
            self._write(self._recovery_points, points)

    def write_log_start_offsets(self) -> None:
        """Replace log-start-offset-checkpoint: only where the start lies above the first segment's base."""
        with self._log_start_lock:
            starts = self._starts()
            self._write(self._log_start_offsets, starts)
            self._written_starts = starts

    def _starts(self) -> dict[TopicPartition, int]:
        logs = self.all_logs()
        return {log.topic_partition: log.log_start_offset for log in logs if log.starts_inside_a_segment}

    def _write(self, checkpoint: OffsetCheckpoint, values: Mapping[TopicPartition, int]) -> None:
        self.check_online()
        try:
            checkpoint.write(values)
        except OSError as error:
            raise self.failed(error, f"writing {checkpoint.path.name}") from error


def _fitted(offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {at: min(offset, ends[at]) for at, offset in offsets.items() if at in ends}


def deleted_name(topic_partition: TopicPartition, unique: str, suffix: str = DELETE_SUFFIX) -> str:
    """Return the directory name of a deleted log, at most 255 characters (LocalLog.logDeleteDirName)."""
    ending = f"-{topic_partition.partition}.{unique}{suffix}"
    return topic_partition.topic[: _MAX_NAME_LENGTH - len(ending)] + ending
