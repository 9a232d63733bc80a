"""Future logs: copies of replicas that move to another log directory of their broker (LogManager.futureLogs)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge_broker.log import checkpoints
from tidegauge_broker.log.checkpoints import OffsetCheckpoint
from tidegauge_broker.log.creation import NewLog
from tidegauge_broker.log.files import DISK, Disk, StorageError
from tidegauge_broker.log.future_logs import is_name_too_long
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.replica.messages import EpochEntry

AT = TopicPartition("orders", 0)
NOW_MS = 1_700_000_000_000
TOPIC_ID = "topicidtopicidtopicidt"


class RefusesRenames(Disk):
    """Refuses to rename a directory to a name of this ending."""

    def __init__(self, ending: str) -> None:
        self.ending = ending

    def rename(self, path: Path, to: Path) -> None:
        if to.name.endswith(self.ending):
            raise OSError(5, "Input/output error")
        super().rename(path, to)


class Two:
    """A broker with two log directories; ``orders-0`` is in the first."""

    def __init__(self, tmp_path: Path) -> None:
        self.paths = [tmp_path / "a", tmp_path / "b"]
        self.disks: dict[Path, Disk] = {}
        self.settings: dict[str, str] = {"log.segment.bytes": "300", "producer.id.expiration.ms": "1000"}
        self.start()
        self.logs.get_or_create(AT, TOPIC_ID, is_new=True)

    def start(self) -> None:
        broker, _ = parse_broker_settings(self.settings)
        self.logs = LogManager.open(
            self.paths,
            broker_id=1,
            cluster_id="abcdefghijklmnopqrstuv",
            broker=broker,
            topic_values=lambda _topic: parse_topic_settings({}, broker),
            now_ms=lambda: NOW_MS,
            disk_of=lambda path: self.disks.get(path, DISK),
        )

    def restart(self, *, clean: bool = True) -> None:
        self.logs.close({AT: self.logs.logs[AT].log_end_offset}, clean=clean)
        self.start()

    def append(self, batch: Any, count: int = 1, **options: Any) -> None:
        log = self.logs.logs[AT]
        for _ in range(count):
            records = batch(2, **options)
            header = read_header(records)._replace(base_offset=log.log_end_offset, leader_epoch=3)
            log.append_as_leader(records, header)
        log.write_epochs([EpochEntry(3, 0)], sync=False)

    def begin(self) -> None:
        self.logs.futures.remember(AT, self.logs.directory_at(str(self.paths[1])))
        creation = self.logs.begin_creation([NewLog(AT, TOPIC_ID, is_new=False, is_future=True)])
        creation.build()
        assert not creation.refused
        self.logs.adopt(creation)

    def copy(self) -> None:
        log = self.logs.logs[AT]
        while self.logs.futures.copy(log, 1):
            pass

    def move(self) -> None:
        self.copy()
        self.logs.replace_with_future(AT, self.logs.logs[AT].log_end_offset)

    def names(self, at: int) -> list[str]:
        return sorted(path.name for path in self.paths[at].iterdir() if path.is_dir())

    def content(self) -> bytes:
        log = self.logs.logs[AT]
        return b"".join(segment.path.read_bytes() for segment in log.segments)


@pytest.fixture
def two(tmp_path: Path) -> Any:
    made = Two(tmp_path)
    yield made
    made.logs.close({}, clean=False)


def test_a_replica_that_has_moved_is_the_same_log_in_the_other_directory(two: Two, batch: Any) -> None:
    """Bytes, epochs, topic id and producers; the former directory is renamed and removed after file.delete.delay.ms."""
    two.append(batch, 5)
    two.append(batch, producer_id=7, sequence=0)
    before, producers = two.content(), two.logs.logs[AT].producer_state
    two.begin()
    assert two.names(1)[0].startswith("orders-0."), "topic-partition.uniqueId-future"
    assert two.names(1)[0].endswith("-future")
    two.move()
    log = two.logs.logs[AT]
    assert log.directory == two.paths[1] / "orders-0"
    assert two.content() == before
    assert len(log.segments) > 1
    assert log.producer_state is producers, "the core goes on with the object that it holds"
    assert (log.topic_id, log.epochs) == (TOPIC_ID, [EpochEntry(3, 0)])
    assert two.names(1) == ["orders-0"]
    assert [name.endswith("-delete") for name in two.names(0)] == [True]
    assert not two.logs.futures.logs
    two.append(batch, 3)
    assert log.read(10, log.log_end_offset, 1, at_least_one_batch=True), "it is written and read where it is now"


@pytest.mark.parametrize("clean", [True, False])
def test_after_a_restart_the_log_is_where_it_moved_to(two: Two, batch: Any, *, clean: bool) -> None:
    two.append(batch, 4, producer_id=7, sequence=0)
    two.begin()
    two.move()
    before = two.content()
    two.restart(clean=clean)
    assert two.logs.logs[AT].directory == two.paths[1] / "orders-0"
    assert two.content() == before
    assert two.logs.loaded(AT).high_watermark == 8, "replication-offset-checkpoint of the destination has it"
    assert [entry.producer_id for entry in two.logs.logs[AT].producer_state.entries()] == [7]


@pytest.mark.parametrize("clean", [True, False])
def test_a_copy_that_a_restart_interrupts_is_found_again_and_goes_on(two: Two, batch: Any, *, clean: bool) -> None:
    """The current log is the log; the future log is loaded and recovered as any other."""
    two.append(batch, 4)
    two.begin()
    two.logs.futures.copy(two.logs.logs[AT], 1)
    two.logs.futures.copy(two.logs.logs[AT], 1)
    two.restart(clean=clean)
    assert two.logs.logs[AT].directory == two.paths[0] / "orders-0"
    assert two.logs.futures.logs[AT].log_end_offset == 4
    assert two.logs.futures.logs[AT].epochs == [EpochEntry(3, 0)]
    before = two.content()
    two.move()
    assert two.content() == before
    two.restart()
    assert two.content() == before


def test_a_destination_that_fails_at_the_last_step_leaves_the_log_as_it_was(two: Two, batch: Any) -> None:
    two.append(batch, 4)
    before = two.content()
    two.logs.close({}, clean=True)
    two.disks[two.paths[1]] = RefusesRenames("orders-0")
    two.start()
    two.begin()
    with pytest.raises(StorageError):
        two.move()
    two.logs.futures.drop_offline()
    log = two.logs.logs[AT]
    assert log.directory == two.paths[0] / "orders-0"
    assert not log.is_closed
    assert two.content() == before
    assert two.logs.offline_directories == [two.paths[1]]
    two.append(batch)
    two.disks.clear()
    two.restart()
    assert two.logs.logs[AT].log_end_offset == 10
    assert AT in two.logs.futures.logs, "the copy is still there"


def test_the_former_directory_may_fail_after_the_move(two: Two, batch: Any) -> None:
    """The replica serves on from its new directory; the directory that failed is offline with what else it holds."""
    two.append(batch, 4)
    before = two.content()
    two.logs.close({}, clean=True)
    two.disks[two.paths[0]] = RefusesRenames("-delete")
    two.start()
    two.begin()
    with pytest.raises(StorageError):
        two.move()
    assert two.logs.offline_directories == [two.paths[0]]
    assert not any(log.log_directory.offline for log in two.logs.logs.values())
    assert two.content() == before
    two.append(batch)
    # Its directory was not renamed: after a restart there are two, and an operator has to say which one counts.
    two.disks.clear()
    two.logs.close({}, clean=False)
    with pytest.raises(TidegaugeError, match="Duplicate log directories for orders-0 are found in both"):
        two.start()
    for path in (two.paths[0] / "orders-0").iterdir():
        path.unlink()
    (two.paths[0] / "orders-0").rmdir()
    two.start()


def test_deletion_takes_the_future_log_along(two: Two, batch: Any) -> None:
    two.append(batch)
    two.begin()
    two.logs.delete(AT)
    assert not two.logs.futures.logs
    assert [name.endswith("-delete") for at in (0, 1) for name in two.names(at)] == [True, True]
    two.logs.close({})
    two.start()
    assert not two.logs.logs


def test_the_future_log_follows_a_truncation(two: Two, batch: Any) -> None:
    """Its segments above are deleted; their files are removed from where the log lies by then."""
    two.append(batch, 8)
    two.begin()
    two.copy()
    two.logs.logs[AT].truncate_to(4)
    two.logs.futures.note_truncated(AT, 4)
    assert two.logs.futures.replicas[AT].truncated_to == 4
    two.logs.futures.follow_truncation(AT, 4)
    assert two.logs.futures.replicas[AT].truncated_to is None
    assert two.logs.futures.logs[AT].log_end_offset == 4
    two.append(batch, 2)
    two.move()
    log = two.logs.logs[AT]
    assert log.log_end_offset == 8
    assert list(log.directory.glob("*.deleted"))
    log.log_directory.remove_due(NOW_MS + 10**9)
    assert not list(log.directory.glob("*.deleted"))


def test_a_gap_at_the_end_is_moved_too(two: Two, batch: Any) -> None:
    """A truncation within a batch removes the whole batch: the log then ends above its last record."""
    two.append(batch, 3)
    two.logs.logs[AT].truncate_to(5)
    two.begin()
    two.move()
    assert two.logs.logs[AT].log_end_offset == 5
    two.append(batch)
    assert two.logs.logs[AT].log_end_offset == 7


def test_checkpoints_name_a_future_log_in_its_own_directory(two: Two, batch: Any) -> None:
    """checkpointHighWatermarks, checkpointRecoveryOffsetsInDir: the copy's offsets, at most its own end."""
    two.append(batch, 4)
    two.begin()
    two.logs.futures.copy(two.logs.logs[AT], 1)
    two.logs.note_high_watermarks({AT: 8})
    two.logs.write_high_watermarks()
    two.logs.futures.logs[AT].flush()
    two.logs.write_recovery_points()

    def read(at: int, name: str) -> int:
        return OffsetCheckpoint(two.paths[at] / name, DISK).read()[AT]

    assert [read(at, checkpoints.REPLICATION_OFFSET_CHECKPOINT) for at in (0, 1)] == [8, 2]
    assert read(1, checkpoints.RECOVERY_POINT_CHECKPOINT) == 2


