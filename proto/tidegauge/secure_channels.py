"""gRPC's credentials and channels by a ``Security``: plain text, or TLS."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc
import grpc.aio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.security import PLAIN, Security


def channel_credentials(security: Security) -> grpc.ChannelCredentials:
    """Return gRPC's credentials for a TLS client."""
    return grpc.ssl_channel_credentials(security.authorities, security.private_key, security.certificates)


def server_credentials(security: Security, *, needs_client_certificate: bool) -> grpc.ServerCredentials:
    """Return gRPC's credentials for a TLS listener.

    Raises:
        TidegaugeError: INVALID_CONFIG, what a listener needs is missing.
    """
    if security.certificates is None or security.private_key is None:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            "An SSL listener needs a private key and a certificate: write ssl.keystore.location=FILE.pem with both",
        )
    if needs_client_certificate and security.authorities is None:
        raise TidegaugeError(
            ErrorCode.INVALID_CONFIG,
            "ssl.client.auth=required needs the authorities to trust: write ssl.truststore.location=FILE",
        )
    return grpc.ssl_server_credentials(
        [(security.private_key, security.certificates)],
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
