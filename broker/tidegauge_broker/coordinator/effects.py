"""The effects that a coordinator asks for; the shell carries out effects in their order, before the next event.

The order is always: persist, then notify. A response that depends on a record is emitted by the ``Appended`` that says
the record is committed, never with the ``Append`` (Kafka's CoordinatorResult: records, and a response for when they are
committed).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tidegauge.consumer_groups import Permits
from tidegauge.groups import GroupResult
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import DeleteShareState, InitializeShareState, ShareStateResult
from tidegauge.transaction_marker import TransactionMarker
from tidegauge.transactions import SupportedOperation, TransactionResult


@dataclass(frozen=True, slots=True)
class ReadLog:
    """Read a partition's log from its start to its LEO, not to the HW, and hand it back as ``RecordsRead`` events.

    Chunks may be of any size (Kafka: offsets.load.buffer.size). Stop when the broker leads the partition no longer. End
    with ``LoadCompleted`` in every case.
    """

    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append one batch to a led partition as an internal client, and report the outcome as ``Appended``.

    Attributes:
        append_id: unique within the process.
        acks: -1: report when the HW has passed the batch. 0: append to the local log and report nothing; a failure is
            logged only, since the next expiration run repeats the tombstones.
        timeout_ms: after which the outcome is REQUEST_TIMED_OUT; the batch stays in the log.
        guard: of a transactional batch: what its ``TransactionVerified`` brought, for the check at the append.
    """

    append_id: int
    partition: int
    batch: bytes
    acks: int
    timeout_ms: int
    guard: object | None = None


@dataclass(frozen=True, slots=True)
class Respond:
    """Respond to the request that came with this token; a token whose connection is closed is ignored."""

    token: object
    result: GroupResult | TransactionResult | ShareStateResult


@dataclass(frozen=True, slots=True)
class Note:
    """A change of a group's or transactional id's state for the event log.

    Attributes:
        kind: ``group``, ``transaction``: a transition; ``offsets``: offsets of a group expired; ``coordinator``: of a
            partition of the internal topic.
        key: the group id, the transactional id, or the partition.
        cause: the event or timer behind it: JoinGroup, SyncGroup, LeaveGroup, SessionExpiration, Load, ...
        fields: of expired offsets: ``partitions``; of a group: ``old`` and ``new`` state, ``generation``, ``members``,
            ``reason`` in Kafka's words, or why it is out of service (Dead, without ``old``); of a
            transactional id: ``old`` and ``new`` state, ``producer_id``, ``producer_epoch``, ``coordinator_epoch``,
            ``partitions``; of a partition: ``state`` (loading, active, unloaded), ``leader_epoch``, ``groups`` or
            ``transactions``.
    """

    kind: str
    key: str
    cause: str
    fields: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line for the broker's log, in Kafka's words where Kafka has any. ``level``: info, warning, error."""

    level: str
    text: str


@dataclass(frozen=True, slots=True)
class Defect:
    """A decision failed with an exception that it does not expect; the broker's log gets the text and the traceback.

    The decision's own effects were dropped. Unless it only read, its group or transactional id is out of service.
    """

    text: str
    problem: Exception


@dataclass(frozen=True, slots=True)
class VerifyTransaction:
    """Verify that a partition of __consumer_offsets is in a transaction, or add it, before an append (KIP-890).

    Report the outcome as ``TransactionVerified``. Where verification is off, or the partition has an open transaction
    of the producer, that is success without a guard (ReplicaManager.maybeStartTransactionVerificationForPartition).

    Attributes:
        verification_id: unique within the process.
        operation: what the version of the producer's request supports: whether the partition is added.
    """

    verification_id: int
    partition: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    operation: SupportedOperation


@dataclass(frozen=True, slots=True)
class ResolveRegexes:
    """Find the topics that a consumer group's regular expressions match, and report them as ``RegexesResolved``.

    ``patterns.automaton.resolve`` finds them; it takes up to some seconds, so it runs beside other events.

    Attributes:
        resolution_id: unique within the process.
        regexes: the expressions.
        names: of all topics.
        version: of these topics, for the outcome.
        permits: returns which topics the member may describe with whose heartbeat this began; None: all.
    """

    resolution_id: int
    regexes: tuple[str, ...]
    names: tuple[str, ...]
    version: int
    permits: Permits | None


@dataclass(frozen=True, slots=True)
class AllocateProducerId:
    """Take the next producer id of the broker's block, and report it as ``ProducerIdAllocated``.

    Attributes:
        allocation_id: unique within the process.
    """

    allocation_id: int


@dataclass(frozen=True, slots=True)
class FindLeaders:
    """Look up the leaders of partitions in the broker's metadata cache, and report them as ``LeadersFound``.

    Attributes:
        lookup_id: unique within the process.
    """

    lookup_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class MarkersOfTransaction:
    """One marker, and the partitions of one broker that it goes to."""

    marker: TransactionMarker
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """Send a WriteTxnMarkers request to a broker, this one included, and report its response as ``MarkersWritten``.

    There is one in flight for each broker at a time. Always exactly one ``MarkersWritten`` for each.

    Attributes:
        request_id: unique within the process.
    """

    request_id: int
    broker_id: int
    markers: tuple[MarkersOfTransaction, ...]


@dataclass(frozen=True, slots=True)
class ChangeShareStates:
    """Initialize or delete states of a share group's partitions, at the share coordinators that have them.

    Report the outcome as ``ShareStatesChanged``, always exactly one. Errors that pass are retried for some time first
    (DefaultStatePersister).

    Attributes:
        change_id: unique within the process.
        requests: all of one kind, in ascending order of the partitions.
    """

    change_id: int
    requests: tuple[InitializeShareState | DeleteShareState, ...]


@dataclass(frozen=True, slots=True)
class PruneLog:
    """Delete the records of a led partition of __share_group_state before an offset, as DeleteRecords does.

    A failure is logged only: the next run asks for at least as much.
    """

    partition: int
    before_offset: int


Effect = (
    ReadLog
    | Append
    | Respond
    | Note
    | LogLine
    | Defect
    | VerifyTransaction
    | ResolveRegexes
    | AllocateProducerId
    | FindLeaders
    | WriteMarkers
    | ChangeShareStates
    | PruneLog
)
