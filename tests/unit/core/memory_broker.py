"""One broker of a cluster in memory: a real BrokerCore, a log of bytes, a metadata cache fed by UpdateMetadata.

``Broker.execute`` does what the core's effects say, as the contract demands (effects.py), and then checks what must
hold on every broker after every step: the core's log end and epochs are those of the log (I3, I6, I7), log start <=
high watermark <= log end (I1), a leader is in its ISR and the ISR within the assigned replicas (I4), a leader's high
watermark never falls within its leadership (I2), epochs never fall (I5), and no log effect of a partition follows an
answer or a proposal about it (I8).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tidegauge.control import IsrProposal, PartitionState, UpdateMetadataRequest
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, patch, read_header
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import (
    AdvanceLogStart,
    AnswerDeleteRecords,
    AnswerFetch,
    AnswerProduce,
    AppendAsFollower,
    AppendAsLeader,
    DeleteLog,
    Effect,
    FetchersChanged,
    LogLine,
    Note,
    ProposeIsr,
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
    LeaderHint,
    ProduceResult,
    ReplicaView,
    TopicRules,
)
from tidegauge_broker.replica.partition import Role
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerState

START_MS = 1_000_000
"""Where the clock of every test begins; 0 would mean "never" to the core."""


def make_batch(
    *values: str,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    key: str | None = None,
    times_ms: Sequence[int] = (),
) -> bytes:
    """A producer's batch, one record for each value, all with this key; times other than the start's may be given."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=0,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for offset, value in enumerate(values):
        at_ms = times_ms[offset] if times_ms else START_MS
        builder.append(offset, at_ms, None if key is None else key.encode(), value.encode(), [])
    return bytes(builder.build())


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
        self.producer_state.update(header)

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
        for header, _ in self.batches:
            self.producer_state.update(header)

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


