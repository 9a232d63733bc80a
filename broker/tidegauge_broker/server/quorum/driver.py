"""Drives a quorum's node: one task takes one event after the other and carries the effects of each step out.

Rules (``KafkaRaftClient.poll``):
    1. A step is timers first, then one event; the next event is taken when all effects of the step are carried out, in
       their order.
    2. A step that ends with ``PersistElection`` or ``InstallSnapshot`` waits for the disk; the report is the next
       event, even if others have arrived, as is the new start of a cleaned log. The event loop runs meanwhile.
    3. ``Flush`` runs in a pool thread, one at a time; ``Flushed`` is an event like any other.
    4. A broken protocol, a disk that refuses and a defect end the node: ``failure`` says why. Its process must end.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.server.quorum.metadata_store import MetadataStore
from tidegauge_broker.server.quorum.requests_in import NOTHING_READ, Read
from tidegauge_controller.raft import effects, events
from tidegauge_controller.raft.messages import FetchSnapshotResponse, Request, Response
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.states import NEVER_MS, IllegalTransitionError
from tidegauge_controller.raft.values import Batch, OffsetAndEpoch

LOG = logging.getLogger("tidegauge.quorum")
_LONGEST_WAIT_SECONDS = 60.0
_THREAD_FROM_RECORDS = 1_000
"""Number of records from which a batch is encoded in a thread; the event loop runs meanwhile."""


class ResponseHandler(Protocol):
    """Takes the response to a request that has arrived."""

    def __call__(self, response: Response, read: Read) -> None:
        """Send the response, with the data read for it."""


class Observer(Protocol):
    """Learns what a node reports."""

    def state_changed(self, effect: effects.StateChanged) -> None:
        """Take the node's new state in the quorum in."""

    def high_watermark_moved(self, effect: effects.HighWatermarkMoved) -> None:
        """Take in that more records are committed."""

    def leadership_changed(self, effect: effects.LeadershipChanged) -> None:
        """Take in that the node has begun or ceased to lead, or knows another leader."""

    def proposal_decided(self, effect: effects.Proposed | effects.NotProposed) -> None:
        """Take in that a proposal has its offsets, or was refused."""


Sender = Callable[[effects.Send], Awaitable[Response]]
"""Sends a request and returns the response; raises TidegaugeError or OSError if there is none."""


