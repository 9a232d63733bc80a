"""A client whose ``stop`` is cancelled, at any turn of the event loop, is closed all the same.

``async with asyncio.timeout(...)`` around ``async with Producer(...)`` cancels ``stop``, and it is not called again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from fakes_cancel import at_each_turn, cancel_after

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import produce_pb2
from tidegauge_client.admin import Admin
from tidegauge_client.cluster import Cluster
from tidegauge_client.consumer import Consumer
from tidegauge_client.group.group_consumer import GroupConsumer
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.producer import Producer

PARTITIONS = {0: PartitionInfo("t", 0, 0, 0, (0,), (0,))}
INFO = ClusterInfo(
    brokers={0: BrokerInfo(0, "b", 1, None, {"PLAINTEXT": "b:9"})}, topics={"t": TopicInfo("t", "", PARTITIONS)}
)


class SilentConnection:
    """Takes requests and never responds."""

    def send(self, request: produce_pb2.ProduceRequest) -> None:
        del request

    def close(self) -> None:
        pass


class Channel:
    """A channel that takes some turns to close."""

    def __init__(self) -> None:
        self.is_closed = False

    async def close(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)
        self.is_closed = True


class KafkaChannel:
    """A channel over Kafka's protocol, which closes at once."""

    is_closed = False

    def close(self) -> None:
        self.is_closed = True


async def silent(*_: Any, **__: Any) -> Any:
    await asyncio.Event().wait()


async def responds(*_: Any, **__: Any) -> Any:
    return SimpleNamespace(producer_id=7, producer_epoch=1)


async def known(*_: Any, **__: Any) -> ClusterInfo:
    return INFO


