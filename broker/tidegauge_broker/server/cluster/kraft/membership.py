"""This broker as a member of its cluster: its registration and its heartbeats, as the lifecycle asks for them.

A response of the controller that is an error is logged once, and the request is sent again at the time that the
lifecycle says. Each process has an incarnation id, by which two processes of one broker id are distinguished.
Source: ``BrokerLifecycleManager``, ``BrokerRegistrationRequest``, ``BrokerHeartbeatRequest``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.apis import BROKER_HEARTBEAT, BROKER_REGISTRATION
from tidegauge.kafka.kraft.messages.broker_heartbeat import BrokerHeartbeatRequest
from tidegauge.kafka.kraft.messages.broker_registration import BrokerRegistrationRequest, Feature, Listener
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_broker.server.cluster.kraft.controller_channel import ControllerChannel
from tidegauge_broker.server.cluster.kraft.lifecycle import NEVER_MS, Beat, BrokerState, Lifecycle, Register

LOG = logging.getLogger("tidegauge.registration")
_WITH_PREVIOUS_EPOCH = 3
"""The first version of BrokerRegistration that says of which registration the broker has ended cleanly."""
_MEANINGS: Mapping[ErrorCode, str] = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "another process is registered under this id; if it was this broker's, "
    "its session ends soon",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster has finalised a level of a feature that this broker does not support: "
    "format it with lower levels (tidegauge format --feature NAME=LEVEL), or lower them with kafka-features",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the quorum belongs to another cluster than the broker's log directories",
    ErrorCode.STALE_BROKER_EPOCH: "the controller knows another registration of this broker, or none",
}


@dataclass(frozen=True, slots=True)
class Identity:
    """The content of a broker's registration.

    Attributes:
        listeners: its addresses for clients and brokers, with security protocols by Kafka's numbers.
        features: the levels that it supports, by name.
        directories: ids of its log directories that are online.
        previous_epoch: the broker epoch under which it last ended cleanly; -1: none is known, or it did not.
    """

    broker_id: int
    cluster_id: str
    incarnation_id: bytes
    listeners: Sequence[tuple[str, str, int, int]]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    directories: Sequence[bytes]
    previous_epoch: int


class Membership:
    """The membership of this broker in its cluster.

    Args:
        identity: the content of the registration.
        lifecycle: decides which request is sent when.
        channel: to the controller.
        applied_offset: returns the offset of the last metadata record that is in force here; -1: none is.
        knows_cordoned: whether the cluster's metadata.version knows cordoned log directories; this broker has none.
        registered: called with the broker epoch.
        state_changed: called with each new state.
        now_ms: a clock that never goes back.
        timeout_seconds: of one request.
        silence_ms: how long the controller may stay silent while this broker shuts down.
    """

    def __init__(
        self,
        identity: Identity,
        lifecycle: Lifecycle,
        channel: ControllerChannel,
        applied_offset: Callable[[], int],
        knows_cordoned: Callable[[], bool],
        registered: Callable[[int], None],
        state_changed: Callable[[BrokerState], None],
        now_ms: Callable[[], int],
        timeout_seconds: float,
        silence_ms: int,
    ) -> None:
        self._identity = identity
        self._lifecycle = lifecycle
        self._channel = channel
        self._applied_offset = applied_offset
        self._knows_cordoned = knows_cordoned
        self._registered = registered
        self._state_changed = state_changed
        self._now_ms = now_ms
        self._timeout_seconds = timeout_seconds
        self._silence_ms = silence_ms
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._fenced = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._logged = ""
        self._reported = lifecycle.state
        self._was_fenced = True
        self._responded_ms = 0

    @property
    def state(self) -> BrokerState:
        """The state of the broker."""
        return self._lifecycle.state

    @property
    def broker_epoch(self) -> int:
        """The epoch of the registration; -1 before it."""
        return self._lifecycle.broker_epoch

    @property
    def failure(self) -> str:
        """Why the broker ends by itself; empty: it does not."""
        return self._lifecycle.failure

    # Events from the broker

    def start(self) -> None:
        """Begin to register."""
        self._lifecycle.start(self._now_ms())
        self._report()
        self._task = asyncio.get_running_loop().create_task(self._run(), name="broker-lifecycle")

    def ready_to_unfence(self) -> None:
        """Ask to be unfenced from now on."""
        self._lifecycle.ready_to_unfence(self._now_ms())
        self._wake.set()

    def directory_failed(self, directory: str) -> None:
        """Report a failed log directory, by its id."""
        self._lifecycle.directory_failed(directory, self._now_ms())
        self._wake.set()

    async def fence(self, timeout_seconds: float) -> bool:
        """Ask to be fenced with one heartbeat, now; return whether the controller has responded in time."""
        self._fenced.clear()
        self._lifecycle.fence_once(self._now_ms())
        self._wake.set()
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._fenced.wait()
        except TimeoutError:
            return False
        return True

    async def shut_down(self, timeout_seconds: float) -> bool:
        """Have this broker's leaders moved away; return whether the controller has let it end in time.

        A controller that does not respond for ``silence_ms`` is given up: a quorum without a majority lets no broker
        end, and the last nodes with both roles would wait for one another. (Kafka waits for five minutes.)
        """
        begun_ms = self._responded_ms = self._now_ms()
        self._lifecycle.begin_shutdown(begun_ms)
        self._report()
        self._wake.set()
        while self._lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN:
            limit_ms = min(begun_ms + int(timeout_seconds * 1000), self._responded_ms + self._silence_ms)
            left_seconds = (limit_ms - self._now_ms()) / 1000
            if left_seconds <= 0:
                return False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_seconds):
                    await self.until({BrokerState.SHUTTING_DOWN})
        return not self._lifecycle.failure

    async def until(self, states: set[BrokerState]) -> None:
        """Wait until the broker is in one of these states, or ends."""
        while self._lifecycle.state not in {*states, BrokerState.SHUTTING_DOWN}:
            self._moved.clear()
            await self._moved.wait()

    async def close(self) -> None:
        """Send nothing more."""
        self._lifecycle.end()
        self._report()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._channel.close()

    # Requests

    async def _run(self) -> None:
        while True:
            request = self._lifecycle.next_request(self._now_ms())
            self._report()
            if self._lifecycle.state is BrokerState.SHUTTING_DOWN:
                return
            if request is None:
                await self._sleep()
                continue
            try:
                await (self._register() if isinstance(request, Register) else self._beat(request))
            except TidegaugeError as problem:
                self._failed(request, problem.message)
            except Exception as problem:
                LOG.exception("A request to the controller failed, which is a defect; it is sent again")
                self._failed(request, repr(problem))

    async def _sleep(self) -> None:
        due_ms = self._lifecycle.deadline_ms()
        seconds = None if due_ms >= NEVER_MS else max(0.0, (due_ms - self._now_ms()) / 1000)
        self._wake.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _failed(self, request: Register | Beat, why: str) -> None:
        what = "registration" if isinstance(request, Register) else "heartbeat"
        if why != self._logged:
            self._logged = why
            LOG.warning("The %s of broker %d failed and is sent again: %s", what, self._identity.broker_id, why)
        if isinstance(request, Register):
            self._lifecycle.registration_failed(self._now_ms())
        else:
            self._lifecycle.beat_failed(self._now_ms())

    async def _register(self) -> None:
        one = self._identity
        message = BrokerRegistrationRequest(
            broker_id=one.broker_id,
            cluster_id=one.cluster_id,
            incarnation_id=one.incarnation_id,
            listeners=[Listener(*listener) for listener in one.listeners],
            features=[Feature(name, *levels) for name, levels in sorted(one.features.items())],
            rack=one.rack,
            log_dirs=sorted(one.directories),
            previous_broker_epoch=one.previous_epoch,
        )
        response = await self._channel.request(
            BROKER_REGISTRATION, message, self._timeout_seconds, at_least=_WITH_PREVIOUS_EPOCH
        )
        _check(response.error_code)
        self._logged = ""
        self._lifecycle.registered(response.broker_epoch, self._now_ms())
        LOG.info("Registered broker %d with broker epoch %d", one.broker_id, response.broker_epoch)
        self._registered(response.broker_epoch)

    async def _beat(self, beat: Beat) -> None:
        message = BrokerHeartbeatRequest(
            self._identity.broker_id,
            self._lifecycle.broker_epoch,
            self._applied_offset(),
            beat.wants_fence,
            beat.wants_shut_down,
            [topic_id_bytes(one) for one in beat.offline_directories],
            () if self._knows_cordoned() and self._lifecycle.state is not BrokerState.STARTING else None,
        )
        response = await self._channel.request(BROKER_HEARTBEAT, message, self._timeout_seconds)
        _check(response.error_code)
        self._logged = ""
        self._lifecycle.beat_responded(
            is_caught_up=response.is_caught_up,
            is_fenced=response.is_fenced,
            may_shut_down=response.should_shut_down,
            now_ms=self._now_ms(),
        )
        self._responded_ms = self._now_ms()
        if response.is_fenced:
            self._fenced.set()
        if response.is_fenced != self._was_fenced:
            self._was_fenced = response.is_fenced
            LOG.info("The controller has %s this broker", "fenced" if response.is_fenced else "unfenced")

    def _report(self) -> None:
        if self._lifecycle.state is not self._reported:
            LOG.info("The broker has transitioned from %s to %s", self._reported.name, self._lifecycle.state.name)
            self._reported = self._lifecycle.state
            self._state_changed(self._lifecycle.state)
            self._moved.set()


def _check(error_code: int) -> None:
    error = ErrorCode.of(error_code)
    if error is not ErrorCode.NONE:
        meaning = _MEANINGS.get(error, "")
        raise TidegaugeError(error, f"{error.name}: {meaning}" if meaning else error.name)
