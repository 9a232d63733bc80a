"""One broker of a cluster in memory: a real BrokerCore, a log of bytes, a metadata cache fed by UpdateMetadata.

``Broker.execute`` hands the core's effects to the ``EffectExecutor`` of the broker process, to which it is both ports,
and then checks the invariants of every broker after every step: the core's log end and epochs equal the log's
(I3, I6, I7), log start <= high watermark <= log end (I1), a leader is in its ISR and the ISR within the assigned
replicas (I4), a leader's high watermark never falls within its leadership (I2), epochs never fall (I5), and no log
effect of a partition follows a response or a proposal about it (I8). A test's disk may fail (``faulty``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tidegauge.control import IsrProposal
from tidegauge.errors import TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, patch, read_header
from tidegauge.transaction_marker import Outcome, TransactionMarker, read_marker
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.control_requests import ControlRequests
from tidegauge_broker.replica.effect_executor import EffectExecutor, FetchResults
from tidegauge_broker.replica.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    AppendAsLeader,
    DeleteLog,
    Effect,
    LeadershipChanged,
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
    FetchResult,
    ProduceResult,
    ReplicaView,
    TopicRules,
)
from tidegauge_broker.replica.open_transactions import AbortedTransaction, CompletedTransaction
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerState
from tidegauge_broker.replica.roles import Role
from tidegauge_proof.simulator.memory_broker import MemoryMetadata

START_MS = 1_000_000
"""Where the clock of every test begins; 0 would mean "never" to the core."""


def result_of(fetched: FetchedPartition) -> FetchResult:
    """Return the result behind a response's partition, as the follower sees it."""
    return FetchResult(
        fetched.topic_partition,
        fetched.error,
        high_watermark=fetched.high_watermark,
        log_start_offset=fetched.log_start_offset,
        log_end_offset=fetched.log_end_offset,
        diverging=fetched.diverging,
        leader_hint=fetched.leader_hint,
    )


def make_batch(
    *values: str,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    key: str | None = None,
    times_ms: Sequence[int] = (),
    transactional: bool = False,
) -> bytes:
    """A producer's batch, one record for each value, all with this key; times other than the start's may be given."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=int(transactional),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for offset, value in enumerate(values):
        at_ms = times_ms[offset] if times_ms else START_MS
        builder.append(offset, at_ms, None if key is None else key.encode(), value.encode(), [])
    return bytes(builder.build())


def note_batch(
    state: ProducerState, header: BatchHeader, data: bytes
) -> tuple[CompletedTransaction | None, TransactionMarker | None]:
    """Note a batch in a producer state; return the transaction that it completes, and how."""
    if not header.is_control:
        state.update(header)
        return None, None
    marker = read_marker(data, header.alone())
    return (None if marker is None else state.update_marker(header, marker)), marker


def aborted_in(batches: Iterable[tuple[BatchHeader, bytes]]) -> list[AbortedTransaction]:
    """Return the aborted transactions of a log, by marker."""
    state, found = ProducerState(), []
    for header, data in batches:
        completed, marker = note_batch(state, header, data)
        if completed is not None and marker is not None and marker.outcome is Outcome.ABORT:
            stable = state.transactions.last_stable_offset_after(completed)
            found.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.marker_offset, stable)
            )
    return found


class MemoryLog:
    """A log: batches as bytes, and the files beside them. It outlives its broker's process."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.batches: list[tuple[BatchHeader, bytes]] = []
        self.epochs: list[EpochEntry] = []
        self.producer_state = ProducerState()

    def append(self, header: BatchHeader, data: bytes) -> None:
        assert header.base_offset >= self.log_end_offset, "append below the log's end"
        self.batches.append((header, data))
        self.log_end_offset = header.next_offset
        note_batch(self.producer_state, header, data)

    def make_room(self, first_offset: int) -> None:
        """An empty log that ends above a first batch starts again there, and keeps its log start offset."""
        if first_offset < self.log_end_offset == self.log_start_offset:
            self.batches, self.log_end_offset = [], first_offset
            self.producer_state.clear()

    def truncate_to(self, to_offset: int) -> None:
        assert to_offset < self.log_end_offset
        self.batches = [(header, data) for header, data in self.batches if header.next_offset <= to_offset]
        self.log_end_offset = to_offset
        self.log_start_offset = min(self.log_start_offset, to_offset)
        self._rebuild()

    def truncate_fully(self, start_offset: int) -> None:
        self.batches = []
        self.log_start_offset = self.log_end_offset = start_offset
        self._rebuild()

    def _rebuild(self) -> None:
        self.producer_state = ProducerState()
        for header, data in self.batches:
            completed, _ = note_batch(self.producer_state, header, data)
            if completed is not None:
                self.producer_state.transactions.hold(completed)

    def within(self, from_offset: int, end_offset: int) -> list[tuple[BatchHeader, bytes]]:
        return [one for one in self.batches if one[0].next_offset > from_offset and one[0].base_offset < end_offset]

    def read(self, from_offset: int, upper_bound: int, max_bytes: int) -> bytes:
        """Whole batches, the first one whatever its size."""
        taken = b""
        for _, data in self.within(from_offset, upper_bound):
            if taken and len(taken) + len(data) > max_bytes:
                break
            taken += data
        return taken

    def content(self) -> list[tuple[int, int, bytes]]:
        """Base offset, epoch and bytes of each batch: what two logs must have in common."""
        return [(header.base_offset, header.leader_epoch, data) for header, data in self.batches]


