"""OffsetCommit and OffsetFetch: permitted senders and states, stored values, and the errors of a failed append."""

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, T0, T1, Harness

from tidegauge.errors import ErrorCode
from tidegauge.groups import FetchedOffset, GroupState, OffsetCommit, OffsetFetch, OffsetToCommit
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.partition import TopicPartition
from tidegauge_broker.coordinator.record_codec import read_batches, version_of
from tidegauge_broker.coordinator.records import read_offset

E = ErrorCode


def commit(broker: Harness, generation: int = -1, member: str = "", instance: str | None = None, **fields) -> ErrorCode:
    names = {"generation": generation, "member_id": member, "group_instance_id": instance}
    return broker.committed(broker.commit(fields.pop("offset", 1), **names, **fields))


def test_a_group_that_does_not_exist_takes_commits_without_generation_only():
    broker = Harness()
    assert commit(broker, 0, "m") is E.ILLEGAL_GENERATION
    assert broker.coordinator.group_view("g") is None
    assert commit(broker) is E.NONE
    assert (broker.group().state, broker.group().protocol_type) == (GroupState.EMPTY, None)


def test_an_empty_group_takes_commits_without_generation_whatever_member_is_named():
    """KAFKA-14201."""
    broker = Harness()
    assert [commit(broker), commit(broker, -1, "m"), commit(broker, -1, "", "i")] == [E.NONE] * 3
    assert commit(broker, 0) is E.UNKNOWN_MEMBER_ID
    assert commit(broker, 3, "m") is E.UNKNOWN_MEMBER_ID


def test_in_a_group_with_members_only_they_commit_and_in_their_generation():
    broker = Harness()
    ids = broker.stable_group(group_instance_id="i")
    assert commit(broker) is E.UNKNOWN_MEMBER_ID
    assert commit(broker, 1) is E.UNKNOWN_MEMBER_ID
    assert commit(broker, 9, "x", "i") is E.FENCED_INSTANCE_ID
    assert commit(broker, 9, "x") is E.UNKNOWN_MEMBER_ID
    assert commit(broker, 0, ids[0]) is E.ILLEGAL_GENERATION
    assert commit(broker, -1, ids[0]) is E.ILLEGAL_GENERATION
    assert commit(broker, 1, ids[0], "i") is E.NONE


def test_commits_of_the_old_generation_are_accepted_while_rebalancing_until_the_next_one():
    """That is how consumers commit when their partitions are revoked."""
    broker = Harness()
    ids = broker.stable_group(2)
    third = broker.join()
    assert commit(broker, 1, ids[0], offset=7) is E.NONE
    for member_id in ids:
        broker.join(member_id)
    assert broker.joined(third).generation == 2
    assert commit(broker, 1, ids[0]) is E.ILLEGAL_GENERATION
    assert commit(broker, 2, ids[0]) is E.REBALANCE_IN_PROGRESS
    assert broker.offset().offset == 7


def test_a_commit_restarts_the_session():
    broker = Harness()
    ids = broker.stable_group()
    broker.after(SESSION_MS - 1)
    commit(broker, 1, ids[0])
    assert broker.group().members[0].session_deadline_ms == broker.now_ms + SESSION_MS


def test_kafka_16371_metadata_that_is_too_long_fails_its_partition_alone_and_leaves_nothing_pending():
    """KAFKA-16371. The limit counts UTF-16 units: an emoji is two."""
    broker = Harness(offset_metadata_max_bytes=4)
    token = broker.send(
        OffsetCommit("g", (OffsetToCommit(T0, 1, metadata="😀😀!"), OffsetToCommit(T1, 2, metadata="😀😀")))
    )
    assert broker.response_to(token).partitions == {T0: E.OFFSET_METADATA_TOO_LARGE, T1: E.NONE}
    assert broker.offset(T0, stable=True) == FetchedOffset()
    assert broker.offset(T1, stable=True) == FetchedOffset(2, -1, "😀😀")
    assert commit(broker, metadata="12345") is E.OFFSET_METADATA_TOO_LARGE
    assert len(broker.log) == 1


def test_one_request_is_one_batch_and_is_acknowledged_when_it_is_committed():
    broker = Harness()
    broker.holds = True
    token = broker.send(OffsetCommit("g", (OffsetToCommit(T0, 1), OffsetToCommit(T1, 2))))
    assert len(broker.log) == 1
    assert broker.is_parked(token)
    assert broker.offset(T0) == FetchedOffset()
    broker.release()
    assert broker.response_to(token).partitions == {T0: E.NONE, T1: E.NONE}
    assert [broker.offset(T0).offset, broker.offset(T1).offset] == [1, 2]


def test_two_commits_in_flight_cannot_invert():
    """KAFKA-14505: the batch with the larger offset wins, whichever is reported first."""
    broker = Harness()
    broker.holds = True
    first, second = broker.commit(1), broker.commit(2)
    broker.release(index=1)
    assert broker.committed(second) is E.NONE
    assert broker.offset().offset == 2
    broker.release()
    assert broker.committed(first) is E.NONE
    assert (broker.offset().offset, broker.successor().offset().offset) == (2, 2)


def test_a_commit_that_fails_leaves_a_later_one_pending():
    broker = Harness()
    broker.holds = True
    broker.commit(1)
    broker.commit(2)
    broker.release(E.REQUEST_TIMED_OUT)
    assert broker.group().pending_offsets == (T0,)
    broker.release()
    assert (broker.group().pending_offsets, broker.offset().offset) == ((), 2)


