"""The demo in order: cluster, topic, Spark query, stream, a killed leader, its return, and the books balanced.

Rules (mission, main job):
- The main stream starts only when the query has committed its first small batch: Spark takes a quarter of a minute
  to start, and the kill must fall while everything runs.
- A wait ends with an error when nothing moves any more, however slow the machine is (patience.py).
- Nothing is awaited by sleeping for a time: the kill waits for a third of the rows sent, the restart for two thirds,
  the end for the query's end offsets to equal the high watermarks.
- Nothing is left running: if this process is killed, a guard ends all (``local.guard``).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.event_log import read_directory
from tidegauge.partition import TopicPartition
from tidegauge_client import Admin, Producer
from tidegauge_client.metadata import PartitionInfo, TopicInfo
from tidegauge_lab.demo import books, history
from tidegauge_lab.demo.flights import Flight, find_archive, read_flights
from tidegauge_lab.demo.patience import Patience
from tidegauge_lab.demo.query import Query, find_job
from tidegauge_lab.demo.screen import Progress, progress, tell
from tidegauge_lab.demo.stream import Stream
from tidegauge_lab.local import takedown
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.guard import guarding
from tidegauge_lab.local.launcher import kept

CLUSTER = "cluster"
TOPIC = "flights"
PARTITIONS = 3
REPLICATION_FACTOR = 3
MIN_INSYNC_REPLICAS = 2
FIRST_ROWS = 1_000
STREAM_SECONDS = 30.0
LIMIT_SECONDS = 180.0
"""How long nothing may move (``Patience``)."""
_POLL_SECONDS = 0.1
_SAY_AGAIN_SECONDS = 20.0
"""A wait that lasts says so, so that a busy machine is not taken for a demo that hangs."""
_LOOKS_AT_PROGRESS = 10
"""At every tenth look at a condition: reading every thread's use of the machine costs more than most conditions."""


