"""Runs the core: one event at a time, its effects carried out in order before the next.

Contract: everything here happens on the event loop, without an await between an event and the last of its effects;
so a half-done step is never visible. Appends and reads happen on the loop: they go to the page cache (ADR 0001).
Log creation and other blocking disk I/O run in the log pool.

Leader epochs that a follower finds in batches are written in the pool, all of a round together, and nothing waits for
them: a recovery point moves past a batch only when its epoch is on the disk (``PartitionLog``).

Parts: ``core_steps`` (an event, a decision, its effects), ``control_requests`` (requests of ZooKeeper's controller),
``log_dir_moves`` (replicas between log directories), this module (clients, followers, fetchers, retention, failures).

Invariants:
- Every token gets exactly one response. When an effect fails, its replica goes offline, and with it the others of its
  log directory if that failed; all other partitions of the step continue (``replica/effect_executor.py``).
- Nothing is reported before it is written: responses follow the log effects of their step (``effects.py``).

Source: Kafka's ReplicaManager.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tidegauge.control import (
    IsrProposal,
    IsrVerdict,
)
from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.waits import carried_out
from tidegauge_broker.log.log_effects import LogEffects
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.old_style_offsets import old_style_offsets
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effect_executor import EffectExecutor, FetchResults
from tidegauge_broker.replica.effects import Effect
from tidegauge_broker.replica.messages import (
    CONSUMER,
    DeleteRecordsResult,
    EpochEndResult,
    EpochRound,
    FetchedPartition,
    FetchRequest,
    FetchRound,
    OffsetLookup,
    OffsetResult,
    ProduceRequest,
    ProduceResult,
    RecordsToDelete,
    TimeLookup,
    Wait,
)
from tidegauge_broker.replica.preparation import Preparation
from tidegauge_broker.replica.rounds import Admits
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.replication.control_requests import ControlRequests
from tidegauge_broker.server.replication.core_steps import CoreSteps
from tidegauge_broker.server.replication.decided_states import DecidedStates
from tidegauge_broker.server.replication.effect_host import EffectHost, Outlets
from tidegauge_broker.server.replication.fetch_parts import is_one_part, parts_of
from tidegauge_broker.server.replication.log_dir_moves import LogDirMoves, MoveLimits
from tidegauge_broker.server.replication.offset_search import OffsetSearch
from tidegauge_broker.server.replication.replica_changes import ReplicaChanges
from tidegauge_broker.server.replication.request_token import FetchToken, ProduceToken, ResponseRoom
from tidegauge_broker.server.replication.topic_rules import topic_rules

MAX_TIMESTAMP = -3
"""ListOffsets for the record with the largest timestamp."""


class ReplicaManager:
    """The core and its surroundings in the broker's process.

    Args:
        core: all replicas of this broker.
        logs: their logs.
        events: the event log.
        now_ms: a clock that never goes back.
        in_log_pool: runs a blocking call in the pool for disk work.
        outlets: the calls to the process around the replicas.
        move_limits: how much is copied between log directories.

    Attributes:
        moves: the replicas that move between log directories.
        changes: the controller's decisions about them.
        control: the requests of ZooKeeper's controller.
        decided: KRaft's metadata about the replicas.
        in_log_pool: as given.
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
        self._events = events
        self._outlets = outlets
        self.fetched: Callable[[int, Sequence[FetchedPartition]], None] | None = None
        log_effects = LogEffects(logs)
        self._executor = EffectExecutor(core, log_effects, EffectHost(events, outlets, self._replicas_failed))
        self._steps = CoreSteps(core, self._executor, log_effects, now_ms, outlets.halt)
        self._now_ms = now_ms
        self.in_log_pool = in_log_pool
        self.moves = LogDirMoves(self, move_limits, in_log_pool, now_ms)
        self.changes = ReplicaChanges(self, self._steps)
        self.control = ControlRequests(core, self.changes, self._steps, now_ms)
        self.decided = DecidedStates(core, self.changes, self._steps, now_ms)
        self._wakes_fetches = False
        self._failed_directories: set[Path] = set()
        self._epoch_writes: set[asyncio.Task[None]] = set()

    @property
    def failed(self) -> Collection[TopicPartition]:
        """Return the replicas that went offline, with their directory or one by one."""
        return self._executor.failed

    def configure_topic(self, topic: str, values: Values) -> None:
        """Put a topic's settings in force; a change of min.insync.replicas under a replica is an event.

        These events, and the events of roles, decide whether acknowledgements are correct.
        """
        before, rules = self.core.partition_states.rules.get(topic), topic_rules(values)
        self.core.configure_topic(topic, rules)
        is_changed = before is not None and before.min_insync_replicas != rules.min_insync_replicas
        if before is not None and is_changed and any(at.topic == topic for at in self.core.hosted.by_name):
            change = {"resource": topic, "old": before.min_insync_replicas, "new": rules.min_insync_replicas}
            self._events.note("min_insync_replicas", "ConfigChange", change)

    # Clients and followers

    def produce(self, request: ProduceRequest) -> asyncio.Future[Sequence[ProduceResult]]:
        """Append at once; the future is done when acks is fulfilled, mostly already when this returns.

        Cancel it when its caller no longer waits. Waiting fetches are responded to in the next turn of the event loop,
        with what all requests of this turn append.
        """
        loop = asyncio.get_running_loop()
        token = ProduceToken(loop=loop)
        token.forget = self._forget
        self._steps.request(self._append, request, token)
        if self.core.has_fetches_to_wake and not self._wakes_fetches:
            self._wakes_fetches = True
            loop.call_soon(self._wake_fetches)
        return token

    def preparations(self, request: ProduceRequest) -> list[Preparation]:
        """Return the batches to prepare beside the event loop (``preparation``)."""
        return self.core.preparations(request, self._now_ms())

    def _append(self, request: ProduceRequest, token: object, now_ms: int) -> Sequence[Effect]:
        return self.core.produce(request, token, now_ms, wake_later=True)

    def _wake_fetches(self) -> None:
        self._wakes_fetches = False
        if not self._steps.is_closed:
            self._steps.take(lambda: self.core.wake_fetches(self._now_ms()))

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
        self._steps.request(self.core.fetch, request, token)
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
        wall_ms = self.core.wall.at(self._now_ms())
        return ErrorCode.NONE, old_style_offsets(log, lookup.timestamp_ms, count, found.upper_bound, wall_ms)

    def list_offset(self, lookup: OffsetLookup) -> tuple[OffsetResult, int] | OffsetSearch:
        """Return a time's offset and the found timestamp, or a search.

        The timestamp is -1 if none was looked up.
        """
        in_log = self.core.list_offset(lookup)
        if not isinstance(in_log, TimeLookup):
            return in_log, -1
        at, bound = lookup.topic_partition, in_log.upper_bound
        log = self.logs.get(at)
        if log is None:
            return in_log.nothing, -1
        is_largest = in_log.timestamp_ms == MAX_TIMESTAMP
        steps = log.search_largest_timestamp(bound) if is_largest else log.search_by_time(in_log.timestamp_ms, bound)

        def finish(found: tuple[int, int] | None) -> tuple[OffsetResult, int]:
            if found is None:
                return in_log.nothing, -1
            return OffsetResult(offset=found[0], leader_epoch=self.core.epoch_at(at, found[0])), found[1]

        return OffsetSearch(log, steps, finish)

    async def delete_records(self, wanted: Sequence[RecordsToDelete], timeout_ms: int) -> Sequence[DeleteRecordsResult]:
        """Raise log start offsets; return when all live replicas have followed, or after the timeout."""
        token: asyncio.Future[Sequence[DeleteRecordsResult]] = asyncio.get_running_loop().create_future()
        self._steps.take(lambda: self.core.delete_records(wanted, timeout_ms, token, self._now_ms()))
        try:
            return await token
        except asyncio.CancelledError:
            self.core.cancel(token)
            raise

    def isr_verdict(self, proposal: IsrProposal, verdict: IsrVerdict) -> None:
        """Apply the controller's verdict on a proposal."""
        self._steps.take(lambda: self.core.isr_verdict(proposal, verdict, self._now_ms()))

    # Fetchers

    def fetch_response_received(self, leader: int, request_id: int, partitions: Sequence[FetchedPartition]) -> None:
        """Take in a leader's fetch response in one step."""
        self._take_fetched(self.core.fetch_response_received, leader, request_id, partitions)

    async def take_fetch_response(self, leader: int, request_id: int, partitions: Sequence[FetchedPartition]) -> None:
        """Take in a leader's fetch response, a large one in parts (``fetch_parts``); to its end, even if cancelled."""
        if is_one_part(partitions):
            self.fetch_response_received(leader, request_id, partitions)
        else:
            await carried_out(self._take_parts(leader, request_id, partitions))

    async def _take_parts(self, leader: int, request_id: int, partitions: Sequence[FetchedPartition]) -> None:
        named = {one.topic_partition for one in partitions}
        self._steps.decided(lambda: self.core.fetch_response_begins(leader, request_id, named))
        for part in parts_of(partitions):
            self._take_fetched(self.core.fetch_part_received, leader, request_id, part)
            await asyncio.sleep(0)

    def _take_fetched(
        self,
        decide: Callable[[int, int, Sequence[FetchedPartition], int], Sequence[Effect]],
        leader: int,
        request_id: int,
        partitions: Sequence[FetchedPartition],
    ) -> None:
        owed = self._steps.execute_without_epochs(
            self._steps.decided(lambda: decide(leader, request_id, partitions, self._now_ms()))
        )
        if owed:
            write = asyncio.get_running_loop().create_task(self.write_epochs(owed), name="leader-epochs")
            self._epoch_writes.add(write)
            write.add_done_callback(self._epoch_writes.discard)
        if self.fetched is not None:
            self.fetched(leader, partitions)

    def epoch_ends_received(self, leader: int, request_id: int, ends: Sequence[EpochEndResult]) -> None:
        """Take in a leader's response that says where epochs end."""
        self._steps.take(lambda: self.core.epoch_ends_received(leader, request_id, ends, self._now_ms()))

    def next_round(self, leader: int, admits: Admits | None) -> FetchRound | EpochRound | Wait:
        """Return what to ask a leader now, of the partitions that are admitted."""
        return self._steps.decided(lambda: self.core.next_round(leader, self._now_ms(), admits))

    def round_failed(self, leader: int, request_id: int) -> None:
        """Give up a round that got no response."""
        self._steps.take(lambda: self.core.round_failed(leader, request_id, self._now_ms()))

    async def write_epochs(self, owed: Sequence[PartitionLog]) -> None:
        """Write leader epochs in the pool; a log directory that refuses goes offline."""
        await self.in_log_pool(lambda: self.logs.write_epochs(owed))
        self.report_failures()

    async def until_quiet(self) -> None:
        """Wait for the changes of replicas that have come, and for leader epochs that are being written."""
        if self.changes.tasks or self._epoch_writes:
            await asyncio.wait({*self.changes.tasks, *self._epoch_writes})

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
            self._steps.take(lambda at=at, offset=offset: self.core.log_start_advanced(at, offset))  # type: ignore[misc] # bound here

    def directory_failed(self, directory: Path) -> None:
        """Take the replicas of a log directory offline that can't be used any more; reported once for each."""
        if directory in self._failed_directories:
            return
        self._failed_directories.add(directory)
        self._executor.fail([at for at, log in self.logs.logs.items() if log.log_directory.path == directory])
        self.moves.drop_offline()
        self._outlets.log_dir_failed(directory)
        self._steps.arm_timer()

    def _replicas_failed(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Report replicas that the executor took offline, with their directory or one by one."""
        self.report_failures()
        logs = (self.logs.get(at) for at in topic_partitions)
        if any(log is None or not log.log_directory.offline for log in logs):
            self._outlets.replicas_failed()

    def start(self) -> None:
        """Start the ISR-expiration timer, and hear of every directory that fails, whichever thread meets it."""
        loop = asyncio.get_running_loop()

        def failed(directory: Path) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._directory_failed_soon, directory)

        self.logs.on_directory_failure = failed
        self.report_failures()
        self._steps.arm_timer()

    def _directory_failed_soon(self, directory: Path) -> None:
        if not self._steps.is_closed:
            self.directory_failed(directory)

    def close(self) -> None:
        """Call no tick any more."""
        self._steps.close()

    async def write_high_watermarks(self) -> None:
        """Write replication-offset-checkpoint with the values of this moment."""
        self.logs.note_high_watermarks(self.core.high_watermarks())
        await self.in_log_pool(self.logs.write_high_watermarks)

    def leads(self, topic_partition: TopicPartition) -> bool:
        """Return whether this broker leads the partition."""
        return self.core.led_epoch(topic_partition) is not None

    def watch_leadership(self, topic_partition: TopicPartition) -> None:
        """Have ``Outlets.leadership_changed`` called when this broker loses the leadership of a partition."""
        self._steps.take(lambda: self.core.watch_leadership(topic_partition))

    def is_committed(self, topic_partition: TopicPartition, end: int) -> bool:
        """Whether the high watermark of a local replica has reached an end offset."""
        partition = self.core.partition(topic_partition)
        return partition is not None and partition.high_watermark >= end

    def topic_id(self, topic_partition: TopicPartition) -> str:
        """Return the topic id of a local replica; empty without one."""
        partition = self.core.partition(topic_partition)
        return "" if partition is None else partition.topic_id
