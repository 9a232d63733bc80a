"""The effects that the core asks for. An ``EffectExecutor`` carries out the effects of a step in their order, before
the next step.

The order is always: persist, then notify. The log effects of a partition (append, truncate, epochs) come before the
responses, proposals and events about it, so that nothing is reported that the disk has not taken. Effects belong to
partitions: if one fails, the replica goes offline, its other effects are dropped, and all others are carried out
(``effect_executor.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tidegauge.control import IsrProposal
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, Buffer
from tidegauge_broker.replica.messages import DeleteRecordsResult, EpochEntry, FetchResult, ProduceResult


@dataclass(slots=True)
class AppendAsLeader:
    """Write one producer batch at the log's end.

    Set base offset and leader epoch in the bytes first (both lie outside the CRC), and with
    ``log_append_time_ms`` >= 0 also the time. ``header`` is the header after patching.
    """

    topic_partition: TopicPartition
    records: Buffer
    header: BatchHeader
    log_append_time_ms: int = -1


@dataclass(slots=True)
class AppendAsFollower:
    """Write the leader's batches at the log's end, unchanged. ``headers`` are theirs, in order."""

    topic_partition: TopicPartition
    records: bytes
    headers: Sequence[BatchHeader]


@dataclass(slots=True)
class TruncateLog:
    """Truncate the log so that ``to_offset`` is its end. Then call ``BrokerCore.log_truncated`` with the producer
    state rebuilt from the rest of the log.
    """

    topic_partition: TopicPartition
    to_offset: int


@dataclass(slots=True)
class TruncateFully:
    """Empty the log and start it again at ``start_offset``. Then call ``BrokerCore.log_truncated``."""

    topic_partition: TopicPartition
    start_offset: int


@dataclass(slots=True)
class AdvanceLogStart:
    """Raise the log start offset (deleted records, or the leader's start)."""

    topic_partition: TopicPartition
    to_offset: int


@dataclass(slots=True)
class WriteEpochs:
    """Write the whole epoch cache to leader-epoch-checkpoint; ``sync`` says whether it must be on disk first."""

    topic_partition: TopicPartition
    entries: Sequence[EpochEntry]
    sync: bool


@dataclass(slots=True)
class DeleteLog:
    """Rename the replica's directory to ``-delete`` and drop it later."""

    topic_partition: TopicPartition


@dataclass(slots=True)
class RespondToProduce:
    """Complete the produce that was asked with this token."""

    token: object
    results: Sequence[ProduceResult]


@dataclass(slots=True)
class RespondToFetch:
    """Complete the fetch with this token: read each result's ``read`` range, then respond.

    ``max_bytes`` is the budget of the response. The first partition that gives records may exceed it with
    its first batch; later ones get only the remaining bytes (ReplicaManager.readFromLog).
    """

    token: object
    results: Sequence[FetchResult]
    max_bytes: int


@dataclass(slots=True)
class RespondToDeleteRecords:
    """Complete the DeleteRecords that was asked with this token."""

    token: object
    results: Sequence[DeleteRecordsResult]


@dataclass(slots=True)
class ProposeIsr:
    """Send this to the controller (AlterPartition), and its verdict to ``BrokerCore.isr_verdict``."""

    proposal: IsrProposal


@dataclass(slots=True)
class FetchersChanged:
    """Partitions came to or left these leaders, or a wait is over: ask ``BrokerCore.next_round`` for each."""

    leaders: Sequence[int]


@dataclass(slots=True)
class LeadershipChanged:
    """This broker has taken over or lost the leadership of a partition of a coordinator's topic, or of a watched one.

    Emitted once for each change, after the partition's state has moved and behind its log effects.

    Attributes:
        leads: whether the leadership was gained; else it was lost.
        leader_epoch: gained: the epoch of the leadership, which the next epochs of the same leader do not change (the
            coordinator epoch). Lost: the newest epoch that the replica knows.
    """

    topic_partition: TopicPartition
    leads: bool
    leader_epoch: int


@dataclass(slots=True)
class Note:
    """A state change for the event log; ``kind`` and ``fields`` as in ``tidegauge.event_log``.

    ``topic_partition`` is None for an event of no partition in particular.
    """

    kind: str
    topic_partition: TopicPartition | None
    cause: str
    fields: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(slots=True)
class LogLine:
    """A line for the broker's log, in Kafka's words where Kafka has any. ``level``: info, warning, error.

    ``topic_partition`` is None where the line is about no partition in particular.
    """

    level: str
    text: str
    topic_partition: TopicPartition | None = None


@dataclass(slots=True)
class FailReplica:
    """Take this replica offline: a defect in a decision about it means that its state can no longer be trusted."""

    topic_partition: TopicPartition
    problem: Exception


Effect = (
    AppendAsLeader
    | AppendAsFollower
    | TruncateLog
    | TruncateFully
    | AdvanceLogStart
    | WriteEpochs
    | DeleteLog
    | RespondToProduce
    | RespondToFetch
    | RespondToDeleteRecords
    | ProposeIsr
    | FetchersChanged
    | LeadershipChanged
    | Note
    | LogLine
    | FailReplica
)
