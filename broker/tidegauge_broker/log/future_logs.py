"""The future logs of a broker: copies of replicas that move to another of its log directories.

Contract: the event loop owns them, as it owns all logs; ``LogManager`` creates them (``begin_creation``), flushes them,
and writes their offsets into the checkpoints of their own log directory. Source: ``LogManager.futureLogs``,
``preferredLogDirs``, ``replaceCurrentWithFutureLog``, ``asyncDelete``.

Rules:
    1. A future log lies in a directory ``topic-partition.uniqueId-future``. It is found again after a restart; whether
       the copy continues is decided when the replica is hosted again.
    2. The directory that was asked for is remembered until a log of the partition is created in it.
    3. Replacing: the checkpoints of the destination are written, and the future log loses its suffix; from then on it
       is the partition's log. Only then the former log is renamed for deletion. A failure before the rename leaves the
       current log as it is. A failure of the former log's directory afterwards takes the replica nowhere.
    4. A log is not compacted while it has a future log. It may have been, in a process before, while the future log's
       directory was offline: then the copy holds records that compaction has removed from the log since, perhaps with
       their tombstones. So a copy that was found at the start is out of date if the log was ever compacted, or may be:
       a compaction that a kill has ended has no cleaner checkpoint.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.log import producer_snapshot
from tidegauge_broker.log.log_directory import LogDirectory
from tidegauge_broker.log.log_state import LogState
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.epoch_cache import EpochCache
from tidegauge_broker.replica.future_replica import LogSpan
from tidegauge_broker.replica.future_states import FutureReplica
from tidegauge_broker.replica.messages import EpochEntry

FUTURE_SUFFIX = "-future"
_MAX_NAME_LENGTH = 255
_UNIQUE_LENGTH = len(f".{uuid.UUID(int=0).hex}{FUTURE_SUFFIX}")
_MAX_REMEMBERED = 100_000

_logger = logging.getLogger(__name__)


class FutureLogs:
    """The future logs of a broker, by partition; the rules are at the head of this file.

    Args:
        now_ms: the clock of the logs.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._wanted: dict[TopicPartition, LogDirectory] = {}
        self._replicas: dict[TopicPartition, FutureReplica] = {}

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """All future logs."""
        return MappingProxyType(self._logs)

    @property
    def replicas(self) -> Mapping[TopicPartition, FutureReplica]:
        """The state of each future log's replica."""
        return MappingProxyType(self._replicas)

    def remember(self, topic_partition: TopicPartition, log_directory: LogDirectory) -> None:
        """Note where the next log of a partition is to be created (rule 2); the oldest notes are dropped."""
        self._wanted.pop(topic_partition, None)
        self._wanted[topic_partition] = log_directory
        if len(self._wanted) > _MAX_REMEMBERED:
            del self._wanted[next(iter(self._wanted))]

    def wanted_directory(self, topic_partition: TopicPartition) -> LogDirectory | None:
        """Return the log directory that was asked for."""
        return self._wanted.get(topic_partition)

    def created(self, log: PartitionLog) -> None:
        """Forget the wish for a new log, which is fulfilled; take it in if it is a future one."""
        self._wanted.pop(log.topic_partition, None)
        if is_future(log):
            self.add(log)

    def found(self, log: PartitionLog) -> None:
        """Take in a future log that a process before has begun; raises as ``add``."""
        self.add(log, was_found=True)

    def add(self, log: PartitionLog, *, was_found: bool = False) -> None:
        """Take in a future log.

        Raises:
            TidegaugeError: KAFKA_STORAGE_ERROR, the partition has one already.
        """
        other = self._logs.get(log.topic_partition)
        if other is not None:
            raise TidegaugeError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Duplicate log directories found: {log.directory}, {other.directory}; move one of them away",
            )
        log.log_directory.futures[log.topic_partition] = self._logs[log.topic_partition] = log
        self._replicas[log.topic_partition] = FutureReplica(was_found=was_found)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> list[PartitionLog]:
        """Let go of future logs, and return them, so that their directories can be deleted."""
        removed = [self._logs.pop(at) for at in topic_partitions if at in self._logs]
        for log in removed:
            self._replicas.pop(log.topic_partition).enter(None)
            log.log_directory.futures.pop(log.topic_partition, None)
            log.abandon()
        return removed

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete a partition's future log, if it has one.

        Raises:
            StorageError: the disk refused; its log directory is offline.
        """
        for log in self.remove([topic_partition]):
            log.log_directory.delete_logs([log], self._now_ms())

    def drop_offline(self) -> list[TopicPartition]:
        """Let go of the future logs whose log directory failed, and return whose they were. Their files stay."""
        offline = [at for at, log in self._logs.items() if log.log_directory.offline]
        self.remove(offline)
        return offline

    # Truncation of the current log

    def note_truncated(self, topic_partition: TopicPartition, to_offset: int) -> None:
        """Note that the current log was truncated to an offset: a copy that reaches above it must follow."""
        log = self._logs.get(topic_partition)
        if log is not None and to_offset < log.log_end_offset:
            self._replicas[topic_partition].note_truncated(to_offset)

    def follow_truncation(self, topic_partition: TopicPartition, to_offset: int) -> None:
        """Truncate the future log to where the current one was truncated.

        Raises:
            StorageError: the disk refused; its log directory is offline.
        """
        log = self._logs[topic_partition]
        log.truncate_to(to_offset)
        self._keep_epochs(log, log.epochs)
        self._replicas[topic_partition].followed()

    def start_at(self, topic_partition: TopicPartition, offset: int) -> None:
        """Empty the future log and begin it again at an offset.

        Raises:
            StorageError: the disk refused; its log directory is offline.
        """
        log = self._logs[topic_partition]
        log.truncate_fully(offset)
        self._keep_epochs(log, [])
        self._replicas[topic_partition].followed()
        self._replicas[topic_partition].was_found = False

    def is_out_of_date(self, current: PartitionLog) -> bool:
        """Whether the copy of a log may hold records that compaction has removed from the log since (rule 4)."""
        at = current.topic_partition
        was_compacted = current.log_directory.first_dirty_offset(at) is not None
        return self._replicas[at].was_found and (was_compacted or current.settings.compacts)

    # Copying

    def copy(self, current: PartitionLog, max_bytes: int) -> int:
        """Append the current log's next batches to its future log, and return their size in bytes.

        0: nothing is left to copy; any rest, up to the log's end, is a gap that a truncation left.

        Raises:
            StorageError: a disk refused; its log directory is offline.
            TidegaugeError: CORRUPT_MESSAGE, the current log does not hold what its index says.
        """
        future = self._logs[current.topic_partition]
        records = current.read(future.log_end_offset, current.log_end_offset, max_bytes, at_least_one_batch=True)
        if records:
            future.append_as_follower(records, tuple(iterate_headers(records)))
        self._keep_epochs(future, current.epochs)
        return len(records)

    @staticmethod
    def _keep_epochs(log: PartitionLog, entries: Iterable[EpochEntry]) -> None:
        """Write those leader epochs that begin below the log's end, with the next flush."""
        kept = EpochCache(entries)
        kept.truncate_from_end(log.log_end_offset)
        if kept.entries != log.epochs:
            log.write_epochs(kept.entries, sync=False)

    def promote(self, current: PartitionLog) -> PartitionLog:
        """Make the future log the partition's log (rule 3), and return it; the current one is not touched.

        Its checkpoints must be written already. It takes over the current log's producer state, which the
        core holds too, and with all of its leader epochs.

        Raises:
            StorageError: the disk refused, and the destination is offline; the current log is still the log.
        """
        future = self._logs[current.topic_partition]
        home, former = future.log_directory, future.directory
        directory = home.path / str(current.topic_partition)
        future.write_epochs(current.epochs, sync=True)
        state = LogState(
            segments=list(future.segments),
            log_start_offset=future.log_start_offset,
            log_end_offset=current.log_end_offset,
            recovery_point=future.recovery_point,
            producer_state=current.producer_state,
            epochs=list(current.epochs),
            topic_id=future.topic_id,
            former_epoch=current.former_epoch,
            snapshots_owed=[
                producer_snapshot.snapshot_path(directory, offset)
                for offset in producer_snapshot.snapshot_offsets(former)
            ],
        )
        self.remove([current.topic_partition])
        try:
            home.disk.rename(former, directory)
            home.disk.sync_directory(home.path)
        except OSError as error:
            raise home.failed(error, f"renaming {former}") from error
        home.directory_renamed(former, directory)
        for segment in state.segments:
            segment.moved_to(directory)
        return PartitionLog(current.topic_partition, directory, home, state, future.settings, self._now_ms)


def is_future(log: PartitionLog) -> bool:
    """Return whether a log is the copy of a replica that moves."""
    return log.directory.name.endswith(FUTURE_SUFFIX)


def future_name(topic_partition: TopicPartition) -> str:
    """Return a directory name for a future log of any length (LocalLog.logFutureDirName)."""
    return f"{topic_partition}.{uuid.uuid4().hex}{FUTURE_SUFFIX}"


def is_name_too_long(topic_partition: TopicPartition) -> bool:
    """Whether a partition cannot have a future log because of its topic's name."""
    return len(str(topic_partition)) + _UNIQUE_LENGTH > _MAX_NAME_LENGTH


def span_of(log: PartitionLog) -> LogSpan:
    """Return where a log begins and ends, and its leader epochs."""
    return LogSpan(log.log_start_offset, log.log_end_offset, log.epochs)
