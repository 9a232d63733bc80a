"""Transactions from their first partition to their end: adding, EndTxn, timeouts, expiry (TransactionCoordinator)."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction_harness import (
    ABORT,
    COMMIT,
    OFFSETS_0,
    T0,
    T1,
    TIMEOUT_MS,
    U0,
    TransactionHarness,
)

from tidegauge.errors import ErrorCode
from tidegauge.transactions import AddPartitionsToTxn, TransactionState
from tidegauge_broker.coordinator.effects import Append, FindLeaders, LogLine, Note, Respond
from tidegauge_broker.coordinator.record_codec import read_batches

E = ErrorCode
S = TransactionState
CHECK_MS = 10_000
EXPIRATION_MS = 604_800_000


# Adding


def test_partitions_of_one_transaction_add_up():
    harness = TransactionHarness()
    harness.ongoing(T0)
    assert harness.add(T1, U0) is E.NONE
    assert harness.add_offsets() is E.NONE
    assert harness.view().partitions == (T0, T1, U0, OFFSETS_0)
    assert harness.states_written()[1:] == [S.ONGOING] * 3


def test_partitions_that_are_in_already_are_not_written_again():
    harness = TransactionHarness()
    harness.ongoing(T0, T1)
    written = len(harness.log)
    assert [harness.add(T1), harness.add(T1, T0)] == [E.NONE] * 2
    assert len(harness.log) == written


def test_partitions_are_in_the_transaction_when_their_record_is_committed():
    harness = TransactionHarness()
    harness.init()
    harness.holds = True
    token = harness.send_add(T0)
    assert (harness.is_parked(token), harness.state()) == (True, S.EMPTY)
    harness.release()
    assert (harness.error(token), harness.state()) == (E.NONE, S.ONGOING)


def test_partitions_whose_record_failed_are_not_in_the_transaction():
    """The record may be in the log all the same, where the next coordinator finds it."""
    harness = TransactionHarness()
    harness.ongoing(T0)
    harness.holds = True
    token = harness.send_add(T1)
    harness.release(E.REQUEST_TIMED_OUT)
    assert harness.error(token) is E.COORDINATOR_NOT_AVAILABLE
    assert (harness.view().partitions, harness.pending()) == ((T0,), None)
    assert set(harness.successor().view().partitions) == {T0, T1}


def test_every_partition_gets_the_error_of_the_request():
    harness = TransactionHarness()
    harness.init()
    assert harness.response_to(harness.send_add(T0, T1, epoch=5)).partitions == dict.fromkeys(
        (T0, T1), E.PRODUCER_FENCED
    )


@pytest.mark.parametrize("name", ["", None])
def test_an_id_is_required(name):
    harness = TransactionHarness()
    invalid = [
        harness.add(name=name),
        harness.end(name=name),
        harness.add_offsets(name=name),
        harness.verify(name=name)[T0],
    ]
    assert invalid == [E.INVALID_REQUEST] * 4


def test_an_unknown_id_has_no_producer():
    harness = TransactionHarness()
    unknown = [harness.add(), harness.end(), harness.add_offsets(), harness.verify()[T0]]
    assert unknown == [E.INVALID_PRODUCER_ID_MAPPING] * 4


def test_the_start_is_that_of_the_first_partition():
    harness = TransactionHarness()
    harness.ongoing()
    harness.after(500)
    harness.add(T1)
    assert harness.describe().start_time_ms == 1_000_000
    harness.end()
    harness.after(500)
    harness.add()
    assert harness.describe().start_time_ms == 1_001_000


def test_the_append_times_out_with_the_transaction():
    """A transaction of 500 ms gives its coordinator 500 ms."""
    harness = TransactionHarness()
    harness.init(timeout_ms=500)
    harness.add()
    harness.end()
    assert harness.timeouts_ms == [500] * 4


# EndTxn


def test_the_response_comes_when_the_decision_is_committed_before_any_marker():
    harness = TransactionHarness()
    harness.ongoing()
    harness.holds = harness.holds_markers = True
    token = harness.send_end()
    assert (harness.is_parked(token), harness.sent) == (True, [])
    harness.effects.clear()
    harness.release()
    assert harness.error(token) is E.NONE
    assert [type(effect) for effect in harness.effects if isinstance(effect, (Respond, FindLeaders))] == [
        Respond,
        FindLeaders,
    ]
    assert (harness.state(), harness.pending()) == (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)


def test_no_marker_is_sent_for_a_decision_that_is_not_committed():
    harness = TransactionHarness()
    harness.ongoing()
    harness.holds = True
    token = harness.send_end()
    harness.release(E.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
    assert harness.error(token) is E.COORDINATOR_NOT_AVAILABLE
    assert (harness.sent, harness.state(), harness.pending()) == ([], S.ONGOING, None)
    harness.holds = False
    assert harness.end(ABORT) is E.NONE


@pytest.mark.parametrize(("outcome", "state"), [(COMMIT, S.COMPLETE_COMMIT), (ABORT, S.COMPLETE_ABORT)])
def test_a_transaction_without_data_is_a_normal_one(outcome, state):
    """YDB 51053: partitions were added and nothing was produced; the markers are written all the same."""
    harness = TransactionHarness()
    harness.ongoing(T0, T1)
    assert harness.end(outcome) is E.NONE
    assert harness.state() is state
    assert harness.markers_sent() == [(1, outcome, 0, 0, (T0, T1))]


def test_a_complete_cycle_writes_four_records():
    harness = TransactionHarness()
    harness.ongoing()
    harness.after(7)
    harness.holds = True
    harness.send_end()
    harness.after(5)
    harness.release()
    harness.after(9)
    harness.release()
    assert harness.states_written() == [S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.COMPLETE_COMMIT]
    prepared, complete = (transaction for _, transaction in harness.records()[-2:])
    assert (prepared.update_ms, complete.update_ms) == (1_000_007, 1_000_012)
    assert (prepared.start_ms, complete.start_ms) == (1_000_000, 1_000_000)
    assert (list(prepared.partitions), list(complete.partitions)) == ([T0], [])


def test_a_late_end_ends_the_next_transaction():
    """The flaw of Kafka before KIP-890 part 2 (transaction.version 2): an EndTxn names no transaction."""
    harness = TransactionHarness()
    harness.ongoing()
    assert harness.end(COMMIT) is E.NONE
    harness.add(T1)
    assert harness.end(COMMIT) is E.NONE  # the first one, delivered again
    assert harness.markers_sent() == [(1, COMMIT, 0, 0, (T0,)), (1, COMMIT, 0, 0, (T1,))]
    assert harness.end(ABORT) is E.INVALID_TXN_STATE


def test_an_end_during_the_previous_completion_is_not_taken_for_an_empty_transaction():
    """YDB 52731: it must be CONCURRENT_TRANSACTIONS until the markers are written."""
    harness = TransactionHarness()
    harness.ongoing()
    harness.holds_markers = True
    harness.end()
    assert [harness.end(), harness.add(T1)] == [E.CONCURRENT_TRANSACTIONS] * 2
    harness.write_markers()
    assert [harness.end(), harness.add(T1)] == [E.NONE, E.NONE]


def test_kafka_9600_a_client_may_not_end_in_an_epoch_that_it_does_not_have():
    """KAFKA-9600: not in a higher one either."""
    harness = TransactionHarness()
    harness.ongoing()
    assert [harness.end(epoch=epoch) for epoch in (-1, 1)] == [E.PRODUCER_FENCED] * 2
    assert harness.state() is S.ONGOING


# Timeouts


def test_a_transaction_that_is_open_too_long_is_aborted_with_a_higher_epoch():
    harness = TransactionHarness()
    harness.ongoing()
    harness.after(TIMEOUT_MS)
    assert harness.state() is S.ONGOING
    harness.after(CHECK_MS)
    assert harness.state() is S.COMPLETE_ABORT
    assert harness.markers_sent() == [(1, ABORT, 1, 0, (T0,))]


def test_kafka_6119_the_producer_of_an_aborted_transaction_is_fenced():
    """KAFKA-6119: whatever it sends next; an InitProducerId that expects nothing is taken."""
    harness = TransactionHarness()
    harness.ongoing()
    harness.after(TIMEOUT_MS + CHECK_MS)
    assert [harness.add(), harness.end(), harness.verify()[T0]] == [E.PRODUCER_FENCED] * 3
    assert harness.init(0, 0).error is E.PRODUCER_FENCED
    assert harness.init().producer_epoch == 2


def test_a_transaction_times_out_after_its_timeout_not_at_it():
    """timedOutTransactions: start + timeout < now."""
    harness = TransactionHarness()
    harness.init(timeout_ms=CHECK_MS)
    harness.add()
    harness.after(CHECK_MS)
    assert harness.state() is S.ONGOING
    harness.after(CHECK_MS)
    assert harness.state() is S.COMPLETE_ABORT


def test_activity_does_not_extend_a_transaction():
    harness = TransactionHarness()
    harness.ongoing()
    harness.after(TIMEOUT_MS - 1)
    harness.add(T1)
    harness.after(CHECK_MS + 1)
    assert harness.state() is S.COMPLETE_ABORT


def test_the_start_of_a_transaction_survives_its_coordinator():
    harness = TransactionHarness()
    harness.ongoing()
    harness.after(TIMEOUT_MS - 1)
    successor = harness.successor()
    successor.after(CHECK_MS)
    assert successor.state() is S.PREPARE_ABORT


def test_a_decided_transaction_and_one_with_a_change_pending_do_not_time_out():
    harness = TransactionHarness()
    harness.ongoing()
    harness.holds = True
    harness.send_add(T1)
    harness.after(TIMEOUT_MS + CHECK_MS)
    assert harness.pending() is S.ONGOING
    decided = TransactionHarness()
    decided.ongoing()
    decided.holds_markers = True
    decided.end()
    decided.after(TIMEOUT_MS + CHECK_MS)
    assert decided.view().producer_epoch == 0


def test_an_abort_that_could_not_be_written_is_tried_again_in_the_same_epoch():
    """KAFKA-9666: one epoch for all attempts; another transactional id is not held up."""
    harness = TransactionHarness()
    harness.ongoing()
    harness.init(name="other")
    harness.add(producer_id=1, name="other")
    harness.append_error = E.NOT_ENOUGH_REPLICAS
    harness.after(TIMEOUT_MS + 5 * CHECK_MS)
    assert [harness.view(name).producer_epoch for name in ("tx", "other")] == [1, 1]
    harness.append_error = E.NONE
    harness.after(CHECK_MS)
    assert [harness.state(name) for name in ("tx", "other")] == [S.COMPLETE_ABORT] * 2
    assert {marker[2] for marker in harness.markers_sent()} == {1}
    completed = [one.text for one in harness.effects if isinstance(one, LogLine) and "Completed rollback" in one.text]
    assert len(completed) == 2, "one for each transaction, whatever failed before"


# Expiry


@pytest.mark.parametrize("ends", [None, COMMIT, ABORT])
def test_an_id_that_is_not_used_expires_with_a_tombstone(ends):
    """Empty, CompleteCommit and CompleteAbort; lastUpdate <= now - transactional.id.expiration.ms."""
    harness = TransactionHarness()
    harness.init()
    if ends is not None:
        harness.add()
        harness.end(ends)
    harness.after(EXPIRATION_MS - 1)
    assert harness.coordinator.transaction_view("tx") is not None
    harness.after(3_600_000)
    assert harness.coordinator.transaction_view("tx") is None
    assert harness.records()[-1] == ("tx", None)
    assert harness.successor().coordinator.transaction_view("tx") is None
    assert harness.timeouts_ms[-1] == 30_000


def test_an_open_or_decided_transaction_never_expires():
    harness = TransactionHarness(abort_timed_out_interval_ms=10**15)
    harness.ongoing()
    harness.after(2 * EXPIRATION_MS)
    assert harness.state() is S.ONGOING
    harness.holds_markers = True
    harness.end()
    harness.after(2 * EXPIRATION_MS)
    assert harness.state() is S.PREPARE_COMMIT


def test_an_id_is_gone_when_its_tombstone_is_committed():
    """Meanwhile its requests get CONCURRENT_TRANSACTIONS; a failed tombstone leaves the id as it was."""
    harness = TransactionHarness()
    harness.init()
    harness.holds = True
    harness.after(EXPIRATION_MS)
    assert harness.pending() is S.DEAD
    assert [harness.init().error, harness.add()] == [E.CONCURRENT_TRANSACTIONS] * 2
    harness.release(E.NOT_ENOUGH_REPLICAS)
    assert (harness.state(), harness.pending()) == (S.EMPTY, None)
    harness.after(3_600_000)
    harness.release()
    assert harness.add() is E.INVALID_PRODUCER_ID_MAPPING


def test_a_transaction_without_a_partition_is_complete_when_it_is_decided():
    """An AddPartitionsToTxn may name none: there is no marker to wait for."""
    harness = TransactionHarness()
    harness.init()
    harness.send(AddPartitionsToTxn("tx", 0, 0, ()))
    assert harness.end() is E.NONE
    assert (harness.state(), harness.markers_sent()) == (S.COMPLETE_COMMIT, [])


def test_a_tombstone_that_is_committed_after_the_leadership_changes_nothing():
    harness = TransactionHarness()
    harness.init()
    harness.holds = True
    harness.after(EXPIRATION_MS)
    harness.resign(1)
    harness.release()
    assert [one for one in harness.effects if isinstance(one, Note) and one.fields.get("new") == "Dead"] == []


def test_a_used_id_expires_later():
    harness = TransactionHarness()
    harness.init()
    harness.after(EXPIRATION_MS // 2)
    harness.init(0, 0)
    harness.after(EXPIRATION_MS // 2 + 3_600_000)
    assert harness.coordinator.transaction_view("tx") is not None


def test_tombstones_go_out_in_batches_of_the_topic_s_limit():
    harness = TransactionHarness(max_message_bytes=120)
    for number in range(5):
        harness.init(name=f"transaction-{number}")
    harness.effects.clear()
    harness.after(EXPIRATION_MS)
    batches = [effect.batch for effect in harness.effects if isinstance(effect, Append)]
    assert all(len(batch) <= 120 for batch in batches)
    assert [len(next(iter(read_batches(batch))).records) for batch in batches] == [1, 1, 1, 1, 1]
    assert harness.coordinator.transaction_views() == []


def test_a_failed_batch_of_tombstones_does_not_hold_up_the_others():
    harness = TransactionHarness(max_message_bytes=120)
    for number in range(3):
        harness.init(name=f"transaction-{number}")
    harness.holds = True
    harness.after(EXPIRATION_MS)
    harness.release(E.NOT_ENOUGH_REPLICAS, index=1)
    harness.release()
    harness.release()
    assert [view.transactional_id for view in harness.coordinator.transaction_views()] == ["transaction-1"]


# Describe and list


def test_a_description_shows_the_open_transaction():
    harness = TransactionHarness()
    harness.ongoing(T0, T1)
    described = harness.describe()
    assert (described.error, described.state, described.timeout_ms) == (E.NONE, "Ongoing", TIMEOUT_MS)
    assert (described.producer_id, described.producer_epoch, described.partitions) == (0, 0, (T0, T1))
    harness.end()
    assert (harness.describe().state, harness.describe().partitions) == ("CompleteCommit", ())


def test_an_unknown_id_is_not_found_and_an_empty_one_invalid():
    harness = TransactionHarness()
    assert harness.describe("tx").error is E.TRANSACTIONAL_ID_NOT_FOUND
    assert harness.describe("").error is E.INVALID_REQUEST


def test_a_list_is_filtered_by_state_producer_and_duration():
    harness = TransactionHarness()
    harness.ongoing()
    harness.init(name="other")
    harness.after(1000)
    names = lambda **filters: [one.transactional_id for one in harness.list(**filters).transactions]  # noqa: E731
    assert names() == ["tx", "other"]
    assert names(states=("Ongoing",)) == ["tx"]
    assert names(producer_ids=(1,)) == ["other"]
    assert names(duration_ms=999) == ["tx", "other"]  # an id without transaction has run since -1
    assert names(duration_ms=1000, states=("Ongoing",)) == []
    unknown = harness.list(states=("Ongoing", "ongoing"))
    assert (unknown.unknown_state_filters, len(unknown.transactions)) == (("ongoing",), 1)
    assert harness.list(states=("Nonsense",)).transactions == []


def test_a_list_hides_ids_that_are_about_to_expire_no_sooner_than_they_do():
    """Dead is only ever pending, so an id is listed until its tombstone is committed."""
    harness = TransactionHarness()
    harness.init()
    harness.holds = True
    harness.after(EXPIRATION_MS)
    assert [one.state for one in harness.list().transactions] == ["Empty"]
