"""Versions of requests that only brokers in KRaft mode serve: transactions v2 (KIP-890), topics by ids (KIP-516)."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import kafka_service
import pytest
from kafka_service import FakeService
from tests.wire_responses.batches import TRANSACTIONAL, batch
from tests.wire_responses.probe import message

from tidegauge import groups, transactions
from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_APIS, KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.topic_ids import topic_id_bytes, topic_id_text
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome, TransactionMarker
from tidegauge.transactions import SupportedOperation
from tidegauge_broker.coordinator.effects import MarkersOfTransaction
from tidegauge_broker.replica.messages import ProduceResult
from tidegauge_broker.server.service.produce_verification import Verified
from tidegauge_broker.server.service.transaction_service import TransactionService
from tidegauge_broker.server.wire.kafka.request import CloseConnection

A0 = TopicPartition("a", 0)
ID = "pvO2CUFmSSSfYfEd1LAjug"
KNOWN, UNKNOWN, OTHER = topic_id_bytes(ID), bytes(range(16)), bytes(range(1, 17))
IDS = {"topic_name": lambda one: "a" if one == ID else None, "topic_id": lambda name: ID if name == "a" else None}
PRODUCER = {"transactional_id": "tx", "producer_id": 7, "producer_epoch": 3}
NO_TOPIC = ErrorCode.UNKNOWN_TOPIC_ID


ask = partial(kafka_service.ask, protocol=KRAFT_BROKER_PROTOCOL)


def coming(value: Any) -> Any:
    async def come(*_: Any, **__: Any) -> Any:
        return value

    return come


def test_the_versions_are_those_of_kafka_4():
    """The ApiVersions response of a broker of 4.3.1, of what transactions and offsets need."""
    wanted = {0: 13, 8: 10, 9: 10, 22: 5, 24: 5, 25: 4, 26: 5, 27: 2, 28: 5, 66: 2}
    assert {key: KRAFT_BROKER_APIS[key].last for key in wanted} == wanted


@pytest.mark.parametrize("version", [4, 5])
async def test_an_end_of_version_5_returns_what_the_producer_goes_on_with(version: int):
    """KafkaApis.handleEndTxnRequest, TransactionVersion.transactionVersionForEndTxn."""
    result = transactions.EndTxnResult(ErrorCode.NONE, 7, 4)
    service = SimpleNamespace(transactions=FakeService(ask=coming(result)))
    response = await ask(service, "EndTxn", version, message("EndTxn", committed=True, **PRODUCER))
    asked = transactions.EndTxn("tx", 7, 3, Outcome.COMMIT, raises_epoch=version >= 5)
    assert service.transactions.calls == [("ask", (asked,), {})]
    assert (response.producer_id, response.producer_epoch) == ((7, 4) if version >= 5 else (-1, -1))


@pytest.mark.parametrize("verify_only", [True, False])
async def test_a_broker_verifies_partitions_or_adds_them(verify_only: bool):
    """AddPartitionsToTxn v4 and later: partitions to add are for a producer of transactions v2."""
    service = SimpleNamespace(
        transactions=FakeService(add_partitions=coming(transactions.AddPartitionsToTxnResult({A0: ErrorCode.NONE})))
    )
    topics = [{"name": "a", "partitions": [0]}]
    request = message("AddPartitionsToTxn", transactions=[{**PRODUCER, "verify_only": verify_only, "topics": topics}])
    await ask(service, "AddPartitionsToTxn", 5, request)
    [(_, (asked,), _)] = service.transactions.calls
    assert (asked.verify_only, asked.is_implicit) == (verify_only, not verify_only)


async def test_a_marker_says_the_version_of_its_transaction():
    service = SimpleNamespace(transactions=FakeService(write_markers=coming({7: {A0: ErrorCode.NONE}})))
    marker = {"producer_id": 7, "producer_epoch": 3, "transaction_result": True, "coordinator_epoch": 9}
    topics = [{"name": "a", "partition_indexes": [0]}]
    request = message("WriteTxnMarkers", markers=[{**marker, "topics": topics, "transaction_version": 2}])
    for version, seen in ((1, 0), (2, 2)):
        service.transactions.calls.clear()
        await ask(service, "WriteTxnMarkers", version, request)
        [(_, (markers,), _)] = service.transactions.calls
        assert markers == [MarkersOfTransaction(TransactionMarker(7, 3, Outcome.COMMIT, 9, seen), (A0,))]


@pytest.mark.parametrize(
    ("version", "operation"),
    [
        (3, SupportedOperation.DEFAULT_ERROR),
        (4, SupportedOperation.GENERIC_ERROR_SUPPORTED),
        (5, SupportedOperation.ADD_PARTITION),
    ],
)
async def test_what_a_commit_in_a_transaction_supports(version: int, operation: SupportedOperation):
    """AddPartitionsToTxnManager.txnOffsetCommitRequestVersionToTransactionSupportedOperation."""
    service = SimpleNamespace(
        groups=FakeService(commit_offsets_in_transaction=coming(groups.TxnOffsetCommitResult({A0: ErrorCode.NONE})))
    )
    topics = [{"name": "a", "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    await ask(service, "TxnOffsetCommit", version, message("TxnOffsetCommit", group_id="g", **PRODUCER, topics=topics))
    [(_, (asked,), _)] = service.groups.calls
    assert asked.operation is operation


# Produce


def producing(refused: Any = ()) -> Any:
    """A service that knows topic a, and appends."""

    class Verification:
        operation: Any = None

        def of(self, request: Any, _transactional_id: Any, operation: Any) -> Verified:
            self.operation = operation
            return Verified(request, list(refused))

    class Appended:
        def __init__(self, results: Any) -> None:
            self._results = results

        def done(self) -> bool:
            return True

        def result(self) -> Any:
            return self._results

    def produce(request: Any) -> Any:
        return Appended([ProduceResult(one.topic_partition, base_offset=5) for one in request.partitions])

    return FakeService(**IDS, knows=lambda at: at == A0, produce=produce, verification=Verification())


def produce_request(version: int, *topics: Any, acks: int = -1) -> Any:
    records = batch(producer_id=7, epoch=0, sequence=0, attributes=TRANSACTIONAL)
    data = [
        {"topic_id" if version >= 13 else "name": one, "partition_data": [{"index": 0, "records": records}]}
        for one in topics
    ]
    return message("Produce", transactional_id="tx", acks=acks, timeout_ms=1, topic_data=data)


@pytest.mark.parametrize(
    ("version", "operation"),
    [
        (10, SupportedOperation.DEFAULT_ERROR),
        (11, SupportedOperation.GENERIC_ERROR_SUPPORTED),
        (12, SupportedOperation.ADD_PARTITION),
        (13, SupportedOperation.ADD_PARTITION),
    ],
)
async def test_what_a_produce_supports(version: int, operation: SupportedOperation):
    """AddPartitionsToTxnManager.produceRequestVersionToTransactionSupportedOperation."""
    service = producing()
    response = await ask(service, "Produce", version, produce_request(version, KNOWN if version >= 13 else "a"))
    assert service.verification.operation is operation
    [topic] = response.responses
    assert (topic.name, topic.topic_id) == (("", KNOWN) if version >= 13 else ("a", bytes(16)))
    assert [(one.error_code, one.base_offset) for one in topic.partition_responses] == [(0, 5)]


async def test_topics_of_unknown_ids_are_refused_and_the_others_appended():
    """KafkaApis.handleProduceRequest: UNKNOWN_TOPIC_ID, each by its own id."""
    response = await ask(producing(), "Produce", 13, produce_request(13, UNKNOWN, KNOWN, OTHER))
    found = {topic.topic_id: [one.error_code for one in topic.partition_responses] for topic in response.responses}
    assert found == {UNKNOWN: [NO_TOPIC], KNOWN: [0], OTHER: [NO_TOPIC]}


async def test_an_unknown_id_closes_a_connection_that_awaits_no_response():
    with pytest.raises(CloseConnection):
        await ask(producing(), "Produce", 13, produce_request(13, UNKNOWN, acks=0))


# Offsets


async def test_offsets_are_committed_by_topic_id():
    """KafkaApis.handleOffsetCommitRequest: unknown ids get UNKNOWN_TOPIC_ID; the group is asked for the rest."""
    service = FakeService(
        **IDS, groups=FakeService(commit_offsets=coming(groups.OffsetCommitResult({A0: ErrorCode.NONE})))
    )
    parts = [{"partition_index": 0, "committed_offset": 4}]
    topics = [{"topic_id": one, "partitions": parts} for one in (UNKNOWN, KNOWN, OTHER)]
    response = await ask(service, "OffsetCommit", 10, message("OffsetCommit", group_id="g", topics=topics))
    [(_, (asked,), _)] = service.groups.calls
    assert [one.topic_partition for one in asked.offsets] == [A0]
    found = [(topic.topic_id, [one.error_code for one in topic.partitions]) for topic in response.topics]
    assert found == [(UNKNOWN, [NO_TOPIC]), (KNOWN, [0]), (OTHER, [NO_TOPIC])]


def fetching(result: Any) -> Any:
    return FakeService(**IDS, groups=FakeService(fetch_offsets=coming(result)))


async def test_offsets_are_fetched_by_topic_id():
    """KafkaApis.fetchOffsetsForGroup: unknown ids come behind what the group has."""
    service = fetching(groups.OffsetFetchResult(offsets={A0: groups.FetchedOffset(5)}))
    topics = [{"topic_id": one, "partition_indexes": [0]} for one in (UNKNOWN, KNOWN)]
    request = message("OffsetFetch", groups=[{"group_id": "g", "topics": topics}])
    response = await ask(service, "OffsetFetch", 10, request)
    [(_, (asked,), _)] = service.groups.calls
    assert asked.partitions == (A0,)
    found = [
        (topic.topic_id, [(one.committed_offset, one.error_code) for one in topic.partitions])
        for topic in response.groups[0].topics
    ]
    assert found == [(KNOWN, [(5, 0)]), (UNKNOWN, [(-1, NO_TOPIC)])]


async def test_of_all_offsets_those_of_topics_without_an_id_are_left_out():
    """KafkaApis.fetchAllOffsetsForGroup: they can't be written without it."""
    offsets = {A0: groups.FetchedOffset(5), TopicPartition("deleted", 0): groups.FetchedOffset(6)}
    request = message("OffsetFetch", groups=[{"group_id": "g", "topics": None}])
    response = await ask(fetching(groups.OffsetFetchResult(offsets=offsets)), "OffsetFetch", 10, request)
    assert [topic_id_text(topic.topic_id) for topic in response.groups[0].topics] == [ID]


