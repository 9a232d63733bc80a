"""One broker without a process: a real BrokerCore, logs in memory, a metadata cache fed by UpdateMetadata.

Contract: ``execute`` hands the core's effects to the ``EffectExecutor`` of the broker process, to which this class is
both ports, and then calls ``looked_at``, so that the owner checks what must hold after every event. A log effect that
comes after something about its partition was reported in the same step breaks rule I8.

A broker has one or more log directories, and a replica in each of them for every partition that it was made with. What
fails on its disks is chosen by its owner (``failing``, ``StoredReplica.damaged``, ``StoredReplica.writes_left``); any
other exception that leaves a port is a finding.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidegauge.cluster_metadata import PartitionState
from tidegauge.control import IsrProposal, LeaderAndIsrRequest, PartitionsResponse, UpdateMetadataRequest
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition, partition_named
from tidegauge.partition_state import ReplicaStop
from tidegauge.wall_time import WallTime
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
    FetchedPartition,
    LeaderHint,
    ProduceResult,
    TopicRules,
)
from tidegauge_broker.replica.open_transactions import AbortedTransaction
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.replica.ports import LoadedLog
from tidegauge_broker.replica.producer_state import ProducerState
from tidegauge_proof.simulator.memory_log import MemoryLog, patched
from tidegauge_proof.simulator.stored_replica import StoredReplica

AT = partition_named("orders", 0)
_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up


class Defect(Exception):
    """Stands for any exception that the code around a log may raise and that no error of the table describes."""


class Reading:
    """The token of a consumer's fetch whose results are wanted as they are; None until there are any."""

    def __init__(self) -> None:
        self.results: FetchResults | None = None


