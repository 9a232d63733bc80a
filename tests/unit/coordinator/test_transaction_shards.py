"""Elections, loads and resignations of __transaction_state (TransactionCoordinator, TransactionStateManager)."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction_harness import ABORT, COMMIT, T0, T1, TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.groups import partition_of
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.effects import ReadLog, WriteMarkers
from tidegauge_broker.coordinator.events import LoadCompleted, RecordsRead, ShutDown
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.record_codec import Record, batch_of
from tidegauge_broker.coordinator.transaction.states import SHARD_TRANSITIONS
from tidegauge_client.records import NewRecord, encode_batch

E = ErrorCode
S = TransactionState


def all_errors(harness: TransactionHarness) -> set[ErrorCode]:
    return {
        harness.init().error,
        harness.add(),
        harness.add_offsets(),
        harness.end(),
        harness.verify()[T0],
        harness.describe().error,
    }


def test_a_broker_that_does_not_lead_the_partition_is_not_the_coordinator():
    harness = TransactionHarness(elected=False)
    assert all_errors(harness) == {E.NOT_COORDINATOR}
    assert harness.list().error is E.NONE


def test_from_the_election_on_the_partition_loads():
    """At once, unlike a partition of groups: COORDINATOR_LOAD_IN_PROGRESS, and a list has nothing."""
    harness = TransactionHarness(elected=False)
    harness.loads = False
    harness.elect(0)
    assert all_errors(harness) == {E.COORDINATOR_LOAD_IN_PROGRESS}
    assert (harness.list().error, harness.list().transactions) == (E.COORDINATOR_LOAD_IN_PROGRESS, ())


def test_a_partition_that_waits_for_another_s_load_is_loading_too():
    harness = TransactionHarness(elected=False, partitions=2)
    harness.loads = False
    harness.elect(0, partition=0)
    harness.elect(0, partition=1)
    assert harness.coordinator.shard_states() == {0: ShardState.LOADING, 1: ShardState.LOADING}
    reads = [effect for effect in harness.effects if isinstance(effect, ReadLog)]
    assert [effect.partition for effect in reads] == [0]
    harness.load(reads[0])
    assert harness.coordinator.shard_states() == {0: ShardState.ACTIVE, 1: ShardState.LOADING}
    assert [effect.partition for effect in harness.effects if isinstance(effect, ReadLog)] == [0, 1]


def test_a_resignation_takes_effect_at_once_during_a_load_too():
    harness = TransactionHarness(elected=False, partitions=2)
    harness.loads = False
    harness.elect(0, partition=0)
    harness.elect(0, partition=1)
    harness.resign(1, partition=0)
    assert harness.coordinator.shard_states() == {1: ShardState.LOADING}
    harness.event(LoadCompleted(0, 0))
    assert harness.coordinator.shard_states() == {1: ShardState.LOADING}
    assert [effect.partition for effect in harness.effects if isinstance(effect, ReadLog)] == [0, 1]


@pytest.mark.parametrize("epoch", [1, None])
def test_after_the_resignation_another_broker_coordinates(epoch):
    """A StopReplica that deletes carries no epoch."""
    harness = TransactionHarness()
    harness.ongoing()
    harness.resign(epoch)
    assert all_errors(harness) == {E.NOT_COORDINATOR}


def test_the_last_record_of_an_id_counts():
    harness = TransactionHarness()
    harness.ongoing(T0, T1)
    harness.end()
    harness.add(T1)
    harness.init(name="other")
    before = {view.transactional_id: view for view in harness.coordinator.transaction_views()}
    successor = harness.successor()
    for view in successor.coordinator.transaction_views():
        old = before[view.transactional_id]
        assert (view.state, view.producer_id, view.producer_epoch) == (old.state, old.producer_id, old.producer_epoch)
        assert (view.partitions, view.timeout_ms, view.last_update_ms) == (
            old.partitions,
            old.timeout_ms,
            old.last_update_ms,
        )
        assert view.coordinator_epoch == 1


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_a_decided_transaction_gets_all_its_markers_again(outcome):
    """With the new coordinator epoch, whether or not the former coordinator has written some."""
    harness = TransactionHarness()
    harness.leaders[T1] = 2
    harness.ongoing(T0, T1)
    harness.holds_markers = True
    harness.end(outcome)
    harness.write_markers()
    successor = harness.successor(epoch=3)
    ((broker, marker, epoch, coordinator_epoch, partitions),) = successor.markers_sent()
    assert (broker, marker, epoch, coordinator_epoch, set(partitions)) == (1, outcome, 0, 3, {T0, T1})
    assert successor.add() is E.CONCURRENT_TRANSACTIONS
    successor.write_markers()
    assert successor.state() in {S.COMPLETE_COMMIT, S.COMPLETE_ABORT}


def test_a_decision_that_was_never_acknowledged_counts_if_it_is_in_the_log():
    """The log is read to its LEO: the commit's outcome was unknown to the client, and is decided by the log."""
    harness = TransactionHarness()
    harness.ongoing()
    harness.holds = True
    token = harness.send_end()
    successor = harness.successor()
    assert harness.is_parked(token)
    successor.write_markers()
    assert successor.state() is S.COMPLETE_COMMIT


