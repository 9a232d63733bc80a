"""Transactions v2 (KIP-890, part 2): each end raises the epoch; Kafka 4.3.1's responses and records, step by step."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from tests.unit.coordinator.transaction_harness import ABORT, COMMIT, OFFSETS_0, T0, TransactionHarness

from tidegauge.errors import ErrorCode
from tidegauge.kafka.coordinator.transaction_log import TransactionLogValue
from tidegauge.partition import TopicPartition
from tidegauge.transactions import AddPartitionsToTxn, EndTxn, EndTxnResult, TransactionState
from tidegauge_broker.coordinator.record_codec import decoded, read_batches, version_of
from tidegauge_broker.coordinator.transaction.records import FIRST_FLEXIBLE_VALUE, read_transaction

NONE, CONCURRENT = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
FENCED, INVALID_STATE = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE
NO_MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT = range(6)
"""Numbers of states in records."""


class Written(NamedTuple):
    """The content of a record of version 1."""

    state: int
    producer_id: int
    epoch: int
    partitions: int | None
    client_version: int
    previous_id: int
    next_id: int = -1


class Harness(TransactionHarness):
    """A coordinator of a cluster with transaction.version 2."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**({"transaction_version": 2, "is_kafka_4": True} | settings))

    def produce(self, *partitions: TopicPartition, epoch: int = 0, producer_id: int = 0) -> ErrorCode:
        """Send the request of a leader for a Produce v12, or of a group coordinator for a TxnOffsetCommit v5."""
        request = AddPartitionsToTxn("tx", producer_id, epoch, partitions or (T0,), is_implicit=True)
        return self.error(self.send(request))

    def end_v5(self, outcome: Any, epoch: int, producer_id: int = 0) -> tuple[ErrorCode, int, int]:
        result = self.ask(EndTxn("tx", producer_id, epoch, outcome, raises_epoch=True))
        assert isinstance(result, EndTxnResult)
        return result.error, result.producer_id, result.producer_epoch

    def written(self) -> list[Written]:
        found = []
        for batch in self.log:
            for loaded in read_batches(batch):
                for _, value in loaded.records:
                    assert value is not None
                    assert version_of(value) == FIRST_FLEXIBLE_VALUE
                    read = decoded(TransactionLogValue, value, FIRST_FLEXIBLE_VALUE, flexible=True)
                    topics = read.transaction_partitions
                    count = None if topics is None else sum(len(one.partition_ids) for one in topics)
                    found.append(
                        Written(
                            *(read.transaction_status, read.producer_id, read.producer_epoch, count),
                            *(read.client_transaction_version, read.previous_producer_id, read.next_producer_id),
                        )
                    )
        return found


@pytest.fixture
def broker() -> Harness:
    return Harness()


def refused(error: ErrorCode) -> tuple[ErrorCode, int, int]:
    return error, -1, -1


