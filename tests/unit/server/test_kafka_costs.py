"""A regression guard: the cost of requests and replication over Kafka's protocol, beside the least of the same work.

The brokers run in this process without sockets (``kafka_cluster``), and the plain way does the part that no broker
can leave out: as many messages of the same sizes to and fro, and the same bytes to a file. The bounds are about twice
the values measured when they were written: 5.1, 9.6, 10.2 and 1.2.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka_cluster import TOPIC, KafkaCluster, join
from tests.costs import cost_ratio

from tidegauge.kafka.apis import FETCH, PRODUCE
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tidegauge_client.records import NewRecord, encode_batch

pytestmark = pytest.mark.long

PRODUCE_VERSION, FETCH_VERSION = 9, 12
TIMES = 25
BATCH = encode_batch([NewRecord(value=b"x" * 16_000)])
HEADERS_BYTES = 100

Work = Callable[[], Coroutine[Any, Any, None]]


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


class _Bare(asyncio.BufferedProtocol):
    """Takes messages of one size, each responded to by one of another size; a client's end is notified of each."""

    def __init__(self, takes_bytes: int, gives_bytes: int, taken: Callable[[], None]) -> None:
        self._room = memoryview(bytearray(takes_bytes))
        self._filled = 0
        self._response = bytes(gives_bytes)
        self._taken = taken

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return self._room[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._filled == len(self._room):
            self._filled = 0
            self._taken()
            if self._response:
                self.transport.write(self._response)


class _Exchange:
    """Requests and responses of given sizes over a connection in memory."""

    def __init__(self, request_bytes: int, response_bytes: int) -> None:
        self._request = bytes(request_bytes)
        self._done: asyncio.Future[None] | None = None
        self._client = _Bare(response_bytes, 0, self._finish)
        join(self._client, _Bare(request_bytes, response_bytes, lambda: None))

    def _finish(self) -> None:
        assert self._done is not None
        self._done.set_result(None)

    async def once(self) -> None:
        self._done = asyncio.get_running_loop().create_future()
        self._client.transport.write(self._request)
        await self._done


@asynccontextmanager
async def cluster(directory: Path, partitions: int, broker_count: int) -> AsyncIterator[tuple[Work, Work]]:
    """Run brokers; give a produce with acks=all until its rounds are over, and a fetch of one batch."""
    brokers = KafkaCluster(directory, partitions, broker_count)
    client = await brokers.start()

    async def produce() -> None:
        request = ProduceRequest(
            None, -1, 30_000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, BATCH)])]
        )
        response: ProduceResponse = await client.send(PRODUCE, PRODUCE_VERSION, request)
        assert response.responses[0].partition_responses[0].error_code == 0
        await brokers.until_followers_wait()

    async def fetch() -> None:
        topics = [FetchTopic(TOPIC, partitions=[FetchPartition(0, partition_max_bytes=len(BATCH))])]
        request = FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, topics=topics)
        response: FetchResponse = await client.send(FETCH, FETCH_VERSION, request)
        assert len(response.responses[0].partitions[0].records or b"") == len(BATCH)

    try:
        await brokers.until_followers_wait()
        await produce()
        yield produce, fetch
    finally:
        await brokers.close()


def repeated(runner: asyncio.Runner, work: Work) -> Callable[[], None]:
    async def all_of_it() -> None:
        for _ in range(TIMES):
            await work()

    return lambda: runner.run(all_of_it())


def plain(runner: asyncio.Runner, directory: Path, exchanges: list[tuple[int, int]], writes: int) -> Callable[[], None]:
    """Exchange messages of these sizes, and write the batch so many times."""

    async def make() -> list[_Exchange]:
        return [_Exchange(*sizes) for sizes in exchanges]

    made = runner.run(make())
    file = os.open(directory / "plain", os.O_WRONLY | os.O_CREAT)

    async def once() -> None:
        for one in made:
            await one.once()
        for _ in range(writes):
            os.write(file, BATCH)

    return repeated(runner, once)


@pytest.fixture
def start(runner: asyncio.Runner, tmp_path: Path) -> Iterator[Callable[[int, int], tuple[Work, Work]]]:
    with ExitStack() as stack:

        def enter(partitions: int, broker_count: int) -> tuple[Work, Work]:
            entered = cluster(tmp_path / f"{partitions}-{broker_count}", partitions, broker_count)
            stack.callback(lambda: runner.run(entered.__aexit__(None, None, None)))
            return runner.run(entered.__aenter__())

        yield enter


Start = Callable[[int, int], tuple[Work, Work]]
SMALL, LARGE = HEADERS_BYTES, len(BATCH) + HEADERS_BYTES


def test_a_produce_costs_little_more_than_its_bytes(start: Start, runner: asyncio.Runner, tmp_path: Path) -> None:
    produce, _ = start(1, 1)
    assert cost_ratio(repeated(runner, produce), plain(runner, tmp_path, [(LARGE, SMALL)], 1)) < 10


def test_a_fetch_costs_little_more_than_its_bytes(start: Start, runner: asyncio.Runner, tmp_path: Path) -> None:
    produce, fetch = start(1, 1)
    runner.run(produce())
    assert cost_ratio(repeated(runner, fetch), plain(runner, tmp_path, [(SMALL, LARGE)], 0)) < 19


def test_a_replicated_produce_costs_little_more_than_its_bytes(
    start: Start, runner: asyncio.Runner, tmp_path: Path
) -> None:
    """The client's request, and a round of each of two followers."""
    produce, _ = start(1, 3)
    bare = plain(runner, tmp_path, [(LARGE, SMALL), *[(SMALL, LARGE)] * 2], 3)
    assert cost_ratio(repeated(runner, produce), bare) < 20


def test_a_partition_without_news_costs_a_round_little(start: Start, runner: asyncio.Runner) -> None:
    """A thousand partitions that have no news, in the rounds of two followers, beside rounds of one partition."""
    (to_many, _), (to_one, _) = start(1001, 3), start(1, 3)
    assert cost_ratio(repeated(runner, to_many), repeated(runner, to_one)) < 2.5