class Broker:
    """One broker: its disk for good, its process (core, cache, waiting things) from ``start`` to ``kill``."""

    def __init__(self, broker_id: int, settings: CoreSettings, rules: Mapping[str, TopicRules]) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.rules = rules
        self.disk: dict[TopicPartition, MemoryLog] = {}
        self.checkpoint: dict[TopicPartition, int] = {}
        self.is_running = False
        self.faulty: Callable[[Effect | None, TopicPartition], None] = lambda _effect, _at: None
        """Called before a log effect, and with None before a read: a test's disk that fails raises."""
        self.home_of: Callable[[TopicPartition], object] = lambda at: at
        """The log directory of a partition: what fails together."""
        self.survives_defects = False

    def start(self, broker_epoch: int) -> None:
        """A new process on the old disk."""
        self.is_running = True
        self.broker_epoch = broker_epoch
        self.metadata = MemoryMetadata()
        self.core = BrokerCore(self.broker_id, self.settings, self, self.metadata)
        self.control_requests = ControlRequests(self.core)
        self.executor = EffectExecutor(self.core, self, self)
        self.core.set_broker_epoch(broker_epoch)
        for topic, rules in self.rules.items():
            self.core.configure_topic(topic, rules)
        self.control: list[Any] = []
        self.produced: dict[object, Sequence[ProduceResult]] = {}
        self.fetched: dict[object, list[FetchedPartition]] = {}
        self.deleted: dict[object, Sequence[DeleteRecordsResult]] = {}
        self.proposals: list[IsrProposal] = []
        self.leaderships: list[LeadershipChanged] = []
        self.notes: list[Note] = []
        self.lines: list[str] = []
        self.reported: set[TopicPartition] = set()
        self.failures: list[tuple[str, TopicPartition | None, Exception]] = []
        self.lost: list[TopicPartition] = []
        self._last_seen: dict[TopicPartition, tuple[bool, int, int, int]] = {}
        self._noted: dict[TopicPartition, dict[str, int]] = {}

    def kill(self) -> None:
        """The process is dead; the disk and its last checkpoint stay."""
        self.is_running = False
        del self.core

    def write_checkpoint(self) -> None:
        """replication-offset-checkpoint, as it is written every few seconds."""
        self.checkpoint |= self.core.high_watermarks()

    def fill(self, topic_partition: TopicPartition, *records: tuple[int, str]) -> None:
        """Put records (epoch, value) on the disk of a broker that does not run, one batch each; all checkpointed."""
        assert not self.is_running
        log = self.disk[topic_partition] = MemoryLog()
        for epoch, value in records:
            data = bytearray(make_batch(value))
            patch(data, 0, log.log_end_offset, epoch)
            if not log.epochs or log.epochs[-1].epoch != epoch:
                log.epochs.append(EpochEntry(epoch, log.log_end_offset))
            log.append(read_header(data), bytes(data))
        self.checkpoint[topic_partition] = log.log_end_offset

    def bytes_between(self, topic_partition: TopicPartition, from_offset: int, end_offset: int) -> int:
        return sum(len(data) for _, data in self.disk[topic_partition].within(from_offset, end_offset))

    def load(self, topic_partition: TopicPartition) -> LoadedLog:
        log = self.disk.setdefault(topic_partition, MemoryLog())
        log._rebuild()
        return LoadedLog(
            log.log_start_offset,
            log.log_end_offset,
            min(max(self.checkpoint.get(topic_partition, 0), log.log_start_offset), log.log_end_offset),
            list(log.epochs),
            log.producer_state,
        )

    # Effects

    def execute(self, effects: Iterable[Effect]) -> list[Effect]:
        """Do what the core wants done, in its order, then look whether all holds."""
        done = list(effects)
        self.reported = set()
        self.executor.execute(done)
        self.check()
        return done

    def limit_bytes(self, token: object, max_bytes: int) -> int:
        """Return the request's own limit: memory has no bounds here."""
        del token
        return max_bytes

    def is_waiting(self, token: object) -> bool:
        return token not in self.fetched

    def _check_note(self, note: Note) -> None:
        """After every line of the event log its reader sees HW <= LEO, also in the midst of a step."""
        if note.kind in {"log_end_offset", "truncation", "high_watermark"}:
            assert note.topic_partition is not None
            shown = self._noted.setdefault(note.topic_partition, {})
            shown["HW" if note.kind == "high_watermark" else "LEO"] = int(str(note.fields["new"]))
            assert shown.get("HW", 0) <= shown.get("LEO", shown.get("HW", 0)), f"I1 in the event log: {note}"

    def say(self, line: LogLine) -> None:
        self.lines.append(line.text)

    def note(self, note: Note) -> None:
        self._check_note(note)
        self.notes.append(note)

    def fetchers_changed(self, leaders: Sequence[int]) -> None:
        pass

    def leadership_changed(self, change: LeadershipChanged) -> None:
        self.leaderships.append(change)
        self.reported.add(change.topic_partition)

    def propose_isr(self, proposal: IsrProposal) -> None:
        self.proposals.append(proposal)
        self.reported.add(proposal.topic_partition)

    def respond_to_produce(self, token: object, results: Sequence[ProduceResult]) -> None:
        assert token not in self.produced, "a produce was answered twice"
        self.produced[token] = results
        self.reported |= {result.topic_partition for result in results}

    def respond_to_delete_records(self, token: object, results: Sequence[DeleteRecordsResult]) -> None:
        assert token not in self.deleted, "a DeleteRecords was answered twice"
        self.deleted[token] = results
        self.reported |= {result.topic_partition for result in results}

    def respond_to_fetch(self, token: object, response: FetchResults) -> None:
        assert token not in self.fetched, "a fetch was answered twice"
        self.reported |= {result.topic_partition for result, _ in response}
        self.fetched[token] = [
            FetchedPartition(
                result.topic_partition,
                result.error,
                result.high_watermark,
                result.log_start_offset,
                result.log_end_offset,
                result.diverging,
                result.leader_hint,
                records,
            )
            for result, records in response
        ]

    def effect_failed(self, effect: Effect, topic_partition: TopicPartition | None, problem: Exception) -> None:
        if not isinstance(problem, TidegaugeError) and not self.survives_defects:
            raise problem
        self.failures.append((type(effect).__name__, topic_partition, problem))

    def aborted_transactions(
        self, topic_partition: TopicPartition, from_offset: int, size_bytes: int
    ) -> list[AbortedTransaction]:
        """Find the aborted transactions among all batches; a reader may get more than it needs."""
        return aborted_in(self.disk[topic_partition].batches)

    def lost_with(self, topic_partition: TopicPartition, problem: Exception) -> Collection[TopicPartition]:
        if not isinstance(problem, TidegaugeError):
            return [topic_partition]
        home = self.home_of(topic_partition)
        return [at for at in self.disk if self.home_of(at) == home]

    def replicas_failed(self, topic_partitions: Collection[TopicPartition]) -> None:
        self.lost += topic_partitions

    def _change(self, at: TopicPartition, effect: Effect) -> MemoryLog:
        assert at not in self.reported, f"I8: {effect} after it was told"
        self.faulty(effect, at)
        return self.disk[at]

    def append_as_leader(self, effect: AppendAsLeader) -> None:
        log = self._change(effect.topic_partition, effect)
        assert effect.header.base_offset == log.log_end_offset, "I6"
        data = bytearray(effect.records)
        patch(data, 0, effect.header.base_offset, effect.header.leader_epoch)
        assert read_header(data) == effect.header
        log.append(effect.header, bytes(data))

    def append_as_follower(self, effect: AppendAsFollower) -> None:
        log = self._change(effect.topic_partition, effect)
        log.make_room(effect.headers[0].base_offset)
        for header in effect.headers:
            data = effect.records[header.position : header.position + header.size_bytes]
            log.append(header._replace(position=0), data)

    def truncate_to(self, effect: TruncateLog) -> ProducerState:
        log = self._change(effect.topic_partition, effect)
        log.truncate_to(effect.to_offset)
        return log.producer_state

    def truncate_fully(self, effect: TruncateFully) -> ProducerState:
        log = self._change(effect.topic_partition, effect)
        log.truncate_fully(effect.start_offset)
        return log.producer_state

    def advance_log_start(self, effect: AdvanceLogStart) -> None:
        self._change(effect.topic_partition, effect).log_start_offset = effect.to_offset

    def write_epochs(self, effect: WriteEpochs) -> None:
        self._change(effect.topic_partition, effect).epochs = list(effect.entries)

    def delete(self, effect: DeleteLog) -> None:
        self.disk.pop(effect.topic_partition, None)
        self.checkpoint.pop(effect.topic_partition, None)
        self._last_seen.pop(effect.topic_partition, None)

    def read(
        self,
        topic_partition: TopicPartition,
        from_offset: int,
        upper_bound: int,
        max_bytes: int,
        *,
        at_least_one_batch: bool,
    ) -> bytes:
        del at_least_one_batch  # the first is always given
        self.faulty(None, topic_partition)
        return self.disk[topic_partition].read(from_offset, upper_bound, max_bytes)

    def check(self) -> None:
        """Check the invariants of this broker after a step."""
        for at, log in self.disk.items():
            partition = self.core.partition(at)
            if partition is None or partition.role is Role.OFFLINE:
                continue
            assert partition.log_end_offset == log.log_end_offset
            assert partition.log_start_offset == log.log_start_offset
            assert partition.log_start_offset <= partition.high_watermark <= partition.log_end_offset, "I1"
            entries = partition.epochs.entries
            assert entries == log.epochs, "the epoch file differs from the cache"
            for one, other in pairwise(entries):
                assert one.epoch < other.epoch, "I3"
                assert one.start_offset < other.start_offset, "I3"
            assert partition.producer_state is log.producer_state
            assert not partition.unwritten, "batches of an earlier step are still counted as unwritten"
            if partition.leader_role is not None:
                isr = partition.leader_role.isr
                assert self.broker_id in isr.isr, "I4"
                assert set(isr.isr) <= set(isr.maximal_isr) <= set(partition.replicas), "I4, ISR within AR"
            leads = partition.role is Role.LEADER
            seen = (leads, partition.high_watermark, partition.leader_epoch, partition.partition_epoch)
            led, high_watermark, leader_epoch, partition_epoch = self._last_seen.get(at, (False, 0, -1, -1))
            assert not (led and leads) or seen[1] >= high_watermark, "I2"
            assert seen[2] >= leader_epoch, "I5"
            assert seen[3] >= partition_epoch, "I5"
            self._last_seen[at] = seen

    def view(self, topic_partition: TopicPartition, now_ms: int) -> ReplicaView:
        """The replica as it shows itself."""
        return next(view for view in self.core.describe(now_ms) if view.topic_partition == topic_partition)
