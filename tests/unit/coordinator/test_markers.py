"""Markers: their receivers, repetition, and the completion (TransactionMarkerChannelManager and its handler)."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction_harness import ABORT, COMMIT, T0, T1, U0, TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.effects import FindLeaders, WriteMarkers
from tidegauge_broker.coordinator.events import NO_BROKER, LeadersFound, MarkersWritten
from tidegauge_broker.coordinator.transaction.markers import RETRY_BACKOFF_MS

E = ErrorCode
S = TransactionState


def decided(*partitions, outcome=COMMIT, **leaders: int | None) -> TransactionHarness:
    """A decided transaction whose markers are held; leaders by partition, "t-0" as t_0."""
    harness = TransactionHarness()
    for partition in partitions:
        if (name := f"{partition.topic}_{partition.partition}") in leaders:
            harness.leaders[partition] = leaders[name]
    harness.ongoing(*partitions)
    harness.holds_markers = True
    assert harness.end(outcome) is E.NONE
    return harness


def test_every_leader_gets_one_request_for_all_its_partitions():
    harness = decided(T0, T1, U0, t_0=1, t_1=2, u_0=1)
    assert harness.markers_sent() == [(1, COMMIT, 0, 0, (T0, U0)), (2, COMMIT, 0, 0, (T1,))]


def test_kafka_9777_the_completion_is_written_once_after_the_last_marker():
    """KAFKA-9777, KAFKA-10080: responses in any order give one CompleteCommit."""
    harness = decided(T0, T1, t_0=1, t_1=2)
    harness.write_markers(1)
    assert (harness.state(), harness.view().partitions) == (S.PREPARE_COMMIT, (T0,))
    harness.write_markers()
    assert harness.state() is S.COMPLETE_COMMIT
    assert harness.states_written()[-2:] == [S.PREPARE_COMMIT, S.COMPLETE_COMMIT]


def test_one_request_is_in_flight_for_each_broker():
    """Markers that come meanwhile wait, and leave in one request."""
    harness = decided(T0)
    for number, name in ((1, "a"), (2, "b")):
        harness.init(name=name)
        harness.add(producer_id=number, name=name)
        harness.end(ABORT, producer_id=number, name=name)
    assert len(harness.markers) == 1
    harness.write_markers()
    (request,) = harness.markers
    assert [one.marker.producer_id for one in request.markers] == [1, 2]
    harness.write_markers()
    assert [harness.state(name) for name in ("tx", "a", "b")] == [S.COMPLETE_COMMIT, S.COMPLETE_ABORT, S.COMPLETE_ABORT]


@pytest.mark.parametrize(
    "error",
    [
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_LEADER_OR_FOLLOWER,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_SERVER_ERROR,
    ],
)
def test_a_marker_that_failed_is_repeated_to_the_leader_of_then(error):
    """Without end, and for the failed partition alone."""
    harness = decided(T0, T1)
    harness.write_markers(t_0=error)
    assert harness.markers == []
    harness.leaders[T0] = 2
    for _ in range(3):
        harness.after(RETRY_BACKOFF_MS)
        assert harness.markers_sent()[-1] == (2, COMMIT, 0, 0, (T0,))
        harness.write_markers(t_0=error)
    harness.after(RETRY_BACKOFF_MS)
    harness.write_markers()
    assert harness.state() is S.COMPLETE_COMMIT


def test_a_lost_connection_repeats_all_of_its_markers():
    harness = decided(T0, T1)
    harness.lose_markers()
    harness.after(RETRY_BACKOFF_MS)
    harness.write_markers()
    assert harness.state() is S.COMPLETE_COMMIT
    assert [set(marker[4]) for marker in harness.markers_sent()] == [{T0, T1}] * 2


def test_a_lost_connection_takes_what_waits_behind_it_to_the_new_leader():
    harness = decided(T0)
    harness.init(name="a")
    harness.add(producer_id=1, name="a")
    harness.end(producer_id=1, name="a")
    harness.leaders[T0] = 2
    harness.lose_markers()
    harness.after(RETRY_BACKOFF_MS)
    assert [marker[0] for marker in harness.markers_sent()] == [1, 2, 2]


def test_a_response_that_lacks_a_partition_repeats_it():
    harness = decided(T0)
    harness.event(MarkersWritten(harness.markers.pop().request_id, {}))
    harness.after(RETRY_BACKOFF_MS)
    harness.write_markers()
    assert harness.state() is S.COMPLETE_COMMIT


def test_a_partition_without_leader_waits_for_one():
    """The leader is known and not alive: the marker waits in Kafka's queue for an unknown broker."""
    harness = decided(T0, T1, t_0=NO_BROKER)
    harness.write_markers()
    assert harness.view().partitions == (T0,)
    assert harness.coordinator.gauges().unknown_destination_queue_size == 1
    harness.after(5 * RETRY_BACKOFF_MS)
    assert harness.markers == []
    harness.leaders[T0] = 3
    harness.after(RETRY_BACKOFF_MS)
    assert harness.coordinator.gauges().unknown_destination_queue_size == 0
    assert harness.markers_sent()[-1] == (3, COMMIT, 0, 0, (T0,))


def test_a_deleted_partition_counts_as_written():
    harness = decided(T0, T1, t_0=None)
    assert [marker[4] for marker in harness.markers_sent()] == [(T1,)]
    harness.write_markers()
    assert harness.state() is S.COMPLETE_COMMIT


