"""The load while faults happen: producers of several kinds with histories, a consumer of all they write, and for
each broker a client that sends fetches and reads nothing.

They run on an event loop of their own, in a thread; what they note are the files that ``tidegauge verify`` reads.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, Self

from tests.deaf_clients import fetch_and_never_read
from tests.waiting import pace, until

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client import Consumer, ConsumerRecord, Producer
from tidegauge_client.cli.formatting import record_json
from tidegauge_client.cluster_file import BrokerEntry
from tidegauge_client.history import HistoryWriter
from tidegauge_client.partition_queue import RecordMetadata
from tidegauge_client.sync import SyncAdmin
from tidegauge_lab.accountant.audit import Report
from tidegauge_lab.accountant.books import Kind
from tidegauge_lab.accountant.reading.topic_books import Sources, directories_of, read_and_audit
from tidegauge_lab.local.cluster import LocalCluster

RATE = 40
PARTITIONS = 2


class Workload(NamedTuple):
    """How a producer writes.

    Attributes:
        request_timeout_ms: how long a broker may take to respond.
        delivery_timeout_ms: after this a record has failed; a multiple of the request timeout, so that both may end at
            the same moment.
        may: findings that are no fault of the cluster, by what Kafka promises for such a producer.
    """

    acks: Literal["all", 1] = "all"
    idempotence: bool = True
    max_in_flight: int = 5
    compression: Literal["none", "lz4"] = "none"
    linger_ms: int = 0
    value_bytes: int = 20
    has_keys: bool = False
    replicas: int = 3
    min_insync_replicas: int = 2
    request_timeout_ms: int = 30_000
    delivery_timeout_ms: int = 120_000
    may: frozenset[Kind] = frozenset()


WORKLOADS: Mapping[str, Workload] = {
    "idempotent": Workload(),
    "expiring": Workload(request_timeout_ms=1_500, delivery_timeout_ms=3_000),
    "keys": Workload(has_keys=True, linger_ms=5),
    "large-lz4": Workload(compression="lz4", linger_ms=100, value_bytes=4_000),
    "not-idempotent": Workload(idempotence=False, max_in_flight=1, may=frozenset({Kind.DUPLICATED})),
    "acks-1": Workload(
        acks=1,
        idempotence=False,
        may=frozenset(
            {
                Kind.LOST,
                Kind.LOST_TAIL,
                Kind.DUPLICATED,
                Kind.MISPLACED,
                Kind.REORDERED,
                Kind.REORDERED_IN_REAL_TIME,
            }
        ),
    ),
    "two-replicas": Workload(replicas=2, min_insync_replicas=1),
}
"""All with a consumer beside them."""


class Load:
    """The workloads at work on topics of their own; a context manager that ends them.

    Args:
        cluster: where.
        directory: for histories and reads.
        name: the topics begin with it.
        workloads: which.
    """

    def __init__(
        self, cluster: LocalCluster, directory: Path, name: str, workloads: Mapping[str, Workload] = WORKLOADS
    ) -> None:
        self.cluster = cluster
        self.workloads = workloads
        self.topics = {kind: f"{name}-{kind}" for kind in workloads}
        self._directory = directory
        self._reads = directory / f"{name}.reads"
        self._acknowledged = dict.fromkeys(workloads, 0)
        self._ending = threading.Event()
        self._client_dies = threading.Event()
        self._gaps: list[str] = []
        self._problems: list[BaseException] = []
        self._thread = threading.Thread(target=self._work, name=name)

    def __enter__(self) -> Self:
        with SyncAdmin(self.cluster.bootstrap_servers) as admin:
            for kind, workload in self.workloads.items():
                ids = [broker.id for broker in self.cluster.file.brokers]
                assignment = [ids[: workload.replicas]] * PARTITIONS
                configs = {"min.insync.replicas": str(workload.min_insync_replicas)}
                admin.create_topic(self.topics[kind], assignment=assignment, configs=configs)
                admin.wait_for_topic(self.topics[kind])
        self._thread.start()
        self.wait_for_more()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def wait_for_more(self, count: int = 20) -> None:
        """Until each producer had so many more acknowledgements."""
        before = dict(self._acknowledged)

        def more() -> bool:
            assert not self._problems, self._problems
            return all(self._acknowledged[kind] >= before[kind] + count for kind in before)

        until(more, 120, "acknowledgements")

    def kill_client(self) -> None:
        """Every producer ends without waiting for anything, and another one takes its place."""
        self._client_dies.set()
        until(lambda: not self._client_dies.is_set())

    def verdict(self, kind: str) -> tuple[Report, list[str]]:
        """Return the accountant's report on one workload, and the consumer's complaints."""
        topic = self.topics[kind]
        sources = Sources(
            histories=[self._history(kind)],
            reads=[self._reads],
            event_logs=self.cluster.logs,
            log_directories=directories_of(self.cluster.directory, self.cluster.file),
        )
        report = asyncio.run(read_and_audit(self.cluster.bootstrap_servers, topic, sources))
        return report, [gap for gap in self._gaps if gap.startswith(f"{topic}-")]

    def wrong(self, kind: str) -> dict[str, int]:
        """Return the violations."""
        report, gaps = self.verdict(kind)
        may = self.workloads[kind].may
        found = {what.value: tally.count for what, tally in report.tallies.items() if tally.count and what not in may}
        return found | (dict.fromkeys(gaps, 1))

    def _history(self, kind: str) -> Path:
        return self._directory / f"{self.topics[kind]}.history"

    def _work(self) -> None:
        try:
            asyncio.run(self._all())
        except BaseException as problem:
            self._problems.append(problem)
            raise

    async def _all(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            reading = [tasks.create_task(self._consume()), tasks.create_task(self._consume_slowly())]
            reading += [tasks.create_task(self._fetch_and_never_read(one)) for one in self.cluster.file.brokers]
            while not self._ending.is_set():
                lives = asyncio.Event()
                writing = [tasks.create_task(self._produce(kind, lives)) for kind in self.workloads]
                while not self._ending.is_set() and not self._client_dies.is_set():
                    await pace(0.05)
                if self._client_dies.is_set():
                    for task in writing:
                        task.cancel()
                    await asyncio.wait(writing)
                    self._client_dies.clear()
                else:
                    lives.set()
                    await asyncio.wait(writing)
            for reader in reading:
                reader.cancel()

    async def _produce(self, kind: str, ending: asyncio.Event) -> None:
        workload, topic = self.workloads[kind], self.topics[kind]
        producer = Producer(
            self.cluster.bootstrap_servers,
            acks=workload.acks,
            idempotence=workload.idempotence,
            compression=workload.compression,
            linger_ms=workload.linger_ms,
            max_in_flight=workload.max_in_flight,
            request_timeout_ms=workload.request_timeout_ms,
            delivery_timeout_ms=workload.delivery_timeout_ms,
        )
        is_idempotent = workload.idempotence
        with HistoryWriter(self._history(kind), topic, str(workload.acks), is_idempotent=is_idempotent) as history:
            await producer.start()
            try:
                number = 0
                while not ending.is_set():
                    await self._send(producer, history, kind, number)
                    number += 1
                    await pace(1 / RATE)
                await producer.flush()
                await asyncio.sleep(0)  # the acknowledgements' callbacks run in the loop's next turn
            except asyncio.CancelledError:  # it dies
                await producer.stop(0)
                raise
            await producer.stop()

    async def _send(self, producer: Producer, history: HistoryWriter, kind: str, number: int) -> None:
        workload = self.workloads[kind]
        now_ns = time.time_ns()
        value = (b"%d %d " % (now_ns, number)).ljust(workload.value_bytes, b".")
        key = b"key %d" % (number % 5) if workload.has_keys else None
        partition = None if workload.has_keys else number % PARTITIONS
        history.sends_to(producer.topic_identity(self.topics[kind]))
        history.invoked(number, key, value, partition, now_ns // 1_000_000)
        try:
            future = await producer.send(
                self.topics[kind], value, key, partition=partition, timestamp_ms=now_ns // 1_000_000
            )
        except TidegaugeError as problem:
            history.failed(number, problem, is_definite=True)
        else:
            future.add_done_callback(partial(self._responded, history, kind, number))

    def _responded(
        self, history: HistoryWriter, kind: str, number: int, future: asyncio.Future[RecordMetadata]
    ) -> None:
        if future.cancelled():
            return
        problem = future.exception()
        if isinstance(problem, TidegaugeError):
            history.failed(number, problem, is_definite=problem.definite)
        elif problem is None:
            history.acknowledged(number, future.result())
            self._acknowledged[kind] += 1

    async def _fetch_and_never_read(self, broker: BrokerEntry) -> None:
        """Be a client that reads nothing; what it is sent must cost the others nothing, whatever fails meanwhile."""
        assert broker.kafka_address is not None
        partitions = [TopicPartition(topic, number) for topic in self.topics.values() for number in range(PARTITIONS)]
        while True:
            with contextlib.suppress(OSError):  # the broker is dead, or has had enough of it
                await fetch_and_never_read(broker.kafka_address, partitions)
            await pace(0.2)

    async def _consume_slowly(self) -> None:
        """Take a few records now and then, so that responses wait in this client and in the brokers' connections."""
        at: dict[tuple[str, int], int] = {}
        partitions = [TopicPartition(topic, number) for topic in self.topics.values() for number in range(PARTITIONS)]
        async with Consumer(self.cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions)
            while True:
                for record in await _poll(consumer, 5):
                    place = (record.topic, record.partition)
                    if record.offset != at.get(place, -1) + 1:
                        self._gaps.append(
                            f"{record.topic}-{record.partition}: slowly, {record.offset} after {at.get(place)}"
                        )
                    at[place] = record.offset
                await pace(0.5)

    async def _consume(self) -> None:
        """Notes all it gets; each offset must be the one behind the last one of its partition."""
        at: dict[tuple[str, int], int] = {}
        partitions = [TopicPartition(topic, number) for topic in self.topics.values() for number in range(PARTITIONS)]
        with self._reads.open("ab") as file:
            async with Consumer(self.cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
                consumer.assign(partitions)
                while True:
                    for record in await _poll(consumer):
                        place = (record.topic, record.partition)
                        if record.offset != at.get(place, -1) + 1:
                            self._gaps.append(
                                f"{record.topic}-{record.partition}: {record.offset} after {at.get(place)}"
                            )
                        at[place] = record.offset
                        line = json.dumps(record_json(record), separators=(",", ":"), ensure_ascii=False)
                        file.write(line.encode() + b"\n")
                    file.flush()


async def _poll(consumer: Consumer, max_records: int | None = None) -> Sequence[ConsumerRecord]:
    """Return records, or none at a damaged one, which the next poll fetches again."""
    try:
        return await consumer.poll(200, max_records)
    except TidegaugeError as problem:
        if problem.code is not ErrorCode.CORRUPT_MESSAGE:
            raise
        await pace(0.1)
        return []
