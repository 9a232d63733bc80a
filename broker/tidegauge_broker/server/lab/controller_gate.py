"""Requests that arrive at a controller's listener: partitioned, delayed, lost, held or failed by the faults in force.

Rules:
    1. A node is known by the client id of its Raft requests (``raft-client-ID``), a broker by the id in its own
       requests, or the client id of those that it forwards, so that a process with both roles is both; any other
       caller is a client.
    2. A Vote that only asks whether its sender would be elected is a ``PreVote`` to faults, and no Vote (KIP-996).
    3. A request across a partition gets no response: its sender gives it up at its own timeout.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.faults.apis import PRE_VOTE
from tidegauge.kafka.apis import FETCH
from tidegauge.kafka.kraft.apis import ENVELOPE, KRAFT_APIS, VOTE
from tidegauge_broker.server.lab.fault_table import FaultTable
from tidegauge_broker.server.lab.gate import LabGate
from tidegauge_broker.server.lab.held_fetches import METADATA
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.service.caller import Caller
from tidegauge_broker.server.service.gate import CallRefused, GatedRequest

_RAFT_CLIENT = re.compile(r"raft-client-(\d{1,10})")
_FOLLOWERS_FETCH = "ReplicaFetch"
_UNNAMED = ""
"""The name of an API that no fault means."""


class ControllerGate:
    """Applies faults to the requests that arrive at a controller's listener.

    Args:
        faults: the table of faults in force.
        is_controller: whether a node is one of the quorum's controllers.
        unnamed: the APIs that holds and errors do not mean here, by key; network faults apply to them.
    """

    def __init__(self, faults: FaultTable, is_controller: Callable[[int], bool], unnamed: Collection[int] = ()) -> None:
        self._of_nodes = LabGate(faults, is_controller=is_controller)
        self._of_others = LabGate(faults)
        self._unnamed = frozenset(unnamed)
        self._tasks: set[asyncio.Task[None]] = set()

    def gated(self, handlers: Mapping[int, Served]) -> Mapping[int, Served]:
        """Return the handlers behind the faults."""
        return {key: self._gated(served) for key, served in handlers.items()}

    def _gated(self, served: Served) -> Served:
        def handle(call: Call) -> None:
            if self._of_nodes.is_open:
                served.handle(call)
            else:
                self._begin(self._admit(served, call))

        return served._replace(handle=handle)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _admit(self, served: Served, call: Call) -> None:
        request, is_nodes = self._request_of(call)
        gate = self._of_nodes if is_nodes else self._of_others
        try:
            error = await gate.admit(request)
        except CallRefused:
            return  # rule 3
        if error is not None and not error.after_effect:
            call.refuse(ErrorCode.of(error.error), "injected by the lab")
            return
        hold = gate.hold_of(request)
        if error is None and hold is None:
            served.handle(call)
            return

        async def respond(response: Any) -> None:
            if hold is not None:
                await hold.wait()
            if error is None:
                call.respond(response)
            else:
                call.refuse(ErrorCode.of(error.error), "injected by the lab")

        def respond_later(response: Any) -> None:
            self._begin(respond(response))

        served.handle(
            Call(
                call.key,
                call.version,
                call.message,
                respond_later,
                call.refuse,
                call.principal,
                call.host,
                call.client_id,
            )
        )

    def _request_of(self, call: Call) -> tuple[GatedRequest, bool]:
        """Return a request for the faults, and whether a quorum node sends it."""
        name = _FOLLOWERS_FETCH if call.key == FETCH else KRAFT_APIS[call.key].name
        if call.key == VOTE and is_pre_vote(call.message):
            name = PRE_VOTE
        raft = _RAFT_CLIENT.fullmatch(call.client_id)
        sender = _broker_of(call) if raft is None else int(raft[1])
        request = GatedRequest(
            _UNNAMED if call.key in self._unnamed else name,
            Caller("", "CONTROLLER", sender, call.host),
            client_id=call.client_id,
            partitions=[METADATA] if call.key == FETCH else [],
            is_of_kafka=True,
        )
        return request, raft is not None

    def close(self) -> None:
        """Handle nothing more that waits."""
        for task in self._tasks:
            task.cancel()


def is_pre_vote(message: Any) -> bool:
    """Return whether a Vote only asks; ``message`` is the request."""
    return any(one.pre_vote for topic in getattr(message, "topics", ()) for one in topic.partitions)


def _broker_of(call: Call) -> int | None:
    """Return the broker that sends a request; None: a client does."""
    if call.key == ENVELOPE:
        return int(call.client_id) if call.client_id.isdecimal() else None
    broker_id = getattr(call.message, "broker_id", None)
    return broker_id if isinstance(broker_id, int) else None