class MemoryMetadata:
    """A broker's metadata cache, filled by UpdateMetadata alone."""

    def __init__(self) -> None:
        self.live: frozenset[int] = frozenset()
        self.states: dict[TopicPartition, PartitionState] = {}

    def apply(self, request: UpdateMetadataRequest) -> None:
        self.live = frozenset(endpoint.broker_id for endpoint in request.live_brokers)
        for item in request.partitions:
            if item.deleted:
                self.states.pop(item.state.topic_partition, None)
            else:
                self.states[item.state.topic_partition] = item.state

    def knows(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self.states

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint | None:
        state = self.states.get(topic_partition)
        return None if state is None or state.leader < 0 else LeaderHint(state.leader, state.leader_epoch)

    def is_alive(self, broker_id: int) -> bool:
        return broker_id in self.live

    def live_brokers(self) -> frozenset[int]:
        return self.live


class Broker:
    """One broker: its disk for good, its process (core, cache, waiting things) from ``start`` to ``kill``."""

    def __init__(self, broker_id: int, settings: CoreSettings, rules: Mapping[str, TopicRules]) -> None:
        self.broker_id = broker_id
        self.settings = settings
        self.rules = rules
        self.disk: dict[TopicPartition, MemoryLog] = {}
        self.checkpoint: dict[TopicPartition, int] = {}
        self.is_running = False

    def start(self, broker_epoch: int) -> None:
        """A new process on the old disk."""
        self.is_running = True
        self.broker_epoch = broker_epoch
        self.metadata = MemoryMetadata()
        self.core = BrokerCore(self.broker_id, self.settings, self, self.metadata)
        self.core.set_broker_epoch(broker_epoch)
        for topic, rules in self.rules.items():
            self.core.configure_topic(topic, rules)
        self.control: list[Any] = []
        self.produced: dict[object, Sequence[ProduceResult]] = {}
        self.fetched: dict[object, list[FetchedPartition]] = {}
        self.deleted: dict[object, Sequence[DeleteRecordsResult]] = {}
        self.proposals: list[IsrProposal] = []
        self.notes: list[Note] = []
        self.lines: list[str] = []
        self._last_seen: dict[TopicPartition, tuple[bool, int, int, int]] = {}
        self._noted: dict[TopicPartition, dict[str, int]] = {}

    def kill(self) -> None:
        """The process is gone; the disk and its last checkpoint stay."""
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
        told: set[TopicPartition] = set()
        for effect in done:
            match effect:
                case LogLine(text=text):
                    self.lines.append(text)
                case Note():
                    self._check_note(effect)
                    self.notes.append(effect)
                case AnswerProduce(token=token, results=results):
                    assert token not in self.produced, "a produce was answered twice"
                    self.produced[token] = results
                    told |= {result.topic_partition for result in results}
                case AnswerFetch(token=token, results=results, max_bytes=max_bytes):
                    assert token not in self.fetched, "a fetch was answered twice"
                    self.fetched[token] = self._read(results, max_bytes)
                    told |= {result.topic_partition for result in results}
                case AnswerDeleteRecords(token=token, results=results):
                    assert token not in self.deleted, "a DeleteRecords was answered twice"
                    self.deleted[token] = results
                    told |= {result.topic_partition for result in results}
                case ProposeIsr(proposal=proposal):
                    self.proposals.append(proposal)
                    told.add(proposal.topic_partition)
                case FetchersChanged():
                    pass
                case _:
                    assert effect.topic_partition not in told, f"I8: {effect} after it was told"
                    self._change_log(effect)
        self.check()
        return done

    def _check_note(self, note: Note) -> None:
        """After every line of the event log its reader sees HW <= LEO, also in the midst of a step."""
        if note.kind in {"log_end_offset", "truncation", "high_watermark"}:
            shown = self._noted.setdefault(note.topic_partition, {})
            shown["HW" if note.kind == "high_watermark" else "LEO"] = int(str(note.fields["new"]))
            assert shown.get("HW", 0) <= shown.get("LEO", shown.get("HW", 0)), f"I1 in the event log: {note}"

    def _change_log(self, effect: Effect) -> None:
        match effect:
            case AppendAsLeader(topic_partition=at, records=records, header=header):
                assert header.base_offset == self.disk[at].log_end_offset, "I6"
                data = bytearray(records)
                patch(data, 0, header.base_offset, header.leader_epoch)
                assert read_header(data) == header
                self.disk[at].append(header, bytes(data))
            case AppendAsFollower(topic_partition=at, records=records, headers=headers):
                for header in headers:
                    data = records[header.position : header.position + header.size_bytes]
                    self.disk[at].append(header._replace(position=0), data)
            case TruncateLog(topic_partition=at, to_offset=to_offset):
                self.disk[at].truncate_to(to_offset)
                self.core.log_truncated(at, self.disk[at].producer_state)
            case TruncateFully(topic_partition=at, start_offset=start_offset):
                self.disk[at].truncate_fully(start_offset)
                self.core.log_truncated(at, self.disk[at].producer_state)
            case AdvanceLogStart(topic_partition=at, to_offset=to_offset):
                self.disk[at].log_start_offset = to_offset
            case WriteEpochs(topic_partition=at, entries=entries):
                self.disk[at].epochs = list(entries)
            case DeleteLog(topic_partition=at):
                self.disk.pop(at, None)
                self.checkpoint.pop(at, None)
            case _:
                raise AssertionError(effect)

    def _read(self, results: Sequence[FetchResult], max_bytes: int) -> list[FetchedPartition]:
        answer: list[FetchedPartition] = []
        for result in results:
            records = b""
            if result.read is not None and max_bytes > 0:
                read = result.read
                records = self.disk[result.topic_partition].read(
                    read.from_offset, read.upper_bound, min(read.max_bytes, max_bytes)
                )
                max_bytes -= len(records)
            answer.append(
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
            )
        return answer

    def check(self) -> None:
        """What must hold on this broker after every step."""
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
