"""Loading and unloading: what requests get meanwhile, what a load restores, the order of elections and resignations."""

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, T0, T1, Harness

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    DeleteGroup,
    DeleteGroupResult,
    DescribeGroup,
    DescribeGroupResult,
    FetchedOffset,
    GroupState,
    JoinGroupResult,
    LeaveGroupResult,
    ListGroups,
    ListGroupsResult,
    OffsetDelete,
    OffsetDeleteResult,
    OffsetFetch,
    OffsetFetchResult,
    SyncGroupResult,
    partition_of,
)
from tidegauge_broker.coordinator.effects import ReadLog
from tidegauge_broker.coordinator.events import Elected, LoadCompleted, RecordsRead, Resigned, ShutDown
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.offsets import CommittedOffset
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.records import offset_key, offset_value

E = ErrorCode


def every_response(broker: Harness) -> list[object]:
    return [
        broker.response_to(broker.join("m")),
        broker.response_to(broker.sync("m")),
        broker.heartbeat("m"),
        broker.leave("m"),
        broker.committed(broker.commit()),
        broker.ask(OffsetFetch("g", (T0,))),
        broker.ask(OffsetDelete("g", (T0,))),
        broker.ask(DescribeGroup("g")),
        broker.ask(DeleteGroup("g")),
        broker.ask(ListGroups()),
    ]


def all_of(error: ErrorCode, **others: ErrorCode) -> list[object]:
    return [
        JoinGroupResult(error, member_id="m"),
        SyncGroupResult(others.get("sync", error)),
        others.get("heartbeat", error),
        LeaveGroupResult(error),
        error,
        OffsetFetchResult(error),
        OffsetDeleteResult(error),
        DescribeGroupResult("g", error),
        DeleteGroupResult(error),
        ListGroupsResult(others.get("listing", error), []),
    ]


def test_a_broker_that_does_not_lead_the_partition_sends_every_request_away():
    broker = Harness(elected=False)
    responses = every_response(broker)
    assert responses == all_of(E.NOT_COORDINATOR, listing=E.NONE)


def test_while_it_loads_heartbeats_succeed_blindly_and_syncs_start_over():
    broker = Harness(elected=False)
    broker.loads = False
    broker.elect(0)
    responses = every_response(broker)
    assert responses == all_of(E.COORDINATOR_LOAD_IN_PROGRESS, sync=E.REBALANCE_IN_PROGRESS, heartbeat=E.NONE)
    broker.event(LoadCompleted(0, 0))
    assert broker.offset() == FetchedOffset()


def test_after_the_shutdown_began_there_is_no_coordinator():
    broker = Harness()
    broker.event(ShutDown())
    responses = every_response(broker)
    assert responses[:-1] == all_of(E.COORDINATOR_NOT_AVAILABLE)[:-1]
    assert responses[-1].error is E.COORDINATOR_NOT_AVAILABLE
    assert broker.coordinator.next_deadline_ms() is None


def test_an_invalid_group_id_comes_first():
    broker = Harness(elected=False)
    assert broker.heartbeat("m", group="") is E.INVALID_GROUP_ID
    assert broker.heartbeat("m", group=None) is E.INVALID_GROUP_ID
    assert broker.ask(DescribeGroup("")).error is E.NOT_COORDINATOR


def test_a_group_goes_to_its_partition():
    broker = Harness(partitions=10)
    here = next(name for name in "abcdefghij" if partition_of(name, 10) == 0)
    there = next(name for name in "abcdefghij" if partition_of(name, 10) == 5)
    assert broker.committed(broker.commit(group=here)) is E.NONE
    assert broker.committed(broker.commit(group=there)) is E.NOT_COORDINATOR


def test_a_load_restores_members_assignments_and_offsets():
    broker = Harness()
    ids = broker.stable_group(2)
    broker.commit(4, member_id=ids[0], generation=1)
    before = broker.group()
    after = broker.successor()
    view = after.group()
    assert (view.state, view.generation, view.leader, view.protocol_name) == (GroupState.STABLE, 1, ids[0], "range")
    assert [member.assignment for member in view.members] == [member.assignment for member in before.members]
    assert view.offsets == before.offsets
    assert after.synced(after.sync(ids[1], 1)).assignment == ids[1].encode()
    # Every member gets a whole session from the load on.
    assert {member.session_deadline_ms for member in view.members} == {after.now_ms + SESSION_MS}


def test_the_time_of_the_state_is_the_one_of_the_record():
    """The time written with an assignment is when the group entered CompletingRebalance; a reload restores that."""
    broker = Harness()
    token = broker.join()
    broker.after(INITIAL_DELAY_MS)
    completing_ms = broker.now_ms
    broker.after(500)
    broker.sync_all([broker.joined(token).member_id])
    assert broker.group().state_since_ms == completing_ms + 500
    assert broker.successor().group().state_since_ms == completing_ms


