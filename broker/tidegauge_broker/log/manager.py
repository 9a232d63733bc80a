"""LogManager: all logs of a broker in its log directories, from the lock at start to the clean-shutdown mark.

Contract: ``open`` returns when every log is loaded and, where needed, recovered. The event loop owns the logs;
``flush_dirty`` and ``remove_deleted`` block and belong into a pool thread. I/O errors become StorageError and take
their log directory offline. Source: kafka.log.LogManager (loadLogs, shutdown, asyncDelete).

Rules:
    1. Start: lock all log directories, check their owner, take the clean-shutdown mark away, load.
    2. A new log goes to the log directory that is online and has the fewest logs.
    3. A deleted log's directory is renamed at once and removed after file.delete.delay.ms, also over a restart.
    4. The mark is written only if every log of the directory was closed without an error.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.wall_time import WallTime
from tidegauge_broker.log.cleaner_manager import CleanerManager
from tidegauge_broker.log.creation import Creation, NewLog, Place, at_a_time
from tidegauge_broker.log.deletion import LogDeletion
from tidegauge_broker.log.files import DISK, Disk, StorageError
from tidegauge_broker.log.future_logs import FutureLogs, is_future
from tidegauge_broker.log.loading import LogLoading
from tidegauge_broker.log.log_directory import LogDirectory
from tidegauge_broker.log.log_state import LogSettings
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.ports import LoadedLog

_logger = logging.getLogger(__name__)

Item = TypeVar("Item")


class Owner(Protocol):
    """Whose the log directories are."""

    def take(self, log_directory: LogDirectory, /) -> None:
        """Lock a directory for this process, unless it is locked already, and check that it is this broker's.

        Raises:
            TidegaugeError: it is another process's or broker's.
            StorageError: it cannot be used.
        """


class LogManager:
    """The logs of a broker, in all its log directories; made by ``open``."""

    def __init__(
        self,
        log_directories: Sequence[LogDirectory],
        *,
        broker: Values,
        topic_values: Callable[[str], Values],
        now_ms: Callable[[], int],
        wall: WallTime | None = None,
    ) -> None:
        self._log_directories = log_directories
        self.directories = [log_directory.path for log_directory in self._log_directories]  # in the order of log.dirs
        self._broker = broker
        self._topic_values = topic_values
        self._now_ms = now_ms
        self._wall = WallTime() if wall is None else wall
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._high_watermarks: dict[TopicPartition, int] = {}
        self.futures = FutureLogs(now_ms)
        self.compaction = CleanerManager(self._logs, self.futures, broker, now_ms, self._wall)
        self.on_directory_failure: Callable[[Path], None] = lambda _path: None
        """Called when a directory goes offline, by whichever thread met the failure."""

    @classmethod
    def open(
        cls,
        directories: Sequence[Path],
        *,
        broker_id: int,
        cluster_id: str,
        broker: Values,
        topic_values: Callable[[str], Values],
        now_ms: Callable[[], int],
        disk_of: Callable[[Path], Disk] = lambda _directory: DISK,
        wall: WallTime | None = None,
        owner: Owner | None = None,
    ) -> LogManager:
        """Lock the log directories, check their owner, load and recover all logs.

        A directory that cannot be used or read is offline from the start, as long as there is another.

        Args:
            directories: in the order of ``log.dirs``.
            broker_id: this broker.
            cluster_id: its cluster.
            broker: its settings.
            topic_values: returns a topic's settings.
            now_ms: a clock that never goes back.
            disk_of: returns what changes the files of a directory.
            wall: how far the wall clock is ahead of that clock.
            owner: locks and checks the directories; None: as ZooKeeper mode has them.

        Raises:
            TidegaugeError: one sentence: a directory is locked by another process, is another broker's or another
                cluster's, or none of them can be used.
        """
        log_directories = [LogDirectory(path, disk_of(path)) for path in directories]
        manager = cls(log_directories, broker=broker, topic_values=topic_values, now_ms=now_ms, wall=wall)
        try:
            if owner is None:
                manager._each_usable(LogDirectory.lock)
                manager._each_usable(lambda log_directory: log_directory.claim(broker_id, cluster_id, now_ms()))
            else:
                manager._each_usable(owner.take)
            manager._each_usable(manager._load)
        except BaseException:
            manager._unlock()
            raise
        return manager

    def _each_usable(self, step: Callable[[LogDirectory], None]) -> None:
        """Run a start step for each online log directory; one that fails goes offline, and the last one is fatal."""
        failure: StorageError | None = None
        for log_directory in self._log_directories:
            if log_directory.offline:
                continue
            try:
                step(log_directory)
            except OSError as problem:
                failure = log_directory.failed(problem, "loading logs")
            except StorageError as error:
                log_directory.offline, failure = True, error
                _logger.error("%s; the log directory is offline", error.message)  # noqa: TRY400 - the sentence says it all
            if log_directory.offline:
                for topic_partition, log in log_directory.logs.items():
                    log.abandon()
                    del self._logs[topic_partition]
                log_directory.logs.clear()
                self.futures.drop_offline()
        if failure is not None and all(log_directory.offline for log_directory in self._log_directories):
            raise failure

    def _unlock(self) -> None:
        for log in (*self._logs.values(), *self.futures.logs.values()):
            log.abandon()
        for log_directory in self._log_directories:
            log_directory.unlock()

    # Loading

    def _load(self, log_directory: LogDirectory) -> None:
        log_directory.on_failure = self._directory_failed
        loading = LogLoading(log_directory, self._broker, self._topic_values, self._now_ms)
        for log in loading.logs():
            if is_future(log):
                self.futures.found(log)
                continue
            other = self._logs.get(log.topic_partition)
            if other is not None:
                log.abandon()
                raise TidegaugeError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"Duplicate log directories for {log.topic_partition} are found in both {other.directory} and "
                    f"{log.directory}. It is likely that the broker ended, or a log directory failed, while it "
                    "replaced the current replica with the future replica; move one of the two away: the one in the "
                    "log directory that failed",
                )
            log_directory.logs[log.topic_partition] = self._logs[log.topic_partition] = log
        high_watermarks = log_directory.fit_checkpoints(loading.named, loading.high_watermarks)
        self._high_watermarks.update((at, value) for at, value in high_watermarks.items() if at in log_directory.logs)

    def _directory_failed(self, path: Path) -> None:
        self.on_directory_failure(path)

    # Finding logs

    @property
    def logs(self) -> Mapping[TopicPartition, PartitionLog]:
        """All logs, including logs of offline directories."""
        return MappingProxyType(self._logs)

    @property
    def offline_directories(self) -> list[Path]:
        """Log directories that failed."""
        return [log_directory.path for log_directory in self._log_directories if log_directory.offline]

    @property
    def failures(self) -> list[str]:
        """The reasons why log directories are offline, in words."""
        return [log_directory.failure for log_directory in self._log_directories if log_directory.offline]

    def directory_at(self, path: str) -> LogDirectory:
        """Return a log directory by its absolute path, as ``log.dirs`` has it.

        Raises:
            TidegaugeError: LOG_DIR_NOT_FOUND.
        """
        found = next((one for one in self._log_directories if os.path.abspath(one.path) == path), None)  # noqa: PTH100 - no access
        if found is None:
            raise TidegaugeError(ErrorCode.LOG_DIR_NOT_FOUND, f"Log dir {path} is not found in the config.")
        return found

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Return a partition's log, if there is one."""
        return self._logs.get(topic_partition)

    def get_or_create(self, topic_partition: TopicPartition, topic_id: str, *, is_new: bool) -> PartitionLog:
        """Return a partition's log; create it if it does not exist.

        Args:
            topic_partition: whose log.
            topic_id: the controller's id for the topic, 22 characters; empty if it has none.
            is_new: the controller says that the replica is new; then no offline directory can hold it already.

        Raises:
            TidegaugeError: INCONSISTENT_TOPIC_ID, the log belongs to an earlier topic of that name.
            StorageError: its log directory is offline, or it might lie in one that is, or the disk refused.
        """
        if topic_partition not in self._logs:
            creation = self.begin_creation([NewLog(topic_partition, topic_id, is_new)])
            creation.build()
            self.adopt(creation)
            if creation.refused:
                raise creation.refused[topic_partition]
        log = self._logs[topic_partition]
        log.log_directory.check_online()
        if topic_id and log.topic_id and log.topic_id != topic_id:
            raise TidegaugeError(
                ErrorCode.INCONSISTENT_TOPIC_ID,
                f"Topic id in memory: {log.topic_id} does not match the topic id for partition {topic_partition} "
                f"provided in the request: {topic_id}",
            )
        if topic_id and not log.topic_id:
            log.write_topic_id(topic_id)
        return log

    def begin_creation(self, wanted: Sequence[NewLog]) -> Creation:
        """Choose a directory for each log that does not exist. Then ``build`` it in the pool, and ``adopt`` it here."""
        places: list[Place] = []
        refused: dict[TopicPartition, StorageError] = {}
        offline = self.offline_directories
        numbers = {
            log_directory: len(log_directory.all_logs())
            for log_directory in self._log_directories
            if not log_directory.offline
        }
        settings = {topic: LogSettings.of(self._topic_values(topic)) for topic in {new[0].topic for new in wanted}}
        for new in {new.topic_partition: new for new in wanted}.values():  # a request may name one twice
            if new.topic_partition in (self.futures.logs if new.is_future else self._logs):
                continue
            if not new.is_new and offline:
                names = ", ".join(map(str, offline))
                refused[new.topic_partition] = StorageError(
                    f"Can not create log for {new.topic_partition} because log directories {names} are offline"
                )
            elif not numbers:
                refused[new.topic_partition] = StorageError(
                    f"No log directories available for creating log for {new.topic_partition}"
                )
            else:
                wanted_directory = self.futures.wanted_directory(new.topic_partition)
                log_directory = wanted_directory or min(numbers, key=lambda candidate: numbers[candidate])
                numbers[log_directory] = numbers.get(log_directory, 0) + 1
                places.append(Place(new, log_directory, settings[new.topic_partition.topic]))
        return Creation(places, refused, self._now_ms)

    def adopt(self, creation: Creation) -> None:
        """Take new logs in, once they are built. Runs on the event loop."""
        for log in creation.built:
            self.futures.created(log)
            if not is_future(log):
                log.log_directory.logs[log.topic_partition] = self._logs[log.topic_partition] = log
            _logger.info("Created log for partition %s in %s", log.topic_partition, log.directory)

    def loaded(self, topic_partition: TopicPartition) -> LoadedLog:
        """Return a partition's loaded state, with the checkpointed high watermark.

        The high watermark is clamped to the log.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, there is no such log.
        """
        log = self._existing(topic_partition)
        high_watermark = self._high_watermarks.get(topic_partition, 0)
        return LoadedLog(
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            high_watermark=min(max(high_watermark, log.log_start_offset), log.log_end_offset),
            epochs=list(log.epochs),
            producer_state=log.producer_state,
            former_epoch=log.former_epoch,
        )

    def _existing(self, topic_partition: TopicPartition) -> PartitionLog:
        log = self._logs.get(topic_partition)
        if log is None:
            raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"This broker has no log of {topic_partition}")
        return log

    def bytes_between(self, topic_partition: TopicPartition, from_offset: int, end_offset: int) -> int | None:
        """Bytes of the batches from the one that holds ``from_offset`` up to ``end_offset`` (exclusive).

        The core asks in the middle of a step, so nothing is raised: None, where the log can't be read there.
        """
        try:
            return self._existing(topic_partition).bytes_between(from_offset, end_offset)
        except Exception as problem:  # noqa: BLE001 - the read that follows meets it again, and reports it
            _logger.warning("%s can't be read from offset %d: %r", topic_partition, from_offset, problem)
            return None

    def settings_changed(self, topic: str) -> None:
        """Apply a topic's changed settings to its logs."""
        for topic_partition, log in (*self._logs.items(), *self.futures.logs.items()):
            if topic_partition.topic == topic:
                log.settings = LogSettings.of(self._topic_values(topic))

    # Checkpoints

    def note_high_watermarks(self, values: Mapping[TopicPartition, int]) -> None:
        """Take in high watermarks for the next checkpoint, in the turn of the event loop in which the core gave them.

        A log that is truncated or deleted after that must not get its former one.
        """
        self._high_watermarks.update((tp, value) for tp, value in values.items() if tp in self._logs)

    def write_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint; a log without a noted high watermark keeps its entry. Blocks.

        Raises:
            StorageError: the disk of one log directory refused; the others were written.
        """
        self._each_online(self._write_high_watermarks)

    def _write_high_watermarks(self, log_directory: LogDirectory) -> None:
        # A copy, because the loop may delete a log meanwhile.
        log_directory.write_high_watermarks(lambda: _of_logs(log_directory, dict(self._high_watermarks)))

    def lower_high_watermark(self, topic_partition: TopicPartition, to_offset: int) -> None:
        """Lower a log's replication-offset-checkpoint before a truncation: it must not exceed the log's end.

        After a crash the next process would otherwise take records written there since for committed.

        Raises:
            StorageError: the disk refused.
        """
        if self._high_watermarks.get(topic_partition, 0) > to_offset:
            self._high_watermarks[topic_partition] = to_offset
            # The others' disks are not this partition's concern.
            self._write_high_watermarks(self._existing(topic_partition).log_directory)

    def write_recovery_points(self) -> None:
        """Write recovery-point-offset-checkpoint.

        Raises:
            StorageError: the disk of one log directory refused; the others were written.
        """
        self._each_online(LogDirectory.write_recovery_points)

    def write_log_start_offsets(self) -> None:
        """Write log-start-offset-checkpoint.

        Raises:
            StorageError: the disk of one log directory refused; the others were written.
        """
        self._each_online(LogDirectory.write_log_start_offsets)

    def _each_online(self, action: Callable[[LogDirectory], None]) -> None:
        self._all(action, [log_directory for log_directory in self._log_directories if not log_directory.offline])

    @staticmethod
    def _all(action: Callable[[Item], None], items: Iterable[Item]) -> None:
        """Do it for all, then raise the first refusal: one bad disk must not stop the others."""
        refusal: StorageError | None = None
        for item in items:
            try:
                action(item)
            except StorageError as error:
                refusal = refusal or error
        if refusal is not None:
            raise refusal

    def write_epochs(self, logs: Sequence[PartitionLog]) -> None:
        """Write the leader epochs that were changed and not synced, some logs at a time. Blocks.

        A log directory whose disk refuses is offline afterwards.
        """

        def write(log: PartitionLog) -> None:
            with suppress(StorageError):
                log.write_owed_epochs()

        at_a_time(write, logs)

    def flush_dirty(self) -> None:
        """Bring rolled segments to the disk. Blocks.

        Raises:
            StorageError: the disk of one log directory refused; the others were flushed.
        """
        self._all(PartitionLog.flush_rolled, [log for log in self._online_logs() if log.is_dirty])

    def _online_logs(self) -> list[PartitionLog]:
        logs = (*list(self._logs.values()), *list(self.futures.logs.values()))
        return [log for log in logs if not log.log_directory.offline]

    def flush_due(self) -> None:
        """Bring logs wholly to the disk whose flush.ms is over (LogManager.flushDirtyLogs). Blocks.

        Raises:
            StorageError: the disk of one log directory refused; the others were flushed.
        """
        self._all(PartitionLog.flush_if_due, self._online_logs())

    def sync(self, topic_partition: TopicPartition) -> int:
        """Sync one log to the disk, its active segment too: a loss of power leaves all of it. Blocks.

        Returns:
            Its recovery point: all below this offset is on the disk.

        Raises:
            TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION, there is no such log.
            StorageError: the disk refused; the log directory is offline.
        """
        log = self._existing(topic_partition)
        log.flush()
        log.log_directory.write_recovery_points()
        return log.recovery_point

    # Deleting

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete a log: its directory is renamed now, and removed by ``remove_deleted`` later.

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        self.delete_all([topic_partition])

    def delete_all(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Delete many logs, and their future logs; each log directory is synced and its checkpoints are written once.

        Raises:
            StorageError: the disk of one log directory refused, and it is offline; the logs of the others are deleted.
        """
        deletion = self.begin_deletion()
        self.let_go(topic_partitions, deletion)
        deletion.carry_out()
        if deletion.refusals:
            raise deletion.refusals[0]

    def begin_deletion(self) -> LogDeletion:
        """Return what takes logs by ``let_go``, and deletes them in the pool."""
        return LogDeletion(self._now_ms)

    def let_go(self, topic_partitions: Iterable[TopicPartition], deletion: LogDeletion) -> None:
        """Use these logs, and their future logs, no longer, and hand them to a deletion."""
        wanted = set(topic_partitions)
        logs = [self._logs.pop(at) for at in wanted if at in self._logs]
        for log in logs:
            del log.log_directory.logs[log.topic_partition]
            self._high_watermarks.pop(log.topic_partition, None)
            self.compaction.forget(log.topic_partition)
            log.abandon()
        deletion.logs += [*logs, *self.futures.remove(wanted)]

    def housekeeping(self, high_watermarks: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Let old segments of logs go that are not compacted (the cleaner looks after the others).

        The event loop's: it renames files and changes logs; ``remove_deleted`` removes the files later.

        Returns:
            New log start offsets. A log directory whose disk refuses is offline afterwards; the others are handled.
        """
        logs = [log for at, log in self._logs.items() if not log.settings.compacts and at not in self.futures.logs]
        return self._delete_old_segments(logs, high_watermarks)

    def housekeeping_of_compacted(self, high_watermarks: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete old segments of compacted logs: the cleaner does it (LogCleanerManager.deletableLogs)."""
        logs = [log for at, log in self._logs.items() if log.settings.compacts and at not in self.futures.logs]
        return self._delete_old_segments(logs, high_watermarks)

    def _delete_old_segments(
        self, logs: Sequence[PartitionLog], high_watermarks: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        starts: dict[TopicPartition, int] = {}
        wall_ms = self._wall.at(self._now_ms())
        for log in logs:
            high_watermark = high_watermarks.get(log.topic_partition)
            # A failure is reported by the directory itself; the moves of the others must not get lost for it.
            try:
                if high_watermark is not None and log.delete_old_segments(high_watermark, wall_ms):
                    starts[log.topic_partition] = log.log_start_offset
            except StorageError:
                continue
            except Exception:
                _logger.exception("Retention failed for %s; the other logs are looked after", log.topic_partition)
        return starts

    def remove_deleted(self) -> None:
        """Remove the files of deleted segments and logs whose time has come. Blocks.

        Raises:
            StorageError: the disk of one log directory refused; the others were looked after.
        """
        now_ms = self._now_ms()
        self._each_online(lambda log_directory: log_directory.remove_due(now_ms))

    # Moving between log directories

    def replace_with_future(self, topic_partition: TopicPartition, high_watermark: int) -> None:
        """Make the future log the partition's log, and delete the former one (``FutureLogs``, rule 3).

        Raises:
            StorageError: a disk refused, and its log directory is offline: the destination's, then the current log is
                still the log; or the former log's, then the replica has moved.
        """
        current, home = self._logs[topic_partition], self.futures.logs[topic_partition].log_directory
        self._high_watermarks[topic_partition] = high_watermark
        self._write_high_watermarks(home)
        home.write_recovery_points()
        home.write_log_start_offsets()
        first_dirty_offset = current.log_directory.first_dirty_offset(topic_partition)
        if first_dirty_offset is None:
            home.forget_cleaned(topic_partition)
        else:
            home.note_cleaned(topic_partition, first_dirty_offset)
        log = self.futures.promote(current)
        home.logs[topic_partition] = self._logs[topic_partition] = log
        del current.log_directory.logs[topic_partition]
        current.abandon()
        _logger.info("The current replica is successfully replaced with the future replica for %s", topic_partition)
        current.log_directory.delete_logs([current], self._now_ms())

    def set_strays_aside(self, is_stray: Callable[[TopicPartition, str], bool]) -> None:
        """Rename the directories of logs that belong to no replica of this broker any more. Blocks.

        A log directory whose disk refuses is offline afterwards (``LogManager.isStrayReplica``).

        Args:
            is_stray: says so of a partition and the topic id in its directory, which may be empty.
        """
        strays = [log for at, log in self._logs.items() if is_stray(at, log.topic_id)]
        for log in strays:
            del self._logs[log.topic_partition]
            del log.log_directory.logs[log.topic_partition]
            self._high_watermarks.pop(log.topic_partition, None)
            log.abandon()
            if not log.log_directory.offline:
                with suppress(StorageError):
                    log.log_directory.set_aside(log)

    # Ending

    def close(
        self, high_watermarks: Mapping[TopicPartition, int], *, clean: bool = True, broker_epoch: int = -1
    ) -> None:
        """Flush and close all logs, write the checkpoints and the clean-shutdown mark, unlock.

        A log directory that fails on the way gets no mark, and so is recovered at the next start. With ``clean`` false
        everything is left as it is. The mark has the broker epoch of KRaft mode.
        """
        if clean:
            self.note_high_watermarks(high_watermarks)
            for log_directory in self._log_directories:
                log_directory.broker_epoch = broker_epoch
                if not log_directory.offline:
                    log_directory.close_logs(_of_logs(log_directory, self._high_watermarks))
        self._unlock()


def _of_logs(log_directory: LogDirectory, high_watermarks: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return a directory's high watermarks, a future log's clamped to its end."""
    futures = {
        at: min(high_watermarks[at], log.log_end_offset)
        for at, log in list(log_directory.futures.items())
        if at in high_watermarks
    }
    return futures | {at: high_watermarks[at] for at in list(log_directory.logs) if at in high_watermarks}
