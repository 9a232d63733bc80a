"""Producer snapshots, version 1 (ProducerStateManager)."""

import struct

import pytest
from crc32c import crc32c

from tidegauge.record_batch import MAX_SEQUENCE
from tidegauge_broker.log import producer_snapshot
from tidegauge_broker.log.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from tidegauge_broker.replica.producer_state import BatchSpan, ProducerEntry


def an_entry(producer_id: int, span: BatchSpan | None) -> ProducerEntry:
    entry = ProducerEntry(producer_id, 2, last_timestamp_ms=1000)
    if span is not None:
        entry.batches.append(span)
    return entry


def test_fields_stand_where_kafka_puts_them():
    data = encode_snapshot([an_entry(77, BatchSpan(10, 14, 104, 4, 1000))])
    version, crc, count = struct.unpack_from(">hIi", data)
    assert (version, count) == (1, 1)
    assert crc == crc32c(data[6:])
    assert struct.unpack_from(">qhiqiqiq", data, 10) == (77, 2, 14, 104, 4, 1000, -1, -1)
    assert len(data) == 10 + 46


def test_the_newest_batch_comes_back():
    entry = an_entry(77, BatchSpan(5, 9, 99, 4, 900))
    entry.batches.append(BatchSpan(10, 14, 104, 4, 1000))
    (found,) = decode_snapshot(encode_snapshot([entry]))
    assert (found.producer_id, found.producer_epoch, found.last_timestamp_ms) == (77, 2, 1000)
    assert list(found.batches) == [BatchSpan(10, 14, 104, 4, 1000)]


def test_a_producer_without_a_batch_comes_back_without_one():
    (found,) = decode_snapshot(encode_snapshot([an_entry(1, None)]))
    assert not found.batches


def test_sequences_that_passed_the_maximum_come_back():
    span = BatchSpan(MAX_SEQUENCE - 1, 2, 50, 4, 1000)
    (found,) = decode_snapshot(encode_snapshot([an_entry(1, span)]))
    assert found.batches[0] == span


@pytest.mark.parametrize(
    "damage", [lambda d: d[:-1], lambda d: d[:5], lambda d: d[:-1] + b"?", lambda d: b"\0\2" + d[2:]]
)
def test_damage_is_found(damage):
    data = encode_snapshot([an_entry(77, BatchSpan(10, 14, 104, 4, 1000))])
    with pytest.raises(CorruptSnapshot):
        decode_snapshot(damage(data))


def test_a_corrupt_snapshot_is_removed_and_an_older_one_taken(tmp_path):
    entry = an_entry(5, BatchSpan(0, 0, 0, 0, 1))
    producer_snapshot.write_snapshot(tmp_path, 10, [entry], sync=True)
    newest = producer_snapshot.write_snapshot(tmp_path, 20, [], sync=False)
    newest.write_bytes(newest.read_bytes()[:-1])
    found = producer_snapshot.newest_snapshot(tmp_path, 0, 30)
    assert found is not None
    assert found[0] == 10
    assert [each.producer_id for each in found[1]] == [5]
    assert producer_snapshot.snapshot_offsets(tmp_path) == [10]


def test_stray_snapshots_go_but_the_newest_stays(tmp_path):
    for offset in (3, 10, 15, 30):
        producer_snapshot.write_snapshot(tmp_path, offset, [], sync=False)
    producer_snapshot.remove_stray_snapshots(tmp_path, [0, 10])
    assert producer_snapshot.snapshot_offsets(tmp_path) == [10, 30]
    producer_snapshot.remove_snapshots(tmp_path, above=10)
    assert producer_snapshot.snapshot_offsets(tmp_path) == [10]
