"""Snapshots and bootstrap.checkpoint: Kafka 4.3.1's are read and written byte for byte (KIP-630, KIP-853)."""

import pytest
from tests.unit.metadata_log.kafka_files import kafka_files

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.control_messages.voters_record import VotersRecord
from tidegauge.kafka.kraft.record_types import decode_record, encode_record
from tidegauge.kafka.metadata_records.feature_level_record import FeatureLevelRecord
from tidegauge.kafka.metadata_records.no_op_record import NoOpRecord
from tidegauge_broker.metadata_log.batches import MAX_BATCH_BYTES, MetadataBatch, read_batches
from tidegauge_broker.metadata_log.snapshot_names import (
    RETIRED_SUFFIX,
    UNFINISHED_SUFFIX,
    SnapshotName,
    parse_snapshot_name,
    snapshot_name,
)
from tidegauge_broker.metadata_log.snapshots import MAX_BATCH_RECORDS, SnapshotWriter, encode_bootstrap, read_snapshot

WHOLE = "main/00000000000000002621-0000000004.checkpoint"
FIRST = "main/00000000000000000000-0000000000.checkpoint"
BOOTSTRAPS = ["4.3/bootstrap.checkpoint", "3.9/bootstrap.checkpoint"]


def written_again(batches: list[MetadataBatch]) -> bytes:
    first, *data, last = batches
    writer = SnapshotWriter(first.header.leader_epoch)
    versions = [message.kraft_version for message in first.control if hasattr(message, "kraft_version")]
    voters = [message for message in first.control if isinstance(message, VotersRecord)]
    parts = [
        writer.begin(
            first.control[0].last_contained_log_timestamp,
            versions[0] if versions else 0,
            voters[0] if voters else None,
            first.header.max_timestamp_ms,
        )
    ]
    for batch in data:
        parts += writer.append(batch.values, batch.header.max_timestamp_ms)
    return b"".join([*parts, writer.finish(last.header.max_timestamp_ms)])


@pytest.mark.parametrize("name", [WHOLE, FIRST, *BOOTSTRAPS])
def test_kafkas_snapshots_are_written_byte_for_byte(name: str):
    """RecordsSnapshotWriter: header, KRaftVersion and KRaftVoters in one control batch, records, footer."""
    data = kafka_files()[name].data
    assert written_again(list(read_snapshot(data))) == data


def test_what_kafka_storage_format_bootstraps_is_written_byte_for_byte():
    """BootstrapDirectory: the levels of the features, metadata.version first, then by name; zero ones left out."""
    levels = {
        "metadata.version": 30,
        "eligible.leader.replicas.version": 1,
        "group.version": 1,
        "share.version": 1,
        "streams.version": 1,
        "transaction.version": 2,
    }
    data = kafka_files()["4.3/bootstrap.checkpoint"].data
    first, records, last = [batch.header.max_timestamp_ms for batch in read_batches(data)]
    values = [encode_record(FeatureLevelRecord(name, level), 0) for name, level in levels.items()]
    assert encode_bootstrap(values, first, records, last) == data


def test_a_batch_has_at_most_1024_records_and_8_mib():
    """KafkaRaftClient.MAX_BATCH_SIZE_BYTES; offsets run on over the batches."""
    writer = SnapshotWriter(3)
    small = [encode_record(NoOpRecord(), 0)] * (2 * MAX_BATCH_RECORDS + 1)
    large = [bytes(3 * 1024 * 1024)] * 5
    data = [writer.begin(0, 0, None, 1), *writer.append(small, 2), *writer.append(large, 3), writer.finish(4)]
    batches = list(read_batches(b"".join(data)))
    assert [len(batch.values) for batch in batches] == [0, 1024, 1024, 1, 2, 2, 1, 0]
    assert all(batch.header.size_bytes <= MAX_BATCH_BYTES for batch in batches)
    assert [batch.header.base_offset for batch in batches] == [0, 1, 1025, 2049, 2050, 2052, 2054, 2055]
    assert list(writer.append([], 5)) == []


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda parts: parts[:-1], "it ends without a footer"),
        (lambda parts: parts[1:], "offset 0 is followed by 3"),
        (lambda parts: [parts[0], parts[2]], "offset 3 is followed by 37"),
        (lambda parts: [*parts, parts[2]], "batches behind the footer"),
        (lambda _parts: [], "it ends without a footer"),
    ],
)
def test_a_snapshot_that_is_not_whole_is_refused(damage, reason: str):
    """An unfinished or mixed-up file is recognised whatever its batches are worth one by one."""
    data = kafka_files()[WHOLE].data
    parts = [data[b.header.position : b.header.position + b.header.size_bytes] for b in read_batches(data)]
    with pytest.raises(TidegaugeError, match=reason) as caught:
        list(read_snapshot(b"".join(damage(parts))))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_records_of_a_snapshot_are_those_of_the_image():
    """Features first, then brokers, controllers, topics and so on (MetadataImage.write)."""
    records = [decode_record(value) for batch in read_snapshot(kafka_files()[WHOLE].data) for value in batch.values]
    assert len(records) == 34
    assert records[0].message == FeatureLevelRecord("metadata.version", 30)
    assert {record.type.label for record in records[6:13]} == {"REGISTER_BROKER_RECORD", "REGISTER_CONTROLLER_RECORD"}


def test_names_say_end_offset_and_epoch():
    """Snapshots.filenameFromSnapshotId and Snapshots.parse."""
    assert snapshot_name(2621, 4) == "00000000000000002621-0000000004.checkpoint"
    assert parse_snapshot_name(snapshot_name(2621, 4)) == SnapshotName(2621, 4)
    unfinished = snapshot_name(7, 1, UNFINISHED_SUFFIX, attempt="83")
    assert unfinished == "00000000000000000007-0000000001-83.checkpoint.part"
    assert parse_snapshot_name(unfinished) == SnapshotName(7, 1, UNFINISHED_SUFFIX)
    assert parse_snapshot_name(snapshot_name(7, 1, RETIRED_SUFFIX)) == SnapshotName(7, 1, RETIRED_SUFFIX)
    for name in ("bootstrap.checkpoint", "00000000000000000007.log", "7-1.checkpoint", "replication-offset-checkpoint"):
        assert parse_snapshot_name(name) is None
