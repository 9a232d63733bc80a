"""Calls that arrive (gate.py, gated_calls.py) and that leave (channels.py), on fakes of gRPC's handlers and calls."""

import asyncio
from types import SimpleNamespace

import grpc
import grpc.aio
import pytest

from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import common_pb2, fetch_pb2, lab_pb2, metadata_pb2, produce_pb2
from tidegauge_broker.log.lab_disk import DiskFaults
from tidegauge_broker.server.lab.channels import Calls, LabChannel
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, GatedRequest, InjectedError
from tidegauge_broker.server.wire.grpc.callers import CALLER_KEY, calling_broker
from tidegauge_broker.server.wire.grpc.gated_calls import GatedCalls

ERROR = common_pb2.ERROR_CODE_NOT_ENOUGH_REPLICAS
SERVICE = "/tidegauge.v1.BrokerService/"


class Aborted(Exception):
    pass


class Context:
    async def abort(self, status, details):
        assert asyncio.current_task().cancelling() == 0, "gRPC must not take the call for one that was given up"
        raise Aborted(status.name, details)


def cut(plane=lab_pb2.LAB_PLANE_BROKERS, direction=lab_pb2.LAB_DIRECTION_BOTH, ids=(), **effect):
    return lab_pb2.LabFault(
        network=lab_pb2.NetworkFault(
            plane=plane, direction=direction, broker_ids=ids, **(effect or {"partitioned": True})
        )
    )


def failing(rpc, **more):
    return lab_pb2.LabFault(error=lab_pb2.ErrorFault(rpc=rpc, **more))


class Broker:
    """A gate before some fake handlers."""

    def __init__(self):
        self.faults = FaultTable(1, DiskFaults(sleep=lambda _: None))
        self.gate = GatedCalls(LabGate(self.faults))
        self.seen = []
        self.blocked = asyncio.Event()

    async def metadata(self, request, context):
        self.seen.append(request)
        return metadata_pb2.MetadataResponse(topics=[metadata_pb2.TopicMetadata(name="t")])

    async def waits(self, request, context):
        self.seen.append(request)
        self.blocked.set()
        await asyncio.Event().wait()

    async def produces(self, requests, context):
        async for request in requests:
            self.seen.append(request)
            yield produce_pb2.ProduceResponse(
                correlation_id=request.correlation_id,
                partitions=[produce_pb2.ProducePartitionResult(topic=one.topic) for one in request.partitions],
            )

    async def fetches(self, requests, context):
        async for request in requests:
            self.seen.append(request)
            yield fetch_pb2.ReplicaFetchResponse(request_id=request.request_id)

    async def handler(self, method, behaviour, caller=None):
        make = (
            grpc.stream_stream_rpc_method_handler
            if behaviour in (self.produces, self.fetches)
            else grpc.unary_unary_rpc_method_handler
        )

        async def continuation(_):
            return make(behaviour)

        metadata = [] if caller is None else [(CALLER_KEY, str(caller))]
        details = SimpleNamespace(method=method, invocation_metadata=metadata)
        return await self.gate.intercept_service(continuation, details)

    async def ask(self, behaviour, caller=None, method=SERVICE + "Metadata"):
        handler = await self.handler(method, behaviour, caller)
        return await handler.unary_unary(metadata_pb2.MetadataRequest(), Context())

    async def stream(self, behaviour, requests, caller=None, method=SERVICE + "ProduceStream"):
        handler = await self.handler(method, behaviour, caller)

        async def given():
            for request in requests:
                yield request

        return [response async for response in handler.stream_stream(given(), Context())]


@pytest.fixture
async def broker():
    return Broker()


def produce(number):
    return produce_pb2.ProduceRequest(
        correlation_id=number, partitions=[produce_pb2.ProducePartition(topic="t", records=b"r")]
    )


async def test_without_faults_calls_pass_and_come_out_as_they_were(broker):
    assert (await broker.ask(broker.metadata)).topics[0].name == "t"
    responses = await broker.stream(broker.produces, [produce(1), produce(2)])
    assert [response.correlation_id for response in responses] == [1, 2]


async def test_a_partition_from_brokers_refuses_brokers_and_lets_clients_through_and_nothing_happens_here(broker):
    broker.faults.set(cut())
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await broker.ask(broker.metadata, caller=2)
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await broker.stream(broker.fetches, [fetch_pb2.ReplicaFetchRequest()], caller=2)
    assert broker.seen == []
    await broker.ask(broker.metadata)
    await broker.ask(broker.metadata, caller=1)
    assert len(broker.seen) == 2, "clients, and the broker itself"


