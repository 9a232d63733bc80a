"""Faults on Kafka's own protocol: the lab's gate before a connection's requests, without sockets.

Holds of requests are in ``test_held_requests.py``.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from kafka_peer import Client, Listener

from tidegauge.channel_options import LAB_AGENT
from tidegauge.errors import ErrorCode
from tidegauge.kafka.frames import joined, request_frame
from tidegauge.kafka.messages.init_producer_id import InitProducerIdRequest
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.v1 import common_pb2, lab_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.service.gate import GatedRequest
from tidegauge_broker.server.wire.kafka.callers import calling_broker
from tidegauge_broker.server.wire.kafka.responses import SILENT

PRODUCE, METADATA, INIT_PRODUCER_ID = 0, 3, 22
ERROR = ErrorCode.NOT_ENOUGH_REPLICAS


class Broker:
    """A Kafka listener behind the lab's gate."""

    def __init__(self) -> None:
        self.faults = FaultTable(0, DiskFaults(sleep=lambda _: None))
        self.listener = Listener()
        self.listener.gate = LabGate(self.faults)
        self.handled: list[int] = []
        self.listener.handlers = {
            METADATA: lambda *_: self._note(METADATA, MetadataResponse(topics=[MetadataResponseTopic(name="t")])),
            PRODUCE: lambda *_: self._note(PRODUCE, SILENT),
            INIT_PRODUCER_ID: lambda *_: self._note(INIT_PRODUCER_ID, None),
        }
        self._numbers = itertools.count(1)

    def _note(self, key: int, response: Any) -> Any:
        self.handled.append(key)
        return response

    def cut(self, **effect: Any) -> None:
        network = lab_pb2.NetworkFault(plane=lab_pb2.LAB_PLANE_CLIENTS, **(effect or {"partitioned": True}))
        self.faults.set(lab_pb2.LabFault(network=network))

    def fails(self, rpc: str, **more: Any) -> None:
        error = lab_pb2.ErrorFault(rpc=rpc, error=common_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS, **more)
        self.faults.set(lab_pb2.LabFault(error=error))

    async def ask(self, client: Client, key: int, version: int, message: Any, client_id: str = "test") -> Any:
        """The response, or None if none came."""
        client.send(joined(request_frame(key, version, next(self._numbers), client_id, message)))
        return await client.response(key, version, turns=5)


@pytest.fixture
async def broker() -> Broker:
    return Broker()


def produce(acks: int = -1) -> ProduceRequest:
    parts = [PartitionProduceData(index, b"") for index in (0, 3)]
    return ProduceRequest(acks=acks, timeout_ms=1, topic_data=[TopicProduceData("t", partition_data=parts)])


async def test_a_partition_ends_connections_and_refuses_new_ones(broker: Broker) -> None:
    before = Client(broker.listener)
    broker.cut()
    assert before.transport.ended == "aborted"
    assert Client(broker.listener).transport.ended == "aborted"
    broker.faults.clear()
    assert Client(broker.listener).transport.ended is None


async def test_a_lost_request_is_not_handled_and_ends_its_connection(broker: Broker) -> None:
    client = Client(broker.listener)
    broker.cut(drop_probability=1.0)
    assert await broker.ask(client, METADATA, 9, MetadataRequest()) is None
    assert broker.handled == []
    assert client.transport.ended == "closed"


async def test_the_response_to_a_read_has_the_error_in_each_of_its_items(broker: Broker) -> None:
    client = Client(broker.listener)
    broker.fails("Metadata", times=1)
    response = await broker.ask(client, METADATA, 9, MetadataRequest())
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("t", ERROR)]
    response = await broker.ask(client, METADATA, 9, MetadataRequest())
    assert [topic.error_code for topic in response.topics] == [0]


async def test_a_produce_before_its_effect_appends_nothing_and_each_partition_has_the_error(broker: Broker) -> None:
    client = Client(broker.listener)
    broker.fails("Produce")
    response = await broker.ask(client, PRODUCE, 8, produce())
    [topic] = response.responses
    assert [(one.index, one.error_code, one.base_offset) for one in topic.partition_responses] == [
        (0, ERROR, -1),
        (3, ERROR, -1),
    ]
    assert broker.handled == []
    assert await broker.ask(client, PRODUCE, 8, produce(acks=0)) is None
    assert client.transport.ended == "closed", "with acks=0 nothing else can carry the error"


async def test_an_error_at_the_top_of_a_response_comes_without_the_effect(broker: Broker) -> None:
    client = Client(broker.listener)
    broker.fails("InitProducerId")
    response = await broker.ask(client, INIT_PRODUCER_ID, 4, InitProducerIdRequest(transaction_timeout_ms=1))
    assert (response.error_code, broker.handled) == (ERROR, [])


async def test_a_request_without_a_response_passes_a_gate_that_has_other_faults(broker: Broker) -> None:
    client = Client(broker.listener)
    broker.fails("Fetch")
    assert await broker.ask(client, PRODUCE, 8, produce(acks=0)) is None
    assert (broker.handled, client.transport.ended) == ([PRODUCE], None)


