"""What one request over Kafka's protocol costs a broker, log and core included, as CPU time.

One broker, one partition, one connection, one request in flight; the client is a plain socket. What the broker uses
while nothing is asked of it is taken off. CPU time hardly moves with what else the machine does, as throughput would;
what still moves it is seen in the spread of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tidegauge.kafka.apis import FETCH, METADATA, PRODUCE
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tidegauge.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic
from tidegauge.kafka.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tidegauge_client import Admin
from tidegauge_client.records import NewRecord, encode_batch
from tidegauge_lab.local.cluster import LocalCluster

TOPIC = "orders"
BASE_PORT = 23392  # no other program's default
VERSIONS = {PRODUCE: 9, FETCH: 12, METADATA: 9}
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
            ProduceRequest(None, 1, 30_000, [TopicProduceData(TOPIC, [PartitionProduceData(0, batch)])]),
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
    }


def cpu_seconds(pid: int) -> float:
    """CPU time that a process has used, all of its threads, to the nanosecond: clock_getcpuclockid(3) on Linux."""
    return time.clock_gettime((~pid << 3) | 2)


def cost_us(pid: int, work: Callable[[], object], number: int, idle: float) -> float:
    """Return the broker's CPU microseconds for each call of ``work``; ``idle`` is its CPU share without requests."""
    before, begin = cpu_seconds(pid), time.monotonic()
    for _ in range(number):
        work()
    spent = cpu_seconds(pid) - before - idle * (time.monotonic() - begin)
    return spent / number * 1e6


def main(arguments: Sequence[str]) -> None:
    """Measure, and print a line for each request."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2_000, help="of each kind in a round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=16_384, help="of the record in a Produce and a Fetch")
    parser.add_argument("--base-port", type=int, default=BASE_PORT)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        cluster = LocalCluster.create(
            Path(directory) / "one", 1, profile="kafka", base_port=options.base_port, kafka_port=options.base_port + 10
        )
        try:
            cluster.up()
            asyncio.run(_create(cluster))
            measure(cluster, options)
        finally:
            cluster.down()


async def _create(cluster: LocalCluster) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(TOPIC, partitions=1, replication_factor=1)
        await admin.wait_for_topic(TOPIC, timeout_ms=60_000)


def measure(cluster: LocalCluster, options: argparse.Namespace) -> None:
    """Print the CPU time of each kind of request."""
    pid = cluster.pid_of(0)
    assert pid is not None
    connection = Connection(cluster.kafka_bootstrap_servers[0])
    frames = {}
    for name, (key, message) in requests(options.bytes).items():
        response = connection.ask(key, message)
        assert not any(_errors(response)), response
        frames[name] = request(key, message)
        for _ in range(WARM_UP_REQUESTS):
            connection.send(frames[name])
    before = cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    idle = (cpu_seconds(pid) - before) / IDLE_SECONDS
    found: dict[str, list[float]] = {name: [] for name in frames}
    for _ in range(options.rounds):
        for name, frame in frames.items():
            found[name].append(cost_us(pid, lambda frame=frame: connection.send(frame), options.requests, idle))  # type: ignore[misc]  # bound here
    connection.close()
    for name, costs in found.items():
        print(
            f"{name}: {statistics.median(costs):.0f} us of CPU a request ({min(costs):.0f} to {max(costs):.0f} in "
            f"{len(costs)} rounds of {options.requests}; {options.bytes} bytes, one partition, "
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.0f})"
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