class Demo:
    """One run.

    Args:
        directory: a new directory for the cluster, the job's output and all logs.
        rows: how many rows of the data set; None: all.
        stream_seconds: how long the main stream shall last.
    """

    def __init__(self, directory: Path, rows: int | None = None, stream_seconds: float = STREAM_SECONDS) -> None:
        self._directory = directory
        self._rows = rows
        self._stream_seconds = stream_seconds
        self._archive = find_archive()
        find_job()  # a missing Spark is reported before anything starts
        self._query = Query(directory)
        self._problems: list[str] = []

    async def run(self) -> list[str]:
        """Tell the story; return the failed expectations, a sentence each."""
        with guarding(self._directory / CLUSTER, signs=(self._query.sign,)), kept(self._directory / CLUSTER):
            return await self._run()

    async def _run(self) -> list[str]:
        began = time.monotonic()
        grace_seconds = takedown.GRACE_SECONDS
        cluster = await asyncio.to_thread(LocalCluster.create, self._directory / CLUSTER, REPLICATION_FACTOR)
        try:
            source = asyncio.get_running_loop().run_in_executor(None, self._read_source)
            await asyncio.to_thread(cluster.up)
            tell(f"Cluster: ZooKeeper and {REPLICATION_FACTOR} brokers, {time.monotonic() - began:.1f} s")
            tell(f"  brokers {', '.join(cluster.bootstrap_servers)}")
            tell(f"  everything lies in {self._directory}")
            await self._main_job(cluster, source)
        except asyncio.CancelledError:
            grace_seconds = 0  # it was interrupted, and nothing of its data is needed any more
            raise
        finally:
            self._query.abandon()
            await asyncio.to_thread(cluster.down, grace_seconds=grace_seconds)
        tell(f"The whole demo took {time.monotonic() - began:.0f} s.")
        return self._problems

    def _flights(self) -> Iterator[Flight]:
        return itertools.islice(read_flights(self._archive), self._rows)

    def _read_source(self) -> books.Account:
        account = books.Account()
        for flight in self._flights():
            account.enter(flight.key, flight.value)
        return account

    async def _main_job(self, cluster: LocalCluster, source_coming: Awaitable[books.Account]) -> None:
        async with Admin(cluster.bootstrap_servers) as admin:
            created_ms = int(time.time() * 1000)
            await admin.create_topic(
                TOPIC,
                partitions=PARTITIONS,
                replication_factor=REPLICATION_FACTOR,
                configs={"min.insync.replicas": str(MIN_INSYNC_REPLICAS)},
            )
            await admin.wait_for_topic(TOPIC)
            tell(f"Created topic {TOPIC} with min.insync.replicas={MIN_INSYNC_REPLICAS}.")
            await asyncio.to_thread(self._query.start, cluster.bootstrap_servers, TOPIC)
            tell("Started the Spark query; its first batch takes 15 s or more.")
            stream = await self._produce_and_fail(cluster, admin, await source_coming)
            await self._balance(cluster, await source_coming, stream, created_ms)

    async def _produce_and_fail(self, cluster: LocalCluster, admin: Admin, source: books.Account) -> Stream:
        """Run the stream from its first row until Spark has committed all of it."""
        async with Producer(
            cluster.bootstrap_servers, acks="all", linger_ms=20, batch_size_bytes=65_536, max_in_flight=5
        ) as producer:
            stream = Stream(producer, TOPIC)
            rows = self._flights()
            await stream.send(itertools.islice(rows, FIRST_ROWS))
            await producer.flush()
            await self._until("Spark's first batch", lambda: _done(self._query.rows() > 0))
            tell(f"First batch committed; now the main stream, paced to {self._stream_seconds:.0f} s")
            with progress(source.total) as bars:
                shower = asyncio.create_task(self._show(bars, stream))
                try:
                    await self._stream_and_fail(cluster, admin, stream, rows, source.total)
                    await producer.flush()
                    await self._until("Spark to reach the high watermarks", lambda: self._caught_up(admin))
                finally:
                    shower.cancel()
            self._problems += [f"a row failed: {text}" for text in stream.failures[:5]]
            return stream

    async def _stream_and_fail(
        self, cluster: LocalCluster, admin: Admin, stream: Stream, rows: Iterator[Flight], total: int
    ) -> None:
        main = total - FIRST_ROWS
        sending = asyncio.create_task(stream.send(rows, main / self._stream_seconds))
        faults = asyncio.create_task(self._fail_and_return(cluster, admin, stream, main))
        try:
            await asyncio.gather(sending, faults)
        finally:
            sending.cancel()
            faults.cancel()

    async def _fail_and_return(self, cluster: LocalCluster, admin: Admin, stream: Stream, main: int) -> None:
        await stream.reached(FIRST_ROWS + main // 3)
        before = await self._describe(admin, "Before the failure")
        victim = _leads_most(before)
        led = [str(info.topic_partition) for info in before.partitions.values() if info.leader_id == victim]
        tell(f"kill -9 broker {victim}, the leader of {', '.join(led)}")
        await asyncio.to_thread(cluster.kill, victim)
        await self._until(f"the partitions of broker {victim} to be led by others", lambda: _left(admin, victim))
        after = await self._describe(admin, "Just after: new leaders from the ISR, in the order of the assignment")
        self._problems += election_problems(before, after, victim)
        await stream.reached(FIRST_ROWS + 2 * main // 3)
        tell(f"Starting broker {victim} again")
        await asyncio.to_thread(cluster.start, victim)
        await self._until(f"broker {victim} to be in every ISR", lambda: _in_sync(admin))
        await self._describe(admin, f"Broker {victim} is back and in sync")

    async def _describe(self, admin: Admin, title: str) -> TopicInfo:
        topic = (await admin.describe_topics([TOPIC]))[0]
        tell(f"{title}:")
        for info in topic.partitions.values():
            tell(f"  {partition_line(info)}")
        return topic

    async def _caught_up(self, admin: Admin) -> bool:
        ends = await admin.list_offsets({TopicPartition(TOPIC, partition): -1 for partition in range(PARTITIONS)})
        reached = self._query.end_offsets(TOPIC)
        return all(reached.get(at.partition) == end.offset for at, end in ends.items())

    async def _show(self, bars: Progress, stream: Stream) -> None:
        while True:
            bars.show(sent=stream.sent, acknowledged=stream.acknowledged.total, committed=self._query.rows())
            await asyncio.sleep(0.3)

    async def _until(self, what: str, condition: Callable[[], Awaitable[bool]]) -> None:
        patience = Patience(LIMIT_SECONDS, self._query.usage)
        began = said = time.monotonic()
        for look in itertools.count(1):
            if await condition():
                return
            self._query.check()
            if look % _LOOKS_AT_PROGRESS == 0 and patience.is_over(self._query.trace()):
                raise TidegaugeError(
                    ErrorCode.REQUEST_TIMED_OUT,
                    f"waited for {what}, and nothing has moved for {LIMIT_SECONDS:.0f} s; see {self._query.log}",
                )
            if time.monotonic() - said >= _SAY_AGAIN_SECONDS:
                said = time.monotonic()
                tell(f"  still waiting for {what} ({said - began:.0f} s)")
            await asyncio.sleep(_POLL_SECONDS)

    async def _balance(self, cluster: LocalCluster, source: books.Account, stream: Stream, created_ms: int) -> None:
        summary = await asyncio.to_thread(self._query.stop)
        committed = await asyncio.to_thread(books.read_parquet, self._query.output)
        tell(f"Spark committed {summary['rows']:,} rows in {summary['batches']} batches.")
        for line in books.table([("source", source), ("acknowledged", stream.acknowledged), ("in Parquet", committed)]):
            tell(f"  {line}")
        self._problems += books.mismatches(source, stream.acknowledged, committed)
        events = read_directory(cluster.directory / "logs")
        tell("Leaders' history (seconds since the topic was created):")
        for line in history.history_lines(history.leaderships(events, TOPIC), created_ms):
            tell(f"  {line}")
        gaps = history.gaps(events, TOPIC)
        for gap in gaps:
            tell(
                f"  {gap.topic_partition} was without a leader for {gap.milliseconds:,} ms "
                f"(broker {gap.lost_leader} -> {gap.new_leader})"
            )
        if not gaps:
            self._problems.append("no change of leaders was recorded")


def partition_line(info: PartitionInfo) -> str:
    """Return leader and followers of a partition in one short line."""
    leader = "none" if info.leader_id is None else info.leader_id
    replicas, isr = (",".join(map(str, brokers)) for brokers in (info.replicas, info.isr))
    return f"{info.topic_partition}  leader {leader}  epoch {info.leader_epoch}  replicas {replicas}  ISR {isr}"


def election_problems(before: TopicInfo, after: TopicInfo, victim: int) -> list[str]:
    """Whether Kafka's rule held: the first of the assignment that is alive and was in the ISR leads."""
    found: list[str] = []
    for number, old in before.partitions.items():
        new = after.partitions[number]
        isr = [broker for broker in old.isr if broker != victim]
        expected = (
            next((broker for broker in old.replicas if broker in isr), None)
            if old.leader_id == victim
            else old.leader_id
        )
        if new.leader_id != expected:
            found.append(f"{new.topic_partition} is led by {new.leader_id}, by Kafka's rule it should be {expected}")
        if victim in new.isr:
            found.append(f"the ISR of {new.topic_partition} still holds broker {victim}")
    return found


def _leads_most(topic: TopicInfo) -> int:
    leads = Counter(info.leader_id for info in topic.partitions.values() if info.leader_id is not None)
    most = max(leads.values())
    return min(broker for broker, count in leads.items() if count == most)


async def _done(value: bool) -> bool:
    return value


async def _partitions(admin: Admin) -> list[PartitionInfo]:
    return list((await admin.describe_topics([TOPIC]))[0].partitions.values())


async def _left(admin: Admin, victim: int) -> bool:
    return all(info.leader_id not in {None, victim} and victim not in info.isr for info in await _partitions(admin))


async def _in_sync(admin: Admin) -> bool:
    return all(len(info.isr) == len(info.replicas) for info in await _partitions(admin))