def test_a_rebalance_in_progress_is_forgotten():
    broker = Harness()
    ids = broker.stable_group(2)
    broker.join()
    broker.join(ids[0])
    after = broker.successor()
    assert (after.group().state, after.group().generation) == (GroupState.STABLE, 1)
    assert [after.heartbeat(member_id) for member_id in ids] == [E.NONE, E.NONE]


def test_offsets_without_a_group_record_make_an_empty_group():
    broker = Harness()
    broker.commit(3)
    view = broker.successor().group()
    assert (view.state, view.generation, view.protocol_type) == (GroupState.EMPTY, 0, None)


def test_what_is_above_the_high_watermark_is_loaded_too():
    """A commit that was never acknowledged may become visible after a failover."""
    broker = Harness()
    broker.holds = True
    broker.commit(3)
    assert broker.successor().offset().offset == 3


def test_unloading_sends_parked_joins_away():
    broker = Harness()
    token = broker.join()
    broker.resign(1)
    assert broker.joined(token).error is E.NOT_COORDINATOR
    assert len(broker.coordinator._runtime.timers) == 1  # the retention run


def test_unloading_sends_parked_syncs_away():
    broker = Harness()
    tokens = [broker.join(), broker.join()]
    broker.after(2 * INITIAL_DELAY_MS)
    ids = [broker.joined(token).member_id for token in tokens]
    parked = broker.sync(ids[1])
    broker.resign(1)
    assert broker.synced(parked) == SyncGroupResult(E.NOT_COORDINATOR)
    assert len(broker.coordinator._runtime.timers) == 1


def test_an_append_that_ends_after_the_unload_responds_and_changes_nothing():
    broker = Harness()
    broker.holds = True
    committed, failed = broker.commit(1), broker.commit(2)
    broker.resign(1)
    broker.release()
    broker.release(E.NOT_LEADER_OR_FOLLOWER)
    assert [broker.committed(committed), broker.committed(failed)] == [E.NONE, E.NOT_COORDINATOR]


def test_an_event_of_an_older_epoch_than_the_election_is_ignored():
    """KAFKA-10614: of a request that was overtaken by the one that made this broker the leader."""
    broker = Harness(elected=False)
    broker.elect(4)
    broker.commit(1)
    broker.resign(3)
    broker.elect(2)
    assert broker.coordinator.shard_states() == {0: ShardState.ACTIVE}
    assert broker.offset().offset == 1
    broker.resign(4)
    assert broker.coordinator.shard_states() == {}


@pytest.mark.parametrize("epoch", [None, 5, 6])
def test_a_topic_that_was_created_again_is_served_though_its_epochs_begin_again(epoch):
    """It was deleted while this broker led the partition, or followed in it.

    Kafka's group coordinator ignores the election (maybeUpdateCoordinatorEpoch) until its broker restarts.
    """
    broker = Harness(elected=False)
    broker.elect(5)
    broker.commit(1)
    broker.resign(epoch)
    broker.log, broker.end_offset = [], 0
    broker.elect(0)
    assert broker.coordinator.shard_states() == {0: ShardState.ACTIVE}
    assert broker.offset() == FetchedOffset()
    assert broker.committed(broker.commit(2)) is E.NONE
    broker.resign(1)
    assert broker.coordinator.shard_states() == {}


def test_a_resignation_without_epoch_always_counts():
    broker = Harness()
    broker.resign(None)
    assert broker.coordinator.shard_states() == {}


def test_an_election_of_the_leader_loads_nothing_again():
    broker = Harness()
    broker.commit(1)
    effects = broker.coordinator.handle(Elected(0, 1), broker.now_ms)
    assert not any(isinstance(effect, ReadLog) for effect in effects)
    assert broker.offset().offset == 1


def test_loads_and_unloads_run_one_after_the_other_in_their_order():
    """Until its own load begins, a partition is not this broker's; one thread of Kafka's loads them all."""
    broker = Harness(elected=False, partitions=2)
    handle = broker.coordinator.handle
    reads = [effect for effect in handle(Elected(0, 5), 0) if isinstance(effect, ReadLog)]
    assert reads == [ReadLog(0, 5)]
    for event in (Elected(1, 7), Resigned(0, 6)):
        assert not any(isinstance(effect, ReadLog) for effect in handle(event, 0))
    assert broker.coordinator.shard_states() == {0: ShardState.LOADING}
    # Records and ends of other loads change nothing.
    assert handle(LoadCompleted(1, 7), 0) == []
    assert handle(LoadCompleted(0, 4), 0) == []
    reads = [effect for effect in handle(LoadCompleted(0, 5), 0) if isinstance(effect, ReadLog)]
    assert reads == [ReadLog(1, 7)]
    assert broker.coordinator.shard_states() == {0: ShardState.ACTIVE, 1: ShardState.LOADING}
    handle(LoadCompleted(1, 7), 0)
    assert broker.coordinator.shard_states() == {1: ShardState.ACTIVE}


