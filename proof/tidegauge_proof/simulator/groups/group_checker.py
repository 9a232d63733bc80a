"""Invariants of consumer groups, checked after every event of a coordinator.

The checker has its own, simple idea of the rules: it folds the log itself, and knows nothing of phases.

| name | statement |
|---|---|
| G1 | a group has one member at most for an instance id, and the id of a replaced member commits nothing more |
| G2 | the generation of a group never falls, as long as its coordinator keeps it |
| G3 | assignments that were given out in one generation never overlap |
| G4 | an assignment is given out only when the record that holds it is committed, or was loaded (up to the LEO) |
| G5 | an acknowledged commit is returned until a newer one; nothing goes back, however often the coordinator changes |
| G6 | a commit of another generation or of no member is refused |
| G7 | what a coordinator has after a load is a function of the log alone |
| G8 | a request gets one response; one that is not is parked, was replaced by its member, or its process has ended |
| G9 | no group prepares a rebalance for longer than its timeouts, nor waits longer for its members to synchronise |
| Appended | an append is reported as committed only when it is, at the offset that is reported |
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.groups import (
    GroupResult,
    GroupState,
    JoinGroup,
    JoinGroupResult,
    OffsetCommit,
    OffsetCommitResult,
    OffsetFetch,
    OffsetFetchResult,
    SyncGroup,
    SyncGroupResult,
)
from tidegauge.kafka.coordinator.group_metadata import GroupMetadataValue
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.records import GroupKey, OffsetKey, read_group, read_key, read_offset
from tidegauge_broker.coordinator.views import GroupView
from tidegauge_broker.replica.messages import ProduceResult
from tidegauge_proof.simulator.checker import Checker, Violation
from tidegauge_proof.simulator.coordinator_world import Arrived, CoordinatorWorld, Process
from tidegauge_proof.simulator.groups.members import GROUP, REBALANCE_MS, SESSION_MS
from tidegauge_proof.simulator.memory_broker import MemoryBroker

Incarnation = Process[GroupCoordinator]
Token = Arrived[GroupCoordinator]
_LATE_MS = 5_000
"""How late timers may run: that is a step of its own, which other steps may precede."""


class _Phase(NamedTuple):
    """A state of a group, by the time of the world: the broker's wall clock may be wrong.

    Attributes:
        key: the generation, the state, and the wall-clock time at which it began.
        since_ms: when it was first seen.
        overdue_ms: how long due timers of the process had not run until then, in all.
    """

    key: tuple[int, GroupState, int]
    since_ms: int
    overdue_ms: int


class Folded:
    """The state in the records of a log, read by the rules of docs/groups.md: the last record of a key counts."""

    def __init__(self) -> None:
        self.groups: dict[str, GroupMetadataValue] = {}
        self.offsets: dict[tuple[str, TopicPartition], tuple[int, int]] = {}

    def add(self, part: bytes) -> None:
        """Take further batches."""
        for batch in read_batches(part):
            for key_bytes, value in batch.records:
                key = read_key(key_bytes or b"")
                if isinstance(key, GroupKey):
                    if value is None:
                        self.groups.pop(key.group_id, None)
                    else:
                        self.groups[key.group_id] = read_group(value)
                elif isinstance(key, OffsetKey):
                    name = key.group_id, key.topic_partition
                    if value is None:
                        self.offsets.pop(name, None)
                    else:
                        self.offsets[name] = read_offset(value).offset, batch.header.base_offset


class GroupChecker:
    """Looks at the coordinators of one partition."""

    def __init__(self, partition: Checker) -> None:
        self._partition = partition
        self._assigned: dict[int, dict[str, bytes]] = {}
        self._acknowledged: dict[TopicPartition, int] = {}
        """The largest offset in the log of an acknowledged commit, by partition."""
        self._wanted: dict[Token, dict[TopicPartition, int]] = {}
        """Offsets acknowledged before a fetch of offsets arrived, by its token."""
        self._places: dict[int, int] = {}
        """Where in the log the batch of a committed position lies: positions are unique."""
        self._may_commit: dict[Token, bool] = {}
        self._replaced: set[str] = set()
        self._is_late: dict[Token, bool] = {}
        self._open: set[Token] = set()
        self._groups: dict[tuple[int, int, str], tuple[int, int, GroupState]] = {}
        self._folds: dict[Incarnation, Folded] = {}
        self._looked_ms = -1
        self._overdue_ms: dict[Incarnation, int] = {}
        """How long timers of a process that were due had not run yet, in all."""
        self._begun: dict[Incarnation, _Phase] = {}
        """The phase in which the group is."""
        self.died_with: set[str] = set()
        """Activities of coordinators when their processes died."""
        self.has_odd_timeouts = False
        """Whether a rebalance may last longer, and members come again with other timeouts."""
        self.commits = 0
        self.generations = 0
        self.loads = 0

    # Appends

    def appended(self, broker: MemoryBroker, batch: bytes, result: ProduceResult) -> None:
        """Take in the outcome of an append."""
        if result.error is not ErrorCode.NONE:
            return
        header, base = read_header(batch), result.base_offset
        committed = self._partition.committed[base : base + header.record_count]
        names = [(record.batch_crc, record.place) for record in committed]
        if names != [(header.crc, place) for place in range(header.record_count)]:
            raise Violation(
                "Appended", f"broker {broker.broker_id} reports offset {base} as committed, which it is not"
            )
        for loaded in read_batches(batch):
            for key_bytes, value in loaded.records:
                if value is not None and isinstance(read_key(key_bytes or b""), OffsetKey):
                    offset = read_offset(value).offset
                    self._places[offset] = max(base, self._places.get(offset, -1))

    # Requests and responses

    def open_tokens(self) -> frozenset[Token]:
        """Return the requests that have no response yet."""
        return frozenset(self._open)

    def arrives(self, process: Incarnation, token: Token) -> None:
        """Note a request that is about to be handled: the present state decides the possible responses."""
        request = token.call.request
        self._open.add(token)
        if isinstance(request, OffsetFetch):
            self._wanted[token] = dict(self._acknowledged)
        elif isinstance(request, OffsetCommit):
            view = process.coordinator.group_view(request.group_id or "")
            self._may_commit[token] = _may_commit(view, request)
            self._is_late[token] = request.member_id in self._replaced

    def responded(self, process: Incarnation, token: Token, result: GroupResult) -> None:
        """Check a response that leaves a coordinator."""
        if token not in self._open:
            raise Violation("G8", f"{type(token.call.request).__name__} got two responses, or was never sent")
        self._open.remove(token)
        request = token.call.request
        if isinstance(request, SyncGroup) and isinstance(result, SyncGroupResult):
            self._synced(process, request, result)
        elif isinstance(request, OffsetCommit) and isinstance(result, OffsetCommitResult):
            self._committed(process, token, request, result)
        elif isinstance(request, OffsetFetch) and isinstance(result, OffsetFetchResult):
            self._fetched(process, token, result)
        elif isinstance(request, JoinGroup) and isinstance(result, JoinGroupResult):
            self._joined(process, request, result)

    def _joined(self, process: Incarnation, request: JoinGroup, result: JoinGroupResult) -> None:
        """Note the id of a static member that was replaced without a rebalance: it is fenced for good."""
        view = process.coordinator.group_view(GROUP)
        if result.error is not ErrorCode.NONE or view is None or view.state is not GroupState.STABLE:
            return
        if request.group_instance_id is not None and not request.member_id:
            kept = self._assigned.get(result.generation, {})
            fenced = {name for name in kept if name.startswith(f"{request.group_instance_id}-")}
            self._replaced |= fenced - {result.member_id}

    def _synced(self, process: Incarnation, request: SyncGroup, result: SyncGroupResult) -> None:
        if result.error is not ErrorCode.NONE:
            return
        log, committed = process.log, len(self._partition.committed)
        end = min(max(committed, process.read_to), log.log_end_offset)
        place = self._place_of(log.read(0, end, 1 << 30), end, request, result.assignment)
        if place is None:
            raise Violation(
                "G4",
                f"{request.member_id} is given an assignment of generation {request.generation} that no record has",
            )
        if place >= committed:
            return
        given = self._assigned.setdefault(request.generation, {})
        given[request.member_id] = result.assignment
        for other, assignment in given.items():
            same_instance = other.partition("-")[0] == request.member_id.partition("-")[0]
            if other != request.member_id and not same_instance and set(assignment) & set(result.assignment):
                raise Violation(
                    "G3", f"{other} and {request.member_id} share partitions in generation {request.generation}"
                )

    @staticmethod
    def _place_of(data: bytes, end: int, request: SyncGroup, assignment: bytes) -> int | None:
        """Return the offset of the record with a generation's assignment, if any."""
        for part in _parts(data, end):
            fold = Folded()
            fold.add(part)
            value = fold.groups.get(request.group_id or "")
            if value is not None and value.generation == request.generation:
                given = {member.member_id: member.assignment for member in value.members}
                if given.get(request.member_id) == assignment:
                    return read_header(part).base_offset
        return None

    def _committed(self, process: Incarnation, token: Token, request: OffsetCommit, result: OffsetCommitResult) -> None:
        may, is_late = self._may_commit.pop(token), self._is_late.pop(token)
        for partition, error in result.partitions.items():
            if error is not ErrorCode.NONE:
                continue
            if not may:
                raise Violation(
                    "G6", f"a commit of {request.member_id!r} in generation {request.generation} is accepted"
                )
            if is_late:
                raise Violation("G1", f"{request.member_id} was replaced, and commits")
            (offset,) = [one.offset for one in request.offsets if one.topic_partition == partition]
            place = self._places.get(offset)
            if place is None:
                raise Violation("G5", f"the commit of {offset} by broker {process.broker.broker_id} is in no log")
            self._acknowledged[partition] = max(self._acknowledged.get(partition, -1), place)
            self.commits += 1

    def _fetched(self, process: Incarnation, token: Token, result: OffsetFetchResult) -> None:
        wanted = self._wanted.pop(token)
        if result.error is not ErrorCode.NONE or not process.leads(self._partition.world):
            return
        for partition, fetched in result.offsets.items():
            if fetched.error is not ErrorCode.NONE:
                continue
            self._must_be_at_least(process, partition, fetched.offset, wanted.get(partition, -1))

    def _must_be_at_least(self, process: Incarnation, partition: TopicPartition, offset: int, wanted: int) -> None:
        if wanted <= self._places.get(offset, -1):
            return
        # A commit that arrived twice, or that was never acknowledged, may be further up.
        log, place = process.log, -1
        for batch in read_batches(log.read(0, log.log_end_offset, 1 << 30)):
            for key_bytes, value in batch.records:
                key = read_key(key_bytes or b"")
                is_it = isinstance(key, OffsetKey) and key.topic_partition == partition and value is not None
                if is_it and read_offset(value or b"").offset == offset:
                    place = batch.header.base_offset
        if place < wanted:
            raise Violation(
                "G5",
                f"broker {process.broker.broker_id} returns {offset} for {partition}, older than what was acknowledged",
            )

    # Processes, loads, groups

    def process_ended(self, process: Incarnation) -> None:
        """Forget the requests of a process that has ended: their connections are closed."""
        self.died_with |= _situations(process)
        for token in [token for token in self._open if token.process is process]:
            self._open.remove(token)
            for kept in (self._wanted, self._may_commit, self._is_late):
                kept.pop(token, None)
        self._folds.pop(process, None)
        self._forget_groups(process)

    def loaded(self, process: Incarnation, part: bytes) -> None:
        """Fold a part of the log that is handed to a load."""
        self._folds.setdefault(process, Folded()).add(part)

    def load_completed(self, process: Incarnation) -> None:
        """Check a complete load: what it gave must be what the log says."""
        fold = self._folds.pop(process, Folded())
        if process.coordinator.shard_states().get(0) is not ShardState.ACTIVE:
            return  # a resignation was waiting behind the load
        self.loads += 1
        views = {view.group_id: view for view in process.coordinator.group_views()}
        if views.keys() != fold.groups.keys() | {name for name, _ in fold.offsets}:
            raise Violation("G7", f"loaded {sorted(views)}, the log has {sorted(fold.groups)}")
        for group_id, view in views.items():
            offsets = {at: committed.offset for at, committed in view.offsets.items()}
            if offsets != {at: offset for (name, at), (offset, _) in fold.offsets.items() if name == group_id}:
                raise Violation("G7", f"the offsets of {group_id} are not those of the log")
            value = fold.groups.get(group_id)
            generation = 0 if value is None else value.generation
            members = {} if value is None else {member.member_id: member.assignment for member in value.members}
            if view.generation != generation or {one.member_id: one.assignment for one in view.members} != members:
                raise Violation("G7", f"generation and members of {group_id} are not those of the log")
        self._forget_groups(process)

    def _forget_groups(self, process: Incarnation) -> None:
        for key in [key for key in self._groups if key[:2] == (process.broker.broker_id, process.incarnation)]:
            del self._groups[key]

    def look(self, cluster: CoordinatorWorld[GroupCoordinator]) -> None:
        """Check the visible state of every group after an event, if a coordinator was called or time has passed."""
        world = cluster.world
        if not cluster.has_changed and world.now_ms == self._looked_ms:
            return
        before_ms, self._looked_ms = self._looked_ms, world.now_ms
        for broker_id, process in cluster.processes.items():
            self._count_overdue(process, before_ms, world.now_ms)
            for view in process.coordinator.group_views():
                self._check_members(view)
                self._check_generation(process, view)
                if world.is_up(broker_id):
                    self._check_duration(view, world.now_ms, process)

    def _check_members(self, view: GroupView) -> None:
        instances = [member.group_instance_id for member in view.members if member.group_instance_id is not None]
        if len(instances) != len(set(instances)):
            raise Violation("G1", f"{view.group_id} has two members of one instance: {instances}")

    def _check_generation(self, process: Incarnation, view: GroupView) -> None:
        key = process.broker.broker_id, process.incarnation, view.group_id
        before = self._groups.get(key)
        self._groups[key] = (view.generation, view.state_since_ms, view.state)
        self.generations = max(self.generations, view.generation)
        if before is not None and view.generation < before[0]:
            raise Violation("G2", f"{view.group_id} goes from generation {before[0]} to {view.generation}")

    def _count_overdue(self, process: Incarnation, before_ms: int, now_ms: int) -> None:
        deadline_ms = process.coordinator.next_deadline_ms()
        if deadline_ms is not None and deadline_ms < now_ms:
            late_ms = now_ms - max(deadline_ms, before_ms)
            self._overdue_ms[process] = self._overdue_ms.get(process, 0) + late_ms

    def _check_duration(self, view: GroupView, now_ms: int, process: Incarnation) -> None:
        """Check that rebalances end; static members' rebalances may begin again, as in Kafka.

        Time in which a timer was due and had not run does not count: the dice decide when timers run.
        """
        if self.has_odd_timeouts:
            return
        overdue_ms = self._overdue_ms.get(process, 0)
        phase, key = self._begun.get(process), (view.generation, view.state, view.state_since_ms)
        if phase is None or phase.key != key:
            phase = self._begun[process] = _Phase(key, now_ms, overdue_ms)
        lasted_ms = now_ms - max(phase.since_ms, process.paused_ms) - (overdue_ms - phase.overdue_ms)
        if view.state is GroupState.PREPARING_REBALANCE:
            is_static = all(member.group_instance_id is not None for member in view.members)
            limit_ms = REBALANCE_MS + SESSION_MS + _LATE_MS
            if lasted_ms > limit_ms and not (is_static and view.members):
                raise Violation("G9", f"{view.group_id} prepares a rebalance for {lasted_ms} ms")
        elif view.state is GroupState.COMPLETING_REBALANCE and lasted_ms > REBALANCE_MS + _LATE_MS:
            raise Violation("G9", f"{view.group_id} waits for an assignment for {lasted_ms} ms")

    # The end

    def at_rest(self, cluster: CoordinatorWorld[GroupCoordinator]) -> None:
        """Check after the faults and all timers: nothing is left open, and nothing acknowledged is missing."""
        for token in self._open:
            if not self._may_stay_open(token):
                raise Violation("G8", f"{token.call.request} never gets a response")
        state = cluster.world.partitions[0].state_now
        process = cluster.processes[state.leader]
        view = process.coordinator.group_view(GROUP)
        if view is not None and view.pending_offsets:
            raise Violation("G5", f"commits of {view.pending_offsets} stay pending for ever")
        for partition, wanted in self._acknowledged.items():
            committed = None if view is None else view.offsets.get(partition)
            self._must_be_at_least(process, partition, -1 if committed is None else committed.offset, wanted)

    def _may_stay_open(self, token: Token) -> bool:
        """Return whether Kafka gives no response either, as after another request."""
        request = token.call.request
        if isinstance(request, JoinGroup | SyncGroup):
            view = token.process.coordinator.group_view(request.group_id or "")
            parked = {} if view is None else {member.member_id: member.parked for member in view.members}
            if isinstance(request, JoinGroup):
                # A repeat has taken its place, and got the response.
                return bool(request.member_id) and parked.get(request.member_id, "") != "JoinGroup"
            return parked.get(request.member_id, "") != "SyncGroup"
        return False


