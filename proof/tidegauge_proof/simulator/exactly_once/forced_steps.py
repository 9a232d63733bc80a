"""The steps of a transaction at which a fault can be forced (``forced_history``), each with how it is recognised.

A record is *appended* while its leader alone has it, *replicated* while a follower has it too and the leader does not
know that it is committed, *acknowledged* while the response that says so is on its way to the client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader
from tidegauge.transactions import TransactionState
from tidegauge_broker.coordinator.transaction.states import (
    COMPLETE,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DECIDED,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from tidegauge_broker.coordinator.transaction.transaction import Transaction
from tidegauge_proof.simulator.coordinator_world import CoordinatorWorld
from tidegauge_proof.simulator.exactly_once.clients import OUTPUTS
from tidegauge_proof.simulator.exactly_once.cluster import OFFSETS, TRANSACTIONS, Cluster
from tidegauge_proof.simulator.exactly_once.folds import batches_of
from tidegauge_proof.simulator.stored_replica import StoredReplica
from tidegauge_proof.simulator.transactions.transaction_checker import read_log

_SUCCEEDED = "ErrorCode.NONE"


class Uncommitted(NamedTuple):
    """A batch that its leader does not know as committed; ``copies`` is how many followers have it."""

    header: BatchHeader
    data: bytes
    copies: int


@dataclass(slots=True)
class Decision:
    """A decided transaction, and from where on the marker is looked for in each of its partitions."""

    transaction: Transaction
    since: dict[TopicPartition, int]


@dataclass(slots=True)
class Watch:
    """Looks at a cluster after each of its steps.

    Attributes:
        decisions: of the transactions that are decided and not complete, by transactional id.
        epochs: the newest producer epoch in the log of an Ongoing record, by transactional id.
    """

    cluster: Cluster
    decisions: dict[str, Decision] = field(default_factory=dict[str, Decision])
    epochs: dict[str, int] = field(default_factory=dict[str, int])
    _seen: tuple[int, int] = (0, 0)

    def look(self) -> None:
        """Take in the appends to the leader's log of __transaction_state since the last look."""
        leader = self.leader(TRANSACTIONS)
        if leader is None:
            return
        cuts, end = self._seen
        log = leader.log
        begin = end if cuts == log.cuts and end <= log.log_end_offset else 0
        self._seen = log.cuts, log.log_end_offset
        for _, name, one in read_log(
            log.read(begin, log.log_end_offset, 1 << 30) if begin < log.log_end_offset else b""
        ):
            if one.state is ONGOING:
                self.epochs[name] = one.producer_epoch
            if one.state in DECIDED:
                ends = {at: self._end_of(at) for at in one.partitions}
                self.decisions.setdefault(name, Decision(one, ends))
            elif one.state in COMPLETE:
                self.decisions.pop(name, None)

    def _end_of(self, at: TopicPartition) -> int:
        leader = self.leader(at)
        return len(self.cluster.partitions[at].checker.committed) if leader is None else leader.log.log_end_offset

    def leader(self, at: TopicPartition) -> StoredReplica | None:
        """Return the replica that leads a partition, once it knows that it does."""
        partition = self.cluster.partitions[at]
        replica = partition.brokers.get(partition.state_now.leader)
        hosted = None if replica is None else replica.partition
        return replica if hosted is not None and hosted.leader_role is not None else None

    def uncommitted(self, at: TopicPartition) -> Iterator[Uncommitted]:
        """Return the batches of a partition beyond its leader's high watermark."""
        leader = self.leader(at)
        if leader is None or leader.partition is None:
            return
        log = leader.log
        begin = log.whole_batches_below(leader.partition.high_watermark)
        for header, data in batches_of(log, begin, log.log_end_offset):
            if header.base_offset >= leader.partition.high_watermark:
                others = self.cluster.partitions[at].brokers.values()
                copies = sum(one is not leader and one.log.log_end_offset >= header.next_offset for one in others)
                yield Uncommitted(header, data, copies)

    def marked(self, *, committed: bool) -> Iterator[tuple[int, int]]:
        """Yield marked and all partitions, counted, of each decided transaction."""
        for decision in self.decisions.values():
            has = [self._has_marker(at, decision, committed=committed) for at in decision.since]
            yield sum(has), len(has)

    def _has_marker(self, at: TopicPartition, decision: Decision, *, committed: bool) -> bool:
        leader = self.leader(at)
        if leader is None or leader.partition is None:
            return False
        end = leader.partition.high_watermark if committed else leader.log.log_end_offset
        begin = min(decision.since[at], end)
        return any(
            header.is_control and header.producer_id == decision.transaction.producer_id
            for header, _ in batches_of(leader.log, begin, end)
        )

    @property
    def is_verifying(self) -> bool:
        """Whether a leader has asked the transaction coordinator about a batch, and has no response."""
        return any(one.words.startswith("verification") for one in self.cluster.in_flight)

    def is_on_its_way(self, *words: str, kind: str = "") -> bool:
        """Return whether a message of a kind (empty: response) with these words is in flight."""
        return any(
            one.kind == kind and all(word in one.words for word in words) for one in self.cluster.network.messages
        )


Reached = Callable[[Watch], bool]
"""Recognises a step."""
_Recognised = Callable[[Watch, Uncommitted], bool]
"""Recognises an uncommitted batch of one kind."""