async def test_a_group_with_an_error_names_no_topics():
    request = message(
        "OffsetFetch", groups=[{"group_id": "g", "topics": [{"topic_id": UNKNOWN, "partition_indexes": [0]}]}]
    )
    result = groups.OffsetFetchResult(ErrorCode.NOT_COORDINATOR)
    response = await ask(fetching(result), "OffsetFetch", 10, request)
    assert [(one.error_code, one.topics) for one in response.groups] == [(ErrorCode.NOT_COORDINATOR, [])]


@pytest.mark.parametrize(
    ("version", "is_other", "error", "words"),
    [
        (5, True, ErrorCode.NONE, None),
        (6, False, ErrorCode.GROUP_ID_NOT_FOUND, "Group g not found."),
        (6, True, ErrorCode.GROUP_ID_NOT_FOUND, "Group g is not a classic group."),
    ],
)
async def test_a_group_that_does_not_exist_is_an_error_from_version_6_on(
    version: int, is_other: bool, error: ErrorCode, words: str | None
):
    """KIP-1043: GroupMetadataManager.describeGroups; up to version 5 it is Dead, and nothing else."""
    found = groups.DescribeGroupResult("g", state="Dead", is_of_another_type=is_other)
    service = SimpleNamespace(groups=FakeService(ask=coming(found)))
    (group,) = (await ask(service, "DescribeGroups", version, message("DescribeGroups", groups=["g"]))).groups
    assert (group.error_code, group.error_message, group.group_state) == (error, words, "Dead")


