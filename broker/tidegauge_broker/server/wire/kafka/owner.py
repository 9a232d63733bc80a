"""The interface of a connection to the listener that accepted it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from typing import Protocol as Interface

from tidegauge.kafka.apis import Protocol
from tidegauge.kafka.frames import RequestHeader
from tidegauge.logical_clock import LogicalClock
from tidegauge.principal import Principal
from tidegauge_broker.server.service.gate import Gate
from tidegauge_broker.server.service.middleware import Responded
from tidegauge_broker.server.service.pending_responses import PendingResponses
from tidegauge_broker.server.wire.kafka.request import Context, Handler
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import Turns

if TYPE_CHECKING:
    from tidegauge_broker.server.wire.kafka.connection import KafkaConnection


class Owner(Interface):
    """The listener, for the connections that it accepted.

    Attributes:
        protocol: the APIs and their versions, including the ones for brokers.
        served: the description of each API that has a handler.
        serves_brokers: whether brokers use it among themselves; then a connection's first request says who sends.
        serves_controller: whether the controller uses it, too.
        responses: counts responses that wait to be written; None: nothing is counted.
        logical_clock: the broker's, if brokers use the listener among themselves.
    """

    name: str
    max_request_bytes: int
    protocol: Protocol
    served: Mapping[int, ServedApi]
    handlers: dict[int, Handler]
    gate: Gate | None
    turns: Turns
    responses: PendingResponses | None
    responded: Responded | None
    serves_brokers: bool
    serves_controller: bool
    logical_clock: LogicalClock | None

    def protocol_of(self, header: RequestHeader) -> Protocol:
        """Return the APIs and versions that the sender of a request sees."""
        ...

    def context(self, connection: KafkaConnection, header: RequestHeader) -> Context:
        """Return what a handler is given."""
        ...

    def principal_of(self, certificate: bytes | None) -> Principal | None:
        """Return the principal of a client's DER certificate; None closes its connection."""
        ...

    def opened(self, connection: KafkaConnection) -> bool:
        """Count the connection; False closes it at once."""
        ...

    def closed(self, connection: KafkaConnection) -> None:
        """Forget the connection."""
        ...
