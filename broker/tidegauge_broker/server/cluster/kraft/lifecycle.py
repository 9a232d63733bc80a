"""The lifecycle of a broker in KRaft mode, from its registration to its end: which request comes next, and when. Pure.

Contract: one request is in flight at a time; ``next_request`` returns it when it is due, and one of ``registered``,
``registration_failed``, ``beat_responded`` and ``beat_failed`` takes its outcome in. Times are ms of one clock that
never goes back.

Rules (``BrokerLifecycleManager``):
    1. A broker registers, again after each refusal, until ``initial.broker.registration.timeout.ms`` is over.
    2. Then it sends heartbeats, ``broker.heartbeat.interval.ms`` after each response or failure; at once after the
       registration, when it is ready to be unfenced, when a log directory fails and when it begins to shut down.
    3. STARTING ends when the controller says that the broker has caught up with the metadata log; until then a
       heartbeat follows 10 ms after each response. Until its logs are recovered the broker asks to stay fenced.
    4. RECOVERY ends when it asks to be unfenced, and is.
    5. A running broker that stops asks for its leaders to be moved away, and waits until the controller says that it
       may end. One that does not run yet ends at once.
    6. A failed log directory that the controller has not acknowledged within ``log.dir.failure.timeout.ms`` ends the
       broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

NEVER_MS = 2**63 - 1
WHILE_STARTING_MS = 10
"""Time from the response to a heartbeat to the next one, until the broker has caught up."""


class BrokerState(Enum):
    """The states of a broker (``org.apache.kafka.metadata.BrokerState``)."""

    NOT_RUNNING = "not running"
    STARTING = "starting"
    RECOVERY = "recovery"
    RUNNING = "running"
    PENDING_CONTROLLED_SHUTDOWN = "pending controlled shutdown"
    SHUTTING_DOWN = "shutting down"


class Transition(NamedTuple):
    """One row of the table."""

    old: BrokerState
    new: BrokerState
    when: str


_ENDS = "the broker stops, or could not register or report a failed log directory in time"
TRANSITIONS = (
    Transition(BrokerState.NOT_RUNNING, BrokerState.STARTING, "its process has begun"),
    Transition(BrokerState.STARTING, BrokerState.RECOVERY, "it has caught up with the metadata log"),
    Transition(BrokerState.RECOVERY, BrokerState.RUNNING, "its logs are recovered, and the controller has unfenced it"),
    Transition(BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN, "it asks for its leaders to be moved"),
    Transition(BrokerState.PENDING_CONTROLLED_SHUTDOWN, BrokerState.SHUTTING_DOWN, "the controller lets it end"),
    Transition(BrokerState.NOT_RUNNING, BrokerState.SHUTTING_DOWN, _ENDS),
    Transition(BrokerState.STARTING, BrokerState.SHUTTING_DOWN, _ENDS),
    Transition(BrokerState.RECOVERY, BrokerState.SHUTTING_DOWN, _ENDS),
    Transition(BrokerState.RUNNING, BrokerState.SHUTTING_DOWN, _ENDS),
)
ALLOWED = frozenset((row.old, row.new) for row in TRANSITIONS)


@dataclass(frozen=True, slots=True)
class Register:
    """The broker registers."""


@dataclass(frozen=True, slots=True)
class Beat:
    """A heartbeat.

    Attributes:
        wants_fence: it asks to be, or to stay, fenced.
        wants_shut_down: it asks for its leaders to be moved away.
        offline_directories: ids of its log directories that have failed.
    """

    wants_fence: bool
    wants_shut_down: bool
    offline_directories: tuple[str, ...]


class Lifecycle:
    """The lifecycle of a broker in KRaft mode.

    Args:
        beat_ms: ``broker.heartbeat.interval.ms``.
        registration_ms: ``initial.broker.registration.timeout.ms``.
        directory_ms: ``log.dir.failure.timeout.ms``.

    Attributes:
        state: of the broker.
        broker_epoch: of its registration; -1 before it.
        is_fenced: whether the controller has fenced it, as far as it knows.
        failure: why it ends by itself; empty: it does not.
    """

    def __init__(self, beat_ms: int, registration_ms: int, directory_ms: int) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.broker_epoch = -1
        self.is_fenced = True
        self.failure = ""
        self._beat_ms = beat_ms
        self._registration_ms = registration_ms
        self._directory_ms = directory_ms
        self._give_up_ms = NEVER_MS
        self._due_ms = NEVER_MS
        self._sent: Register | Beat | None = None
        self._is_ready = False
        self._fences_once = False
        self._is_urgent = False
        self._offline: dict[str, int] = {}
        """Failed directories, each with the time by which the controller must have acknowledged it."""

    def _enter(self, state: BrokerState) -> None:
        assert (self.state, state) in ALLOWED, f"A broker may not change from {self.state} to {state}"
        self.state = state

    # Events from the broker

    def start(self, now_ms: int) -> None:
        """Begin to register."""
        self._enter(BrokerState.STARTING)
        self._give_up_ms = now_ms + self._registration_ms
        self._due_ms = now_ms

    def ready_to_unfence(self, now_ms: int) -> None:
        """Ask to be unfenced from now on: the logs are recovered."""
        self._is_ready = True
        self._hurry(now_ms)

    def fence_once(self, now_ms: int) -> None:
        """Ask to be fenced with the next heartbeat, and not with the one after it."""
        self._fences_once = True
        self._hurry(now_ms)

    def directory_failed(self, directory: str, now_ms: int) -> None:
        """Report a failed log directory."""
        self._offline.setdefault(directory, now_ms + self._directory_ms)
        self._hurry(now_ms)

    def begin_shutdown(self, now_ms: int) -> None:
        """Ask for the leaders to be moved away; rule 5."""
        if self.state is BrokerState.RUNNING:
            self._enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
            self._hurry(now_ms)
        elif self.state is not BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            self.end()

    def end(self) -> None:
        """Send nothing more."""
        if self.state is not BrokerState.SHUTTING_DOWN:
            self._enter(BrokerState.SHUTTING_DOWN)
        self._due_ms = NEVER_MS

    def _hurry(self, now_ms: int) -> None:
        """Send the next request now, or as soon as the one in flight has its outcome."""
        if self._sent is not None:
            self._is_urgent = True
        elif self.broker_epoch >= 0 and self.state is not BrokerState.SHUTTING_DOWN:
            self._due_ms = now_ms

    # Requests

    def deadline_ms(self) -> int:
        """Return when ``next_request`` has something to return, or gives up."""
        limits = [limit for limit in self._offline.values() if limit < NEVER_MS]
        return NEVER_MS if self.state is BrokerState.SHUTTING_DOWN else min(self._due_ms, self._give_up_ms, *limits)

    def next_request(self, now_ms: int) -> Register | Beat | None:
        """Return the request to send now, or None.

        None: nothing is due, or a request is in flight.
        """
        self._check_limits(now_ms)
        if self._sent is not None or now_ms < self._due_ms or self.state is BrokerState.SHUTTING_DOWN:
            return None
        self._due_ms = NEVER_MS
        self._is_urgent = False
        self._sent = self._request()
        return self._sent

    def _request(self) -> Register | Beat:
        if self.broker_epoch < 0:
            return Register()
        wants_shut_down = self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        return Beat(not self._is_ready or self._fences_once, wants_shut_down, tuple(self._offline))

    def _check_limits(self, now_ms: int) -> None:
        """Apply the time limits of rules 1 and 6."""
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        if now_ms >= self._give_up_ms:
            self.failure = (
                f"The broker could not register within initial.broker.registration.timeout.ms={self._registration_ms}"
            )
        elif any(now_ms >= limit for limit in self._offline.values()):
            self.failure = (
                "The controller has not acknowledged a failed log directory within "
                f"log.dir.failure.timeout.ms={self._directory_ms}"
            )
        if self.failure:
            self.end()

    # Outcomes

    def registered(self, broker_epoch: int, now_ms: int) -> None:
        """Take in that the controller has accepted the registration."""
        self.broker_epoch = broker_epoch
        self._give_up_ms = NEVER_MS
        self._responded(now_ms)

    def registration_failed(self, now_ms: int) -> None:
        """Take in that the controller has refused the registration, or did not respond."""
        self._responded(now_ms + self._beat_ms)

    def beat_responded(self, *, is_caught_up: bool, is_fenced: bool, may_shut_down: bool, now_ms: int) -> None:
        """Take in the response to a heartbeat."""
        beat = self._sent
        assert isinstance(beat, Beat), "a response to a heartbeat that was sent"
        self.is_fenced = is_fenced
        self._fences_once = self._fences_once and not beat.wants_fence
        for directory in beat.offline_directories:
            self._offline[directory] = NEVER_MS
        wait_ms = self._beat_ms
        if self.state is BrokerState.STARTING:
            wait_ms = WHILE_STARTING_MS
            if is_caught_up:
                self._enter(BrokerState.RECOVERY)
        elif self.state is BrokerState.RECOVERY and not beat.wants_fence and not is_fenced:
            self._enter(BrokerState.RUNNING)
        elif self.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN and beat.wants_shut_down and may_shut_down:
            self.end()
        self._responded(now_ms + wait_ms)

    def beat_failed(self, now_ms: int) -> None:
        """Take in that a heartbeat was refused, or has no response."""
        self._responded(now_ms + self._beat_ms, is_failure=True)

    def _responded(self, due_ms: int, *, is_failure: bool = False) -> None:
        self._sent = None
        if self.state is BrokerState.SHUTTING_DOWN:
            return
        self._due_ms = 0 if self._is_urgent and not is_failure else due_ms
        self._is_urgent = False
