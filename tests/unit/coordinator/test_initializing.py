"""InitProducerId: producer ids, epochs and fencing (KIP-98, KIP-360; TransactionCoordinator, TransactionMetadata)."""

from __future__ import annotations

import pytest
from tests.unit.coordinator.transaction_harness import ABORT, T0, T1, TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.events import ProducerIdAllocated

E = ErrorCode
S = TransactionState
EXHAUSTED = 32766


def at_epoch(epoch: int) -> TransactionHarness:
    """Producer 0 of id "tx" with this epoch, Empty."""
    harness = TransactionHarness()
    harness.init()
    harness.coordinator._store.find("tx").transaction.producer_epoch = epoch
    return harness


def test_a_new_id_gets_a_new_producer_id_and_epoch_0():
    harness = TransactionHarness()
    harness.next_producer_id = 41
    result = harness.init()
    assert (result.error, result.producer_id, result.producer_epoch) == (E.NONE, 41, 0)
    assert harness.states_written() == [S.EMPTY]


def test_a_producer_without_transactional_id_gets_a_new_id_and_nothing_is_written():
    harness = TransactionHarness()
    assert [harness.init(name=None).producer_id for _ in range(2)] == [0, 1]
    assert harness.log == []
    harness.allocation_error = E.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.init(name=None).error is E.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize(("timeout_ms", "error"), [(0, 50), (-1, 50), (900_001, 50), (900_000, 0), (1, 0)])
def test_the_timeout_must_be_positive_and_within_the_broker_s_maximum(timeout_ms, error):
    assert TransactionHarness().init(timeout_ms=timeout_ms).error is E(error)


def test_an_empty_id_is_invalid_and_that_is_checked_before_the_timeout():
    assert TransactionHarness().init(name="", timeout_ms=-1).error is E.INVALID_REQUEST


def test_the_timeout_is_checked_before_the_coordinator():
    harness = TransactionHarness(elected=False)
    assert harness.init(timeout_ms=-1).error is E.INVALID_TRANSACTION_TIMEOUT
    assert harness.init().error is E.NOT_COORDINATOR


def test_without_a_block_of_producer_ids_the_client_comes_again():
    """COORDINATOR_LOAD_IN_PROGRESS; the id is not created."""
    harness = TransactionHarness()
    harness.allocation_error = E.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.init().error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert harness.coordinator.transaction_view("tx") is None
    harness.allocation_error = E.NONE
    assert harness.init().producer_epoch == 0


def test_there_is_no_response_before_the_record_is_committed():
    harness = TransactionHarness()
    harness.holds = True
    token = harness.send_init()
    assert harness.is_parked(token)
    harness.release()
    assert harness.response_to(token).producer_epoch == 0


def test_two_first_requests_at_once_give_one_producer():
    """The second finds the id that the first has created, and a change of it pending."""
    harness = TransactionHarness()
    harness.holds_allocations = harness.holds = True
    first, second = harness.send_init(), harness.send_init()
    harness.allocate()
    harness.allocate()
    assert harness.error(second) is E.CONCURRENT_TRANSACTIONS
    harness.release()
    assert harness.response_to(first).producer_id == 0


def test_a_producer_id_without_a_request_changes_nothing():
    """The block of ids may be there when the process has begun again."""
    harness = TransactionHarness()
    harness.event(ProducerIdAllocated(99, E.NONE, 7))
    assert harness.coordinator.transaction_views() == []


def test_the_leadership_may_be_lost_while_a_producer_id_is_allocated():
    harness = TransactionHarness()
    harness.holds_allocations = True
    token = harness.send_init()
    harness.resign(1)
    harness.allocate()
    assert harness.error(token) is E.NOT_COORDINATOR
    assert harness.log == []


def test_every_init_that_expects_nothing_raises_the_epoch():
    harness = TransactionHarness()
    assert [harness.init().producer_epoch for _ in range(3)] == [0, 1, 2]


def test_a_producer_raises_its_own_epoch():
    """KIP-360: it names its id and epoch, and gets the epoch after."""
    harness = TransactionHarness()
    harness.init()
    assert harness.init(0, 0).producer_epoch == 1
    assert harness.init(0, 1).producer_epoch == 2


