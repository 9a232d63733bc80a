"""A regression guard: what a record costs our producer from ``send`` to its acknowledgement, beside the least of the
same work, in one process.

The brokers are a connection that acknowledges each request in the next turn of the event loop, so neither gRPC nor
sockets take part. The plain way does what no producer can leave out: it encodes the same batches, and gives each record
a future that is completed. The bound lies between 3.7, which was measured when it was written, and the 4.9 to 5.5 of
the former producer (docs/adr/0019-what-a-record-costs-the-producer.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from tests.costs import cost_ratio

from tidegauge.v1 import produce_pb2
from tidegauge_client.cluster import Cluster
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.producer import Producer

pytestmark = pytest.mark.long

RECORDS = 5_000
BATCH_BYTES = 16_384
VALUE = b"x" * 100
INFO = ClusterInfo(
    brokers={0: BrokerInfo(0, "b", 1)},
    topics={"t": TopicInfo("t", partitions={0: PartitionInfo("t", 0, 0, 0, (0,), (0,))})},
)


class _Broker:
    """Acknowledges each request in the next turn of the event loop."""

    def __init__(self, responded: Callable[[str, produce_pb2.ProduceResponse], None], address: str) -> None:
        self._responded = responded
        self._address = address
        self._loop = asyncio.get_running_loop()

    def send(self, request: produce_pb2.ProduceRequest) -> None:
        response = produce_pb2.ProduceResponse(correlation_id=request.correlation_id)
        for one in request.partitions:
            response.partitions.add(topic=one.topic, partition=one.partition, base_offset=0)
        self._loop.call_soon(self._responded, self._address, response)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
def produce(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Send records and wait for their acknowledgements."""

    async def refresh(cluster: Cluster) -> ClusterInfo:
        cluster.info = INFO
        return INFO

    monkeypatch.setattr(Cluster, "refresh", refresh)
    monkeypatch.setattr(Cluster, "refresh_if_old", lambda _: None)
    monkeypatch.setattr(Producer, "_connect", lambda own, address: _Broker(own._responded, address))

    async def start() -> Producer:
        producer = Producer("b:1", acks=1, batch_size_bytes=BATCH_BYTES)
        await producer.start()
        return producer

    with asyncio.Runner() as runner:
        producer = runner.run(start())

        async def send_all() -> None:
            promises = [await producer.send("t", VALUE) for _ in range(RECORDS)]
            await producer.flush()
            assert all(promise.result().topic == "t" for promise in promises)

        yield lambda: runner.run(send_all())
        runner.run(producer.stop())


def plain() -> None:
    async def encode_and_complete() -> None:
        promises = []
        builder = None
        count = 0
        for number in range(RECORDS):
            if builder is None or builder.append(count, number, None, VALUE, []) is None:
                if builder is not None:
                    bytes(builder.build())
                builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, BATCH_BYTES)
                builder.append(0, number, None, VALUE, [])
                count = 0
            count += 1
            promises.append(asyncio.get_running_loop().create_future())
        for number, promise in enumerate(promises):
            promise.set_result(RecordMetadata("t", 0, number, 0))
        assert all(promise.result().topic == "t" for promise in promises)

    asyncio.run(encode_and_complete())


def test_a_record_costs_little_more_than_its_encoding_and_its_future(produce: Callable[[], None]) -> None:
    assert cost_ratio(produce, plain) < 4.6
