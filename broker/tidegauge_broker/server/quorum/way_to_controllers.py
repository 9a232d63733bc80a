"""The connections of a KRaft cluster's node to the controllers' listeners: TLS, and credentials of its own.

The protocol is the protocol of the first of ``controller.listener.names``. ``sasl.mechanism.controller.protocol``
gives the mechanism, and the listener's JAAS entry the credentials, as among brokers.
Source: ``KafkaRaftManager.buildNetworkClient``, ``NodeToControllerChannelManagerImpl``.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.kafka_channel import Dialer
from tidegauge.listeners import SSL, WITH_SASL, WITH_TLS
from tidegauge.sasl_client import Login
from tidegauge.security import PLAIN, Security, security_of
from tidegauge.settings import Values
from tidegauge_broker.server.quorum.node_settings import NodeSettings

_MECHANISM = "sasl.mechanism.controller.protocol"


class Way(NamedTuple):
    """A node's connections: what opens them, and its credentials; None: the listener asks for none."""

    dial: Dialer
    login: Login | None


PLAIN_WAY = Way(Dialer(PLAIN), None)


def way_to_controllers(node: NodeSettings) -> Way:
    """Return how a node connects to controllers.

    Raises:
        TidegaugeError: INVALID_CONFIG, a certificate, a key or the credentials can't be read.
    """
    security = tls_of(node.values) if node.protocol in WITH_TLS else PLAIN
    return Way(Dialer(security), login_of(node) if node.protocol in WITH_SASL else None)


def tls_of(values: Values) -> Security:
    """Return the certificates of a node.

    Raises:
        TidegaugeError: INVALID_CONFIG, one can't be read.
    """
    return security_of({name: values[name] for name in values.table if name.startswith("ssl.")}, SSL)


def login_of(node: NodeSettings) -> Login:
    """Return a node's own credentials at the controllers.

    Raises:
        TidegaugeError: INVALID_CONFIG, there are none.
    """
    mechanism, values = node.values.text(_MECHANISM), node.values
    otherwise = values.of_listener(node.listener_name, "sasl.jaas.config", values.text("sasl.jaas.config"))
    jaas = values.of_listener(f"{node.listener_name}.{mechanism}", "sasl.jaas.config", otherwise)
    setting = f"listener.name.{node.listener_name.lower()}.{mechanism.lower()}.sasl.jaas.config"
    try:
        return Login.of(mechanism, jaas)
    except TidegaugeError as problem:
        why = f"This node can't log in at controllers by {_MECHANISM}={mechanism}: {setting}: {problem.message}"
        raise TidegaugeError(problem.code, why) from None
