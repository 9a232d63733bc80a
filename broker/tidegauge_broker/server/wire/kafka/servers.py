"""The sockets of a broker's Kafka listeners, and the limits on their connections.

Rules (Kafka's SocketServer and ConnectionQuotas):
    1. ``max.connections``, of the broker and of each listener: ``wire.connection_slots``. A connection above
       ``max.connections.per.ip`` is closed as it is accepted.
    2. ``connections.max.idle.ms``: a connection without a request for that long is closed; one whose request is in
       flight is not idle.
    3. ``max.connection.creation.rate``: ``acceptor.py``.
"""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Callable

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import Protocol
from tidegauge.kafka.frames import RequestHeader
from tidegauge.listeners import KAFKA, WITH_SASL, WITH_TLS, Listener, Listeners
from tidegauge.logical_clock import LogicalClock
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge.security import Security
from tidegauge.settings import INT_MAX, Values
from tidegauge_broker.server.periodic import Periodic
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.pending_responses import PendingResponses
from tidegauge_broker.server.wire.client_certificates import ClientCertificates, NoPrincipal
from tidegauge_broker.server.wire.connection_rates import ConnectionRates
from tidegauge_broker.server.wire.connection_slots import ConnectionSlots
from tidegauge_broker.server.wire.kafka.acceptor import Acceptor
from tidegauge_broker.server.wire.kafka.by_mode import Serving
from tidegauge_broker.server.wire.kafka.callers import is_of_broker
from tidegauge_broker.server.wire.kafka.connection import KafkaConnection
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.sasl_connection import SaslConnection
from tidegauge_broker.server.wire.kafka.served import guarded
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache
from tidegauge_broker.server.wire.kafka.throttling import RequestQuotas
from tidegauge_broker.server.wire.kafka.turns import Turns
from tidegauge_broker.server.wire.limits import Limits
from tidegauge_broker.server.wire.sasl_listener import SaslListener

LOG = logging.getLogger("tidegauge.kafka")
_LOOKS_PER_IDLE_TIME = 4
_EXCESS_EVERY_MS = 200


