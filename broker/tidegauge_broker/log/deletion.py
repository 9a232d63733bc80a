"""Deletion of many logs at once: letting go of them is the event loop's, their directories are renamed in the pool.

Contract: ``LogManager.let_go`` takes logs out of everything that uses them, some at a time; ``carry_out`` renames their
directories in a pool thread. Meanwhile no other code may create logs of these partitions: the caller handles one
control request after the other.
A process that is killed in between finds the logs when it starts, and the controller asks for their deletion again,
since it has no response.
Source: kafka.log.LogManager.asyncDelete.
"""

from __future__ import annotations

from collections.abc import Callable

from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.log_directory import LogDirectory
from tidegauge_broker.log.partition_log import PartitionLog


class LogDeletion:
    """Logs to be deleted.

    Args:
        now_ms: a clock that never goes back.

    Attributes:
        logs: those that nothing uses any more.
        refusals: the error of each log directory whose disk refused; it is offline.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.logs: list[PartitionLog] = []
        self.refusals: list[StorageError] = []
        self._now_ms = now_ms

    def carry_out(self) -> None:
        """Rename the directories; each log directory is synced, and its checkpoints are written, once. Blocks."""
        by_directory: dict[LogDirectory, list[PartitionLog]] = {}
        for log in self.logs:
            by_directory.setdefault(log.log_directory, []).append(log)
        for log_directory, logs in by_directory.items():
            try:
                log_directory.delete_logs(logs, self._now_ms())
            except StorageError as refusal:  # one bad disk must not stop the others
                self.refusals.append(refusal)
