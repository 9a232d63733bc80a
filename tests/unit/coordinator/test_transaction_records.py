"""The records of __transaction_state of Apache Kafka 3.9.1: read by ours, and written by ours byte for byte."""

import pytest
from tests.kafka_log_dir import PARTITION_ORDERS, log_of
from tests.unit.coordinator.transaction_harness import TransactionHarness

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers, patch
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.record_codec import Record, UnknownKey, batch_of, read_batches
from tidegauge_broker.coordinator.transaction.records import (
    read_transaction,
    read_transaction_key,
    transaction_key,
    transaction_value,
)
from tidegauge_broker.coordinator.transaction.scala_sets import by_topic
from tidegauge_broker.coordinator.transaction.transaction import Change

LOGS = [log_of(f"__transaction_state-{partition}") for partition in (0, 1)]
S = TransactionState


def change_of(transaction) -> Change:
    return Change(
        transaction.state,
        transaction.producer_id,
        transaction.producer_epoch,
        -1,
        -1,
        transaction.timeout_ms,
        tuple(transaction.partitions),
        transaction.start_ms,
        transaction.update_ms,
    )


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_every_record_and_batch_that_kafka_wrote_is_written_the_same(path):
    """One record in a batch, no producer, base sequence -1, not compressed."""
    data = path.read_bytes()
    seen = 0
    for header, batch in zip(iterate_headers(data), read_batches(data), strict=True):
        ((key, value),) = batch.records
        name = read_transaction_key(key)
        assert transaction_key(name) == key
        assert transaction_value(change_of(read_transaction(name, value))) == value
        ours = bytearray(batch_of([Record(key, value)], header.base_timestamp_ms))
        patch(ours, 0, header.base_offset, header.leader_epoch)
        assert bytes(ours) == data[header.position : header.position + header.size_bytes]
        seen += 1
    assert seen in {19, 25}


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parent.name)
def test_the_same_requests_at_the_same_times_write_the_same_records(path):
    """From the first InitProducerId to the last completion: the requests behind Kafka's log write Kafka's log."""
    expected = [record for batch in read_batches(path.read_bytes()) for record in batch.records]
    harness = TransactionHarness(now_ms=1, transaction_max_timeout_ms=900_000, abort_timed_out_interval_ms=10**15)
    harness.holds = True
    before: dict[str, object] = {}
    for key, value in expected:
        name = read_transaction_key(key)
        wanted = read_transaction(name, value)
        old = before.get(name)
        harness.now_ms = max(harness.now_ms, wanted.update_ms)
        harness.next_producer_id = wanted.producer_id
        ask(harness, name, wanted, old)
        before[name] = wanted
    written = [record for stored in harness.log for batch in read_batches(stored) for record in batch.records]
    assert written == expected


def ask(harness: TransactionHarness, name: str, wanted, old) -> None:
    """Bring about one record. A completion follows when the decision is committed, at the time that it bears."""
    producer = {"producer_id": wanted.producer_id, "epoch": wanted.producer_epoch, "name": name}
    if wanted.state is S.EMPTY:
        # An InitProducerId that repeats one writes the epoch again: it expects the one before.
        repeats = old is not None and old.producer_epoch == wanted.producer_epoch
        expected = (wanted.producer_id, wanted.producer_epoch - 1) if old is not None or repeats else (-1, -1)
        token = harness.send_init(*expected, name=name, timeout_ms=wanted.timeout_ms)
        assert harness.is_parked(token), harness.response_to(token)
    elif wanted.state is S.ONGOING:
        harness.send_add(
            *(one for one in wanted.partitions if old.state is not S.ONGOING or one not in old.partitions), **producer
        )
    elif wanted.state in {S.PREPARE_COMMIT, S.PREPARE_ABORT}:
        if wanted.producer_epoch != old.producer_epoch:
            harness.send_init(name=name, timeout_ms=wanted.timeout_ms)
        else:
            harness.send_end(Outcome.COMMIT if wanted.state is S.PREPARE_COMMIT else Outcome.ABORT, **producer)
        return  # committed by the completion
    else:
        harness.release()  # the decision: markers are written at once, and the completion is appended
    harness.release()


def test_partitions_are_null_in_empty_and_none_in_complete():
    change = Change(S.EMPTY, 0, 0, -1, -1, 60_000, (), -1, 5)
    assert transaction_value(change).hex() == "0000" + "00" * 8 + "0000" + "0000ea60" + "00" + "ffffffff" + (
        "0000000000000005" + "ff" * 8
    )
    complete = change._replace(state=S.COMPLETE_COMMIT, start_ms=4)
    assert transaction_value(complete).hex() == "0000" + "00" * 8 + "0000" + "0000ea60" + "04" + "00000000" + (
        "0000000000000005" + "0000000000000004"
    )


def test_the_flexible_version_of_transaction_version_1_is_read():
    """Value version 1: compact arrays and strings, and tagged fields; a cluster may have been on KRaft before."""
    value = bytes.fromhex(
        "0001" + "0000000000000003" + "0002" + "0000ea60" + "01" + "02" + "02" + "74" + "02" + "00000001"
    )
    value += bytes.fromhex("00" + "0000000000000005" + "0000000000000004" + "00")
    read = read_transaction("tx", value)
    assert (read.producer_id, read.producer_epoch, read.state) == (3, 2, S.ONGOING)
    assert list(read.partitions) == [TopicPartition("t", 1)]
    assert (read.update_ms, read.start_ms) == (5, 4)


def test_a_key_of_another_version_is_unknown():
    assert read_transaction_key(b"\x00\x01\x00\x01x") == UnknownKey(1)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x00\x02",
        b"\x00\x00\x01",
        transaction_value(Change(S.EMPTY, 0, 0, -1, -1, 1, (), -1, 5)).replace(b"\x01\x00\xff", b"\x01\x09\xff"),
    ],
    ids=["no version", "unknown version", "too short", "unknown status"],
)
def test_what_is_no_value_is_corrupt(value):
    with pytest.raises(TidegaugeError) as raised:
        read_transaction("tx", value)
    assert raised.value.code is ErrorCode.CORRUPT_MESSAGE


def test_partitions_are_written_in_kafka_s_order():
    """It is the order of the Scala collections which hold them there, for transactions of 1 to 50 partitions."""
    partitions: dict[TopicPartition, None] = {}
    seen = 0
    for line in PARTITION_ORDERS.read_text().splitlines():
        what, _, written = line.partition(" | ")
        if what == "new":
            partitions.clear()
            continue
        partitions |= dict.fromkeys(TopicPartition.parse(name) for name in what.split()[1:])
        ours = [f"{topic}-{number}" for topic, numbers in by_topic(tuple(partitions)) for number in numbers]
        assert ours == written.split()
        seen += 1
        if what == "end":
            partitions.clear()
    assert seen == 208


def test_partitions_whose_hashes_begin_alike_stand_in_scalas_order():
    """Scala 2.13.15's HashSet of 0, 1, 2, 3, 4, 69 and 88: 0, 69 and 88 share a node of the first level."""
    partitions = tuple(TopicPartition("t", number) for number in (0, 1, 2, 3, 4, 69, 88))
    assert by_topic(partitions) == [("t", [1, 2, 3, 4, 69, 0, 88])]


def test_hashes_in_one_bucket_stand_in_the_order_of_signed_numbers():
    """Both partitions are in one bucket; their hashes, 0x3fffdfc8 and 0x40004010, are both positive."""
    partitions = (TopicPartition("pytvzuuj", 268), TopicPartition("pytvzuuj", 5))
    assert by_topic(partitions) == [("pytvzuuj", [5, 268])]
