"""The logical clock on calls between brokers (rule IR2 of Lamport 1978), on handlers without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc

from tidegauge.logical_clock import LogicalClock
from tidegauge.v1 import control_pb2, fetch_pb2, metadata_pb2
from tidegauge_broker.server.wire.grpc.logical_time import LogicalTime


def clock() -> LogicalClock:
    """Make a clock whose wall clock is stopped at 0, so that only messages move it."""
    return LogicalClock(lambda: 0)


def unary(request: Any, response: Any) -> Any:
    async def respond(_request: Any, _context: Any) -> Any:
        return response()

    return grpc.unary_unary_rpc_method_handler(respond, request.FromString, response.SerializeToString)


async def test_the_time_of_a_request_and_of_its_header_is_received_and_carried_on() -> None:
    time = LogicalTime(clock())
    proposal = time.around(unary(control_pb2.AlterPartitionRequest, control_pb2.AlterPartitionResponse))
    first = await proposal.unary_unary(control_pb2.AlterPartitionRequest(logical_time=50), None)
    assert first.logical_time == 50
    control = time.around(unary(control_pb2.StopReplicaRequest, control_pb2.StopReplicaResponse))
    header = control_pb2.ControlHeader(logical_time=900)
    second = await control.unary_unary(control_pb2.StopReplicaRequest(header=header), None)
    assert second.logical_time == 900


async def test_every_message_of_a_stream_carries_it() -> None:
    async def fetches(requests: AsyncIterator[Any], _context: Any) -> AsyncIterator[Any]:
        async for request in requests:
            yield fetch_pb2.ReplicaFetchResponse(request_id=request.request_id)

    async def requests() -> AsyncIterator[Any]:
        for number, time in ((1, 10), (2, 700)):
            yield fetch_pb2.ReplicaFetchRequest(request_id=number, logical_time=time)

    handler = grpc.stream_stream_rpc_method_handler(
        fetches, fetch_pb2.ReplicaFetchRequest.FromString, fetch_pb2.ReplicaFetchResponse.SerializeToString
    )
    responses = [one async for one in LogicalTime(clock()).around(handler).stream_stream(requests(), None)]
    assert [one.request_id for one in responses] == [1, 2]
    assert responses[0].logical_time == 10
    assert responses[1].logical_time == 700


def test_a_call_without_a_place_for_it_keeps_its_own_handler() -> None:
    handler = unary(metadata_pb2.MetadataRequest, metadata_pb2.MetadataResponse)
    assert LogicalTime(clock()).around(handler) is handler
