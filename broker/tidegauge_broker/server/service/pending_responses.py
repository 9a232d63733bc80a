"""Responses that wait to be written, and the memory that they may take over all connections and wires.

Kafka sends records from the page cache to the socket, so a client that does not read costs it nothing. Here a response
is in memory until its client has read it, therefore:

Rules:
    1. A connection whose unwritten responses hold ``fetch.max.bytes`` gets no further one: its next requests wait until
       it has read. (Kafka serves one request of a connection at a time.) The bytes that a waiting fetch gathers before
       its response (fetch.min.bytes) count as if they were there.
    2. All unwritten responses together hold at most ``queued.max.response.bytes``, as ``queued.max.request.bytes``
       bounds requests in Kafka. The limit is applied when the records are read; the batch that reaches it is kept
       complete. The last eighth is for responses without records: metadata is served when fetches have to wait.
    3. A response takes at most a quarter of the free room, but always a batch, and a connection that holds more than a
       quarter of it gets no further one: connections that do not read leave room for those that do (dynamic
       thresholds: Choudhury and Hahne 1998).
    4. While a connection that holds nothing waits because the limit is reached, the connection with the oldest response
       is closed as soon as that response has waited ``STALLED_SECONDS``.
    5. A follower never waits: replication must not depend on consumers. Its responses count, and when nothing is free
       it is given ``FOLLOWER_BYTES``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator

LOG = logging.getLogger("tidegauge.broker")
FREE_SHARE = 4
"""Divisor of the free bytes in rule 3."""
STALLED_SECONDS = 10.0
RECORDS_SHARE = 7 / 8
"""Part of the limit that fetch responses may take; rule 2."""
FOLLOWER_BYTES = 1_048_576
NOTHING = -1
"""The limit of a response that may hold no records at all, not even a batch."""
_NOT_WORTH_COUNTING_BYTES = 4_096
_LOOK_SECONDS = 0.5
_UNCOUNTED = contextlib.nullcontext()


class PendingResponse:
    """The place of one response among those that wait; release it when the response is written or given up.

    Args:
        owner: of all responses.
        connection: that the response belongs to.
        is_follower: rule 5.
    """

    def __init__(self, owner: PendingResponses, connection: str, *, is_follower: bool = False) -> None:
        self._owner = owner
        self.connection = connection
        self.is_follower = is_follower
        self.size_bytes = 0
        self.since_seconds = 0.0

    def limit_bytes(self, max_bytes: int) -> int:
        """Return the response's current limit of records in bytes, or ``NOTHING``."""
        return self._owner.limit_bytes(self, max_bytes)

    def hold(self, size_bytes: int) -> None:
        """Count the response; at most once."""
        if size_bytes > _NOT_WORTH_COUNTING_BYTES:
            self._owner.hold(self, size_bytes)

    def release(self) -> None:
        """Count it no longer. Does nothing if it is not counted."""
        self._owner.release(self)


