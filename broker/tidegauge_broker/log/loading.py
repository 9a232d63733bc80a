"""Loading the logs of one log directory at the start of a broker.

Rules (LogManager.loadLogs, LogLoader):
    1. A damaged log heals or takes its own directory offline; it never keeps the other directories from starting.
       A log that is shorter than it was at a clean stop is recovered as after a crash (``recovery.py``); if a log can't
       be loaded even so, that is an error of its directory.
    2. A log whose deletion a process before had begun stays deleted: that process may have been killed before it
       synced the rename, which a loss of power would then take back, after the deletion was reported. (Kafka does not.)
    3. A directory that holds something else than logs is an operator's mistake, and no broker starts over it. The
       metadata log of KRaft mode is not among the logs here.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge_broker.log import checkpoints
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.future_logs import FUTURE_SUFFIX
from tidegauge_broker.log.log_directory import DELETE_SUFFIX, STRAY_SUFFIX, LogDirectory
from tidegauge_broker.log.log_state import LogSettings, LogState
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.log.recovery import LoadPlan, load_log
from tidegauge_broker.metadata_log.formatting import METADATA_PARTITION

_logger = logging.getLogger(__name__)


class LogLoading:
    """The logs of a directory and its checkpoints, as the process before left them.

    Attributes:
        high_watermarks: replication-offset-checkpoint.
        named: the partitions in the checkpoints of recovery points and log start offsets.
    """

    def __init__(
        self,
        log_directory: LogDirectory,
        broker: Values,
        topic_values: Callable[[str], Values],
        now_ms: Callable[[], int],
    ) -> None:
        self._log_directory = log_directory
        self._broker = broker
        self._topic_values = topic_values
        self._now_ms = now_ms
        self._clean = log_directory.was_clean = checkpoints.take_clean_shutdown(log_directory.path, log_directory.disk)
        if not self._clean:
            _logger.info(
                "Attempting recovery for all logs in %s since no clean shutdown file was found", log_directory.path
            )
        log_directory.create_checkpoints()
        self._recovery_points = log_directory.read_recovery_points()
        self._log_start_offsets = log_directory.read_log_start_offsets()
        self.named = self._recovery_points.keys() | self._log_start_offsets.keys()
        self.high_watermarks = log_directory.read_high_watermarks()
        log_directory.load_cleaner_offsets()

    def logs(self) -> Iterator[PartitionLog]:
        """Load all logs, recovering what needs it, with num.recovery.threads.per.data.dir threads.

        Raises:
            OSError: the disk refused.
            StorageError: a log can't be loaded.
            TidegaugeError: KAFKA_STORAGE_ERROR, there is something else than logs.
        """
        threads = self._broker.integer("num.recovery.threads.per.data.dir")
        with ThreadPoolExecutor(threads, thread_name_prefix="log-recovery") as pool:
            yield from pool.map(self._load, self._find_logs())

    def _load(self, found: tuple[TopicPartition, Path]) -> PartitionLog:
        topic_partition, directory = found
        recovery_point = self._recovery_points.get(topic_partition, 0)
        plan = LoadPlan(
            clean=self._clean,
            recovery_point=recovery_point,
            log_start_offset=self._log_start_offsets.get(topic_partition, 0),
            now_ms=self._now_ms(),
            producer_id_expiration_ms=self._broker.integer("producer.id.expiration.ms"),
            disk=self._log_directory.disk,
            synced_offset=max(recovery_point, self._log_directory.first_dirty_offset(topic_partition) or 0),
        )
        settings = LogSettings.of(self._topic_values(topic_partition.topic))
        state = self._healed(directory, settings, plan)
        return PartitionLog(topic_partition, directory, self._log_directory, state, settings, self._now_ms)

    @staticmethod
    def _healed(directory: Path, settings: LogSettings, plan: LoadPlan) -> LogState:
        """Rule 1."""
        try:
            return load_log(directory, settings, plan)
        except OSError:
            raise
        except Exception as problem:
            _logger.exception("%s can't be loaded as it is; all of it is recovered", directory)
            try:
                return load_log(directory, settings, replace(plan, clean=False, recovery_point=0))
            except OSError:
                raise
            except Exception as again:  # noqa: BLE001 - any error concerns this directory alone
                raise StorageError(f"The log in {directory} can't be loaded: {again}") from problem

    def _find_logs(self) -> list[tuple[TopicPartition, Path]]:
        """Return the directories of current and future logs; note deleted ones (rule 2)."""
        log_directory, found, deleted = self._log_directory, [], False
        for path in sorted(log_directory.path.iterdir()):
            if not path.is_dir() or path.name.endswith(STRAY_SUFFIX) or path.name == METADATA_PARTITION:
                continue
            if path.name.endswith(DELETE_SUFFIX):
                topic = path.name.rpartition(".")[0].rpartition("-")[0]
                deleted = True
                delay_ms = LogSettings.of(self._topic_values(topic)).file_delete_delay_ms
                log_directory.delete_later([path], self._now_ms() + delay_ms)
                continue
            try:
                name = path.name.rpartition(".")[0] if path.name.endswith(FUTURE_SUFFIX) else path.name
                found.append((TopicPartition.parse(name), path))
            except ValueError:
                raise TidegaugeError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"Found directory {path}, '{path.name}' is not in the form of topic-partition or "
                    f"topic-partition.uniqueId-delete (if marked for deletion); a log directory must not hold anything "
                    f"else, so move it away",
                ) from None
        if deleted:
            log_directory.disk.sync_directory(log_directory.path)
        return found