def test_a_story_of_kafka_gets_kafkas_responses_and_records(broker):
    """The requests that were sent to Kafka 4.3.1, its responses, and what kafka-dump-log printed of its records."""
    assert (broker.init().producer_id, broker.init().producer_epoch) == (0, 1)
    broker = Harness()
    assert broker.init().producer_epoch == 0
    assert broker.end_v5(ABORT, 0) == (NONE, 0, 1), "an abort without a transaction raises the epoch"
    assert broker.produce(epoch=1) is NONE
    assert broker.produce(epoch=1) is NONE, "the second batch writes nothing"
    assert broker.end_v5(COMMIT, 1) == (NONE, 0, 2)
    assert broker.end_v5(COMMIT, 1) == (NONE, 0, 2), "repeated with the old epoch"
    assert broker.end_v5(ABORT, 1) == refused(INVALID_STATE)
    assert broker.produce(epoch=1) is FENCED, "a late Produce"
    assert broker.produce(epoch=2) is NONE
    assert broker.end_v5(COMMIT, 1) == refused(FENCED), "a late EndTxn while the next transaction is open"
    assert broker.end(COMMIT, epoch=1) is FENCED
    assert broker.end_v5(ABORT, 2) == (NONE, 0, 3)
    assert broker.end_v5(COMMIT, 2) == refused(INVALID_STATE)
    assert broker.end_v5(ABORT, 3) == (NONE, 0, 4)
    assert broker.end_v5(COMMIT, 4) == refused(INVALID_STATE)
    assert broker.add(epoch=4) is NONE, "a producer of v1 on the same cluster"
    assert broker.end(COMMIT, epoch=4) is NONE
    assert broker.end(COMMIT, epoch=4) is NONE
    assert broker.add(epoch=4) is NONE
    assert broker.end(COMMIT, epoch=4) is NONE, "the flaw of v1 stays: a repeated EndTxn ends the next transaction"
    assert broker.produce(OFFSETS_0, epoch=4) is NONE
    assert broker.end_v5(COMMIT, 4) == (NONE, 0, 5)
    assert broker.produce(OFFSETS_0, epoch=5) is NONE
    assert broker.end_v5(ABORT, 5) == (NONE, 0, 6)
    assert broker.produce(epoch=6) is NONE
    assert broker.end_v5(COMMIT, 6) == (NONE, 0, 7)
    assert broker.produce(epoch=7) is NONE
    assert broker.init().error is CONCURRENT
    assert broker.init().producer_epoch == 9
    assert broker.end_v5(COMMIT, 7) == refused(FENCED)
    assert [one[:1] + one[2:5] for one in broker.written()] == [
        (EMPTY, 0, None, 0),
        (PREPARE_ABORT, 1, 0, 2),
        (COMPLETE_ABORT, 1, 0, 2),
        (ONGOING, 1, 1, 2),
        (PREPARE_COMMIT, 2, 1, 2),
        (COMPLETE_COMMIT, 2, 0, 2),
        (ONGOING, 2, 1, 2),
        (PREPARE_ABORT, 3, 1, 2),
        (COMPLETE_ABORT, 3, 0, 2),
        (PREPARE_ABORT, 4, 0, 2),
        (COMPLETE_ABORT, 4, 0, 2),
        (ONGOING, 4, 1, 0),
        (PREPARE_COMMIT, 4, 1, 0),
        (COMPLETE_COMMIT, 4, 0, 0),
        (ONGOING, 4, 1, 0),
        (PREPARE_COMMIT, 4, 1, 0),
        (COMPLETE_COMMIT, 4, 0, 0),
        (ONGOING, 4, 1, 2),
        (PREPARE_COMMIT, 5, 1, 2),
        (COMPLETE_COMMIT, 5, 0, 2),
        (ONGOING, 5, 1, 2),
        (PREPARE_ABORT, 6, 1, 2),
        (COMPLETE_ABORT, 6, 0, 2),
        (ONGOING, 6, 1, 2),
        (PREPARE_COMMIT, 7, 1, 2),
        (COMPLETE_COMMIT, 7, 0, 2),
        (ONGOING, 7, 1, 2),
        (PREPARE_ABORT, 8, 1, 2),
        (COMPLETE_ABORT, 8, 0, 2),
        (EMPTY, 9, None, 2),
    ]
    assert {(one.producer_id, one.previous_id, one.next_id) for one in broker.written()} == {(0, 0, -1)}
    markers = [(one.marker.producer_epoch, one.marker.outcome) for sent in broker.sent for one in sent.markers]
    assert markers == [
        (2, COMMIT),
        (3, ABORT),
        (4, COMMIT),
        (4, COMMIT),
        (5, COMMIT),
        (6, ABORT),
        (7, COMMIT),
        (8, ABORT),
    ]


def test_while_markers_are_written_every_end_has_to_wait(broker):
    """TransactionCoordinator.endTransaction: a pending state comes before the producer id and the epoch."""
    broker.init()
    broker.produce()
    broker.holds_markers = True
    assert broker.end_v5(COMMIT, 0) == (NONE, 0, 1), "the response comes with the decision, before the markers"
    assert broker.end_v5(COMMIT, 0) == refused(CONCURRENT)
    assert broker.end_v5(ABORT, 7) == refused(CONCURRENT)
    assert broker.produce(epoch=1) is CONCURRENT
    assert broker.produce(epoch=0) is CONCURRENT, "before the epoch is looked at"
    broker.write_markers()
    assert broker.produce(epoch=0) is FENCED
    assert broker.produce(epoch=1) is NONE


