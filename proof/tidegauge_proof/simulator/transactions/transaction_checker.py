"""Invariants of transactions, checked after every event of a coordinator.

| name | statement |
|---|---|
| T1 | an id changes as the table of its states allows; the epoch of a producer id never falls in a process |
| T2 | a marker says what the last record of its transactional id in the coordinator's log has decided |
| T3 | a transaction is complete only when every partition of its decision has the marker |
| T4 | no marker is sent before the record of the decision is committed, whether it was written here or loaded |
| T5 | no record of a transaction is in a partition that no committed record has in the producer's transaction |
| T7 | a committed transaction's records are read, all and once; an aborted one's are not (without late requests) |
| T10 | at rest every transaction is complete, and readers of committed records reach the end of every partition |
| T14 | a marker is in a higher epoch than the records of a producer of v2 that it ends, and they are of one epoch |
| T15 | an end of v2 gives the next epoch; a repeated one gets the same, and is not refused |
| Load | what a coordinator has after a load is a function of the log alone |
| Fence | the current coordinator acknowledges nothing to a producer whose successor it has acknowledged |
| Once | a request gets one response; one that gets none is in an append, or its process has ended |
| Appended | an append is reported as committed only when it is, at the offset that is reported |
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker
from tidegauge.transactions import (
    AddPartitionsToTxn,
    AddPartitionsToTxnResult,
    EndTxn,
    EndTxnResult,
    InitProducerIdResult,
    TransactionState,
)
from tidegauge_broker.coordinator.effects import Append, WriteMarkers
from tidegauge_broker.coordinator.led_partitions import ShardState
from tidegauge_broker.coordinator.record_codec import read_batches
from tidegauge_broker.coordinator.transaction.coordinator import TransactionCoordinator
from tidegauge_broker.coordinator.transaction.records import read_transaction, read_transaction_key
from tidegauge_broker.coordinator.transaction.states import ALLOWED, COMPLETE, DECIDED, ONGOING, OUTCOME_OF, PREPARED
from tidegauge_broker.coordinator.transaction.transaction import Transaction
from tidegauge_broker.replica.messages import ProduceResult
from tidegauge_proof.simulator.checker import Checker, Violation
from tidegauge_proof.simulator.coordinator_world import Arrived, CoordinatorWorld, Process
from tidegauge_proof.simulator.memory_broker import MemoryBroker
from tidegauge_proof.simulator.transactions.data import DataPartition, Datum
from tidegauge_proof.simulator.transactions.producers import Story

Incarnation = Process[TransactionCoordinator]
Token = Arrived[TransactionCoordinator]
_EVERYTHING = 1 << 30


def read_log(data: bytes) -> list[tuple[int, str, Transaction]]:
    """Return the records of a log: offset, transactional id, and what it says."""
    records: list[tuple[int, str, Transaction]] = []
    for batch in read_batches(data):
        for key, value in batch.records:
            name = read_transaction_key(key or b"")
            assert isinstance(name, str)
            assert value is not None
            records.append((batch.header.base_offset, name, read_transaction(name, value)))
    return records


class TransactionChecker:
    """Looks at the coordinators of one partition, and at the data.

    Attributes:
        data: the partitions of data; set by the world.
        died_with: what coordinators were in the middle of when their processes died.
    """

    def __init__(self, partition: Checker) -> None:
        self._partition = partition
        self.data: dict[TopicPartition, DataPartition] = {}
        self._open: dict[Token, tuple[int, int] | None] = {}
        self._granted: dict[str, tuple[int, int]] = {}
        self._states: dict[tuple[Incarnation, str], tuple[TransactionState, int, int]] = {}
        self._added: set[tuple[int, int, TopicPartition]] = set()
        self._loaded: dict[Incarnation, list[bytes]] = {}
        self.died_with: set[str] = set()
        self.loads = self.acknowledged = self.markers = 0

    # Appends

    def appending(self, process: Incarnation, effect: Append) -> None:
        """Check a record that is about to be appended: a completion, and what a partition may have from then on."""
        ((_, name, transaction),) = read_log(effect.batch)
        if transaction.state in COMPLETE:
            log = process.log
            decisions = [
                one
                for _, other, one in read_log(log.read(0, log.log_end_offset, _EVERYTHING))
                if other == name and one.state in DECIDED
            ]
            if not decisions:
                raise Violation("T3", f"{name} is complete without a decision")
            self._must_be_marked(name, decisions[-1], is_current=process.leads(self._partition.world))

    def _must_be_marked(self, name: str, decision: Transaction, *, is_current: bool) -> None:
        """Check that each partition has the marker; and that none is open, but where a deposed coordinator repeats."""
        for partition in decision.partitions:
            data = self.data[partition]
            is_marked = any(
                isinstance(entry, TransactionMarker)
                and (entry.producer_id, entry.producer_epoch) == (decision.producer_id, decision.producer_epoch)
                and PREPARED[entry.outcome] is decision.state
                for entry in data.log
            )
            epoch, _ = data.open.get(decision.producer_id, (-1, 0))
            if not is_marked or (is_current and epoch == decision.producer_epoch):
                raise Violation("T3", f"{name} is complete, and {partition} has no marker of it")

    def appended(self, broker: MemoryBroker, batch: bytes, result: ProduceResult) -> None:
        """Take in the outcome of an append."""
        if result.error is not ErrorCode.NONE:
            return
        header, base = read_header(batch), result.base_offset
        committed = [record.batch_crc for record in self._partition.committed[base : base + header.record_count]]
        if committed != [header.crc] * header.record_count:
            raise Violation(
                "Appended", f"broker {broker.broker_id} reports offset {base} as committed, which it is not"
            )

    # Markers and data

    def marking(self, process: Incarnation, effect: WriteMarkers) -> None:
        """Check markers that leave a coordinator."""
        log = process.log
        records = read_log(log.read(0, log.log_end_offset, _EVERYTHING))
        durable = len(self._partition.committed)
        for one in effect.markers:
            self.markers += 1
            of_producer = [record for record in records if record[2].producer_id == one.marker.producer_id]
            offset, name, last = of_producer[-1] if of_producer else (-1, "nobody", None)
            if (
                last is None
                or last.state is not PREPARED[one.marker.outcome]
                or last.producer_epoch != one.marker.producer_epoch
            ):
                raise Violation("T2", f"{one.marker} is sent, and the last record of {name} has decided otherwise")
            if offset >= durable:
                raise Violation("T4", f"{one.marker} is sent before its decision at {offset} is committed")

    def produced(self, partition: TopicPartition, datum: Datum) -> None:
        """Check a record that entered a partition."""
        if (datum.producer_id, datum.producer_epoch, partition) not in self._added:
            self._added |= self._committed_partitions()
        if (datum.producer_id, datum.producer_epoch, partition) not in self._added:
            raise Violation("T5", f"{datum} is in {partition}, which is in no transaction of its producer")

    def _committed_partitions(self) -> set[tuple[int, int, TopicPartition]]:
        """Return what any replica's log up to the committed end has in transactions."""
        added: set[tuple[int, int, TopicPartition]] = set()
        for broker in self._partition.world.brokers.values():
            for _, _, one in read_log(broker.log.read(0, broker.log.log_end_offset, _EVERYTHING)):
                if one.state is ONGOING:
                    added |= {(one.producer_id, one.producer_epoch, partition) for partition in one.partitions}
        return added

    # Requests and responses

    def open_tokens(self) -> frozenset[Token]:
        """Return the requests that have no response yet."""
        return frozenset(self._open)

    def arrives(self, process: Incarnation, token: Token) -> None:
        """Take in that a request is about to be handled, and what its producer's successor has by now."""
        del process
        self._open[token] = self._granted.get(token.call.producer.transactional_id)

    def responded(self, process: Incarnation, token: Token, result: Any) -> None:
        """Check a response that leaves a coordinator."""
        if token not in self._open:
            raise Violation("Once", f"{type(token.call.request).__name__} got two responses, or was never sent")
        granted = self._open.pop(token)
        request, name = token.call.request, token.call.producer.transactional_id
        if isinstance(result, InitProducerIdResult) and result.error is ErrorCode.NONE:
            given = (result.producer_id, result.producer_epoch)
            if process.leads(self._partition.world):
                self._granted[name] = max(given, self._granted.get(name, given))
            return
        if isinstance(request, EndTxn) and isinstance(result, EndTxnResult) and request.raises_epoch:
            self._check_raised(process, request, result)
        if isinstance(request, (AddPartitionsToTxn, EndTxn)) and isinstance(
            result, (AddPartitionsToTxnResult, EndTxnResult)
        ):
            errors = [result.error] if isinstance(result, EndTxnResult) else list(result.partitions.values())
            if errors != [ErrorCode.NONE] * len(errors):
                return
            self.acknowledged += 1
            is_fenced = granted is not None and (request.producer_id, request.producer_epoch) < granted
            if is_fenced and process.leads(self._partition.world):
                raise Violation("Fence", f"{request} is acknowledged after {granted} was given out")

    @staticmethod
    def _check_raised(process: Incarnation, request: EndTxn, result: EndTxnResult) -> None:
        """Check the response to an EndTxn of v2."""
        raised = request.producer_id, request.producer_epoch + 1
        if result.error is ErrorCode.NONE and (result.producer_id, result.producer_epoch) != raised:
            raise Violation("T15", f"{request} is given {result}")
        if result.error is not ErrorCode.PRODUCER_FENCED:
            return
        for view in process.coordinator.transaction_views():
            is_its_own = view.transactional_id == request.transactional_id and raised == (
                view.producer_id,
                view.producer_epoch,
            )
            if is_its_own and view.pending_state is None and OUTCOME_OF.get(view.state) is request.outcome:
                raise Violation("T15", f"{request} repeats an end, and is refused")

    # Processes and loads

    def process_ended(self, process: Incarnation) -> None:
        """Forget the requests of a process that has ended: their connections are closed."""
        coordinator = process.coordinator
        if process.load is not None:
            self.died_with.add("load")
        for view in coordinator.transaction_views():
            pending = "" if view.pending_state is None else f", {view.pending_state.value} pending"
            self.died_with.add(f"{view.state.value}{pending}")
        for token in [token for token in self._open if token.process is process]:
            del self._open[token]
        for key in [key for key in self._states if key[0] is process]:
            del self._states[key]
        self._loaded.pop(process, None)

    def loaded(self, process: Incarnation, part: bytes) -> None:
        """Take in a part of the log that is handed to a load."""
        self._loaded.setdefault(process, []).append(part)

    def load_completed(self, process: Incarnation) -> None:
        """Check a complete load: what it gave must be what the log says."""
        parts = self._loaded.pop(process, [])
        for key in [key for key in self._states if key[0] is process]:
            del self._states[key]
        if process.coordinator.shard_states().get(0) is not ShardState.ACTIVE:
            return  # the leadership was lost during the load
        self.loads += 1
        last = {name: transaction for part in parts for _, name, transaction in read_log(part)}
        views = {view.transactional_id: view for view in process.coordinator.transaction_views()}
        if views.keys() != last.keys():
            raise Violation("Load", f"loaded {sorted(views)}, the log has {sorted(last)}")
        for name, view in views.items():
            one = last[name]
            loaded = view.state, view.producer_id, view.producer_epoch, view.timeout_ms, set(view.partitions)
            if loaded != (one.state, one.producer_id, one.producer_epoch, one.timeout_ms, set(one.partitions)):
                raise Violation("Load", f"{name} is loaded as {loaded}, not as its last record says")
            if one.state in DECIDED and view.pending_state is None:
                raise Violation("Load", f"{name} is decided, and nothing completes it")

    def look(self, cluster: CoordinatorWorld[Any]) -> None:
        """Check the visible state of every transactional id after an event, if a coordinator was called."""
        if not cluster.has_changed:
            return
        for process in cluster.processes.values():
            for view in process.coordinator.transaction_views():
                key = process, view.transactional_id
                now = view.state, view.producer_id, view.producer_epoch
                before = self._states.get(key)
                self._states[key] = now
                if before is None or before == now:
                    continue
                old, producer_id, epoch = before
                steps = {(old, view.state)} if old is not view.state else set()
                if not steps <= ALLOWED | _IN_ONE_EVENT:
                    raise Violation("T1", f"{view.transactional_id} goes from {old.value} to {view.state.value}")
                if producer_id == view.producer_id and view.producer_epoch < epoch:
                    raise Violation("T1", f"the epoch of {view.transactional_id} falls to {view.producer_epoch}")

    # The end

    def at_rest(self, cluster: CoordinatorWorld[TransactionCoordinator], stories: list[Story], *, judges: bool) -> None:
        """Check the cluster once everything is delivered and all timeouts have passed.

        Args:
            cluster: whose coordinators must have come to rest.
            stories: what the producers wrote, and how each transaction ended for them.
            judges: whether T7 is asked for producers of v1: a late request may end another transaction of theirs.

        Raises:
            Violation: of T7, T10 or T14.
        """
        leader = cluster.processes[cluster.world.state_now.leader]
        for view in leader.coordinator.transaction_views():
            if view.state in DECIDED or view.state is ONGOING or view.pending_state is not None:
                raise Violation("T10", f"{view.transactional_id} does not come to rest: {view}")
        for data in self.data.values():
            if data.open:
                raise Violation("T10", f"readers of {data.name} stand still at {data.last_stable_offset()}")
        self._judge(stories if judges else [one for one in stories if one.speaks_v2])
        self._judge_epochs({story.epoch for story in stories if story.speaks_v2})

    def _judge(self, stories: list[Story]) -> None:
        seen = {name: Counter(data.committed()) for name, data in self.data.items()}
        for story in stories:
            counts = [seen[name][value] for name, value in story.values.items()]
            if any(count > 1 for count in counts):
                raise Violation("T7", f"a record of {story} is read twice")
            if story.is_acknowledged and story.end is Outcome.COMMIT and counts != [1] * len(story.partitions):
                raise Violation("T7", f"{story} is committed, and its records are read {counts} times")
            if story.end is not Outcome.COMMIT and any(counts):
                raise Violation("T7", f"{story} was not committed, and its records are read {counts} times")
            if len(set(counts)) > 1:
                raise Violation("T7", f"a part of {story} is read: {counts}")

    def _judge_epochs(self, raised: set[tuple[int, int]]) -> None:
        """Check the logs for T14.

        Args:
            raised: producer ids and epochs of transactions of v2.
        """
        for data in self.data.values():
            pending: dict[int, set[int]] = {}
            for entry in data.log:
                if isinstance(entry, Datum):
                    pending.setdefault(entry.producer_id, set()).add(entry.producer_epoch)
                    continue
                epochs = pending.pop(entry.producer_id, set())
                is_v2 = any((entry.producer_id, epoch) in raised for epoch in epochs)
                if is_v2 and (len(epochs) > 1 or max(epochs) >= entry.producer_epoch):
                    raise Violation("T14", f"{entry} in {data.name} ends records of the epochs {sorted(epochs)}")


_IN_ONE_EVENT = frozenset(
    {(ONGOING, state) for state in COMPLETE}
    | {(state, TransactionState.COMPLETE_ABORT) for state in (TransactionState.EMPTY, *COMPLETE)}
)
"""A decision and its completion, where no partition is left to be marked; an abort without a transaction (v2)."""
