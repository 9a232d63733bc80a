"""Explain why readers of committed records stand still at a partition: facts in, sentences out. Pure.

Rules: as in ``explanation``. A transaction is called hanging only if it was open at the partition before its
coordinator was asked and is still open afterwards: the partition leaves the coordinator's list when its marker is
committed. Source: UnifiedLog, TransactionCoordinator, TransactionMarkerChannelManager of Kafka 3.9; KIP-98, KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tidegauge.lazy_dataclasses import dataclass
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_transactions import ProducerDescription, TransactionDescription
from tidegauge_client.transaction_words import (
    DEFAULT_ABORT_INTERVAL_MS,
    RULE_HANGING,
    RULE_LAST_STABLE_OFFSET,
    RULE_MARKERS,
    RULE_TIMEOUT,
    ago,
    decision_of,
    producer_words,
    timeout_words,
)


@dataclass(frozen=True, slots=True)
class OpenAtPartition:
    """A transaction that is open at the partition.

    Attributes:
        producer: as the leader has it.
        transaction: what the coordinator has of that producer; None: nothing, or ``problem`` says why it is unknown.
        problem: why coordinators could not be asked; empty if they were.
        interval_ms: between two looks of the coordinator for timed-out transactions.
        obstacle: why the coordinator can write no abort now; empty if nothing is known to hinder it.
    """

    producer: ProducerDescription
    transaction: TransactionDescription | None = None
    problem: str = ""
    interval_ms: int = DEFAULT_ABORT_INTERVAL_MS
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class PartitionTransactions:
    """The transactions of a partition, by first offset.

    Attributes:
        now_ms: when they were asked for, in ms since 1970.
        problem: why the open ones are not known; empty if they are.
    """

    now_ms: int
    open: Sequence[OpenAtPartition] = ()
    problem: str = ""


class TransactionSentence(NamedTuple):
    """A statement: the state and its cause, Kafka's rule, what changes it, and after how long at most by itself."""

    text: str
    rule: str
    change: str = ""
    wait_ms: int | None = None


def explain_open_transactions(
    at: TopicPartition, hw: int, lso: int, known: PartitionTransactions
) -> Iterator[TransactionSentence]:
    """Explain at which offset readers of committed records are held, and until when.

    Args:
        at: the partition.
        hw: the leader's high watermark.
        lso: its last stable offset.
        known: the open transactions.
    """
    if known.problem:
        if lso < hw:
            yield TransactionSentence(
                f"{_standing(hw, lso)}; the producers there are not known: {known.problem}.", RULE_LAST_STABLE_OFFSET
            )
        return
    holds = lso < hw
    for one in known.open:
        yield from _open(at, hw, lso, one, known.now_ms, holds=holds)
        holds = False
    if holds:
        yield TransactionSentence(
            f"{_standing(hw, lso)}: a transaction that has ended holds it until its marker is below the HW.",
            RULE_LAST_STABLE_OFFSET,
            "a higher HW",
        )


def _standing(hw: int, lso: int) -> str:
    return f"read_committed readers stand still at {lso}, {hw - lso} below the HW {hw}"


def _open(
    at: TopicPartition, hw: int, lso: int, one: OpenAtPartition, now_ms: int, *, holds: bool
) -> Iterator[TransactionSentence]:
    producer, transaction = one.producer, one.transaction
    offset = producer.transaction_start_offset
    whose = producer_words(
        producer.producer_id, producer.producer_epoch, None if transaction is None else transaction.transactional_id
    )
    beginning = f"{_standing(hw, lso)}, because {whose}," if holds else f"{whose[0].upper()}{whose[1:]},"
    written = f"its first record here is at {offset}"
    end_it = f"tidegauge abort-transaction --topic {at.topic} --partition {at.partition} --start-offset {offset}"
    if one.problem:
        yield TransactionSentence(
            f"{beginning} has a transaction open; {written}. Its coordinator could not be asked: {one.problem}.",
            RULE_LAST_STABLE_OFFSET,
        )
    elif transaction is None or at not in transaction.partitions:
        knows = "no transactional id has this producer" if transaction is None else f"its id is {transaction.state}"
        yield TransactionSentence(
            f"{beginning} has a transaction open that its coordinator does not have ({knows}); {written}, the last "
            f"batch of {ago(producer.last_timestamp_ms, now_ms)}. It is hanging, and nothing ends it by itself.",
            RULE_HANGING,
            end_it,
        )
    elif decision := decision_of(transaction):
        yield TransactionSentence(
            f"{beginning} has a transaction whose {decision} is decided, and whose marker is not written here yet; "
            f"{written}.",
            RULE_MARKERS,
            f"the marker of broker {transaction.coordinator}: `tidegauge explain "
            f"transaction:{transaction.transactional_id}`",
        )
    else:
        yield TransactionSentence(
            f"{beginning} has had a transaction open since {ago(transaction.start_time_ms, now_ms)}; {written}.",
            RULE_LAST_STABLE_OFFSET,
            "a commit or abort of its producer, or a new producer of the id, which aborts it",
        )
        text, wait_ms = timeout_words(transaction, now_ms, one.interval_ms, one.obstacle)
        yield TransactionSentence(text, RULE_TIMEOUT, "that time", wait_ms)
