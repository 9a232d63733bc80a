"""The produce requests of one connection: appended in order, completed as their acks are satisfied.

Rules:
    1. Requests are appended in the order in which they are submitted. Their responses may overtake one another; a wire
       that must keep the order of responses does that itself.
    2. At most ``MAX_OPEN_PRODUCES`` requests of a connection are open: not yet acknowledged, or acknowledged with a
       response that the client has not taken. The next one waits, and the connection is not read meanwhile.
    3. acks=0 has no response that could carry an error, so a failed append ends the connection.
    4. When the connection closes, what waits in purgatory is forgotten.
    5. A large request is appended in portions (``produce_portions``); the next one is not submitted before it is.

Kafka's protocol shares rule 3 (``unacknowledged_failure``) and keeps the order in its own way (``KafkaConnection``,
rule 2): its responses leave in the order of all the connection's requests, so a Produce that waits for acks takes a
place in the same queue as any other request, and the length of that queue is the limit. It is not read from while
responses wait for the client, so none has to be counted until it is taken; and an append must begin there without a
turn of the event loop. gRPC has a stream for produce requests alone, whose responses may overtake one another.

Source: Kafka's KafkaApis.handleProduceRequest (acks=0 and an error: ``closeConnection``). Kafka handles one request of
a connection at a time; rule 2 stands in for that limit where requests are pipelined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from tidegauge.errors import ErrorCode
from tidegauge_broker.replica.messages import ProduceRequest, ProduceResult
from tidegauge_broker.server.service.produce_portions import append

MAX_OPEN_PRODUCES = 1_000
"""Maximum number of open produce requests of one connection; see rule 2."""

Respond = Callable[[Sequence[ProduceResult]], None]


class UnacknowledgedAppendFailed(Exception):
    """An append with acks=0 failed: the wire closes the connection. The message says why."""


def unacknowledged_failure(results: Iterable[ProduceResult]) -> ProduceResult | None:
    """Return the first failure of an acks=0 append, or None.

    It makes the wire close the connection.

    Rule 3, for every wire.
    """
    return next((result for result in results if result.error is not ErrorCode.NONE), None)


class OpenProduces:
    """The open produce requests of one connection; see the module.

    Args:
        produce: appends a request, or a portion of one, at once; its future is done when acks is satisfied.
        max_open: limit of rule 2.
    """

    def __init__(
        self,
        produce: Callable[[ProduceRequest], asyncio.Future[Sequence[ProduceResult]]],
        max_open: int = MAX_OPEN_PRODUCES,
    ) -> None:
        self._produce = produce
        self._room = asyncio.Semaphore(max_open)
        self._open: set[asyncio.Future[Sequence[ProduceResult]]] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    async def submit(self, request: ProduceRequest, respond: Respond, refused: Sequence[ProduceResult] = ()) -> None:
        """Append a request as soon as rule 2 allows it.

        Args:
            request: what to append.
            respond: called once with the results when acks is satisfied; with none for acks=0. Call ``taken`` when the
                client has taken that response.
            refused: partitions of the client's request that are not appended to, for rule 3.

        Raises:
            UnacknowledgedAppendFailed: rule 3.
        """
        await self._room.acquire()
        future = await append(self._produce, request)
        if request.acks == 0:
            failed = unacknowledged_failure([*refused, *future.result()])
            if failed is not None:
                raise UnacknowledgedAppendFailed(f"{failed.error.name}: {failed.message}")
            respond(())
            return
        self._open.add(future)
        self._none_open.clear()
        future.add_done_callback(partial(self._done, respond))

    def _done(self, respond: Respond, future: asyncio.Future[Sequence[ProduceResult]]) -> None:
        self._open.discard(future)
        if not future.cancelled():
            respond(future.result())
        if not self._open:
            self._none_open.set()

    def taken(self) -> None:
        """Make room: the client has taken a response."""
        self._room.release()

    async def until_acknowledged(self) -> None:
        """Wait until every request that was submitted has its response."""
        await self._none_open.wait()

    def close(self) -> None:
        """Forget what still waits; rule 4."""
        for future in list(self._open):
            future.cancel()
