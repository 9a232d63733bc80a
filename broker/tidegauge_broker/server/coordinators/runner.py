"""Runs a pure coordinator: one event at a time, its effects carried out before the next.

Contract: everything here happens on the event loop. The result of an effect comes back as a later event, never within
the step: events are queued. A large decision (``Coordinator.is_large``) is made in a thread while the queue
waits for it; readers of the coordinator's state hold ``at_rest`` meanwhile. Leadership changes are reported
from within a step of the replication core; they are taken up when that step is over, in their order, and before any
request that arrives later.

Invariants:
- Every request gets at most one response; the request of a connection that has closed is forgotten by the caller alone
  (Kafka 3.9 has no notion of it: the coordinator keeps a group's member until the session ends).
- A partition whose log cannot be read to its end is not served, and no other partition notices.
- A defect in the decision about a group or a transactional id costs that one, which is out of service until the next
  load; the coordinator takes care of it. A defect that reaches this module is in a shared part, leaderships and loads:
  the broker halts, as for a defect of the replication core. An effect that fails unexpectedly concerns its recipient
  alone (docs/adr/0023-a-defect-costs-its-group.md).

Source: GroupCoordinator, GroupMetadataManager, TransactionStateManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Generic, Protocol, TypeVar, cast

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge_broker.coordinator.effects import Append, Defect, Effect, LogLine, Note, ReadLog, Respond
from tidegauge_broker.coordinator.events import (
    Appended,
    Elected,
    Event,
    LoadCompleted,
    RecordsRead,
    Resigned,
    ShareEvent,
    ShutDown,
    TransactionEvent,
)
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest, ProduceResult
from tidegauge_broker.replica.verification import VerificationGuard
from tidegauge_broker.server.deadline_timer import DeadlineTimer
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

LOG = logging.getLogger("tidegauge.coordinators")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_KEYS = {"group": "group", "offsets": "group", "transaction": "transactional_id"}
"""The name of an event's key, by the event's kind."""
MAX_CHUNK_BYTES = 65_536
"""Limit of the bytes read and replayed at a time: the event loop serves others between two chunks."""

AnyEvent = Event | TransactionEvent | ShareEvent


class Coordinator(Protocol):
    """The interface of a coordinator to its runner."""

    def handle(self, event: Any, now_ms: int) -> list[Effect]:
        """Take an event."""
        ...

    def step(self, now_ms: int) -> list[Effect]:
        """Run the expired timers."""
        ...

    def next_deadline_ms(self) -> int | None:
        """Return when ``step`` has something to do next; None: never."""
        ...

    def is_large(self, event: Any | None, now_ms: int) -> bool:
        """Whether an event, or (None) the expired timers, would hold the event loop for too long."""
        ...


class TopicSettings(Protocol):
    """Settings of a coordinator whose keys are assigned to the partitions of its topic.

    Attributes:
        partitions: how many it has.
    """

    partitions: int


Run = TypeVar("Run", bound=Coordinator)


class CoordinatorRunner(Generic[Run]):
    """Runs one coordinator on the event loop. A subclass adds requests, and the effects that its coordinator alone has.

    Args:
        coordinator: the one to run.
        settings: the coordinator's, which it shares.
        topic: the internal topic that keeps its state.
        chunk_bytes: limit of one read when a partition is loaded.
        replicas: append to and read the topic.
        events: the event log.
        now_ms: a clock that never goes back.
        halt: called with a defect in what all share; must end the process at once.

    Attributes:
        coordinator: for reading its views and counters only, while ``at_rest`` is held.
        at_rest: held while a decision is made in a thread.
        loaded: called with the time in ms from an election to the end of its load, if the log could be read. Metrics
            set it.
    """

    def __init__(
        self,
        coordinator: Run,
        settings: TopicSettings,
        topic: str,
        chunk_bytes: int,
        replicas: ReplicaManager,
        events: EventLogWriter,
        now_ms: Callable[[], int],
        halt: Callable[[Exception], None],
    ) -> None:
        self.coordinator = coordinator
        self.loaded: Callable[[float], None] | None = None
        self._elected_ms: dict[int, int] = {}
        self.topic = topic
        self._topic_settings = settings
        self._chunk_bytes = min(chunk_bytes, MAX_CHUNK_BYTES)
        self._replicas = replicas
        self._events_log = events
        self._now_ms = now_ms
        self._halt = halt
        self._queue: deque[AnyEvent | None] = deque()  # None: a timer has fired
        self._changing: Counter[int] = Counter()  # partitions, by how many of their elections and resignations wait
        self._is_running = False
        self._is_beside = False
        self.at_rest = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer = DeadlineTimer(now_ms, lambda: self._put(None))
        self._closed = False
        self._executors: dict[type, Callable[[Any], None]] = {
            ReadLog: self._read_log,
            Append: self._append,
            Respond: self._respond,
            Note: self._note,
            LogLine: self._say,
            Defect: self._report,
        }

    @property
    def partitions(self) -> int:
        """Number of partitions of the topic, by which keys are assigned to partitions."""
        return self._topic_settings.partitions

    def topic_seen(self, partitions: int) -> None:
        """Take over how many partitions the topic has; it never shrinks."""
        if partitions:
            self._topic_settings.partitions = partitions

    # Events

    def leadership_changed(self, at: TopicPartition, *, leads: bool, leader_epoch: int) -> None:
        """Take up that this broker has gained or lost a partition of the topic; others are none of its affair.

        Call it within the step of the replication core that changes the leadership.
        """
        if at.topic == self.topic:
            event = Elected(at.partition, leader_epoch) if leads else Resigned(at.partition, leader_epoch)
            if leads:
                self._elected_ms[at.partition] = self._now_ms()
            self._queue.append(event)
            self._changing[at.partition] += 1
            asyncio.get_running_loop().call_soon(self._run)

    def shut_down(self) -> None:
        """Reject requests from now on: the broker stops."""
        self._put(ShutDown())

    def _asked(self, make: Callable[[object], AnyEvent]) -> asyncio.Future[Any]:
        """Put an event that has a token, and return the future of its response."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._put(make(future))
        return future

    def _put(self, event: AnyEvent | None) -> None:
        self._queue.append(event)
        self._run()

    def _run(self) -> None:
        """Process the queued events, in their order; large ones beside the event loop, while the others wait."""
        if self._is_running or self._is_beside or self._closed:
            return
        self._is_running = True
        try:
            while self._queue and not self._is_beside:
                event = self._queue.popleft()
                if isinstance(event, Elected | Resigned):
                    self._changing[event.partition] -= 1
                if self.coordinator.is_large(event, self._now_ms()):
                    self._is_beside = True
                    self._in_background(self._decide_beside(event), f"large-decision-{self.topic}")
                else:
                    self._carry_out(self._decided(event))
        finally:
            self._is_running = False
        if not self._is_beside:
            self._arm_timer()

    async def _decide_beside(self, event: AnyEvent | None) -> None:
        """Decide in a thread, carry the decision out, and continue with the queue."""
        try:
            async with self.at_rest:
                effects = await asyncio.to_thread(self._decided, event)
        finally:
            self._is_beside = False
        if self._closed:
            return
        self._is_running = True
        try:
            self._carry_out(effects)
        finally:
            self._is_running = False
        self._run()

    def _decided(self, event: AnyEvent | None) -> list[Effect]:
        decide = self.coordinator.step if event is None else partial(self.coordinator.handle, event)
        try:
            return decide(self._now_ms())
        except Exception as problem:
            self._halt(problem)
            raise

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        """Carry out a step; an effect that fails unexpectedly concerns its recipient alone."""
        for effect in effects:
            try:
                self._executors[type(effect)](effect)
            except Exception:
                LOG.exception("%s of a coordinator failed, which is a defect", type(effect).__name__)
                outcome = self._outcome_of_failed(effect)
                if outcome is not None:
                    self._queue.append(outcome)

    def _outcome_of_failed(self, effect: Effect) -> AnyEvent | None:
        """Return the event that a failed effect's coordinator awaits, or None."""
        if isinstance(effect, Append) and effect.acks != 0:
            return Appended(effect.append_id, ErrorCode.UNKNOWN_SERVER_ERROR, -1)
        return None

    # Effects

    def _respond(self, effect: Respond) -> None:
        future = cast("asyncio.Future[Any]", effect.token)
        if not future.done():
            future.set_result(effect.result)

    def _note(self, effect: Note) -> None:
        if effect.kind == "coordinator":
            at = TopicPartition(self.topic, int(effect.key))
            self._events_log.note(effect.kind, effect.cause, effect.fields, at)
        else:
            self._events_log.note(effect.kind, effect.cause, {_KEYS[effect.kind]: effect.key, **effect.fields})

    @staticmethod
    def _say(effect: LogLine) -> None:
        LOG.log(_LEVELS[effect.level], "%s", effect.text)

    @staticmethod
    def _report(effect: Defect) -> None:
        LOG.error("%s", effect.text, exc_info=effect.problem)

    def _append(self, effect: Append) -> None:
        guard = cast("VerificationGuard | None", effect.guard)
        at = TopicPartition(self.topic, effect.partition)
        if self._changing[effect.partition]:  # the leadership of the decision ended while a thread made it
            self._queue.append(Appended(effect.append_id, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1))
            return
        request = ProduceRequest(
            effect.acks, effect.timeout_ms, [ProducePartition(at, effect.batch, guard)], from_coordinator=True
        )
        future = self._replicas.produce(request)
        if future.done():
            self._appended(effect, future)
        else:
            future.add_done_callback(partial(self._appended, effect))

    def _appended(self, effect: Append, future: asyncio.Future[Sequence[ProduceResult]]) -> None:
        if future.cancelled():
            return
        (result,) = future.result()
        if effect.acks == 0:
            if result.error is not ErrorCode.NONE:
                LOG.warning("Tombstones were not appended to %s: %s", result.topic_partition, result.message)
            return
        self._put(Appended(effect.append_id, result.error, result.base_offset))

    def _in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run what takes turns of the event loop; ``close`` ends it."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Loading

    def _read_log(self, effect: ReadLog) -> None:
        self._in_background(self._load(effect), f"load-{self.topic}-{effect.partition}")

    async def _load(self, effect: ReadLog) -> None:
        """Read a partition to its log end offset, even if it is unloaded meanwhile; rule of the module."""
        problem, is_committed = "", False
        try:
            end = await self._read(effect)
            is_committed = self._replicas.is_committed(TopicPartition(self.topic, effect.partition), end)
        except TidegaugeError as refusal:
            problem = refusal.message
        except Exception as defect:
            LOG.exception("Loading partition %d of %s failed", effect.partition, self.topic)
            problem = repr(defect)
        self._put(LoadCompleted(effect.partition, effect.leader_epoch, problem, is_committed))
        if self.loaded is not None and not problem and effect.partition in self._elected_ms:
            self.loaded(self._now_ms() - self._elected_ms[effect.partition])

    async def _read(self, effect: ReadLog) -> int:
        """Read on in the log that the partition has at each turn: its replica may move to another log directory.

        Returns:
            The offset at which it stopped.
        """
        at = TopicPartition(self.topic, effect.partition)
        offset = 0
        while self._replicas.leads(at) and (log := self._replicas.logs.get(at)) and offset < log.log_end_offset:
            offset = max(offset, log.log_start_offset)
            batches = log.read(offset, log.log_end_offset, self._chunk_bytes, at_least_one_batch=True)
            if not batches:
                break  # compaction left no batch above this offset
            self._put(RecordsRead(effect.partition, effect.leader_epoch, batches))
            offset = [header.next_offset for header in iterate_headers(batches)][-1]
            await asyncio.sleep(0)
        return offset

    # Time

    def _arm_timer(self) -> None:
        due_ms = self.coordinator.next_deadline_ms()
        if not self._closed and due_ms is not None:
            self._timer.set(due_ms)

    # The end

    async def close(self) -> None:
        """Stop loading, requests to other brokers, and the timer."""
        self._closed = True
        self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