async def test_an_error_of_one_partition_is_met_by_requests_that_name_it_alone(broker: Broker) -> None:
    broker.fails("Produce", topic="t", partition=1)
    broker.fails("Produce", topic="u")
    broker.fails("Produce", group="g")
    broker.fails("Produce", caller="brokers")
    client = Client(broker.listener)
    assert await broker.ask(client, PRODUCE, 9, produce()) is None
    assert broker.handled == [PRODUCE], "it names the partitions 0 and 3 of t"
    broker.fails("Produce", topic="t", partition=3, caller="clients")
    response = await broker.ask(client, PRODUCE, 9, produce())
    assert [item.error_code for item in response.responses[0].partition_responses] == [ERROR, ERROR]
    assert broker.handled == [PRODUCE]


# Brokers


def cut_from_brokers(broker: Broker, *broker_ids: int) -> None:
    ends = [lab_pb2.NetworkFault(plane=lab_pb2.LAB_PLANE_BROKERS, broker_ids=broker_ids, partitioned=True)]
    for one in ends:
        broker.faults.set(lab_pb2.LabFault(network=one))


async def test_a_brokers_connection_is_known_by_its_first_request_and_broken_as_a_brokers(broker: Broker) -> None:
    """A partition of clients leaves brokers alone, one of brokers leaves clients alone, on the listener of both."""
    broker.listener.serves_brokers = True
    of_broker, of_client = Client(broker.listener), Client(broker.listener)
    assert await broker.ask(of_broker, METADATA, 9, MetadataRequest(), "broker-2-fetcher-0") is not None
    assert await broker.ask(of_client, METADATA, 9, MetadataRequest()) is not None
    broker.cut()
    assert (of_broker.transport.ended, of_client.transport.ended) == (None, "aborted")
    assert await broker.ask(of_broker, METADATA, 9, MetadataRequest(), "broker-2-fetcher-0") is not None
    broker.faults.clear()
    of_client = Client(broker.listener)
    assert await broker.ask(of_client, METADATA, 9, MetadataRequest()) is not None
    cut_from_brokers(broker, 2)
    assert (of_broker.transport.ended, of_client.transport.ended) == ("aborted", None)


async def test_a_partitioned_brokers_new_connection_ends_with_its_first_request(broker: Broker) -> None:
    """Nothing is handled; one of a broker that is not partitioned goes on."""
    broker.listener.serves_brokers = True
    cut_from_brokers(broker, 2)
    refused, served = Client(broker.listener), Client(broker.listener)
    assert await broker.ask(refused, METADATA, 9, MetadataRequest(), "broker-2-fetcher-0") is None
    assert refused.transport.ended is not None
    assert broker.handled == []
    assert await broker.ask(served, METADATA, 9, MetadataRequest(), "broker-1-fetcher-0") is not None


async def test_a_client_id_means_nothing_on_a_listener_of_clients(broker: Broker) -> None:
    """Else a client could keep out of a partition by its name."""
    client = Client(broker.listener)
    assert await broker.ask(client, METADATA, 9, MetadataRequest(), "broker-2-fetcher-0") is not None
    broker.cut()
    assert client.transport.ended == "aborted"


@pytest.mark.parametrize(
    ("client_id", "broker_id"),
    [
        ("broker-2-fetcher-0", 2),
        ("broker-13-txn-marker-sender", 13),
        ("7", 7),
        ("broker-7", 7),
        ("", None),
        ("broker-x-fetcher-0", None),
        ("7-up", None),
        ("my-broker-2-fetcher", None),
    ],
)
def test_brokers_are_known_by_their_client_ids(client_id: str, broker_id: int | None) -> None:
    """As Kafka's brokers call themselves: ReplicaFetcherManager, ControllerChannelManager."""
    assert calling_broker(client_id, serves_controller=True) == broker_id


@pytest.mark.parametrize("client_id", ["7", "broker-7"])
def test_a_client_may_call_itself_by_a_number_where_no_controller_comes(client_id: str) -> None:
    """In a local cluster controllers use gRPC, and followers share the listener with the clients."""
    assert calling_broker(client_id, serves_controller=False) is None
    assert calling_broker("broker-2-fetcher-0", serves_controller=False) == 2


class Asked:
    """A gate that lets all pass, and keeps what it is asked."""

    is_open = False

    def __init__(self) -> None:
        self.asked: list[GatedRequest] = []

    def enter(self, *_: Any) -> Any:
        return SimpleNamespace(broken_by="")

    def check(self, _: Any) -> None:
        pass

    leave = check

    async def admit(self, request: GatedRequest) -> None:
        self.asked.append(request)

    def hold_of(self, _: Any) -> None:
        return None


async def test_a_client_that_names_itself_the_lab_is_taken_for_it(broker: Broker) -> None:
    """Rules for requests do not mean it, as over gRPC."""
    broker.listener.gate = gate = Asked()
    client = Client(broker.listener)
    for client_id in ("app", LAB_AGENT):
        await broker.ask(client, METADATA, 9, MetadataRequest(), client_id)
    assert [(one.client_id, one.is_of_lab) for one in gate.asked] == [("app", False), (LAB_AGENT, True)]
