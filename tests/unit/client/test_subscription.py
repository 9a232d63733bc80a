"""A consumer's handling of fetch responses (FetchCollector; KIP-320)."""

from __future__ import annotations

import struct

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import fetch_pb2, offsets_pb2
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_client.subscription import Phase, Position, Reset, Subscription

TP = TopicPartition("t", 0)
RETRY_MS = 100.0


def at(offset: int, policy: Reset = Reset.EARLIEST) -> Subscription:
    subscription = Subscription(policy)
    subscription.assign([TP])
    subscription.seek(TP, Position(offset))
    return subscription


def batch(offset: int, count: int, *, epoch: int = 0) -> bytes:
    return encode_batch(
        [NewRecord(b"%d" % (offset + index)) for index in range(count)], base_offset=offset, leader_epoch=epoch
    )


def respond(
    subscription: Subscription, *, asked: int | None = None, records: bytes = b"", error: int = 0, **fields: object
) -> bool:
    position = Position(asked) if asked is not None else subscription.fetch_position(TP)
    result = fetch_pb2.FetchPartitionResult(topic="t", partition=0, error=error, records=records, **fields)
    return subscription.fetched(TP, position, result, retry_at_ms=RETRY_MS)


def offsets(subscription: Subscription, limit: int = 100) -> list[int]:
    return [record.offset for record in subscription.take(TP, limit)]


def test_a_member_of_a_group_begins_where_the_group_has_committed() -> None:
    """ConsumerCoordinator.initWithCommittedOffsetsIfNeeded, and auto.offset.reset if nothing is committed."""
    second = TopicPartition("t", 1)
    subscription = Subscription(Reset.LATEST, has_group=True)
    subscription.assign([TP, second])
    assert subscription.due(Phase.INITIALIZING, now_ms=0) == [TP, second]
    subscription.committed_found(TP, Position(7, 3))
    subscription.committed_found(second, None)
    assert subscription.position(TP) == 7
    assert subscription.due(Phase.RESETTING, now_ms=0) == [second]
    assert subscription.consumed() == {TP: Position(7, 3)}, "only what has a position is committed"
    subscription.seek(TP, Position(9))
    subscription.committed_found(TP, Position(7, 3))
    assert subscription.position(TP) == 9, "a late response does not undo a seek"


def test_without_a_committed_offset_and_a_policy_poll_raises() -> None:
    """Kafka's NoOffsetForPartitionException."""
    subscription = Subscription(Reset.NONE, has_group=True)
    subscription.assign([TP])
    subscription.raise_problem()
    subscription.committed_found(TP, None)
    with pytest.raises(TidegaugeError, match="no reset policy"):
        subscription.raise_problem()


def test_records_are_given_from_the_position_on_and_move_it() -> None:
    subscription = at(2)
    respond(subscription, records=batch(0, 5), high_watermark=5)

    assert offsets(subscription, 2) == [2, 3]
    assert subscription.position(TP) == 4
    assert subscription.due(Phase.FETCHING, now_ms=0) == [], "not fetched again while records are here"
    assert offsets(subscription) == [4]
    assert subscription.position(TP) == 5
    assert subscription.high_watermark(TP) == 5
    assert subscription.due(Phase.FETCHING, now_ms=0) == [TP]


def test_gaps_of_compaction_and_control_batches_are_passed_over() -> None:
    control = bytearray(batch(2, 3))
    control[22] |= 0x20
    subscription = Subscription(Reset.EARLIEST, check_crcs=False)
    subscription.assign([TP])
    subscription.seek(TP, Position(0))
    respond(subscription, records=batch(0, 2) + bytes(control))

    assert offsets(subscription) == [0, 1]
    assert subscription.position(TP) == 5


def test_a_response_for_an_older_position_is_ignored() -> None:
    """Rule 1: the application has sought elsewhere since."""
    subscription = at(3)
    respond(subscription, asked=0, records=batch(0, 5))
    assert not subscription.has_records(TP)


@pytest.mark.parametrize(
    ("code", "refreshes"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True),
        (ErrorCode.FENCED_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
        (ErrorCode.KAFKA_STORAGE_ERROR, True),
        (ErrorCode.OFFSET_NOT_AVAILABLE, True),
        (ErrorCode.REPLICA_NOT_AVAILABLE, True),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, True),
        (ErrorCode.UNKNOWN_SERVER_ERROR, False),
    ],
)
def test_errors_that_pass_are_waited_out(code: ErrorCode, refreshes: bool) -> None:
    subscription = at(0)

    assert respond(subscription, error=int(code)) is refreshes
    subscription.raise_problem()
    assert subscription.due(Phase.FETCHING, now_ms=RETRY_MS - 1) == []
    assert subscription.next_due_ms(0) == RETRY_MS
    assert subscription.due(Phase.FETCHING, now_ms=RETRY_MS) == [TP]


