"""The share partitions that this broker leads, and the effects of their cores.

Rules:
    1. A share partition is made when a member first fetches it, in the leader epoch of that moment, and its state is
       read. It is dropped when the state cannot be read, when its writes are fenced, when this broker no longer leads
       the partition, and when the last session of its group ends with a connection. The next fetch makes it again.
    2. A lock times out on a timer; the states that it gives back are written, and nothing depends on the outcome.
    3. Each event that may have changed a share partition is reported with its cause, for the event log.
    4. An unexpected failure in one share partition drops it, and no other: its locks are in memory only, so its
       records are available again when its state is read.

Source: SharePartitionManager (getOrCreateSharePartition, removeSharePartitionFromCache, SharePartitionListener).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import (
    NO_START_OFFSET,
    ReadShareState,
    SharePartitionKey,
    ShareStateResult,
    WriteShareState,
)
from tidegauge.wall_time import WallTime
from tidegauge_broker.replica.messages import OffsetLookup, OffsetResult
from tidegauge_broker.server.deadline_timer import DeadlineTimer
from tidegauge_broker.server.share.counts import ShareCounts
from tidegauge_broker.server.share.hosted import NOT_REACHED, HostedSharePartition, Outcome
from tidegauge_broker.share.effects import (
    Dropped,
    Effect,
    FindStartOffset,
    Opened,
    ReadState,
    RecordsMayBeAvailable,
    Respond,
    WriteState,
)
from tidegauge_broker.share.partition import SharePartition
from tidegauge_broker.share.settings import ShareSettings, reset_time_ms

LOG = logging.getLogger("tidegauge.share")


class States(Protocol):
    """The part of the persister that a leader needs."""

    async def read_state(self, request: ReadShareState) -> ShareStateResult:
        """Return a share partition's state; the leader epoch fences the leaders before."""
        ...

    async def write_state(self, request: WriteShareState) -> ShareStateResult:
        """Write states of records."""
        ...


class LedPartitions(Protocol):
    """The partitions that this broker leads."""

    def leadership(self, at: TopicPartition) -> tuple[int, ErrorCode]:
        """Return the epoch in which this broker leads a partition, or an error."""
        ...

    def watch_leadership(self, at: TopicPartition) -> None:
        """Report the loss of a leadership from now on (``SharePartitions.leadership_lost``)."""
        ...

    def unwatch_leadership(self, at: TopicPartition) -> None:
        """Report it no longer."""
        ...


LookUp = Callable[[OffsetLookup], Awaitable[tuple[OffsetResult, int]]]
SettingsOf = Callable[[str], ShareSettings]
Changed = Callable[[HostedSharePartition, str], None]
"""Takes up that a share partition may have changed, and why."""
Decide = Callable[[SharePartition, int], Sequence[Effect]]


