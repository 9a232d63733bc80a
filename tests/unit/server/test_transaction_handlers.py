"""The transaction APIs of Kafka's protocol: versions, error codes of older clients, and what the service is asked."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_service import FakeService, ask, versions
from tests.wire_responses.batches import TRANSACTIONAL, batch
from tests.wire_responses.probe import message

from tidegauge import groups, transactions
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome, TransactionMarker
from tidegauge.transactions import SupportedOperation
from tidegauge_broker.coordinator.effects import MarkersOfTransaction
from tidegauge_broker.replica.messages import ProduceResult
from tidegauge_broker.replica.producer_state import ProducerEntry
from tidegauge_broker.server.service.produce_verification import Verified
from tidegauge_broker.server.wire.kafka.served import HANDLERS

A, B = TopicPartition("a", 0), TopicPartition("a", 1)
FENCED, OLD = ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH
PRODUCER = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 3}


def coming(value: Any) -> Any:
    async def come(*_: Any, **__: Any) -> Any:
        return value

    return come


def service(**methods: Any) -> Any:
    """A service whose transactions have these methods."""
    return SimpleNamespace(transactions=FakeService(**methods))


def test_transactions_are_served_as_a_whole() -> None:
    """Two clients wait for ever where a part is missing."""
    assert {24, 25, 26, 27, 28, 65, 66} <= HANDLERS.keys()


@pytest.mark.parametrize(
    ("name", "first_with_fenced", "result"),
    [
        ("InitProducerId", 4, transactions.InitProducerIdResult(FENCED)),
        ("EndTxn", 2, transactions.EndTxnResult(FENCED)),
        ("AddOffsetsToTxn", 2, transactions.AddOffsetsToTxnResult(FENCED)),
    ],
)
async def test_older_versions_know_another_error_for_a_fenced_producer(
    name: str, first_with_fenced: int, result: Any
) -> None:
    """KafkaApis: PRODUCER_FENCED came with KIP-588."""
    fields: dict[str, Any] = {"InitProducerId": {"transactional_id": "tx"}}.get(name, PRODUCER)
    for version in versions(name):
        asked = service(ask=coming(result), add_offsets=coming(result))
        response = await ask(asked, name, version, message(name, **fields))
        assert response.error_code == (FENCED if version >= first_with_fenced else OLD)


async def test_partitions_of_clients_and_of_brokers() -> None:
    """Versions 0 to 3 are for one transaction; later ones for several, which may only be verified (KIP-890)."""
    errors = transactions.AddPartitionsToTxnResult({A: FENCED, B: ErrorCode.NONE})
    for version in versions("AddPartitionsToTxn"):
        asked = service(add_partitions=coming(errors))
        topics = [{"name": "a", "partitions": [0, 1]}]
        if version < 4:
            fields: Any = {f"v3_and_below_{name}": value for name, value in PRODUCER.items()}
            fields |= {"v3_and_below_topics": topics}
        else:
            fields = {"transactions": [{**PRODUCER, "verify_only": True, "topics": topics}]}
        response = await ask(asked, "AddPartitionsToTxn", version, message("AddPartitionsToTxn", **fields))
        [(_, [wanted], named)] = asked.transactions.calls
        assert wanted == transactions.AddPartitionsToTxn("tx", 7, 3, (A, B), version >= 4)
        assert named == {"may_be_internal": version >= 4}
        if version < 4:
            [topic] = response.results_by_topic_v3_and_below
        else:
            [one] = response.results_by_transaction
            assert one.transactional_id == "tx"
            [topic] = one.topic_results
        codes = [item.partition_error_code for item in topic.results_by_partition]
        assert codes == [OLD if version < 2 else FENCED, 0]


async def test_an_end_commits_or_aborts() -> None:
    for committed, outcome in ((True, Outcome.COMMIT), (False, Outcome.ABORT)):
        asked = service(ask=coming(transactions.EndTxnResult()))
        await ask(asked, "EndTxn", 3, message("EndTxn", committed=committed, **PRODUCER))
        assert asked.transactions.calls == [("ask", (transactions.EndTxn("tx", 7, 3, outcome),), {})]


async def test_markers_are_responded_to_partition_by_partition() -> None:
    errors = {7: {A: ErrorCode.NONE, B: ErrorCode.NOT_LEADER_OR_FOLLOWER}}
    for version in versions("WriteTxnMarkers"):
        asked = service(write_markers=coming(errors))
        topics = [{"name": "a", "partition_indexes": [0, 1]}]
        marker = {"producer_id": 7, "producer_epoch": 3, "transaction_result": True, "coordinator_epoch": 9}
        request = message("WriteTxnMarkers", markers=[{**marker, "topics": topics}])
        response = await ask(asked, "WriteTxnMarkers", version, request)
        [(_, [markers], _)] = asked.transactions.calls
        assert markers == [MarkersOfTransaction(TransactionMarker(7, 3, Outcome.COMMIT, 9), (A, B))]
        [one] = response.markers
        assert [item.error_code for item in one.topics[0].partitions] == [0, 6]


async def test_offsets_carry_the_member_from_version_3_on() -> None:
    """KIP-447: older producers are not fenced by the group."""
    for version in versions("TxnOffsetCommit"):
        asked: Any = SimpleNamespace(
            groups=FakeService(commit_offsets_in_transaction=coming(groups.TxnOffsetCommitResult({A: FENCED})))
        )
        item = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
        member = {"generation_id": 2, "member_id": "one"} if version >= 3 else {}
        fields = {**PRODUCER, "group_id": "g", "topics": [{"name": "a", "partitions": [item]}], **member}
        response = await ask(asked, "TxnOffsetCommit", version, message("TxnOffsetCommit", **fields))
        [(_, [wanted], _)] = asked.groups.calls
        assert (wanted.generation, wanted.member_id) == ((2, "one") if version >= 3 else (-1, ""))
        assert (wanted.is_load_unavailable, wanted.operation) == (version < 2, SupportedOperation(version >= 4))
        assert response.topics[0].partitions[0].error_code == FENCED


async def test_descriptions_and_lists() -> None:
    described = transactions.DescribeTransactionResult("tx", ErrorCode.NONE, "Ongoing", 60, 100, 7, 3, (B, A))
    request = message("DescribeTransactions", transactional_ids=["tx"])
    response = await ask(service(ask=coming(described)), "DescribeTransactions", 0, request)
    [state] = response.transaction_states
    assert (state.transaction_state, state.producer_epoch, state.topics[0].partitions) == ("Ongoing", 3, (0, 1))
    missing = transactions.DescribeTransactionResult("tx", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND)
    response = await ask(service(ask=coming(missing)), "DescribeTransactions", 0, request)
    assert (response.transaction_states[0].error_code, response.transaction_states[0].topics) == (105, [])
    for version in versions("ListTransactions"):
        listed = transactions.ListTransactionsResult(
            ErrorCode.NONE, ("Odd",), [transactions.ListedTransaction("tx", 7, "Ongoing")]
        )
        asked = service(list_matching=coming(listed))
        duration = {"duration_filter": 50} if version >= 1 else {}
        request = message("ListTransactions", state_filters=["Odd"], **duration)
        response = await ask(asked, "ListTransactions", version, request)
        [(_, [wanted, pattern], _)] = asked.transactions.calls
        assert wanted == transactions.ListTransactions(("Odd",), (), 50 if version >= 1 else -1)
        assert pattern is None
        assert (list(response.unknown_state_filters), response.transaction_states[0].transactional_id) == (
            ["Odd"],
            "tx",
        )


async def test_producers_are_described_with_their_transactions() -> None:
    """KIP-664: -1 if no transaction is open, and if no marker was written."""
    entries = [ProducerEntry(7, 3, coordinator_epoch=2, transaction_start=40), ProducerEntry(8, 0)]
    asked = FakeService(describe_producers=lambda _: entries)
    request = message("DescribeProducers", topics=[{"name": "a", "partition_indexes": [0]}])
    response = await ask(asked, "DescribeProducers", 0, request)
    found = response.topics[0].partitions[0].active_producers
    assert [(one.coordinator_epoch, one.current_txn_start_offset) for one in found] == [(2, 40), (-1, -1)]


def producing(verified: Any, results: Any) -> Any:
    async def produce(_: Any) -> Any:
        return results

    return FakeService(
        knows=lambda _: True,
        verification=FakeService(of=lambda *_, **__: verified),
        produce=lambda request: asyncio.ensure_future(produce(request)),
    )


def produce(*, transactional_id: str | None = "tx", attributes: int = TRANSACTIONAL) -> Any:
    records = batch(producer_id=7, epoch=0, sequence=0, attributes=attributes)
    return message(
        "Produce",
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1_000,
        topic_data=[{"name": "a", "partition_data": [{"index": 0, "records": records}]}],
    )


NOTHING_LEFT: Any = SimpleNamespace(partitions=[])
"""A Produce all of whose partitions were refused."""


async def test_a_produce_waits_for_its_verification_and_reports_what_it_refused() -> None:
    """ReplicaManager.handleProduceAppend: partitions that are refused are not appended to."""
    refusal = ProduceResult(A, ErrorCode.NOT_ENOUGH_REPLICAS, "busy")
    asked = producing(coming(Verified(NOTHING_LEFT, [refusal]))(), [])
    response = await ask(asked, "Produce", 9, produce())
    [item] = response.responses[0].partition_responses
    assert (item.error_code, item.error_message) == (19, "busy")
    assert [call[1] for call in asked.calls if call[0] == "produce"] == [(NOTHING_LEFT,)]
    [(_, (_, transactional_id, operation), _)] = asked.verification.calls
    assert (transactional_id, operation) == ("tx", SupportedOperation.DEFAULT_ERROR)


async def test_a_transactional_batch_needs_a_transactional_id() -> None:
    """KafkaApis.handleProduceRequest: TRANSACTIONAL_ID_AUTHORIZATION_FAILED for the whole request."""
    asked = producing(Verified(NOTHING_LEFT, []), [])
    response = await ask(asked, "Produce", 9, produce(transactional_id=None))
    assert response.responses[0].partition_responses[0].error_code == 53
