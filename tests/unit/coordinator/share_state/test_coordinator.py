"""The rules of the share coordinator (KIP-932), one test for each."""

import random

import pytest
from tests.unit.coordinator.share_state.harness import KEY, TOPIC, ShareHarness

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import (
    DeleteShareState,
    InitializeShareState,
    ReadShareState,
    ReadShareSummary,
    SharePartitionKey,
    ShareStateResult,
    StateBatch,
    WriteShareState,
)
from tidegauge_broker.coordinator.events import ShutDown
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.share_state.records import Snapshot, Update, read_change, read_key, to_bytes
from tidegauge_broker.coordinator.share_state.state import replayed

OTHER = SharePartitionKey("g", TOPIC, 1)
ACCEPTED = StateBatch(0, 9, 2, 1)


def initialized(**settings) -> ShareHarness:
    share = ShareHarness(**settings)
    assert share.ask(InitializeShareState(KEY, 2)) == ShareStateResult()
    return share


def write(start=0, state=2, leader=0, batches=(ACCEPTED,), complete=10):
    return WriteShareState(KEY, state, leader, start, complete, batches)


def changes(share):
    return [None if value is None else read_change(read_key(key)[1], value) for key, value in share.records()]


@pytest.mark.parametrize("request_", [ReadShareState(KEY), write()])
def test_a_share_partition_is_initialized_before_it_is_read_or_written(request_):
    result = ShareHarness().ask(request_)
    assert result.error is ErrorCode.INVALID_REQUEST
    assert "on uninitialized share partition not allowed" in result.message


def test_the_summary_of_a_share_partition_that_is_not_initialized_is_no_error():
    assert ShareHarness().ask(ReadShareSummary(KEY)) == ShareStateResult(start_offset=-1)


def test_a_summary_has_the_epochs_the_start_and_the_number_of_completed_records():
    share = initialized()
    share.ask(ReadShareState(KEY, 5))
    share.ask(write(start=3, leader=5))
    expected = ShareStateResult(state_epoch=2, leader_epoch=5, start_offset=3, complete_count=10)
    assert share.ask(ReadShareSummary(KEY)) == expected


def test_a_read_of_a_newer_leader_fences_the_one_before_it():
    share = initialized()
    assert share.ask(write(leader=0)).error is ErrorCode.NONE
    assert share.ask(ReadShareState(KEY, 7)).batches == (ACCEPTED,)
    refused = share.ask(write(leader=6))
    assert refused.error is ErrorCode.FENCED_LEADER_EPOCH
    assert refused.message == "The leader epoch in the request is older than the epoch on the broker."
    assert share.ask(ReadShareState(KEY, 6)).error is ErrorCode.FENCED_LEADER_EPOCH
    assert share.ask(write(leader=7)).error is ErrorCode.NONE


def test_a_read_of_the_same_leader_writes_nothing():
    share = initialized()
    share.ask(ReadShareState(KEY, 7))
    count = len(share.log)
    share.ask(ReadShareState(KEY, 7))
    share.ask(ReadShareState(KEY))
    assert len(share.log) == count


def test_a_leader_with_the_state_of_a_former_initialization_is_fenced():
    share = initialized()
    share.ask(InitializeShareState(KEY, 4, 100))
    refused = share.ask(write(state=2))
    assert refused.error is ErrorCode.FENCED_STATE_EPOCH
    assert "state epoch did not match" in refused.message
    assert share.ask(InitializeShareState(KEY, 3)).error is ErrorCode.FENCED_STATE_EPOCH
    assert share.ask(write(start=100, state=4)).error is ErrorCode.NONE


def test_an_initialization_begins_from_scratch_and_keeps_the_leaders_fenced():
    share = initialized()
    share.ask(ReadShareState(KEY, 7))
    share.ask(write(leader=7))
    share.ask(InitializeShareState(KEY, 4, 100))
    state = share.coordinator.state_of(KEY)
    assert (state.snapshot_epoch, state.leader_epoch, state.start_offset, state.batches) == (1, 0, 100, ())
    assert share.ask(write(start=100, state=4, leader=0)).error is ErrorCode.FENCED_LEADER_EPOCH


def test_epochs_of_minus_1_skip_the_checks():
    share = initialized()
    share.ask(ReadShareState(KEY, 7))
    assert share.ask(write(state=-1, leader=-1)).error is ErrorCode.NONE


