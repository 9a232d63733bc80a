"""A transactional producer of which several tasks make use: what belongs to which transaction (KIP-98)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.metadata import ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.partition_queue import Identity
from tidegauge_client.producer import Producer
from tidegauge_client.transaction import Phase

AT = TopicPartition("t", 0)


class Coordinator:
    """Takes every request, and notes it."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def ask(self, method: str, request: Any) -> Any:
        del request
        self.asked.append(method)
        return SimpleNamespace(producer_id=7, producer_epoch=1)


@pytest.fixture
async def coordinator() -> Coordinator:
    return Coordinator()


@pytest.fixture
async def producer(coordinator: Coordinator, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Producer]:
    """A producer with an open transaction, whose sender the test plays."""
    made = Producer("b:1", transactional_id="tx")
    made._cluster.info = ClusterInfo(topics={"t": TopicInfo("t", "", {0: PartitionInfo("t", 0, 0, 0, (0,), (0,))})})
    made._loop = asyncio.get_running_loop()
    made._task = asyncio.ensure_future(asyncio.Event().wait())
    assert made._transactions is not None
    monkeypatch.setattr(made._transactions, "_ask", coordinator.ask)
    await made.init_transactions()
    await made.begin_transaction()
    coordinator.asked.clear()
    yield made
    made._task.cancel()
    await asyncio.wait({made._task})


def acknowledge(producer: Producer) -> None:
    """Send what is there, and acknowledge it."""
    batch = producer._accumulator.take(AT)
    assert batch.identity == Identity(7, 1)
    producer._sender._acknowledge(batch, 0, None)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_what_is_sent_while_a_commit_waits_for_acknowledgements_is_refused(
    producer: Producer, coordinator: Coordinator
) -> None:
    """Else the transaction ends without it, and it is written in the next one: an abort of that takes it along."""
    first = await producer.send("t", b"1", partition=0)
    committing = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    with pytest.raises(TidegaugeError) as refused:
        await producer.send("t", b"2", partition=0)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    acknowledge(producer)
    await committing
    assert (await first).offset == 0
    assert coordinator.asked == ["AddPartitions", "EndTransaction"]
    assert not producer._accumulator.incomplete
    assert producer._memory.try_take(producer._memory.size_bytes), "what was refused occupies nothing"


async def test_a_commit_that_is_given_up_before_the_end_may_be_repeated_or_aborted(
    producer: Producer, coordinator: Coordinator
) -> None:
    """Its outcome is known: the transaction is open."""
    assert producer._transactions is not None
    await producer.send("t", b"1", partition=0)
    committing = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    committing.cancel()
    await asyncio.wait({committing})
    assert producer._transactions.phase is Phase.OPEN
    acknowledge(producer)
    await producer.commit_transaction()
    assert coordinator.asked == ["AddPartitions", "EndTransaction"]


async def test_a_record_that_fails_while_a_commit_waits_leaves_nothing_but_the_abort(
    producer: Producer, coordinator: Coordinator
) -> None:
    """Rule 3 of ``transaction``."""
    await producer.send("t", b"1", partition=0)
    committing = asyncio.ensure_future(producer.commit_transaction())
    await turns()
    batch = producer._accumulator.take(AT)
    producer._sender._refused(batch, TidegaugeError(ErrorCode.MESSAGE_TOO_LARGE, "too large"), 0)
    with pytest.raises(TidegaugeError) as failed:
        await committing
    assert failed.value.code is ErrorCode.INVALID_TXN_STATE
    assert coordinator.asked == ["AddPartitions"]
    await producer.abort_transaction()
    assert coordinator.asked == ["AddPartitions", "EndTransaction", "InitTransactions"]
