"""Requests to the core and its responses: plain values without wire types.

Offsets are absolute, every end offset is exclusive, and times are ms of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import INTERNAL_TOPICS, TopicPartition
from tidegauge.record_batch import BatchHeader, Buffer
from tidegauge_broker.formats.compression import Codec
from tidegauge_broker.replica.open_transactions import AbortedTransaction
from tidegauge_broker.replica.record_errors import RecordError
from tidegauge_broker.replica.standing_fetch import StandingFetch
from tidegauge_broker.replica.verification import VerificationGuard

if TYPE_CHECKING:
    from tidegauge_broker.replica.rules.tried import TriedRules

ACKS_ALL = -1
NO_LIMIT_MS = 2**63 - 1
CONSUMER = -1
"""The ``replica_id`` of a reader that is no replica."""
DEBUGGING_CONSUMER = -2
"""The ``replica_id`` of a tool that may ask any replica (kafka-replica-verification)."""


class EpochEntry(NamedTuple):
    """One entry of the leader epoch cache: the epoch, and the offset of the first record written under it."""

    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """End of a leader epoch, by a leader. Both are -1 where undefined (Kafka's UNDEFINED_EPOCH_OFFSET)."""

    epoch: int
    end_offset: int

    @property
    def is_undefined(self) -> bool:
        """Whether there is no such epoch."""
        return self.end_offset < 0


UNDEFINED_EPOCH_END = EpochEnd(-1, -1)


class LeaderHint(NamedTuple):
    """The leader, as far as this broker knows."""

    leader: int
    leader_epoch: int


class Prepared(NamedTuple):
    """A producer's batch, ready to be appended (``preparation``).

    Attributes:
        records: the batch; None if a message set held nothing to append.
        header: of the batch; None if it is refused before it was known.
        converted_count: how many records were converted to another format or codec.
        refusal: why the batch is refused; None if it is not.
    """

    records: Buffer | None = None
    header: BatchHeader | None = None
    converted_count: int = 0
    refusal: TidegaugeError | None = None


@dataclass(slots=True)
class ProducePartition:
    """Exactly one record batch for one partition, as the producer made it.

    ``guard`` comes from ``BrokerCore.begin_verification``, if the batch had to be verified. ``is_message_set``: the
    records are of a message format before record batches, and become one batch. ``inflated``: the batch without
    compression, if it was looked at before; ``prepared``: the outcome of its preparation elsewhere (``preparation``).
    """

    topic_partition: TopicPartition
    records: Buffer
    guard: VerificationGuard | None = None
    is_message_set: bool = False
    inflated: Buffer | None = None
    prepared: Prepared | None = None


@dataclass(slots=True)
class ProduceRequest:
    """A produce request; ``acks`` is -1, 0 or 1.

    ``from_coordinator``: of a group or transaction coordinator. Only they may write markers; their batches have no
    sequence (AppendOrigin.COORDINATOR). ``transaction_version``: of the markers. ``may_be_internal``: whether a client
    may write internal topics, as coordinators always may (internalTopicsAllowed of ReplicaManager.appendRecords).
    """

    acks: int
    timeout_ms: int
    partitions: Sequence[ProducePartition]
    from_coordinator: bool = False
    may_be_internal: bool = False
    transaction_version: int = 0


@dataclass(slots=True)
class ProduceResult:
    """The outcome of one partition; ``base_offset`` is -1 on error. ``converted_count``: records of another format.

    ``record_errors``: the records because of which the batch is refused (KIP-467).
    """

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    leader_hint: LeaderHint | None = None
    converted_count: int = 0
    record_errors: Sequence[RecordError] = ()


@dataclass(slots=True)
class FetchPartition:
    """A reader's wishes about one partition. ``None`` for an epoch means: not checked."""

    topic_partition: TopicPartition
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int | None = None
    last_fetched_epoch: int | None = None
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchRequest:
    """A fetch by a consumer (``replica_id`` is CONSUMER) or by a follower.

    ``replica_epoch`` is the follower's broker epoch: its incarnation; -1 if that is unknown.
    ``client_rack`` is the place of the consumer, empty if it does not say; any replica may serve it then (KIP-392).
    None: only the leader may. ``reads_committed``: records of open transactions are not given, and aborted
    transactions are named (KIP-98's isolation level read_committed).
    ``standing`` is the account of a follower's session; ``partitions`` holds the partitions in question.
    ``only_waits``: the response has no results; it says that a fetch of these partitions would respond now.
    """

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    partitions: Sequence[FetchPartition]
    replica_epoch: int = -1
    client_rack: str | None = None
    reads_committed: bool = False
    standing: StandingFetch | None = None
    only_waits: bool = False


class ReadRange(NamedTuple):
    """Records that a response shall carry: from the batch that holds ``from_offset`` up to ``upper_bound``.

    ``names_aborted``: and which of their transactions were aborted.
    """

    from_offset: int
    upper_bound: int
    max_bytes: int
    names_aborted: bool = False


@dataclass(slots=True)
class FetchResult:
    """The data of one partition. The executor of ``RespondToFetch`` reads the records.

    ``high_watermark`` was sampled before the fetch took effect (as in Kafka: the response is one round late).
    With OFFSET_OUT_OF_RANGE for a follower, ``log_start_offset`` and ``log_end_offset`` say what the leader has.
    ``preferred_read_replica`` is the follower that the consumer should fetch from; there are no records then.
    ``aborted_transactions`` is filled in with the records, for a reader of committed records; None for all others.
    """

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: EpochEnd | None = None
    leader_hint: LeaderHint | None = None
    read: ReadRange | None = None
    preferred_read_replica: int | None = None
    last_stable_offset: int = -1
    aborted_transactions: Sequence[AbortedTransaction] | None = None


@dataclass(slots=True)
class FetchedPartition:
    """A follower's view of one partition of a response: ``FetchResult`` with the records themselves.

    ``has_more``: the rest of the records follows in another of the same response, which is taken in parts.
    """

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    log_start_offset: int = -1
    log_end_offset: int = -1
    diverging: EpochEnd | None = None
    leader_hint: LeaderHint | None = None
    records: bytes = b""
    has_more: bool = False


@dataclass(slots=True)
class FetchRound:
    """The next fetch of a follower to its leader, for all partitions that are ready.

    ``request_id`` is unique in this process; only the response that carries it is taken (a late one changes nothing).
    ``first_fetches`` holds the partitions that are fetched for the first time since they began to follow: the
    leader's memory of an earlier following no longer holds.
    ``follows`` is the number of an earlier round from which this one differs in ``changed``, which has the new or
    different requests, and in ``left_out``, the partitions that are no longer requested; 0: there is none.
    """

    request_id: int
    leader: int
    partitions: Sequence[FetchPartition]
    first_fetches: Collection[TopicPartition] = ()
    follows: int = 0
    changed: Sequence[FetchPartition] = ()
    left_out: Collection[TopicPartition] = ()


@dataclass(slots=True)
class EpochLookup:
    """One partition of an OffsetsForLeaderEpoch request."""

    topic_partition: TopicPartition
    leader_epoch: int
    current_leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetLookup:
    """One partition of a ListOffsets request.

    Attributes:
        timestamp_ms: a time, or one of the request's special timestamps, such as LATEST.
        current_leader_epoch: the leader epoch that the client knows, None if it names none.
        replica_id: the follower that asks, or the kind of client.
        reads_committed: whether only what lies below the last stable offset counts.
    """

    topic_partition: TopicPartition
    timestamp_ms: int
    current_leader_epoch: int | None = None
    replica_id: int = CONSUMER
    reads_committed: bool = False


@dataclass(slots=True)
class EpochRound:
    """A look-up of the ends of epochs in the leader's log, before fetching, under the rules of KIP-101 and KIP-279."""

    request_id: int
    leader: int
    partitions: Sequence[EpochLookup]


@dataclass(slots=True)
class EpochEndResult:
    """The leader's response for one partition."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    end: EpochEnd = UNDEFINED_EPOCH_END


@dataclass(slots=True)
class Wait:
    """No request to this leader before ``until_ms``; None: not before a ``FetchersChanged`` effect."""

    until_ms: int | None


class RecordsToDelete(NamedTuple):
    """The end of one partition's records to delete: the first offset to keep; None: the high watermark."""

    topic_partition: TopicPartition
    before_offset: int | None


@dataclass(slots=True)
class DeleteRecordsResult:
    """The outcome of one partition; ``low_watermark`` is -1 on error."""

    topic_partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    low_watermark: int = -1


@dataclass(slots=True)
class OffsetResult:
    """Response to ListOffsets that needs no look-up."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    offset: int = -1
    leader_epoch: int = -1


@dataclass(slots=True)
class TimeLookup:
    """A time whose offset must be looked up in the log, below an upper bound; -3: the largest timestamp's.

    ``nothing`` is the result where the log has no such record below the bound.
    """

    timestamp_ms: int
    upper_bound: int
    nothing: OffsetResult


@dataclass(slots=True)
class RemoteReplicaView:
    """A leader's knowledge of a remote replica; -1 if unknown."""

    broker_id: int
    log_end_offset: int
    caught_up_ago_ms: int
    log_start_offset: int


@dataclass(frozen=True, slots=True)
class LogOnDisk:
    """A replica's log on disk.

    Attributes:
        size_bytes: of all segments.
        log_dir: the log directory that holds it, one of ``log.dirs``; empty while the replica is offline.
    """

    size_bytes: int = 0
    log_dir: str = ""


@dataclass(slots=True)
class ReplicaView:
    """The full truth about one local replica. ``role``: leader, follower, offline."""

    topic_partition: TopicPartition
    role: str
    leader: int
    leader_epoch: int
    partition_epoch: int
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    epochs: Sequence[EpochEntry] = ()
    isr: Sequence[int] = ()
    maximal_isr: Sequence[int] = ()
    remote_replicas: Sequence[RemoteReplicaView] = field(default_factory=list[RemoteReplicaView])
    leader_epoch_start_offset: int = -1
    last_stable_offset: int = -1
    topic_id: str = ""


@dataclass(slots=True)
class TopicRules:
    """A topic's settings as far as the core, and the conversion of records for clients, need them."""

    min_insync_replicas: int = 1
    max_message_bytes: int = 1048588
    segment_bytes: int = 1073741824
    unclean_leader_election: bool = False
    log_append_time: bool = False
    compacted: bool = False
    deletes: bool = True
    timestamp_before_max_ms: int = NO_LIMIT_MS
    timestamp_after_max_ms: int = NO_LIMIT_MS
    leader_throttled_replicas: tuple[str, ...] = ()
    follower_throttled_replicas: tuple[str, ...] = ()
    codec: Codec | None = None
    """Of stored batches; None: as the producer made them."""
    down_converts: bool = True

    @property
    def limits_timestamps(self) -> bool:
        """Whether a producer's times are looked at."""
        return self.timestamp_before_max_ms < NO_LIMIT_MS or self.timestamp_after_max_ms < NO_LIMIT_MS


@dataclass(slots=True)
class CoreSettings:
    """A broker's settings as far as the core needs them."""

    replica_lag_time_max_ms: int = 30000
    replica_fetch_max_bytes: int = 1048576
    replica_fetch_backoff_ms: int = 1000
    fetch_max_bytes: int = 57671680
    producer_id_expiration_ms: int = 86400000
    truncation_rule: str = "kip-320"
    tried: TriedRules | None = None
    """Rules that are tried in place of Kafka's; None in every broker process."""
    coordinator_topics: Collection[str] = INTERNAL_TOPICS
    """Topics in whose partitions coordinators keep their state: their leaderships are reported as they change."""
    refuses_previous_incarnation: bool = False
    """Whether a new process refuses a state that targets its previous incarnation (see ``hosted``)."""
    verifies_transactions: bool = True
    """``transaction.partition.verification.enable`` (KIP-890)."""
    judges_open_epochs: bool = False
    """Whether transactional batches are judged as Kafka 4 does, for transactions v2 (KIP-890, part 2).

    A transaction counts as open for a batch of its own epoch alone, and a stale epoch is found before a missing
    verification.
    """
    emits_diagnostics: bool = True
    """Whether Note and LogLine effects are emitted; a simulation whose lines are not read does without them."""
    reelected_leader_keeps_follower_state: bool = False