async def test_a_stream_without_a_request_is_refused_too(broker):
    broker.faults.set(cut())
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await broker.stream(broker.fetches, [], caller=2)


async def test_a_partition_from_clients_refuses_clients_only(broker):
    broker.faults.set(cut(lab_pb2.LAB_PLANE_CLIENTS))
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await broker.ask(broker.metadata)
    await broker.ask(broker.metadata, caller=2)


async def test_a_partition_of_calls_that_leave_does_not_apply_to_those_that_arrive(broker):
    broker.faults.set(cut(direction=lab_pb2.LAB_DIRECTION_OUT))
    await broker.ask(broker.metadata, caller=2)


@pytest.mark.parametrize("method", ["/grpc.health.v1.Health/Check", "/tidegauge.v1.LabService/ListFaults"])
async def test_health_and_the_lab_itself_are_met_by_nothing(broker, method):
    for plane in (lab_pb2.LAB_PLANE_BROKERS, lab_pb2.LAB_PLANE_CLIENTS):
        broker.faults.set(cut(plane))
    await broker.ask(broker.metadata, caller=2, method=method)
    await broker.ask(broker.metadata, method=method)


async def test_a_stepped_round_is_a_followers_fetch_and_is_partitioned_as_one(broker):
    broker.faults.set(cut())
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await broker.ask(broker.metadata, caller=2, method="/tidegauge.v1.LabService/SteppedRound")


async def test_a_call_in_flight_ends_when_the_partition_begins(broker):
    call = asyncio.ensure_future(broker.ask(broker.waits, caller=2))
    await broker.blocked.wait()
    fault = broker.faults.set(cut())
    with pytest.raises(Aborted, match=f"fault {fault.fault_id}"):
        await asyncio.wait_for(call, 10)
    assert broker.faults.listed()[0].met == 1


async def test_a_stream_in_flight_ends_when_the_partition_begins_and_one_that_the_caller_ends_stays_cancelled(broker):
    handler = await broker.handler(SERVICE + "ProduceStream", broker.produces)
    arrived = asyncio.Event()

    async def requests():
        yield produce(1)
        arrived.set()
        await asyncio.Event().wait()

    async def read():
        return [response async for response in handler.stream_stream(requests(), Context())]

    cut_off = asyncio.ensure_future(read())
    await arrived.wait()
    broker.faults.set(cut(lab_pb2.LAB_PLANE_CLIENTS))
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await asyncio.wait_for(cut_off, 10)
    broker.faults.clear()
    arrived.clear()
    given_up = asyncio.ensure_future(read())
    await arrived.wait()
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up


async def test_a_lost_request_ends_its_stream_after_the_responses_before_it(broker):
    broker.faults.set(cut(lab_pb2.LAB_PLANE_CLIENTS, drop_probability=1.0))
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await broker.stream(broker.produces, [produce(1)])
    assert broker.seen == []


async def test_an_error_before_the_effect_responds_in_place_and_the_stream_goes_on(broker):
    """The request reaches the service empty, so that responses keep their order and nothing is appended."""
    broker.faults.set(failing("Produce", error=ERROR, skip=1, times=1))
    responses = await broker.stream(broker.produces, [produce(1), produce(2), produce(3)])
    assert [response.correlation_id for response in responses] == [1, 2, 3]
    assert [response.partitions[0].error for response in responses] == [0, ERROR, 0]
    assert [len(request.partitions) for request in broker.seen] == [1, 0, 1]


async def test_an_error_after_the_effect_replaces_the_response_only(broker):
    broker.faults.set(failing("Produce", error=ERROR, after_effect=True, times=1))
    responses = await broker.stream(broker.produces, [produce(1), produce(2)])
    assert [response.partitions[0].error for response in responses] == [ERROR, 0]
    assert [len(request.partitions) for request in broker.seen] == [1, 1]


