"""The ways of a control request to a broker: gRPC, or Kafka's own protocol to its inter-broker listener.

Contract: ``send`` returns the broker's response, or raises ``Undelivered``: it may or may not have arrived, and may be
sent again. One request at a time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, assert_never

import grpc.aio

from tidegauge.control import (
    Endpoint,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
    UpdateMetadataRequest,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.logical_clock import LogicalClock
from tidegauge.settings import Values
from tidegauge.v1.control_service_pb2_grpc import ControlServiceStub
from tidegauge_controller import wire
from tidegauge_controller.kafka_wire import leader_and_isr, stop_replica, update_metadata
from tidegauge_controller.zookeeper.decisions.steps import ControlRequest

if TYPE_CHECKING:  # it exists in the stubs only
    from tidegauge.v1.control_service_pb2_grpc import ControlServiceAsyncStub


class _Stamped(Protocol):
    logical_time: int


_Response = TypeVar("_Response", bound=_Stamped)


class Undelivered(Exception):
    """A request did not arrive, or there was no response to it; the text says why."""


class ControlLink(Protocol):
    """The link of the controller to one broker."""

    async def send(self, request: ControlRequest) -> PartitionsResponse:
        """Send a request.

        Raises:
            Undelivered: see the module.
        """
        ...

    async def close(self) -> None:
        """Close the connection."""


OpenLink = Callable[[Endpoint], ControlLink]
"""Makes the link to a broker; it connects when it is first needed."""


class GrpcControlLink:
    """A link over gRPC.

    Args:
        channel: to the broker.
        timeout_ms: of one attempt.
        logical_clock: stamped on requests, and advanced by responses.
    """

    def __init__(self, channel: grpc.aio.Channel, timeout_ms: int, logical_clock: LogicalClock) -> None:
        self._channel = channel
        self._timeout_seconds = timeout_ms / 1000
        self._clock = logical_clock
        # It is one class; the generated types know it under two names.
        self._stub: ControlServiceAsyncStub = ControlServiceStub(channel)  # type: ignore[assignment]  # see above

    async def send(self, request: ControlRequest) -> PartitionsResponse:
        """Send a request."""
        try:
            return await self._call(request)
        except grpc.aio.AioRpcError as problem:
            raise Undelivered(problem.details()) from problem

    async def _call(self, request: ControlRequest) -> PartitionsResponse:
        stub = self._stub
        match request:
            case LeaderAndIsrRequest():
                return await wire.from_partitions_response(
                    await self._stamped(stub.LeaderAndIsr, await wire.to_leader_and_isr(request))
                )
            case UpdateMetadataRequest():
                updated = await self._stamped(stub.UpdateMetadata, await wire.to_update_metadata(request))
                return PartitionsResponse(wire.from_error(updated.error))
            case StopReplicaRequest():
                return await wire.from_partitions_response(
                    await self._stamped(stub.StopReplica, await wire.to_stop_replica(request))
                )
            case _:
                assert_never(request)

    async def _stamped(self, call: Callable[..., Awaitable[_Response]], message: Any) -> _Response:
        """Make a call with the logical clock in its header, and advance the clock by the response."""
        message.header.logical_time = self._clock.value
        response = await call(message, timeout=self._timeout_seconds)
        self._clock.receive(response.logical_time)
        return response

    async def close(self) -> None:
        """Close the channel."""
        await self._channel.close()


class KafkaControlLink:
    """A link over Kafka's protocol, in the versions of ``inter.broker.protocol.version`` 3.9.

    A broker gets the addresses of the listeners that it has itself: Kafka's logs an
    error when brokers have different ones. Source: ControllerChannelManager.AbstractControllerBrokerRequestBatch,
    ZkMetadataCache.updateMetadata.

    Args:
        channel: to the broker's inter-broker listener.
        listeners: names of all its listeners; empty: it gets all addresses.
        timeout_ms: of one attempt.
    """

    def __init__(self, channel: KafkaChannel, listeners: Collection[str], timeout_ms: int) -> None:
        self._channel = channel
        self._listeners = listeners
        self._timeout_seconds = timeout_ms / 1000

    async def send(self, request: ControlRequest) -> PartitionsResponse:
        """Send a request."""
        try:
            return await self._call(request)
        except TidegaugeError as problem:
            raise Undelivered(problem.message) from problem

    async def _call(self, request: ControlRequest) -> PartitionsResponse:
        match request:
            case LeaderAndIsrRequest():
                taken = await self._request(
                    apis.LEADER_AND_ISR, leader_and_isr.to_request(request), leader_and_isr.VERSION
                )
                return leader_and_isr.from_response(request, taken)
            case UpdateMetadataRequest():
                updated = await self._request(
                    apis.UPDATE_METADATA, update_metadata.to_request(request, self._listeners), update_metadata.VERSION
                )
                return PartitionsResponse(ErrorCode.of(updated.error_code))
            case StopReplicaRequest():
                stopped = await self._request(apis.STOP_REPLICA, stop_replica.to_request(request), stop_replica.VERSION)
                return stop_replica.from_response(stopped)
            case _:
                assert_never(request)

    async def _request(self, key: int, message: Any, version: int) -> Any:
        return await self._channel.request(key, message, self._timeout_seconds, at_most=version, at_least=version)

    async def close(self) -> None:
        """Close the connection."""
        self._channel.close()


def grpc_links(
    open_channel: Callable[[str], grpc.aio.Channel], settings: Values, logical_clock: LogicalClock
) -> OpenLink:
    """Return what makes links over gRPC, with channels to addresses and this clock."""
    timeout_ms = settings.integer("controller.socket.timeout.ms")
    return lambda to: GrpcControlLink(open_channel(to.address), timeout_ms, logical_clock)


def kafka_links(open_channel: Callable[[str, str], KafkaChannel], settings: Values, broker_id: int) -> OpenLink:
    """Return a factory of links over Kafka's protocol, for the controller."""
    timeout_ms = settings.integer("controller.socket.timeout.ms")
    client_id = f"broker-{broker_id}-controller"
    return lambda to: KafkaControlLink(
        open_channel(to.address, client_id), {one.name for one in to.listeners}, timeout_ms
    )
