"""SaslHandshake (17), versions 0-1, and SaslAuthenticate (36), versions 0-2, if no authentication is in progress.

That is on a listener without SASL, and after the authentication (``sasl_connection`` has what comes before): both get
ILLEGAL_SASL_STATE. Source: ``KafkaApis.handleSaslHandshakeRequest`` and
``handleSaslAuthenticateRequest``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidegauge.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_WHY = "SaslAuthenticate request received after successful authentication"


def handshake(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    """Refuse."""
    del request, context
    return SaslHandshakeResponse(ErrorCode.ILLEGAL_SASL_STATE)


def authenticate(request: SaslAuthenticateRequest, context: Context) -> SaslAuthenticateResponse:
    """Refuse."""
    del request, context
    return SaslAuthenticateResponse(ErrorCode.ILLEGAL_SASL_STATE, _WHY)


SERVED_APIS = (
    ServedApi(apis.SASL_HANDSHAKE, handshake, guard=None),
    ServedApi(apis.SASL_AUTHENTICATE, authenticate, guard=None),
)
