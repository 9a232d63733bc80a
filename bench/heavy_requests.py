"""The longest wait of another connection while a broker checks or converts much: ``python bench/heavy_requests.py``.

Usage: python bench/heavy_requests.py HOST:PORT GRPC_HOST:PORT [PARTITIONS]

Asks a broker that leads all partitions of a new topic, so a cluster of one (``tidegauge up --brokers 1 -d``). While
each request is handled, another connection asks for ApiVersions every 5 ms; its longest wait is the figure. The
machine's other work counts too, so the wait without a request comes first. Requests about all partitions of a topic
are about PARTITIONS of them, 3,000 by default; the first creates the topic and the last deletes it. In KRaft mode
(``up --kraft --brokers 1 -d``) the requests of ``heavy_kraft_requests`` follow before it.
"""

from __future__ import annotations

import multiprocessing
import socket
import struct
import sys
import time
from collections.abc import Callable
from typing import Any

import grpc
import heavy_kraft_requests

from tidegauge.kafka.apis import (
    API_VERSIONS,
    BROKER_PROTOCOL,
    CREATE_TOPICS,
    DELETE_RECORDS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    FETCH,
    METADATA,
    PRODUCE,
)
from tidegauge.kafka.frames import ApiCodec, codec_of, joined
from tidegauge.kafka.kraft.apis import DESCRIBE_QUORUM
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL, OF_KRAFT
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest
from tidegauge.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidegauge.kafka.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from tidegauge.kafka.messages.delete_topics import DeleteTopicsRequest
from tidegauge.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidegauge.kafka.messages.metadata import MetadataRequest
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.record_batch import BatchHeader, make_batch
from tidegauge.v1 import metadata_pb2, produce_pb2
from tidegauge.v1.broker_service_pb2_grpc import BrokerServiceStub
from tidegauge_broker.formats.compression import compress
from tidegauge_broker.formats.records import StoredRecord, encode_records

PARTITIONS = 20
NOW_MS = 1_700_000_000_000
GZIP, ZSTD = 1, 4


class Peer:
    """A blocking connection."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=120)
        self._file = self._socket.makefile("rb")

    def ask(self, key: int, version: int, message: Any) -> memoryview:
        """Send a request, and return the frame of its response; some are larger than one decoded portion."""
        codec = _codec(key, version)
        self._socket.sendall(joined(codec.request_frame(1, "heavy", message)))
        (size,) = struct.unpack(">i", self._file.read(4))
        return memoryview(self._file.read(size))

    def look(self, key: int, version: int, message: Any) -> Any:
        """Send a request, and return its response."""
        frame, codec = self.ask(key, version, message), _codec(key, version)
        _, body_at, _ = codec.read_response_header(frame)
        return codec.decode_response(frame, body_at)[0]


def _codec(key: int, version: int) -> ApiCodec:
    return codec_of(key, version, KRAFT_BROKER_PROTOCOL if key in OF_KRAFT else BROKER_PROTOCOL)


def probe(address: str, worst_ms: Any) -> None:
    """Ask on another connection again and again, and note the longest wait; a process of its own."""
    peer = Peer(address)
    while True:
        began = time.perf_counter()
        peer.ask(API_VERSIONS, 3, ApiVersionsRequest("bench", "1"))
        worst_ms.value = max(worst_ms.value, (time.perf_counter() - began) * 1000)
        time.sleep(0.005)


def topic_id_of(peer: Peer, topic: str) -> bytes:
    """Return the id of a topic."""
    return next(
        bytes(one.topic_id) for one in peer.look(METADATA, 12, MetadataRequest(None)).topics if one.name == topic
    )


def batch(count: int, value: bytes, codec: int = 0) -> bytes:
    """Return a producer's batch."""
    records = encode_records([StoredRecord(one, NOW_MS, None, value, ()) for one in range(count)], 0, NOW_MS)
    header = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, NOW_MS, NOW_MS, -1, -1, -1, count, 0)
    return make_batch(header, compress(codec, records))


