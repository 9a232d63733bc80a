"""The cost of one request over Kafka's protocol for a broker, log and core included, as CPU time.

One broker, one partition, one connection, one request in flight; the client is a plain socket. The broker's CPU
while nothing is asked of it is taken off. CPU time moves less than throughput with what else the machine does, but it
does move: caches and cores are shared, and to wake the client costs what the processor's state makes it cost. So each
round also measures, in turn with the broker, a bare server: the same event loop in the same language, which reads a
request of the same size and writes a response of the same size, and does nothing else. The least of the rounds, and
what a request costs above the bare server's, compare between machines and days; a median alone does not.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import (
    ALTER_CLIENT_QUOTAS,
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    PRODUCE,
    SYNC_GROUP,
)
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from tidegauge.kafka.messages.api_versions import ApiVersionsRequest
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest
from tidegauge.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidegauge.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidegauge.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidegauge_client import Admin
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_lab.local.cluster import LocalCluster

TOPIC = "orders"
BASE_PORT = 23392  # no other program's default
VERSIONS = {PRODUCE: 9, FETCH: 12, METADATA: 9, LIST_OFFSETS: 7, API_VERSIONS: 3} | {
    FIND_COORDINATOR: 3,
    JOIN_GROUP: 7,
    SYNC_GROUP: 5,
    HEARTBEAT: 4,
    OFFSET_COMMIT: 8,
    ALTER_CLIENT_QUOTAS: 1,
}
GROUP = "cost"
SESSION_MS = 1_800_000
"""As long as group.max.session.timeout.ms allows: the member is silent while others are measured."""
READY_SECONDS = 60.0
WARM_UP_REQUESTS = 500
IDLE_SECONDS = 2.0


class Connection:
    """A connection with one request in flight."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, frame: bytes) -> bytes:
        """Send a request; return the frame of its response."""
        self._socket.sendall(frame)
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def announce(self, response_bytes: int) -> None:
        """Tell the bare server how long its responses are."""
        self._socket.sendall(struct.pack(">i", response_bytes))

    def ask(self, key: int, message: Any) -> Any:
        """Send a message; return the message of its response."""
        frame = memoryview(self.send(request(key, message)))
        _, offset = read_response_header(key, VERSIONS[key], frame)
        return decode(key, VERSIONS[key], frame, offset, response=True)[0]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            part = self._socket.recv(size - len(found))
            assert part, "the broker has closed the connection"
            found += part
        return bytes(found)


def request(key: int, message: Any) -> bytes:
    """Return a request's frame."""
    return joined(request_frame(key, VERSIONS[key], 1, "cost", message))


