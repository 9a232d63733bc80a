"""A broker's responses over real gRPC: accepted and refused writes, and how far each reader may read.

Bad input gets Kafka's error code with a sentence and changes nothing (LogValidator, ProducerStateManager).
"""

from __future__ import annotations

import time
import uuid

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tests.waiting import until

from tidegauge.errors import ErrorCode
from tidegauge.v1 import (
    admin_service_pb2_grpc,
    broker_service_pb2_grpc,
    fetch_pb2,
    metadata_pb2,
    offsets_pb2,
    produce_pb2,
    topics_pb2,
)
from tidegauge_client.records import decode_batches, encode_batch

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


def batch(*values: bytes, **producer: int) -> bytes:
    return encode_batch([(value, None, int(time.time() * 1000), ()) for value in values], **producer)


class Cluster:
    """Raw requests to the brokers of the shared cluster, and a topic of the test's own."""

    def __init__(self, cluster) -> None:
        self.local = cluster
        self.channels = {entry.id: grpc.insecure_channel(entry.address) for entry in cluster.file.brokers}
        self.stubs = {id_: broker_service_pb2_grpc.BrokerServiceStub(ch) for id_, ch in self.channels.items()}
        self.topic = ""

    def close(self) -> None:
        for channel in self.channels.values():
            channel.close()

    def admin(self):
        """Return the admin service of the controller; in KRaft mode, where any broker forwards, of the first broker."""
        controller = self.local.status()["controller"]["broker"]
        return admin_service_pb2_grpc.AdminServiceStub(self.channels.get(controller, self.channels[0]))

    def create(self, name: str, partitions: int = 1, factor: int = 3, **configs: str):
        request = topics_pb2.CreateTopicsRequest(
            timeout_ms=10_000,
            topics=[
                topics_pb2.NewTopic(
                    name=name,
                    partition_count=partitions,
                    replication_factor=factor,
                    configs={key.replace("_", "."): value for key, value in configs.items()},
                )
            ],
        )
        return self.admin().CreateTopics(request).topics[0]

    def metadata(self, broker: int = 0):
        return self.stubs[broker].Metadata(metadata_pb2.MetadataRequest(topics=[self.topic]), timeout=150).topics[0]

    def knows_leader(self, broker: int) -> bool:
        topic = self.metadata(broker)
        return bool(topic.partitions) and topic.partitions[0].HasField("leader_id")

    def leader(self) -> int:
        until(lambda: self.knows_leader(0))
        return self.metadata().partitions[0].leader_id

    def produce(self, records: bytes, acks: int = -1, broker: int | None = None, topic: str | None = None, **more):
        request = produce_pb2.ProduceRequest(
            acks=acks,
            timeout_ms=5_000,
            partitions=[produce_pb2.ProducePartition(topic=topic or self.topic, partition=0, records=records, **more)],
        )
        response = self.stubs[self.leader() if broker is None else broker].Produce(request, timeout=150)
        return response.partitions[0] if response.partitions else None

    def fetch(self, offset: int, max_wait_ms: int = 0, broker: int | None = None):
        request = fetch_pb2.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1_000_000,
            partitions=[
                fetch_pb2.FetchPartition(
                    topic=self.topic, partition=0, fetch_offset=offset, partition_max_bytes=1_000_000
                )
            ],
        )
        return self.stubs[self.leader() if broker is None else broker].Fetch(request, timeout=150).partitions[0]

    def replica(self, broker: int):
        response = self.stubs[broker].DescribeReplicas(
            metadata_pb2.DescribeReplicasRequest(topics=[self.topic]), timeout=150
        )
        return response.replicas[0]

    def values(self, broker: int | None = None) -> list[bytes | None]:
        return [record.value for record in decode_batches(self.fetch(0, broker=broker).records, 0)]


@pytest.fixture
def brokers(cluster):
    made = Cluster(cluster)
    made.topic = f"requests-{uuid.uuid4().hex[:8]}"
    assert made.create(made.topic).status.error == 0
    # The controller may hear of the leader before it has heard of itself, and before the others have.
    until(lambda: all(made.knows_leader(broker) for broker in made.stubs))
    until(lambda: made.fetch(0).error == ErrorCode.NONE)
    yield made
    made.close()


def test_acks_all_completes_when_the_record_is_below_the_high_watermark(brokers):
    """acks=all (DelayedProduce): the response comes with the commit, and every replica has the record."""
    response = brokers.produce(batch(b"one", b"two"))
    assert (response.error, response.base_offset) == (ErrorCode.NONE, 0)
    leader = brokers.replica(brokers.leader())
    assert (leader.log_end_offset, leader.high_watermark) == (2, 2)
    assert all(brokers.replica(broker).log_end_offset == 2 for broker in brokers.stubs)
    until(lambda: all(brokers.replica(broker).high_watermark == 2 for broker in brokers.stubs))
    assert brokers.values() == [b"one", b"two"]


