"""The events of a broker's coordinators, of groups and transactions, in the order in which they happen.

``handle(event, now_ms)`` of a coordinator takes one event at a time and returns effects, which the shell carries out in
their order before the next event. Partitions belong to __consumer_offsets for groups, to __transaction_state for
transactions; times are ms of a clock that never goes back.

The events of a partition: ``Elected``; the effect ``ReadLog``; any number of ``RecordsRead``, in log order;
``LoadCompleted``; requests; ``Resigned``. Loads run one after the other in the order of their events, as on the one
thread of Kafka's GroupMetadataManager and of its TransactionStateManager: an election that arrives during another
partition's load waits for it. So does a resignation for groups; for transactions it takes effect at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from tidegauge.errors import ErrorCode
from tidegauge.groups import GroupRequest
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import Buffer
from tidegauge.share_groups import SharePartitionKey, ShareStateRequest
from tidegauge.transaction_marker import Outcome
from tidegauge.transactions import NO_PRODUCER_ID, TransactionRequest
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.settings import ConsumerGroupTimes


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker became the leader of a partition that it did not lead before (onElection).

    A rise of the leader epoch under the same leader is no election: nothing is loaded again.
    """

    partition: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """This broker leads the partition no longer (onResignation).

    Attributes:
        leader_epoch: of the request that made it a follower; None where a StopReplica that deletes carries none.
    """

    partition: int
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class RecordsRead:
    """The next part of a partition's log, asked for with ``ReadLog``: whole batches, in log order."""

    partition: int
    leader_epoch: int
    batches: Buffer


@dataclass(frozen=True, slots=True)
class LoadCompleted:
    """The log was read to its end, or could not be read further; the partition is served with the records read.

    Attributes:
        problem: why the log could not be read to its end; it is logged.
        is_committed: whether the high watermark has reached the end of the read; else it is not known to be committed,
            and the next leader may lack some of it.
    """

    partition: int
    leader_epoch: int
    problem: str = ""
    is_committed: bool = True


@dataclass(frozen=True, slots=True)
class Appended:
    """The outcome of an ``Append``: its batch is committed, or its append failed or timed out.

    Attributes:
        append_id: the effect's.
        error: as in the response to a produce of the batch; NONE if the batch is committed.
        base_offset: of the batch in the log; -1 if it was not appended.
    """

    append_id: int
    error: ErrorCode
    base_offset: int


@dataclass(frozen=True, slots=True)
class RequestArrived:
    """A client's request. Its response is the effect ``Respond`` with the same token, now or later.

    A parked JoinGroup or SyncGroup that its member repeats never gets a response: the repeat takes its place.

    Attributes:
        token: anything hashable; unique among requests in flight.
        member_uuid: of a request without member id: a random UUID in Kafka's form, of which one may be made.
    """

    token: object
    request: GroupRequest
    member_uuid: str = ""


@dataclass(frozen=True, slots=True)
class PartitionsDeleted:
    """The controller reported partitions of user topics as deleted: their offsets go, in every group.

    Attributes:
        topic_ids: of the deleted topics by name: offsets of a topic that has the name since stay.
    """

    partitions: Sequence[TopicPartition]
    topic_ids: Mapping[str, bytes] = field(default_factory=dict[str, bytes])


@dataclass(frozen=True, slots=True)
class TopicsChanged:
    """Topics were created, altered or deleted, as the broker's metadata cache says: for consumer groups.

    Attributes:
        changes: by name; None: the topic was deleted.
    """

    changes: Mapping[str, TopicDescription | None]


@dataclass(frozen=True, slots=True)
class GroupSettingsChanged:
    """A group's own settings have changed: they count from each member's next heartbeat on.

    Attributes:
        times: as a consumer group; None: the group has none of its own any more.
        share_times: as a share group; None: likewise.
    """

    group_id: str
    times: ConsumerGroupTimes | None
    share_times: ConsumerGroupTimes | None = None


@dataclass(frozen=True, slots=True)
class GroupDefaultsChanged:
    """The broker's settings of groups have changed: they count for groups without settings of their own.

    Attributes:
        times: of consumer groups.
        share_times: of share groups.
    """

    times: ConsumerGroupTimes
    share_times: ConsumerGroupTimes


