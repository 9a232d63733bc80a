"""Transactions as plain values: the requests to a transaction coordinator, their results, and the states.

The wires translate their messages to these values and back; the pure coordinator speaks nothing else. Times are ms. The
requests to a *group* coordinator that belong to a transaction (TxnOffsetCommit) are in ``tidegauge.groups``.
Source: the transaction APIs of Kafka 3.9 (TransactionCoordinator, KafkaApis); KIP-98, KIP-360, KIP-664, KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from enum import Enum, IntEnum
from typing import NamedTuple

from tidegauge.errors import ErrorCode
from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome

TRANSACTION_TOPIC = "__transaction_state"
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIMESTAMP_MS = -1
NO_DURATION_MS = -1


class SupportedOperation(IntEnum):
    """The support that the version of a producer's request implies, by Kafka's names (TransactionSupportedOperation).

    Each includes those before it.

    Attributes:
        DEFAULT_ERROR: the producer knows INVALID_TXN_STATE instead of TRANSACTION_ABORTABLE.
        GENERIC_ERROR_SUPPORTED: it knows TRANSACTION_ABORTABLE: Produce v11, TxnOffsetCommit v4.
        ADD_PARTITION: it has not added the partition to its transaction, which is done for it: Produce v12,
            TxnOffsetCommit v5 (KIP-890, part 2).
    """

    DEFAULT_ERROR = 0
    GENERIC_ERROR_SUPPORTED = 1
    ADD_PARTITION = 2


class TransactionState(Enum):
    """The states of a transactional id, by Kafka's names (TransactionMetadata).

    PrepareEpochFence is only ever the pending state of an Ongoing transaction, and neither it nor Dead is ever written.
    """

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    DEAD = "Dead"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """A request for a producer id and epoch (API 22).

    The wire has checked that ``producer_id`` and ``producer_epoch`` are both -1 or neither (INVALID_REQUEST otherwise,
    KafkaApis.handleInitProducerIdRequest).

    Attributes:
        transactional_id: None: an idempotent producer, which gets a new id and epoch 0.
        timeout_ms: transaction.timeout.ms of the producer.
        producer_id: the producer's id, to raise its epoch (v3 and later, KIP-360); else -1.
        producer_epoch: its epoch; -1 with ``producer_id``.
    """

    transactional_id: str | None
    timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class InitProducerIdResult:
    """The response to an InitProducerId."""

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxn:
    """Partitions to add to a producer's transaction (API 24; v4 and later carry several: one value for each).

    Of v0 to v3 the wire has checked the partitions: if one is internal (TOPIC_AUTHORIZATION_FAILED) or unknown
    (UNKNOWN_TOPIC_OR_PARTITION) the others get OPERATION_NOT_ATTEMPTED and the coordinator is not asked.

    Attributes:
        verify_only: add nothing, but respond whether the partitions are in the transaction (v4 and later, KIP-890).
        is_implicit: a partition's leader adds them for a Produce v12 or a TxnOffsetCommit v5 (KIP-890, part 2).
    """

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool = False
    is_implicit: bool = False


@dataclass(frozen=True, slots=True)
class AddPartitionsToTxnResult:
    """The response to an AddPartitionsToTxn: one error for each partition of the request."""

    partitions: Mapping[TopicPartition, ErrorCode] = field(default_factory=dict[TopicPartition, ErrorCode])


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxn:
    """A group whose offsets a transaction will commit (API 25): its partition of __consumer_offsets is added.

    Attributes:
        offsets_partition: of __consumer_offsets, where the group's offsets are (``groups.partition_of``); it is not
            checked whether it exists.
    """

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    offsets_partition: int


@dataclass(frozen=True, slots=True)
class AddOffsetsToTxnResult:
    """The response to an AddOffsetsToTxn."""

    error: ErrorCode = ErrorCode.NONE


@dataclass(frozen=True, slots=True)
class EndTxn:
    """A request to commit or abort a producer's transaction (API 26).

    It names no transaction, only producer id and epoch: one that arrives late ends any transaction that is open then,
    unless each end raises the epoch.

    Attributes:
        raises_epoch: of version 5 and later: the end raises the producer's epoch (KIP-890, part 2).
    """

    transactional_id: str | None
    producer_id: int
    producer_epoch: int
    outcome: Outcome
    raises_epoch: bool = False


@dataclass(frozen=True, slots=True)
class EndTxnResult:
    """The response to an EndTxn: NONE as soon as the decision is committed, before any marker is written.

    Attributes:
        producer_id: that the producer has from now on, if the end has raised its epoch; else -1.
        producer_epoch: as above.
    """

    error: ErrorCode = ErrorCode.NONE
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH


@dataclass(frozen=True, slots=True)
class DescribeTransaction:
    """A request to describe one transactional id (API 65; a request may name several: one value for each)."""

    transactional_id: str


@dataclass(frozen=True, slots=True)
class DescribeTransactionResult:
    """The description of a transactional id; the fields behind ``error`` are Kafka's defaults if it is set."""

    transactional_id: str
    error: ErrorCode = ErrorCode.NONE
    state: str = ""
    timeout_ms: int = 0
    start_time_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ListTransactions:
    """A request for the transactional ids that this broker coordinates (API 66). Empty filters take all.

    Attributes:
        states: names of states; unknown ones are reported, and match nothing.
        duration_ms: take only transactions that have been running longer (v1 and later); negative: all.
    """

    states: tuple[str, ...] = ()
    producer_ids: tuple[int, ...] = ()
    duration_ms: int = NO_DURATION_MS


class ListedTransaction(NamedTuple):
    """One transactional id of a list."""

    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class ListTransactionsResult:
    """The response to ListTransactions: while a partition loads, an error and nothing else."""

    error: ErrorCode = ErrorCode.NONE
    unknown_state_filters: tuple[str, ...] = ()
    transactions: Sequence[ListedTransaction] = ()


TransactionRequest = (
    InitProducerId | AddPartitionsToTxn | AddOffsetsToTxn | EndTxn | DescribeTransaction | ListTransactions
)
TransactionResult = (
    InitProducerIdResult
    | AddPartitionsToTxnResult
    | AddOffsetsToTxnResult
    | EndTxnResult
    | DescribeTransactionResult
    | ListTransactionsResult
)
