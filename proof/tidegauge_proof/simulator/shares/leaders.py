"""A share partition at a leader of its partition, and the persister that keeps its state at the share coordinators.

A leader that has lost its leadership goes on until it hears of that. The persister has one request in flight at a time,
in the order of what the core wants, and tries five times; a request that it has given up does not arrive any more, as
its connection is closed.
Source: SharePartition, PersisterStateManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import (
    InitializeShareState,
    ReadShareState,
    SharePartitionKey,
    ShareStateRequest,
    ShareStateResult,
    WriteShareState,
)
from tidegauge_broker.share.effects import Effect, FindStartOffset, ReadState, Respond, WriteState
from tidegauge_broker.share.partition import PartitionState, SharePartition
from tidegauge_broker.share.settings import ShareSettings

KEY = SharePartitionKey("q", b"the id of topict", 0)
LOCK_MS = 4_000
DELIVERY_COUNT_LIMIT = 3
MAX_RECORD_LOCKS = 12
ATTEMPTS = 5
PASSING = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""Errors after which the persister tries again; UNKNOWN_TOPIC_OR_PARTITION does not pass here: the topic stays."""


@dataclass(slots=True, eq=False)
class Call:
    """A request to a share coordinator.

    Attributes:
        number: tells calls apart.
        leader: whose persister has sent it; None: the group coordinator's, which initializes the state.
        attempts: how often it was sent.
    """

    number: int
    leader: Leader | None
    request: ShareStateRequest
    attempts: int = 0


class Leader:
    """The share partition at one leader.

    Attributes:
        broker_id: its broker.
        incarnation: of that broker's process; with its end all of this is lost.
        in_flight: the persister's request; None: it has none to send.
        responses: of requests of members, by token, until they are taken.
    """

    def __init__(self, broker_id: int, incarnation: int, epoch: int) -> None:
        self.broker_id = broker_id
        self.incarnation = incarnation
        settings = ShareSettings(LOCK_MS, DELIVERY_COUNT_LIMIT, MAX_RECORD_LOCKS, auto_offset_reset="earliest")
        self.core = SharePartition(epoch, settings)
        self.in_flight: Call | None = None
        self.responses: dict[object, ErrorCode] = {}
        self._wanted: deque[ReadState | WriteState] = deque()
        self.take(self.core.initialize())

    @property
    def is_over(self) -> bool:
        """Whether it serves no more; what it has to write is written all the same."""
        return self.core.state in {PartitionState.FENCED, PartitionState.FAILED}

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is to be read or written."""
        return self.in_flight is None and not self._wanted

    def take(self, effects: Sequence[Effect]) -> None:
        """Carry out what the core wants."""
        for effect in effects:
            if isinstance(effect, ReadState | WriteState):
                self._wanted.append(effect)
            elif isinstance(effect, FindStartOffset):
                self.take(self.core.start_offset_found(ErrorCode.NONE, 0))
            elif isinstance(effect, Respond):
                assert effect.token not in self.responses, "one response for each request"
                self.responses[effect.token] = effect.error

    def next_call(self, number: int) -> Call | None:
        """Return the persister's next request; None if none is due."""
        if self.in_flight is not None or not self._wanted:
            return None
        effect = self._wanted[0]
        request: ShareStateRequest
        if isinstance(effect, ReadState):
            request = ReadShareState(KEY, effect.leader_epoch)
        else:
            request = WriteShareState(
                KEY,
                effect.state_epoch,
                effect.leader_epoch,
                effect.start_offset,
                effect.complete_count,
                effect.batches,
            )
        self.in_flight = Call(number, self, request)
        return self.in_flight

    def responded(self, result: ShareStateResult) -> None:
        """Take the outcome of the request in flight."""
        effect = self._wanted.popleft()
        self.in_flight = None
        if isinstance(effect, ReadState):
            self.take(
                self.core.state_read(
                    result.error, result.message, result.state_epoch, result.start_offset, result.batches
                )
            )
        else:
            self.take(self.core.state_written(effect.write_id, result.error, result.message))


def initialization(number: int) -> Call:
    """Return the request with which the group coordinator begins the share partition."""
    return Call(number, None, InitializeShareState(KEY, 1))
