"""The log raises at one of its calls, each in its turn: every request is completed, and other partitions proceed.

A broker with two log directories and its real services plays random requests to several partitions. Each call of the
port ``ReplicaLogs`` (an append, a truncation, leader epochs, a log start, a deletion, a read) fails in one run: with an
I/O error, an error of the table, or an unexpected exception. As in Kafka, an append or a read fails for its
partition (ReplicaManager.appendToLocalLog, readFromLog), and a directory that fails takes its own replicas offline
(LogDirFailureHandler).
"""

from __future__ import annotations

import asyncio
import errno
import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hostile_broker import BROKERS, CLUSTER, KNOWN_ERRORS, TOPIC_ID, HostileBroker, errors_in
from tests.unit.hostile.test_hostile_requests import batch

from tidegauge.control import Endpoint
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.v1 import control_pb2, fetch_pb2, offsets_pb2, produce_pb2
from tidegauge_controller import wire

LED = (0, 2, 3, 4)
"""Partitions that the broker leads; it follows broker 1 in partition 1."""
CHANGES = (
    "append_as_leader",
    "append_as_follower",
    "truncate_to",
    "truncate_fully",
    "advance_log_start",
    "write_epochs",
)
NONE, OFFLINE = int(ErrorCode.NONE), int(ErrorCode.KAFKA_STORAGE_ERROR)


class FailingLogs:
    """The port of a broker's logs; one of its calls raises.

    Attributes:
        logs: the port itself.
        calls: how many there were.
        failed: the partition whose call failed, and how the port names it.
    """

    def __init__(self, logs: Any, at_call: int, problem: Exception) -> None:
        self.logs, self._at_call, self._problem = logs, at_call, problem
        self.calls = 0
        self.failed: tuple[TopicPartition, str] | None = None

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.logs, name)
        if name not in {*CHANGES, "delete", "read"}:
            return method

        def call(first: Any, *rest: Any, **named: Any) -> Any:
            self.calls += 1
            if self.calls == self._at_call:
                self.failed = first if name == "read" else first.topic_partition, name
                raise self._problem
            return method(first, *rest, **named)

        return call


@dataclass
class Played:
    """The outcome of a sequence of requests: the acknowledged offsets of each partition."""

    acknowledged: dict[int, list[int]] = field(default_factory=lambda: {at: [] for at in LED})


async def lead(broker: HostileBroker, leader_epoch: int) -> list[int]:
    """LeaderAndIsr for all that the broker leads; its responses."""
    header = control_pb2.ControlHeader(controller_id=0, controller_epoch=1, broker_epoch=1)
    live = [wire.to_endpoint(Endpoint(broker_id, "127.0.0.1", 9092 + broker_id)) for broker_id in BROKERS]
    state: dict[str, Any] = {"topic": "t", "topic_id": TOPIC_ID, "controller_epoch": 1, "leader_id": 0, "isr": [0]}
    state |= {"leader_epoch": leader_epoch, "replicas": [0, 1], "partition_epoch": leader_epoch}
    request = control_pb2.LeaderAndIsrRequest(
        header=header,
        partitions=[control_pb2.LeaderAndIsrPartition(**state, partition=at, is_new=True) for at in LED],
        live_leaders=live,
    )
    (response,) = await broker.call("LeaderAndIsr", request)
    return [one.error for one in response.partitions]


def produce(acks: int, partitions: list[int]) -> Any:
    parts = [{"topic": "t", "partition": at, "records": batch()} for at in partitions]
    return produce_pb2.ProduceRequest(acks=acks, timeout_ms=0, partitions=parts)


def fetch(offsets: dict[int, int]) -> Any:
    parts = [
        {"topic": "t", "partition": at, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        for at, offset in offsets.items()
    ]
    return fetch_pb2.FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, partitions=parts)


