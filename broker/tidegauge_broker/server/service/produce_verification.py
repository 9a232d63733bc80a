"""The verification of a Produce's transactional batches before they are appended (KIP-890).

Rules (ReplicaManager.handleProduceAppend, maybeStartTransactionVerificationForPartitions):
    1. A request whose transactional batches are of more than one producer, or epoch: INVALID_PRODUCER_ID_MAPPING for
       all of it.
    2. Partitions whose log has an open transaction of the producer need no verification; if no partition needs any, the
       request is appended at once. Else all of it waits for the coordinator's response.
    3. Partitions that the coordinator refuses are not appended. If it is missing or busy, the error is
       NOT_ENOUGH_REPLICAS, which every client retries without asking for metadata.
    4. A producer of transactions v2 (Produce v12, KIP-890 part 2) has not added its partitions: the leader does, in the
       same request to the coordinator. CONCURRENT_TRANSACTIONS, while the transaction before is being completed, is
       tried again here: a Produce is larger than that. In the end the producer gets it as it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import NO_PRODUCER_ID, NO_SEQUENCE, Buffer, read_header
from tidegauge.settings import Values
from tidegauge.transactions import AddPartitionsToTxn, SupportedOperation
from tidegauge_broker.coordinator.effects import VerifyTransaction
from tidegauge_broker.coordinator.text_limits import is_too_long
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest, ProduceResult
from tidegauge_broker.replica.verification import ProducerBatch, VerificationGuard

if TYPE_CHECKING:
    from tidegauge_broker.server.coordinators.partition_verifier import Errors

_BUSY = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)

BeginVerification = Callable[[TopicPartition, ProducerBatch], VerificationGuard | ErrorCode | None]
Guards = dict[TopicPartition, VerificationGuard]


class Verify(Protocol):
    """Asks the coordinator; see ``PartitionVerifier.verify``."""

    def __call__(self, wanted: AddPartitionsToTxn, operation: SupportedOperation, /) -> Awaitable[Errors]:
        """Return why partitions may not be appended to."""
        ...


class Verified(NamedTuple):
    """A produce request without the partitions that must not be appended to, and their results.

    A result has a message where Kafka's has one: an exception of its own (ReplicaManager.handleProduceAppend).
    """

    request: ProduceRequest
    refused: list[ProduceResult]

    def in_order(
        self, partitions: Sequence[TopicPartition], results: Sequence[ProduceResult]
    ) -> Sequence[ProduceResult]:
        """Return results and refusals in the order of a request's partitions."""
        if not self.refused:
            return results
        found = {result.topic_partition: result for result in (*results, *self.refused)}
        return [found[at] for at in partitions]


class Retries(NamedTuple):
    """The repeated addition of partitions while the transaction before is being completed; rule 4. Times are ms.

    Attributes:
        backoff_ms: returns the time between two attempts (add.partitions.to.txn.retry.backoff.ms).
        limit_ms: returns for how long attempts are made (add.partitions.to.txn.retry.backoff.max.ms, at most
            request.timeout.ms).
        now_ms: returns the time.
        sleep: waits for some seconds.
    """

    backoff_ms: Callable[[], int]
    limit_ms: Callable[[], int]
    now_ms: Callable[[], int]
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep

    @classmethod
    def of(cls, settings: Values, now_ms: Callable[[], int]) -> Retries:
        """Return those that a broker's settings say."""
        backoff_ms = partial(settings.integer, "add.partitions.to.txn.retry.backoff.ms")
        return cls(backoff_ms, partial(_limit_ms, settings), now_ms)


def _limit_ms(settings: Values) -> int:
    return min(settings.integer("add.partitions.to.txn.retry.backoff.max.ms"), settings.integer("request.timeout.ms"))


