"""The arguments of a request handler, and its signature; ``responses`` has the types that it may return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tidegauge.kafka.frames import RequestHeader
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.wire.kafka.responses import Response
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache
from tidegauge_broker.server.wire.kafka.throttling import RequestQuotas


class CloseConnection(Exception):
    """The connection must end without a response; the text goes to the log."""


@dataclass(slots=True)
class Context:
    """The context of a request.

    Attributes:
        service: handles it.
        caller: the connection; a client gets addresses of its listener only.
        sessions: fetch sessions of all connections of this broker.
        now_ms: the broker's clock.
        header: of the request.
        may_read: whether the caller may fetch from a topic; None: from all.
        may_describe: whether the caller may describe a topic that its request does not name; None: all.
        quotas: what measures the client; None: no quota was ever set.
    """

    service: BrokerService
    caller: Caller
    sessions: FetchSessionCache
    now_ms: Callable[[], int]
    header: RequestHeader
    may_read: Callable[[str], bool] | None = None
    quotas: RequestQuotas | None = None
    may_describe: Callable[[str], bool] | None = None

    @property
    def version(self) -> int:
        """Version of the request and of its response."""
        return self.header.version


Handler = Callable[[Any, Context], Response]
