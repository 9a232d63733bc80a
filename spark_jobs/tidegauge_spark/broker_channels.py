"""Blocking gRPC channels to brokers, one for each address, and which brokers have failed recently.

- A channel that failed is closed and opened again, so that no reconnect back-off outlives the broker's restart.
- No channel exists before the first call, and none is used by a process that did not open it: gRPC and fork do not mix.
"""

from __future__ import annotations

from collections.abc import Callable

import grpc

from tidegauge.channel_options import RECONNECT_OPTIONS
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.handshakes import client_reason
from tidegauge.host_addresses import host_in
from tidegauge.secure_channels import open_blocking_channel
from tidegauge.security import Security, security_of
from tidegauge.v1 import broker_service_pb2_grpc
from tidegauge_spark.options import ConnectionOptions, SecurityProperties

CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    *RECONNECT_OPTIONS,
    ("grpc.enable_http_proxy", 0),
)


def security_from(properties: SecurityProperties) -> Security:
    """Return the security settings of the options, with the texts of the files that they name.

    Raises:
        TidegaugeError: INVALID_CONFIG, one can't be read or used.
    """
    known = dict(properties)
    return security_of(known, known.get("security.protocol", "PLAINTEXT"))


class BrokerChannels:
    """The channels of one client, by the address (host:port) of the broker.

    Args:
        options: the client's: its security settings and its timeouts.
        monotonic: a clock, in seconds.
    """

    def __init__(self, options: ConnectionOptions, monotonic: Callable[[], float]) -> None:
        self._options = options
        self._monotonic = monotonic
        self._channels: dict[str, grpc.Channel] = {}
        self._security: Security | None = None
        self._failed_at: dict[str, float] = {}

    def close(self) -> None:
        """Close all channels; they are opened again when they are needed."""
        for address in list(self._channels):
            self._drop(address)

    def stub(self, address: str) -> broker_service_pb2_grpc.BrokerServiceStub:
        """Return the stub of a broker, on the channel that is open or on a new one.

        Raises:
            TidegaugeError: INVALID_CONFIG, the security settings can't be used on this machine.
        """
        channel = self._channels.get(address)
        if channel is None:
            if self._security is None:  # read when first needed: on the machine that connects
                self._security = security_from(self._options.security)
            channel = open_blocking_channel(address, CHANNEL_OPTIONS, self._security)
            self._channels[address] = channel
        return broker_service_pb2_grpc.BrokerServiceStub(channel)

    def call_failed(self, address: str, error: grpc.RpcError) -> str:
        """Note that a call failed, close its channel, and return the reason as the rest of a sentence.

        Raises:
            TidegaugeError: SASL_AUTHENTICATION_FAILED, the broker has refused the credentials.
        """
        self._drop(address)
        self._failed_at[address] = self._monotonic()
        if error.code() is grpc.StatusCode.UNAUTHENTICATED:
            words = f"The credentials were not accepted by the broker at {address}: {error.details()}"
            raise TidegaugeError(ErrorCode.SASL_AUTHENTICATION_FAILED, words)
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return (
                f"at {address} did not respond in time (kafka.request.timeout.ms is {self._options.request_timeout_ms})"
            )
        reason = client_reason(str(error.details()), host_in(address))
        return f"at {address} failed: {reason or f'{error.code().name} {error.details()}'}"

    def has_failed_since(self, address: str, moment: float) -> bool:
        """Return whether a call to a broker has failed after a moment of the clock."""
        return self._failed_at.get(address, moment) > moment

    def _drop(self, address: str) -> None:
        channel = self._channels.pop(address, None)
        if channel is not None:
            channel.close()