async def test_an_error_of_the_whole_is_the_last_response_of_its_stream(broker):
    broker.faults.set(failing("ReplicaFetch", error=ERROR, skip=1, times=1))
    requests = [fetch_pb2.ReplicaFetchRequest(request_id=number) for number in (1, 2, 3)]
    method = "/tidegauge.v1.ReplicationService/ReplicaFetch"
    responses = await broker.stream(broker.fetches, requests, caller=2, method=method)
    assert [(response.request_id, response.error) for response in responses] == [(1, 0), (2, ERROR)]
    assert len(broker.seen) == 1, "the refused one had no effect"


async def test_a_grpc_status_ends_the_call_before_or_after_its_effect(broker):
    broker.faults.set(failing("Metadata", grpc_status="RESOURCE_EXHAUSTED", times=1))
    with pytest.raises(Aborted, match="RESOURCE_EXHAUSTED"):
        await broker.ask(broker.metadata)
    assert broker.seen == []
    broker.faults.clear()
    broker.faults.set(failing("Metadata", grpc_status="UNAVAILABLE", times=1, after_effect=True))
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await broker.ask(broker.metadata)
    assert len(broker.seen) == 1
    await broker.ask(broker.metadata)


async def test_metadata_is_asked_and_every_topic_gets_the_error(broker):
    broker.faults.set(failing("Metadata", error=ERROR, times=1))
    assert (await broker.ask(broker.metadata)).topics[0].error == ERROR


async def turns():
    for _ in range(12):
        await asyncio.sleep(0)


def holding(rpc, **more):
    return lab_pb2.LabFault(hold=lab_pb2.HoldFault(rpc=rpc, **more))


@pytest.mark.parametrize(("more", "seen"), [({}, 0), ({"after_effect": True}, 1)])
async def test_a_held_call_waits_before_or_after_its_effect_and_others_do_not(broker, more, seen):
    broker.faults.set(holding("Metadata", times=1, **more))
    held = asyncio.ensure_future(broker.ask(broker.metadata))
    await turns()
    assert (held.done(), len(broker.seen), broker.faults.listed()[0].held) == (False, seen, 1)
    await broker.ask(broker.metadata)
    broker.faults.clear()
    assert (await held).topics[0].name == "t"


async def test_a_held_call_that_its_client_gives_up_leaves_nothing_held(broker):
    broker.faults.set(holding("Metadata"))
    held = asyncio.ensure_future(broker.ask(broker.metadata))
    await turns()
    held.cancel()
    with pytest.raises(asyncio.CancelledError):
        await held
    assert (broker.seen, broker.faults.listed()[0].held) == ([], 0)


async def test_a_held_call_ends_with_the_broker(broker):
    broker.faults.set(holding("Metadata"))
    held = asyncio.ensure_future(broker.ask(broker.metadata))
    await turns()
    broker.faults.close()
    with pytest.raises(Aborted, match="the broker stops"):
        await held


async def test_a_partition_ends_a_held_call(broker):
    broker.faults.set(holding("Metadata"))
    held = asyncio.ensure_future(broker.ask(broker.metadata))
    await turns()
    broker.faults.set(cut(lab_pb2.LAB_PLANE_CLIENTS))
    with pytest.raises(Aborted, match="refused by the lab"):
        await held
    assert broker.faults.listed()[0].held == 0


@pytest.mark.parametrize("after_effect", [False, True])
async def test_a_held_response_on_a_stream_keeps_its_place(broker, after_effect):
    broker.faults.set(holding("Produce", skip=1, times=1, after_effect=after_effect))
    held = asyncio.ensure_future(broker.stream(broker.produces, [produce(1), produce(2), produce(3)]))
    await turns()
    assert [one.correlation_id for one in broker.seen] == ([1, 2] if after_effect else [1])
    broker.faults.clear()
    assert [response.correlation_id for response in await held] == [1, 2, 3]


async def test_an_error_that_only_kafkas_response_can_carry_ends_the_call(broker):
    """The response to CreateTopics has errors only in its items: over Kafka's protocol each topic gets it."""
    broker.faults.set(failing("CreateTopics", error=ERROR))
    with pytest.raises(Aborted, match="UNAVAILABLE"):
        await broker.ask(broker.metadata, method="/tidegauge.v1.AdminService/CreateTopics")
    assert broker.seen == []


# The gate itself, for any wire

A_CLIENT, A_BROKER = Caller("c", "PLAINTEXT"), Caller("b", "PLAINTEXT", 2)


