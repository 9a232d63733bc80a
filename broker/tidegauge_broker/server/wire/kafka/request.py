"""The arguments of a request handler, and what it may return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from tidegauge.kafka.frames import RequestHeader
from tidegauge.kafka.records import Buffer
from tidegauge_broker.server.service import BrokerService, Caller
from tidegauge_broker.server.service.pending_responses import PendingResponse
from tidegauge_broker.server.wire.kafka.sessions import FetchSessionCache

if TYPE_CHECKING:
    from tidegauge_broker.server.wire.kafka.throttling import RequestQuotas


class CloseConnection(Exception):
    """The connection must end without a response; the text goes to the log."""


class Pending(NamedTuple):
    """A response that is made when a future is done.

    The connection begins its next request without waiting for it if that request may follow (``may_follow``).
    """

    future: asyncio.Future[Any]
    respond: Callable[[Any], Any]


class Held(NamedTuple):
    """A response that counts among those that wait to be written, until ``pending`` is released."""

    message: Any
    pending: PendingResponse


class Encoded(NamedTuple):
    """A response's body that is encoded already; ``version`` is the one that it is encoded in."""

    body: Sequence[Buffer]
    version: int


class Paced(NamedTuple):
    """A response, as a handler returns it, that is sent at a rate."""

    response: Any
    bytes_per_second: int


class Silent(NamedTuple):
    """There is no response: the client does not expect one."""


SILENT = Silent()


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
        quotas: what measures the client; None: no quota was ever set.
    """

    service: BrokerService
    caller: Caller
    sessions: FetchSessionCache
    now_ms: Callable[[], int]
    header: RequestHeader
    may_read: Callable[[str], bool] | None = None
    quotas: RequestQuotas | None = None

    @property
    def version(self) -> int:
        """Version of the request and of its response."""
        return self.header.version


async def settled(response: Response) -> Any:
    """Return what a handler's response becomes when it is there: a message, ``Held``, ``Encoded`` or ``Silent``."""
    if isinstance(response, Pending):
        return response.respond(await response.future)
    return await response if asyncio.iscoroutine(response) else response


Response: TypeAlias = "Any | Held | Encoded | Silent | Pending | Coroutine[Any, Any, Any]"
Handler = Callable[[Any, Context], Response]


def give_up(response: Any) -> None:
    """Release what a response holds whose connection has ended."""
    if isinstance(response, Paced):
        response = response.response
    if isinstance(response, Held):
        response.pending.release()
