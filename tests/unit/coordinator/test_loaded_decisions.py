"""No marker is sent for a decision that was loaded before that decision is known to be committed.

The log of __transaction_state is loaded to its LEO. Kafka 3.9 sends the markers of the loaded decisions at once
(TransactionStateManager.loadTransactionMetadata): if the record of the decision is lost afterwards, some partitions
of the transaction have the marker of that decision, and the others the marker of the next coordinator's.
"""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction_harness import ABORT, COMMIT, T0, T1, U0, TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.effects import FindLeaders
from tidegauge_broker.coordinator.events import Appended, ShutDown
from tidegauge_broker.coordinator.transaction.markers import RETRY_BACKOFF_MS

E = ErrorCode
S = TransactionState
LONG_MS = 10 * 60 * 1000


def decided(*partitions, outcome=COMMIT) -> TransactionHarness:
    """A coordinator that has written a decision and dies before it is committed: no marker has left it."""
    harness = TransactionHarness()
    harness.ongoing(*partitions)
    harness.holds = True
    harness.send_end(outcome)
    return harness


def loaded(former: TransactionHarness, **fields) -> TransactionHarness:
    """The next coordinator, whose appends are not committed yet."""
    successor = TransactionHarness(elected=False, log=former.log, now_ms=former.now_ms, **fields)
    successor.next_producer_id = 1000
    successor.holds = successor.holds_markers = True
    successor.elect(3)
    return successor


def looked_up(harness: TransactionHarness) -> list[FindLeaders]:
    return [effect for effect in harness.effects if isinstance(effect, FindLeaders)]


@pytest.mark.parametrize("outcome", [COMMIT, ABORT])
def test_markers_of_a_loaded_decision_wait_until_it_is_committed(outcome):
    """The record is written once more, as it was loaded; when that one is committed, so is the one that was loaded."""
    former = decided(T0, T1, outcome=outcome)
    harness = loaded(former)
    ((_, old), (name, new)) = harness.values()[-2:]
    assert name == "tx"
    assert new is not None
    assert new == old
    assert (looked_up(harness), harness.sent) == ([], [])
    harness.release()
    ((_, marker, epoch, coordinator_epoch, partitions),) = harness.markers_sent()
    assert (marker, epoch, coordinator_epoch, set(partitions)) == (outcome, 0, 3, {T0, T1})
    harness.holds = False
    harness.write_markers()
    assert harness.state() in {S.COMPLETE_COMMIT, S.COMPLETE_ABORT}
    assert harness.pending() is None


def test_a_fence_that_was_loaded_waits_too():
    """InitProducerId aborts an open transaction in an epoch that no producer has; that record may be lost as well."""
    former = TransactionHarness()
    former.ongoing(T0)
    former.holds = True
    former.send_init()
    harness = loaded(former)
    assert (harness.state(), harness.view().producer_epoch, harness.sent) == (S.PREPARE_ABORT, 1, [])
    harness.release()
    assert [marker[1:4] for marker in harness.markers_sent()] == [(ABORT, 1, 3)]


def test_one_record_confirms_all_decisions_of_a_load():
    """Records before a committed record are committed: a load of many decided transactions writes one record."""
    former = TransactionHarness()
    former.holds_markers = True
    for number in range(5):
        name = f"tx{number}"
        former.init(name=name)
        former.add(*((T0, T1, U0) if number != 2 else (T0,)), producer_id=number, name=name)
        former.end(producer_id=number, name=name)
    before = len(former.log)
    harness = loaded(former)
    assert [name for name, _ in harness.records()[before:]] == ["tx2"], "that with the fewest partitions"
    assert harness.sent == []
    harness.holds = harness.holds_markers = False
    harness.release()
    while harness.markers:
        harness.write_markers()
    assert {harness.state(f"tx{number}") for number in range(5)} == {S.COMPLETE_COMMIT}


@pytest.mark.parametrize(
    "state", ["Empty", "Ongoing", "CompleteCommit"], ids=lambda state: f"a load of {state} writes nothing"
)
def test_a_load_without_a_decision_writes_nothing(state):
    former = TransactionHarness()
    former.init()
    if state != "Empty":
        former.add()
    if state == "CompleteCommit":
        former.end()
    harness = loaded(former)
    assert harness.state().value == state
    assert (len(harness.log), harness.sent) == (len(former.log), [])


@pytest.mark.parametrize(
    "error", [E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.REQUEST_TIMED_OUT, E.UNKNOWN_SERVER_ERROR]
)
def test_a_decision_that_could_not_be_written_is_written_again(error):
    """Under any error: until it is committed, or the partition is another coordinator's."""
    harness = loaded(decided(T0))
    for _ in range(3):
        harness.release(error)
        assert harness.held == []
        harness.after(RETRY_BACKOFF_MS)
        assert len(harness.held) == 1
    assert harness.sent == []
    assert any(error.name in line.text for line in harness.lines)
    harness.release()
    assert len(harness.sent) == 1
    harness.after(LONG_MS)
    assert len(harness.held) == 0, "and then it is not written any more"


def test_a_refused_append_is_repeated_at_the_pace_of_the_back_off():
    """And the log has one line for all refusals of a kind."""
    former = decided(T0)
    harness = TransactionHarness(elected=False, log=former.log, now_ms=former.now_ms)
    harness.append_error = E.NOT_ENOUGH_REPLICAS
    harness.elect(3)
    harness.after(10 * RETRY_BACKOFF_MS)
    assert len(harness.timeouts_ms) == 11
    assert len([line for line in harness.lines if "NOT_ENOUGH_REPLICAS" in line.text]) == 1
    assert harness.sent == []
    harness.append_error = E.NONE
    harness.after(RETRY_BACKOFF_MS)
    assert harness.state() is S.COMPLETE_COMMIT


