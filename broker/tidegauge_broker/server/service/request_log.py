"""The request log: one line for each request that the service has completed, whichever wire it came through.

It is switched on with ``request.log.enable=true`` and is off by default: it costs a line for each request. A line names
the request as Kafka does, the connection and the listener if the request has them, the broker that sent it if
that is known (``Caller.broker_id``), the time from its arrival to its response, waits in purgatory included, and the
errors of the response.
Source: Kafka's ``kafka.request.logger``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial, wraps
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge_broker.server.service.caller import Caller

LOG = logging.getLogger("tidegauge.request")
_REQUESTS = {
    "produce": "Produce",
    "fetch": "Fetch",
    "begin_follower_fetch": "Fetch",
    "leader_and_isr": "LeaderAndIsr",
    "update_metadata": "UpdateMetadata",
    "stop_replica": "StopReplica",
    "alter_partition": "AlterPartition",
}
"""Methods of the service whose lines are written here: requests that also come in streams, or among brokers."""
_NAMES = {code.value: code.name for code in ErrorCode}


class RequestLog:
    """Middleware; see the module."""

    def around(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method with a log line behind it, if a request."""
        name = _REQUESTS.get(method)
        return call if name is None else wraps(call)(partial(_logged, name, call))

    def responded(self, caller: Caller, api: str, milliseconds: float, errors: Collection[int]) -> None:
        """Write the line of a request that a wire has the response to; see ``service.middleware.Responded``."""
        _line(api, caller, milliseconds, sorted(_NAMES.get(error, str(error)) for error in errors))


def _logged(name: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    begin = time.monotonic()
    caller = next((one for one in arguments if isinstance(one, Caller)), None)
    result = call(*arguments, **options)
    if asyncio.isfuture(result):
        result.add_done_callback(partial(_completed, name, caller, begin))
        return result
    if asyncio.iscoroutine(result):
        return _awaited(name, caller, begin, result)
    _write(name, caller, begin, result)
    return result


def _completed(name: str, caller: Caller | None, begin: float, future: asyncio.Future[Any]) -> None:
    if not future.cancelled() and future.exception() is None:
        _write(name, caller, begin, future.result())


async def _awaited(name: str, caller: Caller | None, begin: float, coroutine: Any) -> Any:
    result = await coroutine
    _write(name, caller, begin, result)
    return result


def _write(name: str, caller: Caller | None, begin: float, result: Any) -> None:
    errors = sorted({error.name for error in _errors(result)} - {ErrorCode.NONE.name})
    _line(name, caller, (time.monotonic() - begin) * 1000, errors)


def _line(name: str, caller: Caller | None, took_ms: float, errors: Sequence[str]) -> None:
    came = f",connection:{caller.connection},listener:{caller.listener}" if caller is not None else ""
    if caller is not None and caller.broker_id is not None:
        came += f",broker:{caller.broker_id}"
    LOG.info("Completed request:%s%s,totalTime:%.3f,errors:%s", name, came, took_ms, ",".join(errors) or "NONE")


def _errors(result: Any) -> Iterable[ErrorCode]:
    """Yield the error codes in a result: of itself, of its items, and of its partitions."""
    if isinstance(result, ErrorCode):
        yield result
        return
    found = getattr(result, "error", None)
    if isinstance(found, ErrorCode):
        yield found
    parts = getattr(result, "partitions", result)
    if isinstance(parts, Mapping):
        parts = list(parts.values())
    for part in parts if isinstance(parts, (list, tuple)) else ():
        yield from _errors(part)
