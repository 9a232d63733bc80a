"""The limits of one broker on its connections and requests, for every wire.

Rules (Kafka's SocketServer and ConnectionQuotas; docs/security.md says what differs):
    1. ``max.connections``, of the broker and of each listener: ``connection_slots``. gRPC, which accepts for itself,
       closes connections above it on a listener of its own as soon as they are accepted.
    2. ``max.connections.per.ip``: the newest connections of an address are closed.
    3. ``connections.max.idle.ms``: a connection without requests is closed after that time; below 0 it never is
       (``Selector``, ``idleExpiryManager``).
    4. ``queued.max.requests``: maximum number of requests in flight on one connection.
    5. ``socket.request.max.bytes``: a larger request is refused before it is read to its end.
"""

from __future__ import annotations

from typing import NamedTuple, Self

from tidegauge.settings import INT_MAX, Values


class Limits(NamedTuple):
    """The limits of one broker.

    Attributes:
        idle_ms: rule 3; ``INT_MAX``: never.
    """

    request_bytes: int
    connections: int = INT_MAX
    connections_per_ip: int = INT_MAX
    idle_ms: int = 600_000
    calls_per_connection: int = 500

    @classmethod
    def of(cls, settings: Values) -> Self:
        """Return a broker's limits by its settings."""
        idle_ms = settings.integer("connections.max.idle.ms")
        return cls(
            settings.integer("socket.request.max.bytes"),
            settings.integer("max.connections"),
            settings.integer("max.connections.per.ip"),
            INT_MAX if idle_ms < 0 else min(max(idle_ms, 1), INT_MAX),
            settings.integer("queued.max.requests"),
        )