async def play(broker: HostileBroker, seed: int) -> Played:
    """Random requests, each to several partitions; every one is completed, with errors of the table."""
    random_ = random.Random(seed)
    played = Played()
    for leader_epoch in range(5, 21):
        chosen = random_.sample(LED, random_.randint(2, len(LED)))
        match random_.choice(("produce", "produce", "fetch", "replica", "elect", "delete")):
            case "produce":
                (response,) = await broker.call("Produce", produce(random_.choice((1, -1)), chosen))
                for part in response.partitions:
                    if part.error == NONE:
                        played.acknowledged[part.partition].append(part.base_offset)
            case "fetch":
                (response,) = await broker.call("Fetch", fetch(dict.fromkeys(chosen, 0)))
            case "replica":
                request = fetch_pb2.ReplicaFetchRequest(
                    request_id=1,
                    replica_id=1,
                    cluster_id=CLUSTER,
                    truncation_rule="kip-320",
                    min_bytes=1,
                    max_bytes=1 << 20,
                    partitions=fetch(dict.fromkeys(chosen, 0)).partitions,
                )
                (response,) = await broker.call("ReplicaFetch", request)
            case "elect":
                assert set(await lead(broker, leader_epoch)) <= {NONE, OFFLINE}
                continue
            case _:
                parts = [{"topic": "t", "partition": at, "before_offset": -1} for at in chosen]
                request = offsets_pb2.DeleteRecordsRequest(timeout_ms=0, partitions=parts)
                (response,) = await broker.call("DeleteRecords", request)
        assert set(errors_in(response)) <= KNOWN_ERRORS
        assert len(response.partitions) == len(chosen), "every partition is answered"
    return played


async def run(seed: int, at_call: int, problem: Exception) -> FailingLogs:
    broker = await HostileBroker(log_directories=2).begin()
    try:
        assert await lead(broker, 4) == [NONE] * len(LED)
        executor: Any = broker.replicas._executor
        logs = executor._logs = FailingLogs(executor._logs, at_call, problem)
        played = await play(broker, seed)
        executor._logs = logs.logs
        await check(broker, logs, problem, played)
        return logs
    finally:
        broker.abandon()


async def check(broker: HostileBroker, logs: FailingLogs, problem: Exception, played: Played) -> None:
    """Only the partition that failed, or its directory, is offline; all others proceed, with what they acknowledged."""
    # Internal partitions are in the same directories, and fail with them.
    offline = {at.partition for at in broker.replicas._executor.failed if at.topic == "t"}
    if logs.failed is None or logs.failed[1] == "read":
        assert not offline, "a read that fails takes nothing offline"
    elif not isinstance(problem, OSError):
        assert offline == {logs.failed[0].partition}
    else:
        assert logs.failed[0].partition in offline
        assert len(offline) < len(LED), "the other directory works"
    (response,) = await broker.call("Produce", produce(-1, list(LED)))
    assert {part.partition for part in response.partitions if part.error == OFFLINE} == offline & set(LED)
    ends = {part.partition: part.base_offset for part in response.partitions if part.error == NONE}
    assert set(ends) == set(LED) - offline
    for at, end in ends.items():
        log = broker.logs.get(TopicPartition("t", at))
        assert log is not None
        assert log.log_end_offset == end + 1, "the log is where the core takes it to be"
        assert all(offset < end for offset in played.acknowledged[at])
    (response,) = await broker.call("Fetch", fetch(ends))
    assert {part.partition: part.error for part in response.partitions} == dict.fromkeys(ends, NONE)
    assert all(part.high_watermark == ends[part.partition] + 1 and part.records for part in response.partitions)


PROBLEMS: tuple[Exception, ...] = (
    OSError(errno.ENOSPC, "No space left on device"),
    RuntimeError("a defect"),
    TidegaugeError(ErrorCode.CORRUPT_MESSAGE, "damaged"),
    KeyError("a defect"),
    OSError(errno.EIO, "Input/output error"),
)


@pytest.mark.parametrize("seed", range(4))
def test_every_call_of_the_log_fails_in_its_turn_and_every_request_has_a_response(seed: int) -> None:
    calls = asyncio.run(run(seed, 0, PROBLEMS[0])).calls
    assert calls > 10
    failed = set()
    for at_call in range(1, calls + 1):
        logs = asyncio.run(run(seed, at_call, PROBLEMS[(at_call + seed) % len(PROBLEMS)]))
        assert logs.failed is not None
        failed.add(logs.failed[1])
    assert {"append_as_leader", "read"} <= failed