async def test_a_group_that_exists_has_no_message():
    found = groups.DescribeGroupResult("g", state="Stable", protocol_type="consumer", protocol_name="range")
    service = SimpleNamespace(groups=FakeService(ask=coming(found)))
    (group,) = (await ask(service, "DescribeGroups", 6, message("DescribeGroups", groups=["g"]))).groups
    assert (group.error_code, group.error_message, group.protocol_data) == (ErrorCode.NONE, None, "range")


LISTED = [transactions.ListedTransaction(one, 7, "Ongoing") for one in ("pay-eu", "pay-us", "stock", "pay\u65e5")]


def transaction_service(found: transactions.ListTransactionsResult) -> SimpleNamespace:
    service = TransactionService(FakeService(request=coming(found)), *[None] * 5)  # type: ignore[arg-type]
    return SimpleNamespace(transactions=service)


@pytest.mark.parametrize(
    ("pattern", "matching"),
    [
        (None, ["pay-eu", "pay-us", "stock", "pay\u65e5"]),
        ("", ["pay-eu", "pay-us", "stock", "pay\u65e5"]),
        ("pay-.*", ["pay-eu", "pay-us"]),
        ("pay", []),
        (r"pay\p{Han}|s.*", ["stock", "pay\u65e5"]),
    ],
)
async def test_transactional_ids_are_listed_by_a_pattern(pattern: str | None, matching: list[str]):
    """KIP-1152: whole ids, RE2's syntax; no pattern and an empty one take all."""
    service = transaction_service(transactions.ListTransactionsResult(transactions=LISTED))
    response = await ask(service, "ListTransactions", 2, message("ListTransactions", transactional_id_pattern=pattern))
    assert response.error_code == 0
    assert [one.transactional_id for one in response.transaction_states] == matching


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
@pytest.mark.parametrize("pattern", ["(?!pay).*", "(a{1000}){1000}"])
async def test_a_bad_pattern_of_transactional_ids_is_refused_after_the_coordinator(error: ErrorCode, pattern: str):
    """TransactionStateManager.listTransactionStates: the coordinator's error precedes the pattern's."""
    service = transaction_service(transactions.ListTransactionsResult(error, ("Odd",), () if error else LISTED))
    asked = message("ListTransactions", transactional_id_pattern=pattern, state_filters=["Odd"])
    response = await ask(service, "ListTransactions", 2, asked)
    assert response.error_code == (error or ErrorCode.INVALID_REGULAR_EXPRESSION)
    assert list(response.transaction_states) == []
    assert list(response.unknown_state_filters) == (["Odd"] if error else [])