@dataclass(frozen=True, slots=True)
class RegexesResolved:
    """The outcome of a ``ResolveRegexes``.

    Attributes:
        found: topics by expression.
        version: as in the effect.
        problem: why they could not be found, as a clause; empty: they were.
    """

    resolution_id: int
    found: Mapping[str, frozenset[str]]
    version: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ShareStatesChanged:
    """The outcome of a ``ChangeShareStates``.

    Attributes:
        errors: by share partition; empty: no share coordinator has responded.
    """

    change_id: int
    errors: Mapping[SharePartitionKey, ErrorCode]


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The broker shuts down: from now on every request gets COORDINATOR_NOT_AVAILABLE."""


@dataclass(frozen=True, slots=True)
class TransactionVerified:
    """The outcome of a ``VerifyTransaction``.

    Attributes:
        error: NONE: the offsets may be appended; else as the response to AddPartitionsToTxn says, or NETWORK_EXCEPTION.
        guard: for the ``Append`` of the offsets; None if nothing had to be verified.
    """

    verification_id: int
    error: ErrorCode
    guard: object | None = None


@dataclass(frozen=True, slots=True)
class TransactionCompleted:
    """A transaction's marker is committed in partitions of __consumer_offsets: its offsets are moved or dropped.

    The response to WriteTxnMarkers waits for the ``Respond`` with the token (KAFKA-17507).

    Attributes:
        marker_offsets: where the marker is, by partition of __consumer_offsets.
    """

    token: object
    producer_id: int
    marker_offsets: Mapping[int, int]
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class TransactionRequestArrived:
    """A request to the transaction coordinator; its response is the effect ``Respond`` with the same token.

    Attributes:
        token: anything hashable; unique among requests in flight.
    """

    token: object
    request: TransactionRequest


@dataclass(frozen=True, slots=True)
class ProducerIdAllocated:
    """The outcome of an ``AllocateProducerId``.

    Attributes:
        error: COORDINATOR_LOAD_IN_PROGRESS where the broker has no block of ids yet.
    """

    allocation_id: int
    error: ErrorCode
    producer_id: int = NO_PRODUCER_ID


@dataclass(frozen=True, slots=True)
class ShareStateRequestArrived:
    """A request to the share coordinator; its response is the effect ``Respond`` with the same token.

    Attributes:
        token: anything hashable; unique among requests in flight.
    """

    token: object
    request: ShareStateRequest


NO_BROKER = -1
"""In place of a leader: the partition's leader is unknown or not alive; it is looked up again later."""


@dataclass(frozen=True, slots=True)
class LeadersFound:
    """The outcome of a ``FindLeaders``.

    Attributes:
        leaders: broker id by partition, or NO_BROKER. A partition that is missing has been deleted, and gets no marker.
    """

    lookup_id: int
    leaders: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class MarkersWritten:
    """The outcome of a ``WriteMarkers``.

    Attributes:
        errors: by producer id and partition, as in the response; None: the request was not sent, its connection closed,
            or it timed out.
    """

    request_id: int
    errors: Mapping[int, Mapping[TopicPartition, ErrorCode]] | None


PartitionEvent = Elected | Resigned | RecordsRead | LoadCompleted
"""Events of a partition of the internal topic."""
Event = (
    PartitionEvent
    | Appended
    | RequestArrived
    | PartitionsDeleted
    | TopicsChanged
    | GroupSettingsChanged
    | GroupDefaultsChanged
    | RegexesResolved
    | ShareStatesChanged
    | TransactionVerified
    | TransactionCompleted
    | ShutDown
)
"""Events of the group coordinator."""
ShareEvent = PartitionEvent | Appended | ShareStateRequestArrived | TopicsChanged | ShutDown
"""Events of the share coordinator."""
TransactionEvent = (
    PartitionEvent
    | Appended
    | TransactionRequestArrived
    | ProducerIdAllocated
    | LeadersFound
    | MarkersWritten
    | ShutDown
)
"""Events of the transaction coordinator."""
