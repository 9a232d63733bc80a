"""The request log: one line for each request that the service has completed, whichever wire it came through.

It is switched on with ``request.log.enable=true`` and is off by default: it costs a line for each request. A line names
the request as Kafka does, the connection and the listener where the request has them, the time from its arrival in the
service to its response, waits in purgatory included, and the error or the errors of the response. A request over
several partitions that the service handles one by one, such as ListOffsets, has a line for each of them.
Source: Kafka's ``kafka.request.logger``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge_broker.server.service.caller import Caller

LOG = logging.getLogger("tidegauge.request")
_SAME = {"list_offset": "ListOffsets", "old_style_offsets": "ListOffsets", "alter_configs": "IncrementalAlterConfigs"}
_REQUESTS = frozenset(
    {
        "produce",
        "fetch",
        "list_offset",
        "old_style_offsets",
        "offset_for_leader_epoch",
        "delete_records",
        "init_producer_id",
        "describe_log_directories",
        "alter_replica_log_dirs",
        "describe_producers",
        "metadata",
        "create_topics",
        "create_partitions",
        "delete_topics",
        "elect_leaders",
        "alter_reassignments",
        "list_reassignments",
        "alter_configs",
        "describe_configs",
        "leader_and_isr",
        "update_metadata",
        "stop_replica",
        "alter_partition",
        "controlled_shutdown",
        "allocate_producer_ids",
    }
)
"""Methods of the service that are requests; the others look something up for a wire."""


class RequestLog:
    """Middleware; see the module."""

    def around(self, method: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return the method with a line in the log behind it; what is no request is left alone."""
        if method not in _REQUESTS:
            return call
        name = _SAME.get(method) or "".join(word.capitalize() for word in method.split("_"))
        return wraps(call)(partial(_logged, name, call))


def _logged(name: str, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    begin = time.monotonic()
    caller = next((one for one in arguments if isinstance(one, Caller)), None)
    result = call(*arguments, **options)
    if asyncio.isfuture(result):
        result.add_done_callback(partial(_completed, name, caller, begin))
        return result
    if inspect.iscoroutine(result):
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
    came = f",connection:{caller.connection},listener:{caller.listener}" if caller is not None else ""
    took_ms = (time.monotonic() - begin) * 1000
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