def test_an_open_transaction_waits_for_its_client_or_its_timeout():
    harness = TransactionHarness()
    harness.ongoing()
    successor = harness.successor()
    assert (successor.state(), successor.sent) == (S.ONGOING, [])
    successor.holds_markers = False
    assert successor.end() is E.NONE
    assert successor.state() is S.COMPLETE_COMMIT


def test_partitions_that_were_loaded_are_acknowledged_when_their_record_is_committed():
    """The log is loaded up to its LEO: the next leader may lack the record, which Kafka 3.9 does not wait for.

    Found by a simulated history: the producer wrote, the second leader died, the third one knew of no transaction, and
    the last stable offset of its partition stood still.
    """
    harness = TransactionHarness()
    harness.ongoing(T0)
    successor = harness.successor()
    written = len(successor.log)
    successor.holds = True
    token = successor.send_add(T0)
    assert successor.is_parked(token)
    assert successor.pending() is S.ONGOING
    successor.release()
    assert successor.error(token) is E.NONE
    assert len(successor.log) == written + 1
    assert successor.add(T0) is E.NONE, "and what is known to be committed is not written again"
    assert len(successor.log) == written + 1


def test_a_log_that_cannot_be_read_to_its_end_is_not_served_and_nothing_is_written_to_it():
    """An older state must not count as the newest decision, and be written behind it."""
    harness = TransactionHarness()
    harness.init(name="a")
    harness.init(name="b")
    successor = TransactionHarness(elected=False)
    successor.loads = False
    successor.elect(1)
    successor.event(RecordsRead(0, 1, harness.log[0]))
    successor.event(RecordsRead(0, 1, harness.log[1][:-1] + b"\xff"))
    successor.event(RecordsRead(0, 1, harness.log[1]))
    successor.event(LoadCompleted(0, 1))
    assert successor.coordinator.shard_states() == {0: ShardState.FAILED}
    assert successor.coordinator.transaction_views() == [], "a's later decision may be in what was not read"
    assert {successor.init(name=name).error for name in ("a", "b")} == {E.NOT_COORDINATOR}
    assert all_errors(successor) == {E.NOT_COORDINATOR}
    successor.after(10**9)
    assert successor.log == []
    assert any(line.level == "error" for line in successor.lines)
    successor.elect(2)
    for batch in harness.log:
        successor.event(RecordsRead(0, 2, batch))
    successor.event(LoadCompleted(0, 2))
    assert sorted(view.transactional_id for view in successor.coordinator.transaction_views()) == ["a", "b"]


def test_keys_that_are_newer_or_cannot_be_read_are_skipped():
    """KIP-915 for the former; the latter belong to no transactional id."""
    harness = TransactionHarness(log=[batch_of([Record(b"\x00\x05x", b"y")], 1)])
    assert harness.coordinator.shard_states() == {0: ShardState.ACTIVE}
    assert any("Unknown message key with version 5" in line.text for line in harness.lines)
    keyless = TransactionHarness(log=[encode_batch([NewRecord(b"y", timestamp_ms=1)])])
    assert keyless.coordinator.shard_states() == {0: ShardState.ACTIVE}
    assert any("Ignoring 1 records of __transaction_state-0 whose keys" in line.text for line in keyless.lines)


