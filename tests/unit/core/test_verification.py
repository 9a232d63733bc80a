"""Transactional appends at a leader: verified by the transaction coordinator first (KIP-890, part 1), and markers."""

from __future__ import annotations

import pytest
from lone_broker import ME, OTHER, A, LoneBroker, broker_of, role
from memory_broker import START_MS, make_batch

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import patch, read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.replica.messages import (
    CONSUMER,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    FetchRound,
    ProducePartition,
    ProduceRequest,
    ProduceResult,
)
from tidegauge_broker.replica.open_transactions import AbortedTransaction
from tidegauge_broker.replica.verification import ProducerBatch, VerificationGuard, Verifications

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


def follow(broker: LoneBroker, *batches: bytes) -> None:
    """Let the broker follow another leader, and copy what that one has appended to the empty log."""
    role(broker, OTHER, 1)
    copied = [bytearray(batch) for batch in batches]
    for offset, batch in enumerate(copied):
        patch(batch, 0, offset, 1)
    chosen = broker.core.next_round(OTHER, broker.now_ms)
    assert isinstance(chosen, FetchRound)
    response = FetchedPartition(A, high_watermark=len(copied), log_start_offset=0, records=b"".join(copied))
    broker.execute(broker.core.fetch_response_received(OTHER, chosen.request_id, [response], broker.now_ms))


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


def test_kafka_14884_a_verification_from_before_the_marker_appends_nothing_after_it():
    """KAFKA-14884: the response came, then the abort marker, then the append; it would hang for ever."""
    broker = leading()
    guard = begin(broker, data(0))
    assert mark(broker) is NONE
    assert append(broker, data(0), guard).error is UNVERIFIED
    again = begin(broker, data(0))
    assert again is not guard
    assert append(broker, data(0), again).error is NONE


def test_a_verification_from_before_a_marker_of_another_leader_appends_nothing_after_it():
    """UnifiedLog.updateProducers clears the entry at a follower too. The broker led, followed, and leads again."""
    broker = leading()
    guard = begin(broker, data(0))
    follow(broker, make_marker(TransactionMarker(PRODUCER, 0, Outcome.ABORT, 0), START_MS))
    role(broker, ME, 2, isr=(ME,))
    assert append(broker, data(0), guard).error is UNVERIFIED
    assert broker.core.describe(broker.now_ms)[0].last_stable_offset == 1, "no transaction hangs"


def test_a_verification_that_another_leader_has_overtaken_puts_no_batch_out_of_order():
    """The producer's batch was verified here and appended by the next leader: rule 3 must not outlive that."""
    broker = leading()
    begin(broker, data(0))
    follow(broker, data(0))
    role(broker, ME, 2, isr=(ME,))
    assert append(broker, data(1)).error is NONE


def test_verifications_in_progress_share_their_guard():
    """VerificationStateEntry: a batch that is tried again while the first try is verified does not invalidate it."""
    broker = leading()
    assert begin(broker, data(0)) is begin(broker, data(0))


def test_what_the_log_refuses_is_refused_with_its_start():
    """ReplicaManager.appendToLocalLog: the log start offset is in the result, but for a batch that is damaged."""
    broker = leading()
    assert append(broker, data(0), begin(broker, data(0))).error is NONE
    out_of_order, damaged = append(broker, data(5)), append(broker, data(1)[:-1] + b"x")
    assert (out_of_order.error, out_of_order.log_start_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, 0)
    assert (damaged.error, damaged.log_start_offset) == (ErrorCode.CORRUPT_MESSAGE, -1)


def test_no_batch_overtakes_the_one_that_is_verified():
    """ProducerAppendInfo.checkSequence: a sequence above the lowest that was verified is out of order."""
    broker = leading()
    begin(broker, data(0))
    guard = begin(broker, data(5))
    assert append(broker, data(5), guard).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(broker, data(0), guard).error is NONE
    assert append(broker, data(1)).error is NONE


def test_the_lowest_sequence_that_is_verified_counts_whenever_its_request_came():
    """VerificationStateEntry.maybeUpdateLowestSequenceAndEpoch: a later request may lower it, in the same epoch."""
    broker = leading()
    begin(broker, data(5))
    guard = begin(broker, data(0))
    assert append(broker, data(5), guard).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(broker, data(0), guard).error is NONE


def test_an_older_epoch_does_not_change_the_lowest_sequence():
    broker = leading()
    begin(broker, data(3, epoch=1))
    guard = begin(broker, data(0))
    assert append(broker, data(3, epoch=1), guard).error is NONE


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


