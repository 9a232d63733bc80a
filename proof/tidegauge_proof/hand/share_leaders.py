"""Share partitions (KIP-932) at the leaders of ``orders-0`` in a cluster that is driven by hand.

The decisions are broker processes' own: ``SharePartition`` (acquisition, locks, acknowledgements),
``ShareSessions`` and the share coordinator, which keeps states in ``__share_group_state``. The work of a broker's shell
around them is done here too (``server.share``):

Rules:
    1. A share partition is made when a member first fetches it, in the leader epoch of that moment, and its state is
       read. It is dropped when its state cannot be read, when its writes are fenced, and when this broker no longer
       leads; acquisitions are in memory only.
    2. A fetch is served as soon as records can be acquired, and with none when ``FETCH_WAIT_MS`` are over. It acquires
       as many records as it asks for (share.acquire.mode=record_limit, KIP-1206).
    3. States are written one after the other.
    4. A session ends with its last request, or with its connection: what its member has acquired is released.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import iterate_headers
from tidegauge.share_groups import (
    ReadShareState,
    SharePartitionKey,
    ShareStateRequest,
    ShareStateResult,
    WriteShareState,
)
from tidegauge_broker.coordinator.events import ShareStateRequestArrived, TopicsChanged
from tidegauge_broker.coordinator.settings import ShareStateSettings
from tidegauge_broker.coordinator.share_state.coordinator import ShareCoordinator
from tidegauge_broker.replica.messages import CONSUMER, FetchPartition, FetchRequest
from tidegauge_broker.server.share.hosted import NOT_REACHED
from tidegauge_broker.server.share.reads import headers_of, log_batches
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.acquiring import Acquired, Read, Wanted
from tidegauge_broker.share.effects import (
    Dropped,
    Effect,
    FindStartOffset,
    Opened,
    ReadState,
    Respond,
    WriteState,
)
from tidegauge_broker.share.partition import PartitionState, SharePartition
from tidegauge_broker.share.sessions import PartitionId, SessionKey, SessionRefused, ShareSession, ShareSessions
from tidegauge_broker.share.settings import AcquireMode, ShareSettings
from tidegauge_proof.hand.coordination import ORDERS_ID, TOPICS, Coordination, unjudged
from tidegauge_proof.hand.group_names import SHARE_GROUP as GROUP
from tidegauge_proof.hand.group_names import SHARE_STATES
from tidegauge_proof.hand.state_persister import StatePersister
from tidegauge_proof.simulator.coordinator_world import Arrived, CoordinatorWorld
from tidegauge_proof.simulator.memory_broker import AT, MemoryBroker, Reading
from tidegauge_proof.simulator.world import World

KEY = SharePartitionKey(GROUP, ORDERS_ID, 0)
PARTITION = PartitionId(ORDERS_ID, 0)
SETTINGS = ShareSettings(auto_offset_reset="earliest")
"""Kafka's defaults, but for share.auto.offset.reset: the group begins with the first record, not with the next one."""
FETCH_WAIT_MS = 500
_MAX_SESSIONS = 2_000
_READ_BYTES = 1 << 20
_NONE = ErrorCode.NONE


class Fetched(NamedTuple):
    """The result of a ShareFetch: an error, or what the member has acquired, with the number of each record."""

    error: ErrorCode
    acquired: Sequence[Acquired] = ()
    numbers: dict[int, int] = {}  # noqa: RUF012 - a default of a NamedTuple; nothing changes it


class _Fetch(NamedTuple):
    """A fetch that waits at a leader."""

    member_id: str
    max_records: int
    deadline_ms: int
    respond: Callable[[Fetched], None]


@dataclass(slots=True, eq=False)
class _Hosted:
    """A share partition that a broker leads, with the writes of its state in order."""

    core: SharePartition
    failure: ErrorCode = _NONE
    unwritten: deque[WriteState] = field(default_factory=deque)
    is_writing: bool = False


class _Process:
    """A broker's process: its sessions, its share partition, and the fetches that wait."""

    def __init__(self, broker: MemoryBroker) -> None:
        self.broker = broker
        self.incarnation = broker.incarnation
        self.sessions = ShareSessions(_MAX_SESSIONS)
        self.hosted: _Hosted | None = None
        self.fetches: list[_Fetch] = []


class _ShareStates(CoordinatorWorld[ShareCoordinator]):
    """The share coordinators."""

    def __init__(self, coordination: Coordination) -> None:
        super().__init__(coordination.world, unjudged(), coordination.partitions[SHARE_STATES])

    def new_coordinator(self, broker: MemoryBroker) -> ShareCoordinator:
        """Return the coordinator of a new process; it never prunes its log."""
        settings = ShareStateSettings(partitions=1, prune_interval_ms=1 << 40, cold_interval_ms=1 << 40)
        coordinator = ShareCoordinator(settings, self.world.now_ms, broker.wall)
        coordinator.handle(TopicsChanged(TOPICS), self.world.now_ms)
        return coordinator

    def event_of(self, token: Arrived[ShareCoordinator]) -> object:
        """Return the event of a request that arrives."""
        return ShareStateRequestArrived(token, token.call.request)