class ProduceVerification:
    """Verifies the transactional batches of a Produce.

    Args:
        begin: notes at the partition's leader that a batch is verified; see ``BrokerCore.begin_verification``.
        verify: asks the coordinator.
        retries: of producers of transactions v2; None: there are none.
    """

    def __init__(self, begin: BeginVerification, verify: Verify, retries: Retries | None = None) -> None:
        self._begin = begin
        self._verify = verify
        self._retries = retries

    def of(
        self, request: ProduceRequest, transactional_id: str | None, operation: SupportedOperation
    ) -> Verified | Coroutine[Any, Any, Verified]:
        """Return the part of a request to append.

        It is a coroutine if the coordinator must be asked.

        Args:
            request: what to append.
            transactional_id: of the producer; None: nothing is transactional.
            operation: what the version of the request supports.
        """
        if transactional_id is None:
            return Verified(request, [])
        if is_too_long(transactional_id):
            message = "The transactional id is longer than a string of Kafka's protocol can be"
            return _all_refused(request, ErrorCode.INVALID_REQUEST, message)
        adds = operation is SupportedOperation.ADD_PARTITION
        batches = _transactional(request, raises_epoch=adds)
        if len({(batch.producer_id, batch.producer_epoch) for batch in batches.values()}) > 1:
            message = "Transactional records contained more than one producer ID"
            return _all_refused(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
        guards, refused = self._begun(batches)
        if not guards:
            return _admitted(request, guards, refused, _BUSY) if refused else Verified(request, [])
        if adds:
            return self._added(request, transactional_id, batches)
        return self._verified(request, _wanted(transactional_id, batches, guards), guards, refused, operation)

    def _begun(self, batches: Mapping[TopicPartition, ProducerBatch]) -> tuple[Guards, Errors]:
        """Note at the leaders which batches are verified; rule 2. Return also why some can't be appended at all."""
        guards: Guards = {}
        refused: dict[TopicPartition, ErrorCode] = {}
        for at, batch in batches.items():
            begun = self._begin(at, batch)
            if isinstance(begun, ErrorCode):
                refused[at] = begun
            elif begun is not None:
                guards[at] = begun
        return guards, refused

    async def _verified(
        self,
        request: ProduceRequest,
        wanted: AddPartitionsToTxn,
        guards: Guards,
        refused: Errors,
        operation: SupportedOperation,
    ) -> Verified:
        errors = await self._verify(wanted, operation)
        return _admitted(request, guards, {**refused, **errors}, _BUSY)

    async def _added(
        self, request: ProduceRequest, transactional_id: str, batches: Mapping[TopicPartition, ProducerBatch]
    ) -> Verified:
        """Have partitions added to their transaction; rule 4."""
        retries = self._retries
        begun_ms = 0 if retries is None else retries.now_ms()
        while True:
            guards, errors = self._begun(batches)
            if guards:
                wanted = _wanted(transactional_id, batches, guards)
                errors = {**errors, **await self._verify(wanted, SupportedOperation.ADD_PARTITION)}
            if (
                retries is None
                or ErrorCode.CONCURRENT_TRANSACTIONS not in errors.values()
                or retries.now_ms() - begun_ms >= retries.limit_ms()
            ):
                return _admitted(request, guards, errors, _BUSY - {ErrorCode.CONCURRENT_TRANSACTIONS})
            await retries.sleep(retries.backoff_ms() / 1000)


class OffsetsVerification:
    """Verifies offsets that are committed in a transaction, as a batch of no sequence; see the module.

    Of a producer of transactions v2 the offsets' partition is added to its transaction (TxnOffsetCommit v5), which is
    not tried again here (CoordinatorPartitionWriter.maybeStartTransactionVerification).

    Args:
        begin: notes at the leader of the offsets' partition that a batch is verified.
        verify: asks the coordinator of the transaction.
    """

    def __init__(self, begin: BeginVerification, verify: Verify) -> None:
        self._begin = begin
        self._verify = verify

    async def verify(self, wanted: VerifyTransaction) -> tuple[ErrorCode, VerificationGuard | None]:
        """Return the coordinator's error and the append's guard, if any."""
        at = TopicPartition(OFFSETS_TOPIC, wanted.partition)
        adds = wanted.operation is SupportedOperation.ADD_PARTITION
        batch = ProducerBatch(wanted.producer_id, wanted.producer_epoch, NO_SEQUENCE, adds)
        guard = self._begin(at, batch)
        if guard is None:
            return ErrorCode.NONE, None
        if isinstance(guard, ErrorCode):
            return guard, None
        errors = await self._verify(_wanted(wanted.transactional_id, {at: batch}, {at: guard}), wanted.operation)
        return errors.get(at, ErrorCode.NONE), guard


def _wanted(
    transactional_id: str, batches: Mapping[TopicPartition, ProducerBatch], partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxn:
    """Return the coordinator's request: to verify partitions, or add them."""
    wanted = tuple(partitions)
    producer_id, producer_epoch, _, adds = batches[wanted[0]]
    return AddPartitionsToTxn(
        transactional_id, producer_id, producer_epoch, wanted, verify_only=not adds, is_implicit=adds
    )


def _admitted(request: ProduceRequest, guards: Guards, errors: Errors, busy: Collection[ErrorCode]) -> Verified:
    """Return the admitted and the refused part of a request; rule 3."""
    admitted = [
        ProducePartition(item.topic_partition, item.records, guards.get(item.topic_partition))
        for item in request.partitions
        if item.topic_partition not in errors
    ]
    refused = [_refusal(at, error, busy) for at, error in errors.items()]
    return Verified(replace(request, partitions=admitted), refused)


def _all_refused(request: ProduceRequest, error: ErrorCode, message: str) -> Verified:
    """Return that nothing of a request may be appended."""
    refused = [ProduceResult(item.topic_partition, error, message) for item in request.partitions]
    return Verified(replace(request, partitions=[]), refused)


def _transactional(request: ProduceRequest, *, raises_epoch: bool) -> dict[TopicPartition, ProducerBatch]:
    """Return a request's transactional batches; malformed ones fail at the append."""
    found = {}
    for item in request.partitions:
        batch = transactional_batch(item.records)
        if batch is not None:
            found[item.topic_partition] = batch._replace(raises_epoch=True) if raises_epoch else batch
    return found


def transactional_batch(records: Buffer) -> ProducerBatch | None:
    """Return the transactional batch's producer; None: no transaction, or malformed."""
    try:
        header = read_header(records)
    except TidegaugeError:
        return None
    if not header.is_transactional or header.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerBatch(header.producer_id, header.producer_epoch, header.base_sequence)


def _refusal(at: TopicPartition, error: ErrorCode, busy: Collection[ErrorCode]) -> ProduceResult:
    if error is ErrorCode.INVALID_TXN_STATE:
        return ProduceResult(at, error, "Partition was not added to the transaction")
    if error in busy:
        message = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        return ProduceResult(at, ErrorCode.NOT_ENOUGH_REPLICAS, message)
    return ProduceResult(at, error)