def test_a_commit_that_fails_takes_none_with_it_that_is_in_flight():
    """Kafka keeps the last pending commit of a partition only, and loses the first one in this order of events."""
    broker = Harness()
    broker.holds = True
    first, second = broker.commit(1), broker.commit(2)
    broker.release(E.NOT_ENOUGH_REPLICAS, index=1)
    broker.release()
    assert [broker.committed(first), broker.committed(second)] == [E.NONE, E.COORDINATOR_NOT_AVAILABLE]
    assert (broker.offset(stable=True).offset, broker.group().pending_offsets) == (1, ())


@pytest.mark.parametrize(
    ("append_error", "response"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.RECORD_LIST_TOO_LARGE, E.INVALID_COMMIT_OFFSET_SIZE),
        (E.REQUEST_TIMED_OUT, E.REQUEST_TIMED_OUT),
    ],
)
def test_errors_of_the_append(append_error, response):
    broker = Harness()
    broker.append_error = append_error
    assert commit(broker) is response
    assert broker.offset(stable=True) == FetchedOffset()
    assert broker.group().pending_offsets == ()


def test_a_commit_that_timed_out_may_still_become_visible():
    """It is in the log, so whoever loads the log sees it."""
    broker = Harness()
    broker.holds = True
    token = broker.commit(5)
    broker.release(E.REQUEST_TIMED_OUT)
    assert broker.committed(token) is E.REQUEST_TIMED_OUT
    assert (broker.offset().offset, broker.successor().offset().offset) == (-1, 5)


def test_what_a_commit_stores():
    broker = Harness()
    broker.send(OffsetCommit("g", (OffsetToCommit(T0, 5, 3, "m", commit_timestamp_ms=77),), retention_time_ms=-1))
    assert broker.group().offsets[T0] == (5, 3, "m", 77)
    broker.send(OffsetCommit("g", (OffsetToCommit(T0, -7, -1, None),)))
    assert broker.group().offsets[T0] == (-7, -1, "", broker.now_ms)
    assert broker.successor().group().offsets == broker.group().offsets


def test_kafka_4_stores_the_topics_id_with_an_offset_and_no_other_topic_has_it():
    """``GroupCoordinatorRecordHelpers.newOffsetCommitRecord``; ``OffsetMetadataManager.isOffsetInvalid``."""
    ids = {name: name.encode() * 16 for name in "ab"}
    offset = OffsetToCommit(T0, 5, 3, "m", topic_id=ids["a"])
    for is_kafka_4, version in ((False, 3), (True, 4)):
        broker = Harness(is_kafka_4=is_kafka_4)
        broker.send(OffsetCommit("g", (offset,)))
        [(_, value)] = [record for one in broker.log for batch in read_batches(one) for record in batch.records]
        assert value is not None
        assert version_of(value) == version
        assert read_offset(value).topic_id == (ids["a"] if is_kafka_4 else NIL_UUID)
        for one in (broker, broker.successor(is_kafka_4=is_kafka_4)):
            found = [
                one.ask(OffsetFetch("g", (T0,), topic_ids=asked)).offsets[T0].offset
                for asked in ({}, {"t": ids["a"]}, {"t": ids["b"]})
            ]
            assert found == [5, 5, -1 if is_kafka_4 else 5]


def test_offsets_are_fetched_in_every_state_by_any_client():
    broker = Harness()
    assert broker.offset() == FetchedOffset()
    assert broker.ask(OffsetFetch("g")).offsets == {}
    tokens = [broker.join(), broker.join()]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    broker.sync_all(ids)
    commit(broker, 1, ids[0], offset=4)
    for _ in range(2):
        assert broker.ask(OffsetFetch("g", (T0, T1))).offsets == {T0: FetchedOffset(4), T1: FetchedOffset()}
        broker.join(ids[0])
    assert broker.ask(OffsetFetch("g")).offsets == {T0: FetchedOffset(4)}


def test_require_stable_reports_commits_in_flight_partition_by_partition():
    """KIP-447: plain commits, too; a request for all partitions knows the materialised ones only."""
    broker = Harness()
    commit(broker, offset=1)
    broker.holds = True
    broker.commit(2)
    broker.commit(2, T1)
    assert broker.offset(T0, stable=True) == FetchedOffset(error=E.UNSTABLE_OFFSET_COMMIT)
    assert broker.offset(T0) == FetchedOffset(1)
    unstable = FetchedOffset(error=E.UNSTABLE_OFFSET_COMMIT)
    assert broker.ask(OffsetFetch("g", (T0, T1), require_stable=True)).offsets == {T0: unstable, T1: unstable}
    assert broker.ask(OffsetFetch("g", None, require_stable=True)).offsets == {T0: unstable}
    broker.release()
    assert broker.offset(T0, stable=True) == FetchedOffset(2)


def test_the_empty_group_id_has_offsets_but_no_members():
    broker = Harness()
    assert commit(broker, group="") is E.NONE
    assert broker.offset(group="").offset == 1
    assert broker.joined(broker.join(group="")).error is E.INVALID_GROUP_ID
    assert broker.synced(broker.sync("m", group="")).error is E.INVALID_GROUP_ID
    assert broker.leave("m", group="").error is E.INVALID_GROUP_ID
    assert broker.ask(OffsetFetch(None, ())).error is E.INVALID_GROUP_ID


def test_commits_are_counted_by_batch():
    broker = Harness()
    broker.send(OffsetCommit("g", (OffsetToCommit(T0, 1), OffsetToCommit(TopicPartition("u", 0), 2))))
    assert broker.coordinator.counters.offset_commits == 1