@pytest.mark.parametrize(("is_kafka_4", "expected"), [(True, CONCURRENT), (False, FENCED)])
def test_partitions_of_a_producer_of_v1_wait_for_what_is_pending_too(is_kafka_4, expected):
    """TransactionCoordinator.handleAddPartitionsToTransaction of 4.x; in 3.9 the epoch is looked at first."""
    broker = Harness(is_kafka_4=is_kafka_4, transaction_version=0)
    broker.init()
    broker.add()
    broker.holds_markers = True
    assert broker.end(COMMIT) is NONE
    assert broker.add(epoch=7) is expected


def test_partitions_that_another_broker_adds_are_of_v1_in_zookeeper_mode():
    """3.9 serves AddPartitionsToTxn v4 that verifies nothing, and knows no other transactions."""
    broker = Harness(is_kafka_4=False, transaction_version=0)
    broker.init()
    assert broker.produce() is NONE
    broker.holds_markers = True
    assert broker.end(COMMIT) is NONE
    assert [one.marker.transaction_version for request in broker.markers for one in request.markers] == [0]


def test_a_marker_says_that_its_transaction_is_of_v2(broker):
    """TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue: clientTransactionVersion of the metadata."""
    broker.init()
    broker.produce()
    broker.holds_markers = True
    assert broker.end_v5(COMMIT, 0) == (NONE, 0, 1)
    assert [one.marker[1:] for request in broker.markers for one in request.markers] == [(1, COMMIT, 0, 2)]


def test_the_version_that_a_producer_speaks_shows_with_its_first_transaction(broker):
    """TransactionMetadata.clientTransactionVersion: of AddPartitionsToTxn and Produce, whichever adds a partition."""
    broker.init()
    assert broker.view().transactions_version == 0
    broker.produce()
    assert broker.view().transactions_version == 2
    assert broker.end_v5(COMMIT, 0) == (NONE, 0, 1)
    assert broker.view().transactions_version == 2
    broker.init()
    assert broker.view().transactions_version == 0
    broker.add(epoch=2)
    assert broker.view().transactions_version == 1


@pytest.mark.parametrize(("is_kafka_4", "start_ms"), [(True, -1), (False, 1_000_000)])
def test_a_new_producer_has_begun_no_transaction(is_kafka_4, start_ms):
    """TransactionMetadata.completeTransitionTo of 4.x takes the time from the record; in 3.9 the old one stays."""
    broker = Harness(is_kafka_4=is_kafka_4)
    broker.init()
    broker.add()
    broker.end(COMMIT)
    broker.init()
    assert broker.describe().start_time_ms == start_ms


@pytest.mark.parametrize(
    ("epoch", "producer_id", "expected"),
    [(2, 0, FENCED), (-1, 0, FENCED), (0, 7, NO_MAPPING)],
)
def test_another_producer_or_another_epoch_ends_nothing(broker, epoch, producer_id, expected):
    broker.init()
    broker.produce()
    assert broker.end_v5(COMMIT, epoch, producer_id) == refused(expected)
    assert broker.view().state is TransactionState.ONGOING


def test_a_timed_out_transaction_looks_aborted_to_its_producer_and_cannot_be_committed(broker):
    """The trap that remains: an abort with the old epoch succeeds as its own repeat, a commit is an invalid state."""
    broker.init(timeout_ms=1_000)
    broker.produce()
    broker.after(20_000)
    assert broker.view().state is TransactionState.COMPLETE_ABORT
    assert broker.end_v5(COMMIT, 0) == refused(INVALID_STATE)
    assert broker.produce(epoch=0) is FENCED
    assert broker.end_v5(ABORT, 0) == (NONE, 0, 1)


def test_the_abort_of_a_fenced_producer_raises_the_epoch_once(broker):
    """KAFKA-19367: once, also where the record of the abort could not be written the first time."""
    broker.init()
    broker.produce()
    broker.append_error = ErrorCode.NOT_ENOUGH_REPLICAS
    assert broker.init().error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert broker.view().producer_epoch == 0, "nothing has changed"
    broker.append_error = ErrorCode.NONE
    assert broker.init().error is CONCURRENT
    assert broker.view().producer_epoch == 1
    assert broker.init().producer_epoch == 2