def test_kafka_9307_a_new_election_replaces_what_an_old_one_left():
    """KAFKA-9307: no resignation in between; the log decides again."""
    harness = TransactionHarness()
    harness.ongoing()
    harness.holds = True
    token = harness.send_end()
    harness.holds_markers = True
    harness.elect(3)
    assert harness.view().coordinator_epoch == 3
    assert (harness.state(), harness.pending()) == (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    harness.release()
    assert harness.error(token) is E.NOT_COORDINATOR
    assert harness.sent == [], "the loaded decision waits for a record of its own"
    harness.release()
    assert len(harness.sent) == 1


def test_kafka_10614_a_storm_of_leaderships_ends_with_the_last():
    """KAFKA-10614: leader 1, follower 2, leader 3, the loads slow."""
    harness = TransactionHarness(elected=False)
    harness.loads = False
    harness.elect(1)
    harness.resign(2)
    harness.elect(3)
    assert [effect.leader_epoch for effect in harness.effects if isinstance(effect, ReadLog)] == [1]
    harness.event(LoadCompleted(0, 1))
    assert [effect.leader_epoch for effect in harness.effects if isinstance(effect, ReadLog)] == [1, 3]
    assert all_errors(harness) == {E.COORDINATOR_LOAD_IN_PROGRESS}
    harness.event(LoadCompleted(0, 3))
    assert harness.coordinator.shard_states() == {0: ShardState.ACTIVE}
    harness.resign(2)
    assert harness.coordinator.shard_states() == {0: ShardState.ACTIVE}


@pytest.mark.parametrize("epoch", [None, 5, 6])
def test_a_topic_that_was_created_again_is_served_though_its_epochs_begin_again(epoch):
    """TransactionCoordinator.onElection compares no epochs; a load that is in progress is of the topic before."""
    harness = TransactionHarness(elected=False)
    harness.loads = False
    harness.elect(5)
    harness.resign(epoch)
    harness.elect(0)
    assert all_errors(harness) == {E.COORDINATOR_LOAD_IN_PROGRESS}
    harness.event(LoadCompleted(0, 5))
    assert [effect.leader_epoch for effect in harness.effects if isinstance(effect, ReadLog)] == [5, 0]
    harness.event(LoadCompleted(0, 0))
    assert harness.init().error is E.NONE
    assert harness.view().coordinator_epoch == 0


@pytest.mark.parametrize("error", [E.NONE, E.NOT_LEADER_OR_FOLLOWER])
def test_an_append_of_a_former_leadership_changes_nothing(error):
    harness = TransactionHarness()
    harness.init()
    harness.holds = True
    token = harness.send_add()
    harness.holds = False
    harness.reload()
    before = harness.view()
    harness.release(error)
    assert harness.error(token) is E.NOT_COORDINATOR
    assert harness.view() == before


def test_an_append_that_succeeds_during_the_next_load_says_so():
    harness = TransactionHarness()
    harness.init()
    harness.holds = True
    token = harness.send_add()
    harness.loads = False
    harness.reload()
    harness.release()
    assert harness.error(token) is E.COORDINATOR_LOAD_IN_PROGRESS


def test_nothing_is_sent_for_a_decision_of_a_former_leadership():
    """Its own load sends the markers, with the current epoch; the old epoch's must not follow."""
    harness = TransactionHarness()
    harness.ongoing()
    harness.holds = harness.holds_markers = True
    harness.send_end()
    harness.reload()
    harness.release()
    assert harness.markers_sent() == []
    harness.release()
    assert [marker[3] for marker in harness.markers_sent()] == [2]


def test_after_the_shutdown_nothing_is_coordinated():
    harness = TransactionHarness()
    harness.ongoing()
    harness.event(ShutDown())
    assert {harness.init().error, harness.add(), harness.end()} == {E.NOT_COORDINATOR}
    assert {harness.describe().error, harness.list().error} == {E.COORDINATOR_NOT_AVAILABLE}
    assert harness.coordinator.next_deadline_ms() is None
    harness.after(10**9)
    assert not [effect for effect in harness.effects if isinstance(effect, WriteMarkers)]


def test_ids_are_spread_by_java_s_hash():
    harness = TransactionHarness(elected=False, partitions=50)
    harness.elect(0, partition=partition_of("tx", 50))
    assert partition_of("tx", 50) == 16
    assert harness.init().error is E.NONE
    assert harness.init(name="g").error is E.NOT_COORDINATOR


def test_the_states_of_a_partition_are_those_of_the_table():
    assert {(row.old, row.new) for row in SHARD_TRANSITIONS} == {
        (None, ShardState.LOADING),
        (ShardState.LOADING, ShardState.ACTIVE),
        (ShardState.LOADING, ShardState.UNLOADED),
        (ShardState.ACTIVE, ShardState.UNLOADED),
        (ShardState.LOADING, ShardState.FAILED),
        (ShardState.FAILED, ShardState.UNLOADED),
    }
