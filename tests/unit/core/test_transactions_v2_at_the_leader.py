"""Appends of producers that speak transactions v2, at the partition's leader (KIP-890, part 2)."""

from __future__ import annotations

import pytest
from lone_broker import ME, A, LoneBroker, broker_of, role
from memory_broker import START_MS, make_batch

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest
from tidegauge_broker.replica.verification import ProducerBatch, VerificationGuard

NONE, FENCED = ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH
UNVERIFIED, OUT_OF_ORDER = ErrorCode.INVALID_TXN_STATE, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
PRODUCER = 7
HIGHEST = 2**15 - 1


def leading(**settings: bool) -> LoneBroker:
    """A broker of a cluster in KRaft mode that leads A alone."""
    broker = broker_of(A)
    for name, value in {"judges_open_epochs": True, **settings}.items():
        setattr(broker.core.settings, name, value)
    role(broker, ME, 0, isr=(ME,))
    return broker


def send(
    broker: LoneBroker, records: bytes, guard: VerificationGuard | None = None, version: int | None = None
) -> ErrorCode:
    """Append a client's batch, or with a version a coordinator's marker."""
    request = ProduceRequest(1, 0, [ProducePartition(A, records, guard)], from_coordinator=version is not None)
    request.transaction_version = version or 0
    token = object()
    broker.execute(broker.core.produce(request, token, broker.now_ms))
    return broker.produced[token][0].error


def data(sequence: int, epoch: int) -> bytes:
    return make_batch("v", producer_id=PRODUCER, producer_epoch=epoch, sequence=sequence, transactional=True)


def begin(broker: LoneBroker, sequence: int, epoch: int, *, adds: bool = True) -> VerificationGuard | ErrorCode | None:
    batch = ProducerBatch(PRODUCER, epoch, sequence, adds)
    return broker.core.begin_verification(A, batch, broker.now_ms)


def produce(broker: LoneBroker, sequence: int, epoch: int, *, adds: bool = True) -> ErrorCode:
    """Do as the service: begin, and append if the partition was added to the transaction."""
    begun = begin(broker, sequence, epoch, adds=adds)
    return begun if isinstance(begun, ErrorCode) else send(broker, data(sequence, epoch), begun)


def mark(broker: LoneBroker, epoch: int, version: int = 2) -> ErrorCode:
    marker = TransactionMarker(PRODUCER, epoch, Outcome.COMMIT, 0)
    return send(broker, make_marker(marker, START_MS), version=version)


def test_a_marker_of_v2_has_a_higher_epoch_than_the_data():
    """ProducerAppendInfo.checkProducerEpoch: of version 2 the epoch must rise, before it must not fall."""
    broker = leading()
    assert produce(broker, 0, 3) is NONE
    assert mark(broker, 3) is FENCED
    assert mark(broker, 2, version=1) is FENCED
    assert mark(broker, 4) is NONE
    assert produce(broker, 0, 3) is FENCED, "the marker fences what is late of the transaction before"


@pytest.mark.parametrize("version", [0, 1])
def test_a_marker_of_v1_has_the_epoch_of_the_data(version: int):
    broker = leading()
    assert produce(broker, 0, 3, adds=False) is NONE
    assert mark(broker, 3, version) is NONE


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_that_is_not_known_has_the_epoch_of_none(version: int):
    """ProducerStateEntry.empty: an epoch below -1, as no producer has one, is an older one."""
    assert mark(leading(), -2, version) is FENCED
    assert mark(leading(), 0, version) is NONE


