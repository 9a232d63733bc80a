"""Requests of brokers to the share coordinator, with the retries of Kafka's persister.

Errors that pass, a lost message and a missing coordinator are retried: five attempts in all, after 2, 4, 8 and 16
seconds of virtual time; then the last error is the result (``DefaultStatePersister``, ``PersisterStateManager``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.share_groups import ShareStateRequest, ShareStateResult
from tidegauge_broker.share.retries import FIRST_BACKOFF_SECONDS, MAX_ATTEMPTS, PASSING
from tidegauge_proof.hand.coordination import Call, Coordination
from tidegauge_proof.hand.group_names import SHARE_STATES
from tidegauge_proof.simulator.memory_broker import MemoryBroker

_FIRST_BACKOFF_MS = round(FIRST_BACKOFF_SECONDS * 1_000)
Done = Callable[[ShareStateResult], None]


@dataclass(slots=True, eq=False)
class _Asking:
    """A request until its result is known.

    Attributes:
        incarnation: of the process that asks: with its end the request ends, too.
        attempts: how often it was sent, or found no coordinator.
        due_ms: when it is sent again; None: an attempt is in flight.
    """

    broker: MemoryBroker
    incarnation: int
    request: ShareStateRequest
    done: Done
    attempts: int = 0
    due_ms: int | None = None


class StatePersister:
    """Sends states of share partitions to their share coordinator.

    Args:
        coordination: has the share coordinators.
    """

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._waiting: list[_Asking] = []

    def ask(self, broker: MemoryBroker, request: ShareStateRequest, done: Done) -> None:
        """Send a broker's request; ``done`` takes the result once, unless the process ends before."""
        self._send(_Asking(broker, broker.incarnation, request, done))

    def step_timers(self) -> None:
        """Repeat due requests."""
        now_ms = self._coordination.world.now_ms
        due = [one for one in self._waiting if one.due_ms is not None and one.due_ms <= now_ms]
        self._waiting = [one for one in self._waiting if one not in due]
        for one in due:
            if _lives(one):
                self._send(one)

    def _send(self, one: _Asking) -> None:
        one.attempts, one.due_ms = one.attempts + 1, None
        is_over: list[bool] = []

        def take(result: ShareStateResult) -> None:
            if not is_over and _lives(one):
                is_over.append(True)
                self._take(one, result)

        def lost() -> None:
            take(ShareStateResult(ErrorCode.NETWORK_EXCEPTION))

        if not self._coordination.ask(SHARE_STATES, Call(one.broker.broker_id, one.request, take, lost)):
            take(ShareStateResult(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _take(self, one: _Asking, result: ShareStateResult) -> None:
        if result.error in PASSING and one.attempts < MAX_ATTEMPTS:
            one.due_ms = self._coordination.world.now_ms + _FIRST_BACKOFF_MS * 2**one.attempts
            self._waiting.append(one)
            return
        one.done(result)


def _lives(one: _Asking) -> bool:
    return one.broker.is_running and one.broker.incarnation == one.incarnation
