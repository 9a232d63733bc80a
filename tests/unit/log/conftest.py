"""Batches, and logs in a temporary directory whose clock the test sets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from tidegauge.partition import TopicPartition
from tidegauge.record_batch import BatchHeader, read_header
from tidegauge.settings import parse_broker_settings, parse_topic_settings
from tidegauge.wall_time import WallTime
from tidegauge_broker.log.files import DISK, Disk, StorageError
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.log.partition_log import PartitionLog
from tidegauge_broker.server.replication.log_cleaner import LogCleaner

START_MS = 1_700_000_000_000
CLUSTER = "abcdefghijklmnopqrstuv"
TOPIC_ID = "topicidtopicidtopicidt"


def build_batch(
    count: int = 1,
    *,
    value: bytes = b"v",
    time_ms: int = START_MS,
    producer_id: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    codec: int = 0,
    transactional: bool = False,
) -> bytes:
    """A batch as a producer makes it: offsets from 0, one ms from record to record."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=int(transactional),
        producer_id=producer_id,
        producer_epoch=epoch if producer_id >= 0 else -1,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for index in range(count):
        builder.append(index, time_ms + index, b"k%d" % index, value, [("h", b"x")])
    return bytes(builder.build())


def build_keyed_batch(
    *pairs: tuple[bytes | None, bytes | None],
    time_ms: int = START_MS,
    producer_id: int = -1,
    sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A batch of these keys and values; a value of None is a tombstone."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=int(transactional),
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        base_sequence=sequence,
        batch_size=1 << 20,
    )
    for index, (key, value) in enumerate(pairs):
        builder.append(index, time_ms, key, value, [])
    return bytes(builder.build())


@pytest.fixture(scope="session")
def keyed_batch() -> Callable[..., bytes]:
    return build_keyed_batch


@pytest.fixture(scope="session")
def batch() -> Callable[..., bytes]:
    return build_batch


@dataclass
class Bench:
    """One broker's log directory."""

    directory: Path
    settings: dict[str, str] = field(default_factory=dict)
    now_ms: int = START_MS
    wall: WallTime = field(default_factory=WallTime)
    manager: LogManager | None = None
    disk: Disk = DISK

    name = TopicPartition("orders", 0)

    def open(self, *, broker_id: int = 1, cluster_id: str = CLUSTER) -> LogManager:
        broker, unknown = parse_broker_settings(self.settings)
        assert not unknown
        self.manager = LogManager.open(
            [self.directory],
            broker_id=broker_id,
            cluster_id=cluster_id,
            broker=broker,
            topic_values=lambda _topic: parse_topic_settings({}, broker),
            now_ms=lambda: self.now_ms,
            disk_of=lambda _directory: self.disk,
            wall=self.wall,
        )
        return self.manager

    def log(self) -> PartitionLog:
        manager = self.manager or self.open()
        return manager.get_or_create(self.name, TOPIC_ID, is_new=True)

    def stop(self, *, clean: bool = True) -> None:
        if self.manager is not None:
            self.manager.close({}, clean=clean)
            self.manager = None

    def restart(self, *, clean: bool = True) -> PartitionLog:
        self.stop(clean=clean)
        return self.log()

    def append(self, records: bytes, *, epoch: int = 0, append_time_ms: int = -1) -> BatchHeader:
        """Append as a leader does."""
        log = self.log()
        header = read_header(records)._replace(base_offset=log.log_end_offset, leader_epoch=epoch)
        log.append_as_leader(records, header, append_time_ms)
        return header

    @property
    def partition_directory(self) -> Path:
        return self.directory / str(self.name)

    def files(self, suffix: str) -> list[str]:
        return sorted(path.name for path in self.partition_directory.glob("*" + suffix))


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "data")
    yield made
    made.stop(clean=False)


@pytest.fixture(scope="session")
def make_bench() -> type[Bench]:
    """For property tests, which make a directory for every example."""
    return Bench


def clean_once(manager: LogManager, ends: dict[TopicPartition, int], *steps: Callable[[], object]) -> None:
    """Run the cleaner once over logs up to these offsets; a step happens before each of its calls in the pool."""
    replicas: Any = SimpleNamespace(
        logs=manager,
        core=SimpleNamespace(last_stable_offsets=lambda: ends),
        delete_old_segments_of_compacted=lambda: None,
    )
    left = list(steps)

    async def in_pool(call: Callable[[], None]) -> None:
        if left:
            left.pop(0)()
        with suppress(StorageError):  # as in a broker, which notes that the log directory is offline
            call()

    asyncio.run(LogCleaner(replicas, in_pool).run())


@pytest.fixture(scope="session")
def run_cleaner() -> Callable[..., None]:
    return clean_once
