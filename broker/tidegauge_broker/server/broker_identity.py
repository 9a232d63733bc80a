"""A broker's id, and its addresses and credentials among the other brokers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidegauge.control import Endpoint
from tidegauge.listeners import WITH_TLS, Listeners
from tidegauge.sasl_client import Login
from tidegauge.security import PLAIN, Security


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """A broker's id, listeners, rack and credentials, as its server.properties has them.

    Attributes:
        listeners: the addresses that are bound, and those that are advertised by server.properties.
        rack: ``broker.rack``; None if it is not set.
        security: certificates and key of its TLS listeners; plain if it has none.
        logins: its credentials at the other brokers' listeners, by the listener's name; those without ask for none.
    """

    broker_id: int
    listeners: Listeners
    rack: str | None
    security: Security = PLAIN
    logins: Mapping[str, Login] = field(default_factory=dict)

    @property
    def to_brokers(self) -> Security:
        """Security of its gRPC connections to other brokers."""
        return self._to(self.listeners.grpc_among_brokers.name)

    @property
    def to_brokers_over_kafka(self) -> Security:
        """Security of its connections to other brokers that speak Kafka's protocol."""
        return self._to((self.listeners.kafka_among_brokers or self.listeners.inter_broker).name)

    def _to(self, listener: str) -> Security:
        """Return the security of connections to other brokers' listeners of this name."""
        security = self.security if self.listeners.protocols[listener] in WITH_TLS else PLAIN
        return replace(security, login=self.logins.get(listener))

    @property
    def endpoint(self) -> Endpoint:
        """Its address for other brokers."""
        at = self.listeners.control_plane
        advertised, protocols = self.listeners.advertised, self.listeners.protocols
        return Endpoint(self.broker_id, at.host, at.port, self.rack, advertised, protocols)
