"""One broker without a process: a real BrokerCore, a log in memory, a metadata cache fed by UpdateMetadata.

Contract: ``execute`` hands the core's effects to the ``EffectExecutor`` of the broker process, to which this class is
both ports, and then calls ``looked_at``, so that somebody checks what must hold after every event. One partition per
broker is enough: the core keeps partitions apart, and a history of one partition shows more of its rules. A log effect
that comes after something about the partition was reported in the same step breaks rule I8. Disks do not fail here, so
an effect that raises is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegauge.control import IsrProposal, LeaderAndIsrRequest, PartitionState, UpdateMetadataRequest
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effect_executor import EffectExecutor, FetchAnswer
from tidegauge_broker.replica.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    AppendAsLeader,
    DeleteLog,
    Effect,
    LogLine,
    Note,
    TruncateFully,
    TruncateLog,
    WriteEpochs,
)
from tidegauge_broker.replica.messages import (
    CoreSettings,
    DeleteRecordsResult,
    EpochEntry,
    FetchedPartition,
    LeaderHint,
    ProduceResult,
    TopicRules,
)
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerState
from tidegauge_proof.simulator.memory_log import MemoryLog, patched

AT = TopicPartition("orders", 0)


class MemoryMetadata:
    """A broker's metadata cache, filled by UpdateMetadata alone."""

    def __init__(self) -> None:
        self.live: frozenset[int] = frozenset()
        self.state: PartitionState | None = None

    def apply(self, request: UpdateMetadataRequest) -> None:
        """Take over what the controller tells."""
        self.live = frozenset(endpoint.broker_id for endpoint in request.live_brokers)
        for item in request.partitions:
            self.state = None if item.deleted else item.state

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        return self.state is not None and self.state.topic_partition == topic_partition

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint | None:
        """Who leads it."""
        state = self.state
        if state is None or state.leader < 0 or state.topic_partition != topic_partition:
            return None
        return LeaderHint(state.leader, state.leader_epoch)

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is live."""
        return broker_id in self.live

    def live_brokers(self) -> frozenset[int]:
        """The live brokers."""
        return self.live


@dataclass(slots=True)
class Told:
    """What a broker's core answered and asked for, until somebody takes it."""

    produced: list[tuple[object, ProduceResult]] = field(default_factory=list)
    fetched: list[tuple[object, FetchedPartition]] = field(default_factory=list)
    proposals: list[IsrProposal] = field(default_factory=list)