def test_a_repeated_raise_gets_the_same_epoch_again():
    """KIP-360: the response got lost, so the producer expects the epoch before; a record is written again."""
    harness = TransactionHarness()
    harness.init()
    harness.init(0, 0)
    written = len(harness.log)
    assert [harness.init(0, 0).producer_epoch for _ in range(2)] == [1, 1]
    assert len(harness.log) == written + 2


def test_an_older_epoch_is_fenced():
    harness = TransactionHarness()
    harness.init()
    harness.init(0, 0)
    harness.init(0, 1)
    assert harness.init(0, 0).error is E.PRODUCER_FENCED


def test_after_an_init_without_expectation_the_epoch_before_is_fenced():
    """The last epoch is forgotten: another producer has taken the id over."""
    harness = TransactionHarness()
    harness.init()
    harness.init()
    assert harness.init(0, 0).error is E.PRODUCER_FENCED


def test_the_epoch_before_is_not_in_the_log():
    """A repeated raise is fenced by the next coordinator, as in Kafka 3.9: lastProducerEpoch is not persisted."""
    harness = TransactionHarness()
    harness.init()
    harness.init(0, 0)
    assert harness.successor().init(0, 0).error is E.PRODUCER_FENCED


def test_a_producer_whose_id_has_expired_gets_a_new_one():
    """KIP-360: the metadata was created just now, so whatever the producer expects it is not fenced."""
    harness = TransactionHarness()
    result = harness.init(99, 5)
    assert (result.error, result.producer_id, result.producer_epoch) == (E.NONE, 0, 0)


@pytest.mark.parametrize("expectation", [(-1, -1), (0, EXHAUSTED)])
def test_an_exhausted_epoch_gives_a_new_producer_id(expectation):
    harness = at_epoch(EXHAUSTED)
    result = harness.init(*expectation)
    assert (result.producer_id, result.producer_epoch) == (1, 0)
    assert harness.view().last_producer_id == 0


def test_a_repeated_change_of_the_producer_id_gets_the_next_epoch_of_the_new_one():
    """It expects (old id, exhausted epoch), which is the last epoch: epoch 0 again (prepareIncrementProducerEpoch)."""
    harness = at_epoch(EXHAUSTED)
    harness.init(0, EXHAUSTED)
    result = harness.init(0, EXHAUSTED)
    assert (result.error, result.producer_id, result.producer_epoch) == (E.NONE, 1, 0)


def test_the_id_before_is_recognised_with_an_exhausted_epoch_only():
    harness = at_epoch(EXHAUSTED)
    harness.init(0, EXHAUSTED)
    assert harness.init(0, EXHAUSTED - 1).error is E.PRODUCER_FENCED
    assert harness.init(999, EXHAUSTED).error is E.PRODUCER_FENCED, "nor any other id with such an epoch"


def test_a_change_of_the_producer_id_that_expected_nothing_is_not_repeated():
    """Another process may have asked for it: the one that expects the exhausted epoch is older."""
    harness = at_epoch(EXHAUSTED)
    harness.init()
    assert harness.init(0, EXHAUSTED).error is E.PRODUCER_FENCED


def test_after_a_fence_the_epoch_before_the_last_raise_is_no_repeat():
    """TransactionMetadata.prepareFenceProducerEpoch forgets lastProducerEpoch: a fenced producer stays fenced."""
    harness = TransactionHarness()
    harness.init()
    harness.init(0, 0)
    harness.add(T0, epoch=1)
    harness.init()
    assert harness.view().producer_epoch == 2
    assert [harness.init(0, epoch).error for epoch in (0, 1)] == [E.PRODUCER_FENCED] * 2


def test_the_epoch_before_the_last_is_the_highest_that_is_given():
    """32767 is for fencing alone."""
    harness = at_epoch(EXHAUSTED - 1)
    assert (harness.init().producer_id, harness.view().producer_epoch) == (0, EXHAUSTED)
    assert (harness.init().producer_id, harness.view().producer_epoch) == (1, 0)


def test_an_exhausted_epoch_with_another_expectation_is_an_unknown_server_error():
    """Kafka throws IllegalStateException, which the client sees as UNKNOWN_SERVER_ERROR."""
    assert at_epoch(EXHAUSTED).init(0, 3).error is E.UNKNOWN_SERVER_ERROR


