"""Invariants of a consumer group (KIP-848), checked after every event of a coordinator.

The checker has its own, simple idea of the rules: it folds the log itself, and knows nothing of reconciliation.

| name | statement |
|---|---|
| K1 | a partition is assigned to, or yet to be given up by, one member at most |
| K2 | a member's epoch is not above the target's, nor the target's above the group's |
| K3 | the epoch of a member never falls while a coordinator has it, nor below the epoch in a response before a load |
| K4 | a member that is STABLE in the target's epoch has its target |
| K5 | a target of the group's epoch gives each partition to one member |
| K6 | members that send heartbeats and revoke in time come to own all partitions |
| K7 | two members never both read a partition, if the one that had it sends its heartbeats in time and in order |
| K8 | an accepted commit is in its member's epoch, or an older one and of partitions it has; no newer one is lost |
| K9 | what a coordinator has after a load is a function of the log alone |
| K10 | a request gets one response; one that has none is of a process that has ended |
| Appended | an append is reported as committed only when it is, at the offset that is reported |

K7 does not hold of a member whose session has ended, until it hears of that; nor of one whose older heartbeat arrives
after a newer one, which Kafka does not notice either: an old list of partitions counts as a revocation.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegauge.consumer_groups import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatResult,
    ConsumerGroupState,
)
from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupResult, OffsetCommit, OffsetCommitResult
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge_broker.coordinator.consumer_group import records as consumer_records
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.record_codec import read_batches, version_of
from tidegauge_broker.coordinator.records import OffsetKey, read_key, read_offset
from tidegauge_broker.coordinator.views import ConsumerGroupView, ConsumerMemberView
from tidegauge_broker.replica.messages import ProduceResult
from tidegauge_proof.simulator.checker import Checker, Violation
from tidegauge_proof.simulator.consumer_groups.consumers import GROUP, PARTITIONS, TOPIC, Consumer
from tidegauge_proof.simulator.coordinator_world import Arrived, CoordinatorWorld, Process
from tidegauge_proof.simulator.memory_broker import MemoryBroker

Incarnation = Process[GroupCoordinator]
Token = Arrived[GroupCoordinator]
_GROUP_KEY, _TARGET_KEY, _CURRENT_KEY = 3, 6, 8
"""Types of the records that the checker folds: the group's epoch, the target's, and what a member has."""


class Folded:
    """The state in the records of a log: the last record of a key counts, a tombstone removes it."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def add(self, part: bytes) -> None:
        """Take further batches."""
        for batch in read_batches(part):
            for key, value in batch.records:
                if value is None:
                    self.values.pop(key or b"", None)
                else:
                    self.values[key or b""] = value

    def _of(self, kind: int) -> Iterable[tuple[Any, Any]]:
        for key, value in self.values.items():
            if version_of(key) == kind:
                found = consumer_records.read_key(key)
                yield found, consumer_records.read_value(found, value)

    @property
    def epochs(self) -> tuple[int, int] | None:
        """Return the epochs of the group and its target; None without a group."""
        groups = [value.epoch for _, value in self._of(_GROUP_KEY)]
        targets = [value.assignment_epoch for _, value in self._of(_TARGET_KEY)]
        return (groups[0], targets[0] if targets else 1) if groups else None

    @property
    def members(self) -> dict[str, tuple[int, int, frozenset[int], frozenset[int]]]:
        """Return each member's epoch, state, partitions, and partitions to give up."""
        return {
            key.member_id: (
                value.member_epoch,
                value.state,
                _numbers(value.assigned_partitions),
                _numbers(value.partitions_pending_revocation),
            )
            for key, value in self._of(_CURRENT_KEY)
        }

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Return the committed offsets."""
        found: dict[TopicPartition, int] = {}
        for key, value in self.values.items():
            at = read_key(key)
            if isinstance(at, OffsetKey):
                found[at.topic_partition] = read_offset(value).offset
        return found


class ConsumerChecker:
    """Looks at the coordinators of one partition."""

    def __init__(self, partition: Checker) -> None:
        self._partition = partition
        self.consumers: list[Consumer] = []
        self._open: set[Token] = set()
        self._may_commit: dict[Token, bool] = {}
        """Whether a commit was allowed when it arrived."""
        self._arrived: dict[str, int] = {}
        """The newest heartbeat of each member that has arrived anywhere, by its number."""
        self._excused: set[str] = set()
        """Members whose reading counts no longer: they were removed, or their heartbeats came out of order."""
        self._seen: dict[Incarnation, dict[str, int]] = {}
        """The epochs of a coordinator's members, as they were last seen."""
        self._responded: dict[str, int] = {}
        """The highest epoch that a member was given in a response."""
        self._highest: dict[str, int] = {}
        """The highest epoch with which any coordinator has had a member."""
        self._places: dict[int, int] = {}
        self._acknowledged: dict[TopicPartition, int] = {}
        self._folds: dict[Incarnation, Folded] = {}
        self.died_with: set[str] = set()
        self.commits = self.epochs = self.loads = self.moves = 0

    # Appends

    def appended(self, broker: MemoryBroker, batch: bytes, result: ProduceResult) -> None:
        """Take in the outcome of an append."""
        if result.error is not ErrorCode.NONE:
            return
        header, base = read_header(batch), result.base_offset
        committed = self._partition.committed[base : base + header.record_count]
        names = [(record.batch_crc, record.place) for record in committed]
        if names != [(header.crc, place) for place in range(header.record_count)]:
            raise Violation("Appended", f"broker {broker.broker_id} reports offset {base} as committed, it is not")
        for loaded in read_batches(batch):
            for key, value in loaded.records:
                if value is not None and isinstance(read_key(key or b""), OffsetKey):
                    offset = read_offset(value).offset
                    self._places[offset] = max(base, self._places.get(offset, -1))

    # Requests and responses

    def open_tokens(self) -> frozenset[Token]:
        """Return the requests that have no response yet."""
        return frozenset(self._open)

    def arrives(self, process: Incarnation, token: Token) -> None:
        """Take in that a request is about to be handled."""
        self._open.add(token)
        request = token.call.request
        if isinstance(request, OffsetCommit):
            self._may_commit[token] = _may_commit(process, request)
        if isinstance(request, ConsumerGroupHeartbeat):
            newest = self._arrived.get(request.member_id, -1)
            if token.call.number <= newest:
                self._excused.add(request.member_id)
            self._arrived[request.member_id] = max(newest, token.call.number)

    def responded(self, process: Incarnation, token: Token, result: GroupResult) -> None:
        """Check a response that leaves a coordinator."""
        if token not in self._open:
            raise Violation("K10", f"{type(token.call.request).__name__} got two responses, or was never sent")
        self._open.remove(token)
        request = token.call.request
        if isinstance(request, ConsumerGroupHeartbeat) and isinstance(result, ConsumerGroupHeartbeatResult):
            if (
                result.error is ErrorCode.NONE
                and request.member_epoch >= JOINING_EPOCH
                and process.leads(self._partition.world)
            ):
                member_id = request.member_id
                self._responded[member_id] = max(self._responded.get(member_id, 0), result.member_epoch)
        elif isinstance(request, OffsetCommit) and isinstance(result, OffsetCommitResult):
            # The decision falls between the arrival and the response: a commit allowed at neither was not allowed.
            may = self._may_commit.pop(token) or _may_commit(process, request)
            self._committed(process, request, result, may=may)

    def _committed(self, process: Incarnation, request: OffsetCommit, result: OffsetCommitResult, *, may: bool) -> None:
        for one in request.offsets:
            if result.partitions[one.topic_partition] is not ErrorCode.NONE:
                continue
            if not may:
                raise Violation("K8", f"a commit of {request.member_id!r} in epoch {request.generation} is accepted")
            place = self._places.get(one.offset)
            if place is None:
                raise Violation("K8", f"the commit of {one.offset} by {process.broker.broker_id} is in no log")
            at = one.topic_partition
            self._acknowledged[at] = max(self._acknowledged.get(at, -1), place)
            self.commits += 1

    def takes(self, consumer: Consumer, added: Iterable[int]) -> None:
        """Check that a consumer, which begins to read partitions, is alone with them (K7)."""
        begun = frozenset(added)
        for other in self.consumers:
            shared = other.reads & begun
            if other is consumer or not shared or other.member_id in self._excused:
                continue
            if consumer.member_id not in self._excused:
                raise Violation("K7", f"{consumer.member_id} and {other.member_id} both read {sorted(shared)}")
        self.moves += bool(begun)

    def has_dropped(self, consumer: Consumer) -> None:
        """Take in that a consumer reads nothing: it joins again, and counts as any other."""
        self._excused.discard(consumer.member_id)

    # Processes and loads

    def process_ended(self, process: Incarnation) -> None:
        """Forget the requests of a process that has ended: their connections are closed."""
        self.died_with |= _situations(process)
        self._open = {token for token in self._open if token.process is not process}
        self._may_commit = {token: may for token, may in self._may_commit.items() if token in self._open}
        self._folds.pop(process, None)
        self._seen.pop(process, None)

    def loaded(self, process: Incarnation, part: bytes) -> None:
        """Fold a part of the log that is handed to a load."""
        self._folds.setdefault(process, Folded()).add(part)

    def load_completed(self, process: Incarnation) -> None:
        """Check a complete load: what it gave must be what the log says."""
        fold = self._folds.pop(process, Folded())
        self._seen.pop(process, None)
        if process.coordinator.shard_states().get(0) is not ShardState.ACTIVE:
            return
        self.loads += 1
        view = process.coordinator.consumer_group_view(GROUP)
        if fold.epochs is None:
            if view is not None:
                raise Violation("K9", "a group was loaded of which the log has no record")
            return
        if view is None:
            raise Violation("K9", f"the group of epochs {fold.epochs} was not loaded")
        if (view.epoch, view.assignment_epoch) != fold.epochs:
            raise Violation("K9", f"loaded epochs {view.epoch} and {view.assignment_epoch}, the log has {fold.epochs}")
        found = {one.member_id: (one.epoch, _assigned(one), _revoking(one)) for one in view.members}
        wanted = {name: (epoch, held, pending) for name, (epoch, _, held, pending) in fold.members.items()}
        if found != wanted:
            raise Violation("K9", f"loaded {found}, the log has {wanted}")
        if {at: one.offset for at, one in view.offsets.items()} != fold.offsets:
            raise Violation("K9", f"the offsets are not those of the log: {fold.offsets}")
        for member in view.members:
            given = self._responded.get(member.member_id, 0)
            if (
                process.leads(self._partition.world)
                and STATIC_LEAVING_EPOCH != member.epoch < given
                and not self._may_be_new(member)
            ):
                raise Violation("K3", f"{member.member_id} was in epoch {given}, and is loaded in {member.epoch}")

    @staticmethod
    def _may_be_new(member: ConsumerMemberView) -> bool:
        return member.epoch == JOINING_EPOCH

    # Visible state

    def look(self, cluster: CoordinatorWorld[GroupCoordinator]) -> None:
        """Check the committed state of the group wherever it is served."""
        if not cluster.has_changed:
            return
        for process in cluster.processes.values():
            view = process.coordinator.consumer_group_view(GROUP)
            if view is None:
                continue
            self.epochs = max(self.epochs, view.epoch)
            _check_owners(view)
            _check_epochs(view)
            _check_targets(view)
            self._follow(process, view)

    def _follow(self, process: Incarnation, view: ConsumerGroupView) -> None:
        before = self._seen.get(process, {})
        now = {one.member_id: one.epoch for one in view.members}
        for member_id, epoch in now.items():
            was = before.get(member_id)
            if was is not None and STATIC_LEAVING_EPOCH != epoch < was:
                raise Violation("K3", f"{member_id} goes from epoch {was} to {epoch}")
            self._highest[member_id] = max(self._highest.get(member_id, 0), epoch)
        self._excused |= before.keys() - now.keys()
        if process.leads(self._partition.world):
            self._excused |= self._highest.keys() - now.keys()
        self._seen[process] = now

    # The end

    def at_rest(self, cluster: CoordinatorWorld[GroupCoordinator]) -> None:
        """Check after the faults: nothing is left open, and nothing acknowledged is missing."""
        if self._open:
            raise Violation("K10", f"{next(iter(self._open)).call.request} never gets a response")
        state = cluster.world.partitions[0].state_now
        view = cluster.processes[state.leader].coordinator.consumer_group_view(GROUP)
        for at, wanted in self._acknowledged.items():
            committed = None if view is None else view.offsets.get(at)
            place = -1 if committed is None else self._places.get(committed.offset, wanted)
            if place < wanted:
                raise Violation("K8", f"the acknowledged commit of {at} at offset {wanted} of the log is not returned")


