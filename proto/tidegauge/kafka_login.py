"""Authentication of a connection to a Kafka listener, by SASL: once when it begins, and again before its session ends.

SaslHandshake names the mechanism, and SaslAuthenticate carries its tokens (KIP-43, KIP-152). The response to the last
token says how long the session lasts (KIP-368).
Source: ``SaslClientAuthenticator``.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import BROKER_PROTOCOL, SASL_AUTHENTICATE, SASL_HANDSHAKE, Protocol
from tidegauge.kafka_connection import KafkaConnection
from tidegauge.sasl_client import AuthenticationFailed, Login

_NONCE_BYTES = 18
_HANDSHAKE_VERSION = 1


async def log_in(
    connection: KafkaConnection,
    versions: Mapping[int, tuple[int, int]],
    login: Login,
    now_ms: int,
    protocol: Protocol = BROKER_PROTOCOL,
) -> int:
    """Authenticate a connection.

    Args:
        connection: no other request may be sent meanwhile.
        versions: the peer's lowest and highest version of each API.
        login: the credentials.
        now_ms: wall clock.
        protocol: the connection's.

    Returns:
        How long the session lasts, in ms; 0: without a limit.

    Raises:
        AuthenticationFailed: the peer refuses, or its own proof is wrong.
        TidegaugeError: NETWORK_EXCEPTION, the connection ended.
    """
    version = min(versions.get(SASL_AUTHENTICATE, (0, -1))[1], protocol.apis[SASL_AUTHENTICATE].last)
    if version < 0 or versions.get(SASL_HANDSHAKE, (0, -1))[1] < _HANDSHAKE_VERSION:
        raise AuthenticationFailed("the peer does not serve SASL by SaslAuthenticate")
    asked = protocol.message_class(SASL_HANDSHAKE, response=False)(login.mechanism)
    shaken = await connection.send(SASL_HANDSHAKE, _HANDSHAKE_VERSION, asked)
    if shaken.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise AuthenticationFailed(
            f"the peer does not take {login.mechanism}; it takes {', '.join(sorted(shaken.mechanisms)) or 'none'}"
        )
    if shaken.error_code:
        raise AuthenticationFailed(f"the peer refuses the handshake: {ErrorCode.of(shaken.error_code).name}")
    exchange = login.exchange(now_ms, secrets.token_urlsafe(_NONCE_BYTES))
    token, lifetime_ms = exchange.respond(None), 0
    while token is not None:
        message = protocol.message_class(SASL_AUTHENTICATE, response=False)(token)
        response = await connection.send(SASL_AUTHENTICATE, version, message)
        if response.error_code:
            raise AuthenticationFailed(response.error_message or ErrorCode.of(response.error_code).name)
        lifetime_ms = response.session_lifetime_ms
        token = exchange.respond(bytes(response.auth_bytes))
    return int(lifetime_ms)