def test_an_open_transaction_is_aborted_first_and_the_epoch_rises_by_two():
    harness = TransactionHarness()
    harness.ongoing()
    assert harness.init().error is E.CONCURRENT_TRANSACTIONS
    assert harness.state() is S.COMPLETE_ABORT
    assert harness.markers_sent() == [(1, ABORT, 1, 0, (T0,))]
    assert harness.init().producer_epoch == 2
    assert [harness.add(epoch=epoch) for epoch in (0, 1, 2)] == [E.PRODUCER_FENCED, E.PRODUCER_FENCED, E.NONE]


def test_the_abort_of_an_exhausted_producer_uses_the_reserved_epoch():
    harness = at_epoch(EXHAUSTED)
    harness.add(epoch=EXHAUSTED)
    assert harness.init().error is E.CONCURRENT_TRANSACTIONS
    assert harness.markers_sent()[-1][2] == EXHAUSTED + 1
    result = harness.init()
    assert (result.producer_id, result.producer_epoch) == (1, 0)


def test_kafka_9666_a_failed_fence_raises_the_epoch_once():
    """KAFKA-9666: while the record can't be written, 100 retries must not use up 100 epochs."""
    harness = TransactionHarness()
    harness.ongoing()
    harness.append_error = E.NOT_ENOUGH_REPLICAS
    assert {harness.init().error for _ in range(100)} == {E.COORDINATOR_NOT_AVAILABLE}
    assert harness.view().has_failed_epoch_fence
    assert (harness.state(), harness.view().producer_epoch) == (S.ONGOING, 1)
    harness.append_error = E.NONE
    assert harness.init().error is E.CONCURRENT_TRANSACTIONS
    assert not harness.view().has_failed_epoch_fence
    assert harness.init().producer_epoch == 2


def test_a_fence_that_failed_fences_the_producer_all_the_same():
    """In memory the epoch has risen: the producer does not learn whether the record is in the log."""
    harness = TransactionHarness()
    harness.ongoing()
    harness.append_error = E.REQUEST_TIMED_OUT
    harness.init()
    assert harness.add() is E.PRODUCER_FENCED


def test_a_failed_fence_in_the_reserved_epoch_is_repeated():
    """Kafka throws from the second attempt on, and the id is stuck until its coordinator moves."""
    harness = at_epoch(EXHAUSTED)
    harness.add(epoch=EXHAUSTED)
    harness.append_error = E.NOT_ENOUGH_REPLICAS
    assert [harness.init().error for _ in range(2)] == [E.COORDINATOR_NOT_AVAILABLE] * 2
    harness.append_error = E.NONE
    assert harness.init().error is E.CONCURRENT_TRANSACTIONS


@pytest.mark.parametrize(
    ("raw", "seen"),
    [
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_ENOUGH_REPLICAS_AFTER_APPEND, E.COORDINATOR_NOT_AVAILABLE),
        (E.REQUEST_TIMED_OUT, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.CORRUPT_MESSAGE, E.CORRUPT_MESSAGE),
    ],
)
def test_a_failed_append_leaves_the_id_as_it_was(raw, seen):
    """TransactionStateManager.appendTransactionToLog: the error for the client, and nothing pending."""
    harness = TransactionHarness()
    harness.init()
    before = harness.view()
    harness.append_error = raw
    assert harness.init(0, 0).error is seen
    assert harness.view() == before
    harness.append_error = E.NONE
    assert harness.init(0, 0).producer_epoch == 1


def test_an_id_whose_first_record_failed_keeps_its_producer_id():
    harness = TransactionHarness()
    harness.append_error = E.NOT_ENOUGH_REPLICAS
    harness.init()
    harness.append_error = E.NONE
    result = harness.init()
    assert (result.producer_id, result.producer_epoch) == (0, 0)


def test_the_timeout_and_the_start_of_the_last_transaction():
    """The timeout comes from the last InitProducerId; the start stays in memory, but not in the record."""
    harness = TransactionHarness()
    harness.ongoing(T0, T1)
    harness.end()
    harness.after(1000)
    harness.init(timeout_ms=5)
    assert (harness.describe().timeout_ms, harness.describe().start_time_ms) == (5, 1_000_000)
    assert harness.records()[-1][1].start_ms == -1
    assert harness.timeouts_ms[-1] == 5
