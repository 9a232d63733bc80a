"""Kafka's small files, byte for byte (CheckpointFile, MetaProperties, PartitionMetadataFile)."""

import json

import pytest

from tidegauge.partition import TopicPartition
from tidegauge_broker.log import checkpoints
from tidegauge_broker.log.checkpoints import CorruptCheckpoint, EpochCheckpoint, OffsetCheckpoint
from tidegauge_broker.replica.messages import EpochEntry


def test_offsets_are_written_as_version_count_and_lines(tmp_path):
    path = tmp_path / "replication-offset-checkpoint"
    offsets = {TopicPartition("a", 0): 5, TopicPartition("b-c", 12): 2**40}
    OffsetCheckpoint(path).write(offsets)
    assert path.read_text() == f"0\n2\na 0 5\nb-c 12 {2**40}\n"
    assert OffsetCheckpoint(path).read() == offsets
    assert [each.name for each in tmp_path.iterdir()] == [path.name], "the temporary file is gone"


def test_epochs_are_written_as_version_count_and_lines(tmp_path):
    checkpoint = EpochCheckpoint(tmp_path / "leader-epoch-checkpoint")
    checkpoint.write([EpochEntry(0, 0), EpochEntry(3, 17)])
    assert checkpoint.path.read_text() == "0\n2\n0 0\n3 17\n"
    checkpoint.write([EpochEntry(4, 20)])
    assert checkpoint.read() == [EpochEntry(4, 20)]


@pytest.mark.parametrize("content", [None, ""])
def test_a_missing_or_empty_file_has_no_entries(tmp_path, content):
    path = tmp_path / "x"
    if content is not None:
        path.write_text(content)
    assert OffsetCheckpoint(path).read() == {}
    assert EpochCheckpoint(path).read() == []


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"1\n0\n", "Unrecognized version of the checkpoint file"),
        (b"0\n2\na 0 5\n", "Expected 2 entries in checkpoint file .* found only 1"),
        (b"0\n1\na 0\n", "Malformed line in checkpoint file .*'a 0'"),
        (b"0\n1\na 0 x\n", "Malformed line"),
        (b"zero\n", "Malformed line"),
        (b"0\n1\n\xff\xfe 0 1\n", "Malformed text"),
    ],
)
def test_anything_else_is_corrupt(tmp_path, content, problem):
    path = tmp_path / "x"
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match=problem):
        OffsetCheckpoint(path).read()


def test_meta_properties_are_java_properties_of_version_0(tmp_path):
    assert checkpoints.read_meta_properties(tmp_path) is None
    checkpoints.write_meta_properties(tmp_path, 3, "abcdefghijklmnopqrstuv", 1_700_000_000_000)
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert lines[:2] == ["#", "#Tue Nov 14 22:13:20 UTC 2023"]
    assert sorted(lines[2:]) == ["broker.id=3", "cluster.id=abcdefghijklmnopqrstuv", "version=0"]
    assert checkpoints.read_meta_properties(tmp_path) == (3, "abcdefghijklmnopqrstuv")


@pytest.mark.parametrize("content", ["version=1\nnode.id=1\n", "broker.id=one\n", "version=x\n"])
def test_meta_properties_of_another_kind_are_refused(tmp_path, content):
    (tmp_path / "meta.properties").write_text(content)
    with pytest.raises(CorruptCheckpoint):
        checkpoints.read_meta_properties(tmp_path)


def test_partition_metadata_holds_the_topic_id(tmp_path):
    assert checkpoints.read_topic_id(tmp_path) is None
    checkpoints.write_topic_id(tmp_path, "Ab-_9hijklmnopqrstuvwx")
    assert (tmp_path / "partition.metadata").read_text() == "version: 0\ntopic_id: Ab-_9hijklmnopqrstuvwx"
    assert checkpoints.read_topic_id(tmp_path) == "Ab-_9hijklmnopqrstuvwx"
    (tmp_path / "partition.metadata").write_text("version: 0")
    with pytest.raises(CorruptCheckpoint, match="Malformed partition metadata"):
        checkpoints.read_topic_id(tmp_path)


def test_the_clean_shutdown_mark_is_json_and_is_taken_once(tmp_path):
    assert not checkpoints.take_clean_shutdown(tmp_path)
    checkpoints.write_clean_shutdown(tmp_path)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": -1}
    assert checkpoints.take_clean_shutdown(tmp_path)
    assert not checkpoints.take_clean_shutdown(tmp_path)