def test_acks_0_and_1_do_not_wait(brokers):
    assert brokers.produce(batch(b"zero"), acks=0) is None
    assert brokers.produce(batch(b"one"), acks=1).base_offset == 1
    until(lambda: brokers.fetch(0).high_watermark == 2)


def test_wrong_acks_are_refused(brokers):
    assert brokers.produce(batch(b"x"), acks=2).error == ErrorCode.INVALID_REQUIRED_ACKS
    assert brokers.replica(brokers.leader()).log_end_offset == 0


def test_a_corrupt_batch_is_refused_and_nothing_is_appended(brokers):
    broken = bytearray(batch(b"precious"))
    broken[-1] ^= 1
    response = brokers.produce(bytes(broken))
    assert response.error == ErrorCode.CORRUPT_MESSAGE
    assert response.error_message
    assert brokers.replica(brokers.leader()).log_end_offset == 0


def test_an_oversized_batch_is_refused_and_nothing_is_appended(brokers):
    response = brokers.produce(batch(b"x" * 1_100_000))
    assert response.error == ErrorCode.MESSAGE_TOO_LARGE
    assert brokers.replica(brokers.leader()).log_end_offset == 0


def test_an_unknown_topic_and_a_broker_that_does_not_lead_say_so(brokers):
    """Only the leader serves (NOT_LEADER_OR_FOLLOWER); another broker names the leader in its response (KIP-951)."""
    assert brokers.produce(batch(b"x"), topic="no-such-topic").error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    leader = brokers.leader()
    other = next(broker for broker in brokers.stubs if broker != leader)
    for response in (brokers.produce(batch(b"x"), broker=other), brokers.fetch(0, broker=other)):
        assert response.error == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert response.current_leader.leader_id == leader


def test_a_repeated_idempotent_batch_succeeds_with_its_first_offset(brokers):
    """KIP-98: a duplicate gets the offset of the first time, and is appended once."""
    response = brokers.stubs[0].InitProducerId(produce_pb2.InitProducerIdRequest())

    def identified() -> bool:
        nonlocal response
        response = brokers.stubs[0].InitProducerId(produce_pb2.InitProducerIdRequest())
        return response.error == 0

    until(identified)
    first = batch(b"a", b"b", producer_id=response.producer_id, producer_epoch=0, base_sequence=0)
    second = batch(b"c", producer_id=response.producer_id, producer_epoch=0, base_sequence=2)
    assert brokers.produce(first).base_offset == 0
    assert brokers.produce(second).base_offset == 2
    assert brokers.produce(first).base_offset == 0
    assert brokers.values() == [b"a", b"b", b"c"]
    gap = batch(b"z", producer_id=response.producer_id, producer_epoch=0, base_sequence=9)
    assert brokers.produce(gap).error == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert brokers.replica(brokers.leader()).log_end_offset == 3


def test_two_brokers_never_give_out_the_same_producer_id(brokers):
    ids: list[int] = []

    def one_more(broker: int) -> bool:
        response = brokers.stubs[broker].InitProducerId(produce_pb2.InitProducerIdRequest())
        if response.error == 0:
            ids.append(response.producer_id)
        return response.error == 0

    for broker in brokers.stubs:
        for _ in range(5):
            until(lambda broker=broker: one_more(broker))
    assert len(set(ids)) == 15


def test_a_consumer_sees_nothing_at_or_above_the_high_watermark(brokers):
    """While a follower of the ISR is frozen the HW does not move; a position between HW and LEO waits, empty."""
    brokers.produce(batch(b"committed"))
    leader = brokers.leader()
    frozen = next(broker for broker in brokers.stubs if broker != leader)
    brokers.local.pause(frozen)
    try:
        assert brokers.produce(batch(b"not yet"), acks=1, broker=leader).base_offset == 1
        assert brokers.replica(leader).log_end_offset == 2
        response = brokers.fetch(1, broker=leader)
        assert (response.error, response.records, response.high_watermark) == (ErrorCode.NONE, b"", 1)
        assert brokers.values(leader) == [b"committed"]
        assert brokers.fetch(3, broker=leader).error == ErrorCode.OFFSET_OUT_OF_RANGE
    finally:
        brokers.local.resume(frozen)
    until(lambda: brokers.values(leader) == [b"committed", b"not yet"])


