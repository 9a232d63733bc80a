"""Hostile clients of real brokers: whatever comes, these live, keep logs and memory, and serve others.

The lab is off, as in a broker that strangers can reach. RPCs are found by reflection: a new one is tried by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import os
import re
import signal
import socket
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cramjam
import grpc
import grpc.aio
import psutil
import pytest
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from tests.deaf_clients import DeafClients
from tests.hostile_messages import Maker
from tests.integration.conftest import metadata_at
from tests.waiting import until

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.record_batch import crc_matches, iterate_headers, make_batch, read_header
from tidegauge.v1 import broker_service_pb2_grpc, fetch_pb2, produce_pb2
from tidegauge_client import Admin, Consumer, Producer
from tidegauge_client.records import NewRecord, compression_number, encode_batch
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

KEPT = "kept"
REQUEST_BYTES = 4 << 20
RESPONSE_BYTES = 8 << 20
PER_ADDRESS = 40
METRICS = 4
MOST_RSS_BYTES = 600 << 20
"""A broker of 70 MB that once inflated 100 MiB of records stays far below; a flood taken at its word does not."""
LONG_POLL_SECONDS = 0.4
"""A longer wait would be endless."""
REFUSAL_SECONDS = 60.0
AT_KEPT = {"Produce", "ProduceStream", "Fetch", "ListOffsets", "OffsetsForLeaderEpoch", "Metadata", "DescribeReplicas"}
"""Methods of the client plane that may name the topic whose log is looked at in the end, and must not harm it."""
STALE = {"controller_epoch": (-1, 0), "broker_epoch": (0, 1)}
"""Kafka, too, believes a control request with a newer epoch: who may send those is for ``ssl.client.auth`` to say."""
BUGS = {grpc.StatusCode.UNKNOWN, grpc.StatusCode.INTERNAL, grpc.StatusCode.DATA_LOSS}


@pytest.fixture(scope="module")
def exposed(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[LocalCluster]:
    """Two brokers with low limits, and a topic with records."""
    cluster = LocalCluster.create(
        tmp_path_factory.mktemp("exposed"),
        2,
        **metadata_at(zookeeper, "hostile"),
        base_port=next_base_port(),
        settings={
            "lab.enable": "false",
            "socket.request.max.bytes": str(REQUEST_BYTES),
            "fetch.max.bytes": str(RESPONSE_BYTES),
            "max.connections.per.ip": str(PER_ADDRESS),
            "connections.max.idle.ms": "2000",
            "metrics.listener": f"+{METRICS}",
        },
    )
    cluster.up()
    asyncio.run(prepare(cluster))
    yield cluster
    cluster.down(grace_seconds=0)


async def prepare(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(KEPT, assignment=[[0, 1]])
    await write(cluster, KEPT, [b"%d" % number for number in range(100)])


async def write(cluster: LocalCluster, topic: str, values: list[bytes]) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        await asyncio.gather(*[await producer.send(topic, value, partition=0) for value in values])


async def read(cluster: LocalCluster, topic: str, count: int) -> list[bytes | None]:
    """The first records."""
    found: list[bytes | None] = []
    async with Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        while len(found) < count:
            found += [record.value for record in await consumer.poll(500)]
    return found[:count]


class Watched:
    """Properties that a broker must not lose."""

    def __init__(self, cluster: LocalCluster, broker_id: int) -> None:
        self.cluster = cluster
        self.address = cluster.file.broker(broker_id).address
        self._broker_id = broker_id
        self.pid = cluster.pid_of(broker_id)
        assert self.pid is not None
        self.process = psutil.Process(self.pid)

    def check(self) -> None:
        """Check that it is the same process with little memory, and without a traceback in its log."""
        assert self.cluster.pid_of(self._broker_id) == self.pid
        assert self.peak_bytes() < MOST_RSS_BYTES
        assert "Traceback" not in (self.cluster.logs / f"broker-{self._broker_id}.log").read_text()

    def peak_bytes(self) -> int:
        """The most memory that it ever had."""
        status = Path(f"/proc/{self.pid}/status")
        if not status.exists():
            return int(self.process.memory_info().rss)
        return int(status.read_text().partition("VmHWM:")[2].split()[0]) * 1024

    def metric(self, name: str) -> float:
        """The sum over its labels."""
        host, _, port = self.address.partition(":")
        with urllib.request.urlopen(f"http://{host}:{int(port) + METRICS}/metrics", timeout=30) as page:
            text = page.read().decode()
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))


@pytest.fixture
def watched(exposed: LocalCluster) -> Iterator[list[Watched]]:
    brokers = [Watched(exposed, entry.id) for entry in exposed.file.brokers]
    yield brokers
    for broker in brokers:
        broker.check()


async def still_serves(cluster: LocalCluster, topic: str) -> None:
    """A new topic can be made, written with acks=all, and read; the old log is sound and has its records."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(topic, assignment=[[1, 0]])
    await write(cluster, topic, [b"after"])
    assert await read(cluster, topic, 1) == [b"after"]
    assert await read(cluster, KEPT, 100) == [b"%d" % number for number in range(100)]
    logs = sorted(cluster.directory.glob(f"broker-*/data/{KEPT}-0/*.log"))
    assert len(logs) == 2
    for log in logs:
        data = log.read_bytes()
        position = next_offset = 0
        for header in iterate_headers(data):
            batch = data[position : position + header.size_bytes]
            assert crc_matches(batch, read_header(batch))
            assert header.base_offset == next_offset
            next_offset = header.next_offset
            position += header.size_bytes
        assert position == len(data)