def test_a_verification_in_progress_does_not_expire():
    broker = leading()
    guard = begin(broker, data(0))
    broker.now_ms += broker.core.settings.producer_id_expiration_ms - 1
    broker.execute(broker.core.tick(broker.now_ms))
    assert append(broker, data(0), guard).error is NONE


def test_without_a_verification_there_is_no_lowest_sequence():
    assert Verifications().lowest_sequence(PRODUCER) is None


def test_no_verification_begins_where_another_broker_leads():
    """The append finds out, and names the leader."""
    broker = leading()
    role(broker, 2, 1)
    assert begin(broker, data(0)) is None
    assert append(broker, data(0)).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("may_be_internal", "error"),
    [(False, ErrorCode.INVALID_TOPIC_EXCEPTION), (True, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)],
)
def test_only_an_admin_client_may_write_to_an_internal_topic(may_be_internal: bool, error: ErrorCode):
    """ReplicaManager.appendToLocalLog: internalTopicsAllowed; here there is no such replica."""
    broker = leading()
    item = ProducePartition(TopicPartition("__transaction_state", 0), data(0, transactional=False))
    token = object()
    request = ProduceRequest(1, 0, [item], may_be_internal=may_be_internal)
    broker.execute(broker.core.produce(request, token, broker.now_ms))
    assert [result.error for result in broker.produced[token]] == [error]


# Schedules behind bugs that Kafka's partition leaders had, by their KAFKA numbers


def test_kafka_14561_a_guard_of_the_transaction_before_opens_none_after_another_has_come_and_gone():
    """KAFKA-15449, "ABA": a transaction of the same producer and epoch began and ended between response and append."""
    broker = leading()
    stale = begin(broker, data(0))
    assert mark(broker) is NONE
    assert append(broker, data(0), begin(broker, data(0))).error is NONE
    assert mark(broker) is NONE
    begin(broker, data(1))
    assert append(broker, data(1), stale).error is UNVERIFIED
    assert broker.core.describe(broker.now_ms)[0].last_stable_offset == 3, "no transaction hangs"


def test_kafka_9144_a_marker_counts_as_a_use_of_its_producer_so_its_coordinator_epoch_never_goes_back():
    """A producer that was idle until its transaction was aborted for it: its state does not expire with its data."""
    broker = leading()
    append(broker, data(0), begin(broker, data(0)))
    expiration_ms = broker.core.settings.producer_id_expiration_ms
    broker.now_ms += expiration_ms
    broker.execute(broker.core.tick(broker.now_ms))
    abort = TransactionMarker(PRODUCER, 1, Outcome.ABORT, 3)
    assert append(broker, make_marker(abort, broker.now_ms), from_coordinator=True).error is NONE
    broker.now_ms += expiration_ms // 2
    broker.execute(broker.core.tick(broker.now_ms))
    assert mark(broker, epoch=1, coordinator_epoch=2) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert append(broker, data(1), begin(broker, data(1))).error is ErrorCode.INVALID_PRODUCER_EPOCH


def test_kafka_5376_a_parked_fetch_names_the_aborted_transactions_when_it_is_completed():
    """DelayedFetch reads again when it is completed, by the isolation level of its request."""
    broker = leading()
    append(broker, data(0), begin(broker, data(0)))
    found = []
    broker.respond_to_fetch = lambda _, response: found.extend(response)
    request = FetchRequest(CONSUMER, 1_000, 1, 1 << 20, [FetchPartition(A, 0, 1 << 20)], "", reads_committed=True)
    broker.execute(broker.core.fetch(request, object(), broker.now_ms))
    assert found == [], "nothing is readable below the last stable offset"
    assert mark(broker) is NONE
    [(result, records)] = found
    assert len(records) > 0
    assert list(result.aborted_transactions) == [AbortedTransaction(PRODUCER, 0, 1, 2)]


def test_a_repeated_marker_ends_the_next_transaction_of_its_epoch():
    """Kafka 3.9's flaw at a partition: WriteTxnMarkers names no transaction (KIP-890, part 2, gives each an epoch)."""
    broker = leading()
    append(broker, data(0), begin(broker, data(0)))
    assert mark(broker) is NONE
    append(broker, data(1), begin(broker, data(1)))
    assert broker.core.describe(broker.now_ms)[0].last_stable_offset == 2
    assert mark(broker) is NONE, "the same coordinator epoch is no reason to refuse it"
    assert broker.core.describe(broker.now_ms)[0].last_stable_offset == 4
    assert append(broker, data(2)).error is UNVERIFIED, "the rest of the transaction is refused"
