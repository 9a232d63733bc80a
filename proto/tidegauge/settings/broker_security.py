"""Broker settings of TLS and of limits on connections: Kafka's names and defaults, but for PEM in place of JKS.

Source: Kafka's BrokerSecurityConfigs, SslConfigs, SocketServerConfigs; docs/security.md.
"""

from __future__ import annotations

from tidegauge.settings.model import INT_MAX
from tidegauge.settings.tables import text, whole

PATHS = ("ssl.keystore.location", "ssl.truststore.location")
"""Settings that name a file."""

OF_LISTENERS = ("max.connections", "max.connection.creation.rate")
"""Settings that one listener can have of its own, as ``listener.name.NAME.SETTING``."""

SECURITY_SETTINGS = (
    text(
        "security.inter.broker.protocol",
        None,
        "Protocol that brokers use among themselves, where inter.broker.listener.name is absent; absent: PLAINTEXT.",
        ("PLAINTEXT", "SSL"),
    ),
    text("ssl.keystore.type", "PEM", "Format of the keystore (Kafka's default is JKS).", ("PEM",)),
    text("ssl.keystore.location", None, "File with the broker's private key and certificate chain."),
    text(
        "ssl.keystore.certificate.chain",
        None,
        "Certificate chain itself, in place of a file.",
        is_sensitive=True,
    ),
    text("ssl.keystore.key", None, "Private key itself, in place of a file; not encrypted.", is_sensitive=True),
    text("ssl.truststore.type", "PEM", "Format of the truststore (Kafka's default is JKS).", ("PEM",)),
    text("ssl.truststore.location", None, "File with the certificates of the trusted authorities."),
    text("ssl.truststore.certificates", None, "Those certificates themselves, in place of a file.", is_sensitive=True),
    text(
        "ssl.client.auth",
        "none",
        "Whether clients, and other brokers, must present a certificate.",
        ("none", "required"),
    ),
    whole(
        "max.connections",
        INT_MAX,
        "",
        "Maximum connections; others wait. With listener.name.NAME. before it: of one listener.",
        1,
    ),
    whole("max.connections.per.ip", INT_MAX, "", "Maximum connections from one address; more are closed.", 1),
    whole(
        "max.connection.creation.rate",
        INT_MAX,
        "",
        "Connections a second that all Kafka listeners accept; with listener.name.NAME. before it: one listener.",
        0,
        update="cluster-wide",
    ),
)
