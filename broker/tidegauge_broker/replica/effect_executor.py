"""Carries out the effects of the core's steps, so that no failure leaves a step half done.

Contract: the driver of a core hands every step's effects to one ``EffectExecutor`` before the next event. The broker
process, the simulator and the tests' brokers in memory use this class over two ports: ``ReplicaLogs``, which changes
and reads logs, and ``Host``, which takes everything else. Both may raise any error.

Rules:
    1. Effects belong to partitions. When one fails, its replica goes offline, with those that share its log directory
       if that failed. The rest of the step is carried out for every other partition, responses included.
    2. The step's remaining effects of a failed replica are dropped: log effects, proposals, events, log lines. In
       responses its result becomes KAFKA_STORAGE_ERROR; the results beside it stay as they are.
    3. A failed replica stays failed until the process ends: no later response says that a batch of it was taken,
       whichever operation had settled it before the failure was known.
    4. The core hears of the failures (``BrokerCore.log_dir_failed``) when the step is over, because it has decided on
       all of it already: effects that report its latest state must not overtake the log effects that lead there.
    5. A read that fails ends its partition alone. A damaged batch (CORRUPT_MESSAGE) takes nothing offline
       (ReplicaManager.readFromLog), nor does a defect (UNKNOWN_SERVER_ERROR). A directory that failed does.
    6. The host hears of a leadership that was lost only if it has heard that it was gained, and then always, also
       where the replica failed in the same step. One gained at a failed replica is not reported.
    7. Effects that arrive while others are carried out wait until those are done.

Source: in Kafka every partition's append, truncation and read fails by itself (ReplicaManager.appendToLocalLog,
AbstractFetcherThread.processFetchRequest), and LogDirFailureHandler takes a directory's replicas offline.
"""

# The table of executors names methods of the class above it.
# ruff: noqa: SLF001
# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from tidegauge.control import IsrProposal
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.effects import (
    AdvanceLogStart,
    AppendAsFollower,
    AppendAsLeader,
    DeleteLog,
    Effect,
    FailReplica,
    FetchersChanged,
    LeadershipChanged,
    LogLine,
    Note,
    ProposeIsr,
    RespondToDeleteRecords,
    RespondToFetch,
    RespondToProduce,
    TruncateFully,
    TruncateLog,
    WriteEpochs,
)
from tidegauge_broker.replica.messages import DeleteRecordsResult, FetchResult, ProduceResult
from tidegauge_broker.replica.open_transactions import AbortedTransaction
from tidegauge_broker.replica.producer_state import ProducerState

FetchResults = Sequence[tuple[FetchResult, bytes]]
"""The content of a fetch response: each partition's result, and its records."""


class ReplicaLogs(Protocol):
    """The logs that effects change and reads come from. A method that raises has failed for its partition."""

    def append_as_leader(self, effect: AppendAsLeader) -> None:
        """Append one producer batch."""
        ...

    def append_as_follower(self, effect: AppendAsFollower) -> None:
        """Append the leader's batches."""
        ...

    def truncate_to(self, effect: TruncateLog) -> ProducerState:
        """Truncate a log; return the producer state of the remaining log."""
        ...

    def truncate_fully(self, effect: TruncateFully) -> ProducerState:
        """Empty a log; return the (empty) producer state."""
        ...

    def advance_log_start(self, effect: AdvanceLogStart) -> None:
        """Raise the log start offset."""
        ...

    def write_epochs(self, effect: WriteEpochs) -> None:
        """Replace the leader epochs."""
        ...

    def delete(self, effect: DeleteLog) -> None:
        """Delete a log."""
        ...

    def read(
        self,
        topic_partition: TopicPartition,
        from_offset: int,
        upper_bound: int,
        max_bytes: int,
        *,
        at_least_one_batch: bool,
    ) -> bytes:
        """Whole batches from the one that holds an offset, up to a bound (exclusive).

        Raises:
            TidegaugeError: KAFKA_STORAGE_ERROR, the directory failed; CORRUPT_MESSAGE, the records are damaged.
        """
        ...

    def aborted_transactions(
        self, topic_partition: TopicPartition, from_offset: int, size_bytes: int
    ) -> Sequence[AbortedTransaction]:
        """Find the aborted transactions that overlap what ``read`` gave from an offset; raises as ``read``."""
        ...

    def lost_with(self, topic_partition: TopicPartition, problem: Exception) -> Collection[TopicPartition]:
        """After an effect of this partition failed: all partitions whose logs can't be used any more, this one too."""
        ...


