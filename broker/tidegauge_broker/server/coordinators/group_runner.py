"""Runs the pure group coordinator: one event at a time, its effects carried out in order before the next.

Contract: everything here happens on the event loop. What an effect triggers comes back as a later event, never within
the step: events are queued. Leadership changes are reported from within a step of the replication core; they are taken
up when that step is over, in their order, and before any request that arrives later.

Invariants:
- Every request gets at most one response; the request of a connection that has closed is forgotten by the caller alone
  (Kafka 3.9 has no notion of it: the coordinator keeps its member until the session ends).
- A partition whose log cannot be read is served with what was read, and no other partition notices.
- A defect in the coordinator leaves a state that its partitions share and that cannot be trusted: the broker halts, as
  for a defect of the replication core.

Source: GroupCoordinator, GroupMetadataManager.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC, GroupRequest, GroupResult, JoinGroup
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import iterate_headers
from tidegauge.settings import Values
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.effects import Append, Effect, LogLine, Note, ReadLog, Respond
from tidegauge_broker.coordinator.events import (
    Appended,
    Elected,
    Event,
    LoadCompleted,
    PartitionsDeleted,
    RecordsRead,
    RequestArrived,
    Resigned,
    ShutDown,
)
from tidegauge_broker.coordinator.settings import GroupSettings
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest, ProduceResult
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

LOG = logging.getLogger("tidegauge.groups")
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
MAX_CHUNK_BYTES = 65_536
"""Limit of what is read and replayed at a time: the event loop serves others between two chunks."""
_MS_PER_MINUTE = 60_000


def group_settings(settings: Values) -> GroupSettings:
    """Return a broker's settings as the coordinator needs them."""
    return GroupSettings(
        partitions=settings.integer("offsets.topic.num.partitions"),
        group_min_session_timeout_ms=settings.integer("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=settings.integer("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
        group_max_size=settings.integer("group.max.size"),
        offset_metadata_max_bytes=settings.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.integer("offsets.retention.minutes") * _MS_PER_MINUTE,
        offsets_retention_check_interval_ms=settings.integer("offsets.retention.check.interval.ms"),
        offsets_commit_timeout_ms=settings.integer("offsets.commit.timeout.ms"),
        offsets_commit_required_acks=settings.integer("offsets.commit.required.acks"),
        offsets_topic_compression_codec=settings.integer("offsets.topic.compression.codec"),
    )


class GroupRunner:
    """See the module.

    Args:
        settings: this broker's.
        replicas: append to and read __consumer_offsets.
        events: the event log.
        now_ms: a clock that never goes back.
        halt: called with a defect of the coordinator; must end the process at once.

    Attributes:
        coordinator: for reading its views and counters only.
    """

    def __init__(
        self,
        settings: Values,
        replicas: ReplicaManager,
        events: EventLogWriter,
        now_ms: Callable[[], int],
        halt: Callable[[Exception], None],
    ) -> None:
        self._settings = group_settings(settings)
        self.coordinator = GroupCoordinator(self._settings, now_ms())
        self._chunk_bytes = min(settings.integer("offsets.load.buffer.size"), MAX_CHUNK_BYTES)
        self._replicas = replicas
        self._events_log = events
        self._now_ms = now_ms
        self._halt = halt
        self._queue: deque[Event | None] = deque()  # None: a timer has fired
        self._is_running = False
        self._loads: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._closed = False
        self._executors: dict[type, Callable[[Any], None]] = {
            ReadLog: self._read_log,
            Append: self._append,
            Respond: self._respond,
            Note: self._note,
            LogLine: self._say,
        }

    # Events

    def request(self, request: GroupRequest) -> asyncio.Future[GroupResult]:
        """Hand a request to the coordinator; the future is done with its response. Cancel it to forget the response."""
        future: asyncio.Future[GroupResult] = asyncio.get_running_loop().create_future()
        member_uuid = str(uuid.uuid4()) if isinstance(request, JoinGroup) else ""
        self._put(RequestArrived(future, request, member_uuid))
        return future

    def leadership_changed(self, at: TopicPartition, *, leads: bool, leader_epoch: int) -> None:
        """Take up that this broker has gained or lost a partition of __consumer_offsets.

        Call it within the step of the replication core that changes the leadership.
        """
        if at.topic == OFFSETS_TOPIC:
            event = Elected(at.partition, leader_epoch) if leads else Resigned(at.partition, leader_epoch)
            self._queue.append(event)
            asyncio.get_running_loop().call_soon(self._run)

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Take up that partitions of other topics were deleted: their offsets are removed."""
        deleted = [at for at in partitions if at.topic != OFFSETS_TOPIC]
        if deleted:
            self._put(PartitionsDeleted(deleted))

    @property
    def partitions(self) -> int:
        """Number of partitions of __consumer_offsets, by which groups are assigned to partitions."""
        return self._settings.partitions

    def topic_seen(self, partitions: int) -> None:
        """Take over how many partitions __consumer_offsets has; it never shrinks."""
        if partitions:
            self._settings.partitions = partitions

    def _put(self, event: Event | None) -> None:
        self._queue.append(event)
        self._run()

    def _run(self) -> None:
        """Process the queued events, in their order."""
        if self._is_running or self._closed:
            return
        self._is_running = True
        try:
            while self._queue:
                event = self._queue.popleft()
                decide = self.coordinator.step if event is None else partial(self.coordinator.handle, event)
                self._carry_out(self._decided(decide))
        finally:
            self._is_running = False
        self._arm_timer()

    def _decided(self, decide: Callable[[int], list[Effect]]) -> list[Effect]:
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
                LOG.exception("%s of the group coordinator failed, which is a defect", type(effect).__name__)
                if isinstance(effect, Append) and effect.acks != 0:
                    self._queue.append(Appended(effect.append_id, ErrorCode.UNKNOWN_SERVER_ERROR, -1))

    # Effects

    def _respond(self, effect: Respond) -> None:
        future = cast("asyncio.Future[GroupResult]", effect.token)
        if not future.done():
            future.set_result(effect.result)

    def _note(self, effect: Note) -> None:
        if effect.kind == "coordinator":
            self._events_log.note(
                effect.kind, effect.cause, effect.fields, TopicPartition(OFFSETS_TOPIC, int(effect.key))
            )
        else:
            self._events_log.note(effect.kind, effect.cause, {"group": effect.key, **effect.fields})

    @staticmethod
    def _say(effect: LogLine) -> None:
        LOG.log(_LEVELS[effect.level], "%s", effect.text)

    def _append(self, effect: Append) -> None:
        at = TopicPartition(OFFSETS_TOPIC, effect.partition)
        request = ProduceRequest(
            effect.acks, effect.timeout_ms, [ProducePartition(at, effect.batch)], may_write_internal_topics=True
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

    # Loading

    def _read_log(self, effect: ReadLog) -> None:
        task = asyncio.get_running_loop().create_task(self._load(effect), name=f"load-offsets-{effect.partition}")
        self._loads.add(task)
        task.add_done_callback(self._loads.discard)

    async def _load(self, effect: ReadLog) -> None:
        """Read a partition to its log end offset, whatever happens to it meanwhile; rule of the module."""
        problem = ""
        try:
            await self._read(effect)
        except TidegaugeError as refusal:
            problem = refusal.message
        except Exception as defect:
            LOG.exception("Loading partition %d of %s failed", effect.partition, OFFSETS_TOPIC)
            problem = repr(defect)
        self._put(LoadCompleted(effect.partition, effect.leader_epoch, problem))

    async def _read(self, effect: ReadLog) -> None:
        at = TopicPartition(OFFSETS_TOPIC, effect.partition)
        log = self._replicas.logs.get(at)
        if log is None:
            return
        offset = log.log_start_offset
        while self._replicas.leads(at) and offset < log.log_end_offset:
            batches = log.read(offset, log.log_end_offset, self._chunk_bytes, at_least_one_batch=True)
            if not batches:
                return  # compaction left no batch above this offset
            self._put(RecordsRead(effect.partition, effect.leader_epoch, batches))
            offset = [header.next_offset for header in iterate_headers(batches)][-1]
            await asyncio.sleep(0)

    # Time

    def _arm_timer(self) -> None:
        due_ms = self.coordinator.next_deadline_ms()
        if self._closed or due_ms is None:
            return
        if self._timer is not None:
            if due_ms >= self._timer_ms:
                return  # it fires earlier, and is set again then
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_seconds = max(0, due_ms - self._now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._put(None)

    # The end

    def shut_down(self) -> None:
        """Reject requests from now on: the broker stops (COORDINATOR_NOT_AVAILABLE)."""
        self._put(ShutDown())

    async def close(self) -> None:
        """Stop loading and the timer."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        loads = list(self._loads)
        for task in loads:
            task.cancel()
        if loads:
            await asyncio.wait(loads)
