"""A broker that leads the partitions of one topic, and serves share groups: its states are kept by the test.

The log is real. Time passes when the test says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_cluster import LEADER, TOPIC, TOPIC_ID, KafkaCluster

from tidegauge.errors import ErrorCode
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import ReadShareState, SharePartitionKey, ShareStateResult, StateBatch, WriteShareState
from tidegauge.wall_time import WallTime
from tidegauge_broker.replica.messages import ProducePartition, ProduceRequest
from tidegauge_broker.server.share.fetching import Fetched, ShareFetches, WantedFetch
from tidegauge_broker.server.share.hosted import HostedSharePartition
from tidegauge_broker.server.share.led import Led
from tidegauge_broker.server.share.partitions import SharePartitions
from tidegauge_broker.server.share.service import ShareService
from tidegauge_broker.share.acknowledging import Acknowledgement
from tidegauge_broker.share.acquiring import Wanted
from tidegauge_broker.share.sessions import PartitionId, SessionKey, ShareSessions
from tidegauge_broker.share.settings import AcquireMode, ShareSettings
from tidegauge_client.records import NewRecord, encode_batch

TOPIC_ID_BYTES = topic_id_bytes(TOPIC_ID)
PARTITION = PartitionId(TOPIC_ID_BYTES, 0)
AT = TopicPartition(TOPIC, 0)
KEY = SharePartitionKey("g", *PARTITION)
LOCK_MS = 5000
ACCEPT, RELEASE, REJECT, RENEW = range(1, 5)
Acquired = list[tuple[int, int, int]]


class States:
    """The share coordinator: a state for each share partition, and its writes.

    Attributes:
        errors: of the next requests, one after the other; then there are none.
        held: while it is not set, requests wait.
    """

    def __init__(self) -> None:
        self.errors: list[ErrorCode] = []
        self.writes: list[WriteShareState] = []
        self.reads: list[ReadShareState] = []
        self.start_offset = -1
        self.batches: tuple[StateBatch, ...] = ()
        self.held = asyncio.Event()
        self.held.set()

    async def read_state(self, request: ReadShareState) -> ShareStateResult:
        self.reads.append(request)
        await self.held.wait()
        return ShareStateResult(self._error(), "why", 2, 0, self.start_offset, batches=self.batches)

    async def write_state(self, request: WriteShareState) -> ShareStateResult:
        self.writes.append(request)
        await self.held.wait()
        return ShareStateResult(self._error(), "why")

    def _error(self) -> ErrorCode:
        return self.errors.pop(0) if self.errors else ErrorCode.NONE


class ShareBroker:
    """A broker with share partitions. Make it inside a running loop, ``start`` it, and ``close`` it."""

    def __init__(self, directory: Path, partitions: int = 1, settings: ShareSettings | None = None) -> None:
        self.cluster = KafkaCluster(directory, partitions, 1)
        self.broker = self.cluster.brokers[LEADER]
        self.now_ms = 1000
        self.states = States()
        self.settings = settings or ShareSettings(record_lock_duration_ms=LOCK_MS, auto_offset_reset="earliest")
        led, service = Led(self.broker.replicas), self.broker.service()
        self.partitions = SharePartitions(
            led, self.states, service.list_offset, lambda _: self.settings, lambda: self.now_ms, WallTime()
        )
        self.fetches = ShareFetches(self.partitions, led, lambda: self.now_ms, lambda _: 0)
        sessions = ShareSessions(2)
        self.service = ShareService(self.partitions, self.fetches, sessions, lambda _: self.settings, led)

    async def start(self) -> None:
        await self.cluster.start()

    async def close(self) -> None:
        await self.service.close()
        await self.cluster.close()

    def produce(self, *sizes: int, partition: int = 0) -> None:
        """Append batches of so many records each."""
        for size in sizes:
            batch = encode_batch([NewRecord(value=b"x") for _ in range(size)])
            part = ProducePartition(TopicPartition(TOPIC, partition), batch)
            assert self.broker.replicas.produce(ProduceRequest(1, 1000, [part])).done()

    def wanted(
        self,
        member: str = "a",
        max_records: int = 1000,
        wait_ms: int = 0,
        min_bytes: int = 1,
        batch_size: int = 1000,
        mode: AcquireMode = AcquireMode.BATCH_OPTIMIZED,
        partitions: Sequence[int] = (0,),
        group: str = "g",
    ) -> WantedFetch:
        ones = {PartitionId(TOPIC_ID_BYTES, one): TopicPartition(TOPIC, one) for one in partitions}
        return WantedFetch(group, member, wait_ms, min_bytes, 1 << 20, Wanted(max_records, batch_size, mode), ones)

    async def open(self, group: str = "g") -> HostedSharePartition:
        """Load the share partition of partition 0."""
        hosted = self.partitions.opened(SharePartitionKey(group, *PARTITION), AT)
        await self.until(lambda: hosted.core.state.value not in {"empty", "initializing"})
        return hosted

    async def turns(self) -> None:
        """Let the event loop turn until nothing more happens."""
        for _ in range(50):
            await asyncio.sleep(0)

    async def until(self, holds: object) -> None:
        """Let the event loop turn until something holds."""
        assert callable(holds)
        for _ in range(1000):
            if holds():
                return
            await asyncio.sleep(0)
        raise AssertionError("it does not come to hold")

    async def fetch(self, member: str = "a", **named: object) -> Acquired:
        """Return what a member acquires of partition 0."""
        return acquired(await self.service.fetch(self.wanted(member, **named)))  # type: ignore[arg-type] # as named

    async def late(self, **named: object) -> dict[PartitionId, Fetched]:
        """Return what a fetch gives when its time is over."""
        wanted = self.wanted(**{"wait_ms": 5, **named})  # type: ignore[arg-type] # as named
        task = asyncio.get_running_loop().create_task(self.service.fetch(wanted))
        await self.turns()
        assert not task.done()
        self.now_ms += 5
        return await task

    def begin_fetch(self, member: str = "a", **named: object) -> asyncio.Task[dict[PartitionId, Fetched]]:
        """Begin a fetch that waits up to a minute."""
        wanted = self.wanted(member, **{"wait_ms": 60_000, **named})  # type: ignore[arg-type] # as named
        return asyncio.get_running_loop().create_task(self.service.fetch(wanted))

    async def acknowledge(self, first: int, last: int, *types: int, member: str = "a") -> ErrorCode:
        """Acknowledge offsets of partition 0; return the error once it is there."""
        batches = [Acknowledgement(first, last, types)]
        future = self.service.acknowledge(SessionKey("g", member), PARTITION, batches)
        assert future is not None
        return (await future)[0]

    def session(self, member: str = "a", connection: str = "c") -> None:
        """Open a session of partition 0."""
        self.service.context(SessionKey("g", member), 0, [PARTITION], (), connection, acknowledges=False)

    @property
    def written(self) -> list[tuple[int, list[tuple[int, ...]]]]:
        """Start offset and batches of all writes."""
        return [(one.start_offset, [tuple(map(int, batch)) for batch in one.batches]) for one in self.states.writes]


def acquired(found: Mapping[PartitionId, Fetched], partition: int = 0) -> Acquired:
    """Return the acquired records of a partition."""
    return [tuple(one) for one in found.get(PartitionId(TOPIC_ID_BYTES, partition), Fetched()).acquired]
