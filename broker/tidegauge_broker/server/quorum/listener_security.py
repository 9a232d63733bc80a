"""The security of a controller's listener: certificates, credentials, or nothing.

By SCRAM a controller admits the users in the committed metadata. While it has none - before the quorum's first leader,
or after a start until there is one - no client can log in, other controllers neither: so several controllers use PLAIN
among themselves, or certificates. Brokers and tools may use SCRAM (KIP-900).
Source: ``ControllerServer``, ``SocketServer``, ``ScramPublisher``.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidegauge.cluster_metadata.credentials import MECHANISMS, ScramCredential
from tidegauge.listeners import WITH_SASL, WITH_TLS
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge.wall_time import WallTime
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_broker.server.quorum.way_to_controllers import tls_of
from tidegauge_controller.metadata.image import CredentialKey, MetadataImage

if TYPE_CHECKING:
    from tidegauge_broker.server.wire.client_certificates import ClientCertificates
    from tidegauge_broker.server.wire.sasl_listener import SaslListener

LOG = logging.getLogger("tidegauge.quorum")
_NUMBERS = {name: number for number, name in MECHANISMS.items()}


@dataclass(frozen=True, slots=True)
class ListenerSecurity:
    """The security of a controller's listener.

    Attributes:
        tls: of a listener with TLS.
        certificates: the rules for its clients' certificates.
        sasl: its mechanisms, if it has SASL.
    """

    tls: ssl.SSLContext | None = None
    certificates: ClientCertificates | None = None
    sasl: SaslListener | None = None

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        """Return the principal of a client's DER certificate; None: not served."""
        if self.certificates is None or self.sasl is not None:
            return ANONYMOUS
        from tidegauge_broker.server.wire.client_certificates import NoPrincipal  # noqa: PLC0415 - as below

        try:
            return self.certificates.principal(certificate)
        except NoPrincipal as problem:
            LOG.info("%s", problem)
            return None


OPEN = ListenerSecurity()


def security_of_listener(
    node: NodeSettings, listener: str, image: Callable[[], MetadataImage], wall: WallTime
) -> ListenerSecurity:
    """Return the security of one of a controller's listeners.

    Args:
        node: the controller's settings.
        listener: its name.
        image: returns the committed image.
        wall: how far the wall clock is ahead of the process's own.

    Raises:
        TidegaugeError: INVALID_CONFIG, a certificate is missing, or no client could authenticate itself.
    """
    protocol = node.protocols[listener]
    tls = certificates = sasl = None
    if protocol in WITH_TLS:
        from tidegauge_broker.server.wire.client_certificates import ClientCertificates  # noqa: PLC0415 - few have TLS

        security = tls_of(node.values)
        certificates = ClientCertificates(listener, protocol, node.values)
        tls = certificates.context(security)
    if protocol in WITH_SASL:
        from tidegauge_broker.server.wire.sasl_listener import SaslListener  # noqa: PLC0415 - as above

        sasl = SaslListener(
            listener, node.values, lambda mechanism, user: credential_in(image(), mechanism, user), wall=wall
        )
    return ListenerSecurity(tls, certificates, sasl)


def credential_in(image: MetadataImage, mechanism: str, user: str) -> ScramCredential | None:
    """Return a user's SCRAM credential by an image, or None."""
    found: ScramCredential | None = image.credentials.get(CredentialKey(_NUMBERS[mechanism], user))
    return found