@pytest.mark.parametrize(
    "request_",
    [InitializeShareState, ReadShareState, WriteShareState, DeleteShareState, ReadShareSummary],
    ids=lambda one: one.__name__,
)
def test_a_partition_has_a_number_and_a_topic(request_):
    def ask(share, key):
        extra = (2,) if request_ is InitializeShareState else ()
        return share.ask(request_(key, *extra)).error

    share = initialized()
    assert ask(share, KEY._replace(partition=-1)) is ErrorCode.INVALID_REQUEST
    share.topics(b"x" * 16)
    assert ask(share, KEY._replace(topic_id=b"x" * 16, partition=2)) in {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
    }


def test_a_share_partition_of_no_topic_is_unknown():
    share = ShareHarness()
    unknown = KEY._replace(partition=2)
    assert share.ask(InitializeShareState(unknown, 2)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert share.ask(DeleteShareState(unknown)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert share.ask(ReadShareSummary(unknown)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_deletion_leaves_a_tombstone_and_one_of_nothing_leaves_none():
    share = ShareHarness()
    assert share.ask(DeleteShareState(KEY)) == ShareStateResult()
    assert share.log == []
    share.ask(InitializeShareState(KEY, 2))
    assert share.ask(DeleteShareState(KEY)) == ShareStateResult()
    assert changes(share)[-1] is None
    assert share.ask(ReadShareState(KEY)).error is ErrorCode.INVALID_REQUEST


def test_the_state_epoch_of_a_deleted_share_partition_fences_nothing():
    share = initialized()
    share.ask(DeleteShareState(KEY))
    assert share.ask(InitializeShareState(KEY, 1)).error is ErrorCode.NONE


def test_after_enough_updates_the_state_is_written_as_a_whole():
    """share.coordinator.snapshot.update.records.per.snapshot."""
    share = initialized(updates_per_snapshot=3)
    for offset in range(5):
        share.ask(write(start=-1, batches=(StateBatch(offset, offset, 2, 1),), complete=offset + 1))
    kinds = [type(change) for change in changes(share)]
    assert kinds == [Snapshot, Update, Update, Update, Snapshot, Update]
    snapshot = changes(share)[4]
    assert (snapshot.snapshot_epoch, snapshot.batches) == (1, (StateBatch(0, 3, 2, 1),))
    assert changes(share)[5].snapshot_epoch == 1


def test_a_write_counts_when_it_is_committed_and_others_of_its_partition_wait():
    share = initialized()
    share.ask(InitializeShareState(OTHER, 2))
    share.holds = True
    first, second = share.send(write()), share.send(ReadShareState(KEY))
    assert share.is_parked(first)
    assert share.is_parked(second)
    assert share.ask(ReadShareSummary(KEY)).start_offset == -1
    assert share.ask(ReadShareState(OTHER)).error is ErrorCode.NONE
    share.release()
    assert share.response_to(first) == ShareStateResult()
    assert share.response_to(second).batches == (ACCEPTED,)


def test_a_write_that_fails_changes_nothing():
    share = initialized()
    share.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert share.ask(write()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert share.ask(ReadShareState(KEY)).batches == ()


def test_a_write_whose_commit_takes_too_long_counts_although_its_request_fails():
    share = initialized()
    share.holds = True
    token = share.send(write())
    share.release(ErrorCode.REQUEST_TIMED_OUT)
    assert share.response_to(token).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert share.ask(ReadShareState(KEY)).batches == (ACCEPTED,)


def test_requests_get_the_errors_of_coordinators():
    share = initialized()
    share.loads = False
    share.reload()
    assert share.ask(ReadShareState(KEY)).error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    share.resign(3)
    assert share.ask(ReadShareState(KEY)).error is ErrorCode.NOT_COORDINATOR


def test_requests_that_wait_fail_when_the_leadership_is_lost():
    share = initialized()
    share.holds = True
    first, second = share.send(write()), share.send(write())
    share.resign(1)
    assert share.response_to(second).error is ErrorCode.NOT_COORDINATOR
    share.release()
    assert share.response_to(first).error is ErrorCode.NOT_COORDINATOR


def test_the_states_of_a_deleted_topic_are_deleted():
    share = initialized()
    share.topics(None)
    assert share.coordinator.state_of(KEY) is None
    assert changes(share)[-1] is None


def test_a_cold_state_is_written_as_a_whole_while_others_are_active():
    """share.coordinator.cold.partition.snapshot.interval.ms; its creation time stays."""
    share = initialized(cold_interval_ms=1000)
    created_ms = share.coordinator.state_of(KEY).created_ms
    share.after(1000)
    state = share.coordinator.state_of(KEY)
    assert (state.snapshot_epoch, state.created_ms, state.written_ms) == (1, created_ms, created_ms + 1000)
    count = len(share.log)
    share.after(5000)
    assert len(share.log) == count
    share.ask(InitializeShareState(OTHER, 2))
    share.after(1000)
    assert share.coordinator.state_of(KEY).snapshot_epoch == 2


def test_the_log_is_pruned_before_the_oldest_snapshot_that_counts():
    """share.coordinator.state.topic.prune.interval.ms."""
    share = initialized(prune_interval_ms=1000, cold_interval_ms=10**9)
    share.ask(InitializeShareState(OTHER, 2))
    share.ask(InitializeShareState(KEY, 3))
    share.after(1000)
    assert [(one.partition, one.before_offset) for one in share.prunes] == [(0, 1)]
    share.after(1000)
    assert len(share.prunes) == 1
    share.ask(DeleteShareState(OTHER))
    share.after(1000)
    assert share.prunes[-1].before_offset == 2


@pytest.mark.parametrize("seed", range(30))
def test_a_load_gives_the_state_that_was_in_force_even_of_a_pruned_log(seed):
    """Replay of the log equals the state, after any writes and pruning."""
    chance = random.Random(seed)
    share = ShareHarness(updates_per_snapshot=3, prune_interval_ms=50, cold_interval_ms=70)
    epochs = {KEY: 1, OTHER: 1}
    for _ in range(60):
        key = chance.choice((KEY, OTHER))
        kind = chance.randrange(10)
        if kind == 0:
            epochs[key] += 1
            share.ask(InitializeShareState(key, epochs[key], chance.choice((-1, 0, 5))))
        elif kind == 1:
            share.ask(DeleteShareState(key))
        elif kind == 2:
            share.ask(ReadShareState(key, chance.randrange(5)))
        elif kind == 3:
            share.after(chance.randrange(60))
        else:
            first = chance.randrange(20)
            batch = StateBatch(first, first + chance.randrange(5), chance.choice((0, 2, 4)), chance.randrange(1, 4))
            share.ask(WriteShareState(key, -1, -1, chance.choice((-1, chance.randrange(10))), 1, (batch,)))
    for before in (0, *(one.before_offset for one in share.prunes[-1:])):
        successor = ShareHarness(log=share.log[before:], updates_per_snapshot=3)
        for key in (KEY, OTHER):
            live, loaded = share.coordinator.state_of(key), successor.coordinator.state_of(key)
            if before == 0:
                assert loaded == live
            elif live is not None:
                what = ("snapshot_epoch", "state_epoch", "leader_epoch", "start_offset", "complete_count", "batches")
                assert [getattr(loaded, one) for one in what] == [getattr(live, one) for one in what]
            else:
                assert loaded is None


def test_an_unreadable_record_costs_its_share_partition_until_it_is_initialized():
    share = initialized()
    share.ask(InitializeShareState(OTHER, 2))
    key, _ = to_bytes(KEY, None)
    share.write(batch_of([Record(key, b"\0\7abc")], share.now_ms))
    share.write(batch_of([Record(b"\0\0\0", b"x"), Record(b"\0\x63", b"x")], share.now_ms))
    successor = share.successor()
    assert successor.ask(ReadShareState(KEY)).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert successor.ask(ReadShareState(OTHER)).error is ErrorCode.NONE
    assert any("out of service" in line.text for line in successor.lines)
    assert successor.ask(InitializeShareState(KEY, 3)).error is ErrorCode.NONE
    assert successor.ask(ReadShareState(KEY)).error is ErrorCode.NONE


def test_a_log_that_cannot_be_read_serves_nothing():
    share = initialized()
    share.log.append(share.log[-1][:-1] + b"\xff")
    successor = share.successor()
    assert successor.ask(ReadShareState(KEY)).error is ErrorCode.NOT_COORDINATOR


def test_an_update_without_a_snapshot_is_taken_as_it_comes():
    state = replayed(None, Update(3, 1, 5, 0, (ACCEPTED,)), 500)
    assert (state.snapshot_epoch, state.start_offset, state.updates) == (3, 5, 1)


def test_a_group_id_that_no_record_can_hold_is_refused():
    result = ShareHarness().ask(InitializeShareState(KEY._replace(group_id="x" * 40_000), 2))
    assert result.error is ErrorCode.INVALID_REQUEST


def test_the_coordinator_of_a_broker_that_shuts_down_is_not_available():
    share = initialized()
    share.event(ShutDown())
    assert share.ask(ReadShareState(KEY)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
