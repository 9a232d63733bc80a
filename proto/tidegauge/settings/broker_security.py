"""Broker settings of TLS, SASL and limits on connections: Kafka's names and defaults, with PEM in place of JKS.

Source: Kafka's BrokerSecurityConfigs, SslConfigs, SocketServerConfigs; docs/security.md.
"""

from __future__ import annotations

from tidegauge.settings.model import INT_MAX
from tidegauge.settings.tables import flag, long, names, text, whole

PATHS = ("ssl.keystore.location", "ssl.truststore.location")
"""Settings that name a file."""

OF_LISTENERS = (
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
    "max.connections",
    "max.connection.creation.rate",
    "sasl.enabled.mechanisms",
    "sasl.jaas.config",
    "connections.max.reauth.ms",
)
"""Settings that one listener can have of its own, as ``listener.name.NAME.SETTING``.

The last two can have it for one mechanism of a listener too, as ``listener.name.NAME.MECHANISM.SETTING``.
"""

SECURITY_SETTINGS = (
    text(
        "security.inter.broker.protocol",
        None,
        "Protocol that brokers use among themselves, if inter.broker.listener.name is absent; absent: PLAINTEXT.",
        ("PLAINTEXT", "SSL", "SASL_SSL"),
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
        "Whether clients, and other brokers, must present a certificate; over gRPC requested is none.",
        ("none", "requested", "required"),
    ),
    text(
        "ssl.principal.mapping.rules",
        "DEFAULT",
        "How a certificate's subject becomes a principal on SSL listeners: RULE:pattern/replacement/[LU],...,DEFAULT.",
    ),
    names(
        "sasl.enabled.mechanisms",
        ("GSSAPI",),
        "SASL mechanisms of SASL listeners; GSSAPI, Kafka's default, is not served, so they must be named.",
        update="per-broker",
    ),
    text(
        "sasl.mechanism.inter.broker.protocol",
        "GSSAPI",
        "SASL mechanism of brokers among themselves, if their listener has SASL; one that is enabled.",
    ),
    text(
        "sasl.jaas.config",
        None,
        "PLAIN's users, other mechanisms' options; with listener.name.NAME.MECHANISM. before it: of one of a listener.",
        is_sensitive=True,
    ),
    long(
        "connections.max.reauth.ms",
        0,
        "ms",
        "Longest SASL session: the client authenticates again, or its connection is closed (KIP-368). 0: no limit.",
    ),
    whole(
        "connection.failed.authentication.delay.ms",
        100,
        "ms",
        "How long the response to a failed SASL authentication, and the close, are delayed.",
        0,
    ),
    long(
        "sasl.kerberos.min.time.before.relogin",
        60_000,
        "ms",
        "Time between two logins at Kerberos, which is not served.",
        update="per-broker",
        has_effect=False,
    ),
    whole("sasl.server.max.receive.size", 524_288, "bytes", "Largest frame of a client that is not authenticated."),
    text(
        "authorizer.class.name",
        "",
        "Authorizer, except on open gRPC listeners, by the lists of /kafka-acl; empty: all is allowed.",
        ("", "kafka.security.authorizer.AclAuthorizer"),
    ),
    text("super.users", None, "Principals that may do everything, with semicolons between them: User:admin;User:b."),
    flag("allow.everyone.if.no.acl.found", False, "Whether a resource without any list may be used by everyone."),
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
