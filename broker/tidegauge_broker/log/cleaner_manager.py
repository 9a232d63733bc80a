"""The choice of the log of a broker that is compacted next, and of logs that no longer are.

Contract: ``next_to_clean`` runs on the event loop and hands out a compaction (``cleaner.Cleaning``); when that is done,
``note_cleaned`` writes the cleaner checkpoint in a pool thread.
Source: Kafka's LogCleanerManager.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.wall_time import WallTime
from tidegauge_broker.log.cleaner import Cleaning
from tidegauge_broker.log.compaction import CleanablePart, OffsetMap, cleanable_part
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.future_logs import FutureLogs
from tidegauge_broker.log.partition_log import PartitionLog

_logger = logging.getLogger(__name__)


class CleanerManager:
    """Chooses the logs to compact, and keeps their cleaner checkpoints.

    Args:
        logs: all current logs of the broker, as they are at any time.
        futures: copies of replicas that move; a log is not compacted while it has one.
        broker: the broker's settings.
        now_ms: the clock of the logs.
        wall: how far the wall clock is ahead of that clock: ages of records and delete horizons are in its time.
    """

    def __init__(
        self,
        logs: Mapping[TopicPartition, PartitionLog],
        futures: FutureLogs,
        broker: Values,
        now_ms: Callable[[], int],
        wall: WallTime,
    ) -> None:
        self._logs = logs
        self._futures = futures
        self._broker = broker
        self._now_ms = now_ms
        self._wall = wall
        self._uncleanable: set[TopicPartition] = set()

    def next_to_clean(self, last_stable_offsets: Mapping[TopicPartition, int]) -> Cleaning | None:
        """Choose the dirtiest log that is worth compacting; None if there is none. Runs on the event loop.

        Args:
            last_stable_offsets: of the partitions that may be compacted; what lies above is left as it is.
        """
        now_ms = self._wall.at(self._now_ms())
        best: tuple[float, PartitionLog, CleanablePart] | None = None
        for topic_partition, log in self._logs.items():
            last_stable_offset = last_stable_offsets.get(topic_partition)
            if last_stable_offset is None or not log.settings.compacts or log.log_directory.offline:
                continue
            if topic_partition in self._uncleanable or topic_partition in self._futures.logs:
                continue
            try:
                part = self._cleanable_part(log, last_stable_offset, now_ms)
            except StorageError:
                continue
            except Exception:
                _logger.exception("%s can't be compacted, until the broker starts again", topic_partition)
                self.note_uncleanable(topic_partition)
                continue
            if part.is_worth_it(log.settings.min_cleanable_dirty_ratio) and (
                best is None or part.dirty_ratio > best[0]
            ):
                best = part.dirty_ratio, log, part
        if best is None:
            return None
        _, log, part = best
        buffer_bytes = self._broker.integer("log.cleaner.dedupe.buffer.size")
        offsets = OffsetMap.of_size(buffer_bytes, part.first_dirty_offset)
        return Cleaning(log, part, offsets, now_ms, lambda: log.topic_partition in self._futures.logs)

    def _cleanable_part(self, log: PartitionLog, last_stable_offset: int, now_ms: int) -> CleanablePart:
        with log.storage("looking for what to compact in"):
            return cleanable_part(
                log.segments,
                log.settings,
                first_dirty_offset=self._first_dirty_offset(log),
                last_stable_offset=last_stable_offset,
                now_ms=now_ms,
            )

    def _first_dirty_offset(self, log: PartitionLog) -> int:
        """Return the cleaner checkpoint, or the log start offset if it is outside."""
        offset = log.log_directory.first_dirty_offset(log.topic_partition)
        if offset is None or not log.log_start_offset <= offset <= log.log_end_offset:
            return log.log_start_offset
        return offset

    def note_cleaned(self, cleaning: Cleaning) -> None:
        """Write the cleaner checkpoint of a finished compaction, unless it has become void since. Blocks.

        Records appended behind a truncation have not been compacted, nor has the log of a new topic of that name.

        Raises:
            StorageError: the disk refused; the log directory is offline.
        """
        log = cleaning.log
        log.log_directory.note_cleaned(log.topic_partition, cleaning.end_offset, is_void=lambda: cleaning.is_void)

    def note_uncleanable(self, topic_partition: TopicPartition) -> None:
        """Leave a log whose compaction failed on its content alone until the broker restarts."""
        self._uncleanable.add(topic_partition)

    def forget(self, topic_partition: TopicPartition) -> None:
        """Let a deleted log's name be used again: a new log of that name may be compacted."""
        self._uncleanable.discard(topic_partition)
