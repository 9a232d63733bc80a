"""The listeners of a broker: starts the parts of each one's wire, counts connections, and holds the limits.

``listener.wire.protocol.map`` gives the wire of a listener. Common parts of all of them are here: one set of
limits, one count of connections, one way to close a connection by its name, and the order in which they start and stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import grpc

from tidegauge.listeners import SASL_SSL, SSL, Listeners
from tidegauge.logical_clock import LogicalClock
from tidegauge.secure_channels import server_credentials
from tidegauge.security import Security
from tidegauge.settings import Values
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.wire.authorized_calls.calls import AuthorizedCalls
from tidegauge_broker.server.wire.client_certificates import REQUIRED, ClientCertificates
from tidegauge_broker.server.wire.connection_rates import ConnectionRates
from tidegauge_broker.server.wire.connection_slots import ConnectionSlots
from tidegauge_broker.server.wire.grpc import authentication
from tidegauge_broker.server.wire.grpc.offered_services import READY_SERVICE, OfferedServices
from tidegauge_broker.server.wire.grpc.servers import STOP_GRACE_SECONDS, RpcServers
from tidegauge_broker.server.wire.kafka.by_mode import Serving
from tidegauge_broker.server.wire.kafka.servers import KafkaServers
from tidegauge_broker.server.wire.limits import Limits
from tidegauge_broker.server.wire.sasl_listener import SaslListener

LOG = logging.getLogger("tidegauge.broker")
_OPEN_LISTENER = (
    "The gRPC listener %s does not ask its callers who they are: whoever reaches it may do everything, whatever the "
    "access control lists say. Map it to SASL_SSL, or to SSL with ssl.client.auth=required, or bind it to 127.0.0.1"
)
_MAX_CONNECTIONS = "max.connections"
_COUNTED_EVERY_MS = 200
_METADATA_WAIT_MS = 60_000
_CREATION_RATE = "max.connection.creation.rate"


def _grpc_credentials(certificates: ClientCertificates, security: Security) -> grpc.ServerCredentials:
    return server_credentials(security, needs_client_certificate=certificates.are_required)


class _GrpcCallers:
    """The wrappers of a gRPC listener's calls: authentication of callers, and authorization.

    A listener knows its callers if they give credentials (SASL_SSL) or must present a certificate.
    """

    def __init__(
        self, listeners: Listeners, service: BrokerService, settings: Values, now_ms: Callable[[], int]
    ) -> None:
        self._protocols = listeners.protocols
        self._service = service
        self._configs = service.configs
        self._settings = settings
        self._now_ms = now_ms

    def certificates(self, name: str) -> ClientCertificates:
        """Return what a listener asks of its clients' certificates."""
        return ClientCertificates(name, self._protocols[name], self._settings)

    def _requires_certificate(self, name: str) -> bool:
        return self._protocols[name] == SSL and self.certificates(name).client_auth == REQUIRED

    def authenticated(self, name: str) -> authentication.Around | None:
        """Return the authentication of a listener's callers, or None if unknown."""
        if self._protocols[name] == SASL_SSL:
            users = self._configs.users
            sasl = SaslListener(name, self._settings, users.credential, users.iterations, wall=self._service.wall)
            return authentication.by_credential(sasl, self._now_ms)
        if self._requires_certificate(name):
            delay_ms = self._settings.integer("connection.failed.authentication.delay.ms")
            return authentication.by_certificate(self.certificates(name), delay_ms, self._now_ms)
        return None

    def authorized(self, name: str) -> authentication.Around | None:
        """Return the authorization of a listener's callers; None without lists."""
        acls = self._configs.acls
        if acls is None:
            return None
        if self._protocols[name] == SASL_SSL or self._requires_certificate(name):
            return AuthorizedCalls(acls, self._service, name, self._now_ms).around
        LOG.warning(_OPEN_LISTENER, name)
        return None


