"""gRPC channels to brokers, one for each address, and calls whose failures are Kafka's errors.

Rules:
    1. Every call has a deadline: nothing else detects a paused broker.
    2. A broken connection is NETWORK_EXCEPTION, an exceeded deadline REQUEST_TIMED_OUT; both leave the outcome unknown.
    3. Reconnect back-off is 50 to 500 ms; gRPC's own default grows to two minutes, during which a restarted broker
       would go unnoticed.
    4. Channels belong to the event loop that made them.
    5. If a TLS handshake failed, the sentence says why and what to do (``Unreachable``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar, cast

import grpc
import grpc.aio

from tidegauge.channel_options import RECONNECT_OPTIONS, agent_options, was_slow_to_connect
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.handshakes import client_reason
from tidegauge.host_addresses import host_in
from tidegauge.secure_channels import open_channel
from tidegauge.security import PLAIN, Security
from tidegauge.v1 import (
    admin_service_pb2_grpc,
    broker_service_pb2_grpc,
    replica_log_service_pb2_grpc,
)

if TYPE_CHECKING:
    from tidegauge.v1.admin_service_pb2_grpc import AdminServiceAsyncStub
    from tidegauge.v1.broker_service_pb2_grpc import BrokerServiceAsyncStub
    from tidegauge.v1.replica_log_service_pb2_grpc import ReplicaLogServiceAsyncStub

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

CHANNEL_OPTIONS: list[tuple[str, int]] = [
    *RECONNECT_OPTIONS,
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.enable_http_proxy", 0),
]

Request = TypeVar("Request")
Response = TypeVar("Response")

_CODES = {
    grpc.StatusCode.UNAVAILABLE: ErrorCode.NETWORK_EXCEPTION,
    grpc.StatusCode.CANCELLED: ErrorCode.NETWORK_EXCEPTION,
    grpc.StatusCode.DEADLINE_EXCEEDED: ErrorCode.REQUEST_TIMED_OUT,
    grpc.StatusCode.RESOURCE_EXHAUSTED: ErrorCode.MESSAGE_TOO_LARGE,
    grpc.StatusCode.UNIMPLEMENTED: ErrorCode.UNSUPPORTED_VERSION,
    grpc.StatusCode.INTERNAL: ErrorCode.NETWORK_EXCEPTION,
    grpc.StatusCode.INVALID_ARGUMENT: ErrorCode.INVALID_REQUEST,
    grpc.StatusCode.UNAUTHENTICATED: ErrorCode.SASL_AUTHENTICATION_FAILED,
    grpc.StatusCode.PERMISSION_DENIED: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}
_BROKEN_WHILE_WRITING = "Internal error from Core"
"""Details that grpc.aio gives, with the status UNKNOWN, when a connection breaks during a write."""
_NO_SUCH_NAME = ("address lookup failed", "DNS resolution failed", "Name or service not known")
_HUNG_UP = ("Socket closed", "Connection reset by peer", "recvmsg:")
_NOT_GRPC = "missing selected ALPN property"
"""gRPC's error for a peer with TLS that does not offer HTTP/2, such as a listener of Kafka's protocol."""


class Unreachable(TidegaugeError):
    """NETWORK_EXCEPTION, with the known facts about the connection.

    Attributes:
        reason: why there is no TLS connection, and what to do; None: TLS is not the cause, as far as is known.
        hung_up: whether the broker accepted the connection and then closed it, or does not speak gRPC.
        is_not_grpc: whether the broker has finished a TLS handshake and does not speak gRPC.
        was_slow: whether the broker accepted the connection and did not finish it in time.
        is_unnamed: whether the address has a host name that can't be resolved.
    """

    def __init__(self, address: str, details: str) -> None:
        host = host_in(address)
        self.reason = client_reason(details, host)
        self.is_not_grpc = self.reason is None and _NOT_GRPC in details
        self.hung_up = self.is_not_grpc or (self.reason is None and any(words in details for words in _HUNG_UP))
        self.was_slow = was_slow_to_connect(details)
        self.is_unnamed = self.reason is None and any(words in details for words in _NO_SUCH_NAME)
        why = f"this machine knows no host {host}" if self.is_unnamed else self.reason
        because = "" if why is None else f": {why}"
        super().__init__(ErrorCode.NETWORK_EXCEPTION, f"the broker at {address} cannot be reached{because}")


class LateError(TidegaugeError):
    """REQUEST_TIMED_OUT: a broker accepted the request, or the connection, and did not respond in time."""

    def __init__(self, address: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"the broker at {address} did not respond in time")


class Channels:
    """Opens channels on demand and closes them all.

    Args:
        security: the security settings of all channels.
        of_the_lab: whether the lab makes the calls, which no rule for requests means; None: by the context.
    """

    def __init__(self, security: Security = PLAIN, *, of_the_lab: bool | None = None) -> None:
        self.security = security
        self._of_the_lab = of_the_lab
        self._channels: dict[str, grpc.aio.Channel] = {}

    def channel(self, address: str) -> grpc.aio.Channel:
        """Return the channel to ``host:port``; it connects with its first call."""
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = open_channel(
                address, [*CHANNEL_OPTIONS, *agent_options(of_the_lab=self._of_the_lab)], self.security
            )
        return channel

    def broker(self, address: str) -> BrokerServiceAsyncStub:
        """Return a stub of the client plane of the broker at an address."""
        # The generated stub serves both kinds of channel; only its type stub distinguishes two classes.
        return cast("BrokerServiceAsyncStub", broker_service_pb2_grpc.BrokerServiceStub(self.channel(address)))

    def admin(self, address: str) -> AdminServiceAsyncStub:
        """Return a stub of the admin plane of the broker at an address."""
        return cast("AdminServiceAsyncStub", admin_service_pb2_grpc.AdminServiceStub(self.channel(address)))

    def replica_log(self, address: str) -> ReplicaLogServiceAsyncStub:
        """Return a stub that reads the replicas of the broker at an address."""
        channel = self.channel(address)
        return cast("ReplicaLogServiceAsyncStub", replica_log_service_pb2_grpc.ReplicaLogServiceStub(channel))

    async def discard(self, address: str) -> None:
        """Close the channel to an address, so that the next call connects again; running calls are cancelled."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()

    async def close(self) -> None:
        """Close all channels; running calls are cancelled."""
        channels, self._channels = list(self._channels.values()), {}
        for channel in channels:
            await channel.close()


