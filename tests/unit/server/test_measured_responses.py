"""Both wires report each response once, by Kafka's name of the API, and whether there is an error in it."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from kafka_peer import Client, Listener
from tests.unit.kafka.random_messages import random_message

from tidegauge.kafka.apis import API_VERSIONS, APIS, FETCH, LIST_OFFSETS, METADATA, PRODUCE, message_class
from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tidegauge.v1 import admin_service_pb2 as admin_service
from tidegauge.v1 import broker_service_pb2 as broker_service
from tidegauge.v1 import control_service_pb2 as control_service
from tidegauge.v1 import controller_service_pb2 as controller_service
from tidegauge.v1 import metadata_pb2, topics_pb2, transaction_markers_pb2
from tidegauge.v1 import replica_log_service_pb2 as replica_log_service
from tidegauge.v1 import replication_service_pb2 as replication_service
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.grpc.measured_calls import MeasuredCalls, errors_in, measured_api
from tidegauge_broker.server.wire.kafka import failed_responses
from tidegauge_broker.server.wire.kafka.served import HANDLERS


class Seen(list[tuple[str, str, list[int]]]):
    def __call__(self, caller: Caller, api: str, milliseconds: float, errors: Collection[int]) -> None:
        assert milliseconds >= 0
        self.append((caller.listener, api, sorted(errors)))


@pytest.mark.parametrize("key", sorted(HANDLERS.keys() - {PRODUCE, FETCH}), ids=lambda key: APIS[key].name)
def test_every_api_that_is_served_is_measured(key: int) -> None:
    """RequestChannel.Metrics has a meter for each API; the service measures Produce and Fetch."""
    listener, seen = Listener(), Seen()
    listener.responded = seen
    api = APIS[key]
    response = message_class(key, response=True)()
    listener.handlers[key] = lambda *_: response
    message = random_message(key, api.last, 1, response=False)
    Client(listener).send(joined(request_frame(key, api.last, 1, "test", message)))
    assert seen == [("PLAINTEXT", api.name, [])]


async def test_a_response_that_comes_later_and_in_slices_is_measured_once() -> None:
    listener, seen = Listener(), Seen()
    listener.responded = seen
    partitions = [ListOffsetsPartitionResponse(number) for number in range(2_000)]
    partitions[-1].error_code = 3

    async def list_offsets(*_: Any) -> ListOffsetsResponse:
        await asyncio.sleep(0)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse("t", partitions)])

    listener.handlers[LIST_OFFSETS] = list_offsets
    client = Client(listener)
    client.send(joined(request_frame(LIST_OFFSETS, 6, 1, "test", random_message(LIST_OFFSETS, 6, 1, response=False))))
    for _ in range(1_000):
        if client.responses():
            break
        await asyncio.sleep(0)
    assert seen == [("PLAINTEXT", "ListOffsets", [3])]


def test_without_metrics_nothing_is_measured() -> None:
    listener = Listener()
    listener.handlers[METADATA] = lambda *_: MetadataResponse()
    client = Client(listener)
    client.send(joined(request_frame(METADATA, 9, 1, "test", MetadataRequest())))
    assert client.correlation_ids() == [1]


def test_the_errors_of_a_response_are_those_at_its_top_and_of_all_items() -> None:
    assert failed_responses.errors_in(MetadataResponse()) == set()
    topic = ListOffsetsTopicResponse("t", [ListOffsetsPartitionResponse(0), ListOffsetsPartitionResponse(1, 6)])
    assert failed_responses.errors_in(ListOffsetsResponse(topics=[topic])) == {6}
    unknown = HANDLERS[API_VERSIONS](None, None)  # type: ignore[arg-type] # of an unknown version
    assert failed_responses.errors_in(unknown) == {35}
    assert not errors_in(topics_pb2.CreateTopicsResponse(topics=[{"name": "t"}]))
    assert errors_in(topics_pb2.CreateTopicsResponse(topics=[{"name": "t"}, {"name": "u", "status": {"error": 36}}]))


_NO_APIS_OF_KAFKA = {"DescribeReplicas", "ReadReplica"}
_MEASURED_BY_SERVICE = {
    *("Produce", "ProduceStream", "Fetch", "ReplicaFetch"),
    *("LeaderAndIsr", "StopReplica", "UpdateMetadata", "AlterPartition"),
}
_SERVICES = [
    admin_service,
    broker_service,
    control_service,
    controller_service,
    replica_log_service,
    replication_service,
]


def test_every_rpc_is_measured_or_is_no_api_of_kafka() -> None:
    rpcs = {
        method.name for one in _SERVICES for of in one.DESCRIPTOR.services_by_name.values() for method in of.methods
    }
    assert {rpc for rpc in rpcs if measured_api(rpc) is None} == _NO_APIS_OF_KAFKA | _MEASURED_BY_SERVICE
    assert measured_api("CommitOffsets") == "OffsetCommit"
    assert measured_api("EndTransaction") == "EndTxn"


async def test_a_call_is_measured_when_its_response_is_there() -> None:
    seen = Seen()

    async def verify(*_: Any) -> transaction_markers_pb2.VerifyPartitionsResponse:
        return transaction_markers_pb2.VerifyPartitionsResponse()

    handler = grpc.unary_unary_rpc_method_handler(verify)
    calls = MeasuredCalls(seen, "GRPC")
    context: Any = SimpleNamespace(peer=lambda: "ipv4:10.0.0.1:5", invocation_metadata=tuple)
    await calls.around("VerifyPartitions", handler).unary_unary(metadata_pb2.MetadataRequest(), context)
    assert seen == [("GRPC", "AddPartitionsToTxn", [])]
    assert calls.around("DescribeReplicas", handler) is handler
    assert MeasuredCalls(None, "GRPC").around("VerifyPartitions", handler) is handler