def methods_of(address: str) -> dict[str, MethodDescriptor]:
    """Every method that the broker says it has, by its path."""
    with grpc.insecure_channel(address) as channel:
        database = ProtoReflectionDescriptorDatabase(channel)
        pool = DescriptorPool(database)
        services = [pool.FindServiceByName(name) for name in database.get_services()]
        return {f"/{one.full_name}/{method.name}": method for one in services for method in one.methods}


async def send(
    channel: grpc.aio.Channel, path: str, method: MethodDescriptor, data: bytes, patience_seconds: float
) -> grpc.StatusCode | None:
    """Send bytes as a request, and wait for a response."""
    kind = f"{'stream' if method.client_streaming else 'unary'}_{'stream' if method.server_streaming else 'unary'}"
    call = getattr(channel, kind)(path)
    request: Any = iter([data, data]) if method.client_streaming else data
    running = call(request, timeout=patience_seconds)
    try:
        if method.server_streaming:
            async for _ in running:
                pass
        else:
            await running
    except grpc.aio.AioRpcError as problem:
        # The client's own word where a stream was refused while it still wrote.
        return None if problem.details() == "Internal error from Core" else problem.code()
    return grpc.StatusCode.OK


async def attack(
    address: str, methods: dict[str, MethodDescriptor], seed: int
) -> Counter[tuple[str, grpc.StatusCode | None]]:
    """All methods at once: odd messages, then rubbish, then too much."""
    seen: Counter[tuple[str, grpc.StatusCode | None]] = Counter()

    async def one(number: int, path: str, method: MethodDescriptor) -> None:
        texts = (KEPT,) * 6 if method.name in AT_KEPT else ()
        maker = Maker(seed * 1_000 + number, STALE, texts)
        messages = [maker.message(method.input_type).SerializeToString() for _ in range(6)]
        async with grpc.aio.insecure_channel(address, options=(("grpc.max_send_message_length", -1),)) as channel:
            for data in [*messages, *maker.rubbish(method.input_type)]:
                seen[path, await send(channel, path, method, data, LONG_POLL_SECONDS)] += 1
            for data in [b"\xff" * 50, bytes(REQUEST_BYTES + 1)]:
                seen[path, await send(channel, path, method, data, REFUSAL_SECONDS)] += 1

    names = sorted(methods)
    for begin in range(0, len(names), 12):
        await asyncio.gather(
            *(one(begin + at, path, methods[path]) for at, path in enumerate(names[begin : begin + 12]))
        )
    return seen


async def test_any_message_to_any_rpc_leaves_a_broker_that_serves(
    exposed: LocalCluster, watched: list[Watched]
) -> None:
    methods = await asyncio.to_thread(methods_of, watched[0].address)
    assert len(methods) > 25
    assert not any("LabService" in path for path in methods), "the lab is off"
    seen = await attack(watched[0].address, methods, seed=1)
    assert {path for path, _ in seen} == set(methods)
    assert [(path, status) for path, status in seen if status in BUGS] == []
    unary = {path for path, method in methods.items() if not method.client_streaming}
    assert {path for path, status in seen if status is grpc.StatusCode.RESOURCE_EXHAUSTED} >= unary, (
        "every method refuses a request above socket.request.max.bytes"
    )
    assert {path for path, status in seen if status is grpc.StatusCode.INVALID_ARGUMENT} == set(methods)
    await still_serves(exposed, "after-messages")


@pytest.mark.long
@pytest.mark.timeout(1200)
async def test_many_seeds(exposed: LocalCluster, watched: list[Watched]) -> None:
    methods = await asyncio.to_thread(methods_of, watched[0].address)
    for seed in range(2, 42):
        seen = await attack(watched[seed % 2].address, methods, seed)
        assert [(path, status) for path, status in seen if status in BUGS] == [], seed
    await still_serves(exposed, "after-many")


