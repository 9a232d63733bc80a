"""Creation of many logs at once: blocking disk I/O runs in the pool, the rest on the event loop.

Contract: ``LogManager.begin_creation`` chooses the log directories; ``build`` creates the files in a pool thread, some
logs at a time; the manager then adopts the new logs, on the event loop. Meanwhile no other code may create or delete
logs of these partitions: the caller handles one control request after the other.

Rules:
    1. A new log is its directory, its first segment with two indexes, an empty leader-epoch-checkpoint and
       partition.metadata, which is synced (PartitionMetadataFile).
    2. The log directory is synced once for all, at the end: no log is reported before.
    3. After the first refusal of a disk its log directory is offline, and none of its further logs is tried. What
       fails otherwise, such as a half-made directory with unreadable files, concerns its log alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tidegauge.partition import TopicPartition
from tidegauge_broker.log import checkpoints
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.future_logs import future_name
from tidegauge_broker.log.log_directory import LogDirectory
from tidegauge_broker.log.log_state import LogSettings
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.log.recovery import LoadPlan, load_log, make_log

_logger = logging.getLogger(__name__)
_THREADS = 4
Item = TypeVar("Item")
Result = TypeVar("Result")


def at_a_time(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Do the work for all items, some at a time, so that their disk waits overlap. Blocks."""
    if len(items) == 1:
        return [work(items[0])]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="logs") as pool:
        return list(pool.map(work, items))


class NewLog(NamedTuple):
    """A log to create.

    ``topic_id`` may be empty; ``is_new``: no offline directory can hold it already; ``is_future``: it is the copy of a
    replica that moves to another log directory.
    """

    topic_partition: TopicPartition
    topic_id: str
    is_new: bool
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """The log directory and the settings chosen for a new log."""

    wanted: NewLog
    log_directory: LogDirectory
    settings: LogSettings


class Creation:
    """Logs in creation.

    Attributes:
        refused: the error of each log that could not be created.
        built: the logs that were.
    """

    def __init__(
        self, places: Sequence[Place], refused: Mapping[TopicPartition, StorageError], now_ms: Callable[[], int]
    ) -> None:
        self.refused = dict(refused)
        self.built: list[PartitionLog] = []
        self._places = places
        self._now_ms = now_ms

    def build(self) -> None:
        """Create all files, and sync them to the disk. Blocks."""
        made = [log for log in at_a_time(self._one, self._places) if log is not None]
        for log_directory in dict.fromkeys(log.log_directory for log in made):
            logs = [log for log in made if log.log_directory is log_directory]
            try:
                log_directory.check_online()
                log_directory.disk.sync_directory(log_directory.path)
            except StorageError as error:
                self._refuse(logs, error)
            except OSError as problem:
                self._refuse(logs, log_directory.failed(problem, f"creating {len(logs)} logs"))
            else:
                self.built += logs

    def _refuse(self, logs: Sequence[PartitionLog], error: StorageError) -> None:
        for log in logs:
            log.abandon()
            self.refused[log.topic_partition] = error

    def _one(self, place: Place) -> PartitionLog | None:
        try:
            return build_log(place, self._now_ms)
        except StorageError as error:
            self.refused[place.wanted.topic_partition] = error
            return None
        except Exception as problem:
            at = place.wanted.topic_partition
            _logger.exception("The log of %s can't be created; the other logs are", at)
            self.refused[at] = StorageError(f"The log of {at} can't be created: {problem!r}")
            return None


def build_log(place: Place, now_ms: Callable[[], int]) -> PartitionLog:
    """Create a log's files; the log directory is not synced yet.

    Raises:
        StorageError: the disk refused, and the log directory is offline; or it was offline already.
    """
    log_directory, (topic_partition, topic_id, _, is_future) = place.log_directory, place.wanted
    log_directory.check_online()
    directory = log_directory.path / (future_name(topic_partition) if is_future else str(topic_partition))
    plan = LoadPlan(
        clean=True,
        recovery_point=0,
        log_start_offset=0,
        now_ms=now_ms(),
        producer_id_expiration_ms=0,
        disk=log_directory.disk,
    )
    try:
        try:
            directory.mkdir()
        except FileExistsError:  # the broker ended while the log was created
            state = load_log(directory, place.settings, plan)
        else:
            state = make_log(directory, place.settings, plan)
        if topic_id and not state.topic_id:
            checkpoints.write_topic_id(directory, topic_id, log_directory.disk)
            state.topic_id = topic_id
    except OSError as error:
        raise log_directory.failed(error, f"creating log for {topic_partition}") from error
    return PartitionLog(topic_partition, directory, log_directory, state, place.settings, now_ms)
