"""The sender of a request, in the terms that every wire can give. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from tidegauge.principal import ANONYMOUS, Principal


@dataclass(frozen=True, slots=True)
class Caller:
    """The other end of a connection.

    Attributes:
        connection: names the connection; unique among the connections that are open on this broker.
        listener: name of the listener that accepted it.
        broker_id: the broker that sends; None for a client.
        host: the client's address in Java's form (``java_host``), without its port.
        principal: of its user.
    """

    connection: str
    listener: str
    broker_id: int | None = None
    host: str = "?"
    principal: Principal = ANONYMOUS