def test_neither_retention_nor_the_cleaner_touches_a_log_that_moves(two: Two, batch: Any) -> None:
    """LogManager.abortAndPauseCleaning."""
    two.settings |= {"log.retention.bytes": "0"}
    two.restart()
    two.append(batch, 8)
    two.begin()
    assert two.logs.housekeeping({AT: 16}) == {}
    two.logs.futures.delete(AT)
    assert two.logs.housekeeping({AT: 16}) == {AT: 16}


def test_a_move_ends_a_compaction_in_progress(two: Two, batch: Any) -> None:
    """LogManager.abortAndPauseCleaning; else the copy, made of the segments as they were, would count as clean.

    A clean part is not looked at again: a record whose deletion is compacted away afterwards would come back.
    """
    two.settings |= {"log.cleanup.policy": "compact"}
    two.restart()
    two.append(batch, 8)
    cleaning = two.logs.compaction.next_to_clean({AT: 16})
    assert cleaning is not None
    group, *_ = cleaning.map_keys()
    two.begin()
    two.copy()
    assert not cleaning.replace(group, cleaning.write(group)), "the compaction is void"
    two.move()
    assert two.logs.directory_at(str(two.paths[1])).first_dirty_offset(AT) is None
    assert two.logs.compaction.next_to_clean({AT: 16}) is not None