def prepare(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[Channel | KafkaChannel]:
    """Give a client channels over both wires and metadata, without a network; no broker responds."""
    channels = [Channel(), Channel()]
    of_kafka = KafkaChannel()
    cluster.kafka._channels = {("b:9", ""): of_kafka}  # type: ignore[dict-item]
    monkeypatch.setattr(cluster.kafka, "ask", silent)
    cluster.channels._channels = {str(number): one for number, one in enumerate(channels)}  # type: ignore[misc]
    cluster.info = INFO
    monkeypatch.setattr(cluster, "ask_any", known)
    return [*channels, of_kafka]


async def assert_closed(before: set[asyncio.Task[Any]], channels: list[Channel | KafkaChannel]) -> None:
    for _ in range(5):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - before
    assert not left, f"tasks run on: {left}"
    assert all(one.is_closed for one in channels), "a channel is open"


@pytest.mark.parametrize("transactional_id", [None, "tx"])
async def test_a_producer_whose_stop_is_cancelled_is_stopped(
    transactional_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records fail: a caller would wait for ever for one that is not sent any more."""

    async def check(turns: int) -> bool:
        before = asyncio.all_tasks()
        producer = Producer("b:1", acks="all", transactional_id=transactional_id)
        channels = prepare(producer._cluster, monkeypatch)
        monkeypatch.setattr(producer._sender, "_connect", lambda _: SilentConnection())
        monkeypatch.setattr("tidegauge_client.producer.init_producer_id", silent)
        await producer.start()
        promises = []
        if transactional_id is None:
            promises = [await producer.send("t", b"1", partition=0)]
        else:
            assert producer._transactions is not None
            monkeypatch.setattr(producer._transactions, "_ask", silent)
            opening = asyncio.ensure_future(producer.init_transactions())
            await asyncio.sleep(0)
            opening.cancel()
        is_reached = await cancel_after(turns, producer.stop(timeout_ms=0))
        await assert_closed(before, channels)
        for promise in promises:
            with pytest.raises(TidegaugeError, match="stopped before"):
                await promise
        return is_reached

    assert await at_each_turn(check) > 5


@pytest.mark.parametrize("make", [Consumer, lambda servers: GroupConsumer(servers, "g", close_timeout_ms=0), Admin])
async def test_another_client_whose_stop_is_cancelled_is_stopped(
    make: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check(turns: int) -> bool:
        before = asyncio.all_tasks()
        client = make("b:1")
        channels = prepare(client._cluster, monkeypatch)
        await client.start()
        if isinstance(client, Consumer):
            client.assign([TopicPartition("t", 0)])
            client.seek(TopicPartition("t", 0), 0)
            await client.poll()
        client._cluster.request_refresh()
        is_reached = await cancel_after(turns, client.stop())
        await assert_closed(before, channels)
        return is_reached

    assert await at_each_turn(check) > 5


async def test_a_producer_whose_stop_is_cancelled_while_it_aborts_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction ends by its timeout."""

    async def check(turns: int) -> bool:
        before = asyncio.all_tasks()
        producer = Producer("b:1", transactional_id="tx")
        channels = prepare(producer._cluster, monkeypatch)
        await producer.start()
        transactions = producer._transactions
        assert transactions is not None
        monkeypatch.setattr(transactions, "_ask", responds)
        await producer.init_transactions()
        await producer.begin_transaction()
        await transactions.add(TopicPartition("t", 0))
        monkeypatch.setattr(transactions, "_ask", silent)
        is_reached = await cancel_after(turns, producer.stop())
        await assert_closed(before, channels)
        return is_reached and turns < 10

    assert await at_each_turn(check) == 10


async def test_a_send_that_waits_for_metadata_while_the_producer_is_stopped_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its caller was not cancelled: a CancelledError would end its task in silence, with the record."""
    producer = Producer("b:1")
    prepare(producer._cluster, monkeypatch)
    monkeypatch.setattr("tidegauge_client.producer.init_producer_id", silent)
    await producer.start()
    monkeypatch.setattr(producer._cluster, "ask_any", silent)
    sending = asyncio.ensure_future(producer.send("new", b"1"))
    for _ in range(3):
        await asyncio.sleep(0)
    await producer.stop()
    with pytest.raises(TidegaugeError, match="stopped before"):
        await asyncio.wait_for(sending, 5)


async def test_a_send_that_waits_for_a_topic_to_be_created_ends_with_the_producer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It asked on for max.block.ms, over connections that nothing closed any more."""
    producer = Producer("b:1", retry_backoff_ms=1)
    prepare(producer._cluster, monkeypatch)
    monkeypatch.setattr("tidegauge_client.producer.init_producer_id", silent)
    await producer.start()
    sending = asyncio.ensure_future(producer.send("new", b"1"))
    for _ in range(3):
        await asyncio.sleep(0)
    await producer.stop()
    with pytest.raises(TidegaugeError, match="stopped before"):
        await asyncio.wait_for(sending, 5)


async def test_a_start_that_waits_while_the_client_is_stopped_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for client in (Producer("b:1"), Consumer("b:1")):
        prepare(client._cluster, monkeypatch)
        monkeypatch.setattr(client._cluster, "ask_any", silent)
        starting = asyncio.ensure_future(client.start())
        for _ in range(3):
            await asyncio.sleep(0)
        await client.stop()
        with pytest.raises(TidegaugeError, match="stopped before"):
            await asyncio.wait_for(starting, 5)


async def test_a_producer_is_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second task would send the same batches; after a stop sequences would begin again under the same epoch."""
    producer = Producer("b:1")
    prepare(producer._cluster, monkeypatch)
    monkeypatch.setattr("tidegauge_client.producer.init_producer_id", silent)
    await producer.start()
    for _ in range(2):
        with pytest.raises(TidegaugeError, match="can be started once") as refused:
            await producer.start()
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        await producer.stop()


async def test_a_consumer_that_was_stopped_may_be_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    consumer = Consumer("b:1")
    prepare(consumer._cluster, monkeypatch)
    await consumer.start()
    await consumer.stop()
    await consumer.start()
    await consumer.stop()
