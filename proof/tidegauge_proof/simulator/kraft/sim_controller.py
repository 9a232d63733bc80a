"""The controller in one process of the simulated quorum: real decisions, one event after the other.

It keeps the rules of the real shell (``QuorumController``): an event is decided from the image with the pending
records; its records are proposed, and memory changes when the log has taken them. A response waits until they are
committed; a leadership that ends takes memory and all that waits with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge_controller.metadata.active import ActiveController
from tidegauge_controller.metadata.decisions.activation import activate
from tidegauge_controller.metadata.decisions.view import ControllerSettings, Decision
from tidegauge_controller.metadata.image import MetadataImage
from tidegauge_controller.raft import effects, events
from tidegauge_proof.simulator.kraft.metadata_node import MetadataNode

Decide = Callable[[ActiveController, int], Decision[Any]]
Done = Callable[[Any], None]
Failed = Callable[[ErrorCode], None]
Give = Callable[[events.Event], None]


def ignore(*_: object) -> None:
    """Take an outcome for which nothing waits."""


class Write(NamedTuple):
    """An event of the controller's queue.

    Attributes:
        decide: decides.
        done: is called with the response when it may be sent.
        failed: is called with an error instead.
        appended: is called with the memory, the response and the last offset once memory has the records.
    """

    decide: Decide
    done: Done = ignore
    failed: Failed = ignore
    appended: Callable[[ActiveController, Any, int], None] = ignore


class _Proposed(NamedTuple):
    write: Write
    active: ActiveController
    decision: Decision[Any]
    prepared: MetadataImage


class SimController:
    """The controller of one process.

    Args:
        settings: of the controller.
        bootstrap: the records of bootstrap.checkpoint.
        metadata: of its process.
        give: gives the process's node an event.
        committed_end: the end of what the quorum has committed, for the check of responses (C3).

    Attributes:
        active: the memory; None: it is not active.
        premature: an offset that was responded to before it was committed; None: there was none.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        bootstrap: Sequence[MetadataRecord],
        metadata: MetadataNode,
        give: Give,
        committed_end: Callable[[], int],
    ) -> None:
        self.active: ActiveController | None = None
        self.premature: int | None = None
        self._settings = settings
        self._bootstrap = bootstrap
        self._metadata = metadata
        self._give = give
        self._committed_end = committed_end
        self._claimed: int | None = None
        self._queue: deque[Write] = deque()
        self._waiting: deque[tuple[int, Write, Any]] = deque()
        self._proposed: _Proposed | None = None

    def write(self, write: Write) -> None:
        """Queue an event; it fails at once if this controller is not active."""
        if self.active is None:
            write.failed(ErrorCode.NOT_CONTROLLER)
        else:
            self._queue.append(write)

    def leadership_changed(self, leader_id: int | None, epoch: int) -> None:
        """Take in who leads."""
        self.renounce()
        self._claimed = epoch if leader_id == self._settings.node_id else None

    @property
    def has_work(self) -> bool:
        """Whether ``go_on`` would do anything though no more records are committed."""
        return bool(self._queue) if self.active is not None else self._claimed is not None

    def go_on(self, high_watermark: int, log_end: int, now_ms: int) -> None:
        """Take in the committed records, become active if it is time, and decide the next event."""
        active = self.active
        if active is not None:
            active.commit(self._metadata.next_offset - 1)
            while self._waiting and self._waiting[0][0] < self._metadata.next_offset:
                last, write, response = self._waiting.popleft()
                self._respond(last, write, response)
        elif self._claimed is not None and self._metadata.next_offset >= high_watermark:
            self.active = ActiveController(self._settings, self._metadata.image, self._claimed, log_end, now_ms)
            is_open = self._metadata.in_transaction
            self._queue.append(Write(lambda memory, _: activate(memory.view, self._bootstrap, in_transaction=is_open)))
        while self.active is not None and self._proposed is None and self._queue:
            self._decide(self.active, self._queue.popleft(), now_ms)

    def _decide(self, active: ActiveController, write: Write, now_ms: int) -> None:
        try:
            decision = write.decide(active, now_ms)
        except TidegaugeError as problem:
            write.failed(problem.code)
            return
        if decision.records:
            records = tuple(decision.records)
            self._proposed = proposed = _Proposed(write, active, decision, active.prepare(records, now_ms))
            self._give(events.Propose(proposed, active.epoch, len(records), 64 * len(records), records))
            return
        self._park(active, write, decision.response, active.last_pending_offset)

    def decided(self, effect: effects.Proposed | effects.NotProposed) -> None:
        """Go on with the event whose records the log has taken or refused."""
        proposed = self._proposed
        if effect.token is not proposed or proposed is None:
            return
        self._proposed = None
        if self.active is not proposed.active:
            return  # its caller has its error already
        if isinstance(effect, effects.NotProposed):
            proposed.write.failed(effect.error)
            self._give(events.Resign(proposed.active.epoch))
            self.renounce()
            return
        records = proposed.decision.records
        last = proposed.active.accept(records, proposed.prepared, effect.end_offset - len(records))
        proposed.write.appended(proposed.active, proposed.decision.response, last)
        self._park(proposed.active, proposed.write, proposed.decision.response, last)

    def _park(self, active: ActiveController, write: Write, response: Any, last: int | None) -> None:
        """Let a response wait for the records that it depends on."""
        del active
        if last is None:
            write.done(response)
        elif last < self._metadata.next_offset:
            self._respond(last, write, response)
        else:
            self._waiting.append((last, write, response))

    def _respond(self, last: int, write: Write, response: Any) -> None:
        if last >= self._committed_end():
            self.premature = last
        write.done(response)

    def renounce(self) -> None:
        """Drop memory; what waits gets NOT_CONTROLLER."""
        self._claimed = None
        if self.active is None:
            return
        self.active = None
        failed = [write for _, write, _ in self._waiting] + list(self._queue)
        if self._proposed is not None:
            failed.append(self._proposed.write)
        self._waiting.clear()
        self._queue.clear()
        self._proposed = None
        for write in failed:
            write.failed(ErrorCode.NOT_CONTROLLER)
