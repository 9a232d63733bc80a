"""Readers of committed records (KIP-98): the last stable offset, and the aborted transactions.

The leader's log holds transactions of Apache Kafka's making when its process starts; the followers copy them.
"""

from __future__ import annotations

import pytest
from core_harness import AT, Cluster
from memory_broker import START_MS, make_batch

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import make_batch as seal
from tidegauge.record_batch import patch, read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker, make_marker
from tidegauge_broker.replica.list_offsets import EARLIEST, LATEST
from tidegauge_broker.replica.messages import (
    CONSUMER,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    OffsetLookup,
    TimeLookup,
)
from tidegauge_broker.replica.open_transactions import AbortedTransaction

COMMIT, ABORT = Outcome.COMMIT, Outcome.ABORT


def data(producer_id: int, sequence: int = 0) -> bytes:
    return make_batch("v", producer_id=producer_id, producer_epoch=0, sequence=sequence, transactional=True)


def marker(producer_id: int, outcome: Outcome) -> bytes:
    return make_marker(TransactionMarker(producer_id, 0, outcome, 0), START_MS)


def with_log(*batches: bytes) -> Cluster:
    """Three brokers; broker 1 leads and has these batches, which the others have not fetched yet."""
    cluster = Cluster()
    cluster.settle()
    cluster.kill(2, 3)
    cluster.expire_session(2, 3)
    cluster.settle()
    cluster.kill(1)
    log = cluster.brokers[1].disk[AT]
    for batch in batches:
        written = bytearray(batch)
        patch(written, 0, log.log_end_offset, log.epochs[-1].epoch if log.epochs else 0)
        log.append(read_header(written), bytes(written))
    cluster.expire_session(1)
    cluster.start(1)
    cluster.deliver()
    assert cluster.brokers[1].core.partition(AT).leader_role is not None
    return cluster


def copied(*batches: bytes) -> Cluster:
    """The same, and all replicas have them and know that they are committed."""
    cluster = with_log(*batches)
    cluster.start(2, 3)
    cluster.settle()
    return cluster


def fetch(cluster: Cluster, broker_id: int, offset: int, *, committed: bool = True, wait_ms: int = 0):
    """One fetch; the results, with what the memory brokers drop: the last stable offset and the aborted list."""
    broker = cluster.brokers[broker_id]
    found = []
    whole = broker.respond_to_fetch

    def keep(token, response):
        found.extend(response)
        whole(token, response)

    broker.respond_to_fetch = keep
    wanted = FetchPartition(AT, offset, 1 << 20)
    request = FetchRequest(CONSUMER, wait_ms, 1, 1 << 20, [wanted], client_rack="", reads_committed=committed)
    broker.execute(broker.core.fetch(request, object(), cluster.now_ms))
    return found


def bases(records: bytes) -> list[int]:
    found, position = [], 0
    while position < len(records):
        header = read_header(records, position)
        found.append(header.base_offset)
        position += header.size_bytes
    return found


@pytest.mark.parametrize("broker_id", [1, 2])
def test_records_of_an_open_transaction_are_not_given_nor_what_lies_behind(broker_id):
    """KafkaApis.handleFetchRequest: bounded by the last stable offset; at a follower by the follower's own."""
    cluster = copied(data(1), marker(1, COMMIT), data(2), data(3), marker(3, COMMIT))
    [(result, records)] = fetch(cluster, broker_id, 0)
    assert (result.error, result.high_watermark, result.last_stable_offset) == (ErrorCode.NONE, 5, 2)
    assert bases(records) == [0, 1]
    assert result.aborted_transactions == []
    assert fetch(cluster, broker_id, 2)[0][1] == b""


@pytest.mark.parametrize("broker_id", [1, 2])
def test_who_reads_all_gets_all_and_no_list(broker_id):
    """The list is null for read_uncommitted: a client that found an empty one has dropped records."""
    cluster = copied(data(1), data(2), marker(2, ABORT))
    [(result, records)] = fetch(cluster, broker_id, 0, committed=False)
    assert bases(records) == [0, 1, 2]
    assert (result.last_stable_offset, result.aborted_transactions) == (0, None)


@pytest.mark.parametrize("broker_id", [1, 2])
def test_aborted_transactions_are_named_and_their_records_given(broker_id):
    """The client leaves them out (CompletedFetch)."""
    cluster = copied(data(1), data(2), marker(1, ABORT), marker(2, COMMIT))
    [(result, records)] = fetch(cluster, broker_id, 0)
    assert bases(records) == [0, 1, 2, 3]
    assert list(result.aborted_transactions) == [AbortedTransaction(1, 0, 2, 1)]
    assert result.last_stable_offset == 4


