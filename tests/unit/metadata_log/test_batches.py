"""The metadata log's batches: those that Kafka 4.3.1 wrote are read and written byte for byte."""

import pytest
from tests.unit.metadata_log.kafka_files import kafka_files

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import decode_record, encode_record
from tidegauge_broker.metadata_log.batches import MetadataBatch, control_batch, data_batch, read_batches
from tidegauge_broker.metadata_log.raft_records import encode_batch, from_message, to_batch
from tidegauge_controller.raft.values import LeaderChange, VotersRecord

LOGS = ["main/00000000000000000000.log", "upgraded/00000000000000000000.log"]
OUTSIDE_CRC = 16
"""The leader sets base offset and epoch, so the CRC does not cover them."""
SNAPSHOT = "main/00000000000000002621-0000000004.checkpoint"


def written_again(batch: MetadataBatch) -> bytes:
    """The batch from its decoded messages, through the codec of each record."""
    header = batch.header
    if header.is_control:
        return control_batch(batch.control, header.base_offset, header.leader_epoch, header.max_timestamp_ms)
    records = [decode_record(value) for value in batch.values]
    values = [encode_record(record.message, record.version) for record in records]
    return data_batch(values, header.base_offset, header.leader_epoch, header.max_timestamp_ms)


@pytest.mark.parametrize("name", LOGS)
def test_every_batch_of_kafkas_metadata_log_is_written_byte_for_byte(name: str):
    """AbstractApiMessageSerde and ControlRecordUtils: frames, tags and defaults as Kafka writes them."""
    data = kafka_files()[name].data
    assert b"".join(written_again(batch) for batch in read_batches(data)) == data


@pytest.mark.parametrize("name", LOGS)
def test_batches_of_the_raft_node_are_kafkas_bytes(name: str):
    """KIP-595, KIP-853: LeaderChange, KRaftVersion and KRaftVoters survive the way through the node's own values."""
    data = kafka_files()[name].data
    batches = [to_batch(batch) for batch in read_batches(data)]
    assert any(isinstance(record, LeaderChange) for batch in batches for record in batch.control)
    assert any(isinstance(record, VotersRecord) for batch in batches for record in batch.control)
    assert b"".join(map(encode_batch, batches)) == data


def test_a_snapshots_header_does_not_belong_into_the_log():
    header = next(read_batches(kafka_files()[SNAPSHOT].data)).control[0]
    with pytest.raises(TidegaugeError, match="A SnapshotHeaderRecord is in the log") as caught:
        from_message(header)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_a_damaged_byte_is_corruption_and_nothing_else():
    """A record of a stranger raises one error, whichever byte is damaged."""
    data = kafka_files()[SNAPSHOT].data
    starts = [batch.header.position for batch in read_batches(data)]
    for position in range(0, len(data), 37):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        try:
            list(read_batches(damaged))
            code = None
        except TidegaugeError as problem:
            code = problem.code
        may_pass = any(0 <= position - start < OUTSIDE_CRC for start in starts)
        assert code is ErrorCode.CORRUPT_MESSAGE or (code is None and may_pass), position
