"""One share partition that this broker leads: its core, the writes of its state in order, and the requests that wait.

Contract: everything here happens on the event loop. The states are written one after the other, so that a write that is
retried does not come after a later one, which would move the start offset back. If a write fails because no share
coordinator could be reached, those that wait behind it share its error: they have waited as long.
"""

from __future__ import annotations

import asyncio
from collections import deque

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SharePartitionKey
from tidegauge_broker.share.effects import WriteState
from tidegauge_broker.share.partition import SharePartition

NOT_REACHED = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which the persister has tried for as long as it tries."""
Outcome = tuple[ErrorCode, str | None]
"""The outcome of an acknowledgement or a release: the error, and the message for the client."""


class HostedSharePartition:
    """One share partition that this broker leads.

    Args:
        key: of the share partition.
        at: its partition by name.
        core: decides.
        begun_ms: when it was made.

    Attributes:
        failure: why its state could not be loaded; NONE: it could, or is being loaded.
        waiting: fetches that look again when there is news; they take themselves out.
        unwritten: states to write, the first of which is in flight while ``is_writing``.
        open_requests: acknowledgements and releases without a response yet.
        armed_ms: the deadline for which the timer is set; None: for none.
    """

    def __init__(self, key: SharePartitionKey, at: TopicPartition, core: SharePartition, begun_ms: int = 0) -> None:
        self.key = key
        self.at = at
        self.core = core
        self.begun_ms = begun_ms
        self.failure: ErrorCode = ErrorCode.NONE
        self.waiting: dict[asyncio.Future[None], None] = {}
        self.unwritten: deque[WriteState] = deque()
        self.is_writing = False
        self.open_requests: set[asyncio.Future[Outcome]] = set()
        self.armed_ms: int | None = None

    def wake(self) -> None:
        """Have the fetches that wait look again, those that have waited longest first."""
        for one in list(self.waiting):
            if not one.done():
                one.set_result(None)

    def respond(self, token: object, outcome: Outcome) -> None:
        """Respond to an acknowledgement or a release, unless its caller has left."""
        assert isinstance(token, asyncio.Future)
        self.open_requests.discard(token)
        if not token.done():
            token.set_result(outcome)

    def give_up(self) -> None:
        """Respond to all that have no response yet: this share partition has failed."""
        for token in list(self.open_requests):
            self.respond(token, (ErrorCode.UNKNOWN_SERVER_ERROR, None))