def _may_commit(process: Incarnation, request: OffsetCommit) -> bool:
    """Return whether a member may make a commit, by its epoch and partitions."""
    view = process.coordinator.consumer_group_view(GROUP)
    member = None if view is None else next((one for one in view.members if one.member_id == request.member_id), None)
    if member is None or request.generation > member.epoch:
        return False
    has = {*member.assigned, *member.revoking}
    return request.generation == member.epoch or all(one.topic_partition in has for one in request.offsets)


def _check_owners(view: ConsumerGroupView) -> None:
    owners: dict[TopicPartition, str] = {}
    for member in view.members:
        for at in (*member.assigned, *member.revoking):
            if at in owners:
                raise Violation("K1", f"{at} is of {owners[at]} and of {member.member_id}")
            owners[at] = member.member_id


def _check_epochs(view: ConsumerGroupView) -> None:
    if view.assignment_epoch > view.epoch:
        raise Violation("K2", f"the target's epoch {view.assignment_epoch} is above the group's {view.epoch}")
    for member in view.members:
        if member.epoch > view.assignment_epoch:
            raise Violation("K2", f"{member.member_id} in epoch {member.epoch} is above {view.assignment_epoch}")
        is_stable = member.state == "STABLE" and member.epoch == view.assignment_epoch
        if is_stable and set(member.assigned) != set(member.target):
            raise Violation("K4", f"{member.member_id} is STABLE with {member.assigned} of {member.target}")


def _check_targets(view: ConsumerGroupView) -> None:
    if view.state in {ConsumerGroupState.EMPTY, ConsumerGroupState.ASSIGNING}:
        return
    given = sorted(at for member in view.members for at in member.target)
    if given != [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]:
        raise Violation("K5", f"the target of epoch {view.assignment_epoch} gives {given}")


def _situations(process: Incarnation) -> set[str]:
    """Return what a coordinator is in the middle of."""
    seen = {"append in flight"} if process.coordinator.appends_in_flight else set[str]()
    seen |= {"load"} if process.load is not None else set[str]()
    view = process.coordinator.consumer_group_view(GROUP)
    if view is not None:
        seen |= {view.state.value, *(member.state for member in view.members)}
        seen |= {"static member away"} if any(one.epoch == STATIC_LEAVING_EPOCH for one in view.members) else set[str]()
    return seen


def _assigned(member: ConsumerMemberView) -> frozenset[int]:
    return frozenset(at.partition for at in member.assigned)


def _revoking(member: ConsumerMemberView) -> frozenset[int]:
    return frozenset(at.partition for at in member.revoking)


def _numbers(topics: Iterable[Any]) -> frozenset[int]:
    return frozenset(partition for topic in topics for partition in topic.partitions)
