"""Expiration (KIP-211), the remains of deletions, and the tombstones of both."""

import pytest
from tests.unit.coordinator.harness import SESSION_MS, T0, T1, Harness, subscription

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    DeleteGroup,
    FetchedOffset,
    GroupState,
    OffsetCommit,
    OffsetDelete,
    OffsetToCommit,
    Protocol,
)
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge_broker.coordinator.events import PartitionsDeleted
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.records import GroupKey, OffsetKey, read_key

E = ErrorCode
RETENTION_MS, CHECK_MS = 1_000_000, 1_000
OTHER = TopicPartition("other", 0)


def retaining(**settings) -> Harness:
    return Harness(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS, **settings)


def alive(broker: Harness, ids: list[str], generation: int, duration_ms: int) -> None:
    """Let time pass while the members send heartbeats."""
    end_ms = broker.now_ms + duration_ms
    while broker.now_ms < end_ms:
        broker.after(min(5_000, end_ms - broker.now_ms))
        for member_id in ids:
            broker.heartbeat(member_id, generation)


def tombstones(broker: Harness, first_batch: int = 0) -> list[OffsetKey | GroupKey]:
    keys = []
    for batch in broker.log[first_batch:]:
        for key, value in next(iter(read_batches(batch))).records:
            if value is None:
                keys.append(read_key(key))
    return keys


def test_a_simple_consumers_offsets_expire_each_from_its_commit():
    broker = retaining()
    broker.commit(1, T0)
    broker.after(RETENTION_MS - CHECK_MS)
    broker.commit(1, T1)
    assert broker.offset(T0).offset == 1
    broker.after(CHECK_MS)
    assert [broker.offset(T0).offset, broker.offset(T1).offset] == [-1, 1]
    broker.after(RETENTION_MS)
    assert broker.coordinator.group_view("g") is None
    # In generation 0 there is no record of the group, so it gets no tombstone.
    assert tombstones(broker) == [OffsetKey("g", T0), OffsetKey("g", T1)]
    assert broker.coordinator.counters.offset_expirations == 2