def _situations(process: Incarnation) -> set[str]:
    """Return what a coordinator is in the middle of."""
    seen = {"append in flight"} if process.coordinator.appends_in_flight else set[str]()
    seen |= {"load"} if process.load is not None else set[str]()
    for view in process.coordinator.group_views():
        seen.add(view.state.value)
        seen |= {f"parked {member.parked}" for member in view.members if member.parked}
        seen |= {"pending member"} if view.pending_members else set[str]()
        leader = [member for member in view.members if member.member_id == view.leader]
        seen |= {"leader's SyncGroup parked"} if leader and leader[0].parked == "SyncGroup" else set[str]()
    return seen


def _may_commit(view: GroupView | None, request: OffsetCommit) -> bool:
    if view is None or view.state is GroupState.EMPTY:
        return request.generation < 0
    ids = {member.member_id: member.group_instance_id for member in view.members}
    return (
        request.generation == view.generation
        and request.member_id in ids
        and request.group_instance_id in {None, ids[request.member_id]}
        and view.state is not GroupState.COMPLETING_REBALANCE
    )


def _parts(data: bytes, end: int) -> list[bytes]:
    """Return the batches below an offset, one by one."""
    parts: list[bytes] = []
    position = 0
    while position < len(data):
        header = read_header(data, position)
        if header.next_offset > end:
            break
        parts.append(data[position : position + header.size_bytes])
        position += header.size_bytes
    return parts
