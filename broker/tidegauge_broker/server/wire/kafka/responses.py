"""The results of a request handler: a message, or one of these around it.

A handler returns its response at once, or a coroutine that makes it. Guards of authorization and client quotas are
between the handler and the connection, and hand on responses of the same kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeAlias

from tidegauge.kafka.records import Buffer
from tidegauge_broker.server.service.pending_responses import PendingResponse


class Pending(NamedTuple):
    """A response that is made when a future is done.

    The connection begins its next request without waiting for it if that request may follow (``_may_follow``).
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
Response: TypeAlias = "Any | Held | Encoded | Silent | Pending | Coroutine[Any, Any, Any]"


async def settled(response: Response) -> Any:
    """Return a response's final form: a message, ``Held``, ``Encoded`` or ``Silent``."""
    if isinstance(response, Pending):
        return response.respond(await response.future)
    return await response if asyncio.iscoroutine(response) else response


def give_up(response: Any) -> None:
    """Release what a response holds whose connection has ended."""
    if isinstance(response, Paced):
        response = response.response
    if isinstance(response, Held):
        response.pending.release()
