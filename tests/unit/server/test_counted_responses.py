"""Responses of unary gRPC calls count among those that wait to be written; what brokers send each other does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
import pytest

from tidegauge.v1 import metadata_pb2
from tidegauge_broker.server.service.pending_responses import PendingResponses
from tidegauge_broker.server.wire.grpc.counted_responses import CountedResponses

LARGE = metadata_pb2.MetadataResponse(cluster_id="x" * 10_000)
SERVICE = "tidegauge.v1.BrokerService"


class Call:
    """A call of one connection that ends when its response has been written."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], None]] = []

    def peer(self) -> str:
        return "ipv4:127.0.0.1:9"

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def end(self) -> None:
        for callback in self._callbacks:
            callback(self)


def handler() -> Any:
    async def respond(_request: Any, _context: Any) -> Any:
        return LARGE

    return grpc.unary_unary_rpc_method_handler(
        respond, metadata_pb2.MetadataRequest.FromString, metadata_pb2.MetadataResponse.SerializeToString
    )


async def test_a_connection_with_unread_responses_waits_with_its_next_call() -> None:
    responses = PendingResponses(lambda: 1 << 20, lambda: 15_000, lambda: 0.0)
    counted = CountedResponses(responses).around(SERVICE, "Metadata", handler()).unary_unary
    calls = [Call(), Call(), Call()]
    for call in calls[:2]:
        assert await counted(None, call) is LARGE
    assert responses.total_bytes == 2 * LARGE.ByteSize()
    third = asyncio.ensure_future(counted(None, calls[2]))
    await asyncio.sleep(0)
    assert not third.done()
    calls[0].end()
    assert await asyncio.wait_for(third, 60) is LARGE
    for call in calls[1:]:
        call.end()
    assert responses.total_bytes == 0
    responses.close()


@pytest.mark.parametrize(
    ("service", "method"),
    [
        (SERVICE, "Fetch"),
        (SERVICE, "Produce"),
        ("tidegauge.v1.ControlService", "LeaderAndIsr"),
        ("grpc.health.v1.Health", "Check"),
    ],
)
def test_fetches_count_their_own_and_brokers_wait_for_no_client(service: str, method: str) -> None:
    responses = PendingResponses(lambda: 1, lambda: 1, lambda: 0.0)
    plain = handler()
    assert CountedResponses(responses).around(service, method, plain) is plain
