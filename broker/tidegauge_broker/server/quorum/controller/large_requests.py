"""Large requests at the controller are read and responded to beside the event loop, one at a time.

A request may name 99,000 items. To make values of them, to decide and to make the response takes seconds, during which
heartbeats must get through. So its handler prepares the event in a thread; the queue decides it in one, and its
response is made in one (``QuorumController``). It is dropped as soon as its client has closed the connection: a broker
that has waited too long sends it again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge_broker.server.quorum.calls import Call
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController

LOG = logging.getLogger("tidegauge.controller")
Prepare = Callable[[Call], WriteEvent | None]
"""Makes the event that a request asks for; None: the request has its response already.

It may run in a thread, so it changes nothing without a lock.
"""
_UNEXPECTED = "The server experienced an unexpected error when processing the request."
_TASKS: set[asyncio.Task[None]] = set()


def in_turns(respond: Callable[[Call], Coroutine[Any, Any, None]]) -> Callable[[Call], None]:
    """Return a handler of requests that read very much.

    ``respond`` runs in a task and leaves turns of the event loop to others.
    """

    def handle(call: Call) -> None:
        _begin(_unless_it_fails(call, respond(call)))

    return handle


def prepared(controller: QuorumController, prepare: Prepare) -> Callable[[Call], None]:
    """Return a handler that writes the events of requests.

    Args:
        controller: takes the events.
        prepare: makes the event of a request; of a large one in a thread.
    """

    def handle(call: Call) -> None:
        if call.is_large:
            _begin(_unless_it_fails(call, _handle_large(controller, prepare, call)))
        elif (event := prepare(call)) is not None:
            controller.write(event)

    return handle


def _begin(work: Coroutine[Any, Any, None]) -> None:
    _TASKS.add(task := asyncio.get_running_loop().create_task(work))
    task.add_done_callback(_TASKS.discard)


async def _unless_it_fails(call: Call, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except Exception:
        LOG.exception("A large request of /%s meets a defect", call.host)
        call.refuse(ErrorCode.UNKNOWN_SERVER_ERROR, _UNEXPECTED)


async def _handle_large(controller: QuorumController, prepare: Prepare, call: Call) -> None:
    async with controller.one_large_at_a_time:
        event = await asyncio.to_thread(prepare, call) if call.is_open() else None
    if event is not None:
        controller.write(replace(event, is_wanted=call.is_open, is_large=True))
