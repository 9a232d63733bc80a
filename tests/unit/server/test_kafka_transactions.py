"""Markers and verifications for other brokers over Kafka's protocol: their requests, and what the responses become."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from tests.memory_peer import MemoryPeer

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import ADD_PARTITIONS_TO_TXN, WRITE_TXN_MARKERS
from tidegauge.kafka.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tidegauge.kafka.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome, TransactionMarker
from tidegauge.transactions import AddPartitionsToTxn
from tidegauge_broker.coordinator.effects import MarkersOfTransaction
from tidegauge_broker.server.coordinators.kafka_transactions import KafkaTransactions
from tidegauge_broker.server.replication.kafka_peers import KafkaPeers

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MARKERS = [
    MarkersOfTransaction(TransactionMarker(7, 2, Outcome.COMMIT, 5), (A0, B0, A1)),
    MarkersOfTransaction(TransactionMarker(8, 0, Outcome.ABORT, 6), (A0,)),
]
WANTED = [AddPartitionsToTxn("x", 7, 2, (A0, A1), verify_only=True), AddPartitionsToTxn("y", 8, 0, (B0,))]


def transactions(peer: MemoryPeer, address: str | None = "h:1") -> KafkaTransactions:
    peers = KafkaPeers(3, lambda at, client_id: KafkaChannel(at, client_id, peer.dial))
    settings = cast("Any", SimpleNamespace(integer=lambda _: 60_000))
    return KafkaTransactions(lambda _: address, peers, settings)


async def test_markers_of_several_transactions_go_in_one_request() -> None:
    """TransactionMarkerChannelManager: version 1, an entry for each transaction; results by producer id."""

    def respond(request: Any, version: int) -> WriteTxnMarkersResponse:
        del request, version
        topic = WritableTxnMarkerTopicResult
        result = WritableTxnMarkerPartitionResult
        refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
        return WriteTxnMarkersResponse(
            [
                WritableTxnMarkerResult(7, [topic("a", [result(0), result(1, refused)]), topic("b", [result(0)])]),
                WritableTxnMarkerResult(8, [topic("a", [result(0)])]),
            ]
        )

    peer = MemoryPeer({WRITE_TXN_MARKERS: respond})
    found = await transactions(peer).write_markers(1, MARKERS)
    assert found == {
        7: {A0: ErrorCode.NONE, A1: ErrorCode.NOT_LEADER_OR_FOLLOWER, B0: ErrorCode.NONE},
        8: {A0: ErrorCode.NONE},
    }
    (asked,) = peer.requests
    assert (asked.header.version, asked.header.client_id) == (1, "broker-3-txn-marker-sender")
    first, second = asked.message.markers
    assert (first.producer_id, first.producer_epoch, first.transaction_result, first.coordinator_epoch) == (
        7,
        2,
        True,
        5,
    )
    assert [(one.name, list(one.partition_indexes)) for one in first.topics] == [("a", [0, 1]), ("b", [0])]
    assert (second.producer_id, second.transaction_result) == (8, False)


async def test_verifications_of_several_transactions_go_in_one_request() -> None:
    """AddPartitionsToTxnManager: version 4 or later, for which there is one transaction for each id."""

    def respond(request: Any, version: int) -> AddPartitionsToTxnResponse:
        del request, version
        topic, result = AddPartitionsToTxnTopicResult, AddPartitionsToTxnPartitionResult
        abort = ErrorCode.TRANSACTION_ABORTABLE
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult("y", [topic("b", [result(0)])]),
                AddPartitionsToTxnResult("x", [topic("a", [result(0), result(1, abort)])]),
            ]
        )

    peer = MemoryPeer({ADD_PARTITIONS_TO_TXN: respond})
    found = await transactions(peer).verify(1, WANTED)
    assert found == [{A0: ErrorCode.NONE, A1: ErrorCode.TRANSACTION_ABORTABLE}, {B0: ErrorCode.NONE}]
    (asked,) = peer.requests
    assert asked.header.version == 5
    assert [(one.transactional_id, one.verify_only) for one in asked.message.transactions] == [
        ("x", True),
        ("y", False),
    ]


async def test_an_error_of_the_whole_is_that_of_each_partition() -> None:
    """AddPartitionsToTxnHandler.onComplete."""
    error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    peer = MemoryPeer({ADD_PARTITIONS_TO_TXN: lambda *_: AddPartitionsToTxnResponse(error_code=error)})
    assert await transactions(peer).verify(1, WANTED) == [{A0: error, A1: error}, {B0: error}]


async def test_a_transaction_that_the_response_leaves_out_is_not_verified() -> None:
    """Nothing may be appended then: the client tries again."""
    peer = MemoryPeer({ADD_PARTITIONS_TO_TXN: lambda *_: AddPartitionsToTxnResponse()})
    error = ErrorCode.NETWORK_EXCEPTION
    assert await transactions(peer).verify(1, WANTED) == [{A0: error, A1: error}, {B0: error}]


async def test_a_coordinator_of_before_verification_is_not_asked() -> None:
    """Versions up to 3 can't name partitions to verify; the callers try again."""
    peer = MemoryPeer({}, {ADD_PARTITIONS_TO_TXN: (0, 3)})
    assert await transactions(peer).verify(1, WANTED) is None
    assert peer.requests == []


async def test_no_broker_or_no_connection_is_no_response() -> None:
    """The callers try again."""
    peer = MemoryPeer({})
    assert await transactions(peer, None).write_markers(1, MARKERS) is None
    assert await transactions(peer, None).verify(1, WANTED) is None
    peer.refuses = ConnectionRefusedError(111, "Connection refused")
    assert await transactions(peer).write_markers(1, MARKERS) is None