class Host(Protocol):
    """The driver of the core: clients that wait, the controller, the fetchers, the event log."""

    def is_waiting(self, token: object) -> bool:
        """Whether the caller with this token still waits for a response."""
        ...

    def limit_bytes(self, token: object, max_bytes: int) -> int:
        """Return the current limit of a fetch response's records, at most ``max_bytes``.

        Negative: none, not even the first batch.
        """
        ...

    def respond_to_produce(self, token: object, results: Sequence[ProduceResult]) -> None:
        """Respond to a produce."""
        ...

    def respond_to_fetch(self, token: object, results: FetchResults, /) -> None:
        """Respond to a fetch."""
        ...

    def respond_to_delete_records(self, token: object, results: Sequence[DeleteRecordsResult]) -> None:
        """Respond to a DeleteRecords."""
        ...

    def propose_isr(self, proposal: IsrProposal, /) -> None:
        """Send a proposal to the controller."""
        ...

    def fetchers_changed(self, leaders: Sequence[int], /) -> None:
        """Look again what to fetch from these leaders."""
        ...

    def leadership_changed(self, change: LeadershipChanged, /) -> None:
        """Notify the coordinators of a leadership that this broker has gained or lost."""
        ...

    def note(self, note: Note) -> None:
        """Write an event."""
        ...

    def say(self, line: LogLine) -> None:
        """Write a log line."""
        ...

    def effect_failed(self, effect: Effect, topic_partition: TopicPartition | None, problem: Exception) -> None:
        """Report a failed effect and its problem, before its replica is taken offline.

        A simulation or a test raises a problem that is no fault of the disk: it is a defect, and its finding. The step
        is half done then, and so is the run.
        """
        ...

    def replicas_failed(self, topic_partitions: Collection[TopicPartition], /) -> None:
        """Report to the controller replicas that are offline until the broker restarts; the core knows of them."""
        ...


class Core(Protocol):
    """The methods of the core that are called while its effects are carried out."""

    def log_truncated(self, topic_partition: TopicPartition, producer_state: ProducerState) -> None:
        """See BrokerCore."""
        ...

    def log_dir_failed(self, topic_partitions: Collection[TopicPartition]) -> list[Effect]:
        """See BrokerCore."""
        ...