@pytest.mark.parametrize("epoch", [-2, 0, 4])
def test_a_marker_of_an_unknown_version_is_not_appended(epoch: int):
    """ProducerAppendInfo.appendEndTxnMarker looks at the version before it does at the epoch; others are taken."""
    broker = leading()
    assert produce(broker, 0, 3) is NONE
    assert mark(broker, epoch, version=-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert mark(broker, 4, version=-128) is NONE


def test_a_marker_that_is_repeated_is_no_error():
    """KAFKA-19999: a coordinator that recovers sends it again; no transaction is open then."""
    broker = leading()
    assert produce(broker, 0, 3) is NONE
    assert [mark(broker, 4), mark(broker, 4)] == [NONE, NONE]
    assert produce(broker, 0, 4) is NONE
    assert mark(broker, 4) is FENCED, "the next transaction is open in this epoch"


def test_the_highest_epoch_is_ended_by_a_marker_of_the_same():
    broker = leading()
    assert produce(broker, 0, HIGHEST) is NONE
    assert mark(broker, HIGHEST) is NONE


def test_each_transaction_begins_at_sequence_0():
    """ProducerAppendInfo.checkSequence: there is no state of a producer of v2 whose epoch has just risen."""
    broker = leading()
    assert produce(broker, 1, 0) is OUT_OF_ORDER
    assert produce(broker, 0, 0) is NONE
    assert send(broker, data(1, 0)) is NONE, "an open transaction needs no second look"
    assert mark(broker, 1) is NONE
    assert produce(broker, 2, 1) is OUT_OF_ORDER


def test_a_producer_of_v1_that_is_unknown_may_begin_anywhere():
    """Its records may have been deleted (KIP-360); so it was before transactions v2."""
    assert produce(leading(), 5, 0, adds=False) is NONE


def test_a_transaction_is_open_for_its_own_epoch_alone():
    """UnifiedLog.hasOngoingTransaction: a higher epoch's batch must be in a transaction of its own."""
    broker = leading()
    assert produce(broker, 0, 0) is NONE
    assert send(broker, data(0, 1)) is UNVERIFIED
    assert isinstance(begin(broker, 0, 1), VerificationGuard)


def test_a_stale_epoch_is_found_before_a_coordinator_is_asked():
    """UnifiedLog.maybeStartTransactionVerification of 4.x, and analyzeAndValidateProducerState at the append."""
    broker = leading()
    assert mark(broker, 4) is NONE
    assert begin(broker, 0, 3) is FENCED
    assert begin(broker, 0, 3, adds=False) is FENCED
    assert send(broker, data(0, 3)) is FENCED


def test_in_zookeeper_mode_a_missing_verification_is_found_first():
    """So in 3.9."""
    broker = leading(judges_open_epochs=False)
    assert mark(broker, 4, version=0) is NONE
    assert isinstance(begin(broker, 0, 3, adds=False), VerificationGuard)
    assert send(broker, data(0, 3)) is UNVERIFIED


def test_the_marker_of_the_transaction_before_leaves_the_next_one_its_verification():
    """UnifiedLog.updateProducers (isV2NextTransactionStarted): the marker has the epoch of the batch that waits."""
    broker = leading()
    assert produce(broker, 0, 0) is NONE
    guard = begin(broker, 0, 1)
    assert isinstance(guard, VerificationGuard)
    assert mark(broker, 1) is NONE
    assert send(broker, data(0, 1), guard) is NONE


def test_the_marker_of_a_later_transaction_ends_a_verification():
    """Else the response of before the marker would append after it (KAFKA-14884)."""
    broker = leading()
    guard = begin(broker, 0, 1)
    assert isinstance(guard, VerificationGuard)
    assert mark(broker, 2) is NONE
    assert send(broker, data(0, 1), guard) is FENCED


def test_partitions_are_added_also_where_nothing_is_verified():
    """ReplicaManager.maybeSendPartitionsToTransactionCoordinator: the setting is about verification alone."""
    broker = leading(verifies_transactions=False)
    assert begin(broker, 0, 0, adds=False) is None
    assert isinstance(begin(broker, 0, 0), VerificationGuard)


def test_the_transaction_s_version_stands_in_no_marker():
    """It goes with WriteTxnMarkers; followers see the epoch alone."""
    plain = make_marker(TransactionMarker(PRODUCER, 4, Outcome.COMMIT, 0), START_MS)
    assert plain == make_marker(TransactionMarker(PRODUCER, 4, Outcome.COMMIT, 0, 2), START_MS)
    assert read_header(plain).producer_epoch == 4
