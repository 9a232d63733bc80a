"""A replica's files read without their broker, after any kill or power loss."""

from __future__ import annotations

from pathlib import Path

import pytest

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.log.checkpoints import EpochCheckpoint, OffsetCheckpoint, write_topic_id
from tidegauge_broker.replica.messages import EpochEntry
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_lab.accountant.reading.batches import DAMAGED_CRC
from tidegauge_lab.accountant.reading.replica_files import read_replica_files

AT = TopicPartition("orders", 0)
ID = "AAAAAAAAAAAAAAAAAAAAAA"


def batch(base_offset: int, *values: bytes, leader_epoch: int = 0) -> bytes:
    return encode_batch(list(map(NewRecord, values)), base_offset=base_offset, leader_epoch=leader_epoch)


@pytest.fixture
def replica_directory(tmp_path: Path) -> Path:
    """A replica of three batches in two segments."""
    directory = tmp_path / str(AT)
    directory.mkdir()
    write_topic_id(directory, ID)
    (directory / f"{0:020d}.log").write_bytes(batch(0, b"a", b"b") + batch(2, b"c"))
    (directory / f"{3:020d}.log").write_bytes(batch(3, b"d", leader_epoch=4))
    EpochCheckpoint(directory / "leader-epoch-checkpoint").write([EpochEntry(0, 0), EpochEntry(4, 3)])
    OffsetCheckpoint(tmp_path / "replication-offset-checkpoint").write({AT: 3})
    return directory


def test_batches_of_all_segments_with_end_epoch_and_the_checkpointed_high_watermark(replica_directory: Path) -> None:
    found = read_replica_files(replica_directory.parent, AT, ID)
    assert [(mark.base_offset, mark.next_offset, mark.leader_epoch) for mark in found.notes.marks] == [
        (0, 2, 0),
        (2, 3, 0),
        (3, 4, 4),
    ]
    assert (found.high_watermark, found.log_end_offset, found.leader_epoch, found.log_start_offset) == (3, 4, 4, 0)


def test_a_batch_that_was_written_in_part_ends_the_log(replica_directory: Path) -> None:
    last = replica_directory / f"{3:020d}.log"
    last.write_bytes(batch(3, b"d", leader_epoch=4) + batch(4, b"e", leader_epoch=4)[:-3])
    assert read_replica_files(replica_directory.parent, AT, ID).log_end_offset == 4


def test_a_batch_whose_bytes_were_changed_equals_no_other_and_is_named_as_damaged(replica_directory: Path) -> None:
    last = replica_directory / f"{3:020d}.log"
    last.write_bytes(last.read_bytes()[:-2] + b"X\x00")
    notes = read_replica_files(replica_directory.parent, AT, ID).notes
    assert [mark.crc == DAMAGED_CRC for mark in notes.marks] == [False, False, True]
    (damage,) = notes.damage
    assert damage[:2] == (3, 4)
    assert damage.words == f"the batch of offsets 3 to 3, at byte 0 of {last}, does not match its CRC"


@pytest.mark.parametrize("recovery_point", [None, 3, 4])
def test_what_is_not_whole_at_the_end_is_damage_where_it_was_flushed(
    replica_directory: Path, recovery_point: int | None
) -> None:
    """Below the recovery point a crash takes nothing (UnifiedLog.recoveryPoint)."""
    last = replica_directory / f"{3:020d}.log"
    last.write_bytes(last.read_bytes()[:-1])
    if recovery_point is not None:
        OffsetCheckpoint(replica_directory.parent / "recovery-point-offset-checkpoint").write({AT: recovery_point})
    found = read_replica_files(replica_directory.parent, AT, ID)
    assert found.log_end_offset == 3
    words = f"offsets from 3 on can't be read: {last} holds no whole batch at byte 0"
    assert found.notes.damage == ([(3, -1, words)] if recovery_point == 4 else [])


def test_what_is_not_whole_before_another_segment_is_damage_and_the_next_one_is_read(replica_directory: Path) -> None:
    first = replica_directory / f"{0:020d}.log"
    whole = len(batch(0, b"a", b"b"))
    first.write_bytes(first.read_bytes()[:-1])
    found = read_replica_files(replica_directory.parent, AT, ID)
    words = f"offsets from 2 to 2 can't be read: {first} holds no whole batch at byte {whole}"
    assert found.notes.damage == [(2, 3, words)]
    assert [mark.base_offset for mark in found.notes.marks] == [0, 3]


def test_records_are_noted_where_the_log_may_have_been_compacted(replica_directory: Path) -> None:
    notes = read_replica_files(replica_directory.parent, AT, ID, by_record=True).notes
    assert [record.offset for record in notes.records] == [0, 1, 2, 3]
    assert not notes.has_sparse_batches


def test_what_retention_took_is_below_the_log_start(replica_directory: Path) -> None:
    OffsetCheckpoint(replica_directory.parent / "log-start-offset-checkpoint").write({AT: 2})
    assert read_replica_files(replica_directory.parent, AT, ID).log_start_offset == 2
    (replica_directory / f"{0:020d}.log").unlink()
    assert read_replica_files(replica_directory.parent, AT, ID).log_start_offset == 3


def test_an_empty_replica_ends_where_it_begins(replica_directory: Path) -> None:
    for path in replica_directory.glob("*.log"):
        path.write_bytes(b"")
    found = read_replica_files(replica_directory.parent, AT, ID)
    assert (found.notes.marks, found.log_end_offset, found.leader_epoch) == ([], 0, 4)


def test_files_of_an_earlier_topic_of_the_name_are_not_its_replica(replica_directory: Path) -> None:
    with pytest.raises(TidegaugeError, match="holds no log of this topic"):
        read_replica_files(replica_directory.parent, AT, "B" * 22)


def test_what_is_not_there_or_not_readable_is_reported(replica_directory: Path) -> None:
    with pytest.raises(TidegaugeError, match="orders-1 holds no log of this topic"):
        read_replica_files(replica_directory.parent, TopicPartition("orders", 1), ID)
    (replica_directory.parent / "replication-offset-checkpoint").write_text("nonsense")
    with pytest.raises(TidegaugeError, match="can't be read"):
        read_replica_files(replica_directory.parent, AT, ID)