class EffectExecutor:
    """Carries out the effects of one core; the rules are at the head of this file.

    Attributes:
        failed: the replicas that have failed, for good.
    """

    __slots__ = (
        "_core",
        "_host",
        "_is_running",
        "_logs",
        "_reported_leaderships",
        "_steps",
        "_unreported",
        "failed",
    )

    def __init__(self, core: Core, logs: ReplicaLogs, host: Host) -> None:
        self.failed: set[TopicPartition] = set()
        self._core = core
        self._logs = logs
        self._host = host
        self._steps: deque[Sequence[Effect]] = deque()
        self._unreported: dict[TopicPartition, None] = {}
        """Replicas that failed and of which the core does not know yet."""
        self._reported_leaderships: set[TopicPartition] = set()
        self._is_running = False

    def execute(self, effects: Sequence[Effect]) -> None:
        """Carry out the effects of one step, and the effects of failures that it meets."""
        if self._is_running:
            self._steps.append(effects)  # rule 7
            return
        self._is_running = True
        try:
            self._carry_out(effects)
        finally:
            self._is_running = False
        if self._steps or self._unreported:
            self._run()

    def fail(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Take replicas offline whose directory failed between two steps; those that are offline stay so."""
        self._lose(topic_partitions)
        self._run()

    def _run(self) -> None:
        if self._is_running:
            return  # rule 7
        self._is_running = True
        try:
            while self._steps or self._unreported:
                if self._steps:
                    self._carry_out(self._steps.popleft())
                else:
                    self._tell_core()
        finally:
            self._is_running = False

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        assert self._is_running, "rule 7"
        unreported = self._unreported
        for effect in effects:
            if unreported and owner_of(effect) in unreported:
                continue  # rule 2
            try:
                _EXECUTORS[type(effect)](self, effect)
            except Exception as problem:  # noqa: BLE001 - after any error the other partitions continue
                self._effect_failed(effect, problem)

    def _effect_failed(self, effect: Effect, problem: Exception) -> None:
        owner = None if isinstance(effect, _REPORTS_ONLY) else owner_of(effect)
        self._host.effect_failed(effect, owner, problem)
        if owner is not None:
            self._lose(self._logs.lost_with(owner, problem))
            self._lose([owner])

    def _lose(self, topic_partitions: Collection[TopicPartition]) -> None:
        for topic_partition in topic_partitions:
            if topic_partition not in self.failed:
                self.failed.add(topic_partition)
                self._unreported[topic_partition] = None

    def _tell_core(self) -> None:
        """Rule 4."""
        lost = list(self._unreported)
        assert self.failed.issuperset(lost), "rule 3"
        self._unreported.clear()
        self._steps.append(self._core.log_dir_failed(lost))
        self._host.replicas_failed(lost)

    # Logs

    def _append_as_leader(self, effect: AppendAsLeader) -> None:
        self._logs.append_as_leader(effect)

    def _append_as_follower(self, effect: AppendAsFollower) -> None:
        self._logs.append_as_follower(effect)

    def _truncate(self, effect: TruncateLog) -> None:
        self._core.log_truncated(effect.topic_partition, self._logs.truncate_to(effect))

    def _truncate_fully(self, effect: TruncateFully) -> None:
        self._core.log_truncated(effect.topic_partition, self._logs.truncate_fully(effect))

    def _advance_log_start(self, effect: AdvanceLogStart) -> None:
        self._logs.advance_log_start(effect)

    def _write_epochs(self, effect: WriteEpochs) -> None:
        self._logs.write_epochs(effect)

    def _delete(self, effect: DeleteLog) -> None:
        self._logs.delete(effect)

    # Responses

    def _respond_to_produce(self, effect: RespondToProduce) -> None:
        results = effect.results
        if self.failed:
            results = [self._produced(result) for result in results]
        self._host.respond_to_produce(effect.token, results)

    def _produced(self, result: ProduceResult) -> ProduceResult:
        at = result.topic_partition
        if result.error is not _NONE or at not in self.failed:
            return result
        return ProduceResult(at, ErrorCode.KAFKA_STORAGE_ERROR, _words(at))

    def _respond_to_delete_records(self, effect: RespondToDeleteRecords) -> None:
        results = effect.results
        if self.failed:
            results = [self._deleted(result) for result in results]
        self._host.respond_to_delete_records(effect.token, results)

    def _deleted(self, result: DeleteRecordsResult) -> DeleteRecordsResult:
        at = result.topic_partition
        if result.error is not _NONE or at not in self.failed:
            return result
        return DeleteRecordsResult(at, ErrorCode.KAFKA_STORAGE_ERROR, _words(at))

    def _respond_to_fetch(self, effect: RespondToFetch) -> None:
        """Read, then respond; the first partition that gives records may exceed the limit by one batch.

        The host may allow fewer bytes than the request: its memory for responses is limited.
        """
        if not self._host.is_waiting(effect.token):
            return
        parts: list[tuple[FetchResult, bytes]] = []
        left_bytes = self._host.limit_bytes(effect.token, effect.max_bytes)
        nothing_yet = left_bytes >= 0
        for result in effect.results:
            if self.failed and result.topic_partition in self.failed and result.error is _NONE:
                parts.append((_unread(result, ErrorCode.KAFKA_STORAGE_ERROR, _words(result.topic_partition)), b""))
            elif result.read is None or (left_bytes <= 0 and not nothing_yet):
                parts.append((result, b""))
            else:
                part = self._read(effect, result, max(0, left_bytes), at_least_one_batch=nothing_yet)
                if part[1]:
                    nothing_yet = False
                    left_bytes -= len(part[1])
                parts.append(part)
        self._host.respond_to_fetch(effect.token, parts)

    def _read(
        self, effect: RespondToFetch, result: FetchResult, left_bytes: int, *, at_least_one_batch: bool
    ) -> tuple[FetchResult, bytes]:
        """Read one partition of a response. Rule 5."""
        at, wanted = result.topic_partition, result.read
        assert wanted is not None
        assert wanted.from_offset < wanted.upper_bound, "there is something to read (Reader.read)"
        try:
            records = self._logs.read(
                at,
                wanted.from_offset,
                wanted.upper_bound,
                min(wanted.max_bytes, left_bytes),
                at_least_one_batch=at_least_one_batch,
            )
            if wanted.names_aborted:
                result.aborted_transactions = self._logs.aborted_transactions(at, wanted.from_offset, len(records))
        except TidegaugeError as problem:
            self._host.effect_failed(effect, at, problem)
            if problem.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._lose(self._logs.lost_with(at, problem))
            return _unread(result, problem.code, problem.message), b""
        except Exception as defect:  # noqa: BLE001 - after any error the other partitions get their response
            self._host.effect_failed(effect, at, defect)
            return _unread(result, ErrorCode.UNKNOWN_SERVER_ERROR, f"Reading {at} failed: {defect!r}"), b""
        return result, records

    # Others

    def _propose(self, effect: ProposeIsr) -> None:
        self._host.propose_isr(effect.proposal)

    def _fetchers_changed(self, effect: FetchersChanged) -> None:
        self._host.fetchers_changed(effect.leaders)

    def _leadership_changed(self, effect: LeadershipChanged) -> None:
        """Report the change as rule 6 says."""
        at, reported = effect.topic_partition, self._reported_leaderships
        if effect.leads:
            if at in self.failed:
                return
            reported.add(at)
        elif at not in reported:
            return
        else:
            reported.remove(at)
        self._host.leadership_changed(effect)

    def _note(self, effect: Note) -> None:
        self._host.note(effect)

    def _say(self, effect: LogLine) -> None:
        self._host.say(effect)

    def _fail_replica(self, effect: FailReplica) -> None:
        raise effect.problem


_EXECUTORS: dict[type, Callable[[EffectExecutor, Any], None]] = {
    AppendAsLeader: EffectExecutor._append_as_leader,
    AppendAsFollower: EffectExecutor._append_as_follower,
    TruncateLog: EffectExecutor._truncate,
    TruncateFully: EffectExecutor._truncate_fully,
    AdvanceLogStart: EffectExecutor._advance_log_start,
    WriteEpochs: EffectExecutor._write_epochs,
    DeleteLog: EffectExecutor._delete,
    RespondToProduce: EffectExecutor._respond_to_produce,
    RespondToFetch: EffectExecutor._respond_to_fetch,
    RespondToDeleteRecords: EffectExecutor._respond_to_delete_records,
    ProposeIsr: EffectExecutor._propose,
    FetchersChanged: EffectExecutor._fetchers_changed,
    LeadershipChanged: EffectExecutor._leadership_changed,
    Note: EffectExecutor._note,
    LogLine: EffectExecutor._say,
    FailReplica: EffectExecutor._fail_replica,
}
"""One table for all executors. A table of bound methods in each would keep a process that has ended in a cycle of
references, and cost a simulation with its many processes a twentieth of its time."""
_NONE = ErrorCode.NONE
_REPORTS_ONLY = (
    RespondToProduce,
    RespondToFetch,
    RespondToDeleteRecords,
    FetchersChanged,
    LeadershipChanged,
    Note,
    LogLine,
)
"""Effects whose failure says nothing about a replica: only their recipient misses them."""


def owner_of(effect: Effect) -> TopicPartition | None:
    """Return the partition whose failure drops an effect, or None.

    A response has a result for each of its partitions, and LeadershipChanged a rule of its own (rule 6).
    """
    if isinstance(effect, ProposeIsr):
        return effect.proposal.topic_partition
    if isinstance(
        effect, (RespondToProduce, RespondToFetch, RespondToDeleteRecords, FetchersChanged, LeadershipChanged)
    ):
        return None
    return effect.topic_partition


def _unread(result: FetchResult, error: ErrorCode, message: str) -> FetchResult:
    """Return an unreadable partition's result: an error without offsets, which may be wrong."""
    return FetchResult(result.topic_partition, error, message)


def _words(topic_partition: TopicPartition) -> str:
    return f"The replica of {topic_partition} on this broker is offline after a failure of its log; its log says which"