class QuorumDriver:
    """Drives a quorum's node, one event after the other.

    Args:
        node: the node.
        store: its disk.
        send: sends its requests.
        observers: learn what it reports.
        now_ms: its clock, which never goes back.
        wall_ms: the wall clock, for the age of snapshots.
        pool: runs what waits for the disk.

    Attributes:
        ended: set when the node has shut down or failed.
        failure: why it failed; None: it has not.
    """

    def __init__(
        self,
        node: RaftNode,
        store: MetadataStore,
        send: Sender,
        observers: Sequence[Observer],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        pool: ThreadPoolExecutor,
    ) -> None:
        self.node = node
        self.ended = asyncio.Event()
        self.failure: str | None = None
        self._store = store
        self._send = send
        self._observers = observers
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._pool = pool
        self._events: asyncio.Queue[events.Event] = asyncio.Queue()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._run: asyncio.Task[None] | None = None
        self._refused: OffsetAndEpoch | None = None

    def start(self) -> None:
        """Begin to drive the node."""
        self._run = asyncio.get_running_loop().create_task(self._drive(), name="quorum")

    def give(self, event: events.Event) -> None:
        """Give the node an event."""
        if not self.ended.is_set():
            self._events.put_nowait(event)

    def request(self, request: Request, on_response: ResponseHandler) -> None:
        """Give the node a request; ``on_response`` is called with its response, unless the node ends before."""
        self.give(events.RequestReceived(on_response, request))

    async def shut_down(self, timeout_seconds: float) -> None:
        """Let the node hand its leadership over, for a time at most (``KafkaRaftClient.shutdown``)."""
        self.give(events.ShutDown())
        try:
            async with asyncio.timeout(timeout_seconds):
                await self.ended.wait()
        except TimeoutError:
            LOG.warning("No other controller has become the leader within %g s; this one ends", timeout_seconds)

    async def stop(self) -> None:
        """End at once; what waits for the disk is completed."""
        self.ended.set()
        for task in [*self._tasks, *([] if self._run is None else [self._run])]:
            task.cancel()
        await asyncio.gather(*self._tasks, *([] if self._run is None else [self._run]), return_exceptions=True)

    # Steps

    async def _drive(self) -> None:
        try:
            await self._step(events.Tick())
            while not self.ended.is_set():
                await self._step(await self._next_event())
        except (IllegalTransitionError, TidegaugeError, OSError) as problem:
            text = problem.message if isinstance(problem, TidegaugeError) else str(problem)
            self._fail(text)
        except asyncio.CancelledError:
            raise
        except Exception as problem:
            LOG.exception("The node of the quorum has a defect")
            self._fail(f"{type(problem).__name__}: {problem}")

    def fail(self, why: str) -> None:
        """End the node: it can't continue."""
        self._fail(why)
        self._events.put_nowait(events.Tick())  # the task that drives the node sees that it has ended

    def _fail(self, why: str) -> None:
        self.failure = why
        LOG.error("The node of the quorum can't go on: %s", why)
        self.ended.set()

    async def _next_event(self) -> events.Event:
        """Return the next event, or a Tick when the next timer is due."""
        if not self._events.empty():
            return self._events.get_nowait()
        due_ms = self.node.next_deadline_ms()
        wait = _LONGEST_WAIT_SECONDS
        if due_ms < NEVER_MS:
            wait = min(wait, max(0.0, (due_ms - self._now_ms()) / 1000))
        try:
            async with asyncio.timeout(wait):
                return await self._events.get()
        except TimeoutError:
            return events.Tick()

    async def _step(self, event: events.Event) -> None:
        """Give the node an event, carry the effects out, and do the same with what the disk reports."""
        following: events.Event | None = event
        while following is not None:
            wanted = self.node.step(following, self._now_ms(), random.random)
            following = None
            for effect in wanted:
                report = await self._carry_out(effect)
                following = report if report is not None else following
            self._store.note_epochs(self.node.log.epochs)

    async def _carry_out(self, effect: effects.Effect) -> events.Event | None:
        """Carry an effect out; return the report of one that the node waits for."""
        match effect:
            case effects.PersistElection():
                version, voters = self.node.history.version, self.node.history.static
                await self._in_pool(self._store.persist, effect.election, version, voters)
                return events.ElectionPersisted()
            case effects.InstallSnapshot():
                return await self._install(effect.snapshot)
            case effects.Send():
                self._begin(self._exchange(effect))
            case effects.Respond():
                self._respond(effect)
            case effects.Append():
                await self._append(effect.batch)
            case effects.Truncate():
                self._store.truncate(effect.end_offset)
            case effects.Flush():
                self._begin(self._flush(effect))
            case effects.WriteSnapshot():
                self._store.snapshots.write(effect.snapshot, effect.position, effect.data)
            case effects.DropSnapshot():
                self._store.snapshots.drop(effect.snapshot)
            case effects.CleanSnapshots():
                return self._clean()
            case effects.ShutDownCompleted():
                self.ended.set()
            case _:
                self._report(effect)
        return None

    async def _install(self, snapshot: OffsetAndEpoch) -> events.SnapshotInstalled | events.SnapshotRefused:
        try:
            head = await self._in_pool(self._store.install, snapshot)
        except StorageError:
            raise
        except TidegaugeError as problem:
            if problem.code is not ErrorCode.CORRUPT_MESSAGE:
                raise
            if snapshot != self._refused:
                text = (
                    f"The snapshot {snapshot.offset}-{snapshot.epoch} that the leader sent is damaged: "
                    f"{problem.message}. The log stays as it is, and the snapshot is fetched again until it is whole. "
                    "If the file of the leader is damaged, let another controller lead: restart the leader"
                )
                LOG.error("%s", text)  # noqa: TRY400 - the sentence says it; the traceback adds nothing
            self._refused = snapshot
            return events.SnapshotRefused(snapshot)
        return events.SnapshotInstalled(snapshot, head.voter_set, head.kraft_version)

    async def _append(self, batch: Batch) -> None:
        if batch.end_offset - batch.base_offset < _THREAD_FROM_RECORDS:
            self._store.append(batch)
        else:
            self._store.append(batch, await asyncio.to_thread(self._store.encoded, batch))

    def _report(self, effect: effects.Effect) -> None:
        for observer in self._observers:
            match effect:
                case effects.StateChanged():
                    observer.state_changed(effect)
                case effects.HighWatermarkMoved():
                    observer.high_watermark_moved(effect)
                case effects.LeadershipChanged():
                    observer.leadership_changed(effect)
                case effects.Proposed() | effects.NotProposed():
                    observer.proposal_decided(effect)
                case _:
                    raise TypeError(f"unknown effect {effect!r}")

    def _begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _in_pool(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)

    # Effects

    async def _exchange(self, effect: effects.Send) -> None:
        try:
            response = await self._send(effect)
        except (TidegaugeError, OSError) as problem:
            LOG.debug("No response of %s to %s: %s", effect.endpoint, type(effect.request).__name__, problem)
            self.give(events.SendFailed(effect.correlation_id))
        except Exception:
            LOG.exception("The response of %s to %s can't be read", effect.endpoint, type(effect.request).__name__)
            self.give(events.SendFailed(effect.correlation_id))
        else:
            self.give(events.ResponseReceived(effect.correlation_id, response))

    def _respond(self, effect: effects.Respond) -> None:
        read = NOTHING_READ
        response = effect.response
        try:
            if effect.read_from is not None:
                read = Read(self._store.read(effect.read_from, effect.max_bytes))
            elif isinstance(response, FetchSnapshotResponse) and effect.max_bytes:
                size, data = self._store.snapshots.slice_of(response.snapshot, response.position, effect.max_bytes)
                read = Read(data, size)
        except StorageError:
            raise
        except TidegaugeError as problem:
            read = Read(error=problem.code)
        on_response: Any = effect.token
        on_response(response, read)

    async def _flush(self, effect: effects.Flush) -> None:
        try:
            await self._in_pool(self._store.flush)
        except (TidegaugeError, OSError) as problem:
            self.fail(problem.message if isinstance(problem, TidegaugeError) else str(problem))
        else:
            self.give(events.Flushed(effect.number, effect.end_offset))

    def _clean(self) -> events.LogStartMoved | None:
        """Clean the log; nothing reads it before the node knows its new start."""
        if self.node.high_watermark is None:
            return None
        start = self._store.clean(self.node.log.snapshots, self.node.high_watermark, self._wall_ms())
        if start is None:
            return None
        LOG.info("The metadata log begins at offset %d now, the end of a snapshot", start)
        return events.LogStartMoved(start)