class PendingResponses:
    """The responses that wait to be written, and their memory.

    Args:
        max_bytes: the limit of rule 2.
        max_connection_bytes: the limit of rule 1.
        now_seconds: a monotonic clock.

    Attributes:
        close_connection: closes a connection by its name; the listeners set it.
    """

    def __init__(
        self,
        max_bytes: Callable[[], int],
        max_connection_bytes: Callable[[], int],
        now_seconds: Callable[[], float],
    ) -> None:
        self.close_connection: Callable[[str], None] = lambda _: None
        self._max_bytes = max_bytes
        self._max_connection_bytes = max_connection_bytes
        self._now_seconds = now_seconds
        self._pending: dict[PendingResponse, None] = {}
        self._total_bytes = 0
        self._connection_bytes: defaultdict[str, int] = defaultdict(int)
        self._gathering_bytes: defaultdict[str, int] = defaultdict(int)
        self._queue: dict[asyncio.Future[None], tuple[str, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    @property
    def total_bytes(self) -> int:
        """Bytes of all responses that wait to be written."""
        return self._total_bytes

    def held_bytes(self, connection: str) -> int:
        """Return the bytes of one connection's responses, those it gathers included."""
        return self._connection_bytes.get(connection, 0) + self._gathering_bytes.get(connection, 0)

    async def room(self, connection: str, *, for_records: bool = True) -> PendingResponse:
        """Wait until the connection may be given another response; rules 1, 2 and 3.

        Args:
            connection: that makes the request.
            for_records: whether it is a fetch.
        """
        share = RECORDS_SHARE if for_records else 1.0
        while not self._passes(connection, share):
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._queue[turn] = connection, share
            self._look_later()
            try:
                await turn
            except asyncio.CancelledError:
                self._wake_next()  # it may have been this one's turn
                raise
            finally:
                self._queue.pop(turn, None)
        return PendingResponse(self, connection)

    def room_at_once(self, connection: str, *, for_records: bool = True) -> PendingResponse | None:
        """Return what ``room`` does, if it need not wait; else None."""
        share = RECORDS_SHARE if for_records else 1.0
        return PendingResponse(self, connection) if self._passes(connection, share) else None

    def _passes(self, connection: str, share: float) -> bool:
        gathered_bytes = self._gathering_bytes.get(connection, 0)
        return self._has_room(connection, self._free_bytes(share), gathered_bytes)

    def _has_room(self, connection: str, free_bytes: int, gathered_bytes: int = 0) -> bool:
        held_bytes = self._connection_bytes.get(connection, 0)
        is_below_own_limit = held_bytes + gathered_bytes < self._max_connection_bytes()
        return is_below_own_limit and free_bytes > 0 and held_bytes <= free_bytes // FREE_SHARE

    def for_follower(self, connection: str) -> PendingResponse:
        """Return the place of a follower's response; rule 5."""
        return PendingResponse(self, connection, is_follower=True)

    def gathering(self, connection: str, size_bytes: int) -> contextlib.AbstractContextManager[None]:
        """Count the bytes that a fetch waits for while it waits, at most a connection's limit; rule 1."""
        if size_bytes <= _NOT_WORTH_COUNTING_BYTES:
            return _UNCOUNTED
        return self._counted(connection, min(size_bytes, self._max_connection_bytes()))

    @contextlib.contextmanager
    def _counted(self, connection: str, size_bytes: int) -> Iterator[None]:
        self._gathering_bytes[connection] += size_bytes
        try:
            yield
        finally:
            self._take_off(self._gathering_bytes, connection, size_bytes)

    # For PendingResponse

    def limit_bytes(self, response: PendingResponse, max_bytes: int) -> int:
        """Return a response's current limit of records; rules 1, 2, 3, 5."""
        free_bytes = self._free_bytes(RECORDS_SHARE)
        if response.is_follower:
            return min(max_bytes, max(free_bytes, FOLLOWER_BYTES))
        if not self._has_room(response.connection, free_bytes):
            return NOTHING
        return min(max_bytes, free_bytes // FREE_SHARE)

    def hold(self, response: PendingResponse, size_bytes: int) -> None:
        """Count a response."""
        assert response not in self._pending
        response.size_bytes = size_bytes
        response.since_seconds = self._now_seconds()
        self._pending[response] = None
        self._total_bytes += size_bytes
        self._connection_bytes[response.connection] += size_bytes

    def release(self, response: PendingResponse) -> None:
        """Count a response no longer, and let the next requests pass."""
        if response not in self._pending:
            return
        del self._pending[response]
        self._total_bytes -= response.size_bytes
        self._take_off(self._connection_bytes, response.connection, response.size_bytes)

    def _take_off(self, counted: dict[str, int], connection: str, size_bytes: int) -> None:
        counted[connection] -= size_bytes
        if counted[connection] == 0:
            del counted[connection]
        if self._queue:
            self._wake_next()

    def _free_bytes(self, share: float) -> int:
        return int(self._max_bytes() * share) - self._total_bytes

    def _wake_next(self) -> None:
        """Let every request pass that may pass now, oldest first."""
        for turn, (connection, share) in list(self._queue.items()):
            if not turn.done() and self._passes(connection, share):
                turn.set_result(None)

    # Rule 4

    def _look_later(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self.look)

    def look(self) -> None:
        """Close the connection that is longest in the way, if any is; called by a timer while requests wait."""
        self._timer = None
        if not self._queue:
            return
        if not any(self.held_bytes(connection) == 0 for connection, _ in self._queue.values()):
            self._look_later()
            return
        oldest = next((one for one in self._pending if not one.is_follower), None)
        if oldest is not None and self._now_seconds() - oldest.since_seconds >= STALLED_SECONDS:
            LOG.warning(
                "Closing connection %s: its client has not read a response of %d bytes for %.0f s, and other requests "
                "wait for queued.max.response.bytes",
                oldest.connection,
                oldest.size_bytes,
                self._now_seconds() - oldest.since_seconds,
            )
            self.close_connection(oldest.connection)
        self._look_later()

    def close(self) -> None:
        """Stop the timer: the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
