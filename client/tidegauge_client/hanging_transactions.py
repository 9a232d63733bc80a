"""Open transactions of partitions, and which of them hang (KIP-664).

Rules:
    1. A transaction of a partition is hanging if it is open there and its coordinator does not have the partition in
       the transaction of that producer: no timeout ends it, and readers of committed records stand still before it.
    2. A candidate has been open there for longer than a time, since a marker may be on its way; Kafka's tool asks for
       15 minutes, the largest timeout that brokers allow by default (transaction.max.timeout.ms).
    3. Coordinators are asked after the partitions. One that does not respond is an error: nothing is called hanging on
       a guess.

Source: TransactionsCommand.FindHangingTransactionsCommand of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.admin import Admin
from tidegauge_client.admin_transactions import ProducerDescription, TransactionDescription


class OpenTransaction(NamedTuple):
    """A transaction that is open at a partition."""

    at: TopicPartition
    producer: ProducerDescription

    @property
    def start_offset(self) -> int:
        """Return its first offset."""
        assert self.producer.transaction_start_offset is not None, "it is open"
        return self.producer.transaction_start_offset


async def open_transactions_at(
    admin: Admin, partitions: Collection[TopicPartition], broker_id: int | None = None
) -> list[OpenTransaction]:
    """Return the open transactions of some partitions, by partition and first offset.

    Args:
        admin: the client.
        partitions: the partitions to ask about.
        broker_id: the broker whose replicas are asked; None: the leaders.

    Raises:
        TidegaugeError: a partition could not be asked.
    """
    ordered = sorted(partitions)
    found = await asyncio.gather(*(admin.describe_producers(at, broker_id=broker_id) for at in ordered))
    return sorted(
        (
            OpenTransaction(at, producer)
            for at, producers in zip(ordered, found, strict=True)
            for producer in producers
            if producer.transaction_start_offset is not None
        ),
        key=lambda one: (one.at, one.start_offset),
    )


async def coordinated(
    admin: Admin, producer_ids: Collection[int], *, missing_ms: float | None = None
) -> dict[int, TransactionDescription]:
    """Return the producers' transactions at coordinators, by producer id.

    Args:
        admin: of the cluster.
        producer_ids: the producers.
        missing_ms: how long to wait for a coordinator that can't be asked; None: the client's request timeout.

    Raises:
        TidegaugeError: a coordinator could not be asked (rule 3).
    """
    if not producer_ids:
        return {}
    listed = await admin.list_transactions(producer_ids=sorted(producer_ids), missing_ms=missing_ms)
    found = await asyncio.gather(*(_described(admin, one.transactional_id) for one in listed))
    return {one.producer_id: one for one in found if one is not None}


async def _described(admin: Admin, transactional_id: str) -> TransactionDescription | None:
    try:
        return await admin.describe_transaction(transactional_id)
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return None  # it has expired since it was listed


def candidates(open_transactions: Iterable[OpenTransaction], now_ms: int, longer_than_ms: int) -> list[OpenTransaction]:
    """Return those whose producer's last batch is older than ``longer_than_ms`` (rule 2)."""
    return [one for one in open_transactions if now_ms - one.producer.last_timestamp_ms > longer_than_ms]


def hanging(
    open_transactions: Iterable[OpenTransaction], known: Mapping[int, TransactionDescription]
) -> list[OpenTransaction]:
    """Return those that no coordinator has (rule 1)."""
    return [
        one
        for one in open_transactions
        if one.producer.producer_id not in known or one.at not in known[one.producer.producer_id].partitions
    ]


async def partitions_in_scope(
    admin: Admin, topic: str | None, partition: int | None, broker_id: int | None
) -> list[TopicPartition]:
    """Return the partitions to search: a topic's, one of it, or a broker's.

    Raises:
        TidegaugeError: UNKNOWN_TOPIC_OR_PARTITION; BROKER_NOT_AVAILABLE, there is no such broker.
    """
    info = await admin.metadata(None if topic is None else [topic])
    if broker_id is not None and broker_id not in info.live:
        raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not alive")
    found = [
        part.topic_partition
        for one in info.topics.values()
        for part in one.partitions.values()
        if (partition is None or part.partition == partition) and (broker_id is None or broker_id in part.replicas)
    ]
    if topic is not None and not found:
        where = topic if partition is None else f"{topic}-{partition}"
        on_broker = "" if broker_id is None else f" on broker {broker_id}"
        raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition of {where}{on_broker}")
    return found