class MemoryBroker:
    """One broker: its disk for good, its process (core, cache) from ``start`` to ``kill``.

    Attributes:
        log: its log; it outlives the process.
        checkpoint: the high watermark that a new process finds.
        life: the number of the process, from 1.
        flushed: the offset below which its log is on disk for good, whatever happens to the power.
        reported: the end that it has told its leaders by its requests.
        given: the end of what it has given to others as a leader.
        flushes: whether it flushes every append before it goes on (log.flush.interval.messages=1).
        events: where its state changes are kept, if they are.
        lines: the core's lines for the log, where ``keeps_lines`` is set.
    """

    def __init__(
        self,
        broker_id: int,
        settings: CoreSettings,
        rules: TopicRules,
        *,
        metadata: Callable[[], Any] = MemoryMetadata,
        looked_at: Callable[[MemoryBroker], None] = lambda _: None,
        keeps_lines: bool = False,
    ) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.rules = rules
        self.log = MemoryLog()
        self.checkpoint = 0
        self.life = 0
        self.flushed = 0
        self.reported = 0
        self.given = 0
        self.flushes = False
        self._flushed_epochs: list[EpochEntry] = []
        self._former_epoch = -1
        """The newest epoch of which the files knew when the last process came to an end that was not in order."""
        self.is_running = False
        self.broker_epoch = -1
        self.told = Told()
        self.lines: list[str] = []
        self.inputs = 0
        """What its cores were given."""
        self._keeps_lines = keeps_lines
        self.events: list[dict[str, Any]] | None = None
        self._make_metadata = metadata
        self._looked_at = looked_at
        self.metadata: Any = metadata()
        self._has_told = False
        """Whether the step has reported something about the partition already."""
        self._new_core()

    def _new_core(self) -> None:
        self.core = BrokerCore(self.broker_id, self.settings, self, self.metadata)
        self.executor = EffectExecutor(self.core, self, self, lambda: 0)

    def start(self, broker_epoch: int) -> None:
        """A new process on the old disk; a checkpoint above the log's end is lowered at once."""
        self.log.recover()
        self.checkpoint = min(self.checkpoint, self.log.log_end_offset)
        self.is_running = True
        self.life += 1
        self.broker_epoch = broker_epoch
        self.metadata = self._make_metadata()
        self._new_core()
        self.core.set_broker_epoch(broker_epoch)
        self.core.configure_topic(AT.topic, self.rules)
        self.told = Told()

    def kill(self) -> None:
        """The process is gone; the disk and its last checkpoint stay."""
        self.is_running = False
        self._former_epoch = self.log.epochs[-1].epoch if self.log.epochs else -1

    def ended_in_order(self) -> None:
        """The process that is gone had closed its logs."""
        self._former_epoch = -1

    def write_checkpoint(self) -> None:
        """The high watermark, as it is written every few seconds."""
        self.checkpoint = self.core.high_watermarks().get(AT, self.checkpoint)

    def flush(self) -> None:
        """Everything is on disk for good."""
        self.flushed = self.log.log_end_offset
        self._flushed_epochs = self.log.epochs

    def lose_beyond(self, to_offset: int, torn: int = 0) -> None:
        """The power was cut: records beyond an offset are gone, and the epochs are those last flushed.

        Of the batch at the offset so many bytes may be left. A new process cuts them off, trims epochs that begin at or
        beyond the log's end, and a high watermark beyond it.
        """
        assert not self.is_running
        if to_offset < self.log.log_end_offset:
            self.log.lose_beyond(to_offset, torn)
        self.reported = min(self.reported, to_offset)
        self.given = min(self.given, to_offset)
        self.log.epochs = [entry for entry in self._flushed_epochs if entry.start_offset < self.log.log_end_offset]
        self.flush()

    @property
    def partition(self) -> Partition | None:
        """The replica; None before the process was told of it, and while there is none."""
        return self.core._partitions.get(AT) if self.is_running else None  # noqa: SLF001 - asked for after every event

    def bytes_between(self, topic_partition: TopicPartition, from_offset: int, end_offset: int) -> int:
        """The core's question to its logs."""
        del topic_partition  # there is one
        return self.log.bytes_between(from_offset, end_offset)

    def leader_and_isr(self, request: LeaderAndIsrRequest, now_ms: int) -> Any:
        """The controller's request, executed; the core's answer."""
        loaded: dict[TopicPartition, LoadedLog | Any] = {
            at: self.log.loaded(self.checkpoint, self._former_epoch) for at in self.core.logs_needed(request)
        }
        response, effects = self.core.leader_and_isr(request, loaded, now_ms)
        self.execute(effects)
        return response

    def execute(self, effects: Sequence[Effect]) -> None:
        """Carry out a step of the core."""
        self.inputs += 1
        self._has_told = False
        self.executor.execute(effects)
        self._looked_at(self)

    # What effects reach besides the log

    def limit_bytes(self, token: object, max_bytes: int) -> int:
        """Return the request's own limit: memory has no bounds here."""
        del token
        return max_bytes

    def is_waiting(self, token: object) -> bool:
        """Whoever asked is told in any case."""
        del token
        return True

    def note(self, note: Note) -> None:
        """Keep a state change, if they are kept."""
        if self.events is not None:
            self._keep(note)

    def say(self, line: LogLine) -> None:
        """Keep a line, if they are kept."""
        if self._keeps_lines:
            self.lines.append(line.text)

    def fetchers_changed(self, leaders: Sequence[int]) -> None:
        """Nothing: followers here ask whenever they may."""

    def effect_failed(self, effect: Effect, topic_partition: TopicPartition | None, problem: Exception) -> None:
        """Nothing may fail."""
        del effect, topic_partition
        raise problem

    def lost_with(self, topic_partition: TopicPartition, problem: Exception) -> Collection[TopicPartition]:
        """There is one partition."""
        del problem
        return [topic_partition]

    def replicas_failed(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Nothing may fail."""
        raise AssertionError(f"{topic_partitions} went offline")

    def _keep(self, note: Note) -> None:
        """As the broker's event log has it (docs/events.md), but for the time."""
        assert self.events is not None
        topic, partition = note.topic_partition
        where = {"source": f"broker-{self.broker_id}", "topic": topic, "partition": partition}
        self.events.append({**where, "kind": note.kind, "cause": note.cause, **note.fields})

    # The log

    def append_as_leader(self, effect: AppendAsLeader) -> None:
        """Append a producer's batch."""
        assert not self._has_told, "I8: an append after it was told"
        assert effect.header.base_offset == self.log.log_end_offset, "I6"
        self.log.append(effect.header, patched(effect.records, effect.header))
        if self.flushes:
            self.flushed = self.log.log_end_offset

    def append_as_follower(self, effect: AppendAsFollower) -> None:
        """Append the leader's batches."""
        assert not self._has_told, "I8: an append after it was told"
        for header in effect.headers:
            data = effect.records[header.position : header.position + header.size_bytes]
            self.log.append(header.alone(), data)
        if self.flushes:
            self.flushed = self.log.log_end_offset

    def truncate_to(self, effect: TruncateLog) -> ProducerState:
        """Truncate the log, and lower all that is known of its end."""
        assert not self._has_told, "I8: a truncation after it was told"
        self.checkpoint = min(self.checkpoint, effect.to_offset)
        self.log.truncate_to(effect.to_offset)
        self.flushed = min(self.flushed, effect.to_offset)
        self.reported = min(self.reported, effect.to_offset)
        self.given = min(self.given, effect.to_offset)
        return self.log.producer_state

    def write_epochs(self, effect: WriteEpochs) -> None:
        """Replace the leader epochs."""
        assert not self._has_told, "I8: epochs written after it was told"
        self.log.epochs = list(effect.entries)
        if effect.sync:
            self._flushed_epochs = self.log.epochs

    def truncate_fully(self, effect: TruncateFully) -> ProducerState:
        """Log starts do not move: nothing deletes records."""
        raise AssertionError(effect)

    def advance_log_start(self, effect: AdvanceLogStart) -> None:
        """Log starts do not move: nothing deletes records."""
        raise AssertionError(effect)

    def delete(self, effect: DeleteLog) -> None:
        """Topics are not deleted."""
        raise AssertionError(effect)

    def read(
        self,
        topic_partition: TopicPartition,
        from_offset: int,
        upper_bound: int,
        max_bytes: int,
        *,
        at_least_one_batch: bool,
    ) -> bytes:
        """Read whole batches."""
        del topic_partition, at_least_one_batch  # there is one partition, and its first batch is always given
        self.given = max(self.given, upper_bound)
        return self.log.read(from_offset, upper_bound, max_bytes)

    # Answers

    def answer_produce(self, token: object, results: Sequence[ProduceResult]) -> None:
        """Keep the answer until somebody takes it."""
        self._has_told = True
        self.told.produced.append((token, results[0]))

    def answer_fetch(self, token: object, answer: FetchAnswer) -> None:
        """Keep the answer until somebody takes it."""
        self._has_told = True
        ((result, records),) = answer
        fetched = FetchedPartition(
            result.topic_partition,
            result.error,
            result.high_watermark,
            result.log_start_offset,
            result.log_end_offset,
            result.diverging,
            result.leader_hint,
            records,
        )
        self.told.fetched.append((token, fetched))

    def answer_delete_records(self, token: object, results: Sequence[DeleteRecordsResult]) -> None:
        """Nobody deletes records."""
        raise AssertionError((token, results))

    def propose_isr(self, proposal: IsrProposal) -> None:
        """Keep the proposal until somebody takes it."""
        self._has_told = True
        self.told.proposals.append(proposal)