def _record(state: TransactionState, *, with_offsets: bool | None = None, fences: bool | None = None) -> _Recognised:
    def is_one(watch: Watch, one: Uncommitted) -> bool:
        ((_, name, transaction),) = read_log(one.data)
        is_fence = transaction.producer_epoch > watch.epochs.get(name, transaction.producer_epoch)
        return (
            transaction.state is state
            and with_offsets in {None, OFFSETS in transaction.partitions}
            and fences in {None, is_fence}
        )

    return is_one


def _batch(*, is_marker: bool) -> _Recognised:
    return lambda _, one: one.header.is_transactional and one.header.is_control is is_marker


def _phases(
    name: str, partitions: Sequence[TopicPartition], is_one: _Recognised, *acknowledged: str
) -> dict[str, Reached]:
    """Return the steps of a record, by name.

    Args:
        name: of the record.
        partitions: its partitions.
        is_one: recognises it.
        acknowledged: words of the response to the client; none: no client gets one.
    """

    def reached(watch: Watch, *, is_copied: bool) -> bool:
        return any(
            bool(one.copies) is is_copied and is_one(watch, one) for at in partitions for one in watch.uncommitted(at)
        )

    steps: dict[str, Reached] = {
        f"{name} appended": lambda watch: reached(watch, is_copied=False),
        f"{name} replicated": lambda watch: reached(watch, is_copied=True),
    }
    if acknowledged:
        steps[f"{name} acknowledged"] = lambda watch: watch.is_on_its_way(*acknowledged)
    return steps


def _some_marked(watch: Watch, *, committed: bool) -> bool:
    return any(0 < marked < all_of_them for marked, all_of_them in watch.marked(committed=committed))


def _loading(coordinators: Callable[[Cluster], CoordinatorWorld[Any]], *, has_read: bool) -> Reached:
    return lambda watch: any((one.read_to > 0) is has_read for one in coordinators(watch.cluster).loading())


_DATA, _STATE, _GROUPS = OUTPUTS, (TRANSACTIONS,), (OFFSETS,)
STEPS: Mapping[str, Reached] = {
    **_phases("InitProducerId", _STATE, _record(EMPTY), "InitProducerIdResult", _SUCCEEDED),
    **_phases(
        "AddPartitionsToTxn",
        _STATE,
        _record(ONGOING, with_offsets=False),
        "AddPartitionsToTxnResult of copy",
        _SUCCEEDED,
    ),
    "verification sent": lambda watch: watch.is_verifying and watch.is_on_its_way(kind="AddPartitionsToTxn"),
    "verification responded to": lambda watch: watch.is_verifying and watch.is_on_its_way("AddPartitionsToTxnResult"),
    **_phases("data", _DATA, _batch(is_marker=False), "of the batch of", "NONE"),
    **_phases("AddOffsetsToTxn", _STATE, _record(ONGOING, with_offsets=True), "AddOffsetsToTxnResult", _SUCCEEDED),
    **_phases("TxnOffsetCommit", _GROUPS, _batch(is_marker=False), "TxnOffsetCommitResult", _SUCCEEDED),
    "TxnOffsetCommit pending": lambda watch: watch.is_on_its_way(kind="EndTxn"),
    **_phases("PrepareCommit", _STATE, _record(PREPARE_COMMIT), "EndTxnResult", _SUCCEEDED),
    **_phases("PrepareAbort", _STATE, _record(PREPARE_ABORT, fences=False)),
    "markers sent": lambda watch: (
        watch.is_on_its_way(kind="WriteTxnMarkers") and any(not marked for marked, _ in watch.marked(committed=False))
    ),
    "some markers appended": lambda watch: _some_marked(watch, committed=False),
    "some markers committed": lambda watch: _some_marked(watch, committed=True),
    **_phases("marker of data", _DATA, _batch(is_marker=True)),
    **_phases("marker of offsets", _GROUPS, _batch(is_marker=True)),
    "markers responded to": lambda watch: watch.is_on_its_way("response to the markers"),
    **_phases("CompleteCommit", _STATE, _record(COMPLETE_COMMIT)),
    **_phases("CompleteAbort", _STATE, _record(COMPLETE_ABORT)),
}
"""Every step of a transaction whose producer lives, by name."""
FENCING: Mapping[str, Reached] = {
    **_phases("epoch fence", _STATE, _record(PREPARE_ABORT, fences=True)),
    "markers of the fence sent": STEPS["markers sent"],
    "markers of the fence responded to": STEPS["markers responded to"],
    "end of the fence appended": STEPS["CompleteAbort appended"],
    "end of the fence replicated": STEPS["CompleteAbort replicated"],
}
"""Steps after a producer's restart, or a transaction's timeout."""
LOADING: Mapping[str, Reached] = {
    "load of transactions begun": _loading(lambda cluster: cluster.transactions, has_read=False),
    "load of transactions half read": _loading(lambda cluster: cluster.transactions, has_read=True),
    "load of offsets begun": _loading(lambda cluster: cluster.groups, has_read=False),
    "load of offsets half read": _loading(lambda cluster: cluster.groups, has_read=True),
}
"""Steps after a coordinator's election."""
SENDING: Mapping[str, Reached] = {
    "Produce sent": lambda watch: watch.is_on_its_way(kind="Produce"),
    "EndTxn sent": lambda watch: watch.is_on_its_way(kind="EndTxn"),
}
"""Requests whose messages can be held: what arrives later than its sender waits."""