def translate(error: grpc.RpcError, address: str) -> TidegaugeError:
    """Return a gRPC failure as a Kafka error that names the broker's address."""
    status = error.code() if isinstance(error, grpc.aio.AioRpcError) else grpc.StatusCode.UNKNOWN
    details = (error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)) or ""
    code = _CODES.get(status, ErrorCode.UNKNOWN_SERVER_ERROR)
    if details == _BROKEN_WHILE_WRITING:
        code = ErrorCode.NETWORK_EXCEPTION
    if code is ErrorCode.NETWORK_EXCEPTION:
        return Unreachable(address, details)
    if code is ErrorCode.REQUEST_TIMED_OUT:
        return LateError(address)
    if code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        return TidegaugeError(code, f"the credentials were not accepted by the broker at {address}: {details}")
    return TidegaugeError(code, f"the broker at {address} rejected the call: {details or status.name}")


async def call(
    method: grpc.aio.UnaryUnaryMultiCallable[Request, Response], request: Request, *, timeout_ms: float, address: str
) -> Response:
    """Make one call.

    Args:
        method: a method of a stub from ``Channels``.
        request: the request.
        timeout_ms: the deadline, including connecting.
        address: the broker's address, for the sentence of an error.

    Raises:
        TidegaugeError: NETWORK_EXCEPTION, REQUEST_TIMED_OUT, or the error with which the broker rejected the call.
    """
    try:
        return await method(request, timeout=timeout_ms / 1000)
    except grpc.aio.AioRpcError as error:
        raise translate(error, address) from None