class MemoryMetadata:
    """A broker's metadata cache, filled by UpdateMetadata alone."""

    def __init__(self) -> None:
        self.live: frozenset[int] = frozenset()
        self.states: dict[TopicPartition, PartitionState] = {}

    def apply(self, request: UpdateMetadataRequest) -> None:
        """Take over what the controller sends."""
        self.live = frozenset(endpoint.broker_id for endpoint in request.live_brokers)
        for item in request.partitions:
            if item.deleted:
                self.states.pop(item.state.topic_partition, None)
            else:
                self.states[item.state.topic_partition] = item.state

    def knows(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists."""
        return topic_partition in self.states

    def leader_hint(self, topic_partition: TopicPartition) -> LeaderHint | None:
        """Return the known leader of a partition."""
        state = self.states.get(topic_partition)
        return None if state is None or state.leader < 0 else LeaderHint(state.leader, state.leader_epoch)

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is live."""
        return broker_id in self.live

    def live_brokers(self) -> frozenset[int]:
        """Return the live brokers."""
        return self.live


@dataclass(slots=True)
class Reported:
    """Responses and requests of a broker's core, until the driver takes them.

    ``has_failures`` says that replicas are offline and the controller must be notified. ``committed`` has the high
    watermarks of partitions when appends to them were reported as committed, while a disk is about to fail: the same
    step may take the replica offline, after which the core shows none.
    """

    produced: list[tuple[object, Sequence[ProduceResult]]] = field(default_factory=list)
    fetched: list[tuple[object, list[FetchedPartition]]] = field(default_factory=list)
    proposals: list[IsrProposal] = field(default_factory=list)
    leaderships: list[LeadershipChanged] = field(default_factory=list)
    has_failures: bool = False
    committed: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


class MemoryBroker:
    """One broker: its disks for good, its process (core, cache) from ``start`` to ``kill``.

    Attributes:
        replicas: what it keeps of each partition; outlives the process.
        replica: the first of them, for those who have one partition only.
        directories: how many log directories it has; replicas are dealt out to them in turn.
        failing: the directories whose writes are about to fail, with the number of writes before that.
        failed_directories: those whose disk has failed; they stay so until they are mended.
        offline_directories: those that this process has found failed; they stay so until it ends.
        incarnation: the number of its process, from 1.
        rules_of: the settings of topics that have others than ``rules``.
        flushes: whether it flushes every append before it goes on (log.flush.interval.messages=1).
        events: where its state changes are kept, if they are.
        inputs: the number of events that its cores were given.
    """

    def __init__(
        self,
        broker_id: int,
        settings: CoreSettings,
        rules: TopicRules,
        *,
        partitions: Sequence[TopicPartition] = (AT,),
        directories: int = 1,
        metadata: Callable[[], Any] = MemoryMetadata,
        looked_at: Callable[[MemoryBroker], None] = lambda _: None,
    ) -> None:
        self.broker_id = broker_id
        self.wall = WallTime()
        self.settings = settings
        self.rules = rules
        self.rules_of: Mapping[str, TopicRules] = {}
        self.directories = directories
        self.replicas = {
            at: StoredReplica(self, at, (place + broker_id) % directories) for place, at in enumerate(partitions)
        }
        self.replica = self.replicas[partitions[0]]
        self.failing: dict[int, int] = {}
        self.failed_directories: set[int] = set()
        self.offline_directories: set[int] = set()
        self.incarnation = 0
        self.flushes = False
        self.is_running = False
        self.broker_epoch = -1
        self.reported = Reported()
        self.inputs = 0
        self.events: list[dict[str, Any]] | None = None
        self._make_metadata = metadata
        self._looked_at = looked_at
        self.metadata: Any = metadata()
        self._reported: set[TopicPartition] = set()
        """The partitions of which the current step has reported something already."""
        self._decides_in_turn = False
        """Whether the step decides on one partition after the other: a response may describe the next one as it was."""
        self._injected: Exception | None = None
        self._new_core()

    def _new_core(self) -> None:
        self.core = BrokerCore(self.broker_id, self.settings, self, self.metadata, wall=self.wall)
        self.control_requests = ControlRequests(self.core)
        self.executor = EffectExecutor(self.core, self, self)

    # Its process

    def start(self, broker_epoch: int) -> None:
        """Begin a new process on the old disks."""
        for replica in self.replicas.values():
            replica.recover()
        self.offline_directories = set(self.failed_directories)
        self.is_running = True
        self.incarnation += 1
        self.broker_epoch = broker_epoch
        self.metadata = self._make_metadata()
        self._new_core()
        self.core.set_broker_epoch(broker_epoch)
        for topic in dict.fromkeys(at.topic for at in self.replicas):
            self.core.configure_topic(topic, self.rules_of.get(topic, self.rules))
        self.reported = Reported()

    def kill(self) -> None:
        """End the process; the disks and the last checkpoints stay."""
        self.is_running = False
        for replica in self.replicas.values():
            epochs = replica.log.epochs
            replica.former_epoch = epochs[-1].epoch if epochs else -1

    def ended_in_order(self) -> None:
        """Note that the process that has ended had closed its logs; those that were offline it could not."""
        for replica in self.replicas.values():
            if not replica.is_offline:
                replica.former_epoch = -1

    def write_checkpoint(self) -> None:
        """Write the high watermarks, as it is done every few seconds."""
        for at, high_watermark in self.core.high_watermarks().items():
            self.replicas[at].checkpoint = high_watermark

    def flush(self) -> None:
        """Put everything on disk for good, where the disk still takes it."""
        for replica in self.replicas.values():
            if not replica.is_offline:
                replica.flush()

    @property
    def log(self) -> MemoryLog:
        """The log of the first replica."""
        return self.replica.log

    @property
    def partition(self) -> Partition | None:
        """The first replica in the core; None before the process was notified of it, and if it is offline."""
        return self.replica.partition

    @property
    def has_faults(self) -> bool:
        """Whether anything is wrong with its disks, or a replica of this process is offline."""
        return bool(self.failing or self.offline_directories or self.executor.failed) or any(
            replica.damaged is not None or replica.writes_left is not None for replica in self.replicas.values()
        )

    def bytes_between(self, topic_partition: TopicPartition, from_offset: int, end_offset: int) -> int:
        """Serve the core's lookup in its logs."""
        return self.replicas[topic_partition].log.bytes_between(from_offset, end_offset)

    def leader_and_isr(self, request: LeaderAndIsrRequest, now_ms: int) -> PartitionsResponse:
        """Carry out the controller's request; return the core's response, with an error for what failed on the way."""
        loaded = self._loaded(self.control_requests.logs_needed(request))
        response, effects = self.control_requests.leader_and_isr(request, loaded, now_ms)
        self._decides_in_turn = len(request.partitions) > 1
        self.execute(effects)
        self._decides_in_turn = False
        if not self.executor.failed:
            return response
        errors = {
            at: ErrorCode.KAFKA_STORAGE_ERROR if error is _NONE and at in self.executor.failed else error
            for at, error in response.partitions.items()
        }
        return PartitionsResponse(response.error, errors)

    def _loaded(self, needed: Iterable[TopicPartition]) -> dict[TopicPartition, LoadedLog | ErrorCode]:
        """Open the logs of replicas that the core does not have yet."""
        loaded: dict[TopicPartition, LoadedLog | ErrorCode] = {}
        for at in needed:
            replica = self.replicas[at]
            if replica.directory in self.offline_directories:
                loaded[at] = ErrorCode.KAFKA_STORAGE_ERROR
            else:
                loaded[at] = replica.log.loaded(replica.checkpoint, replica.former_epoch)
        return loaded

    def take_over(self, states: Sequence[PartitionState], now_ms: int) -> None:
        """Take over what an image of a KRaft cluster says of replicas (``server.replication.DecidedStates``)."""
        loaded = self._loaded(self.core.logs_needed(states))
        _, effects = self.core.take_over(
            states,
            loaded,
            now_ms,
            cause="Metadata",
            may_refuse=False,
            report=lambda *_: None,
            of_metadata=True,
        )
        self._decides_in_turn = len(states) > 1
        self.execute(effects)
        self._decides_in_turn = False

    def drop(self, stops: Sequence[ReplicaStop]) -> None:
        """Stop and delete replicas that the broker has no more, by an image of a KRaft cluster."""
        _, effects = self.core.stop(stops, report=lambda *_: None)
        self.execute(effects)

    def execute(self, effects: Sequence[Effect]) -> None:
        """Carry out a step of the core."""
        self.inputs += 1
        if self._reported:
            self._reported.clear()
        self.executor.execute(effects)
        self._looked_at(self)

    # Targets of effects besides the logs

    def limit_bytes(self, token: object, max_bytes: int) -> int:
        """Return the request's own limit: memory has no bounds here."""
        del token
        return max_bytes

    def is_waiting(self, token: object) -> bool:
        """Respond in any case."""
        del token
        return True

    def note(self, note: Note) -> None:
        """Keep a state change, if they are kept, as the event log has it (docs/events.md), but for the time."""
        if self.events is not None:
            at = note.topic_partition
            where: dict[str, object] = {} if at is None else {"topic": at.topic, "partition": at.partition}
            where["source"] = f"broker-{self.broker_id}"
            self.events.append({**where, "kind": note.kind, "cause": note.cause, **note.fields})

    def say(self, line: LogLine) -> None:
        """Nothing: lines for people are not read here."""

    def fetchers_changed(self, leaders: Sequence[int]) -> None:
        """Nothing: followers here ask whenever they may."""

    def leadership_changed(self, change: LeadershipChanged) -> None:
        """Keep a leadership that was gained or lost, for the checker."""
        self.reported.leaderships.append(change)
        self._reported.add(change.topic_partition)

    def effect_failed(self, effect: Effect, topic_partition: TopicPartition | None, problem: Exception) -> None:
        """Raise the failure unless it was injected."""
        del effect, topic_partition
        if problem is not self._injected:
            raise problem

    def aborted_transactions(
        self, topic_partition: TopicPartition, from_offset: int, size_bytes: int
    ) -> Sequence[AbortedTransaction]:
        """Find the aborted transactions that overlap a read from an offset."""
        return self.replicas[topic_partition].log.aborted_transactions(from_offset, size_bytes)

    def lost_with(self, topic_partition: TopicPartition, problem: Exception) -> Collection[TopicPartition]:
        """Take a failed directory's replicas offline; a defect takes one."""
        if isinstance(problem, Defect):
            return [topic_partition]
        directory = self.replicas[topic_partition].directory
        self.failing.pop(directory, None)
        self.failed_directories.add(directory)
        self.offline_directories.add(directory)
        return [at for at, replica in self.replicas.items() if replica.directory == directory]

    def replicas_failed(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Note that the controller must hear of it."""
        del topic_partitions
        self.reported.has_failures = True

    # The logs

    def _about_to_write(self, topic_partition: TopicPartition) -> StoredReplica:
        assert topic_partition not in self._reported or self._decides_in_turn, (
            f"I8: {topic_partition} is written after it was reported"
        )
        replica = self.replicas[topic_partition]
        if self.failing or replica.writes_left is not None:
            self._strike(replica)
        return replica

    def _strike(self, replica: StoredReplica) -> None:
        """Fail this write, if its time has come."""
        writes_left = self.failing.get(replica.directory)
        if writes_left is not None:
            self.failing[replica.directory] = writes_left - 1
            if writes_left <= 0:
                self._fail(TidegaugeError(ErrorCode.KAFKA_STORAGE_ERROR, "No space left on device"))
        if replica.writes_left is not None:
            replica.writes_left -= 1
            if replica.writes_left < 0:
                replica.writes_left = None
                replica.is_struck = True
                self._fail(Defect(f"the log of {replica.at}"))

    def _fail(self, problem: Exception) -> None:
        self._injected = problem
        raise problem

    def append_as_leader(self, effect: AppendAsLeader) -> None:
        """Append a producer's batch."""
        replica = self._about_to_write(effect.topic_partition)
        assert effect.header.base_offset == replica.log.log_end_offset, "I6"
        replica.log.append(effect.header, patched(effect.records, effect.header))
        if self.flushes:
            replica.flushed = replica.log.log_end_offset

    def append_as_follower(self, effect: AppendAsFollower) -> None:
        """Append the leader's batches."""
        replica = self._about_to_write(effect.topic_partition)
        for header in effect.headers:
            data = effect.records[header.position : header.position + header.size_bytes]
            replica.log.append(header.alone(), data)
        if self.flushes:
            replica.flushed = replica.log.log_end_offset

    def truncate_to(self, effect: TruncateLog) -> ProducerState:
        """Truncate a log."""
        replica = self._about_to_write(effect.topic_partition)
        replica.truncate_to(effect.to_offset)
        return replica.log.producer_state

    def write_epochs(self, effect: WriteEpochs) -> None:
        """Replace the leader epochs."""
        replica = self._about_to_write(effect.topic_partition)
        replica.log.epochs = list(effect.entries)
        if effect.sync:
            replica.flushed_epochs = replica.log.epochs

    def truncate_fully(self, effect: TruncateFully) -> ProducerState:
        """Log starts do not move: nothing deletes records."""
        raise AssertionError(effect)

    def advance_log_start(self, effect: AdvanceLogStart) -> None:
        """Log starts do not move: nothing deletes records."""
        raise AssertionError(effect)

    def delete(self, effect: DeleteLog) -> None:
        """Delete a replica that is the broker's no more."""
        self.replicas[effect.topic_partition].delete()

    def read(
        self,
        topic_partition: TopicPartition,
        from_offset: int,
        upper_bound: int,
        max_bytes: int,
        *,
        at_least_one_batch: bool,
    ) -> bytes:
        """Read whole batches, as far as the log can be read."""
        replica = self.replicas[topic_partition]
        damaged = replica.damaged
        if damaged is not None:
            if from_offset >= damaged:
                self._fail(TidegaugeError(ErrorCode.CORRUPT_MESSAGE, f"The batch at offset {damaged} is damaged"))
            upper_bound = min(upper_bound, damaged)
        replica.given = max(replica.given, upper_bound)
        records = replica.log.read(from_offset, upper_bound, max_bytes)
        return records if at_least_one_batch or len(records) <= max_bytes else b""

    # Responses

    def respond_to_produce(self, token: object, results: Sequence[ProduceResult]) -> None:
        """Keep the response until the driver takes it."""
        for result in results:
            at = result.topic_partition
            self._reported.add(at)
            if result.error is _NONE:
                assert result.base_offset < self.replicas[at].log.log_end_offset, (
                    f"I8: {at} is responded to, not written"
                )
                if self.failing:
                    self.reported.committed[at] = self.core.hosted.by_name[at].high_watermark
        self.reported.produced.append((token, results))

    def respond_to_fetch(self, token: object, response: FetchResults) -> None:
        """Keep the response until the driver takes it; a reader takes it at once, as it is."""
        if isinstance(token, Reading):
            token.results = response
            return
        fetched: list[FetchedPartition] = []
        for result, records in response:
            at = result.topic_partition
            self._reported.add(at)
            assert result.log_end_offset <= self.replicas[at].log.log_end_offset, f"I8: {at} is reported, not written"
            fetched.append(
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
        self.reported.fetched.append((token, fetched))

    def respond_to_delete_records(self, token: object, results: Sequence[DeleteRecordsResult]) -> None:
        """Do nothing: the simulator deletes no records."""
        raise AssertionError((token, results))

    def propose_isr(self, proposal: IsrProposal) -> None:
        """Keep the proposal until the driver takes it."""
        self._reported.add(proposal.topic_partition)
        self.reported.proposals.append(proposal)
