"""One broker without a process: a real BrokerCore, a log in memory, a metadata cache fed by UpdateMetadata.

Contract: ``execute`` does what the core's effects say, in their order (effects.py), and then calls ``looked_at``, so
that somebody checks what must hold after every event. One partition per broker is enough: the core keeps partitions
apart, and a history of one partition shows more of its rules. Effects are counted on as the broker process does it:
log effects first; one that comes after something about the partition was told breaks rule I8.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tidegauge.control import IsrProposal, LeaderAndIsrRequest, PartitionState, UpdateMetadataRequest
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import (
    AnswerFetch,
    AnswerProduce,
    AppendAsFollower,
    AppendAsLeader,
    Effect,
    FetchersChanged,
    LogLine,
    Note,
    ProposeIsr,
    TruncateLog,
    WriteEpochs,
)
from tidegauge_broker.replica.messages import (
    CoreSettings,
    EpochEntry,
    FetchedPartition,
    LeaderHint,
    ProduceResult,
    TopicRules,
)
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import LoadedLog
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
        self.core = BrokerCore(broker_id, settings, self, self.metadata)

    def start(self, broker_epoch: int) -> None:
        """A new process on the old disk; a checkpoint above the log's end is lowered at once."""
        self.log.recover()
        self.checkpoint = min(self.checkpoint, self.log.log_end_offset)
        self.is_running = True
        self.life += 1
        self.broker_epoch = broker_epoch
        self.metadata = self._make_metadata()
        self.core = BrokerCore(self.broker_id, self.settings, self, self.metadata)
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

    def execute(self, effects: Iterable[Effect]) -> None:
        """Do what the core wants done, in its order."""
        self.inputs += 1
        told = False
        for effect in effects:
            kind = type(effect)
            if kind is Note or kind is FetchersChanged:
                if self.events is not None and kind is Note:
                    self._keep(effect)  # type: ignore[arg-type]  # narrowed by ``kind``, for speed
                continue
            if kind is LogLine:
                if self._keeps_lines:
                    self.lines.append(effect.text)  # type: ignore[union-attr]  # narrowed by ``kind``, for speed
                continue
            if kind in _TELLING:
                told = True
            else:
                assert not told, f"I8: {kind.__name__} after it was told"
            _EXECUTORS[kind](self, effect)
        self._looked_at(self)

    def _keep(self, note: Note) -> None:
        """As the broker's event log has it (docs/events.md), but for the time."""
        assert self.events is not None
        topic, partition = note.topic_partition
        where = {"source": f"broker-{self.broker_id}", "topic": topic, "partition": partition}
        self.events.append({**where, "kind": note.kind, "cause": note.cause, **note.fields})

    def _append_as_leader(self, effect: AppendAsLeader) -> None:
        assert effect.header.base_offset == self.log.log_end_offset, "I6"
        self.log.append(effect.header, patched(effect.records, effect.header))
        if self.flushes:
            self.flushed = self.log.log_end_offset

    def _append_as_follower(self, effect: AppendAsFollower) -> None:
        for header in effect.headers:
            data = effect.records[header.position : header.position + header.size_bytes]
            self.log.append(header.alone(), data)
        if self.flushes:
            self.flushed = self.log.log_end_offset

    def _truncate(self, effect: TruncateLog) -> None:
        self.checkpoint = min(self.checkpoint, effect.to_offset)
        self.log.truncate_to(effect.to_offset)
        self.flushed = min(self.flushed, effect.to_offset)
        self.reported = min(self.reported, effect.to_offset)
        self.given = min(self.given, effect.to_offset)
        self.core.log_truncated(effect.topic_partition, self.log.producer_state)

    def _write_epochs(self, effect: WriteEpochs) -> None:
        self.log.epochs = list(effect.entries)
        if effect.sync:
            self._flushed_epochs = self.log.epochs

    def _answer_produce(self, effect: AnswerProduce) -> None:
        self.told.produced.append((effect.token, effect.results[0]))

    def _answer_fetch(self, effect: AnswerFetch) -> None:
        (result,) = effect.results
        records = b""
        if result.read is not None and effect.max_bytes > 0:
            read = result.read
            records = self.log.read(read.from_offset, read.upper_bound, min(read.max_bytes, effect.max_bytes))
            self.given = max(self.given, read.upper_bound)
        answer = FetchedPartition(
            result.topic_partition,
            result.error,
            result.high_watermark,
            result.log_start_offset,
            result.log_end_offset,
            result.diverging,
            result.leader_hint,
            records,
        )
        self.told.fetched.append((effect.token, answer))

    def _propose(self, effect: ProposeIsr) -> None:
        self.told.proposals.append(effect.proposal)


_EXECUTORS: dict[type, Callable[[MemoryBroker, Any], None]] = {
    AppendAsLeader: MemoryBroker._append_as_leader,  # noqa: SLF001 - the class's own table of effects
    AppendAsFollower: MemoryBroker._append_as_follower,  # noqa: SLF001 - the class's own table of effects
    TruncateLog: MemoryBroker._truncate,  # noqa: SLF001 - the class's own table of effects
    WriteEpochs: MemoryBroker._write_epochs,  # noqa: SLF001 - the class's own table of effects
    AnswerProduce: MemoryBroker._answer_produce,  # noqa: SLF001 - the class's own table of effects
    AnswerFetch: MemoryBroker._answer_fetch,  # noqa: SLF001 - the class's own table of effects
    ProposeIsr: MemoryBroker._propose,  # noqa: SLF001 - the class's own table of effects
}
"""What is executed. Log starts that move and logs that are deleted or emptied do not occur: nothing deletes records."""
_TELLING = frozenset({AnswerProduce, AnswerFetch, ProposeIsr})