async def test_a_partition_ends_each_connection_across_it_once_and_no_other(broker):
    gate, ended = LabGate(broker.faults), []
    client = gate.enter(A_CLIENT, lambda: ended.append("client"))
    gate.enter(A_BROKER, lambda: ended.append("broker"))
    gone = gate.enter(A_CLIENT, lambda: ended.append("gone"))
    gate.leave(gone)
    fault = broker.faults.set(cut(lab_pb2.LAB_PLANE_CLIENTS))
    broker.faults.set(failing("Fetch", error=ERROR))
    assert ended == ["client"]
    assert client.broken_by == f"refused by the lab (fault {fault.fault_id})"
    with pytest.raises(CallRefused):
        gate.check(client)
    gate.check(gate.enter(A_BROKER, lambda: None))


async def test_a_request_is_admitted_with_the_error_of_its_api_and_lost_by_its_caller(broker):
    gate = LabGate(broker.faults)
    assert gate.is_open
    broker.faults.set(failing("Fetch", error=ERROR, skip=1))
    assert not gate.is_open
    responses = [await gate.admit(GatedRequest(api, A_CLIENT)) for api in ("Fetch", "Metadata", "Fetch")]
    assert responses == [None, None, InjectedError(ERROR)]
    broker.faults.set(cut(lab_pb2.LAB_PLANE_CLIENTS, drop_probability=1.0))
    with pytest.raises(CallRefused, match="refused by the lab"):
        await gate.admit(GatedRequest("Metadata", A_CLIENT))
    assert await gate.admit(GatedRequest("Metadata", A_BROKER)) is None


@pytest.mark.parametrize(
    ("scope", "met"),
    [
        ({}, "abcdef"),
        ({"caller": "clients"}, "abcde"),
        ({"caller": "brokers"}, "f"),
        ({"caller": "2"}, "f"),
        ({"caller": "3"}, ""),
        ({"topic": "t"}, "abd"),
        ({"topic": "t", "partition": 0}, "ad"),
        ({"topic": "t", "partition": 0, "caller": "brokers"}, ""),
        ({"group": "g"}, "e"),
        ({"client_id": "me"}, "b"),
    ],
)
async def test_an_error_means_the_requests_of_its_caller_topic_partition_and_group(broker, scope, met):
    """A request that names the topic without a partition is about all of its partitions."""
    gate = LabGate(broker.faults)
    broker.faults.set(failing("Fetch", error=ERROR, **scope))
    requests = {
        "a": GatedRequest("Fetch", A_CLIENT, [TopicPartition("t", 0), TopicPartition("u", 1)]),
        "b": GatedRequest("Fetch", A_CLIENT, [TopicPartition("t", 1)], client_id="me"),
        "c": GatedRequest("Fetch", A_CLIENT, [TopicPartition("u", 0)]),
        "d": GatedRequest("Fetch", A_CLIENT, [TopicPartition("t", -1)]),
        "e": GatedRequest("Fetch", A_CLIENT, group="g"),
        "f": GatedRequest("Fetch", A_BROKER),
    }
    found = [name for name, request in requests.items() if await gate.admit(request) is not None]
    assert "".join(found) == met
    assert broker.faults.listed()[0].met == len(met)


async def test_a_stream_of_fetches_is_about_its_partitions_until_they_are_forgotten(broker):
    """Also if it named them while nothing was in force."""
    at = {"topic": "t", "partition": 0}
    first = fetch_pb2.ReplicaFetchRequest(request_id=1, partitions=[fetch_pb2.FetchPartition(**at)])
    second = fetch_pb2.ReplicaFetchRequest(request_id=2)
    forgets = fetch_pb2.ReplicaFetchRequest(request_id=2, forgotten=[fetch_pb2.ForgottenPartition(**at)])

    async def fetches(last):
        async def given():
            yield first
            broker.faults.set(failing("ReplicaFetch", grpc_status="ABORTED", topic="t"))
            yield last

        handler = await broker.handler(SERVICE + "ReplicaFetch", broker.fetches, 2)
        return [response.request_id async for response in handler.stream_stream(given(), Context())]

    assert await fetches(forgets) == [1, 2]
    broker.faults.clear()
    with pytest.raises(Aborted):
        await fetches(second)


@pytest.mark.parametrize("scope", [{"caller": "me"}, {"partition": 0}])
async def test_a_scope_that_means_nothing_is_refused(broker, scope):
    with pytest.raises(TidegaugeError):
        broker.faults.set(failing("Fetch", error=ERROR, **scope))


