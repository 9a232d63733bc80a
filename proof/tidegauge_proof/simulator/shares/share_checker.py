"""Invariants of a share group (KIP-932), checked after every event.

The checker has its own, simple idea of the rules: it follows each record by its offset, from what leaders give to
members and what the responses to members say, and folds the log of states itself.

| name | statement |
|---|---|
| S1 | a leader gives a record to one member at a time: to another one when it was released, or its lock has ended |
| S2 | a record whose acceptance or rejection was acknowledged is never delivered again, but by a former leader |
| S3 | the delivery count of a record rises by one with each delivery by one leader |
| S4 | a leader delivers a record at most as often as the limit says |
| S5 | the start offset never falls, at one coordinator, nor from one response to a read that arrives later |
| S6 | members that fetch and acknowledge come to the end of the log: each record was delivered, and is done |
| S7 | a leader writes nothing after a later one has read the state |
| S8 | what a share coordinator has after a load is a function of the log alone |
| S9 | a request to a share coordinator gets one response; one without is of a process that has ended |
| S10 | an acknowledgement of a record that its member does not have changes nothing |
| Appended | an append is reported as committed only when it is, at the offset that is reported |

S2 does not hold of an acknowledgement that arrives below the start offset: it succeeds without a write, as in Kafka. A
record whose lock has ended at the delivery limit may be below the start before that is durable; the next leader then
delivers it again, though its acceptance has succeeded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidegauge.errors import ErrorCode
from tidegauge.record_batch import read_header
from tidegauge.share_groups import ReadShareState, ShareStateResult, WriteShareState
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.share_state.coordinator import ShareCoordinator
from tidegauge_broker.coordinator.share_state.records import Snapshot, Update, read_change, read_key
from tidegauge_broker.coordinator.share_state.state import ShareState
from tidegauge_broker.replica.messages import ProduceResult
from tidegauge_broker.share.acquiring import Acquired
from tidegauge_proof.simulator.checker import Checker, Violation
from tidegauge_proof.simulator.coordinator_world import Arrived, CoordinatorWorld, Process
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.shares.leaders import DELIVERY_COUNT_LIMIT, KEY, LOCK_MS, Call, Leader
from tidegauge_proof.simulator.shares.share_members import FINAL, RENEW, Member, MemberRequest

Incarnation = Process[ShareCoordinator]
Token = Arrived[ShareCoordinator]


class Folded:
    """The state in the records of a log: the state of each offset, of which the later delivery counts."""

    def __init__(self) -> None:
        self.is_there = False
        self.state_epoch = self.leader_epoch = 0
        self.start_offset = -1
        self.records: dict[int, tuple[int, int]] = {}

    def add(self, part: bytes) -> None:
        """Take further batches."""
        for batch in read_batches(part):
            if batch.header.is_control:
                continue
            for key, value in batch.records:
                _, kind = read_key(key or b"")
                if value is not None:
                    self._take(read_change(kind, value))

    def _take(self, change: Snapshot | Update) -> None:
        self.is_there = True
        if isinstance(change, Snapshot):
            self.state_epoch, self.leader_epoch, self.records = change.state_epoch, change.leader_epoch, {}
            self.start_offset = change.start_offset
        else:
            self.leader_epoch = max(self.leader_epoch, change.leader_epoch)
            self.start_offset = change.start_offset if change.start_offset >= 0 else self.start_offset
        for batch in change.batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                said = (batch.delivery_count, batch.state)
                self.records[offset] = max(said, self.records.get(offset, said))
        self.records = {offset: one for offset, one in self.records.items() if offset >= self.start_offset}

    @property
    def said(self) -> tuple[int, int, int, Mapping[int, tuple[int, int]]]:
        """Return it in the form of ``_said``."""
        return self.state_epoch, self.leader_epoch, self.start_offset, self.records


@dataclass
class _Record:
    """A record at one leader.

    Attributes:
        member: that has it; None: none.
        until_ms: when its lock ends.
        count: deliveries by this leader, as it has counted them; 0: none.
        deliveries: as the checker has counted them.
    """

    member: str | None = None
    until_ms: int = 0
    count: int = 0
    deliveries: int = 0


@dataclass
class _Followed:
    """The checker's view of one leader's share partition."""

    records: dict[int, _Record] = field(default_factory=dict)

    def record(self, offset: int) -> _Record:
        """Return a record."""
        return self.records.setdefault(offset, _Record())


class ShareChecker:
    """Looks at share coordinators, leaders and members.

    Attributes:
        done: the offsets whose acceptance or rejection was acknowledged, with the leader epoch in which it was.
        deliveries: how many records were given to members.
        again: how many of them had been given before.
        loads: how many loads of coordinators were completed.
        died_with: what coordinators were in the middle of when their processes died.
    """

    def __init__(self, partition: Checker) -> None:
        self._partition = partition
        self._open: set[Token] = set()
        self._followed: dict[Leader, _Followed] = {}
        self._arrived: dict[MemberRequest, tuple[int, int]] = {}
        """When a request arrived, and the start offset then."""
        self._read_by = -1
        self._read_before: dict[Token, int] = {}
        self._start_offsets: dict[Incarnation, int] = {}
        self._promised = -1
        self._promised_before: dict[Token, int] = {}
        self._folds: dict[Incarnation, Folded] = {}
        self._given: set[int] = set()
        self.done: dict[int, int] = {}
        self.died_with: set[str] = set()
        self.deliveries = self.again = self.loads = 0

    # Leaders and members

    def acquired(self, leader: Leader, member: Member, found: Iterable[Acquired], now_ms: int) -> None:
        """Check what a leader gives to a member."""
        followed = self._followed.setdefault(leader, _Followed())
        for one in found:
            for offset in range(one.first_offset, one.last_offset + 1):
                record = followed.record(offset)
                if record.member is not None and record.until_ms > now_ms:
                    raise Violation("S1", f"{offset} is given to {member.name}, and {record.member} has it")
                if self.done.get(offset, leader.core.leader_epoch + 1) <= leader.core.leader_epoch:
                    raise Violation("S2", f"{offset} is delivered again, after it was done")
                if record.count and one.delivery_count != record.count + 1:
                    raise Violation("S3", f"delivery {one.delivery_count} of {offset} follows {record.count}")
                record.deliveries += 1
                if max(record.deliveries, one.delivery_count) > DELIVERY_COUNT_LIMIT:
                    raise Violation("S4", f"{offset} is delivered {record.deliveries} times by one leader")
                record.member, record.until_ms, record.count = member.name, now_ms + LOCK_MS, one.delivery_count
                self.deliveries += 1
                self.again += offset in self._given
                self._given.add(offset)

    def acknowledges(self, leader: Leader, request: MemberRequest, now_ms: int) -> None:
        """Take in that a leader is about to decide about acknowledgements."""
        self._arrived[request] = now_ms, leader.core.window.start_offset

    def acknowledged(self, leader: Leader, request: MemberRequest, now_ms: int) -> None:
        """Take in what a leader has decided, and written, about acknowledgements."""
        arrived_ms, start_offset = self._arrived.pop(request)
        until_ms = arrived_ms + LOCK_MS
        if request.error is not ErrorCode.NONE:
            return
        followed = self._followed.setdefault(leader, _Followed())
        for batch in request.batches:
            kind = batch.types[0]
            for offset in range(batch.first_offset, batch.last_offset + 1):
                record = followed.record(offset)
                if kind in FINAL and offset >= start_offset:
                    self.done.setdefault(offset, leader.core.leader_epoch)
                if kind == RENEW:
                    if record.member == request.member.name:
                        record.until_ms = max(record.until_ms, until_ms)
                    continue
                if record.member not in {request.member.name, None} and record.until_ms > now_ms:
                    raise Violation("S10", f"{request.member.name} acknowledges {offset}, and {record.member} has it")
                record.member = None

    def released(self, leader: Leader, name: str) -> None:
        """Take in that a member's connection is closed: its records are given back."""
        for record in self._followed.setdefault(leader, _Followed()).records.values():
            if record.member == name:
                record.member = None

    def expired(self, leader: Leader, now_ms: int) -> None:
        """Take in that locks which are due time out."""
        for record in self._followed.setdefault(leader, _Followed()).records.values():
            if record.until_ms <= now_ms:
                record.member = None

    # Appends, requests and responses

    def appended(self, broker: MemoryBroker, batch: bytes, result: ProduceResult) -> None:
        """Take in the outcome of an append."""
        if result.error is not ErrorCode.NONE:
            return
        header, base = read_header(batch), result.base_offset
        committed = self._partition.committed[base : base + header.record_count]
        names = [(record.batch_crc, record.place) for record in committed]
        if names != [(header.crc, place) for place in range(header.record_count)]:
            raise Violation("Appended", f"broker {broker.broker_id} reports offset {base} as committed, it is not")

    def open_calls(self) -> set[Call]:
        """Return the calls that coordinators have, and that have no response yet."""
        return {token.call for token in self._open}

    def arrives(self, process: Incarnation, token: Token) -> None:
        """Take in that a request is about to be handled."""
        del process
        self._open.add(token)
        self._promised_before[token] = self._promised
        if isinstance(token.call.request, WriteShareState):
            self._read_before[token] = self._read_by

    def responded(self, process: Incarnation, token: Token, result: ShareStateResult) -> None:
        """Check a response that leaves a coordinator."""
        if token not in self._open:
            raise Violation("S9", f"{type(token.call.request).__name__} got two responses, or was never sent")
        self._open.remove(token)
        request, promised = token.call.request, self._promised_before.pop(token)
        if isinstance(request, WriteShareState):
            if result.error is ErrorCode.NONE:
                self._promised = max(self._promised, request.start_offset)
            read_before = self._read_before.pop(token)
            if result.error is ErrorCode.NONE and request.leader_epoch < read_before:
                raise Violation("S7", f"epoch {request.leader_epoch} writes after epoch {read_before} has read")
        elif (
            isinstance(request, ReadShareState)
            and result.error is ErrorCode.NONE
            and process.leads(self._partition.world)
        ):
            self._read_by = max(self._read_by, request.leader_epoch)
            if result.start_offset < promised:
                raise Violation("S5", f"{result.start_offset} is read, and {promised} was written before")
            self._promised = max(self._promised, result.start_offset)

    # Processes and loads

    def process_ended(self, process: Incarnation) -> None:
        """Forget the requests of a process that has ended: their connections are closed."""
        if process.load is not None:
            self.died_with.add("load")
        if any(one.is_being_written for one in process.coordinator.kept_states()):
            self.died_with.add("write in flight")
        self._open = {token for token in self._open if token.process is not process}
        for kept in (self._read_before, self._promised_before):
            for token in [one for one in kept if one not in self._open]:
                del kept[token]
        self._start_offsets.pop(process, None)
        self._folds.pop(process, None)

    def loaded(self, process: Incarnation, part: bytes) -> None:
        """Fold a part of the log that is handed to a load."""
        self._folds.setdefault(process, Folded()).add(part)

    def load_completed(self, process: Incarnation) -> None:
        """Check a complete load: what it gave must be what the log says."""
        fold = self._folds.pop(process, Folded())
        self._start_offsets.pop(process, None)
        if process.coordinator.shard_states().get(0) is not ShardState.ACTIVE:
            return
        self.loads += 1
        state = process.coordinator.state_of(KEY)
        if (state is not None) != fold.is_there:
            raise Violation("S8", f"loaded {state}, and the log has {'a' if fold.is_there else 'no'} state")
        if state is not None and _said(state) != fold.said:
            raise Violation("S8", f"loaded {_said(state)}, the log has {fold.said}")

    def look(self, cluster: CoordinatorWorld[ShareCoordinator]) -> None:
        """Check the committed state at the coordinator."""
        if not cluster.has_changed:
            return
        for process in cluster.processes.values():
            state = process.coordinator.state_of(KEY)
            if state is None or process.coordinator.shard_states().get(0) is not ShardState.ACTIVE:
                continue
            before = self._start_offsets.get(process, state.start_offset)
            if state.start_offset < before:
                raise Violation("S5", f"the start offset falls from {before} to {state.start_offset}")
            self._start_offsets[process] = state.start_offset

    def at_rest(self, end_offset: int) -> None:
        """Check after the faults that each record was delivered, and that nothing is left open."""
        never = set(range(end_offset)) - self._given
        if never:
            raise Violation("S6", f"the records {sorted(never)} were never delivered")
        if self._open:
            raise Violation("S9", f"{next(iter(self._open)).call.request} never gets a response")


def _said(state: ShareState) -> tuple[int, int, int, Mapping[int, tuple[int, int]]]:
    """Return a state's epochs, start, and the count and state of each offset."""
    records = {
        offset: (batch.delivery_count, batch.state)
        for batch in state.batches
        for offset in range(batch.first_offset, batch.last_offset + 1)
    }
    return state.state_epoch, state.leader_epoch, state.start_offset, records