def main() -> None:
    """Print the longest wait for each kind of request."""
    address, topic = sys.argv[1], f"heavy-{time.time_ns()}"
    many, wide = int(sys.argv[3]) if len(sys.argv) > 3 else 3_000, f"{topic}-wide"
    unlimited = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
    stub = BrokerServiceStub(grpc.insecure_channel(sys.argv[2], options=unlimited))
    peer, worst_ms = Peer(address), multiprocessing.Value("d", 0.0)
    peer.ask(CREATE_TOPICS, 5, CreateTopicsRequest([CreatableTopic(topic, PARTITIONS, 1)], 30_000))
    time.sleep(2)
    multiprocessing.Process(target=probe, args=(address, worst_ms), daemon=True).start()

    def produce(records: bytes, partitions: int = 1, first: int = 0) -> Callable[[], Any]:
        data = [PartitionProduceData(first + number, records) for number in range(partitions)]
        request = ProduceRequest(None, 1, 60_000, [TopicProduceData(topic, partition_data=data)])
        return lambda: peer.ask(PRODUCE, 9, request)

    def fetch(partition: int) -> Callable[[], Any]:
        wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition, 0, partition_max_bytes=1 << 20)])
        return lambda: peer.ask(FETCH, 2, FetchRequest(replica_id=-1, max_wait_ms=100, min_bytes=1, topics=[wanted]))

    in_grpc = produce_pb2.ProduceRequest(
        acks=1,
        timeout_ms=60_000,
        partitions=[
            produce_pb2.ProducePartition(topic=topic, partition=one, records=batch(1, bytes(1_000_000)))
            for one in range(PARTITIONS)
        ],
    )
    deleted = DeleteRecordsRequest([DeleteRecordsTopic(wide, [DeleteRecordsPartition(one, -1) for one in range(many)])])
    again = DescribeConfigsRequest([DescribeConfigsResource(2, topic, None)] * 2000, True, True)
    work: dict[str, Callable[[], Any]] = {
        "nothing": lambda: time.sleep(2),
        "Produce, 3 KB of zstd, a value of 90 MiB": produce(batch(1, bytes(90 << 20), ZSTD), first=1),
        "Produce, 92 KB of gzip, a value of 90 MiB": produce(batch(1, bytes(90 << 20), GZIP)),
        "Produce, 100,000 records": produce(batch(100_000, b""), first=2),
        "Produce, 20 partitions of 1 MB": produce(batch(1, bytes(1_000_000)), PARTITIONS),
        "the same over gRPC": lambda: stub.Produce(in_grpc),
        "Fetch v2 of the gzip batch": fetch(0),
        "Fetch v2 of 100,000 records": fetch(2),
        "DescribeConfigs, one topic 2,000 times": lambda: peer.ask(DESCRIBE_CONFIGS, 4, again),
        f"CreateTopics, {many} partitions": lambda: peer.ask(
            CREATE_TOPICS, 5, CreateTopicsRequest([CreatableTopic(wide, many, 1)], 120_000)
        ),
        "Metadata of all": lambda: peer.ask(METADATA, 9, MetadataRequest(None)),
        "the same over gRPC ": lambda: stub.Metadata(metadata_pb2.MetadataRequest(all_topics=True)),
        "DescribeReplicas of all, gRPC": lambda: stub.DescribeReplicas(metadata_pb2.DescribeReplicasRequest()),
        f"DeleteRecords, {many} partitions": lambda: peer.ask(DELETE_RECORDS, 2, deleted),
        f"DeleteTopics, {many} partitions": lambda: peer.ask(
            DELETE_TOPICS, 5, DeleteTopicsRequest(topic_names=[wide], timeout_ms=120_000)
        ),
    }
    known = {one.name: one for one in peer.look(METADATA, 12, MetadataRequest(None)).topics}
    if any(
        one.api_key == DESCRIBE_QUORUM for one in peer.look(API_VERSIONS, 3, ApiVersionsRequest("bench", "1")).api_keys
    ):
        *first, last = ((name, do) for name, do in work.items() if not name.startswith("Fetch v2"))  # 4.0 removed it
        heavy_kraft_requests.prepare(peer.ask, bytes(known[topic].topic_id))
        of_kraft = heavy_kraft_requests.work(peer.ask, bytes(known[topic].topic_id), lambda: topic_id_of(peer, wide))
        work = {**dict(first), **of_kraft, last[0]: last[1]}
    print("| request | it took, s | longest wait of another connection, ms |\n|---|---|---|")
    for name, do in work.items():
        worst_ms.value, began = 0.0, time.perf_counter()
        do()
        print(f"| {name} | {time.perf_counter() - began:.2f} | {worst_ms.value:.0f} |", flush=True)


if __name__ == "__main__":
    main()