def test_out_of_range_resets_by_the_policy() -> None:
    subscription = at(99, Reset.LATEST)
    respond(subscription, error=int(ErrorCode.OFFSET_OUT_OF_RANGE))

    assert subscription.due(Phase.RESETTING, now_ms=0) == [TP]
    assert subscription.reset_wanted(TP) is Reset.LATEST
    assert subscription.position(TP) is None


def test_a_reset_by_the_policy_is_noted_with_where_reading_goes_on() -> None:
    """Rule 6. Kafka's consumer logs it; without a word, a reader of ``--offset 99`` waits for nothing."""
    subscription = at(99, Reset.LATEST)
    respond(subscription, error=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert subscription.take_notices() == []
    found = offsets_pb2.ListOffsetsResult(topic=TP.topic, partition=TP.partition, offset=5)
    subscription.offset_found(TP, Reset.LATEST, found, retry_at_ms=RETRY_MS)
    assert subscription.take_notices() == [
        "The fetch offset 99 is out of range for partition t-0; reading continues at offset 5, the latest one"
    ]
    assert subscription.take_notices() == []


def test_a_partition_that_can_not_be_read_is_in_trouble_until_it_is() -> None:
    """Rule 6."""
    subscription = at(0)
    respond(subscription, error=int(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert [(tp, problem.code) for tp, problem in subscription.troubles().items()] == [
        (TP, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ]
    subscription.back_off(TP, RETRY_MS, TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, "t-0 has no leader"))
    assert subscription.troubles()[TP].code is ErrorCode.LEADER_NOT_AVAILABLE
    respond(subscription)
    assert subscription.troubles() == {}


def test_out_of_range_is_raised_without_a_policy() -> None:
    subscription = at(99, Reset.NONE)
    respond(subscription, error=int(ErrorCode.OFFSET_OUT_OF_RANGE))

    with pytest.raises(TidegaugeError, match="The fetch offset 99 is out of range for partition t-0") as caught:
        subscription.raise_problem()
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert subscription.position(TP) == 99


def test_without_policy_and_position_the_application_must_seek() -> None:
    subscription = Subscription(Reset.NONE)
    subscription.assign([TP])
    with pytest.raises(TidegaugeError, match="Undefined offset with no reset policy for partitions: t-0"):
        subscription.raise_problem()


def test_a_corrupt_batch_is_raised_after_what_stands_before_it() -> None:
    """Rule 5: CORRUPT_MESSAGE reaches the application; the position stays before the batch."""
    broken = bytearray(batch(2, 2))
    broken[-1] ^= 1
    subscription = at(0)
    respond(subscription, records=batch(0, 2) + bytes(broken))

    assert offsets(subscription) == [0, 1]
    with pytest.raises(TidegaugeError) as caught:
        subscription.raise_problem()
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert subscription.position(TP) == 2


def test_the_last_epoch_read_is_sent_with_the_next_fetch() -> None:
    subscription = at(0)
    subscription.leader_epoch_seen(TP, 4)
    assert subscription.fetch_position(TP) == Position(0, None, 4)
    respond(subscription, records=batch(0, 2, epoch=4))
    offsets(subscription)
    assert subscription.fetch_position(TP) == Position(2, 4, 4)


def read_two_then_new_leader(policy: Reset = Reset.EARLIEST) -> Subscription:
    subscription = at(0, policy)
    subscription.leader_epoch_seen(TP, 0)
    respond(subscription, records=batch(0, 2, epoch=0))
    offsets(subscription)
    subscription.leader_epoch_seen(TP, 1)
    return subscription


def checked(subscription: Subscription, **end: int) -> bool:
    result = offsets_pb2.OffsetForLeaderEpochResult(topic="t", partition=0)
    for name, value in end.items():
        setattr(result.end, name, value)
    return subscription.epoch_checked(TP, subscription.fetch_position(TP), result, retry_at_ms=RETRY_MS)


def test_a_topic_that_was_created_again_begins_with_its_own_epochs() -> None:
    """Metadata.updateLatestMetadata: a leader epoch is compared only with one of the same topic id.

    Else every fetch names the deleted topic's epoch, and the leader knows none so high.
    """
    subscription = read_two_then_new_leader()
    subscription.topic_replaced(TP.topic)
    subscription.leader_epoch_seen(TP, 0)
    assert subscription.fetch_position(TP).leader_epoch == 0
    assert subscription.due(Phase.VALIDATING, now_ms=0) == [TP], "is what was read in this log, too?"


def test_a_problem_is_raised_once_for_each_attempt_and_never_after_a_seek() -> None:
    """CompletedFetch.cachedRecordException: it belongs to the fetched records, which a seek discards."""
    damaged = bytearray(batch(0, 2))
    damaged[-1] ^= 1
    subscription = at(0)
    respond(subscription, records=bytes(damaged))
    assert offsets(subscription) == []
    assert subscription.due(Phase.FETCHING, now_ms=0) == [], "not fetched again before the application knows"
    with pytest.raises(TidegaugeError):
        subscription.raise_problem()
    assert subscription.due(Phase.FETCHING, now_ms=0) == [TP]

    respond(subscription, records=bytes(damaged))
    assert offsets(subscription) == []
    subscription.seek(TP, Position(2))
    subscription.raise_problem()


def test_a_problem_of_a_partition_that_is_given_up_is_raised_no_more() -> None:
    subscription = at(0)
    respond(subscription, error=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    subscription.assign([TopicPartition("other", 0)])
    subscription.raise_problem()


def test_a_seek_ends_the_reset_that_was_to_be_noted() -> None:
    """Rule 6: a later reset has its own reason, or none."""
    subscription = at(99, Reset.LATEST)
    respond(subscription, error=int(ErrorCode.OFFSET_OUT_OF_RANGE))
    subscription.seek(TP, Position(3))
    subscription.reset(TP, Reset.LATEST)
    found = offsets_pb2.ListOffsetsResult(topic=TP.topic, partition=TP.partition, offset=5)
    subscription.offset_found(TP, Reset.LATEST, found, retry_at_ms=RETRY_MS)
    assert subscription.take_notices() == []


def test_a_new_leader_epoch_is_validated_before_the_next_fetch() -> None:
    subscription = read_two_then_new_leader()
    assert subscription.due(Phase.FETCHING, now_ms=0) == []
    assert subscription.due(Phase.VALIDATING, now_ms=0) == [TP]
    checked(subscription, leader_epoch=0, end_offset=2)
    assert subscription.due(Phase.FETCHING, now_ms=0) == [TP]
    assert subscription.position(TP) == 2


def test_a_lower_epoch_of_old_metadata_is_ignored() -> None:
    subscription = read_two_then_new_leader()
    checked(subscription, leader_epoch=0, end_offset=2)
    subscription.leader_epoch_seen(TP, 0)
    assert subscription.due(Phase.FETCHING, now_ms=0) == [TP]
    assert subscription.fetch_position(TP).leader_epoch == 1


def test_a_position_that_was_not_read_here_needs_no_validation() -> None:
    subscription = at(5)
    subscription.leader_epoch_seen(TP, 3)
    assert subscription.due(Phase.FETCHING, now_ms=0) == [TP]


def test_a_log_truncated_below_the_position_is_noted() -> None:
    """Rules 4 and 6."""
    subscription = read_two_then_new_leader()
    checked(subscription, leader_epoch=0, end_offset=1)
    (notice,) = subscription.take_notices()
    assert "The log of t-0 was truncated at offset 1" in notice


def test_a_log_truncated_below_the_position_goes_on_where_it_ends() -> None:
    """Rule 4, with a reset policy."""
    subscription = read_two_then_new_leader()
    checked(subscription, leader_epoch=0, end_offset=1)
    assert subscription.position(TP) == 1


def test_a_log_truncated_below_the_position_is_raised_without_a_policy() -> None:
    """LogTruncationException."""
    subscription = read_two_then_new_leader(Reset.NONE)
    checked(subscription, leader_epoch=0, end_offset=1)
    with pytest.raises(TidegaugeError, match="truncated at offset 1"):
        subscription.raise_problem()


def test_an_undefined_end_resets() -> None:
    subscription = read_two_then_new_leader()
    checked(subscription)
    assert subscription.due(Phase.RESETTING, now_ms=0) == [TP]


def test_a_diverging_fetch_goes_on_where_the_logs_part() -> None:
    subscription = at(5)
    respond(subscription, diverging_epoch={"leader_epoch": 0, "end_offset": 3})
    assert subscription.position(TP) == 3


def test_a_reset_takes_the_offset_that_was_found() -> None:
    subscription = Subscription(Reset.LATEST)
    subscription.assign([TP])
    result = offsets_pb2.ListOffsetsResult(topic="t", partition=0, offset=42)
    subscription.offset_found(TP, Reset.EARLIEST, result, retry_at_ms=RETRY_MS)
    assert subscription.position(TP) is None, "an answer to an older question"
    subscription.offset_found(TP, Reset.LATEST, result, retry_at_ms=RETRY_MS)
    assert subscription.position(TP) == 42


def test_partitions_that_stay_assigned_keep_their_position() -> None:
    subscription = at(7)
    other = TopicPartition("t", 1)
    subscription.assign([TP, other])
    assert subscription.position(TP) == 7
    assert subscription.position(other) is None


def test_a_partition_just_read_is_asked_for_last() -> None:
    """No partition starves behind one that always has data."""
    subscription = at(0)
    other = TopicPartition("t", 1)
    subscription.assign([TP, other])
    subscription.seek(other, Position(0))
    respond(subscription, records=batch(0, 1))
    offsets(subscription)
    assert subscription.due(Phase.FETCHING, now_ms=0) == [other, TP]


def test_what_is_not_assigned_cannot_be_sought() -> None:
    with pytest.raises(TidegaugeError, match="t-1 is not assigned"):
        at(0).seek(TopicPartition("t", 1), Position(0))


OTHER = TopicPartition("t", 1)


def both_at_zero() -> Subscription:
    subscription = Subscription(Reset.EARLIEST)
    subscription.assign([TP, OTHER])
    for topic_partition in (TP, OTHER):
        subscription.seek(topic_partition, Position(0))
    return subscription


def test_a_partition_that_gave_its_records_is_asked_for_last() -> None:
    """SubscriptionState.movePartitionToEnd: a full response must not starve the partitions behind."""
    subscription = both_at_zero()
    respond(subscription, records=batch(0, 3))
    assert offsets(subscription, 3) == [0, 1, 2]

    assert subscription.due(Phase.FETCHING, now_ms=0) == [OTHER, TP]


def test_a_partition_whose_fetch_failed_is_asked_for_last() -> None:
    """FetchCollector.initialize: so do those whose response was an error."""
    subscription = both_at_zero()
    respond(subscription, error=int(ErrorCode.UNKNOWN_LEADER_EPOCH))

    assert subscription.due(Phase.FETCHING, now_ms=RETRY_MS) == [OTHER, TP]


def test_what_is_taken_last_frees_the_partition_at_once() -> None:
    """A poll that takes exactly the fetched records leaves nothing behind that would hold the next fetch back."""
    subscription = at(0)
    respond(subscription, records=batch(0, 3))

    assert offsets(subscription, 3) == [0, 1, 2]
    assert not subscription.has_records(TP)


def test_a_batch_is_given_in_portions_that_join() -> None:
    subscription = at(1)
    respond(subscription, records=batch(0, 4) + batch(4, 3))

    assert [offsets(subscription, 2) for _ in range(4)] == [[1, 2], [3, 4], [5, 6], []]


@pytest.mark.parametrize("length", [0, 1 << 20, -1])
def test_batches_before_a_damaged_length_are_given_first(length: int) -> None:
    """Rule 5: its end is not known, so it is fetched again behind the sound ones, and raised then."""
    damaged = bytearray(batch(2, 2))
    struct.pack_into(">i", damaged, 8, length)
    subscription = at(0)
    respond(subscription, records=batch(0, 2) + bytes(damaged))
    assert offsets(subscription) == [0, 1]
    subscription.raise_problem()
    assert subscription.position(TP) == 2
    respond(subscription, records=bytes(damaged))
    with pytest.raises(TidegaugeError) as caught:
        subscription.raise_problem()
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert subscription.position(TP) == 2


def test_records_before_a_malformed_one_are_given_first() -> None:
    """Rule 5: CORRUPT_MESSAGE is raised when the records before it were given, within a batch too."""
    data = bytearray(batch(0, 2) + batch(2, 3))
    subscription = Subscription(Reset.EARLIEST, check_crcs=False)
    subscription.assign([TP])
    subscription.seek(TP, Position(0))
    data[-8] = 0xFE  # the length of the last record: 8 bytes, of which the first says how many follow
    respond(subscription, records=bytes(data))

    assert offsets(subscription) == [0, 1, 2, 3]
    with pytest.raises(TidegaugeError) as caught:
        subscription.raise_problem()
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert subscription.position(TP) == 4