def responded(cluster: Cluster, records: bytes, high_watermark: int) -> None:
    """Broker 2's next round gets these records, and this high watermark of the leader's."""
    exchange = cluster.ask(2)
    assert exchange is not None
    response = FetchedPartition(AT, high_watermark=high_watermark, records=records)
    follower = cluster.brokers[2]
    request_id = exchange.round.request_id
    follower.execute(follower.core.fetch_response_received(1, request_id, [response], cluster.now_ms))


def at_offset(batch: bytes, offset: int) -> bytes:
    written = bytearray(batch)
    patch(written, 0, offset, 0)
    return bytes(written)


def test_data_become_readable_when_the_marker_itself_is_replicated():
    """ProducerStateManager.firstUnstableOffset: a completed transaction is unstable until the watermark passed it."""
    cluster = copied(data(1))
    partition = cluster.brokers[2].core.partition(AT)
    responded(cluster, at_offset(marker(1, COMMIT), 1), high_watermark=1)
    assert (partition.log_end_offset, partition.high_watermark, partition.last_stable_offset) == (2, 1, 0)
    responded(cluster, b"", high_watermark=2)
    assert (partition.high_watermark, partition.last_stable_offset) == (2, 2)


def stable_lines(cluster: Cluster, broker_id: int) -> list[tuple[int, int, int]]:
    notes = [note.fields for note in cluster.brokers[broker_id].notes if note.kind == "last_stable_offset"]
    return [(one["old"], one["new"], one["high_watermark"]) for one in notes]


def test_the_event_log_has_the_last_stable_offset_where_transactions_hold_it():
    """A line when the high watermark leaves it behind, when it moves, and when it is let go; else it is that."""
    cluster = copied(make_batch("plain"))
    assert stable_lines(cluster, 2) == []
    before = len(stable_lines(cluster, 2))
    responded(cluster, at_offset(data(1), 1), high_watermark=1)
    assert stable_lines(cluster, 2)[before:] == [], "the watermark is still below the transaction"
    responded(cluster, at_offset(data(2), 2), high_watermark=2)
    responded(cluster, at_offset(marker(1, COMMIT), 3), high_watermark=3)
    responded(cluster, at_offset(marker(2, ABORT), 4), high_watermark=4)
    responded(cluster, b"", high_watermark=5)
    assert stable_lines(cluster, 2)[before:] == [(1, 1, 2), (1, 2, 4), (2, 5, 5)]


def test_deleted_records_move_the_last_stable_offset_of_an_open_transaction():
    """It is not below the log start offset (ProducerStateManager.firstUnstableOffset)."""
    cluster = copied(data(1), data(2), make_batch("plain"))
    partition = cluster.brokers[2].core.partition(AT)
    out = []
    before = len(stable_lines(cluster, 2))
    partition.advance_log_start(2, "DeleteRecords", out)
    cluster.brokers[2].executor.execute(out)
    assert stable_lines(cluster, 2)[before:] == [(0, 2, 3)]


def test_a_truncation_forgets_the_markers_that_go_with_it():
    """ProducerStateManager.truncateAndReload: the transaction is open again."""
    cluster = copied(data(1), marker(1, COMMIT))
    follower = cluster.brokers[2]
    partition = follower.core.partition(AT)
    assert partition.last_stable_offset == 2
    out = []
    partition.truncate_to(1, "test", out)
    assert partition.last_stable_offset == 0
    follower.executor.execute(out)
    assert partition.last_stable_offset == 0
    assert partition.transactions.first_offset_of(1) == 0


@pytest.mark.parametrize(("committed", "latest"), [(True, 1), (False, 3)])
def test_the_latest_offset_is_that_of_the_isolation_level(committed, latest):
    """Partition.fetchOffsetForTimestamp; the earliest and the search by time are bounded by the same offset."""
    cluster = copied(make_batch("v"), data(1), data(2))
    core = cluster.brokers[1].core
    assert core.list_offset(OffsetLookup(AT, LATEST, reads_committed=committed)).offset == latest
    assert core.list_offset(OffsetLookup(AT, EARLIEST, reads_committed=committed)).offset == 0
    lookup = core.list_offset(OffsetLookup(AT, START_MS, reads_committed=committed))
    assert isinstance(lookup, TimeLookup)
    assert lookup.upper_bound == latest


def test_a_follower_refuses_a_marker_that_it_can_not_read():
    """A control batch that ends within its record is corrupt: nothing is appended, and the round is tried again."""
    cluster = copied(data(1))
    whole = marker(1, COMMIT)
    responded(cluster, at_offset(seal(read_header(whole), whole[61:-9]), 1), high_watermark=1)
    assert cluster.ends(2) == [(1, 1)]
    assert any("Found invalid records" in line for line in cluster.brokers[2].lines)
