"""Schedules behind bugs that Kafka's coordinators had, by their KAFKA numbers, and their right outcome.

Schedules that need a partition's leader are in tests/unit/core/test_verification.py. Other tests bear the number of
their bug too; docs/transactions.md lists them all.
"""

from __future__ import annotations

import itertools

import pytest
from tests.unit.coordinator.harness import INITIAL_DELAY_MS, SESSION_MS, T0, T1, Harness
from tests.unit.coordinator.transaction_harness import ABORT, COMMIT, TIMEOUT_MS, TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupState
from tidegauge.record_batch import read_header
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.events import MarkersWritten
from tidegauge_broker.coordinator.group.phases import NEW_MEMBER_TIMEOUT_MS

E = ErrorCode
S = TransactionState
WRITTEN = {0: {T0: E.NONE, T1: E.NONE}}


def completions(harness: TransactionHarness) -> int:
    return harness.states_written().count(S.COMPLETE_COMMIT) + harness.states_written().count(S.COMPLETE_ABORT)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_kafka_10080_responses_to_markers_in_any_order_and_twice_complete_a_transaction_once(order):
    """Two brokers respond at the same time, each response arrives twice, and the completion is not committed yet."""
    harness = TransactionHarness()
    harness.leaders = {T0: 1, T1: 2}
    harness.ongoing(T0, T1)
    harness.holds_markers = True
    assert harness.end() is E.NONE
    first, second = (request.request_id for request in harness.markers)
    responses = [MarkersWritten(first, {0: {T0: E.NONE}}), MarkersWritten(second, {0: {T1: E.NONE}})]
    harness.holds = True
    for number in order:
        harness.event(responses[number % 2])
    assert len(harness.held) == 1, "one record of the completion is in flight"
    harness.release()
    assert (harness.state(), harness.pending(), completions(harness)) == (S.COMPLETE_COMMIT, None, 1)


def test_kafka_16352_a_completion_of_one_epoch_leaves_the_transaction_of_the_next_epoch_alone():
    """The late response to the markers of epoch 0 arrives while epoch 1's wait: each completes its own."""
    harness = TransactionHarness()
    harness.ongoing(T0)
    harness.holds_markers = True
    assert harness.init().error is E.CONCURRENT_TRANSACTIONS, "the fence aborts the transaction in epoch 1"
    fence = harness.markers[0].request_id
    harness.write_markers()
    assert harness.init().producer_epoch == 2
    assert harness.add(T0, T1, epoch=2) is E.NONE
    assert harness.end(epoch=2) is E.NONE
    harness.event(MarkersWritten(fence, WRITTEN))
    assert (harness.state(), set(harness.view().partitions)) == (S.PREPARE_COMMIT, {T0, T1})
    harness.write_markers()
    assert (harness.state(), harness.pending(), completions(harness)) == (S.COMPLETE_COMMIT, None, 2)


def test_kafka_9307_a_broker_that_was_never_notified_of_its_resignation_reads_the_log_again():
    """Another broker has coordinated meanwhile; what this one remembers of the id must not count."""
    former = TransactionHarness()
    former.ongoing(T0)
    other = former.successor()
    other.holds_markers = False
    assert other.end() is E.NONE
    assert other.init().producer_epoch == 1
    former.log, former.end_offset = other.log, other.end_offset
    former.elect(2)
    assert (former.state(), former.view().producer_epoch, former.view().partitions) == (S.EMPTY, 1, ())
    assert former.end(epoch=0) is E.PRODUCER_FENCED


@pytest.mark.parametrize("epoch", [-1, 1, 7])
def test_kafka_9600_an_end_in_a_higher_epoch_is_fenced_also_while_a_change_is_pending(epoch):
    """A client that was given no such epoch is no newer producer; the open transaction stays as it is."""
    harness = TransactionHarness()
    harness.ongoing(T0)
    harness.holds = True
    harness.send_add(T1)
    assert harness.error(harness.send_end(epoch=epoch)) is E.PRODUCER_FENCED
    harness.release()
    assert (harness.state(), set(harness.view().partitions)) == (S.ONGOING, {T0, T1})


def test_kafka_6119_a_producer_whose_transaction_timed_out_is_fenced_by_the_next_coordinator_too():
    """The epoch that the timeout raised is in the log, so a fail-over gives the old producer nothing back."""
    harness = TransactionHarness()
    harness.ongoing(T0)
    harness.after(2 * TIMEOUT_MS)
    assert harness.state() is S.COMPLETE_ABORT
    successor = harness.successor()
    for coordinator in (harness, successor):
        assert [coordinator.add(T1), coordinator.end(), coordinator.end(ABORT)] == [E.PRODUCER_FENCED] * 3
        assert coordinator.verify()[T0] is E.PRODUCER_FENCED


@pytest.mark.parametrize(("outcome", "offset"), [(COMMIT, 5), (ABORT, -1)])
def test_kafka_17507_offsets_of_the_next_transaction_are_not_completed_by_the_marker_before(outcome, offset):
    """TxnOffsetCommit of the next transaction arrives right behind the marker: only the next marker decides on it."""
    harness = Harness()
    harness.commit_transactional(5)
    token = harness.complete_transaction(outcome)
    assert not harness.is_parked(token), "the response to WriteTxnMarkers comes when the offsets are moved"
    harness.commit_transactional(6)
    for broker in (harness, harness.successor()):
        assert broker.offset(stable=True).error is E.UNSTABLE_OFFSET_COMMIT
        assert broker.offset().offset == offset


