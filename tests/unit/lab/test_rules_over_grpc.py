"""Rules for requests meet both wires: Tidegauge's own clients, which speak gRPC, and Kafka's protocol."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from tests.waiting import until_async

from tidegauge.channel_options import LAB_AGENT, OF_THE_LAB, agent_options
from tidegauge.errors import ErrorCode
from tidegauge.faults.apis import api_of, is_over_grpc, kind_of_id
from tidegauge.faults.rules import read_rule
from tidegauge.kafka.apis import APIS
from tidegauge.v1 import fetch_pb2, produce_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.lab.rules import RuleTable, SetRule
from tidegauge_broker.server.wire.grpc.callers import CALLER_KEY
from tidegauge_broker.server.wire.grpc.gated_calls import GatedCalls
from tidegauge_broker.server.wire.grpc.injected_responses import METHODS

REFUSED = int(ErrorCode.NOT_ENOUGH_REPLICAS)
SERVICE = "/tidegauge.v1.BrokerService/"
CLIENT = [("user-agent", "grpc-python-asyncio/1.0 grpc-c/1")]
LAB = [("user-agent", f"{LAB_AGENT} grpc-python-asyncio/1.0 grpc-c/1")]


class Aborted(Exception):
    """The call has ended with a status."""


class Context:
    """Of a call."""

    async def abort(self, status: grpc.StatusCode, details: str) -> None:
        raise Aborted(status.name, details)


class Broker:
    """A gate with rules before a handler that appends whatever reaches it."""

    def __init__(self, *rules: dict[str, Any]) -> None:
        self.rules = RuleTable(1)
        self.rules.set([SetRule(str(place), read_rule(rule)) for place, rule in enumerate(rules)])
        self.calls = GatedCalls(LabGate(FaultTable(1, DiskFaults(sleep=lambda _: None)), self.rules))
        self.appended: list[int] = []

    @property
    def hits(self) -> list[int]:
        return [one.hits for one in self.rules.states()]

    def _result(self, request: produce_pb2.ProduceRequest) -> produce_pb2.ProduceResponse:
        self.appended += [one.partition for one in request.partitions]
        results = [
            produce_pb2.ProducePartitionResult(topic=one.topic, partition=one.partition) for one in request.partitions
        ]
        return produce_pb2.ProduceResponse(correlation_id=request.correlation_id, partitions=results)

    async def _produce(self, request: produce_pb2.ProduceRequest, _: Any) -> produce_pb2.ProduceResponse:
        return self._result(request)

    async def _fetch(self, request: fetch_pb2.FetchRequest, _: Any) -> fetch_pb2.FetchResponse:
        results = [
            fetch_pb2.FetchPartitionResult(topic=one.topic, partition=one.partition) for one in request.partitions
        ]
        return fetch_pb2.FetchResponse(partitions=results)

    async def _produces(self, requests: Any, _: Any) -> Any:
        async for request in requests:
            yield self._result(request)

    async def _handler(self, rpc: str, made: Any, metadata: Any) -> Any:
        async def continuation(_: Any) -> Any:
            return made

        details = SimpleNamespace(method=SERVICE + rpc, invocation_metadata=metadata)
        return await self.calls.intercept_service(continuation, details)

    async def produce(self, *partitions: int, metadata: Any = CLIENT) -> list[tuple[int, int]]:
        handler = await self._handler("Produce", grpc.unary_unary_rpc_method_handler(self._produce), metadata)
        return errors(await handler.unary_unary(request_of(*partitions), Context()))

    async def stream(self, *partitions: int) -> list[tuple[int, int]]:
        made = grpc.stream_stream_rpc_method_handler(self._produces)
        handler = await self._handler("ProduceStream", made, CLIENT)

        async def given() -> Any:
            yield request_of(*partitions)

        [response] = [one async for one in handler.stream_stream(given(), Context())]
        return errors(response)

    async def fetch(self, *partitions: int) -> list[tuple[int, int]]:
        handler = await self._handler("Fetch", grpc.unary_unary_rpc_method_handler(self._fetch), CLIENT)
        asked = [fetch_pb2.FetchPartition(topic="orders", partition=one) for one in partitions]
        return errors(await handler.unary_unary(fetch_pb2.FetchRequest(partitions=asked), Context()))


def request_of(*partitions: int) -> produce_pb2.ProduceRequest:
    asked = [produce_pb2.ProducePartition(topic="orders", partition=one, records=b"r") for one in partitions]
    return produce_pb2.ProduceRequest(correlation_id=7, partitions=asked)


def errors(response: Any) -> list[tuple[int, int]]:
    return [(one.partition, one.error) for one in response.partitions]


ERROR = {"keys": ["Produce"], "topic": "orders", "error": "NOT_ENOUGH_REPLICAS", "count": -1}


async def test_an_error_by_kafkas_name_of_the_api_meets_gRPCs_produce_before_its_effect() -> None:  # noqa: N802
    broker = Broker(ERROR)
    assert await broker.produce(0) == [(0, REFUSED)]
    assert await broker.stream(1) == [(1, REFUSED)]
    assert (broker.appended, broker.hits) == ([], [2])


async def test_an_error_after_the_effect_replaces_the_response_alone() -> None:
    broker = Broker(ERROR | {"after_effect": True})
    assert await broker.produce(0) == [(0, REFUSED)]
    assert broker.appended == [0]


@pytest.mark.parametrize("call", [Broker.produce, Broker.stream])
async def test_an_error_of_one_partition_leaves_the_others_their_effect(call: Any) -> None:
    """Kafka treats the partitions of a Produce one by one (ReplicaManager.appendRecords)."""
    broker = Broker(ERROR | {"partitions": [1]})
    assert sorted(await call(broker, 0, 1, 2)) == [(0, 0), (1, REFUSED), (2, 0)]
    assert broker.appended == [0, 2]


async def test_an_error_of_one_partition_of_a_read_stands_in_its_result_alone() -> None:
    broker = Broker({**ERROR, "keys": ["Fetch"], "partitions": [1]})
    assert await broker.fetch(0, 1) == [(0, 0), (1, REFUSED)]


async def test_a_closed_connection_is_the_end_of_the_call() -> None:
    broker = Broker({"keys": ["Produce"], "disconnect": True, "after_effect": True})
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await broker.produce(0)
    assert broker.appended == [0]


async def test_a_held_response_is_sent_when_the_rule_ends() -> None:
    broker = Broker({"keys": ["Produce"], "hold": True})
    producing = asyncio.ensure_future(broker.produce(0))
    await until_async(lambda: _is_held(broker))
    assert broker.appended == [0]
    broker.rules.set([])
    assert await producing == [(0, 0)]


async def _is_held(broker: Broker) -> bool:
    return broker.rules.held()["0"] == 1


async def test_a_rule_that_observes_counts_and_notes_them() -> None:
    broker = Broker({"observe": True, "count": -1})
    await broker.produce(0)
    assert broker.hits == [1]
    assert [(one.request.api, one.rules) for one in broker.rules.after(0)] == [("Produce", ["0"])]


@pytest.mark.parametrize("metadata", [LAB, [(CALLER_KEY, "2")]])
async def test_the_labs_own_calls_and_those_of_brokers_are_not_meant(metadata: Any) -> None:
    broker = Broker(ERROR)
    assert await broker.produce(0, metadata=metadata) == [(0, 0)]
    assert broker.hits == [0]


def test_the_labs_channels_name_it_in_their_user_agent() -> None:
    assert agent_options() == ()
    token = OF_THE_LAB.set(True)
    try:
        assert agent_options() == (("grpc.primary_user_agent", LAB_AGENT),)
        assert agent_options(of_the_lab=False) == (), "a scenario's produce is a client's"
    finally:
        OF_THE_LAB.reset(token)


@pytest.mark.parametrize(
    ("rule", "acts_on"),
    [
        ({"keys": ["Produce"], "error": "NOT_ENOUGH_REPLICAS"}, ("gRPC", "Kafka protocol")),
        ({"observe": True}, ("gRPC", "Kafka protocol")),
        ({"keys": ["SaslAuthenticate"], "error": "SASL_AUTHENTICATION_FAILED"}, ("Kafka protocol",)),
        ({"keys": ["ApiVersions", "Fetch"], "hold": True}, ("gRPC", "Kafka protocol")),
        ({"keys": ["Produce"], "throttle_time_ms": 5}, ("Kafka protocol",)),
        ({"keys": ["Fetch"], "bytes_per_second": 5}, ("Kafka protocol",)),
        ({"keys": ["DescribeConfigs"], "resource": "orders", "hold": True}, ("Kafka protocol",)),
    ],
)
def test_a_rule_says_which_wires_it_meets(rule: dict[str, Any], acts_on: tuple[str, ...]) -> None:
    assert read_rule(rule).acts_on == acts_on


async def test_a_rule_that_cannot_act_over_gRPC_does_not_count_there() -> None:  # noqa: N802
    broker = Broker({"keys": ["Produce"], "throttle_time_ms": 5})
    assert await broker.produce(0) == [(0, 0)]
    assert broker.hits == [0]


def test_the_apis_that_only_kafkas_protocol_has_are_those_without_an_rpc() -> None:
    over_grpc = {api_of(rpc) for rpc in METHODS}
    assert {api.name for api in APIS.values() if is_over_grpc(api.name)} == over_grpc & {
        api.name for api in APIS.values()
    }


def test_each_rpc_of_gRPC_stands_in_one_row_at_most_and_none_stands_there_that_gRPC_lacks() -> None:  # noqa: N802
    """An RPC that gRPC has alone is in no row: followers' RPCs, and the description of replicas."""
    named = [rpc for api in APIS.values() for rpc in api.rpcs]
    alone = {"DescribeReplicas", "ReadReplica", "ReplicaFetch", "ReplicaOffsetsForLeaderEpoch"}
    assert sorted([*named, *alone]) == sorted(METHODS)


@pytest.mark.parametrize(
    ("api", "kind"),
    [
        ("Produce", "transactional id"),
        ("InitTransactions", "transactional id"),
        ("AddPartitionsToTxn", "transactional id"),
        ("DescribeTransactions", "transactional id"),
        ("EndTransaction", "transactional id"),
        ("TxnOffsetCommit", "group"),
        ("AddOffsets", "group"),
        ("JoinGroup", "group"),
    ],
)
def test_the_id_of_a_fault_is_of_what_the_request_names(api: str, kind: str) -> None:
    """AddOffsetsToTxn and TxnOffsetCommit name a group and a transactional id: the group's counts."""
    assert kind_of_id(api) == kind
