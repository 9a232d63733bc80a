"""How long a group's rebalance takes on Tidegauge and on Apache Kafka: ``python bench/rebalance_times.py``.

Members speak Kafka's protocol by themselves and rejoin as soon as a heartbeat says so, so what is measured is the
coordinator's part and its log's, not a client's poll loop: from the JoinGroup with which a new member begins the
rebalance until every member has the response to its SyncGroup. ``group.initial.rebalance.delay.ms`` is 0 on both. Each
number of members is measured in several rebalances; median and largest are printed, in milliseconds.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import kafka_side

from tidegauge.errors import ErrorCode
from tidegauge.kafka.apis import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP, SYNC_GROUP
from tidegauge.kafka.frames import decode, joined, read_response_header, request_frame
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest
from tidegauge.kafka.messages.heartbeat import HeartbeatRequest
from tidegauge.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from tidegauge.kafka.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tidegauge_lab.local.cluster import LocalCluster

SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
READY_SECONDS = 90.0
SESSION_MS, REBALANCE_MS = 30_000, 60_000
METADATA = bytes(6)
"""A subscription to nothing: the assignment is the leader's business, and not measured."""
VERSIONS = {FIND_COORDINATOR: 3, JOIN_GROUP: 7, SYNC_GROUP: 5, HEARTBEAT: 4}


class Connection:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._numbers = itertools.count(1)

    async def ask(self, key: int, message: Any) -> Any:
        """Return the response to a request."""
        self._writer.write(joined(request_frame(key, VERSIONS[key], next(self._numbers), "bench", message)))
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = memoryview(await self._reader.readexactly(size))
        _, body_at = read_response_header(key, VERSIONS[key], frame)
        return decode(key, VERSIONS[key], frame, body_at, response=True)[0]

    def close(self) -> None:
        """End it."""
        self._writer.close()


async def coordinator_of(server: str, group: str) -> tuple[str, int]:
    """Return the address of the group's coordinator, which the first request creates the topic for."""
    host, _, port = server.partition(":")
    deadline = time.monotonic() + READY_SECONDS
    while True:
        connection = Connection(*await asyncio.open_connection(host, int(port)))
        try:
            response = await connection.ask(FIND_COORDINATOR, FindCoordinatorRequest(key=group))
        finally:
            connection.close()
        if response.error_code == ErrorCode.NONE:
            return response.host, response.port
        if time.monotonic() > deadline:
            raise RuntimeError(f"no coordinator: {response.error_code}")
        await asyncio.sleep(0.1)


class Member:
    """A member that rejoins when its heartbeat says so."""

    def __init__(self, connection: Connection, group: str) -> None:
        self._connection = connection
        self._group = group
        self._id = ""
        self.generation = -1

    async def join(self) -> None:
        """Join the next generation, and get its assignment."""
        while True:
            response = await self._connection.ask(
                JOIN_GROUP,
                JoinGroupRequest(
                    self._group,
                    SESSION_MS,
                    REBALANCE_MS,
                    self._id,
                    protocol_type="consumer",
                    protocols=[JoinGroupRequestProtocol("range", METADATA)],
                ),
            )
            self._id = response.member_id or self._id
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                continue
            if response.error_code != ErrorCode.NONE:
                raise RuntimeError(f"JoinGroup: {response.error_code}")
            assignments = [SyncGroupRequestAssignment(one.member_id, METADATA) for one in response.members]
            done = await self._connection.ask(
                SYNC_GROUP,
                SyncGroupRequest(
                    self._group,
                    response.generation_id,
                    self._id,
                    protocol_type="consumer",
                    protocol_name="range",
                    assignments=assignments,
                ),
            )
            if done.error_code == ErrorCode.NONE:
                self.generation = response.generation_id
                return
            if done.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
                raise RuntimeError(f"SyncGroup: {done.error_code}")

    async def rejoin(self) -> None:
        """Send heartbeats until the group rebalances, then join."""
        while True:
            beat = await self._connection.ask(HEARTBEAT, HeartbeatRequest(self._group, self.generation, self._id))
            if beat.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                break
            await asyncio.sleep(0.002)
        await self.join()

    def close(self) -> None:
        """Close the connection, without leaving."""
        self._connection.close()


async def measured(server: str, members: int, times: int) -> list[float]:
    """Return the durations of rebalances of a group that has so many members afterwards, in milliseconds."""
    found: list[float] = []
    for number in range(times + 1):  # the first is not counted
        group = f"rebalance-{members}-{number}"
        host, port = await coordinator_of(server, group)
        all_members = [Member(Connection(*await asyncio.open_connection(host, port)), group) for _ in range(members)]
        for at, member in enumerate(all_members):
            begin = time.perf_counter()
            await asyncio.gather(member.join(), *(one.rejoin() for one in all_members[:at]))
            last = (time.perf_counter() - begin) * 1000
        if number:
            found.append(last)
        for member in all_members:
            member.close()
    return found


def row(name: str, members: int, found: list[float]) -> dict[str, Any]:
    """Return a row of the table."""
    return {
        "side": name,
        "members": members,
        "median_ms": round(statistics.median(found), 1),
        "largest_ms": round(max(found), 1),
        "times": len(found),
    }


def main() -> int:
    """Measure both, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[3, 30])
    parser.add_argument("--times", type=int, default=10)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="rebalance-") as name:
        directory = Path(name)
        cluster = LocalCluster.create(directory / "tidegauge", 3, profile="kafka", settings=SETTINGS)
        try:
            cluster.up(READY_SECONDS)
            for members in options.members:
                found = asyncio.run(measured(cluster.kafka_bootstrap_servers[0], members, options.times))
                rows.append(row("Tidegauge", members, found))
        finally:
            cluster.down()
        side = kafka_side.Kafka(directory, SETTINGS)
        try:
            side.start()
            for members in options.members:
                found = asyncio.run(measured(side.bootstrap.split(",")[0], members, options.times))
                rows.append(row(side.name, members, found))
        except kafka_side.Unavailable as reason:
            print(f"Apache Kafka can't be had here ({reason}): only Tidegauge was measured")
        finally:
            side.stop()
    for one in rows:
        print(json.dumps(one))
    return 0


if __name__ == "__main__":
    sys.exit(main())