INFLATED_BYTES = 120 << 20
"""More than a batch's records may take."""
BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 6),
    "lz4": lambda data: bytes(cramjam.lz4.compress(data)),
    "zstd": lambda data: bytes(cramjam.zstd.compress(data)),
}


def batches() -> Iterator[tuple[str, bytes]]:
    """Yield batches that lie, each with its defect."""
    sound = encode_batch([NewRecord(b"v" * 40, b"k", 1_700_000_000_000, ())])
    header = read_header(sound)
    payload = sound[61:]
    yield "a CRC that does not fit", sound.replace(b"v" * 40, b"v" * 39 + b"w")
    yield "cut off", sound[:-5]
    yield "a length below zero", sound[:8] + b"\xff\xff\xff\xf0" + sound[12:]
    yield "a length beyond the end", sound[:8] + b"\x7f\xff\xff\xff" + sound[12:]
    yield "no batch at all", b"\0" * 200
    yield "an old magic", sound[:16] + b"\1" + sound[17:]
    yield "more records than there are", make_batch(header._replace(record_count=2**31 - 1), payload)
    yield "records below zero", make_batch(header._replace(record_count=-5), payload)
    yield "offsets that go back", make_batch(header._replace(last_offset_delta=-(2**31)), payload)
    yield "no such codec", make_batch(header._replace(attributes=7), payload)
    yield "a control batch", make_batch(header._replace(attributes=0x20), payload)
    liar = b"\xff\xff\xff\xff\x0f" + b"\0" * 30
    yield "snappy of four gigabytes", make_batch(header._replace(attributes=compression_number("snappy")), liar)
    for name, compress in BOMBS.items():
        data = compress(bytes(INFLATED_BYTES))
        yield f"a {name} bomb", make_batch(header._replace(attributes=compression_number(name)), data)


async def test_batches_that_lie_are_refused_and_bombs_stay_small(exposed: LocalCluster, watched: list[Watched]) -> None:
    """The leader looks into a batch as LogValidator does, and never makes more of it than the limit."""
    at = TopicPartition(KEPT, 0)
    async with Admin(exposed.bootstrap_servers) as admin:
        before = (await admin.list_offsets({at: -1}))[at].offset
    leader = exposed.file.broker(exposed.leader_of(KEPT, 0)).address
    reported: dict[str, ErrorCode] = {}
    async with grpc.aio.insecure_channel(leader) as channel:
        stub: Any = broker_service_pb2_grpc.BrokerServiceStub(channel)  # its types know two classes
        for what, data in batches():
            part = produce_pb2.ProducePartition(topic=KEPT, partition=0, records=data)
            request = produce_pb2.ProduceRequest(acks=-1, timeout_ms=10_000, partitions=[part])
            response = await stub.Produce(request, timeout=60)
            reported[what] = ErrorCode.of(response.partitions[0].error)
    assert [what for what, error in reported.items() if error is ErrorCode.NONE] == []
    assert {reported[f"a {name} bomb"] for name in BOMBS} == {ErrorCode.RECORD_LIST_TOO_LARGE}
    async with Admin(exposed.bootstrap_servers) as admin:
        assert (await admin.list_offsets({at: -1}))[at].offset == before
    await still_serves(exposed, "after-batches")


CLIENT = """
import asyncio, sys, grpc.aio
from tidegauge.v1 import broker_service_pb2_grpc, fetch_pb2, produce_pb2, replication_service_pb2_grpc

async def main(address):
    waiting = fetch_pb2.FetchRequest(max_wait_ms=2**31 - 1, min_bytes=2**10, max_bytes=2**30, partitions=[
        fetch_pb2.FetchPartition(topic="kept", partition=0, fetch_offset=int(sys.argv[2]), partition_max_bytes=2**30)])
    calls, streams = [], []
    for _ in range(8):
        channel = grpc.aio.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1),))
        stub = broker_service_pb2_grpc.BrokerServiceStub(channel)
        calls += [stub.Fetch(waiting) for _ in range(20)]
        stream = stub.ProduceStream()
        for number in range(50):  # answers that nobody takes
            await stream.write(produce_pb2.ProduceRequest(acks=1, correlation_id=number))
        streams.append(stream)
        await asyncio.sleep(0)
    print("connected", flush=True)
    await asyncio.gather(*calls)

asyncio.run(main(sys.argv[1]))
"""