class ShareLeaders:
    """The share partitions at their leaders.

    Args:
        coordination: of the cluster; from now on it serves share groups.

    Attributes:
        disconnected: called with a broker whose process has ended: its connections are closed.
    """

    def __init__(self, coordination: Coordination) -> None:
        self._world: World = coordination.world
        self._persister = StatePersister(coordination)
        self._processes: dict[int, _Process] = {}
        self.disconnected: Callable[[int], None] = lambda _: None
        coordination.serve_shares(self, _ShareStates(coordination))

    def ask_state(
        self, broker: MemoryBroker, request: ShareStateRequest, done: Callable[[ShareStateResult], None]
    ) -> None:
        """Send a broker's request to the share coordinator; ``done`` takes the result once."""
        self._persister.ask(broker, request, done)

    def hosted(self) -> Iterator[tuple[int, SharePartition]]:
        """Yield the share partitions of the processes that respond, with their brokers."""
        for broker_id, process in sorted(self._processes.items()):
            if process.hosted is not None and self._world.is_up(broker_id) and self._is_current(process):
                yield broker_id, process.hosted.core

    # Requests of members, as they arrive

    def fetch(self, broker_id: int, member_id: str, epoch: int, count: int, respond: Callable[[Fetched], None]) -> None:
        """Take a ShareFetch; ``respond`` takes the result, now or later."""
        process = self._process(broker_id)
        key = SessionKey(GROUP, member_id)
        added = [PARTITION] if epoch == 0 else []
        try:
            process.sessions.fetch(key, epoch, added, (), member_id, acknowledges=False)
        except SessionRefused as refusal:
            respond(Fetched(refusal.error))
            return
        deadline_ms = self._world.now_ms + FETCH_WAIT_MS
        process.fetches.append(_Fetch(member_id, count, deadline_ms, respond))

    def acknowledge(
        self, broker_id: int, member_id: str, epoch: int, said: Acknowledgement, respond: Callable[[ErrorCode], None]
    ) -> None:
        """Take a ShareAcknowledge; ``respond`` takes the outcome when the share coordinator has written it."""
        process = self._process(broker_id)
        try:
            process.sessions.acknowledge(SessionKey(GROUP, member_id), epoch)
        except SessionRefused as refusal:
            respond(refusal.error)
            return
        hosted = process.hosted
        if hosted is None:
            respond(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)  # "This server does not host this topic-partition."
            return
        self._step(process, hosted, hosted.core.acknowledge(respond, member_id, [said], self._world.now_ms))

    def end_session(self, broker_id: int, member_id: str) -> None:
        """End a member's session at a broker, by its last request or with its connection; rule 4."""
        process = self._processes.get(broker_id)
        if process is None or not self._is_current(process):
            return
        process.fetches = [one for one in process.fetches if one.member_id != member_id]
        session: ShareSession | None = process.sessions.end(SessionKey(GROUP, member_id))
        hosted = process.hosted
        if session is not None and hosted is not None:
            released = hosted.core.release(_no_response, member_id, self._world.now_ms)
            self._step(process, hosted, released)

    # Consequences

    def settle(self) -> None:
        """Take note of processes that have ended and of lost leaderships, and serve the fetches that are due."""
        for broker_id, process in list(self._processes.items()):
            if not self._is_current(process):
                del self._processes[broker_id]
                self.disconnected(broker_id)
            elif self._world.is_up(broker_id):
                self._look(process)
                self._serve_all(process)

    def step_timers(self) -> None:
        """End the locks whose time is over, and repeat due requests."""
        for broker_id, process in list(self._processes.items()):
            hosted = process.hosted
            if hosted is None or not self._world.is_up(broker_id):
                continue
            due_ms = hosted.core.next_deadline_ms()
            if due_ms is not None and due_ms <= self._world.now_ms:
                self._step(process, hosted, hosted.core.expire(self._world.now_ms))
        self._persister.step_timers()

    def _process(self, broker_id: int) -> _Process:
        broker = self._world.brokers[broker_id]
        process = self._processes.get(broker_id)
        if process is None or process.incarnation != broker.incarnation:
            process = self._processes[broker_id] = _Process(broker)
        return process

    @staticmethod
    def _is_current(process: _Process) -> bool:
        return process.broker.is_running and process.broker.incarnation == process.incarnation

    @staticmethod
    def _leadership(process: _Process) -> tuple[int, ErrorCode]:
        leader, error = process.broker.core.hosted.leader_of(AT, None)
        return (-1, error) if leader is None else (leader.partition.leader_epoch, error)

    def _look(self, process: _Process) -> None:
        """Drop the share partition of a former leader, and make one where a fetch waits for it; rule 1."""
        epoch, error = self._leadership(process)
        hosted = process.hosted
        if hosted is not None and hosted.failure is not _NONE and not process.fetches:
            hosted = process.hosted = None
        if hosted is not None and (error is not _NONE or hosted.core.leader_epoch != epoch):
            process.hosted = None
            self._step(process, hosted, hosted.core.fence())
        if process.hosted is None and process.fetches and error is _NONE:
            hosted = process.hosted = _Hosted(SharePartition(epoch, SETTINGS))
            self._step(process, hosted, hosted.core.initialize())

    # Fetches; rule 2

    def _serve_all(self, process: _Process) -> None:
        waiting, process.fetches = process.fetches, []
        for one in waiting:
            found = self._served(process, one)
            if found is None:
                process.fetches.append(one)
            else:
                one.respond(found)

    def _served(self, process: _Process, fetch: _Fetch) -> Fetched | None:
        """Return what a fetch gives; None: it waits on."""
        error = self._leadership(process)[1]
        if error is not _NONE:
            return Fetched(error)
        is_over = self._world.now_ms >= fetch.deadline_ms
        hosted = process.hosted
        if hosted is None or hosted.core.state is not PartitionState.ACTIVE:
            return Fetched(_NONE if hosted is None else hosted.failure) if is_over else None
        found = self._acquire(process, hosted.core, fetch) if hosted.core.can_acquire() else Fetched(_NONE)
        return found if found.acquired or found.error is not _NONE or is_over else None

    def _acquire(self, process: _Process, core: SharePartition, fetch: _Fetch) -> Fetched:
        broker, reading = process.broker, Reading()
        offset = core.next_fetch_offset()
        request = FetchRequest(CONSUMER, 0, 1, _READ_BYTES, [FetchPartition(AT, offset, _READ_BYTES)])
        broker.execute(broker.core.fetch(request, reading, self._world.now_ms))
        if reading.results is None:
            return Fetched(_NONE)
        ((result, records),) = reading.results
        if result.error is not _NONE:
            return Fetched(result.error)
        headers = headers_of(records)
        if not headers:
            return Fetched(_NONE)
        read = Read(offset, log_batches(records, headers))
        wanted = Wanted(fetch.max_records, fetch.max_records, AcquireMode.RECORD_LIMIT)
        acquired = core.acquire(fetch.member_id, read, wanted, self._world.now_ms)
        return Fetched(_NONE, acquired, self._numbers_in(records))

    def _numbers_in(self, records: Any) -> dict[int, int]:
        """Return the numbers of clients' records by offset; a marker has none."""
        number_of = self._world.clients.number_of
        return {
            header.base_offset + place: number_of[header.crc] + place
            for header in iterate_headers(records)
            if header.crc in number_of
            for place in range(header.record_count)
        }

    # Effects

    def _step(self, process: _Process, hosted: _Hosted, effects: Sequence[Effect]) -> None:
        for effect in effects:
            self._carry_out(process, hosted, effect)

    def _carry_out(self, process: _Process, hosted: _Hosted, effect: Effect) -> None:
        core = hosted.core
        match effect:
            case ReadState():
                request = ReadShareState(KEY, effect.leader_epoch)
                self.ask_state(process.broker, request, lambda found: self._read(process, hosted, found))
            case FindStartOffset():
                partition = process.broker.core.partition(AT)
                start = 0 if partition is None else partition.log_start_offset
                self._step(process, hosted, core.start_offset_found(_NONE, start))
            case WriteState():
                hosted.unwritten.append(effect)
                if not hosted.is_writing:
                    hosted.is_writing = True
                    self._write(process, hosted)
            case Respond():
                respond: Any = effect.token
                respond(effect.error)
            case Opened():
                hosted.failure = effect.error
            case Dropped():
                if process.hosted is hosted and hosted.failure is _NONE:
                    process.hosted = None
            case _:
                pass  # fetches that wait are looked at after every event

    def _read(self, process: _Process, hosted: _Hosted, found: ShareStateResult) -> None:
        effects = hosted.core.state_read(
            found.error, found.message, found.state_epoch, found.start_offset, found.batches
        )
        self._step(process, hosted, effects)

    def _write(self, process: _Process, hosted: _Hosted) -> None:
        """Write the first state that waits; rule 3."""
        effect = hosted.unwritten[0]
        request = WriteShareState(
            KEY, effect.state_epoch, effect.leader_epoch, effect.start_offset, effect.complete_count, effect.batches
        )
        self.ask_state(process.broker, request, lambda result: self._written(process, hosted, result))

    def _written(self, process: _Process, hosted: _Hosted, result: ShareStateResult) -> None:
        count = len(hosted.unwritten) if result.error in NOT_REACHED else 1
        for effect in [hosted.unwritten.popleft() for _ in range(count)]:
            effects = hosted.core.state_written(effect.write_id, result.error, result.message)
            self._step(process, hosted, effects)
        hosted.is_writing = bool(hosted.unwritten)
        if hosted.unwritten:
            self._write(process, hosted)


def _no_response(_: ErrorCode) -> None:
    """Take the outcome of a release that nothing waits for."""