class WireListeners:
    """The listeners of a broker.

    Args:
        listeners: what to bind, and which wire each one speaks.
        service: handles requests.
        offered: the services of the gRPC listeners.
        settings: of the broker.
        security: certificates and key of the listeners with TLS.
        now_ms: the broker's clock.
        logical_clock: goes with the calls between brokers.
        rate_of_address: ``connection_creation_rate`` of an address.
        serving: the APIs of Kafka's protocol.
    """

    def __init__(
        self,
        listeners: Listeners,
        service: BrokerService,
        offered: OfferedServices,
        settings: Values,
        security: Security,
        now_ms: Callable[[], int],
        logical_clock: LogicalClock,
        rate_of_address: Callable[[str], int],
        serving: Serving,
    ) -> None:
        limits = Limits.of(settings)
        callers = _GrpcCallers(listeners, service, settings, now_ms)

        def connections_of(name: str) -> int:
            return int(settings.of_listener(name, _MAX_CONNECTIONS, limits.connections))

        self._offered = offered
        self._grpc = RpcServers(
            listeners,
            limits,
            (lambda name: _grpc_credentials(callers.certificates(name), security)) if security.is_tls else None,
            offered.add_to,
            logical_clock,
            service.responses,
            service.gate,
            service.responded,
            connections_of,
            callers.authenticated,
            callers.authorized,
        )
        self._counted: tuple[int, Mapping[str, int]] = (-_COUNTED_EVERY_MS, {})
        self._now_ms = now_ms
        rates = ConnectionRates(
            lambda: settings.integer(_CREATION_RATE),
            lambda name: int(settings.of_listener(name, _CREATION_RATE)),
            rate_of_address,
            listeners.inter_broker.name,
            service.configs.quotas_in_force.managers.produce.window,
        )
        slots = ConnectionSlots(
            limits.connections,
            connections_of,
            listeners.inter_broker.name if len(listeners.bound) > 1 else None,
            self._counts_of_grpc,
        )
        self._kafka = KafkaServers(
            listeners, service, settings, security, now_ms, limits, rates, slots, logical_clock, serving
        )
        service.responses.close_connection = self.close_connection

    async def start(self) -> None:
        """Bind all, and serve gRPC; the broker is healthy, and not ready yet.

        Listeners of Kafka clients refuse connections until ``open_to_controller`` and ``open_to_clients``.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, an address can't be bound.
        """
        await self._grpc.start()
        await self._kafka.start()
        await self._offered.set_health("", serving=True)
        await self.set_ready(is_ready=False)

    def open_to_controller(self) -> None:
        """Serve the Kafka listener at which controllers reach the broker, once it is registered.

        Kafka opens all its ports then (SocketServer.enableRequestProcessing).

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, another process listens at an address.
        """
        self._kafka.open(to_controller=True)

    async def open_to_clients(self, metadata: MetadataCache) -> None:
        """Serve the other Kafka listeners, once there is metadata too.

        A Metadata response without brokers makes librdkafka forget all brokers.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, another process listens at an address.
        """
        if not metadata.live_brokers():
            LOG.info("Kafka clients are refused until the controller has sent the cluster's metadata")
        while not metadata.live_brokers():
            await metadata.wait_changed(_METADATA_WAIT_MS)
        self._kafka.open(to_controller=False)

    async def set_ready(self, *, is_ready: bool) -> None:
        """Say whether the controller has sent all that the broker's registration brings."""
        await self._offered.set_health(READY_SERVICE, serving=is_ready)

    async def stop(self, grace_seconds: float | None = STOP_GRACE_SECONDS) -> None:
        """Stop serving; ``grace_seconds`` is the timeout of calls in flight."""
        await self._kafka.stop()
        await self._grpc.stop(grace_seconds)

    def counts(self) -> Mapping[str, int]:
        """Return the number of open connections by the listener's name."""
        return self._grpc.connections.counts() | self._kafka.counts()

    def _counts_of_grpc(self) -> Mapping[str, int]:
        """Return gRPC's open connections, counted now and then: it takes long."""
        counted_ms, counts = self._counted
        now_ms = self._now_ms()
        if now_ms - counted_ms >= _COUNTED_EVERY_MS:
            counts = self._grpc.connections.counts()
            self._counted = (now_ms, counts)
        return counts

    def close_connection(self, name: str) -> None:
        """Close the connection of this name (``Caller.connection``), whichever wire it speaks."""
        if not self._kafka.close_connection(name):
            self._grpc.connections.close_peer(name)