async def test_slow_and_vanishing_clients_cost_nothing_lasting(exposed: LocalCluster, watched: list[Watched]) -> None:
    """Long polls and streams of a process that is frozen, then killed; connections that say nothing."""
    leader = watched[exposed.leader_of(KEPT, 0)]
    await until_quiet(leader)
    before = (leader.process.num_fds(), leader.process.num_threads(), waiting(leader))
    async with Admin(exposed.bootstrap_servers) as admin:
        end = (await admin.list_offsets({TopicPartition(KEPT, 0): -1}))[TopicPartition(KEPT, 0)].offset
    clients = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-c", CLIENT, leader.address, str(end), stdout=asyncio.subprocess.PIPE
        )
        for _ in range(2)
    ]
    for client in clients:
        assert client.stdout is not None
        assert await asyncio.wait_for(client.stdout.readline(), 60) == b"connected\n"
    await asyncio.to_thread(until, lambda: waiting(leader) >= before[2] + 300, 60.0, "all long polls wait")
    assert leader.metric("kafka_server_socket_server_metrics_connection_count") >= 16
    for client in clients:
        os.kill(client.pid, signal.SIGSTOP)
    assert await read(exposed, KEPT, 100), "others are served meanwhile"
    for client in clients:
        client.kill()
        await client.wait()
    await asyncio.to_thread(until, lambda: waiting(leader) <= before[2], 60.0, "nothing waits any more")
    await asyncio.to_thread(until, lambda: leader.process.num_fds() <= before[0] + 3, 60.0, "descriptors are back")
    await asyncio.to_thread(until, lambda: leader.process.num_threads() <= before[1] + 8, 60.0, "threads are back")
    await still_serves(exposed, "after-clients")


async def test_clients_that_read_no_responses_get_no_more_of_them(
    exposed: LocalCluster, watched: list[Watched]
) -> None:
    """Six connections ask for 1.7 GB of records and take none of it; the broker's memory stays within its bound."""
    async with Admin(exposed.bootstrap_servers) as admin:
        await admin.create_topic("large", assignment=[[0, 1]])
    await write(exposed, "large", [b"v" * 900_000] * 8)
    broker = watched[0]
    wanted = fetch_pb2.FetchRequest(max_wait_ms=1, min_bytes=1, max_bytes=2**30)
    wanted.partitions.add(topic="large", partition=0, fetch_offset=0, partition_max_bytes=2**30)
    before = (broker.process.num_fds(), broker.metric("kafka_server_brokertopicmetrics_totalfetchrequests_total"))
    async with DeafClients(broker.address) as address, contextlib.AsyncExitStack() as channels:
        for _ in range(6):
            options = (("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1))
            channel = await channels.enter_async_context(grpc.aio.insecure_channel(address, options=options))
            stub: Any = broker_service_pb2_grpc.BrokerServiceStub(channel)  # its types know two classes
            calls = [stub.Fetch(wanted) for _ in range(40)]
            assert not any(call.done() for call in calls)
        await asyncio.to_thread(
            until,
            lambda: broker.metric("kafka_server_brokertopicmetrics_totalfetchrequests_total") >= before[1] + 12,
            60.0,
            "two answers wait for each",
        )
        await still_serves(exposed, "beside-the-deaf")
    await asyncio.to_thread(until, lambda: broker.process.num_fds() <= before[0] + 3, 60.0, "descriptors are back")


async def until_quiet(broker: Watched) -> None:
    """Connections of the tests before are closed: they are idle."""
    name = "kafka_server_socket_server_metrics_connection_count"
    await asyncio.to_thread(until, lambda: broker.metric(name) <= 6, 60.0, "only brokers are connected")


def waiting(broker: Watched) -> float:
    """Operations in the purgatories."""
    return broker.metric("kafka_server_delayedoperationpurgatory_purgatorysize")


def test_who_says_nothing_and_who_connects_too_often_is_dropped(exposed: LocalCluster, watched: list[Watched]) -> None:
    """connections.max.idle.ms and max.connections.per.ip; another address of the machine stands in for a stranger."""
    host, _, port = watched[0].address.partition(":")
    log = exposed.logs / "broker-0.log"
    crowd = [socket.create_connection((host, int(port)), 30, ("127.0.0.2", 0)) for _ in range(PER_ADDRESS + 20)]
    try:
        sentence = f"Rejected connection from /127.0.0.2, address already has the configured maximum of {PER_ADDRESS}"
        until(lambda: log.read_text().count(sentence) >= 20, what="the newest connections are closed")
        for silent in crowd:
            silent.settimeout(60)
            while silent.recv(4096):
                pass  # the broker's first frames, and then its end of the connection
    finally:
        for silent in crowd:
            silent.close()
    asyncio.run(still_serves(exposed, "after-crowd"))


def test_a_broker_is_bound_to_the_loopback_address_alone(exposed: LocalCluster, watched: list[Watched]) -> None:
    """It and its metrics: another address of the same machine refuses."""
    port = int(watched[0].address.partition(":")[2])
    for bound in (port, port + METRICS):
        socket.create_connection(("127.0.0.1", bound), 30).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", bound), 30)