@pytest.mark.parametrize("transactional_first", [True, False])
def test_kafka_14505_a_load_after_compaction_finds_the_offset_that_was_served(transactional_first):
    """The cleaner keeps the later record of a key, and the later record is the one that counts."""
    harness = Harness()
    commits = [lambda: harness.commit_transactional(5), lambda: harness.commit(3)]
    for commit in commits if transactional_first else reversed(commits):
        commit()
    harness.complete_transaction(COMMIT)
    served = harness.offset().offset
    compacted = Harness(log=harness.log[1:], now_ms=harness.now_ms)
    assert compacted.offset().offset == served == (3 if transactional_first else 5)


def test_kafka_16371_too_much_metadata_leaves_nothing_pending_of_either_kind_of_commit():
    """One endless UNSTABLE_OFFSET_COMMIT would stop every consumer of the group that asks for stable offsets."""
    harness = Harness()
    for token in (harness.commit(3, metadata="x" * 4097), harness.commit_transactional(5, metadata="x" * 4097)):
        assert harness.committed(token) is E.OFFSET_METADATA_TOO_LARGE
    harness.complete_transaction(COMMIT)
    assert (harness.offset(stable=True).error, harness.offset(stable=True).offset) == (E.NONE, -1)


def test_kafka_7610_members_whose_clients_die_in_their_first_join_do_not_fill_the_group():
    """A client that times out and joins again leaves a ghost each time; in a long phase each has five minutes."""
    harness = Harness()
    long = {"rebalance_timeout_ms": 1_000_000, "session_timeout_ms": 1_000_000}
    [member] = harness.stable_group(**long)
    ghosts = [harness.join() for _ in range(10)] + [harness.join(**long) for _ in range(10)]
    harness.after(NEW_MEMBER_TIMEOUT_MS - 1)
    assert len(harness.group().members) == 21, "the session timeout is neither sooner nor later the limit"
    harness.after(1)
    assert {harness.joined(ghost).error for ghost in ghosts} == {E.UNKNOWN_MEMBER_ID}
    assert [one.member_id for one in harness.group().members] == [member]
    assert harness.joined(harness.join(member, **long)).generation == 2


@pytest.mark.parametrize("state", [GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.COMPLETING_REBALANCE])
def test_kafka_8715_a_static_member_that_restarts_gets_a_new_id_and_the_old_one_is_fenced_in_every_state(state):
    """KAFKA-8500, KAFKA-9801: whoever has the instance id last has it alone, whatever the group is doing."""
    harness = Harness()
    tokens = [harness.join(group_instance_id=name) for name in ("i1", "i2")]
    harness.after(2 * INITIAL_DELAY_MS)
    old = [harness.joined(token).member_id for token in tokens]
    if state is not GroupState.COMPLETING_REBALANCE:
        harness.sync_all(old)
    if state is GroupState.PREPARING_REBALANCE:
        harness.join()
    assert harness.group().state is state
    harness.uuids = ["new"]
    harness.join(group_instance_id="i2")
    instances = [one.member_id for one in harness.group().members if one.group_instance_id == "i2"]
    assert instances == ["i2-new"]
    assert harness.heartbeat(old[1], instance="i2") is E.FENCED_INSTANCE_ID


def test_kafka_10284_a_static_member_that_was_replaced_stays_fenced_by_the_next_coordinator():
    """The replacement is in the log before the new member has its response, and the old one in no log any more."""
    harness = Harness()
    [old] = harness.stable_group(group_instance_id="i1")
    harness.holds = True
    harness.uuids = ["new"]
    token = harness.join(group_instance_id="i1")
    assert harness.is_parked(token)
    harness.release()
    successor = harness.successor()
    assert harness.joined(token).member_id == "i1-new"
    assert successor.heartbeat("i1-new", instance="i1") is E.NONE
    assert successor.heartbeat(old, instance="i1") is E.FENCED_INSTANCE_ID


@pytest.mark.parametrize("knows_its_id", [True, False])
def test_kafka_9885_members_that_join_at_the_same_time_never_exceed_the_maximum(knows_its_id):
    """KAFKA-9844: also those that were given an id first, all of whom the group had room for when they asked."""
    harness = Harness(group_max_size=3)
    ids = [""] * 8
    if knows_its_id:
        ids = [harness.joined(harness.join(requires_known_member_id=True)).member_id for _ in ids]
    tokens = [harness.join(member_id) for member_id in ids]
    assert len(harness.group().members) == 3
    harness.after(2 * INITIAL_DELAY_MS)
    errors = [harness.joined(token).error for token in tokens]
    assert (errors.count(E.NONE), errors.count(E.GROUP_MAX_SIZE_REACHED)) == (3, 5)


def test_kafka_7909_pending_members_that_leave_and_expire_complete_the_join_phase_together():
    """One of them leaves, the other never comes: the phase ends with the second."""
    harness = Harness()
    [member] = harness.stable_group()
    gone, silent = (harness.joined(harness.join(requires_known_member_id=True)).member_id for _ in range(2))
    rejoined = harness.join(member)
    harness.leave(gone)
    assert harness.is_parked(rejoined)
    harness.after(SESSION_MS)
    assert harness.joined(rejoined).generation == 2
    assert silent not in {one.member_id for one in harness.group().members}


def test_every_batch_of_a_schedule_has_an_offset_of_its_own():
    """The harness' log is one that a leader could have; these tests depend on it."""
    harness = TransactionHarness()
    harness.ongoing(T0)
    harness.end()
    assert [read_header(batch).base_offset for batch in harness.log] == list(range(len(harness.log)))