def test_a_log_that_moves_while_it_is_compacted_is_compacted_later(two: Two, batch: Any, run_cleaner: Any) -> None:
    """Its files are renamed under the compaction, which says nothing of the log."""
    two.settings |= {"log.cleanup.policy": "compact"}
    two.restart()
    two.append(batch, 8)

    def move() -> None:
        two.begin()
        two.move()

    run_cleaner(two.logs, {AT: 16}, move)
    assert two.logs.offline_directories == []
    assert two.logs.compaction.next_to_clean({AT: 16}) is not None


def test_the_directory_asked_for_is_taken_for_the_next_log(two: Two) -> None:
    """preferredLogDirs: once, and only until the log exists."""
    other, third = TopicPartition("new", 0), TopicPartition("new", 1)
    for at in (other, third):
        two.logs.futures.remember(at, two.logs.directory_at(str(two.paths[0])))
    assert two.logs.get_or_create(other, TOPIC_ID, is_new=True).directory.parent == two.paths[0]
    assert two.logs.get_or_create(third, TOPIC_ID, is_new=True).directory.parent == two.paths[0]
    assert two.logs.futures.wanted_directory(other) is None
    assert two.logs.get_or_create(TopicPartition("new", 2), TOPIC_ID, is_new=True).directory.parent == two.paths[1]


@pytest.mark.parametrize("path", ["/nowhere", "a", ""])
def test_a_log_directory_is_named_by_its_absolute_path(two: Two, path: str) -> None:
    with pytest.raises(TidegaugeError, match="is not found in the config") as refused:
        two.logs.directory_at(path)
    assert refused.value.code is ErrorCode.LOG_DIR_NOT_FOUND


def test_a_name_that_leaves_no_room_for_the_suffix() -> None:
    """LocalLog.logFutureDirName is not shortened: at most 255 characters with ``.``, 32 digits and ``-future``."""
    assert not is_name_too_long(TopicPartition("t" * 213, 0))
    assert is_name_too_long(TopicPartition("t" * 214, 0))


def test_a_truncation_above_what_was_copied_takes_nothing_from_the_future_log(two: Two, batch: Any) -> None:
    """The records that the future log copies later lie in the truncated log already."""
    two.append(batch, 4)
    two.begin()
    two.copy()
    two.append(batch, 4)
    assert two.logs.futures.logs[AT].log_end_offset == 8
    two.logs.logs[AT].truncate_to(12)
    two.logs.futures.note_truncated(AT, 12)
    assert two.logs.futures.replicas[AT].truncated_to is None
