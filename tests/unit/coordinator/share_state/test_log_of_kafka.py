"""The records of __share_group_state equal Kafka 4.3.1's byte for byte, after the same requests."""

import pytest
from tests.unit.coordinator.share_state.harness import ShareHarness, log_of_kafka

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.share_groups import (
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    SharePartitionKey,
    StateBatch,
    WriteShareState,
)
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.share_state.records import Snapshot, read_change, read_key, to_bytes

RECORDS = [record for batch in read_batches(log_of_kafka()) for record in batch.records]
S1 = read_key(RECORDS[0][0])[0]._replace(group_id="sg1")


def test_each_record_of_a_log_of_kafka_is_read_and_written_again_in_the_same_bytes():
    for key_bytes, value in RECORDS:
        key, kafkas_key = read_key(key_bytes)
        assert to_bytes(key, None if value is None else read_change(kafkas_key, value)) == (key_bytes, value)
    assert {value is None for _, value in RECORDS} == {True, False}


def story():
    """The requests that made the records of the group sg1, in their order."""

    def write(start, complete, *batches, leader=0, state=2):
        return WriteShareState(S1, state, leader, start, complete, tuple(StateBatch(*one) for one in batches))

    return [
        InitializeShareState(S1, 2),
        write(0, 10, (0, 9, 2, 1)),
        write(10, 4, *((offset, offset, state, 1) for offset, state in enumerate((2, 2, 4, 0, 4), 10))),
        write(13, 7, *((offset, offset, 2, 1) for offset in range(30, 36))),
        write(13, 7, (13, 13, 0, 2)),
        *(write(13, 7, (offset, offset, 0, 1)) for offset in (17, 18, 19)),
        write(13, 7, (20, 29, 0, 1)),
        *(write(13, 7, (offset, offset, 0, 1)) for offset in (36, 37, 38, 39, 15, 16)),
        write(13, 7, (13, 13, 0, 3)),
        write(13, 8, (39, 39, 2, 2)),
        write(
            13,
            8,
            (13, 13, 0, 4),
            *((offset, offset, 0, 2) for offset in range(15, 20)),
            (20, 29, 0, 2),
            *((offset, offset, 0, 2) for offset in (36, 37, 38)),
        ),
        WriteShareState(S1, start_offset=5),
        ReadShareState(S1, 7),
        InitializeShareState(S1, 6, 5),
        DeleteShareState(S1),
    ]


def test_the_requests_that_kafka_had_make_its_records():
    """From the first initialization of a share partition to its deletion, 22 records."""
    expected = [record for record in RECORDS if read_key(record[0])[0].group_id == "sg1"]
    requests = story()
    assert len(requests) == len(expected)
    share = ShareHarness(now_ms=0, topic_id=S1.topic_id)
    for request, record in zip(requests, expected, strict=True):
        change = None if record[1] is None else read_change(read_key(record[0])[1], record[1])
        share.wall.ahead_ms = change.written_ms if isinstance(change, Snapshot) else 0
        assert share.ask(request).error is ErrorCode.NONE
        assert share.records()[-1] == record


def test_the_state_that_kafka_showed_is_read_back():
    """ReadShareGroupState after the close of the session, and before the share partition was deleted."""
    share = ShareHarness(topic_id=S1.topic_id)
    for request in story()[:18]:
        share.ask(request)
    result = share.ask(ReadShareState(S1))
    assert (result.state_epoch, result.start_offset) == (2, 13)
    assert result.batches == (
        StateBatch(13, 13, 0, 4),
        StateBatch(14, 14, 4, 1),
        StateBatch(15, 29, 0, 2),
        StateBatch(30, 35, 2, 1),
        StateBatch(36, 38, 0, 2),
        StateBatch(39, 39, 2, 2),
    )


def test_the_log_of_kafka_is_loaded():
    share = ShareHarness(log=[log_of_kafka()], topic_id=S1.topic_id)
    assert share.coordinator.state_of(S1) is None
    assert share.ask(ReadShareState(S1)).error is ErrorCode.INVALID_REQUEST
    left = {read_key(key)[0] for key, _ in RECORDS} - {S1}
    for key in left:
        state = share.coordinator.state_of(key)
        last = [record for record in RECORDS if read_key(record[0])[0] == key][-1]
        change = None if last[1] is None else read_change(read_key(last[0])[1], last[1])
        assert (state is None) == (change is None)
        if state is not None:
            assert state.snapshot_epoch == change.snapshot_epoch
            assert state.start_offset == change.start_offset
    assert any(share.coordinator.state_of(key) for key in left)


@pytest.mark.parametrize("missing", [1, 5])
def test_a_record_that_ends_too_early_is_corrupt(missing):
    key, value = RECORDS[0]
    _, kafkas_key = read_key(key)
    for damaged in (lambda: read_change(kafkas_key, value[:-missing]), lambda: read_key(key[:-missing])):
        with pytest.raises(TidegaugeError) as problem:
            damaged()
        assert problem.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_name_of_a_share_partition_is_that_of_find_coordinator():
    """SharePartitionKey.asCoordinatorKey: the group id may have colons itself."""
    assert str(S1) == "sg1:ZMEIy2JWR6WB9La36SNtsA:0"
    assert str(SharePartitionKey("a:b", bytes(16), 3)) == "a:b:AAAAAAAAAAAAAAAAAAAAAA:3"


def test_a_snapshot_without_a_count_of_completed_records_has_no_tag():
    snapshot = Snapshot(0, 2, 0, -1, -1, (), 1, 1)
    with_count = to_bytes(S1, snapshot._replace(complete_count=0)).value
    assert len(with_count) - len(to_bytes(S1, snapshot).value) == 6