def test_a_transaction_whose_partitions_are_all_deleted_completes():
    harness = decided(T0, t_0=None)
    assert (harness.sent, harness.state()) == ([], S.COMPLETE_COMMIT)


@pytest.mark.parametrize("error", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
def test_a_partition_that_can_have_no_transaction_counts_as_written(error):
    harness = decided(T0)
    harness.write_markers(t_0=error)
    assert harness.state() is S.COMPLETE_COMMIT


@pytest.mark.parametrize("error", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
def test_a_newer_epoch_ends_the_completion_here(error):
    """Another coordinator or a newer epoch has been there; the id is busy until the next load, which tries again."""
    harness = decided(T0, T1, t_0=1, t_1=2)
    harness.write_markers(t_0=error)
    harness.write_markers()
    assert (harness.state(), harness.pending()) == (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    assert harness.view().is_given_up
    harness.after(100 * RETRY_BACKOFF_MS)
    assert harness.markers == []
    assert harness.end() is E.CONCURRENT_TRANSACTIONS
    harness.holds_markers = False
    harness.reload()
    assert harness.state() is S.COMPLETE_COMMIT


def test_markers_of_other_transactions_go_on_when_one_is_given_up():
    harness = decided(T0)
    harness.init(name="a")
    harness.add(T1, producer_id=1, name="a")
    harness.end(producer_id=1, name="a")
    harness.write_markers(t_0=E.TRANSACTION_COORDINATOR_FENCED)
    harness.write_markers()
    assert harness.state("a") is S.COMPLETE_COMMIT


@pytest.mark.parametrize(
    "error",
    [E.NOT_ENOUGH_REPLICAS, E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.REQUEST_TIMED_OUT, E.UNKNOWN_SERVER_ERROR],
)
def test_a_completion_that_could_not_be_written_is_repeated(error):
    """pendingState stays: nothing may come between the markers and the record."""
    harness = decided(T0)
    harness.append_error = error
    harness.write_markers()
    assert harness.pending() is S.COMPLETE_COMMIT
    assert harness.coordinator.gauges().log_append_retry_queue_size == 1
    assert harness.add() is E.CONCURRENT_TRANSACTIONS
    harness.append_error = E.NONE
    harness.after(RETRY_BACKOFF_MS)
    assert harness.state() is S.COMPLETE_COMMIT
    assert len(harness.sent) == 1


def test_a_completion_after_the_leadership_is_left_to_the_next_coordinator():
    harness = decided(T0)
    harness.append_error = E.NOT_LEADER_OR_FOLLOWER
    harness.write_markers()
    assert (harness.state(), harness.pending()) == (S.PREPARE_COMMIT, None)
    harness.after(100 * RETRY_BACKOFF_MS)
    assert harness.coordinator.gauges().log_append_retry_queue_size == 0
    assert [harness.end(), harness.add(), harness.init().error] == [E.CONCURRENT_TRANSACTIONS] * 3


def test_kafka_16352_the_completion_of_one_transaction_is_not_taken_for_that_of_the_next():
    """KAFKA-16352: a late response about the first leaves the second alone."""
    harness = decided(T0, T1, t_0=1, t_1=2)
    late = harness.markers[0]
    harness.write_markers(1)
    harness.write_markers()
    harness.holds_markers = True
    harness.leaders[T0] = 3
    harness.add(T0)
    harness.end(ABORT)
    harness.event(MarkersWritten(late.request_id, {0: {T0: E.NONE}}))
    assert (harness.state(), harness.view().partitions) == (S.PREPARE_ABORT, (T0,))
    harness.write_markers()
    assert harness.state() is S.COMPLETE_ABORT


def test_responses_after_the_leadership_change_nothing():
    harness = decided(T0)
    request = harness.markers[0]
    harness.resign(1)
    harness.write_markers()
    assert harness.coordinator.transaction_views() == []
    harness.elect(2)
    harness.event(MarkersWritten(request.request_id, {0: {T0: E.NONE}}))
    assert (harness.state(), harness.view().partitions) == (S.PREPARE_COMMIT, (T0,))


def test_leaders_that_are_found_after_the_leadership_change_nothing():
    harness = TransactionHarness()
    harness.ongoing()
    lookups: list[FindLeaders] = []
    harness._find_leaders = lookups.append  # type: ignore[method-assign]
    harness.end()
    harness.resign(1)
    harness.event(LeadersFound(lookups[0].lookup_id, {}))
    harness.event(LeadersFound(99, {T0: 1}))
    assert harness.sent == []
    assert harness.states_written()[-1] is S.PREPARE_COMMIT


def test_what_was_queued_for_a_lost_partition_is_not_sent():
    harness = decided(T0, T1)
    harness.write_markers(t_0=E.NOT_LEADER_OR_FOLLOWER)
    harness.resign(1)
    harness.effects.clear()
    harness.after(10 * RETRY_BACKOFF_MS)
    assert not [effect for effect in harness.effects if isinstance(effect, WriteMarkers)]


def test_markers_bear_the_epoch_of_the_coordinator_and_of_the_producer():
    harness = TransactionHarness(elected=False)
    harness.elect(4)
    harness.init()
    harness.init()
    harness.add(epoch=1)
    harness.end(epoch=1)
    assert harness.markers_sent() == [(1, COMMIT, 1, 4, (T0,))]
    harness.end(epoch=1)
