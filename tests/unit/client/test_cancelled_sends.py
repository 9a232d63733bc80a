"""Leftovers of a task that uses a producer and is cancelled, at any turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from fakes_cancel import at_each_turn, cancel_after

from tidegauge.kafka.apis import ADD_OFFSETS_TO_TXN, END_TXN
from tidegauge.partition import TopicPartition
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_client.metadata import ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.partition_queue import Identity
from tidegauge_client.producer import YIELD_EVERY, Producer
from tidegauge_client.transaction import Phase

AT = TopicPartition("t", 0)
INFO = ClusterInfo(topics={"t": TopicInfo("t", "", {0: PartitionInfo("t", 0, 0, 0, (0,), (0,))})})


async def some_turns(*_: Any, **__: Any) -> Any:
    for _turn in range(3):
        await asyncio.sleep(0)
    return SimpleNamespace(producer_id=7, producer_epoch=1)


def made(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> Producer:
    """A producer whose sender never runs, and whose brokers respond after some turns."""
    producer = Producer("b:1", retry_backoff_ms=0, **settings)
    producer._loop = asyncio.get_running_loop()
    producer._task = asyncio.ensure_future(asyncio.Event().wait())

    async def ask_any(*_: Any) -> ClusterInfo:
        await some_turns()
        return INFO

    monkeypatch.setattr(producer._cluster, "ask_any", ask_any)
    if producer._transactions is not None:
        monkeypatch.setattr(producer._transactions, "_ask", some_turns)
    return producer


@pytest.fixture
async def tasks() -> AsyncIterator[None]:
    """End what the producers of a test have begun."""
    before = asyncio.all_tasks()
    yield
    left = asyncio.all_tasks() - before - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left)


def handed_over(producer: Producer) -> int:
    return sum(batch.record_count for batch in producer._accumulator.incomplete)


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("transactional_id", [None, "tx"])
@pytest.mark.parametrize("waits_for", ["metadata", "memory", "the sender"])
async def test_a_send_that_is_cancelled_has_handed_over_nothing(
    transactional_id: str | None, waits_for: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the application sends the record again, and it is written twice."""

    async def check(turns: int) -> bool:
        producer = made(monkeypatch, transactional_id=transactional_id, batch_size_bytes=1, buffer_memory_bytes=1_000)
        if transactional_id is not None:
            await producer.init_transactions()
            await producer.begin_transaction()
        promises = []

        async def send_until_cancelled() -> None:
            for value in [b"1"] if waits_for == "metadata" else [b"1", b"2", b"3"]:
                promise = await producer.send("t", value, partition=0)
                promises.append(promise)

        if waits_for != "metadata":
            promises.append(await producer.send("t", b"0", partition=0))
        if waits_for == "memory":
            taken = producer._memory._free_bytes
            assert producer._memory.try_take(taken)
            asyncio.get_running_loop().call_soon(producer._memory.release, taken)
        is_cancelled = await cancel_after(turns, send_until_cancelled())
        await some_turns()
        assert handed_over(producer) == len(promises) == producer.counters.sent
        assert producer._memory._free_bytes == 1_000 - sum(b.reserved_bytes for b in producer._accumulator.incomplete)
        return is_cancelled

    assert await at_each_turn(check) > 1


@pytest.mark.usefixtures("tasks")
async def test_a_loop_of_sends_lets_the_event_loop_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it starves the sender, and with it every response."""
    producer = made(monkeypatch)
    await producer.send("t", b"1", partition=0)
    turned: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: turned.append(producer.counters.sent))
    for _ in range(2 * YIELD_EVERY):
        await producer.send("t", b"1", partition=0)
    assert turned
    assert turned[0] <= YIELD_EVERY


@pytest.mark.usefixtures("tasks")
async def test_sends_of_many_tasks_keep_the_order_in_which_the_tasks_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """``asyncio.gather`` of sends to one partition."""
    producer = made(monkeypatch, batch_size_bytes=1)
    await producer.send("t", b"first", partition=0)
    values = [b"%d" % number for number in range(3 * YIELD_EVERY)]
    promises = await asyncio.gather(*(producer.send("t", value, partition=0) for value in values))
    in_order = [one for batch in producer._accumulator._queues[AT].pending for one in batch.promises]
    assert in_order[1:] == promises


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("end", ["commit_transaction", "abort_transaction"])
async def test_an_end_that_is_cancelled_is_repeated_or_given_up(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same call completes it from any step, and the next transaction begins."""

    async def check(turns: int) -> bool:
        producer = made(monkeypatch, transactional_id="tx")
        assert producer._transactions is not None
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send("t", b"1", partition=0)
        if end == "commit_transaction":
            batch = producer._accumulator.take(AT)
            asyncio.get_running_loop().call_later(0, producer._sender._acknowledge, batch, 0, None)
        is_cancelled = await cancel_after(turns, getattr(producer, end)())
        if producer._transactions.phase is not Phase.READY:
            await getattr(producer, end)()
        assert producer._transactions.phase is Phase.READY
        assert not producer._accumulator.incomplete
        assert producer._accumulator.producer == Identity(7, 1)
        await producer.begin_transaction()
        await producer.send("t", b"2", partition=0)
        return is_cancelled

    assert await at_each_turn(check) > 3


@pytest.mark.usefixtures("tasks")
async def test_a_flush_that_is_cancelled_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender does not hurry for a flush that was given up."""

    async def check(turns: int) -> bool:
        producer = made(monkeypatch, idempotence=False)
        await producer.send("t", b"1", partition=0)
        batch = producer._accumulator.take(AT)
        asyncio.get_running_loop().call_soon(producer._sender._acknowledge, batch, 0, None)
        is_cancelled = await cancel_after(turns, producer.flush())
        assert not producer._flushes
        return is_cancelled

    assert await at_each_turn(check) > 0


@pytest.mark.usefixtures("tasks")
async def test_offsets_whose_sending_is_cancelled_belong_to_the_transaction(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rule 6 of ``transaction``: the end waits for the requests that are on their way."""

    async def check(turns: int) -> bool:
        asked: list[int] = []

        async def ask(key: int, *_: Any, **__: Any) -> Any:
            asked.append(key)
            return await some_turns()

        producer = made(monkeypatch, transactional_id="tx")
        assert producer._transactions is not None
        await producer.init_transactions()
        await producer.begin_transaction()
        monkeypatch.setattr(producer._transactions, "_ask", ask)
        offsets = {AT: OffsetAndMetadata(5, -1)}
        is_cancelled = await cancel_after(
            turns, producer.send_offsets_to_transaction(offsets, GroupMetadata("g", -1, "", None))
        )
        await producer.commit_transaction()
        began = ADD_OFFSETS_TO_TXN in asked
        assert (END_TXN in asked) == began, "a transaction at the coordinator is ended"
        return is_cancelled

    assert await at_each_turn(check) > 3