class KafkaServers:
    """Listeners that speak Kafka's protocol.

    Args:
        listeners: those that speak Kafka's protocol are bound.
        service: handles requests.
        settings: of the broker.
        security: certificate and key for the listeners with TLS.
        now_ms: the broker's clock.
        limits: on connections and requests.
        rates: how fast connections are accepted.
        slots: how many connections there may be.
        logical_clock: the broker's; goes with the requests of brokers.
        serving: the APIs, by the broker's mode.
    """

    def __init__(
        self,
        listeners: Listeners,
        service: BrokerService,
        settings: Values,
        security: Security,
        now_ms: Callable[[], int],
        limits: Limits,
        rates: ConnectionRates,
        slots: ConnectionSlots,
        logical_clock: LogicalClock,
        serving: Serving,
    ) -> None:
        session_count = settings.integer("max.incremental.fetch.session.cache.slots")
        turns = Turns()
        sessions = FetchSessionCache(session_count, lambda: random.randint(1, INT_MAX))
        self._listeners = [
            _KafkaListener(
                one,
                ClientCertificates(one.name, listeners.protocols[one.name], settings)
                if listeners.protocols[one.name] in WITH_TLS
                else None,
                security,
                SaslListener(one.name, settings, service.configs.users.credential, wall=service.wall)
                if listeners.protocols[one.name] in WITH_SASL
                else None,
                service,
                limits,
                sessions,
                turns,
                now_ms,
                rates,
                slots,
                logical_clock if one.name == listeners.inter_broker.name else None,
                serving,
                serves_controller=one.name == listeners.control_plane.name,
            )
            for one in listeners.bound_by(KAFKA)
        ]
        self._idle_ms = limits.idle_ms
        self._slots = slots
        self._protected = listeners.inter_broker.name
        self._tasks: list[Periodic] = []

    def close_connection(self, name: str) -> bool:
        """Close the connection of this name (``Caller.connection``); return whether it is one of these listeners."""
        for listener in self._listeners:
            for connection in listener.connections:
                if connection.caller.connection == name:
                    connection.abort()
                    return True
        return False

    async def start(self) -> None:
        """Bind; connections are refused until ``open``.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, an address can't be bound.
        """
        for listener in self._listeners:
            await listener.bind()
        if self._listeners and self._idle_ms < INT_MAX:
            every_ms = max(1, self._idle_ms // _LOOKS_PER_IDLE_TIME)
            self._tasks.append(Periodic("idle connections", every_ms, self._close_idle))
        if self._listeners and self._slots.has_limit:
            self._tasks.append(Periodic("excess connections", _EXCESS_EVERY_MS, self._close_excess))

    def open(self, *, to_controller: bool) -> None:
        """Serve the listener at which controllers reach the broker, or the others.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, another process listens at an address.
        """
        for listener in self._listeners:
            if listener.serves_controller == to_controller:
                listener.open()

    async def stop(self) -> None:
        """Accept nothing more, and close all connections."""
        for task in self._tasks:
            await task.close()
        for listener in self._listeners:
            await listener.stop()

    def counts(self) -> dict[str, int]:
        """Return the number of open connections by the listener's name."""
        return {listener.name: len(listener.connections) for listener in self._listeners}

    async def _close_idle(self) -> None:
        for listener in self._listeners:
            listener.close_idle(self._idle_ms)

    async def _close_excess(self) -> None:
        """Close what the protected listener leaves no room for (``Processor.closeExcessConnections``)."""
        unprotected = [
            connection
            for listener in self._listeners
            if listener.name != self._protected
            for connection in listener.connections
        ]
        for connection in sorted(unprotected, key=lambda one: one.used_ms)[: self._slots.excess()]:
            LOG.info("Closing the connection of /%s: more than max.connections are open", connection.peer_host)
            connection.close()


class _KafkaListener:
    """One address, and the connections that came through it."""

    def __init__(
        self,
        at: Listener,
        certificates: ClientCertificates | None,
        security: Security,
        sasl: SaslListener | None,
        service: BrokerService,
        limits: Limits,
        sessions: FetchSessionCache,
        turns: Turns,
        now_ms: Callable[[], int],
        rates: ConnectionRates,
        slots: ConnectionSlots,
        logical_clock: LogicalClock | None,
        serving: Serving,
        *,
        serves_controller: bool,
    ) -> None:
        self.logical_clock = logical_clock
        self.serves_controller = serves_controller
        self.serves_brokers = logical_clock is not None
        self.protocol = serving.protocol
        self._of_clients = serving.of_clients
        self.served = serving.apis
        self.handlers = guarded(serving.handlers, service.configs.acls, serving.apis)
        self.max_request_bytes = limits.request_bytes
        self.connections: set[KafkaConnection] = set()
        self.name = at.name
        self.gate = service.gate
        self.turns = turns
        self.responded = service.responded
        self.responses: PendingResponses | None = service.responses
        self._at = at
        self._service = service
        self._sessions = sessions
        self._quotas = service.configs.quotas_in_force
        self._now_ms = now_ms
        self._slots = slots
        self._max_per_ip = limits.connections_per_ip
        self._per_ip: Counter[str] = Counter()
        self._sasl = sasl
        self._certificates = certificates
        tls = None if certificates is None else certificates.context(security)
        self._acceptor = Acceptor(at, tls, rates, slots, now_ms, self._connection)

    def _connection(self) -> KafkaConnection:
        if self._sasl is None:
            return KafkaConnection(self, self._now_ms)
        return SaslConnection(self, self._now_ms, self._sasl)

    def protocol_of(self, header: RequestHeader) -> Protocol:
        """Return the protocol of a request; see ``Owner``."""
        return self.protocol if self._of_clients is None or is_of_broker(header) else self._of_clients

    def context(self, connection: KafkaConnection, header: RequestHeader) -> Context:
        """Return what a handler is given."""
        context = Context(self._service, connection.caller, self._sessions, self._now_ms, header)
        if self._quotas.are_set:
            user = connection.caller.principal.name
            context.quotas = RequestQuotas(
                self._quotas.managers,
                user,
                header,
                self._now_ms,
                connection.mute,
                is_exempt=self.served[header.key].is_exempt,
            )
        return context

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        """Return the principal of a client's DER certificate; None: not served."""
        if self._certificates is None or self._sasl is not None:
            return ANONYMOUS
        try:
            return self._certificates.principal(certificate)
        except NoPrincipal as problem:
            LOG.info("%s", problem)
            return None

    def opened(self, connection: KafkaConnection) -> bool:
        """Count a connection; False: there are too many."""
        host = connection.peer_host
        self.connections.add(connection)
        self._per_ip[host] += 1
        if self._per_ip[host] > self._max_per_ip:
            LOG.info(
                "Rejected connection from /%s, address already has the configured maximum of %d connections "
                "(max.connections.per.ip).",
                host,
                self._max_per_ip,
            )
            return False
        return True

    def closed(self, connection: KafkaConnection) -> None:
        """Forget a connection."""
        if connection in self.connections:
            self.connections.remove(connection)
            if self._service.share is not None:
                self._service.share.connection_closed(connection.caller.connection)
            self._slots.release(self.name)
            self._per_ip[connection.peer_host] -= 1
            if not self._per_ip[connection.peer_host]:
                del self._per_ip[connection.peer_host]

    async def bind(self) -> None:
        """Bind the address."""
        try:
            await self._acceptor.bind()
        except OSError as problem:
            raise self._is_taken(problem) from None

    def open(self) -> None:
        """Accept connections."""
        try:
            self._acceptor.accept()
        except OSError as problem:
            raise self._is_taken(problem) from None

    def _is_taken(self, problem: OSError) -> TidegaugeError:
        return TidegaugeError(
            ErrorCode.NETWORK_EXCEPTION,
            f"{self._at.address} can't be bound ({problem.strerror}): another process listens there, or the "
            "address is not this machine's; free the port or give another with "
            f"listeners={self._at.name}://HOST:PORT",
        )

    async def stop(self) -> None:
        """Close the address and all connections."""
        await self._acceptor.stop()
        for connection in list(self.connections):
            connection.close()

    def close_idle(self, idle_ms: int) -> None:
        """Close connections that had no request for ``idle_ms``."""
        latest_ms = self._now_ms() - idle_ms
        for connection in [one for one in self.connections if one.is_idle and one.used_ms <= latest_ms]:
            connection.close()