def exhausted(broker: Harness) -> Harness:
    """The successor of a coordinator whose producer has the last epoch that a client can have."""
    broker.init()
    broker.end_v5(ABORT, 0)
    shard = next(iter(broker.coordinator._led.shards.values()))
    shard.transactions["tx"].producer_epoch = 32_766
    return broker


def test_a_producer_whose_epochs_are_exhausted_goes_on_with_another_id(broker):
    """Kafka 4.3.1: EndTxn at 32,766 gives (next id, 0), its repeat the same; a commit in its place is refused."""
    exhausted(broker)
    before = len(broker.written())
    assert broker.end_v5(ABORT, 32_766) == (NONE, 1, 0)
    assert broker.written()[before:] == [
        Written(PREPARE_ABORT, 0, 32_767, 0, 2, 0, 1),
        Written(COMPLETE_ABORT, 1, 0, 0, 2, 0),
    ]
    assert broker.end_v5(ABORT, 32_766) == (NONE, 1, 0)
    assert broker.end_v5(COMMIT, 32_766) == refused(INVALID_STATE)
    assert broker.end_v5(ABORT, 32_767) == refused(NO_MAPPING)
    assert broker.end_v5(ABORT, 32_765) == refused(NO_MAPPING)
    assert broker.end_v5(ABORT, 0, producer_id=1) == (NONE, 1, 1)
    assert broker.written()[-1] == Written(COMPLETE_ABORT, 1, 1, 0, 2, 1)


def test_without_another_id_an_exhausted_end_changes_nothing(broker):
    exhausted(broker)
    broker.allocation_error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert broker.end_v5(ABORT, 32_766) == refused(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    broker.allocation_error = ErrorCode.NONE
    assert broker.end_v5(ABORT, 32_766) == (NONE, 1, 0)


def test_the_next_coordinator_knows_a_repeat_and_goes_on_with_the_other_id(broker):
    """The epoch before is not in the record, and follows from it; the producer ids before and after are."""
    broker.init()
    broker.produce()
    assert broker.end_v5(COMMIT, 0) == (NONE, 0, 1)
    successor = Harness(elected=False, log=broker.log, now_ms=broker.now_ms)
    successor.elect(1)
    assert successor.end_v5(COMMIT, 0) == (NONE, 0, 1)
    assert successor.end_v5(ABORT, 0) == refused(INVALID_STATE)
    done = exhausted(Harness())
    assert done.end_v5(ABORT, 32_766) == (NONE, 1, 0)
    later = Harness(elected=False, log=done.log, now_ms=done.now_ms)
    later.elect(1)
    assert later.end_v5(ABORT, 32_766) == (NONE, 1, 0), "the id before is in the record"
    exhausted_one = Harness()
    exhausted(exhausted_one)
    exhausted_one.holds_markers = True
    exhausted_one.produce(epoch=32_766)
    assert exhausted_one.end_v5(COMMIT, 32_766) == (NONE, 1, 0)
    heir = Harness(elected=False, log=exhausted_one.log, now_ms=exhausted_one.now_ms)
    heir.elect(1)
    assert (heir.view().producer_id, heir.view().producer_epoch) == (1, 0), (
        "the decision was resumed, with its other id"
    )
    assert heir.end_v5(COMMIT, 32_766) == (NONE, 1, 0)


@pytest.mark.parametrize(("level", "version"), [(0, 0), (1, 1), (2, 1)])
def test_records_are_flexible_from_transaction_version_1_on(level, version):
    """TransactionLog.valueToBytes: the level says the record's version; both are read."""
    broker = TransactionHarness(transaction_version=level)
    broker.init()
    broker.add()
    values = [value for batch in broker.log for loaded in read_batches(batch) for _, value in loaded.records]
    assert {version_of(value) for value in values} == {version}
    assert read_transaction("tx", values[-1]).state is TransactionState.ONGOING
