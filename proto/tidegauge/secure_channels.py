"""gRPC's credentials and channels by a ``Security``: plain text, or TLS, with a credential in each call or without.

A login without TLS is for Kafka listeners only: gRPC sends no credential in plain text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from tidegauge.call_credentials import check_for_calls, metadata_of
from tidegauge.sasl_client import Login
from tidegauge.security import PLAIN, Security, key_of_listener


class _Authorization(grpc.AuthMetadataPlugin):
    """Gives each call of a channel its credential; gRPC asks in threads of its own."""

    def __init__(self, login: Login) -> None:
        check_for_calls(login)
        self._login = login

    def __call__(self, context: grpc.AuthMetadataContext, callback: grpc.AuthMetadataPluginCallback) -> None:
        """Hand over the metadata."""
        del context
        callback(metadata_of(self._login, time.time_ns() // 1_000_000), None)


def channel_credentials(security: Security) -> grpc.ChannelCredentials:
    """Return gRPC's credentials for a TLS client.

    Raises:
        TidegaugeError: INVALID_CONFIG, calls can't carry the login.
    """
    connection = grpc.ssl_channel_credentials(security.authorities, security.private_key, security.certificates)
    if security.login is None:
        return connection
    calls = grpc.metadata_call_credentials(_Authorization(security.login), "tidegauge")
    return grpc.composite_channel_credentials(connection, calls)


def server_credentials(security: Security, *, needs_client_certificate: bool) -> grpc.ServerCredentials:
    """Return gRPC's credentials for a TLS listener.

    Raises:
        TidegaugeError: INVALID_CONFIG, what a listener needs is missing.
    """
    own = key_of_listener(security, needs_client_certificate=needs_client_certificate)
    return grpc.ssl_server_credentials(
        [own],
        security.authorities if needs_client_certificate else None,
        require_client_auth=needs_client_certificate,
    )


def open_channel(address: str, options: Sequence[tuple[str, Any]], security: Security = PLAIN) -> grpc.aio.Channel:
    """Return an asynchronous channel to ``host:port``, with TLS if ``security`` asks for it."""
    if not security.is_tls:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, channel_credentials(security), options=options)


def open_blocking_channel(address: str, options: Sequence[tuple[str, Any]], security: Security = PLAIN) -> grpc.Channel:
    """Return a synchronous channel to ``host:port``, with TLS if ``security`` asks for it."""
    if not security.is_tls:
        return grpc.insecure_channel(address, options=options)
    return grpc.secure_channel(address, channel_credentials(security), options=options)
