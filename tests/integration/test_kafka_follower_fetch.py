"""A consumer with a rack reads from the follower in it (KIP-392), and goes on through what happens to that follower.

The brokers' request logs show its reads: Fetch requests on the listener of Kafka clients that name no broker are its
own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests import kafka_requests
from tests.labs import make_topic
from tests.waiting import until

from tidegauge.kafka import apis
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from tidegauge.partition import TopicPartition
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Switches

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
LIMIT_SECONDS = 60.0
SETTINGS = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "replica.lag.time.max.ms": "2000",
    "request.log.enable": "true",
    **{f"{broker}:broker.rack": f"rack-{broker}" for broker in range(3)},
}
LEADER, OTHER, FOLLOWER = 0, 1, 2
OFFSET_OUT_OF_RANGE = 1


def fetches(cluster: LocalCluster, broker: int) -> int:
    """Return how many Fetch requests of Kafka clients a broker has completed."""
    lines = (cluster.logs / f"broker-{broker}.log").read_text().splitlines()
    of_clients = [line for line in lines if ",listener:PLAINTEXT," in line and ",broker:" not in line]
    return sum("Completed request:Fetch," in line for line in of_clients)


def produce(cluster: LocalCluster, at: TopicPartition, *values: bytes) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers)})
    for value in values:
        producer.produce(at.topic, value, partition=at.partition)
    assert producer.flush(LIMIT_SECONDS) == 0


def fetched(cluster: LocalCluster, broker: int, at: TopicPartition, offset: int) -> PartitionData:
    """Return a broker's response to a consumer in the follower's rack, without waiting."""
    wanted = FetchPartition(partition=at.partition, fetch_offset=offset, partition_max_bytes=1_000_000)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        topics=[FetchTopic(topic=at.topic, partitions=[wanted])],
        rack_id=f"rack-{FOLLOWER}",
    )
    response = kafka_requests.ask(cluster.kafka_bootstrap_servers[broker], apis.FETCH, request, 12)
    partition: PartitionData = response.responses[0].partitions[0]
    return partition


class Reader:
    """A consumer in the follower's rack, from offset 0 on."""

    def __init__(self, cluster: LocalCluster, at: TopicPartition) -> None:
        self.cluster, self.at = cluster, at
        self.found: list[bytes] = []
        self.errors: list[str] = []
        self.consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers),
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "client.rack": f"rack-{FOLLOWER}",
            }
        )
        self.consumer.assign([confluent_kafka.TopicPartition(at.topic, at.partition, 0)])

    def poll(self) -> None:
        message: Any = self.consumer.poll(0.1)
        if message is None:
            return
        if message.error() is None:
            self.found.append(message.value())
        else:
            self.errors.append(message.error().name())

    def reads(self, count: int) -> None:
        """Poll until so many records have come in all."""

        def has_read() -> bool:
            self.poll()
            return len(self.found) >= count

        until(has_read, timeout=LIMIT_SECONDS, what=f"{count} records are read")

    def asks(self, broker: int) -> None:
        """Poll until a broker completes fetches that it had not completed before."""
        before = fetches(self.cluster, broker)

        def has_asked() -> bool:
            self.poll()
            return fetches(self.cluster, broker) > before

        until(has_asked, timeout=LIMIT_SECONDS, what=f"the consumer asks broker {broker}")


@pytest.fixture
async def at(brokers: LocalCluster, request: pytest.FixtureRequest) -> TopicPartition:
    return await make_topic(brokers, request.function.__name__, [LEADER, OTHER, FOLLOWER])


@pytest.fixture
def reader(brokers: LocalCluster, at: TopicPartition) -> Iterator[Reader]:
    made = Reader(brokers, at)
    yield made
    made.consumer.close()


async def test_a_consumer_reads_from_the_follower_in_its_rack_through_its_death_and_return(
    brokers: LocalCluster, lab: Switches, at: TopicPartition, reader: Reader
) -> None:
    of_the_other = fetches(brokers, OTHER)
    produce(brokers, at, b"first")
    reader.reads(1)
    reader.asks(FOLLOWER)
    produce(brokers, at, b"second")
    reader.reads(2)
    brokers.kill(FOLLOWER, expire=True)
    produce(brokers, at, b"third")
    reader.reads(3)
    brokers.up(LIMIT_SECONDS)
    reader.asks(FOLLOWER)
    produce(brokers, at, b"fourth")
    reader.reads(4)
    assert reader.found == [b"first", b"second", b"third", b"fourth"]
    assert reader.errors == []
    assert fetches(brokers, OTHER) == of_the_other, "the follower in another rack was never asked"


async def test_a_follower_that_lags_is_not_named_and_costs_its_reader_nothing(
    brokers: LocalCluster, lab: Switches, at: TopicPartition, reader: Reader
) -> None:
    """It serves what it has; an offset that it lacks sends the consumer to the leader, not to its reset policy."""
    produce(brokers, at, b"0", b"1")
    reader.reads(2)
    reader.asks(FOLLOWER)
    until(
        lambda: fetched(brokers, FOLLOWER, at, 0).high_watermark == 2,
        timeout=LIMIT_SECONDS,
        what="the follower knows the committed end",
    )
    assert fetched(brokers, LEADER, at, 2).preferred_read_replica == FOLLOWER
    await lab.hold_fetch(at, [FOLLOWER])
    produce(brokers, at, b"2", b"3")
    until(
        lambda: fetched(brokers, LEADER, at, 0).preferred_read_replica == -1,
        timeout=LIMIT_SECONDS,
        what="it has left the ISR",
    )
    own = fetched(brokers, FOLLOWER, at, 0)
    assert (own.error_code, own.high_watermark) == (0, 2)
    assert own.records, "it serves what it has"
    assert fetched(brokers, FOLLOWER, at, 3).error_code == OFFSET_OUT_OF_RANGE
    reader.consumer.seek(confluent_kafka.TopicPartition(at.topic, at.partition, 3))
    reader.reads(3)
    assert reader.found[2:] == [b"3"]
    await lab.release_fetch(at, [FOLLOWER])
    until(
        lambda: fetched(brokers, LEADER, at, 4).preferred_read_replica == FOLLOWER,
        timeout=LIMIT_SECONDS,
        what="it is in the ISR again",
    )
    reader.asks(FOLLOWER)
    produce(brokers, at, b"4")
    reader.reads(4)
    assert reader.found == [b"0", b"1", b"3", b"4"]
    assert reader.errors == []
