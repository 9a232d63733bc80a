"""A large Produce over any wire is appended in portions, with turns of the event loop between (``produce_portions``).

Counted are the bytes of each step, never a duration.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from kafka_cluster import LEADER, NOW_MS, TOPIC, KafkaCluster

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import PRODUCE
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, make_batch
from tidegauge.v1 import produce_pb2
from tidegauge_broker.formats.records import StoredRecord, encode_records
from tidegauge_broker.replica import messages as core
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.open_produces import OpenProduces
from tidegauge_broker.server.service.produce_portions import PORTION_BYTES, PORTION_PARTITIONS, append
from tidegauge_broker.server.wire.grpc.broker import BrokerServicer
from tidegauge_broker.server.wire.kafka.portions import in_portions
from tidegauge_broker.server.wire.kafka.request import CloseConnection
from tidegauge_broker.server.wire.kafka.responses import SILENT, Pending
from tidegauge_broker.server.wire.kafka.served import SERVED

COUNT = 20
Results = Sequence[core.ProduceResult]


def batch(size_bytes: int) -> bytes:
    records = encode_records([StoredRecord(0, NOW_MS, None, bytes(size_bytes), ())], 0, NOW_MS)
    header = BatchHeader(0, 0, -1, 2, 0, 0, 0, NOW_MS, NOW_MS, -1, -1, -1, 1, 0)
    return make_batch(header, records)


LARGE = batch(400_000)


def request(count: int = COUNT, acks: int = 1, records: bytes = LARGE) -> core.ProduceRequest:
    partitions = [core.ProducePartition(TopicPartition(TOPIC, one), records) for one in range(count)]
    return core.ProduceRequest(acks, 1000, partitions)


class Appends:
    """Notes each step; its futures are done when the test says so, or at once with acks=0."""

    def __init__(self) -> None:
        self.steps: list[core.ProduceRequest] = []
        self.waiting: list[asyncio.Future[Results]] = []
        self.fails: set[int] = set()

    def __call__(self, portion: core.ProduceRequest) -> asyncio.Future[Results]:
        self.steps.append(portion)
        future: asyncio.Future[Results] = asyncio.get_running_loop().create_future()
        self.waiting.append(future)
        if portion.acks == 0:
            self.acknowledge(len(self.steps) - 1)
        return future

    def acknowledge(self, step: int) -> None:
        self.waiting[step].set_result(
            [
                core.ProduceResult(
                    one.topic_partition,
                    ErrorCode.NOT_LEADER_OR_FOLLOWER if one.topic_partition.partition in self.fails else ErrorCode.NONE,
                )
                for one in self.steps[step].partitions
            ]
        )

    @property
    def partitions(self) -> list[int]:
        return [one.topic_partition.partition for step in self.steps for one in step.partitions]


async def turns_until(is_true: Callable[[], object]) -> int:
    for turns in range(10_000):
        if is_true():
            return turns
        await asyncio.sleep(0)
    raise AssertionError("it is not true yet")


async def test_a_step_has_a_portion_of_the_bytes_and_the_loop_turns_between() -> None:
    appends = Appends()
    task = asyncio.ensure_future(append(appends, request()))
    assert await turns_until(task.done) >= COUNT // 2 - 1
    assert all(sum(len(one.records) for one in step.partitions) <= PORTION_BYTES for step in appends.steps)
    assert appends.partitions == list(range(COUNT))


async def test_a_step_has_a_portion_of_the_partitions() -> None:
    appends = Appends()
    await append(appends, request(2 * PORTION_PARTITIONS + 1, records=b""))
    assert [len(step.partitions) for step in appends.steps] == [PORTION_PARTITIONS, PORTION_PARTITIONS, 1]


async def test_a_small_request_takes_no_turn() -> None:
    """A coroutine that ends without a wait has not left the event loop to others."""
    appends = Appends()
    with pytest.raises(StopIteration):
        append(appends, request(2, records=b"x")).send(None)
    assert len(appends.steps) == 1


async def test_all_portions_are_appended_before_acks_are_awaited_and_results_keep_their_order() -> None:
    appends = Appends()
    results = await append(appends, request(acks=-1))
    assert appends.partitions == list(range(COUNT))
    for step in reversed(range(len(appends.steps))):
        assert not results.done()
        appends.acknowledge(step)
    assert [one.topic_partition.partition for one in await results] == list(range(COUNT))


async def test_a_request_that_has_begun_is_appended_though_its_connection_closes() -> None:
    """As in Kafka, whose handler thread does not know of it; what waits for acks is forgotten."""
    appends = Appends()
    task = asyncio.ensure_future(append(appends, request(acks=-1)))
    await turns_until(lambda: appends.steps)
    task.cancel()
    await turns_until(lambda: len(appends.partitions) == COUNT)
    await turns_until(lambda: all(one.cancelled() for one in appends.waiting))
    assert task.cancelled()


async def test_a_connection_appends_no_other_request_before_a_large_one_is_appended() -> None:
    appends = Appends()
    produces = OpenProduces(appends)
    await asyncio.gather(*[produces.submit(request(), lambda _: None)])
    await produces.submit(request(1), lambda _: None)
    assert appends.partitions == [*range(COUNT), 0]


async def test_a_failure_without_acks_closes_when_all_portions_are_appended() -> None:
    """Kafka appends the whole request and then closes (KafkaApis.handleProduceRequest)."""
    appends = Appends()
    appends.fails = {0}
    with pytest.raises(Exception, match="NOT_LEADER_OR_FOLLOWER"):
        await OpenProduces(appends).submit(request(acks=0), lambda _: None)
    assert appends.partitions == list(range(COUNT))


# Over both wires, into logs


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[KafkaCluster]:
    made = KafkaCluster(tmp_path, COUNT, 1)
    await made.start()
    yield made
    await made.close()


@pytest.fixture
def service(cluster: KafkaCluster) -> BrokerService:
    """A service that notes the bytes of each append, in ``steps``; a second batch of a partition is not appended."""
    made = cluster.brokers[LEADER].service()
    steps: list[int] = []
    produce = made.produce

    def noting(request: core.ProduceRequest) -> asyncio.Future[Results]:
        steps.append(sum(map(len, {one.topic_partition: one.records for one in request.partitions}.values())))
        return produce(request)

    made.produce = noting  # type: ignore[method-assign]
    made.steps = steps  # type: ignore[attr-defined]
    return made


def grpc_request(numbers: Sequence[int], acks: int = 1) -> produce_pb2.ProduceRequest:
    return produce_pb2.ProduceRequest(
        correlation_id=7,
        acks=acks,
        timeout_ms=1000,
        partitions=[produce_pb2.ProducePartition(topic=TOPIC, partition=one, records=LARGE) for one in numbers],
    )


def errors_of(response: produce_pb2.ProduceResponse) -> list[tuple[int, int]]:
    return [(one.partition, one.error) for one in response.partitions]


TWICE = [0, 1, 0, *range(2, COUNT), 0]
EXPECTED = [(0, 0), (1, 0), (0, int(ErrorCode.INVALID_REQUEST)), *((one, 0) for one in range(2, COUNT))]
EXPECTED.append((0, int(ErrorCode.INVALID_REQUEST)))


def check(service: Any, cluster: KafkaCluster) -> None:
    assert max(service.steps) <= PORTION_BYTES
    assert len(service.steps) >= COUNT // 2
    ends = [cluster.brokers[LEADER].replicas.core.partition(TopicPartition(TOPIC, one)) for one in range(COUNT)]
    assert [one.log_end_offset for one in ends if one is not None] == [1] * COUNT


async def test_a_large_produce_over_grpc_is_appended_in_portions(service: BrokerService, cluster: KafkaCluster) -> None:
    """The second batch of a partition that is named twice is refused, in any portion."""
    servicer = BrokerServicer(service, lambda: NOW_MS, "L")
    context: Any = SimpleNamespace()
    response = await servicer.Produce(grpc_request(TWICE), context)
    assert errors_of(response) == EXPECTED
    check(service, cluster)


async def test_a_large_produce_on_a_stream_is_appended_in_portions(
    service: BrokerService, cluster: KafkaCluster
) -> None:
    async def requests() -> AsyncIterator[produce_pb2.ProduceRequest]:
        yield grpc_request(TWICE)

    servicer = BrokerServicer(service, lambda: NOW_MS, "L")
    context: Any = SimpleNamespace()
    [response] = [one async for one in servicer.ProduceStream(requests(), context)]
    assert errors_of(response) == EXPECTED
    check(service, cluster)


async def test_a_stream_without_acks_ends_when_all_portions_are_appended(
    service: BrokerService, cluster: KafkaCluster
) -> None:
    ended: list[Any] = []

    async def requests() -> AsyncIterator[produce_pb2.ProduceRequest]:
        yield grpc_request([COUNT + 1, *range(COUNT)], acks=0)

    async def abort(code: grpc.StatusCode, text: str) -> None:
        ended.append((code, text))

    context: Any = SimpleNamespace(abort=abort)
    servicer = BrokerServicer(service, lambda: NOW_MS, "L")
    assert [one async for one in servicer.ProduceStream(requests(), context)] == []
    assert ended[0][0] is grpc.StatusCode.UNAVAILABLE
    check(service, cluster)


def kafka_request(numbers: Sequence[int], acks: int = 1) -> ProduceRequest:
    return ProduceRequest(
        None,
        acks,
        1000,
        [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(one, LARGE) for one in numbers])],
    )


def kafka_context(service: BrokerService) -> Any:
    header = SimpleNamespace(client_id="c", version=9)
    return SimpleNamespace(service=service, header=header, version=9, caller=None)


async def kafka_produce(service: BrokerService, message: ProduceRequest) -> Any:
    api = SERVED[PRODUCE]
    return await in_portions(api.division, api.handle)(message, kafka_context(service))


async def test_a_partition_that_is_named_twice_does_not_make_a_produce_one_step(
    service: BrokerService, cluster: KafkaCluster
) -> None:
    """Whether it is named twice is judged over the whole request; it is refused, all others are appended."""
    response = await kafka_produce(service, kafka_request([*range(COUNT), COUNT + 1, COUNT + 1]))
    found = {one.index: one.error_code for one in response.responses[0].partition_responses}
    assert found == {**dict.fromkeys(range(COUNT), 0), COUNT + 1: int(ErrorCode.INVALID_REQUEST)}
    check(service, cluster)


async def test_a_produce_of_kafkas_protocol_without_acks_closes_when_all_is_appended(
    service: BrokerService, cluster: KafkaCluster
) -> None:
    with pytest.raises(CloseConnection, match="UNKNOWN_TOPIC_OR_PARTITION"):
        await kafka_produce(service, kafka_request([COUNT + 1, *range(COUNT)], acks=0))
    check(service, cluster)


async def test_a_produce_of_kafkas_protocol_is_appended_to_its_end_though_the_client_leaves() -> None:
    appended: list[int] = []

    def handle(part: ProduceRequest, _: Any) -> Any:
        appended.extend(one.index for one in part.topic_data[0].partition_data)
        return SILENT if part.acks == 0 else Pending(waiting, lambda _: None)

    for acks in (0, 1):
        appended.clear()
        waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        work = in_portions(SERVED[PRODUCE].division, handle)(kafka_request(range(COUNT), acks), None)  # type: ignore[arg-type]
        task = asyncio.ensure_future(work)
        await turns_until(lambda: appended)
        task.cancel()
        await turns_until(lambda: len(appended) == COUNT)
        if acks:
            await turns_until(waiting.cancelled)