def requests(size_bytes: int) -> dict[str, tuple[int, Any]]:
    """Return the requests to measure; a fetch reads one batch of a produce."""
    batch = encode_batch([NewRecord(value=b"x" * size_bytes)])
    return {
        "Produce": (
            PRODUCE,
            ProduceRequest(None, 1, 30_000, [TopicProduceData(TOPIC, partition_data=[PartitionProduceData(0, batch)])]),
        ),
        "Fetch": (
            FETCH,
            FetchRequest(
                max_wait_ms=500,
                min_bytes=1,
                max_bytes=1 << 20,
                topics=[FetchTopic(TOPIC, partitions=[FetchPartition(0, partition_max_bytes=len(batch))])],
            ),
        ),
        "Metadata": (METADATA, MetadataRequest([MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)),
        "ListOffsets": (
            LIST_OFFSETS,
            ListOffsetsRequest(-1, 0, [ListOffsetsTopic(TOPIC, [ListOffsetsPartition(0, timestamp=-1)])]),
        ),
        "ApiVersions": (API_VERSIONS, ApiVersionsRequest("cost", "1")),
    }


def group_requests(connection: Connection) -> dict[str, tuple[int, Any]]:
    """Join a group as its only member; return the requests of a member to measure: a commit is of one partition."""
    deadline = time.monotonic() + READY_SECONDS
    while connection.ask(FIND_COORDINATOR, FindCoordinatorRequest(key=GROUP)).error_code != ErrorCode.NONE:
        if time.monotonic() > deadline:
            raise RuntimeError("the group has no coordinator")
        time.sleep(0.1)
    protocols = [JoinGroupRequestProtocol("range", bytes(6))]
    joining = JoinGroupRequest(GROUP, SESSION_MS, SESSION_MS, "", protocol_type="consumer", protocols=protocols)
    joining.member_id = connection.ask(JOIN_GROUP, joining).member_id
    generation = connection.ask(JOIN_GROUP, joining).generation_id
    assignments = [SyncGroupRequestAssignment(joining.member_id, bytes(6))]
    synced = connection.ask(
        SYNC_GROUP, SyncGroupRequest(GROUP, generation, joining.member_id, None, "consumer", "range", assignments)
    )
    assert synced.error_code == ErrorCode.NONE, synced
    committed = [
        OffsetCommitRequestTopic(TOPIC, partitions=[OffsetCommitRequestPartition(0, 7, committed_metadata="")])
    ]
    commit = OffsetCommitRequest(GROUP, generation, joining.member_id, topics=committed)
    return {
        "Heartbeat": (HEARTBEAT, HeartbeatRequest(GROUP, generation, joining.member_id)),
        "OffsetCommit": (OFFSET_COMMIT, commit),
    }


def set_quotas(connection: Connection) -> None:
    """Set quotas of the client id that are too large to be exceeded; wait until the broker has them in force."""
    names = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
    entry = EntryData([EntityData("client-id", "cost")], [OpData(name, 1e9) for name in names])
    assert (
        connection.ask(ALTER_CLIENT_QUOTAS, AlterClientQuotasRequest([entry])).entries[0].error_code == ErrorCode.NONE
    )
    time.sleep(IDLE_SECONDS)


class _Bare(asyncio.BufferedProtocol):
    """Reads frames and writes for each as many bytes as the connection's first four bytes say, in one piece."""

    def __init__(self) -> None:
        self._room = bytearray(1 << 20)
        self._filled_bytes = 0
        self._response = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._descriptor = transport.get_extra_info("socket").fileno()

    def get_buffer(self, sizehint: int) -> memoryview:
        del sizehint
        return memoryview(self._room)[self._filled_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled_bytes += nbytes
        (size,) = struct.unpack_from(">i", self._room)
        if not self._response:
            self._response = struct.pack(">i", size - 4) + bytes(size - 4)
            self._filled_bytes -= 4  # the first request may have come with it
            self._room[: self._filled_bytes] = self._room[4 : 4 + self._filled_bytes]
            (size,) = struct.unpack_from(">i", self._room)
        if self._filled_bytes == size + 4:
            self._filled_bytes = 0
            os.writev(self._descriptor, [self._response])


def _serve(port: Any) -> None:
    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(_Bare, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    asyncio.run(serve())


@contextmanager
def bare_server() -> Iterator[tuple[int, str]]:
    """Run the bare server in a process of its own; give its pid and its address."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(theirs,), daemon=True)
    process.start()
    try:
        assert process.pid is not None
        yield process.pid, f"127.0.0.1:{ours.recv()}"
    finally:
        process.kill()
        process.join()


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, all of its threads, to the nanosecond: clock_getcpuclockid(3) on Linux."""
    return time.clock_gettime((~pid << 3) | 2)


def cost_us(pid: int, work: Callable[[], object], number: int, idle: float) -> float:
    """Return the broker's CPU microseconds per call of ``work``, minus its idle share."""
    before, begin = cpu_seconds(pid), time.monotonic()
    for _ in range(number):
        work()
    spent = cpu_seconds(pid) - before - idle * (time.monotonic() - begin)
    return spent / number * 1e6


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a line for each request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=500, help="of each kind in a round")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--bytes", type=int, default=16_384, help="of the record in a Produce and a Fetch")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    parser.add_argument(
        "--with-quotas", action="store_true", help="set quotas that are not reached: clients are measured"
    )
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster.create(
            Path(directory) / "one",
            1,
            profile="kafka",
            settings={"offsets.topic.replication.factor": "1", "group.initial.rebalance.delay.ms": "0"},
            base_port=options.base_port,
            kafka_port=options.base_port + 4,
        )
        try:
            cluster.up()
            asyncio.run(create_topic(cluster))
            with bare_server() as bare:
                measure(cluster, bare, options)
        finally:
            cluster.down()


async def create_topic(cluster: LocalCluster) -> None:
    """Create the topic that is written and read."""
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1)
        await admin.wait_for_topic(TOPIC, timeout_ms=60_000)


def measure(cluster: LocalCluster, bare: tuple[int, str], options: argparse.Namespace) -> None:
    """Print the CPU time of each kind of request, and of the bare server for requests and responses of that size."""
    pid = cluster.pid_of(0)
    assert pid is not None
    connection = Connection(cluster.kafka_bootstrap_servers[0])
    if options.with_quotas:
        set_quotas(connection)
    frames: dict[str, bytes] = {}
    to_bare: dict[str, Connection] = {}
    measured = requests(options.bytes) | group_requests(connection)
    for name, (key, message) in measured.items():
        response = connection.ask(key, message)
        assert not any(_errors(response)), response
        frames[name] = request(key, message)
        to_bare[name] = Connection(bare[1])
        to_bare[name].announce(len(connection.send(frames[name])) + 4)
        for _ in range(WARM_UP_REQUESTS):
            connection.send(frames[name])
            to_bare[name].send(frames[name])
    before = cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    idle = (cpu_seconds(pid) - before) / IDLE_SECONDS
    found: dict[str, list[float]] = {name: [] for name in frames}
    bare_costs: dict[str, list[float]] = {name: [] for name in frames}
    for _ in range(options.rounds):
        for name, frame in frames.items():
            found[name].append(cost_us(pid, partial(connection.send, frame), options.requests, idle))
            bare_costs[name].append(cost_us(bare[0], partial(to_bare[name].send, frame), options.requests, 0.0))
    for one in (connection, *to_bare.values()):
        one.close()
    print(
        "| API | least, us of CPU | median, us | bare server, least and median, us | median above the bare server, us |"
    )
    print("|---|---|---|---|---|")
    for name, costs in found.items():
        of_bare = bare_costs[name]
        median, bare_median = statistics.median(costs), statistics.median(of_bare)
        print(
            f"| {name} v{VERSIONS[measured[name][0]]} | {min(costs):.0f} | {median:.0f} | "
            f"{min(of_bare):.0f}, {bare_median:.0f} | {median - bare_median:.0f} |"
        )
    print(
        f"\n{options.rounds} rounds of {options.requests} requests; {options.bytes} bytes in a Produce and a Fetch; "
        f"one partition, one replica, acks=1; {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}"
    )


def _errors(message: Any) -> list[int]:
    """Return all error codes in a message."""
    found = []
    for name in getattr(message, "__slots__", ()):
        value = getattr(message, name)
        if name == "error_code":
            found.append(int(value))
        elif isinstance(value, (list, tuple)):
            found += [error for part in value for error in _errors(part)]
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
