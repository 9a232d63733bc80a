"""Many new logs at once: what blocks goes to the pool, what belongs to the event loop stays there.

Contract: ``LogManager.begin_creation`` chooses the folders; ``build`` makes the files in a pool thread, some logs at a
time; the manager then adopts what was built, on the event loop. Meanwhile nobody else may create or delete logs of
these partitions: the caller takes one control request after the other.

Rules:
    1. A new log is its folder, its first segment with two indexes, an empty leader-epoch-checkpoint and
       partition.metadata, which is synced (PartitionMetadataFile).
    2. The log folder is synced once for all, at the end: before that nobody is told of any of them.
    3. After the first refusal of a disk its folder is offline, and none of its further logs is tried.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from tidegauge.partition import TopicPartition
from tidegauge_broker.log import checkpoints
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.folder import LogFolder
from tidegauge_broker.log.log_state import LogSettings
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.log.recovery import LoadPlan, load_log, make_log

_THREADS = 4
Item = TypeVar("Item")
Result = TypeVar("Result")


def at_a_time(work: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Do it for all, some at a time: what waits for the disk can wait together. Blocks."""
    if len(items) == 1:
        return [work(items[0])]
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="logs") as pool:
        return list(pool.map(work, items))


class NewLog(NamedTuple):
    """What is wanted. ``topic_id`` may be empty; ``is_new``: no offline folder can hold it already."""

    topic_partition: TopicPartition
    topic_id: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Place:
    """Where a log goes, and how."""

    wanted: NewLog
    folder: LogFolder
    settings: LogSettings


class Creation:
    """New logs on their way.

    Attributes:
        refused: what could not be made, and why.
        built: what was.
    """

    def __init__(
        self, places: Sequence[Place], refused: Mapping[TopicPartition, StorageError], now_ms: Callable[[], int]
    ) -> None:
        self.refused = dict(refused)
        self.built: list[PartitionLog] = []
        self._places = places
        self._now_ms = now_ms

    def build(self) -> None:
        """Make all files, and bring them to the disk. Blocks."""
        made = [log for log in at_a_time(self._one, self._places) if log is not None]
        for folder in dict.fromkeys(log.folder for log in made):
            logs = [log for log in made if log.folder is folder]
            try:
                folder.check_online()
                folder.disk.sync_directory(folder.path)
            except StorageError as error:
                self._refuse(logs, error)
            except OSError as error:
                self._refuse(logs, folder.failed(error, f"creating {len(logs)} logs"))
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


def build_log(place: Place, now_ms: Callable[[], int]) -> PartitionLog:
    """Make a log's files; the log folder is not synced yet.

    Raises:
        StorageError: the disk refused, and the folder is offline; or it was offline already.
    """
    folder, (topic_partition, topic_id, _) = place.folder, place.wanted
    folder.check_online()
    directory = folder.path / str(topic_partition)
    plan = LoadPlan(
        clean=True, recovery_point=0, log_start_offset=0, now_ms=now_ms(), producer_id_expiration_ms=0, disk=folder.disk
    )
    try:
        try:
            directory.mkdir()
        except FileExistsError:  # the broker ended while it was made
            state = load_log(directory, place.settings, plan)
        else:
            state = make_log(directory, place.settings, plan)
        if topic_id and not state.topic_id:
            checkpoints.write_topic_id(directory, topic_id, folder.disk)
            state.topic_id = topic_id
    except OSError as error:
        raise folder.failed(error, f"creating log for {topic_partition}") from error
    return PartitionLog(topic_partition, directory, folder, state, place.settings, now_ms)
