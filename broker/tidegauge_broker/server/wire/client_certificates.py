"""Certificates of clients on the listeners with TLS: whether they are asked for, and which principal they give.

Rules (Kafka's SslFactory, ChannelBuilders, DefaultKafkaPrincipalBuilder):
    1. ``ssl.client.auth`` is ``none``, ``requested`` (a client may have none; one that it has must be trusted) or
       ``required``, by listener if ``listener.name.NAME.ssl.client.auth`` is set.
    2. On SASL_SSL listeners the setting counts only if it is the listener's own: clients prove themselves by SASL.
    3. On SSL listeners the principal is what ``ssl.principal.mapping.rules`` make of the certificate's subject;
       ``User:ANONYMOUS`` without a certificate.
    4. gRPC's library knows no certificate that may be absent: ``requested`` is ``none`` there.
"""

from __future__ import annotations

import ssl

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import SASL_SSL
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge.security import Security, key_of_listener, server_context
from tidegauge.settings import Values
from tidegauge_broker.security.distinguished_name import MalformedCertificate, subject_of
from tidegauge_broker.security.ssl_principal_mapper import NoMatchingRule, SslPrincipalMapper

CLIENT_AUTH = "ssl.client.auth"
MAPPING_RULES = "ssl.principal.mapping.rules"
NONE, REQUESTED, REQUIRED = "none", "requested", "required"
_VERIFY = {NONE: ssl.CERT_NONE, REQUESTED: ssl.CERT_OPTIONAL, REQUIRED: ssl.CERT_REQUIRED}


class NoPrincipal(Exception):
    """A client's certificate gives no principal; its connection is closed."""


class ClientCertificates:
    """The rules of one listener with TLS; see the module.

    Args:
        name: the listener's.
        protocol: SSL or SASL_SSL.
        settings: the broker's.

    Raises:
        TidegaugeError: INVALID_CONFIG, a mapping rule is malformed.
    """

    def __init__(self, name: str, protocol: str, settings: Values) -> None:
        otherwise = NONE if protocol == SASL_SSL else settings.text(CLIENT_AUTH)
        self.client_auth = str(settings.of_listener(name, CLIENT_AUTH, otherwise))
        rules = str(settings.of_listener(name, MAPPING_RULES, settings.text(MAPPING_RULES)))
        try:
            self._mapper = SslPrincipalMapper(rules)
        except ValueError as problem:
            raise TidegaugeError(
                ErrorCode.INVALID_CONFIG, f"Invalid value for configuration {MAPPING_RULES}: {problem}"
            ) from None

    @property
    def are_required(self) -> bool:
        """Whether a client without a certificate is refused; gRPC's listeners know nothing else (rule 4)."""
        return self.client_auth == REQUIRED

    def context(self, security: Security) -> ssl.SSLContext:
        """Return the TLS context of a listener that speaks Kafka's protocol.

        Raises:
            TidegaugeError: INVALID_CONFIG, a certificate or an authority is missing.
        """
        key_of_listener(security, needs_client_certificate=self.are_required)
        return server_context(security, _VERIFY[self.client_auth])

    def principal(self, certificate: bytes | None) -> Principal:
        """Return the principal of a client; rule 3.

        Args:
            certificate: the client's, in DER; None: it has presented none.

        Raises:
            NoPrincipal: see there.
        """
        if not certificate:
            return ANONYMOUS
        try:
            subject = subject_of(certificate)
        except MalformedCertificate as problem:
            raise NoPrincipal(f"The certificate's subject can't be read: {problem}") from None
        try:
            return self._mapper.principal(subject)
        except NoMatchingRule as problem:
            raise NoPrincipal(
                f"Failed to map name for '{subject}' based on SSL principal mapping rules: {problem}"
            ) from None
