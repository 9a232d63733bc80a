"""The transactional batches that a leader may append: the coordinator must know their transactions (KIP-890, part 1).

Contract: pure. Before the first batch of a transaction is appended, the leader asks the transaction coordinator whether
the partition is in the producer's transaction. This module ties the coordinator's response to the append for which
it was requested.

Rules (UnifiedLog.maybeStartTransactionVerification and batchMissingRequiredVerification, VerificationStateEntry):
    1. A batch of a producer whose transaction is open in the log needs no verification.
    2. A verification gives a guard; all that begin before the next append of the producer share it. The append must
       bring this very guard. A transactional append of the producer, data or marker, ends the verification, also one
       that a follower copies: a response that came before a marker appends nothing after it, and a broker that leads
       again holds no batch against the producer that another leader has taken.
    3. While a verification is in progress, the producer's batches may begin at most at the lowest sequence that was
       verified: a batch that is tried again is not overtaken by the next one.
    4. A higher epoch replaces the epoch and the lowest sequence. A verification expires as an idle producer does
       (producer.id.expiration.ms).
    5. Of a producer that speaks transactions v2 the marker of the transaction before brings the very epoch of the batch
       that is verified (KIP-890, part 2). Such a marker does not end the verification.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tidegauge.record_batch import BatchHeader


class VerificationGuard:
    """Stands for one verification of a producer at a partition; compared by identity."""

    __slots__ = ()


class ProducerBatch(NamedTuple):
    """A transactional batch that is verified; a coordinator's has NO_SEQUENCE.

    Attributes:
        raises_epoch: whether its producer speaks transactions v2: the partition is added to the transaction instead
            (``supportsEpochBump`` of Kafka's TransactionSupportedOperation).
    """

    producer_id: int
    producer_epoch: int
    base_sequence: int
    raises_epoch: bool = False


@dataclass(slots=True)
class Verification:
    """A verification in progress; ``began_ms`` is the time of its first batch."""

    epoch: int
    lowest_sequence: int
    began_ms: int
    raises_epoch: bool
    guard: VerificationGuard = field(default_factory=VerificationGuard)


class Verifications:
    """The verifications in progress at one partition, by producer id."""

    __slots__ = ("_by_producer",)

    def __init__(self) -> None:
        self._by_producer: dict[int, Verification] = {}

    def __bool__(self) -> bool:
        return bool(self._by_producer)

    def begin(self, batch: ProducerBatch, now_ms: int) -> VerificationGuard:
        """Note that a batch is verified; return the guard that its append must bring: rules 2 to 4."""
        producer_id, epoch, sequence, raises_epoch = batch
        found = self._by_producer.get(producer_id)
        if found is None:
            found = self._by_producer[producer_id] = Verification(epoch, sequence, now_ms, raises_epoch)
        elif epoch > found.epoch:
            found.epoch, found.lowest_sequence = epoch, sequence
        elif epoch == found.epoch:
            found.lowest_sequence = min(found.lowest_sequence, sequence)
        return found.guard

    def holds(self, producer_id: int, guard: VerificationGuard | None) -> bool:
        """Whether a guard belongs to the producer's verification in progress: rule 2."""
        found = self._by_producer.get(producer_id)
        return found is not None and found.guard is guard

    def lowest_sequence(self, producer_id: int) -> int | None:
        """Return the largest allowed first sequence; None without a verification: rule 3."""
        found = self._by_producer.get(producer_id)
        return None if found is None else found.lowest_sequence

    def raises_epoch(self, producer_id: int) -> bool:
        """Whether a verification in progress is of a producer that speaks transactions v2."""
        found = self._by_producer.get(producer_id)
        return found is not None and found.raises_epoch

    def end(self, header: BatchHeader) -> None:
        """Forget the producer's verification, after a transactional append of it: rules 2 and 5."""
        found = self._by_producer.get(header.producer_id)
        if found is not None and not (
            found.raises_epoch and header.is_control and header.producer_epoch == found.epoch
        ):
            del self._by_producer[header.producer_id]

    def expire(self, now_ms: int, expiration_ms: int) -> None:
        """Forget the verifications that began ``expiration_ms`` ago or earlier: rule 4."""
        idle = [one for one, found in self._by_producer.items() if now_ms - found.began_ms >= expiration_ms]
        for producer_id in idle:
            del self._by_producer[producer_id]
