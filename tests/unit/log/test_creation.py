"""Many new logs at once: the files on disk, the logs known at each step, and the remains of a failing disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from tidegauge.partition import TopicPartition
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge_broker.log.checkpoints import PARTITION_METADATA, read_topic_id
from tidegauge_broker.log.creation import Creation, NewLog
from tidegauge_broker.log.files import Disk
from tidegauge_broker.log.manager import LogManager

TOPIC_ID = "topicidtopicidtopicidt"
MANY = [TopicPartition("many", number) for number in range(50)]


class WatchedDisk(Disk):
    """Counts synced directories; refuses to write the file whose path holds ``bad``."""

    def __init__(self) -> None:
        self.synced: list[Path] = []
        self.bad = "nothing"
        self.defective = "nothing"

    def sync_directory(self, path: Path) -> None:
        self.synced.append(path)

    def replace(self, path: Path, data: bytes, *, sync: bool = True) -> None:
        if self.bad in str(path):
            raise OSError(errno.EIO, "Input/output error")
        if self.defective in str(path):
            raise ValueError("defect")
        super().replace(path, data, sync=sync)


class Shelf:
    def __init__(self, *directories: Path) -> None:
        self.directories = directories
        self.disks = {directory: WatchedDisk() for directory in directories}
        self.manager = self.open()

    def open(self) -> LogManager:
        broker, _ = parse_broker_settings({})
        return LogManager.open(
            self.directories,
            broker_id=1,
            cluster_id="abcdefghijklmnopqrstuv",
            broker=broker,
            topic_values=lambda _topic: parse_topic_settings({}, broker),
            now_ms=lambda: 1_700_000_000_000,
            disk_of=lambda directory: self.disks[directory],
        )

    def create(self, wanted: list[TopicPartition], *, is_new: bool = True) -> Creation:
        creation = self.manager.begin_creation([NewLog(at, TOPIC_ID, is_new) for at in wanted])
        creation.build()
        return creation


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "one")


def test_new_logs_are_whole_on_disk_and_known_once_adopted(shelf: Shelf):
    (disk,) = shelf.disks.values()
    disk.synced.clear()
    creation = shelf.create(MANY)
    assert not shelf.manager.logs, "the event loop's view changes when it adopts them, not before"
    shelf.manager.adopt(creation)
    assert set(shelf.manager.logs) == set(MANY)
    assert disk.synced.count(shelf.directories[0]) == 1, "the log folder is synced once for all"
    assert disk.synced[-1] == shelf.directories[0], "and last"
    for at in MANY:
        directory = shelf.directories[0] / str(at)
        assert read_topic_id(directory) == shelf.manager.logs[at].topic_id == TOPIC_ID
        assert {path.name for path in directory.iterdir()} == {
            "00000000000000000000.log",
            "00000000000000000000.index",
            "00000000000000000000.timeindex",
            "leader-epoch-checkpoint",
            PARTITION_METADATA,
        }


def test_a_restart_finds_the_logs_as_they_were_made(shelf: Shelf):
    shelf.manager.adopt(shelf.create(MANY))
    made = {at: shelf.manager.loaded(at) for at in MANY}
    shelf.manager.close({})
    shelf.manager = shelf.open()
    found = {at: shelf.manager.loaded(at) for at in MANY}
    for at in MANY:
        assert (found[at].log_start_offset, found[at].log_end_offset, found[at].epochs) == (0, 0, [])
        assert (made[at].log_start_offset, made[at].log_end_offset, made[at].epochs) == (0, 0, [])
    assert {log.topic_id for log in shelf.manager.logs.values()} == {TOPIC_ID}
    shelf.manager.close({})


def test_they_are_spread_over_the_directories(tmp_path: Path):
    shelf = Shelf(tmp_path / "one", tmp_path / "two")
    shelf.manager.adopt(shelf.create(MANY))
    assert {len(list(directory.glob("many-*"))) for directory in shelf.directories} == {len(MANY) // 2}


def test_a_log_that_fails_by_itself_leaves_the_others_to_be_made(shelf: Shelf):
    """One partition would keep the broker from every other one of a LeaderAndIsr, which is sent again for ever."""
    (disk,) = shelf.disks.values()
    disk.defective = f"{MANY[3]}/"
    creation = shelf.create(MANY)
    assert list(creation.refused) == [MANY[3]]
    assert "defect" in creation.refused[MANY[3]].message
    shelf.manager.adopt(creation)
    assert set(shelf.manager.logs) == set(MANY) - {MANY[3]}
    assert not shelf.manager.offline_directories, "the disk has refused nothing"
    disk.defective = "nothing"
    shelf.manager.adopt(shelf.create(MANY))
    assert set(shelf.manager.logs) == set(MANY), "it is completed at the next request"


def test_a_log_that_exists_is_left_alone_and_a_half_made_directory_is_completed(shelf: Shelf):
    shelf.manager.adopt(shelf.create(MANY[:1]))
    known = shelf.manager.logs[MANY[0]]
    (shelf.directories[0] / str(MANY[1])).mkdir()
    creation = shelf.create(MANY[:2])
    assert [log.topic_partition for log in creation.built] == [MANY[1]]
    shelf.manager.adopt(creation)
    assert shelf.manager.logs[MANY[0]] is known
    assert read_topic_id(shelf.directories[0] / str(MANY[1])) == TOPIC_ID


def test_a_disk_that_refuses_takes_its_directory_offline_and_the_others_are_made(tmp_path: Path):
    shelf = Shelf(tmp_path / "one", tmp_path / "two")
    shelf.disks[tmp_path / "two"].bad = "many-"
    creation = shelf.create(MANY)
    shelf.manager.adopt(creation)
    assert shelf.manager.offline_directories == [tmp_path / "two"]
    assert set(creation.refused) | set(shelf.manager.logs) == set(MANY)
    assert {log.directory.parent for log in shelf.manager.logs.values()} == {tmp_path / "one"}
    assert len(creation.refused) == len(MANY) // 2


def test_with_a_directory_offline_only_new_replicas_get_a_log(tmp_path: Path):
    shelf = Shelf(tmp_path / "one", tmp_path / "two")
    shelf.disks[tmp_path / "two"].bad = "many-"
    shelf.create(MANY[:2])
    old = shelf.create(MANY[2:4], is_new=False)
    assert set(old.refused) == set(MANY[2:4]), "it may lie in the folder that is offline"
    assert "are offline" in old.refused[MANY[2]].message
    assert len(shelf.create(MANY[2:4]).built) == 2


def test_many_logs_are_deleted_with_one_sync_of_their_directory(shelf: Shelf):
    shelf.manager.adopt(shelf.create(MANY))
    (disk,) = shelf.disks.values()
    disk.synced.clear()
    shelf.manager.delete_all(MANY[1:])
    assert set(shelf.manager.logs) == {MANY[0]}
    assert disk.synced == [shelf.directories[0]] * 3, "the names, and two checkpoints"
    names = sorted(path.name for path in shelf.directories[0].glob("many-*"))
    assert names[0] == "many-0"
    assert len([name for name in names if name.endswith("-delete")]) == len(MANY) - 1
    assert (shelf.directories[0] / "recovery-point-offset-checkpoint").read_text() == "0\n1\nmany 0 0\n"


def test_a_partition_that_is_named_twice_is_made_once(tmp_path: Path) -> None:
    """A hostile request: two threads must not make one directory."""
    shelf = Shelf(tmp_path / "a")
    creation = shelf.create([*MANY[:3], *MANY[:3]])
    assert not creation.refused
    assert sorted(log.topic_partition for log in creation.built) == MANY[:3]
    shelf.manager.adopt(creation)
    shelf.manager.close({})