def test_a_group_whose_members_left_keeps_all_offsets_from_that_moment_even_over_a_failover():
    broker = retaining()
    ids = broker.stable_group()
    broker.commit(1, member_id=ids[0], generation=1)
    alive(broker, ids, 1, 2 * RETENTION_MS)
    broker.leave(*ids)
    empty_since_ms = broker.now_ms
    broker.after(RETENTION_MS // 2)
    after = broker.successor(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS)
    after.after(empty_since_ms + RETENTION_MS - after.now_ms - CHECK_MS)
    assert after.offset().offset == 1
    after.after(2 * CHECK_MS)
    assert after.coordinator.group_view("g") is None
    assert tombstones(after) == [OffsetKey("g", T0), GroupKey("g")]


def test_a_stable_consumer_group_loses_offsets_of_topics_it_is_not_subscribed_to():
    broker = retaining()
    ids = broker.stable_group()
    broker.commit(1, T0, member_id=ids[0], generation=1)
    broker.commit(1, OTHER, member_id=ids[0], generation=1)
    alive(broker, ids, 1, RETENTION_MS + CHECK_MS)
    assert [broker.offset(T0).offset, broker.offset(OTHER).offset] == [1, -1]
    assert broker.group().state is GroupState.STABLE


def test_kafka_13636_nothing_expires_while_a_group_rebalances():
    """KAFKA-13636."""
    broker = retaining()
    ids = broker.stable_group(2, session_timeout_ms=1_800_000, rebalance_timeout_ms=2 * RETENTION_MS)
    broker.commit(1, OTHER, member_id=ids[0], generation=1)
    broker.join(ids[0], session_timeout_ms=1_800_000, rebalance_timeout_ms=2 * RETENTION_MS)
    broker.after(RETENTION_MS + CHECK_MS)
    assert broker.group().state is GroupState.PREPARING_REBALANCE
    assert broker.offset(OTHER).offset == 1


@pytest.mark.parametrize(
    ("protocol_type", "metadata"), [("connect", subscription("t")), ("consumer", b"\0\0\0\0\0\1\0\x7ft")]
)
def test_nothing_expires_where_the_subscription_is_unknown(protocol_type, metadata):
    broker = retaining()
    ids = broker.stable_group(protocol_type=protocol_type, protocols=(Protocol("p", metadata),))
    broker.commit(1, OTHER, member_id=ids[0], generation=1)
    alive(broker, ids, 1, RETENTION_MS + CHECK_MS)
    assert broker.offset(OTHER).offset == 1


def test_a_retention_beyond_the_largest_time_never_ends():
    """GroupCoordinatorAdapter adds it to the time; in Kafka the sum overflows, here the broker halted."""
    for retention_ms in (2**63 - 1, -(2**63)):
        broker = retaining()
        committed = broker.send(OffsetCommit("g", (OffsetToCommit(T0, 1),), retention_time_ms=retention_ms))
        assert broker.committed(committed) is E.NONE
        broker.after(2 * RETENTION_MS)
        assert broker.offset().offset == (1 if retention_ms > 0 else -1)


def test_an_expiration_time_of_its_own_counts_instead():
    broker = retaining()
    broker.send(OffsetCommit("g", (OffsetToCommit(T0, 1),), retention_time_ms=5_000))
    assert broker.successor().offset().offset == 1
    broker.after(4_999)
    assert broker.offset().offset == 1
    broker.after(CHECK_MS)
    assert broker.offset().offset == -1


def test_an_offset_with_a_commit_in_flight_does_not_expire():
    broker = retaining()
    broker.commit(1)
    broker.holds = True
    broker.commit(2)
    broker.after(2 * RETENTION_MS)
    assert broker.offset().offset == 1


def test_an_offset_with_an_open_transactional_commit_does_not_expire():
    """Its tombstone would lie behind the commit in the log, and compaction would remove the commit that counts.

    Kafka 3.9 looks at plain commits alone (GroupMetadata.removeExpiredOffsets).
    """
    broker = retaining()
    broker.commit(1)
    broker.after(RETENTION_MS - CHECK_MS)
    broker.commit_transactional(5)
    broker.after(2 * CHECK_MS)
    assert tombstones(broker) == []
    assert broker.offset().offset == 1
    broker.complete_transaction()
    broker.after(RETENTION_MS - 3 * CHECK_MS)
    assert broker.offset().offset == 5
    broker.after(3 * CHECK_MS)
    assert (broker.offset().offset, tombstones(broker)) == (-1, [OffsetKey("g", T0)])


def test_groups_of_failed_joins_are_removed_by_the_next_run_without_a_record():
    broker = retaining()
    broker.join(protocols=())
    assert broker.group().state is GroupState.EMPTY
    broker.after(CHECK_MS)
    assert broker.coordinator.group_view("g") is None
    assert broker.log == []


def test_a_run_that_was_missed_is_not_made_up_for():
    broker = retaining()
    broker.now_ms += 10 * CHECK_MS + 1
    broker.carry_out(broker.coordinator.step(broker.now_ms))
    assert broker.coordinator.next_deadline_ms() == broker.now_ms - 1 + CHECK_MS


def test_delete_group_removes_offsets_and_record_in_one_batch_without_waiting():
    broker = Harness()
    ids = broker.stable_group()
    broker.commit(1, member_id=ids[0], generation=1)
    assert broker.ask(DeleteGroup("g")).error is E.NON_EMPTY_GROUP
    broker.leave(*ids)
    broker.holds = True
    assert broker.ask(DeleteGroup("g")).error is E.NONE
    assert broker.held == []
    assert read_header(broker.log[-1]).record_count == 2
    assert tombstones(broker) == [OffsetKey("g", T0), GroupKey("g")]
    assert broker.ask(DeleteGroup("g")).error is E.GROUP_ID_NOT_FOUND
    assert broker.successor().coordinator.group_view("g") is None


def test_a_deleted_group_starts_again_in_generation_0():
    broker = Harness()
    broker.leave(*broker.stable_group())
    broker.ask(DeleteGroup("g"))
    assert broker.joined(broker.join(requires_known_member_id=True)).error is E.MEMBER_ID_REQUIRED
    assert broker.group().generation == 0


def test_deleting_a_group_with_a_commit_in_flight_does_not_bring_it_back():
    broker = Harness()
    broker.commit(1)
    broker.holds = True
    token = broker.commit(2)
    broker.ask(DeleteGroup("g"))
    broker.release()
    assert broker.committed(token) is E.NONE
    assert broker.offset() == FetchedOffset()


def test_offset_delete_by_state():
    broker = Harness()
    assert broker.ask(OffsetDelete("g", (T0,))).error is E.GROUP_ID_NOT_FOUND
    ids = broker.stable_group(protocol_type="connect")
    assert broker.ask(OffsetDelete("g", (T0,))).error is E.NON_EMPTY_GROUP
    broker.commit(1, T0, member_id=ids[0], generation=1)
    broker.commit(1, T1, member_id=ids[0], generation=1)
    broker.leave(*ids)
    result = broker.ask(OffsetDelete("g", (T0, OTHER)))
    assert (result.error, result.partitions) == (E.NONE, {T0: E.NONE, OTHER: E.NONE})
    assert [broker.offset(T0).offset, broker.offset(T1).offset] == [-1, 1]
    assert broker.coordinator.counters.offset_deletions == 1
    broker.ask(OffsetDelete("g", (T1,)))
    assert broker.coordinator.group_view("g") is None  # Empty without offsets: the group goes, too
    assert broker.ask(OffsetDelete("", (T0,))).error is E.INVALID_GROUP_ID


def test_an_unknown_subscription_protects_all_topics_from_offset_delete():
    broker = Harness()
    ids = broker.stable_group(protocols=(Protocol("p", b""),))
    broker.commit(1, OTHER, member_id=ids[0], generation=1)
    assert broker.ask(OffsetDelete("g", (OTHER,))).partitions == {OTHER: E.GROUP_SUBSCRIBED_TO_TOPIC}


def test_offsets_of_deleted_partitions_go_from_all_groups():
    broker = Harness()
    broker.commit(1, T0, group="a")
    broker.commit(1, T1, group="a")
    broker.commit(1, T0, group="b")
    broker.event(PartitionsDeleted([T0]))
    assert [broker.offset(T0, "a").offset, broker.offset(T1, "a").offset] == [-1, 1]
    assert broker.coordinator.group_view("b") is None
    assert tombstones(broker) == [OffsetKey("a", T0), OffsetKey("b", T0)]


def test_offsets_of_a_topic_that_was_created_again_stay_when_the_former_one_is_deleted():
    """Kafka 4 commits with the topic's id (OffsetMetadataManager.onTopicsDeleted); an unknown one fits each."""
    broker = Harness(is_kafka_4=True)
    for group, topic_id in (("former", b"1" * 16), ("new", b"2" * 16), ("unknown", NIL_UUID)):
        broker.send(OffsetCommit(group, (OffsetToCommit(T0, 1, topic_id=topic_id),)))
    broker.holds = True
    broker.send(OffsetCommit("new", (OffsetToCommit(T0, 2, topic_id=b"2" * 16),)))
    broker.event(PartitionsDeleted([T0], {"t": b"1" * 16}))
    broker.release()
    assert [broker.offset(T0, group).offset for group in ("former", "new", "unknown")] == [-1, 2, -1]
    assert tombstones(broker) == [OffsetKey("former", T0), OffsetKey("unknown", T0)]


def test_a_commit_in_flight_for_a_deleted_partition_does_not_come_back():
    broker = Harness()
    broker.commit(1, T1)
    broker.holds = True
    token = broker.commit(1, T0)
    broker.event(PartitionsDeleted([T0]))
    broker.release()
    assert broker.committed(token) is E.NONE
    assert broker.offset(T0) == FetchedOffset()


def test_a_transactional_commit_in_flight_for_a_deleted_partition_keeps_no_group():
    broker = retaining()
    broker.holds = True
    token = broker.commit_transactional(5)
    broker.event(PartitionsDeleted([T0]))
    broker.release()
    assert broker.committed(token) is E.NONE
    broker.complete_transaction()
    broker.after(CHECK_MS)
    assert broker.coordinator.group_view("g") is None


def test_removing_a_group_stops_its_timers():
    broker = retaining()
    broker.join(requires_known_member_id=True, session_timeout_ms=SESSION_MS)
    broker.after(CHECK_MS)
    assert broker.coordinator.group_view("g") is None
    assert len(broker.coordinator._runtime.timers) == 1


def test_what_expires_is_an_event_and_is_remembered_also_of_a_group_that_is_gone():
    """KIP-211; the timeline and ``explain group:G`` say it."""
    broker = retaining()
    broker.commit(1, T0)
    broker.after(2 * RETENTION_MS)
    assert broker.coordinator.group_view("g") is None
    (note,) = [note for note in broker.notes if note.kind == "offsets"]
    assert (note.key, note.cause, note.fields) == ("g", "OffsetsRetention", {"partitions": ["t-0"]})
    expiration = broker.coordinator.expiration_of("g")
    assert expiration is not None
    assert (expiration.partitions, expiration.at_ms <= broker.now_ms) == ((T0,), True)
    assert broker.coordinator.expiration_of("h") is None
