"""What a broker does with transactional batches of a Produce before they are appended (KIP-890, part 1).

Rules (ReplicaManager.handleProduceAppend, maybeStartTransactionVerificationForPartitions):
    1. A request whose transactional batches are of more than one producer, or epoch: INVALID_PRODUCER_ID_MAPPING for
       all of it.
    2. Partitions whose log has an open transaction of the producer need no verification; where none does, the request
       is appended at once. Else all of it waits for the coordinator's response.
    3. What the coordinator refuses is not appended. That it is not there or busy shows as NOT_ENOUGH_REPLICAS, which
       every client tries again without asking for metadata.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import NO_PRODUCER_ID, NO_SEQUENCE, Buffer, read_header
from tidegauge.transactions import AddPartitionsToTxn
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

BeginVerification = Callable[[TopicPartition, ProducerBatch], VerificationGuard | None]


class Verify(Protocol):
    """Asks the coordinator; see ``PartitionVerifier.verify``."""

    def __call__(self, wanted: AddPartitionsToTxn, *, supports_abortable_error: bool) -> Awaitable[Errors]:
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
        """Return the results of the append and of what was refused, in the order of a request's partitions."""
        if not self.refused:
            return results
        found = {result.topic_partition: result for result in (*results, *self.refused)}
        return [found[at] for at in partitions]


class ProduceVerification:
    """See the module.

    Args:
        begin: notes at the partition's leader that a batch is verified; see ``BrokerCore.begin_verification``.
        verify: asks the coordinator.
    """

    def __init__(self, begin: BeginVerification, verify: Verify) -> None:
        self._begin = begin
        self._verify = verify

    def of(
        self, request: ProduceRequest, transactional_id: str | None, *, supports_abortable_error: bool
    ) -> Verified | Coroutine[Any, Any, Verified]:
        """Return what may be appended of a request; a coroutine where the coordinator must be asked.

        Args:
            request: what to append.
            transactional_id: of the producer; None: nothing is transactional.
            supports_abortable_error: whether the client knows TRANSACTION_ABORTABLE.
        """
        if transactional_id is None:
            return Verified(request, [])
        if is_too_long(transactional_id):
            message = "The transactional id is longer than a string of Kafka's protocol can be"
            return _all_refused(request, ErrorCode.INVALID_REQUEST, message)
        batches = _transactional(request)
        if len({(batch.producer_id, batch.producer_epoch) for batch in batches.values()}) > 1:
            message = "Transactional records contained more than one producer ID"
            return _all_refused(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING, message)
        begun = {at: self._begin(at, batch) for at, batch in batches.items()}
        guards = {at: guard for at, guard in begun.items() if guard is not None}
        if not guards:
            return Verified(request, [])
        producer_id, producer_epoch, _ = batches[next(iter(guards))]
        wanted = AddPartitionsToTxn(transactional_id, producer_id, producer_epoch, tuple(guards), verify_only=True)
        return self._verified(request, wanted, guards, supports_abortable_error=supports_abortable_error)

    async def _verified(
        self,
        request: ProduceRequest,
        wanted: AddPartitionsToTxn,
        guards: dict[TopicPartition, VerificationGuard],
        *,
        supports_abortable_error: bool,
    ) -> Verified:
        errors = await self._verify(wanted, supports_abortable_error=supports_abortable_error)
        admitted = [
            ProducePartition(item.topic_partition, item.records, guards.get(item.topic_partition))
            for item in request.partitions
            if item.topic_partition not in errors
        ]
        return Verified(replace(request, partitions=admitted), [_refusal(at, error) for at, error in errors.items()])


class OffsetsVerification:
    """Verifies offsets that are committed in a transaction, as a batch of no sequence; see the module.

    Args:
        begin: notes at the leader of the offsets' partition that a batch is verified.
        verify: asks the coordinator of the transaction.
    """

    def __init__(self, begin: BeginVerification, verify: Verify) -> None:
        self._begin = begin
        self._verify = verify

    async def verify(self, wanted: VerifyTransaction) -> tuple[ErrorCode, VerificationGuard | None]:
        """Return the coordinator's error and the guard of the append; no guard where nothing had to be verified."""
        at = TopicPartition(OFFSETS_TOPIC, wanted.partition)
        guard = self._begin(at, ProducerBatch(wanted.producer_id, wanted.producer_epoch, NO_SEQUENCE))
        if guard is None:
            return ErrorCode.NONE, None
        request = AddPartitionsToTxn(
            wanted.transactional_id, wanted.producer_id, wanted.producer_epoch, (at,), verify_only=True
        )
        errors = await self._verify(request, supports_abortable_error=wanted.supports_abortable_error)
        return errors.get(at, ErrorCode.NONE), guard


def _all_refused(request: ProduceRequest, error: ErrorCode, message: str) -> Verified:
    """Return that nothing of a request may be appended."""
    refused = [ProduceResult(item.topic_partition, error, message) for item in request.partitions]
    return Verified(replace(request, partitions=[]), refused)


def _transactional(request: ProduceRequest) -> dict[TopicPartition, ProducerBatch]:
    """Return the transactional batches of a request; what is no batch is left to the append."""
    found = {}
    for item in request.partitions:
        batch = transactional_batch(item.records)
        if batch is not None:
            found[item.topic_partition] = batch
    return found


def transactional_batch(records: Buffer) -> ProducerBatch | None:
    """Return whose transactional batch these records are; None: of no transaction, or no batch."""
    try:
        header = read_header(records)
    except TidegaugeError:
        return None
    if not header.is_transactional or header.producer_id == NO_PRODUCER_ID:
        return None
    return ProducerBatch(header.producer_id, header.producer_epoch, header.base_sequence)


def _refusal(at: TopicPartition, error: ErrorCode) -> ProduceResult:
    if error is ErrorCode.INVALID_TXN_STATE:
        return ProduceResult(at, error, "Partition was not added to the transaction")
    if error in _BUSY:
        message = f"Unable to verify the partition has been added to the transaction. Underlying error: {error.name}"
        return ProduceResult(at, ErrorCode.NOT_ENOUGH_REPLICAS, message)
    return ProduceResult(at, error)