def test_requests_during_the_wait_get_what_they_get_in_prepare_commit():
    """As in Kafka, where the completion is pending from the load on; the id stays visible to DescribeTransactions."""
    harness = loaded(decided(T0))
    assert harness.end(COMMIT) is E.CONCURRENT_TRANSACTIONS
    assert harness.end(ABORT) is E.CONCURRENT_TRANSACTIONS
    assert harness.end(epoch=7) is E.PRODUCER_FENCED
    assert harness.init().error is E.CONCURRENT_TRANSACTIONS
    assert harness.init(0, 0).error is E.CONCURRENT_TRANSACTIONS
    assert harness.add(T1) is E.CONCURRENT_TRANSACTIONS
    assert harness.add_offsets() is E.CONCURRENT_TRANSACTIONS
    assert harness.verify(T0)[T0] is E.CONCURRENT_TRANSACTIONS
    described = harness.describe()
    assert (described.error, described.state, described.partitions) == (E.NONE, "PrepareCommit", (T0,))
    view = harness.view()
    assert (view.state, view.pending_state, view.is_given_up) == (S.PREPARE_COMMIT, S.COMPLETE_COMMIT, False)


def test_neither_the_timeout_nor_the_expiration_touches_what_waits():
    harness = loaded(decided(T0), transactional_id_expiration_ms=1000, remove_expired_interval_ms=1000)
    written = len(harness.log)
    harness.after(LONG_MS)
    assert len(harness.log) == written
    assert (harness.state(), harness.sent) == (S.PREPARE_COMMIT, [])
    harness.release()
    assert [marker[1:3] for marker in harness.markers_sent()] == [(COMMIT, 0)]


def test_other_ids_are_served_during_the_wait():
    harness = loaded(decided(T0))
    harness.holds = False
    assert harness.init(name="other").error is E.NONE
    assert harness.add(name="other", producer_id=1000) is E.NONE
    assert harness.sent == []


@pytest.mark.parametrize("error", [E.NONE, E.NOT_LEADER_OR_FOLLOWER, E.REQUEST_TIMED_OUT])
def test_a_resignation_during_the_wait_leaves_nothing(error):
    harness = loaded(decided(T0))
    harness.resign(4)
    harness.release(error)
    written = len(harness.log)
    harness.after(LONG_MS)
    assert (len(harness.log), harness.sent, harness.held) == (written, [], [])
    assert harness.end() is E.NOT_COORDINATOR


def test_a_resignation_between_two_attempts_ends_them():
    harness = loaded(decided(T0))
    harness.release(E.NOT_ENOUGH_REPLICAS)
    harness.resign(4)
    written = len(harness.log)
    harness.after(LONG_MS)
    assert (len(harness.log), harness.sent, harness.held) == (written, [], [])


@pytest.mark.parametrize("error", [E.NONE, E.NOT_ENOUGH_REPLICAS])
def test_an_outcome_of_the_leadership_before_confirms_nothing(error):
    """The same broker is elected again: its new load writes a record of its own, and waits for that one alone."""
    harness = loaded(decided(T0))
    harness.elect(5)
    assert len(harness.held) == 2
    harness.release(error)
    harness.after(RETRY_BACKOFF_MS)
    assert (harness.sent, len(harness.held)) == ([], 1)
    harness.release()
    assert [marker[3] for marker in harness.markers_sent()] == [5]


def test_a_shutdown_during_the_wait_ends_it():
    harness = loaded(decided(T0))
    harness.release(E.NOT_ENOUGH_REPLICAS)
    harness.event(ShutDown())
    harness.after(LONG_MS)
    assert (harness.sent, harness.held) == ([], [])


def test_a_second_outcome_of_the_record_sends_no_marker_again():
    harness = loaded(decided(T0))
    append_id, base_offset = harness.held[0]
    harness.release()
    harness.event(Appended(append_id, E.NONE, base_offset))
    assert len(harness.sent) == 1


def test_a_load_of_what_was_written_twice_is_the_same_load():
    """The record is its own duplicate; the third coordinator decides nothing else."""
    second = loaded(decided(T0, T1))
    second.release(E.REQUEST_TIMED_OUT)
    second.after(RETRY_BACKOFF_MS)
    third = loaded(second)
    assert third.state() is S.PREPARE_COMMIT
    third.release()
    ((_, marker, _, _, partitions),) = third.markers_sent()
    assert (marker, set(partitions)) == (COMMIT, {T0, T1})


def test_what_was_loaded_of_other_ids_is_committed_with_it():
    """So AddPartitionsToTxn of partitions that the other's transaction has already succeeds at once."""
    former = TransactionHarness()
    former.ongoing(T0)
    former.init(name="other")
    former.add(T1, name="other", producer_id=1)
    former.holds = True
    former.send_end()
    harness = loaded(former)
    token = harness.send_add(T1, name="other", producer_id=1)
    assert harness.is_parked(token), "not yet"
    harness.release()
    harness.release()
    assert harness.error(token) is E.NONE
    written = len(harness.log)
    assert harness.add(T1, name="other", producer_id=1) is E.NONE
    assert len(harness.log) == written