class SharePartitions:
    """The share partitions that this broker leads.

    Args:
        led: the partitions that this broker leads.
        states: of share partitions.
        look_up: finds offsets by time, in partitions that this broker leads.
        settings_of: returns the settings of a group, in force now.
        now_ms: a clock that never goes back.
        wall: how far the wall clock is ahead of it.
        changed: takes up what changes; None: nothing does.

    Attributes:
        counts: the counts for the metrics.
    """

    def __init__(
        self,
        led: LedPartitions,
        states: States,
        look_up: LookUp,
        settings_of: SettingsOf,
        now_ms: Callable[[], int],
        wall: WallTime,
        changed: Changed | None = None,
    ) -> None:
        self._led = led
        self._changed = changed
        self._states = states
        self._look_up = look_up
        self._settings_of = settings_of
        self._now_ms = now_ms
        self._wall = wall
        self._hosted: dict[SharePartitionKey, HostedSharePartition] = {}
        self._by_partition: dict[TopicPartition, set[SharePartitionKey]] = {}
        self._by_group: dict[str, set[SharePartitionKey]] = {}
        self._deadlines: list[tuple[int, int, HostedSharePartition]] = []
        self._sequence = 0
        self._timer = DeadlineTimer(now_ms, self.tick)
        self._tasks: set[asyncio.Task[None]] = set()
        self.counts = ShareCounts()

    def __len__(self) -> int:
        return len(self._hosted)

    def __iter__(self) -> Iterator[HostedSharePartition]:
        return iter(list(self._hosted.values()))

    def get(self, key: SharePartitionKey) -> HostedSharePartition | None:
        """Return a share partition; None if it is not loaded here."""
        return self._hosted.get(key)

    def opened(self, key: SharePartitionKey, at: TopicPartition) -> HostedSharePartition:
        """Return a share partition; make it and load its state if needed.

        Raises:
            TidegaugeError: this broker does not lead the partition; the code says why.
        """
        hosted = self._hosted.get(key)
        if hosted is not None:
            return hosted
        leader_epoch, error = self._led.leadership(at)
        if error is not ErrorCode.NONE:
            raise TidegaugeError(error, f"This broker does not lead {at}")
        core = SharePartition(leader_epoch, self._settings_of(key.group_id))
        hosted = HostedSharePartition(key, at, core, self._now_ms())
        self._hosted[key] = hosted
        self._by_partition.setdefault(at, set()).add(key)
        self._by_group.setdefault(key.group_id, set()).add(key)
        self._led.watch_leadership(at)
        self.step(hosted, "ShareFetch", lambda core, _: core.initialize())
        return hosted

    # Events

    def step(self, hosted: HostedSharePartition, cause: str, decide: Decide) -> None:
        """Let a share partition decide on an event, at the present time, and execute its effects; rules 3 and 4."""
        try:
            effects = decide(hosted.core, self._now_ms())
        except Exception as defect:  # noqa: BLE001 - it concerns this share partition alone
            self.broken(hosted, defect)
            return
        for effect in effects:
            self._carry_out(hosted, effect)
        self.arm(hosted)
        self._report(hosted, cause)

    def _report(self, hosted: HostedSharePartition, cause: str) -> None:
        if self._changed is not None:
            self._changed(hosted, cause)

    def broken(self, hosted: HostedSharePartition, defect: Exception) -> None:
        """Drop a share partition after a defect in a decision about it; rule 4."""
        LOG.error("A decision about the share partition %s failed, which is a defect", hosted.key, exc_info=defect)
        hosted.core.fence()
        self._drop(hosted)
        hosted.give_up()
        self._report(hosted, "Defect")

    def acknowledged(
        self,
        hosted: HostedSharePartition,
        cause: str,
        decide: Callable[[SharePartition, object, int], Sequence[Effect]],
    ) -> asyncio.Future[Outcome]:
        """Let a share partition decide on an event that has a response; the future is done when that is there."""
        token: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        hosted.open_requests.add(token)
        self.step(hosted, cause, lambda core, now_ms: decide(core, token, now_ms))
        hosted.wake()
        return token

    def refresh_settings(self, group_id: str) -> None:
        """Put a group's settings in force as they are now; locks that are held keep their deadlines."""
        settings = self._settings_of(group_id)
        for key in self._by_group.get(group_id, ()):
            self._hosted[key].core.settings = settings

    def leadership_lost(self, at: TopicPartition) -> None:
        """Drop the share partitions of a partition that this broker no longer leads."""
        for key in list(self._by_partition.get(at, ())):
            self.drop(key, "LeaderChange")

    def drop_group(self, group_id: str) -> None:
        """Drop the share partitions of a group."""
        for key in list(self._by_group.get(group_id, ())):
            self.drop(key, "SessionEnd")

    def drop(self, key: SharePartitionKey, cause: str) -> None:
        """Drop a share partition: the write in flight completes, and no other is made."""
        hosted = self._hosted.get(key)
        if hosted is not None:
            self.step(hosted, cause, lambda core, _: core.fence())

    # Effects

    def _carry_out(self, hosted: HostedSharePartition, effect: Effect) -> None:
        match effect:
            case ReadState():
                self._in_background(self._read(hosted, effect), f"share-state-of-{hosted.key}")
            case FindStartOffset():
                self._in_background(self._find_start(hosted, effect), f"share-start-of-{hosted.key}")
            case WriteState():
                hosted.unwritten.append(effect)
                if not hosted.is_writing:
                    hosted.is_writing = True
                    self._in_background(self._write(hosted), f"share-writes-of-{hosted.key}")
            case Respond():
                hosted.respond(effect.token, (effect.error, effect.message))
            case Opened():
                hosted.failure = effect.error
                if effect.error is ErrorCode.NONE and self.counts.loaded is not None:
                    self.counts.loaded(self._now_ms() - hosted.begun_ms)
                if effect.error is not ErrorCode.NONE:
                    LOG.warning(
                        "The share partition %s cannot be loaded: %s", hosted.key, effect.message or effect.error
                    )
                hosted.wake()
            case RecordsMayBeAvailable():
                hosted.wake()
            case Dropped():
                self._drop(hosted)

    def _drop(self, hosted: HostedSharePartition) -> None:
        """Forget a share partition, and have its fetches look again."""
        key, at = hosted.key, hosted.at
        if self._hosted.get(key) is not hosted:
            return
        del self._hosted[key]
        _remove(self._by_partition, at, key)
        _remove(self._by_group, key.group_id, key)
        if at not in self._by_partition:
            self._led.unwatch_leadership(at)
        hosted.wake()

    async def _read(self, hosted: HostedSharePartition, effect: ReadState) -> None:
        try:
            found = await self._states.read_state(ReadShareState(hosted.key, effect.leader_epoch))
        except Exception as defect:
            LOG.exception("Reading the state of the share partition %s failed, which is a defect", hosted.key)
            found = ShareStateResult(ErrorCode.UNKNOWN_SERVER_ERROR, repr(defect))
        self.step(
            hosted,
            "ReadShareGroupState",
            lambda core, _: core.state_read(
                found.error, found.message, found.state_epoch, found.start_offset, found.batches
            ),
        )

    async def _find_start(self, hosted: HostedSharePartition, effect: FindStartOffset) -> None:
        """Look the start offset up; a time after which there is no record is OFFSET_NOT_AVAILABLE, as in Kafka."""
        time_ms = reset_time_ms(effect.auto_offset_reset, self._wall.at(self._now_ms()))
        error, offset = ErrorCode.UNKNOWN_SERVER_ERROR, NO_START_OFFSET
        try:
            found, _ = await self._look_up(OffsetLookup(hosted.at, time_ms, hosted.core.leader_epoch))
        except Exception:
            LOG.exception("Finding the start offset of the share partition %s failed, which is a defect", hosted.key)
        else:
            error, offset = found.error, found.offset
            if error is ErrorCode.NONE and offset < 0:
                error = ErrorCode.OFFSET_NOT_AVAILABLE
        self.step(hosted, "ListOffsets", lambda core, _: core.start_offset_found(error, offset))

    async def _write(self, hosted: HostedSharePartition) -> None:
        """Write the states that wait, one after the other."""
        unwritten = hosted.unwritten
        while unwritten:
            result = await self._written(hosted, unwritten[0])
            count = len(unwritten) if result.error in NOT_REACHED else 1
            for effect in [unwritten.popleft() for _ in range(count)]:
                self._take_written(hosted, effect, result)
        hosted.is_writing = False

    def _take_written(self, hosted: HostedSharePartition, effect: WriteState, result: ShareStateResult) -> None:
        if result.error is not ErrorCode.NONE:
            LOG.warning("States of the share partition %s are not written: %s", hosted.key, result.message)
        self.step(
            hosted,
            "WriteShareGroupState",
            lambda core, _: core.state_written(effect.write_id, result.error, result.message),
        )

    async def _written(self, hosted: HostedSharePartition, effect: WriteState) -> ShareStateResult:
        request = WriteShareState(
            hosted.key,
            effect.state_epoch,
            effect.leader_epoch,
            effect.start_offset,
            effect.complete_count,
            effect.batches,
        )
        try:
            return await self._states.write_state(request)
        except Exception as defect:
            LOG.exception("Writing states of the share partition %s failed, which is a defect", hosted.key)
            return ShareStateResult(ErrorCode.UNKNOWN_SERVER_ERROR, repr(defect))

    def _in_background(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Locks

    def arm(self, hosted: HostedSharePartition) -> None:
        """Have the locks of a share partition time out when they are due; call it after they have changed."""
        due_ms = hosted.core.next_deadline_ms()
        if due_ms is not None and (hosted.armed_ms is None or due_ms < hosted.armed_ms):
            hosted.armed_ms = due_ms
            self._sequence += 1
            heapq.heappush(self._deadlines, (due_ms, self._sequence, hosted))
            self._timer.set(self._deadlines[0][0])

    def tick(self) -> None:
        """Have the locks of one share partition time out; the next one's in a later turn of the event loop."""
        while self._deadlines:
            due_ms, _, hosted = self._deadlines[0]
            if due_ms > self._now_ms():
                break
            heapq.heappop(self._deadlines)
            if hosted.armed_ms == due_ms and self._hosted.get(hosted.key) is hosted:
                hosted.armed_ms = None
                self.step(hosted, "LockExpiration", lambda core, now_ms: core.expire(now_ms))
                break
        if self._deadlines:
            self._timer.set(self._deadlines[0][0])

    # The end

    async def close(self) -> None:
        """Let no lock time out any more, and end reads and writes in progress."""
        self._timer.cancel()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


def _remove(index: dict[Any, set[SharePartitionKey]], name: object, key: SharePartitionKey) -> None:
    """Take a share partition out of an index, and the name if it was the last one."""
    index[name].discard(key)
    if not index[name]:
        del index[name]
