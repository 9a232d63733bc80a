"""Transactional appends at a leader: verified by the transaction coordinator first (KIP-890, part 1), and markers."""

from __future__ import annotations

import pytest
from lone_broker import ME, A, LoneBroker, broker_of, role
from memory_broker import START_MS, make_batch

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest, ProduceResult
from tidegauge_broker.replica.verification import ProducerBatch, VerificationGuard

NONE = ErrorCode.NONE
UNVERIFIED = ErrorCode.INVALID_TXN_STATE
PRODUCER = 7


def leading(**settings: bool) -> LoneBroker:
    """A broker that leads A alone in its ISR."""
    broker = broker_of(A)
    for name, value in settings.items():
        setattr(broker.core.settings, name, value)
    role(broker, ME, 0, isr=(ME,))
    return broker


def data(sequence: int, *, epoch: int = 0, transactional: bool = True) -> bytes:
    return make_batch("v", producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence, transactional=transactional)


def append(
    broker: LoneBroker, records: bytes, guard: VerificationGuard | None = None, *, from_coordinator: bool = False
) -> ProduceResult:
    request = ProduceRequest(1, 0, [ProducePartition(A, records, guard)], from_coordinator=from_coordinator)
    token = object()
    broker.execute(broker.core.produce(request, token, broker.now_ms))
    (result,) = broker.produced[token]
    return result


def begin(broker: LoneBroker, records: bytes) -> VerificationGuard | None:
    header = read_header(records)
    batch = ProducerBatch(header.producer_id, header.producer_epoch, header.base_sequence)
    return broker.core.begin_verification(A, batch, broker.now_ms)


def mark(broker: LoneBroker, *, epoch: int = 0, coordinator_epoch: int = 0) -> ErrorCode:
    marker = TransactionMarker(PRODUCER, epoch, Outcome.ABORT, coordinator_epoch)
    return append(broker, make_marker(marker, START_MS), from_coordinator=True).error


def test_the_first_batch_of_a_transaction_needs_the_guard_of_its_verification():
    """UnifiedLog.batchMissingRequiredVerification: once a transaction is open its further batches need none."""
    broker = leading()
    assert append(broker, data(0)).error is UNVERIFIED
    guard = begin(broker, data(0))
    assert guard is not None
    assert append(broker, data(0), VerificationGuard()).error is UNVERIFIED
    assert append(broker, data(0), guard).error is NONE
    assert begin(broker, data(1)) is None
    assert append(broker, data(1)).error is NONE


def test_a_verification_from_before_the_marker_appends_nothing_after_it():
    """KAFKA-14884: the response came, then the abort marker, then the append; it would hang for ever."""
    broker = leading()
    guard = begin(broker, data(0))
    assert mark(broker) is NONE
    assert append(broker, data(0), guard).error is UNVERIFIED
    again = begin(broker, data(0))
    assert again is not guard
    assert append(broker, data(0), again).error is NONE


def test_verifications_in_progress_share_their_guard():
    """VerificationStateEntry: a batch that is tried again while the first try is verified does not invalidate it."""
    broker = leading()
    assert begin(broker, data(0)) is begin(broker, data(0))


def test_no_batch_overtakes_the_one_that_is_verified():
    """ProducerAppendInfo.checkSequence: a sequence above the lowest that was verified is out of order."""
    broker = leading()
    begin(broker, data(0))
    guard = begin(broker, data(5))
    assert append(broker, data(5), guard).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(broker, data(0), guard).error is NONE
    assert append(broker, data(1)).error is NONE


def test_a_higher_epoch_replaces_the_lowest_sequence():
    broker = leading()
    begin(broker, data(0))
    guard = begin(broker, data(3, epoch=1))
    assert append(broker, data(3, epoch=1), guard).error is NONE


def test_a_batch_of_a_finished_transaction_is_no_duplicate_of_the_window_first():
    """UnifiedLog.analyzeAndValidateProducerState looks for duplicates before the guard."""
    broker = leading()
    append(broker, data(0), begin(broker, data(0)))
    mark(broker)
    repeated = append(broker, data(0))
    assert (repeated.error, repeated.base_offset) == (NONE, 0)


def test_a_plain_batch_within_a_transaction_is_refused():
    """ProducerAppendInfo.appendDataBatch."""
    broker = leading()
    append(broker, data(0), begin(broker, data(0)))
    refused = append(broker, data(1, transactional=False))
    assert (refused.error, "Expected transactional write" in refused.message) == (ErrorCode.INVALID_TXN_STATE, True)


def test_without_verification_any_transactional_batch_opens_a_transaction():
    """transaction.partition.verification.enable=false: hanging transactions are possible again."""
    broker = leading(verifies_transactions=False)
    assert begin(broker, data(0)) is None
    assert append(broker, data(0)).error is NONE


def test_a_coordinators_batches_have_no_sequence():
    """ProducerAppendInfo.maybeValidateDataBatch: offsets of a transaction all begin at sequence 0."""
    broker = leading()
    guard = begin(broker, data(0))
    assert append(broker, data(0), guard, from_coordinator=True).base_offset == 0
    assert append(broker, data(0), from_coordinator=True).base_offset == 1


@pytest.mark.parametrize(
    ("epoch", "coordinator_epoch", "error"),
    [
        (0, 3, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 2, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
        (1, 3, NONE),
        (2, 4, NONE),
    ],
)
def test_a_marker_of_an_old_producer_or_coordinator_is_fenced(epoch: int, coordinator_epoch: int, error: ErrorCode):
    """ProducerAppendInfo.checkProducerEpoch and checkCoordinatorEpoch; the same marker again is written again."""
    broker = leading()
    assert mark(broker, epoch=1, coordinator_epoch=3) is NONE
    assert mark(broker, epoch=epoch, coordinator_epoch=coordinator_epoch) is error


def test_a_marker_ends_what_readers_of_committed_data_wait_for():
    broker = leading()
    append(broker, data(0), begin(broker, data(0)))
    view = broker.core.describe(broker.now_ms)[0]
    assert (view.high_watermark, view.last_stable_offset) == (1, 0)
    mark(broker)
    view = broker.core.describe(broker.now_ms)[0]
    assert (view.high_watermark, view.last_stable_offset) == (2, 2)


def test_a_verification_that_was_given_up_expires():
    """ProducerStateManager.removeExpiredProducers: as a producer that is idle for producer.id.expiration.ms."""
    broker = leading()
    guard = begin(broker, data(0))
    broker.now_ms += broker.core.settings.producer_id_expiration_ms
    broker.execute(broker.core.tick(broker.now_ms))
    assert append(broker, data(0), guard).error is UNVERIFIED


def test_no_verification_begins_where_another_broker_leads():
    """The append finds out, and names the leader."""
    broker = leading()
    role(broker, 2, 1)
    assert begin(broker, data(0)) is None
    assert append(broker, data(0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER
