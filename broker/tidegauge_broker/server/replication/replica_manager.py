"""Runs the core: one event at a time, its effects carried out in order before the next.

Contract: everything here happens on the event loop, without an await between an event and the last of its effects;
so a half-done step is never visible. Appends and reads happen on the loop: they go to the page cache (ADR 0001).
Log creation and other blocking disk I/O run in the log pool.

Control requests are handled one after the other, each to its end, even if its sender disconnects: between its parts it
waits for the pool. The leader epochs that a LeaderAndIsr makes are in force at once, and on the disk before the
response: the writes of many partitions are made together, and only this request waits for them. (A process that is
killed in between loses them; recovery finds them in the batches, and an epoch without a batch has no record.) Those
that a follower finds in batches are written in the pool, too, all of a round together, and nothing waits for them: a
recovery point moves past a batch only when its epoch is on the disk (``PartitionLog``).

Invariants:
- Every token gets exactly one response. When an effect fails, its replica goes offline, and with it those of its log
  directory if that failed; all other partitions of the step go on (``replica/effect_executor.py``).
- Nothing is reported before it is written: responses follow the log effects of their step (``effects.py``).
- A defect in what the core's partitions share leaves a state that can't be trusted: the broker halts, as if killed.

Source: Kafka's ReplicaManager.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from tidegauge.control import (
    IsrProposal,
    IsrVerdict,
    LeaderAndIsrPartition,
    LeaderAndIsrRequest,
    PartitionsResponse,
    StopReplicaRequest,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition, partition_problem
from tidegauge.record_batch import COMPRESSION_NAMES
from tidegauge.settings import Values
from tidegauge_broker.formats.compression import NONE, Codec
from tidegauge_broker.log.creation import NewLog
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.future_logs import is_future
from tidegauge_broker.log.log_effects import LogEffects
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.old_style_offsets import old_style_offsets
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effect_executor import EffectExecutor, FetchResults
from tidegauge_broker.replica.effects import DeleteLog, Effect
from tidegauge_broker.replica.messages import (
    CONSUMER,
    DeleteRecordsResult,
    EpochEndResult,
    EpochRound,
    FetchedPartition,
    FetchRequest,
    FetchRound,
    LogOnDisk,
    OffsetLookup,
    OffsetResult,
    ProduceRequest,
    ProduceResult,
    RecordsToDelete,
    TimeLookup,
    TopicRules,
    Wait,
)
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.rounds import Admits
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.replication.effect_host import EffectHost, Outlets
from tidegauge_broker.server.replication.log_dir_moves import LogDirMoves, MoveLimits
from tidegauge_broker.server.replication.request_token import FetchToken, ProduceToken, ResponseRoom

LOG = logging.getLogger("tidegauge.replica")

MAX_TIMESTAMP = -3
"""ListOffsets for the record with the largest timestamp."""

Decision = TypeVar("Decision")
Result = TypeVar("Result")


def topic_rules(values: Values) -> TopicRules:
    """Return a topic's settings as the core needs them."""
    return TopicRules(
        min_insync_replicas=values.integer("min.insync.replicas"),
        max_message_bytes=values.integer("max.message.bytes"),
        segment_bytes=values.integer("segment.bytes"),
        unclean_leader_election=values.flag("unclean.leader.election.enable"),
        log_append_time=values.text("message.timestamp.type") == "LogAppendTime",
        compacted="compact" in values["cleanup.policy"],
        deletes="delete" in values["cleanup.policy"],
        timestamp_before_max_ms=values.integer("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=values.integer("message.timestamp.after.max.ms"),
        leader_throttled_replicas=values["leader.replication.throttled.replicas"],
        follower_throttled_replicas=values["follower.replication.throttled.replicas"],
        codec=_codec(values),
        down_converts=values.flag("message.downconversion.enable"),
    )


_LEVELS = {"gzip": "compression.gzip.level", "lz4": "compression.lz4.level", "zstd": "compression.zstd.level"}
"""The codecs that have levels, and the settings of these."""


def _codec(values: Values) -> Codec | None:
    """Return what ``compression.type`` asks for (LogConfig.getCompression)."""
    name = values.text("compression.type")
    if name == "producer":
        return None
    if name == "uncompressed":
        return Codec(NONE)
    level = _LEVELS.get(name)
    return Codec(COMPRESSION_NAMES.index(name), None if level is None else values.integer(level))


class ReplicaSize(NamedTuple):
    """A replica in its log directory.

    Attributes:
        size_bytes: of its log.
        offset_lag: by how much the log ends below the high watermark; that of a future log below the current log's
            end. -1 where the broker has no such replica, or it is offline.
        is_future: whether it is a copy that will replace the current replica.
    """

    size_bytes: int
    offset_lag: int
    is_future: bool = False


@dataclass(frozen=True, slots=True)
class LogDirectoryView:
    """A log directory; sizes are those of its file system, -1 where they are unknown."""

    path: str
    error: ErrorCode
    total_bytes: int = -1
    usable_bytes: int = -1
    replicas: Mapping[TopicPartition, ReplicaSize] = field(default_factory=dict)


class ReplicaManager:
    """The core and what it stands on.

    Args:
        core: all replicas of this broker.
        logs: their logs.
        events: the event log.
        now_ms: a clock that never goes back.
        in_log_pool: runs a blocking call in the pool for disk work.
        outlets: what is called in the process around the replicas.
        move_limits: how much is copied between log directories.

    Attributes:
        moves: the replicas that move between log directories.
        fetched: called with each fetch response of a leader that was taken in; metrics set it.
    """

    def __init__(
        self,
        core: BrokerCore,
        logs: LogManager,
        events: EventLogWriter,
        now_ms: Callable[[], int],
        in_log_pool: Callable[[Callable[[], None]], Awaitable[None]],
        outlets: Outlets = Outlets(),  # noqa: B008 - it is immutable
        move_limits: MoveLimits = MoveLimits(),  # noqa: B008 - likewise
    ) -> None:
        self.core = core
        self.logs = logs
        self._outlets = outlets
        self.fetched: Callable[[int, Sequence[FetchedPartition]], None] | None = None
        self._log_effects = LogEffects(logs)
        self._executor = EffectExecutor(
            core, self._log_effects, EffectHost(events, outlets, self._replicas_failed), now_ms
        )
        self._now_ms = now_ms
        self._in_log_pool = in_log_pool
        self.moves = LogDirMoves(self, move_limits, in_log_pool, now_ms)
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._closed = False
        self._wakes_fetches = False
        self._failed_directories: set[Path] = set()
        self._control = asyncio.Lock()
        self._control_tasks: set[asyncio.Task[Any]] = set()
        self._epoch_writes: set[asyncio.Task[None]] = set()

    # Clients and followers

    def produce(self, request: ProduceRequest) -> asyncio.Future[Sequence[ProduceResult]]:
        """Append at once; the future is done when acks is fulfilled, mostly already when this returns.

        Cancel it when its caller no longer waits. Waiting fetches are responded to in the next turn of the event loop,
        with what all requests of this turn append.
        """
        loop = asyncio.get_running_loop()
        token = ProduceToken(loop=loop)
        token.forget = self._forget
        self._step(self._append, request, token)
        if self.core.has_fetches_to_wake and not self._wakes_fetches:
            self._wakes_fetches = True
            loop.call_soon(self._wake_fetches)
        return token

    def _append(self, request: ProduceRequest, token: object, now_ms: int) -> Sequence[Effect]:
        return self.core.produce(request, token, now_ms, wake_later=True)

    def _wake_fetches(self) -> None:
        self._wakes_fetches = False
        if not self._closed:
            self._execute(self._decided(lambda: self.core.wake_fetches(self._now_ms())))

    def begin_fetch(self, request: FetchRequest, room: ResponseRoom | None = None) -> asyncio.Future[FetchResults]:
        """Read now, or as soon as there is enough to read; the future is done then, mostly already when this returns.

        Cancel it when its caller no longer waits.

        Args:
            request: of a consumer or a follower.
            room: the memory that the response may take; it holds the response's bytes afterwards.
        """
        token = FetchToken(loop=asyncio.get_running_loop())
        token.room = room
        token.forget = self._forget
        self._step(self.core.fetch, request, token)
        if request.replica_id != CONSUMER and self.core.fetches.quota.is_limited:
            token.add_done_callback(self._note_sent)
        return token

    async def fetch(self, request: FetchRequest, room: ResponseRoom | None = None) -> FetchResults:
        """Do what ``begin_fetch`` does, and return the results."""
        token = self.begin_fetch(request, room)
        if token.done():  # as mostly: the records are in the log
            return token.result()
        try:
            return await token
        except asyncio.CancelledError:
            if room is not None and not token.cancelled():
                room.release()  # the response has come just before
            raise

    def _forget(self, token: object) -> None:
        """Take a request out of the purgatory: its caller waits no longer."""
        self.core.cancel(token)

    def _note_sent(self, token: asyncio.Future[FetchResults]) -> None:
        """Count what a throttled follower is sent."""
        for result, records in () if token.cancelled() else token.result():
            if records:
                self.core.note_sent(result.topic_partition, len(records), self._now_ms())

    def old_style_offsets(self, lookup: OffsetLookup, count: int) -> tuple[ErrorCode, Sequence[int]]:
        """Return where segments begin, as version 0 of ListOffsets has it; see ``old_style_offsets``."""
        found = self.core.list_offset(replace(lookup, timestamp_ms=0))
        log = self.logs.get(lookup.topic_partition)
        if not isinstance(found, TimeLookup) or log is None:
            not_here = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return (not_here if isinstance(found, TimeLookup) else found.error), ()
        return ErrorCode.NONE, old_style_offsets(log, lookup.timestamp_ms, count, found.upper_bound, self._now_ms())

    def list_offset(self, lookup: OffsetLookup) -> tuple[OffsetResult, int]:
        """Return the offset for a time, and the timestamp found (-1 where none was looked up)."""
        in_log = self.core.list_offset(lookup)
        if not isinstance(in_log, TimeLookup):
            return in_log, -1
        at, bound = lookup.topic_partition, in_log.upper_bound
        log, is_largest = self.logs.get(at), in_log.timestamp_ms == MAX_TIMESTAMP
        if log is None:
            return in_log.nothing, -1
        found = log.find_largest_timestamp(bound) if is_largest else log.find_offset_by_time(in_log.timestamp_ms, bound)
        if found is None:
            return in_log.nothing, -1
        return OffsetResult(offset=found[0], leader_epoch=self.core.epoch_at(at, found[0])), found[1]

    async def delete_records(self, wanted: Sequence[RecordsToDelete], timeout_ms: int) -> Sequence[DeleteRecordsResult]:
        """Raise log start offsets; return when all live replicas have followed, or after the timeout."""
        token: asyncio.Future[Sequence[DeleteRecordsResult]] = asyncio.get_running_loop().create_future()
        self._execute(self._decided(lambda: self.core.delete_records(wanted, timeout_ms, token, self._now_ms())))
        try:
            return await token
        except asyncio.CancelledError:
            self.core.cancel(token)
            raise

    # The controller

    async def leader_and_isr(
        self, request: LeaderAndIsrRequest, values_of: Callable[[str], Awaitable[Values]]
    ) -> PartitionsResponse:
        """Open what must be opened, then let the core decide."""
        return await self._in_turn(lambda: self._leader_and_isr(request, values_of))

    async def stop_replica(self, request: StopReplicaRequest) -> PartitionsResponse:
        """Stop replicas, and perhaps drop them."""
        return await self._in_turn(lambda: self._stop_replica(request))

    async def alter_log_directories(self, wanted: Mapping[TopicPartition, str]) -> Mapping[TopicPartition, ErrorCode]:
        """Begin to move replicas to log directories of this broker, named by their absolute paths."""
        return await self._in_turn(lambda: self.moves.alter(wanted))

    async def _in_turn(self, make: Callable[[], Coroutine[Any, Any, Result]]) -> Result:
        async def take() -> Result:
            async with self._control:
                return await make()

        task = asyncio.get_running_loop().create_task(take(), name="control-request")
        self._control_tasks.add(task)
        task.add_done_callback(self._control_tasks.discard)
        return await asyncio.shield(task)

    async def until_quiet(self) -> None:
        """Wait for the control requests that have come, and for leader epochs that are being written."""
        if self._control_tasks or self._epoch_writes:
            await asyncio.wait({*self._control_tasks, *self._epoch_writes})

    async def _leader_and_isr(
        self, request: LeaderAndIsrRequest, values_of: Callable[[str], Awaitable[Values]]
    ) -> PartitionsResponse:
        needed = {at for at in self.core.logs_needed(request) if partition_problem(at) is None}
        for topic in sorted({topic_partition.topic for topic_partition in needed}):
            self.core.configure_topic(topic, topic_rules(await values_of(topic)))
        wanted = [item for item in request.partitions if item.state.topic_partition in needed]
        refused = await self._create_logs(wanted)
        loaded: dict[TopicPartition, LoadedLog | ErrorCode] = {
            item.state.topic_partition: self._open(item, refused) for item in wanted
        }
        for item in request.partitions:
            if partition_problem(item.state.topic_partition) is not None:
                loaded[item.state.topic_partition] = ErrorCode.INVALID_TOPIC_EXCEPTION
        response, effects = self._decided(lambda: self.core.leader_and_isr(request, loaded, self._now_ms()))
        owed = self._execute_without_epochs(effects)
        if owed:
            await self._write_epochs(owed)
        self.moves.resume(item.state.topic_partition for item in request.partitions)
        return self._as_carried_out(response)

    def _execute_without_epochs(self, effects: Sequence[Effect]) -> list[PartitionLog]:
        """Execute effects; return the logs whose leader epochs must be written still."""
        self._log_effects.defer_epochs()
        try:
            self._execute(effects)
        finally:
            owed = self._log_effects.owed_epochs()
        return owed

    async def _write_epochs(self, owed: Sequence[PartitionLog]) -> None:
        """Write leader epochs in the pool; a log directory that refuses goes offline."""
        await self._in_log_pool(lambda: self.logs.write_epochs(owed))
        self.report_failures()

    async def _create_logs(self, wanted: Sequence[LeaderAndIsrPartition]) -> Mapping[TopicPartition, StorageError]:
        """Make those logs that do not exist; returns which could not be made."""
        missing = [item for item in wanted if self.logs.get(item.state.topic_partition) is None]
        if not missing:
            return {}
        creation = self.logs.begin_creation(
            [NewLog(item.state.topic_partition, item.state.topic_id, item.is_new) for item in missing]
        )
        await self._in_log_pool(creation.build)
        self.logs.adopt(creation)
        return creation.refused

    def _open(
        self, item: LeaderAndIsrPartition, refused: Mapping[TopicPartition, StorageError]
    ) -> LoadedLog | ErrorCode:
        topic_partition = item.state.topic_partition
        try:
            if topic_partition in refused:
                raise refused[topic_partition]
            if topic_partition in self._executor.failed:
                raise StorageError(f"The replica of {topic_partition} has failed; it comes back with a restart")
            self.logs.get_or_create(topic_partition, item.state.topic_id, is_new=item.is_new)
            return self.logs.loaded(topic_partition)
        except TidegaugeError as problem:
            LOG.warning("The log of %s can't be opened: %s", topic_partition, problem.message)
            return problem.code

    async def _stop_replica(self, request: StopReplicaRequest) -> PartitionsResponse:
        response, effects = self._decided(lambda: self.core.stop_replica(request, self._now_ms()))
        self.moves.stop(response.partitions)
        deleted = [effect.topic_partition for effect in effects if isinstance(effect, DeleteLog)]
        homes = {at: log.log_directory for at, log in ((at, self.logs.get(at)) for at in deleted) if log is not None}
        self._execute([effect for effect in effects if not isinstance(effect, DeleteLog)])
        try:
            self.logs.delete_all(deleted)
        except TidegaugeError as problem:
            LOG.error("Logs could not be deleted: %s", problem.message)  # noqa: TRY400 - the sentence says it all
            self.report_failures()
        errors = dict(self._as_carried_out(response).partitions)
        errors |= {at: ErrorCode.KAFKA_STORAGE_ERROR for at, home in homes.items() if home.offline}
        return PartitionsResponse(response.error, errors)

    def isr_verdict(self, proposal: IsrProposal, verdict: IsrVerdict) -> None:
        """Apply the controller's verdict on a proposal."""
        self._execute(self._decided(lambda: self.core.isr_verdict(proposal, verdict, self._now_ms())))

    # Fetchers

    def fetch_response_received(self, leader: int, request_id: int, partitions: Sequence[FetchedPartition]) -> None:
        """Take in a leader's fetch response."""
        owed = self._execute_without_epochs(
            self._decided(lambda: self.core.fetch_response_received(leader, request_id, partitions, self._now_ms()))
        )
        if owed:
            write = asyncio.get_running_loop().create_task(self._write_epochs(owed), name="leader-epochs")
            self._epoch_writes.add(write)
            write.add_done_callback(self._epoch_writes.discard)
        if self.fetched is not None:
            self.fetched(leader, partitions)

    def epoch_ends_received(self, leader: int, request_id: int, ends: Sequence[EpochEndResult]) -> None:
        """Take in a leader's response that says where epochs end."""
        self._execute(self._decided(lambda: self.core.epoch_ends_received(leader, request_id, ends, self._now_ms())))

    def next_round(self, leader: int, admits: Admits | None) -> FetchRound | EpochRound | Wait:
        """Return what to ask a leader now, of the partitions that are admitted."""
        return self._decided(lambda: self.core.next_round(leader, self._now_ms(), admits))

    def round_failed(self, leader: int, request_id: int) -> None:
        """Give up a round that got no response."""
        self._execute(self._decided(lambda: self.core.round_failed(leader, request_id, self._now_ms())))

    # The log

    async def delete_old_segments(self) -> None:
        """Apply retention: remove old segments and raise log start offsets. On the loop: it only renames files."""
        self._log_start_advanced(self.logs.housekeeping(self.core.high_watermarks()))
        self.report_failures()

    def delete_old_segments_of_compacted(self) -> None:
        """Apply retention to compacted logs; the cleaner calls this."""
        self._log_start_advanced(self.logs.housekeeping_of_compacted(self.core.high_watermarks()))
        self.report_failures()

    def report_failures(self) -> None:
        """Take the replicas of log directories offline that have failed."""
        for directory in self.logs.offline_directories:
            self.directory_failed(directory)

    def _log_start_advanced(self, starts: Mapping[TopicPartition, int]) -> None:
        """Raise the log start offsets of logs whose old segments retention removed."""
        for at, offset in starts.items():
            self._execute(self._decided(lambda at=at, offset=offset: self.core.log_start_advanced(at, offset)))  # type: ignore[misc] # bound here

    def directory_failed(self, directory: Path) -> None:
        """Take the replicas of a log directory offline that can't be used any more; reported once for each."""
        if directory in self._failed_directories:
            return
        self._failed_directories.add(directory)
        self._executor.fail([at for at, log in self.logs.logs.items() if log.log_directory.path == directory])
        self.moves.drop_offline()
        self._outlets.log_dir_failed(directory)
        self._arm_timer()

    def _replicas_failed(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Report replicas that the executor took offline, with their directory or one by one."""
        self.report_failures()
        logs = (self.logs.get(at) for at in topic_partitions)
        if any(log is None or not log.log_directory.offline for log in logs):
            self._outlets.replicas_failed()

    # Steps

    def _decided(self, decide: Callable[[], Decision]) -> Decision:
        """Return what the core decides. A failure that belongs to no single partition halts the broker."""
        try:
            return decide()
        except Exception as problem:
            self._outlets.halt(problem)
            raise

    def _step(self, decide: Callable[..., Sequence[Effect]], request: object, token: object) -> None:
        """Let the core decide on a request, and execute its effects: ``_decided`` and ``_execute`` in one."""
        try:
            self._executor.execute(decide(request, token, self._now_ms()))
        except Exception as problem:
            self._outlets.halt(problem)
            raise
        self._arm_timer()

    def _execute(self, effects: Sequence[Effect]) -> None:
        try:
            self._executor.execute(effects)
        except Exception as problem:
            self._outlets.halt(problem)
            raise
        self._arm_timer()

    def _as_carried_out(self, response: PartitionsResponse) -> PartitionsResponse:
        """Return a response to the controller with an error for each partition that failed while it was obeyed."""
        errors = {
            at: ErrorCode.KAFKA_STORAGE_ERROR if error is ErrorCode.NONE and at in self._executor.failed else error
            for at, error in response.partitions.items()
        }
        return PartitionsResponse(response.error, errors)

    # Time

    def _arm_timer(self) -> None:
        """Call the core's tick when it has something to do."""
        if self._closed:
            return
        due_ms = self.core.next_deadline_ms()
        if self._timer is not None:
            if due_ms >= self._timer_ms:
                return  # the timer fires earlier and is set again then
            self._timer.cancel()
        self._timer_ms = due_ms
        delay_seconds = max(0, due_ms - self._now_ms()) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._execute(self._decided(lambda: self.core.tick(self._now_ms())))

    def start(self) -> None:
        """Start the ISR-expiration timer, and hear of every directory that fails, whichever thread meets it."""
        loop = asyncio.get_running_loop()

        def failed(directory: Path) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._directory_failed_soon, directory)

        self.logs.on_directory_failure = failed
        self.report_failures()
        self._arm_timer()

    def _directory_failed_soon(self, directory: Path) -> None:
        if not self._closed:
            self.directory_failed(directory)

    def close(self) -> None:
        """No ticks any more."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    async def write_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint with the values of this moment."""
        values = self.core.high_watermarks()
        await self._in_log_pool(lambda: self.logs.write_high_watermarks(values))

    def describe_log_directories(self) -> list[LogDirectoryView]:
        """Return the log directories in the order of ``log.dirs``; an offline one has KAFKA_STORAGE_ERROR alone."""
        high_watermarks = self.core.high_watermarks()
        offline = set(self.logs.offline_directories)
        views = []
        for directory in self.logs.directories:
            if directory in offline:
                views.append(LogDirectoryView(str(directory), ErrorCode.KAFKA_STORAGE_ERROR))
                continue
            usage = shutil.disk_usage(directory)
            logs = (*self.logs.futures.logs.items(), *self.logs.logs.items())
            replicas = {
                at: self._size_of(log, high_watermarks.get(at))
                for at, log in sorted(logs, key=itemgetter(0))
                if log.directory.parent == directory
            }
            views.append(LogDirectoryView(str(directory), ErrorCode.NONE, usage.total, usage.free, replicas))
        return views

    def _size_of(self, log: PartitionLog, high_watermark: int | None) -> ReplicaSize:
        """Return a log's size and lag (ReplicaManager.getLogEndOffsetLag)."""
        if high_watermark is None:
            return ReplicaSize(log.size_bytes, -1, is_future(log))
        if not is_future(log):
            return ReplicaSize(log.size_bytes, max(0, high_watermark - log.log_end_offset))
        return ReplicaSize(
            log.size_bytes, self.logs.logs[log.topic_partition].log_end_offset - log.log_end_offset, is_future=True
        )

    def leads(self, topic_partition: TopicPartition) -> bool:
        """Return whether this broker leads the partition."""
        return self.core.led_epoch(topic_partition) is not None

    def logs_on_disk(self, topic_partitions: Collection[TopicPartition]) -> dict[TopicPartition, LogOnDisk]:
        """Return how large the logs are, and where; replicas without a log, or in a failed directory, are left out."""
        return {
            at: LogOnDisk(log.size_bytes, str(log.log_directory.path))
            for at in topic_partitions
            if (log := self.logs.get(at)) is not None and not log.log_directory.offline
        }

    def topic_id(self, topic_partition: TopicPartition) -> str:
        """Return the id of the topic that a local replica belongs to; empty where there is none."""
        partition = self.core.partition(topic_partition)
        return "" if partition is None else partition.topic_id
