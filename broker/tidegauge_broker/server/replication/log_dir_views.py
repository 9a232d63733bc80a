"""The content of a broker's log directories, for DescribeLogDirs and the lab.

Source: ``ReplicaManager.describeLogDirs``.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.log.future_logs import is_future
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.messages import LogOnDisk

LOG = logging.getLogger("tidegauge.replica")


class ReplicaSize(NamedTuple):
    """A replica in its log directory.

    Attributes:
        size_bytes: of its log.
        offset_lag: by how much the log ends below the high watermark; for a future log, below the current log's
            end. -1 if the broker has no such replica, or it is offline.
        is_future: whether it is a copy that will replace the current replica.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirectoryView:
    """A log directory; sizes are its file system's, -1 if they are unknown."""

    path: str
    error: ErrorCode
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: Mapping[TopicPartition, ReplicaSize] = field(default_factory=dict)


def describe_log_directories(logs: LogManager, high_watermarks: Mapping[TopicPartition, int]) -> list[LogDirectoryView]:
    """Return the log directories in the order of ``log.dirs``.

    An offline one has KAFKA_STORAGE_ERROR alone; one whose file system can't be looked at, UNKNOWN_SERVER_ERROR.

    Args:
        logs: the broker's.
        high_watermarks: of its replicas that are not offline.
    """
    offline = set(logs.offline_directories)
    views = []
    for directory in logs.directories:
        if directory in offline:
            views.append(LogDirectoryView(str(directory), ErrorCode.KAFKA_STORAGE_ERROR))
            continue
        try:
            usage = shutil.disk_usage(directory)
        except OSError as problem:  # the others are described; the broker meets the failure when it uses the directory
            LOG.error("Error while describing replica in dir %s: %s", directory, problem)  # noqa: TRY400 - it says all
            views.append(LogDirectoryView(str(directory), ErrorCode.UNKNOWN_SERVER_ERROR))
            continue
        all_logs = (*logs.futures.logs.items(), *logs.logs.items())
        replicas = {
            at: _size_of(log, logs, high_watermarks.get(at))
            for at, log in sorted(all_logs, key=itemgetter(0))
            if log.directory.parent == directory
        }
        views.append(LogDirectoryView(str(directory), ErrorCode.NONE, usage.total, usage.free, replicas))
    return views


def _size_of(log: PartitionLog, logs: LogManager, high_watermark: int | None) -> ReplicaSize:
    """Return a log's size and lag (ReplicaManager.getLogEndOffsetLag)."""
    if high_watermark is None:
        return ReplicaSize(log.size_bytes, -1, is_future(log))
    if not is_future(log):
        return ReplicaSize(log.size_bytes, max(0, high_watermark - log.log_end_offset))
    current = logs.logs[log.topic_partition]
    return ReplicaSize(log.size_bytes, current.log_end_offset - log.log_end_offset, is_future=True)


def log_on_disk(logs: LogManager, topic_partition: TopicPartition) -> LogOnDisk:
    """Return a log's size and place, unknown if missing or offline."""
    log = logs.get(topic_partition)
    if log is None or log.log_directory.offline:
        return LogOnDisk()
    return LogOnDisk(log.size_bytes, str(log.log_directory.path))
