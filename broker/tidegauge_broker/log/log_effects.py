"""The core's log effects on a ``LogManager``: the port ``ReplicaLogs`` of the effect executor.

Contract: the event loop calls it. A method that raises has failed for its partition; ``lost_with`` says whether the
whole directory is lost (an I/O error) or this log alone: then something is wrong with this log or with our code, the
log is given up, and its directory is recovered at the next start.
"""

from __future__ import annotations

from collections.abc import Collection

from tidegauge.partition import TopicPartition
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    AppendAsLeader,
    DeleteLog,
    TruncateFully,
    TruncateLog,
    WriteEpochs,
)
from tidegauge_broker.replica.open_transactions import AbortedTransaction
from tidegauge_broker.replica.producer_state import ProducerState


class LogEffects:
    """Carries out the effects that write to logs."""

    def __init__(self, logs: LogManager) -> None:
        self._logs = logs
        self._epochs_owed: dict[TopicPartition, PartitionLog] | None = None

    def _log(self, topic_partition: TopicPartition) -> PartitionLog:
        log = self._logs.get(topic_partition)
        if log is None:
            raise StorageError(f"There is no log of {topic_partition} on this broker")
        return log

    def append_as_leader(self, effect: AppendAsLeader) -> None:
        """Append one producer batch."""
        log = self._logs.get(effect.topic_partition) or self._log(effect.topic_partition)
        log.append_as_leader(effect.records, effect.header, effect.log_append_time_ms)

    def append_as_follower(self, effect: AppendAsFollower) -> None:
        """Append the leader's batches."""
        self._log(effect.topic_partition).append_as_follower(effect.records, effect.headers)

    def truncate_to(self, effect: TruncateLog) -> ProducerState:
        """Truncate, after the high watermark's checkpoint was lowered to the new end."""
        self._logs.lower_high_watermark(effect.topic_partition, effect.to_offset)
        self._logs.futures.note_truncated(effect.topic_partition, effect.to_offset)
        return self._log(effect.topic_partition).truncate_to(effect.to_offset)

    def truncate_fully(self, effect: TruncateFully) -> ProducerState:
        """Empty a log, to begin again at another offset."""
        self._logs.futures.note_truncated(effect.topic_partition, 0)
        return self._log(effect.topic_partition).truncate_fully(effect.start_offset)

    def advance_log_start(self, effect: AdvanceLogStart) -> None:
        """Raise the log start offset."""
        self._log(effect.topic_partition).advance_log_start(effect.to_offset)

    def write_epochs(self, effect: WriteEpochs) -> None:
        """Write the leader epochs; after ``defer_epochs``, those to sync wait for ``owed_epochs``."""
        log = self._log(effect.topic_partition)
        if self._epochs_owed is None or not effect.sync:
            log.write_epochs(effect.entries, sync=effect.sync)
        else:
            log.write_epochs(effect.entries, sync=False)
            self._epochs_owed[effect.topic_partition] = log

    def defer_epochs(self) -> None:
        """Sync no epochs from now on: ``owed_epochs`` returns their logs."""
        self._epochs_owed = {}

    def owed_epochs(self) -> list[PartitionLog]:
        """Return the logs whose epochs await a sync; end the deferral."""
        owed = list((self._epochs_owed or {}).values())
        self._epochs_owed = None
        return owed

    def delete(self, effect: DeleteLog) -> None:
        """Delete a log."""
        self._logs.delete(effect.topic_partition)

    def read(
        self,
        topic_partition: TopicPartition,
        from_offset: int,
        upper_bound: int,
        max_bytes: int,
        *,
        at_least_one_batch: bool,
    ) -> bytes:
        """Whole batches from the one that holds an offset."""
        return self._log(topic_partition).read(
            from_offset, upper_bound, max_bytes, at_least_one_batch=at_least_one_batch
        )

    def aborted_transactions(
        self, topic_partition: TopicPartition, from_offset: int, size_bytes: int
    ) -> list[AbortedTransaction]:
        """Find the aborted transactions that overlap what ``read`` gave."""
        return self._log(topic_partition).aborted_transactions(from_offset, size_bytes)

    def lost_with(self, topic_partition: TopicPartition, problem: Exception) -> Collection[TopicPartition]:
        """All logs of the directory, if it failed; else the one log."""
        log = self._logs.get(topic_partition)
        if log is None:
            return [topic_partition]
        if isinstance(problem, OSError):
            log.log_directory.failed(problem, f"changing {topic_partition}")
        if log.log_directory.offline:
            return list(log.log_directory.logs)
        log.give_up()
        return [topic_partition]