def test_a_log_that_cannot_be_read_to_its_end_is_not_served_and_nothing_is_written_to_it():
    """An older commit must not count as the newest; CoordinatorRuntime, CoordinatorState.FAILED: NOT_COORDINATOR."""
    log = Harness()
    log.commit(1)
    log.commit(2)
    for problem in ("damaged", "unreadable"):
        broker = Harness(elected=False)
        broker.loads = False
        broker.elect(0)
        batch = bytearray(log.log[1])
        batch[-1] ^= 1
        broker.event(RecordsRead(0, 0, log.log[0]))
        if problem == "damaged":
            broker.event(RecordsRead(0, 0, bytes(batch)))
        broker.event(LoadCompleted(0, 0, "" if problem == "damaged" else "the disk failed"))
        assert broker.coordinator.shard_states() == {0: ShardState.FAILED}
        assert broker.ask(OffsetFetch("g", (T0,))) == OffsetFetchResult(E.NOT_COORDINATOR)
        assert broker.committed(broker.commit(9)) is E.NOT_COORDINATOR
        assert broker.joined(broker.join()).error is E.NOT_COORDINATOR
        broker.after(10**9)
        assert broker.log == [], "nor has anything expired"
        assert any(line.level == "error" and "Error loading offsets" in line.text for line in broker.lines)


def test_a_partition_whose_load_failed_is_loaded_again_when_it_is_elected_again():
    log = Harness()
    log.commit(1)
    broker = Harness(elected=False)
    broker.loads = False
    broker.elect(1)
    broker.event(LoadCompleted(0, 1, "the disk failed"))
    broker.elect(2)
    broker.event(RecordsRead(0, 2, log.log[0]))
    broker.event(LoadCompleted(0, 2))
    assert broker.offset().offset == 1
    broker.resign(3)
    broker.elect(4)
    broker.event(LoadCompleted(0, 4, "the disk failed"))
    broker.resign(5)
    assert broker.coordinator.shard_states() == {}


def test_records_of_a_newer_broker_are_skipped_with_a_warning():
    """KIP-915."""
    stored = [Record(b"\0\x09\0\1g", b"?"), Record(offset_key("g", T0), offset_value_of(3))]
    batch = batch_of(stored, 0, 0, 0)
    broker = Harness(log=[batch])
    assert broker.offset().offset == 3
    assert any("Unknown message key with version 9" in line.text for line in broker.lines)


def offset_value_of(offset: int) -> bytes:
    return offset_value(CommittedOffset(offset))


def test_compressed_batches_are_written_and_read():
    for codec in range(5):
        broker = Harness(offsets_topic_compression_codec=codec)
        broker.commit(3, metadata="m" * 200)
        assert broker.log[0][22] & 7 == codec
        assert broker.successor().offset().offset == 3


def test_listing_filters_by_state_and_type():
    broker = Harness()
    broker.stable_group(group="stable")
    broker.commit(group="simple")

    def listed(*states, types=()):
        return [(one.group_id, one.protocol_type, one.state) for one in broker.ask(ListGroups(states, types)).groups]

    both = [("stable", "consumer", "Stable"), ("simple", "", "Empty")]
    assert listed() == listed("STABLE", "empty") == listed(types=("Classic",)) == both
    assert listed("stable") == both[:1]
    assert listed("Dead") == listed("nonsense") == listed(types=("consumer",)) == []


def test_descriptions_show_metadata_and_assignments_of_stable_groups_only():
    broker = Harness()
    assert broker.ask(DescribeGroup("nothing")) == DescribeGroupResult("nothing", state="Dead")
    ids = broker.stable_group(group_instance_id="i")
    stable = broker.ask(DescribeGroup("g"))
    assert (stable.state, stable.protocol_type, stable.protocol_name) == ("Stable", "consumer", "range")
    member = stable.members[0]
    assert (member.member_id, member.group_instance_id, member.client_id, member.client_host) == (
        ids[0],
        "i",
        "c",
        "/127.0.0.1",
    )
    assert (member.metadata != b"", member.assignment) == (True, ids[0].encode())
    broker.join()
    preparing = broker.ask(DescribeGroup("g"))
    assert (preparing.state, preparing.protocol_name) == ("PreparingRebalance", "")
    assert {(member.metadata, member.assignment) for member in preparing.members} == {(b"", b"")}


def test_gauges_count_groups_by_state_and_offsets():
    broker = Harness()
    broker.stable_group(group="a")
    broker.commit(1, T0, group="b")
    broker.commit(1, T1, group="b")
    gauges = broker.coordinator.gauges()
    assert gauges.offsets == 2
    assert {state: count for state, count in gauges.groups.items() if count} == {
        GroupState.STABLE: 1,
        GroupState.EMPTY: 1,
    }