# Calls that leave


class FakeCall:
    """A unary call or a stream that waits until it is completed or cancelled."""

    def __init__(self, metadata):
        self.metadata = dict(metadata)
        self.response = asyncio.get_running_loop().create_future()
        self.written = []

    def __await__(self):
        return self.response.__await__()

    def cancel(self):
        return self.response.cancel()

    def done(self):
        return self.response.done()

    def add_done_callback(self, callback):
        self.response.add_done_callback(callback)

    async def write(self, request):
        self.written.append(request)

    async def read(self):
        return await self.response


class FakeChannel:
    def __init__(self):
        self.calls = []

    def unary_unary(self, path, **_):
        def call(request, timeout, metadata, wait_for_ready=None):
            self.calls.append(FakeCall(metadata))
            return self.calls[-1]

        return call

    def stream_stream(self, path, **_):
        def call(metadata):
            self.calls.append(FakeCall(metadata))
            return self.calls[-1]

        return call


class Outward:
    """Broker 1, which calls broker 2 at ``two``."""

    def __init__(self):
        self.faults = FaultTable(1, DiskFaults(sleep=lambda _: None))
        self.real = FakeChannel()
        self.brokers = {"one": 1, "two": 2}
        calls = Calls(self.faults, self.brokers.get)
        self.to_two = LabChannel(calls, self.real, "two")


async def test_each_call_says_which_broker_makes_it():
    outward = Outward()
    call = asyncio.ensure_future(outward.to_two.unary_unary("/s/M")("hello"))
    await asyncio.sleep(0)
    [made] = outward.real.calls
    made.response.set_result("answer")
    assert await call == "answer"
    assert calling_broker(made.metadata.items()) == 1
    assert calling_broker([]) is None
    assert calling_broker([(CALLER_KEY, "x")]) is None


async def test_a_connection_to_a_former_address_is_partitioned_from_the_broker_behind_it():
    """A broker that advertises another address serves the connections to the former one."""
    outward = Outward()
    del outward.brokers["two"]
    outward.brokers["elsewhere"] = 2
    outward.faults.set(cut(ids=[2], direction=lab_pb2.LAB_DIRECTION_OUT))
    with pytest.raises(grpc.aio.AioRpcError):
        await outward.to_two.unary_unary("/s/M")("hello")
    assert outward.real.calls == []
    outward.brokers["two"] = 3
    call = asyncio.ensure_future(outward.to_two.unary_unary("/s/M")("hello"))
    await asyncio.sleep(0)
    outward.real.calls[0].response.set_result("it is another broker's by now")
    await call


async def test_a_partitioned_call_does_not_leave_and_one_in_flight_ends_as_a_broken_connection():
    outward = Outward()
    under_way = asyncio.ensure_future(outward.to_two.unary_unary("/s/M")("hello"))
    await asyncio.sleep(0)
    outward.faults.set(cut(ids=[2], direction=lab_pb2.LAB_DIRECTION_OUT))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(under_way, 10)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    with pytest.raises(grpc.aio.AioRpcError):
        await outward.to_two.unary_unary("/s/M")("again")
    assert len(outward.real.calls) == 1
    outward.faults.clear()
    again = asyncio.ensure_future(outward.to_two.unary_unary("/s/M")("again"))
    await asyncio.sleep(0)
    outward.real.calls[-1].response.set_result("answer")
    assert await again == "answer"


async def test_a_stream_ends_when_the_partition_begins_and_one_of_the_other_direction_goes_on():
    outward = Outward()
    stream = outward.to_two.stream_stream("/s/M")()
    await stream.write("one")
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0)
    outward.faults.set(cut(direction=lab_pb2.LAB_DIRECTION_IN))
    await asyncio.sleep(0)
    assert not reading.done()
    outward.faults.set(cut(direction=lab_pb2.LAB_DIRECTION_OUT))
    with pytest.raises(grpc.aio.AioRpcError):
        await asyncio.wait_for(reading, 10)
    assert await stream.details() == "refused by the lab"
    new = outward.to_two.stream_stream("/s/M")()
    with pytest.raises(grpc.aio.AioRpcError):
        await new.write("two")


async def test_whoever_is_cancelled_while_it_waits_stays_cancelled():
    outward = Outward()
    call = asyncio.ensure_future(outward.to_two.unary_unary("/s/M")("hello"))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