def test_a_fetch_that_waits_is_woken_by_a_produce(brokers):
    """DelayedFetch: an empty fetch waits in purgatory; the commit of a record completes it long before its timeout."""
    request = fetch_pb2.FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1_000_000,
        partitions=[
            fetch_pb2.FetchPartition(topic=brokers.topic, partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
        ],
    )
    waiting = brokers.stubs[brokers.leader()].Fetch.future(request, timeout=150)
    brokers.produce(batch(b"wake up"))
    records = waiting.result().partitions[0].records
    assert [record.value for record in decode_batches(records, 0)] == [b"wake up"]


def test_offsets_by_time_and_the_end_of_an_epoch(brokers):
    brokers.produce(batch(b"a"))
    before_second = int(time.time() * 1000) + 1
    until(lambda: int(time.time() * 1000) > before_second)
    brokers.produce(batch(b"b"))
    leader = brokers.stubs[brokers.leader()]

    def offset(timestamp_ms: int):
        request = offsets_pb2.ListOffsetsRequest(
            partitions=[offsets_pb2.ListOffsetsPartition(topic=brokers.topic, partition=0, timestamp_ms=timestamp_ms)]
        )
        return leader.ListOffsets(request).partitions[0]

    assert [offset(-2).offset, offset(-1).offset, offset(before_second).offset] == [0, 2, 1]
    assert not offset(int(time.time() * 1000) + 60_000).HasField("offset")
    epochs = offsets_pb2.OffsetsForLeaderEpochRequest(
        partitions=[offsets_pb2.OffsetForLeaderEpochPartition(topic=brokers.topic, partition=0, leader_epoch=0)]
    )
    end = leader.OffsetsForLeaderEpoch(epochs).partitions[0].end
    assert (end.leader_epoch, end.end_offset) == (0, 2)


@pytest.mark.parametrize(
    ("name", "partitions", "factor", "configs", "error"),
    [
        ("bad name!", 1, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("too-many-replicas", 1, 4, {}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("no-partitions", 0, 1, {}, ErrorCode.INVALID_PARTITIONS),
        ("bad-setting", 1, 1, {"min_insync_replicas": "none"}, ErrorCode.INVALID_CONFIG),
        ("unknown-setting", 1, 1, {"no_such_setting": "1"}, ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_not_created(brokers, name, partitions, factor, configs, error):
    status = brokers.create(name, partitions, factor, **configs).status
    assert status.error == error
    assert status.message
    topics = brokers.stubs[0].Metadata(metadata_pb2.MetadataRequest(all_topics=True)).topics
    assert name not in [topic.name for topic in topics]


def test_a_topic_is_created_once(brokers):
    assert brokers.create(brokers.topic).status.error == ErrorCode.TOPIC_ALREADY_EXISTS


def test_the_produce_stream_appends_in_the_order_of_its_requests(brokers):
    """ADR 2: the order of a stream's requests is the order in the log, though responses may overtake."""
    requests = [
        produce_pb2.ProduceRequest(
            correlation_id=number,
            acks=-1,
            timeout_ms=5_000,
            partitions=[produce_pb2.ProducePartition(topic=brokers.topic, partition=0, records=batch(b"%d" % number))],
        )
        for number in range(50)
    ]
    responses = list(brokers.stubs[brokers.leader()].ProduceStream(iter(requests), timeout=150))
    assert sorted(response.correlation_id for response in responses) == list(range(50))
    assert all(response.partitions[0].base_offset == response.correlation_id for response in responses)


def test_an_error_of_a_stream_without_acks_ends_the_stream(brokers):
    """With acks=0 there is no response that could carry an error: as in Kafka the connection ends."""
    request = produce_pb2.ProduceRequest(
        acks=0,
        timeout_ms=1_000,
        partitions=[produce_pb2.ProducePartition(topic="no-such-topic", partition=0, records=batch(b"x"))],
    )
    with pytest.raises(grpc.RpcError) as error:
        list(brokers.stubs[0].ProduceStream(iter([request]), timeout=150))
    assert "UNKNOWN_TOPIC_OR_PARTITION" in error.value.details()


def test_health_and_reflection_are_offered(brokers):
    """Issue: health ("" alive, "tidegauge.ready" registered, with metadata and roles) and reflection services."""
    channel = brokers.channels[0]
    health = health_pb2_grpc.HealthStub(channel)
    for service in ("", "tidegauge.ready"):
        response = health.Check(health_pb2.HealthCheckRequest(service=service))
        assert response.status == health_pb2.HealthCheckResponse.SERVING
    services = ProtoReflectionDescriptorDatabase(channel).get_services()
    assert {"tidegauge.v1.BrokerService", "tidegauge.v1.ReplicationService"} <= set(services)
