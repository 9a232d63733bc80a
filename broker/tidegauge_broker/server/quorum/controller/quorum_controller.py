"""The controller: one queue of events around the pure decisions, over one node of the quorum.

Rules (``QuorumController``):
    1. The node that leads the quorum is active when its image has all records that were committed before its epoch. Its
       first event writes the first records (``activate``); nothing is decided before that.
    2. Events are decided one after the other, from the image with the pending records. The records of a decision are
       tried on that image first, then proposed to the quorum as a whole; memory changes when the log has taken them.
    3. A response waits until its records are committed and in the committed image. So does a response without records,
       for the records that were pending when it was decided.
    4. When leadership is lost, memory is dropped, and all that waits gets NOT_CONTROLLER. The committed image remains.
    5. An event that is refused, or that meets a defect, costs itself alone: nothing was proposed yet. A node whose log
       refuses the records of a decision gives its leadership up.
    6. What would hold the event loop up is done in a thread, while the queue waits for it: decisions about many
       partitions, and about large requests. Nothing else changes memory meanwhile; contacts of brokers that arrive
       then are noted after it. The response to a large request is made in a thread, too, one at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge_broker.server.quorum.calls import Refuse
from tidegauge_broker.server.quorum.committed_metadata import CommittedMetadata
from tidegauge_broker.server.quorum.controller.events import WriteEvent
from tidegauge_broker.server.quorum.controller.proposals import Proposal, proposals_of
from tidegauge_broker.server.quorum.controller.waiting_responses import WaitingResponses
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions.activation import activate
from tidegauge_controller.metadata.decisions.view import ControllerSettings, Decision
from tidegauge_controller.metadata.image import MetadataImage
from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.node import RaftNode

LOG = logging.getLogger("tidegauge.controller")
_UNEXPECTED = "The server experienced an unexpected error when processing the request."
_SHUTTING_DOWN = "The controller is shutting down."
_TIMED_OUT = "The request waited in the controller's queue for longer than its timeout."
_CLOSED = "The client has closed its connection."
_THREAD_FROM = 1_000
"""Number of partitions that are decided about in a thread, and of records that are tried and encoded there."""


class _Refused(Exception):
    """The quorum's log has not taken a decision's records; if ``is_partial`` it has some, which memory lacks."""

    def __init__(self, error: ErrorCode, message: str, *, is_partial: bool = False) -> None:
        super().__init__(message)
        self.error, self.message, self.is_partial = error, message, is_partial


class QuorumController:
    """The controller on one node. It observes the node (``driver.Observer``), and must come after the committed image.

    Args:
        node: the node.
        settings: the controller's.
        bootstrap: the records of bootstrap.checkpoint.
        now_ms: the node's clock.

    Attributes:
        committed: the committed image; set before anything else is called.
        give: gives the node an event; likewise.
        on_activation: is called when the controller has become active, and has written its first records.
        on_renouncement: is called when it is active no longer.
        on_image: is called when there is another committed image.
        one_large_at_a_time: held while a large request is read, or its response made, in a thread.
    """

    committed: CommittedMetadata
    give: Callable[[events.Event], None]

    def __init__(
        self,
        node: RaftNode,
        settings: ControllerSettings,
        bootstrap: Sequence[MetadataRecord],
        now_ms: Callable[[], int],
    ) -> None:
        self.on_activation: Callable[[], None] = lambda: None
        self.on_renouncement: Callable[[], None] = lambda: None
        self.on_image: Callable[[], None] = lambda: None
        self.settings = settings
        self._node = node
        self._bootstrap = bootstrap
        self._now_ms = now_ms
        self._claimed_epoch: int | None = None
        self._active: ActiveController | None = None
        self._queue: deque[WriteEvent] = deque()
        self._arrived = asyncio.Event()
        self._waiting = WaitingResponses()
        self._late_contacts: list[tuple[int, int, int]] | None = None
        self.one_large_at_a_time = asyncio.Lock()
        self._responding: set[asyncio.Task[None]] = set()
        self._run: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to take events."""
        self._run = asyncio.get_running_loop().create_task(self._take_events(), name="controller")

    @property
    def active(self) -> ActiveController | None:
        """The memory of the active controller; None if this node is not active."""
        return self._active

    @property
    def image(self) -> MetadataImage:
        """The image of the committed records, from which requests that only read are completed."""
        return self.committed.image

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version in force."""
        return self._node.history.version

    @property
    def voter_ids(self) -> list[int]:
        """The ids of the quorum's voters."""
        return list(self._node.history.current.ids)

    @property
    def now_ms(self) -> int:
        """The time of the node's clock."""
        return self._now_ms()

    def write(self, event: WriteEvent) -> None:
        """Queue an event; fail it at once if this node is not active."""
        if self._active is None:
            self._fail(event, ErrorCode.NOT_CONTROLLER, self.not_active())
            return
        self._queue.append(event)
        self._arrived.set()

    def contacted(self, broker_id: int, broker_epoch: int) -> None:
        """Note that a heartbeat has arrived, of a broker that is registered with this epoch."""
        if self._active is not None:
            broker = self._active.image.brokers.get(broker_id)
            if broker is None or broker.epoch != broker_epoch:
                return
            if self._late_contacts is None:
                self._active.heartbeats.contacted(broker_id, broker_epoch, self._now_ms())
            else:
                self._late_contacts.append((broker_id, broker_epoch, self._now_ms()))

    def upgrade_kraft_version(self, level: int, done: Callable[[], None], failed: Refuse) -> None:
        """Let the quorum raise kraft.version by a control record; call ``done`` when its log has it, or ``failed``."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def decided(found: asyncio.Future[Any]) -> None:
            effect = found.result()
            if isinstance(effect, effects.NotProposed):
                failed(effect.error, effect.message)
            else:
                done()

        future.add_done_callback(decided)
        self.give(events.UpgradeKRaftVersion(future, level))

    def not_active(self) -> str:
        """Return Kafka's sentence for a request at a controller that is not active."""
        leader_id = self._node.state.leader_id
        if leader_id is None or leader_id == self.settings.node_id:
            return "No controller appears to be active."
        return f"The active controller appears to be node {leader_id}."

    # Observer

    def leadership_changed(self, effect: effects.LeadershipChanged) -> None:
        """Become active as soon as the image has all committed records, or cease to be."""
        self._renounce()
        self._claimed_epoch = effect.epoch if effect.leader_id == self.settings.node_id else None
        self._maybe_become_active()

    def proposal_decided(self, effect: effects.Proposed | effects.NotProposed) -> None:
        """Continue the event whose records were proposed."""
        if isinstance(effect.token, asyncio.Future) and not effect.token.done():
            effect.token.set_result(effect)

    def high_watermark_moved(self, effect: effects.HighWatermarkMoved) -> None:
        """Do nothing: ``image_changed`` follows when the committed records are in the image."""

    def state_changed(self, effect: effects.StateChanged) -> None:
        """Do nothing: a change of the leadership is reported as such."""

    def image_changed(self) -> None:
        """Take in that the committed image has changed."""
        self.on_image()
        if self._active is not None:
            self._active.commit(self.committed.next_offset - 1)
            self._waiting.committed(self.committed.next_offset)
        self._maybe_become_active()

    # Activity

    def _maybe_become_active(self) -> None:
        epoch = self._claimed_epoch
        if epoch is None or self._active is not None or not self.committed.is_caught_up:
            return
        now_ms = self._now_ms()
        active = ActiveController(self.settings, self.committed.image, epoch, self._node.log.end_offset, now_ms)
        self._active = active
        LOG.info("Controller %d is active in epoch %d", self.settings.node_id, epoch)
        in_transaction = self.committed.in_transaction
        self._queue.append(
            WriteEvent(
                "activation",
                lambda controller, _: activate(controller.view, self._bootstrap, in_transaction=in_transaction),
                failed=self._activation_failed,
                appended=lambda *_: self.on_activation(),
            )
        )
        self._arrived.set()

    def _activation_failed(self, error: ErrorCode, message: str) -> None:
        if error not in {ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT}:  # the latter at the process's end
            LOG.error("Controller %d can't become active: %s", self.settings.node_id, message)
            self._give_up()

    def _give_up(self) -> None:
        """Give the leadership up."""
        if self._claimed_epoch is not None:
            self.give(events.Resign(self._claimed_epoch))
        self._renounce()

    def _renounce(self) -> None:
        self._claimed_epoch = None
        if self._active is None:
            return
        LOG.info("Controller %d is not active any more", self.settings.node_id)
        self._active = None
        self.on_renouncement()
        self._fail_all(ErrorCode.NOT_CONTROLLER, self.not_active())

    def _fail_all(self, error: ErrorCode, message: str) -> None:
        queued, self._queue = self._queue, deque()
        self._waiting.fail(error, message)
        for event in queued:
            self._fail(event, error, message)

    # Events

    async def _take_events(self) -> None:
        while True:
            await self._arrived.wait()
            while self._queue:
                await self._handle(self._queue.popleft())
                await asyncio.sleep(0)
            self._arrived.clear()

    async def _handle(self, event: WriteEvent) -> None:
        """Decide about an event, and let the log take the decision's records."""
        active = self._active
        if active is None:
            self._fail(event, ErrorCode.NOT_CONTROLLER, self.not_active())
            return
        try:
            decision = await self._decide(active, event)
            last = await self._append(active, decision) if decision.records else active.last_pending_offset
        except TidegaugeError as problem:
            self._fail(event, problem.code, problem.message)
            return
        except _Refused as problem:
            self._fail(event, problem.error, problem.message)
            if (problem.error is ErrorCode.NOT_CONTROLLER or problem.is_partial) and self._active is active:
                self._give_up()
            return
        except Exception:
            LOG.exception("%s meets a defect of this controller; nothing of it was decided", event.name)
            self._fail(event, ErrorCode.UNKNOWN_SERVER_ERROR, _UNEXPECTED)
            return
        self._call(event.name, event.appended, active, decision.response, active.next_offset - 1)
        if last is None:
            self._complete(event, decision.response)
            return
        self._waiting.add(
            last,
            lambda: self._complete(event, decision.response),
            lambda error, message: self._fail(event, error, message),
        )
        self._waiting.committed(self.committed.next_offset)

    async def _decide(self, active: ActiveController, event: WriteEvent) -> Decision[Any]:
        """Return the decision about an event; rule 6.

        Raises:
            TidegaugeError: it is refused.
            _Refused: the leadership was lost meanwhile.
        """
        now_ms = self._now_ms()
        if event.deadline_ms is not None and now_ms > event.deadline_ms:
            event.expired(active)
            raise TidegaugeError(ErrorCode.REQUEST_TIMED_OUT, _TIMED_OUT)
        if not event.is_wanted():
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, _CLOSED)
        if not event.is_large and not _is_large(active.image, event.partitions):
            return event.decide(active, now_ms)
        self._late_contacts = []
        try:
            decision = await asyncio.to_thread(event.decide, active, now_ms)
        finally:
            late, self._late_contacts = self._late_contacts, None
            for contact in late:
                active.heartbeats.contacted(*contact)
        if self._active is not active:
            raise _Refused(ErrorCode.NOT_CONTROLLER, self.not_active())
        return decision

    async def _append(self, active: ActiveController, decision: Decision[Any]) -> int:
        """Let the log take the records of a decision, then memory; return the offset of the last one.

        Raises:
            UnreplayableRecord: a record does not fit; nothing was proposed.
            _Refused: the log has not taken them.
        """
        records, now_ms = decision.records, self._now_ms()

        def tried() -> tuple[MetadataImage, list[Proposal]]:
            return active.prepare(records, now_ms), list(proposals_of(decision))

        prepared, parts = tried() if len(records) < _THREAD_FROM else await asyncio.to_thread(tried)
        end_offset = 0
        for part in parts:
            future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            self.give(events.Propose(future, active.epoch, len(part.values), part.size_bytes, part.values))
            effect = await future
            if isinstance(effect, effects.NotProposed):
                raise _Refused(effect.error, effect.message, is_partial=end_offset > 0)
            if self._active is not active:
                raise _Refused(ErrorCode.NOT_CONTROLLER, self.not_active())
            end_offset = effect.end_offset
        return active.accept(records, prepared, end_offset - len(records))

    def _complete(self, event: WriteEvent, response: Any) -> None:
        """Give an event its response; if that can't be sent, the caller gets UNKNOWN_SERVER_ERROR."""

        def respond() -> None:
            if not self._call(event.name, event.done, response):
                self._call(event.name, event.failed, ErrorCode.UNKNOWN_SERVER_ERROR, _UNEXPECTED)

        self._respond(event, respond)

    def _fail(self, event: WriteEvent, error: ErrorCode, message: str) -> None:
        self._respond(event, partial(self._call, event.name, event.failed, error, message))

    def _respond(self, event: WriteEvent, respond: Callable[[], Any]) -> None:
        """Respond to the request of an event; rule 6."""
        if event.is_large:
            self._responding.add(task := asyncio.get_running_loop().create_task(self._respond_beside(respond)))
            task.add_done_callback(self._responding.discard)
        else:
            respond()

    async def _respond_beside(self, respond: Callable[[], Any]) -> None:
        async with self.one_large_at_a_time:
            await asyncio.to_thread(respond)

    def _call(self, name: str, function: Callable[..., None], *arguments: Any) -> bool:
        """Call what an event brought; return False after a defect in it, which costs this event alone."""
        try:
            function(*arguments)
        except Exception:
            LOG.exception("The response to %s meets a defect", name)
            return False
        return True

    async def close(self) -> None:
        """Take no more events; those that wait get REQUEST_TIMED_OUT."""
        if self._run is not None:
            self._run.cancel()
            await asyncio.gather(self._run, return_exceptions=True)
        self._active = None
        self.on_renouncement()
        self._fail_all(ErrorCode.REQUEST_TIMED_OUT, _SHUTTING_DOWN)


def _is_large(image: MetadataImage, partitions: int | None) -> bool:
    """Return whether a decision is about many partitions.

    Args:
        image: that it is made from.
        partitions: how many; None: all that there are.
    """
    if partitions is not None:
        return partitions >= _THREAD_FROM
    count = 0
    for topic in image.topics.values():
        count += len(topic.partitions)
        if count >= _THREAD_FROM:
            return True
    return False
