"""Reads, writes and data loss with one Spark session for all tests, on a real cluster."""

from __future__ import annotations

import asyncio
import json
import runpy
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.integration.spark_shell import SparkShell
from tests.replication_events import killed_leader, random_events

from tidegauge.partition import TopicPartition
from tidegauge_client import Admin, Producer
from tidegauge_client.history import read_history
from tidegauge_client.metadata import TopicIdentity
from tidegauge_lab.accountant.audit import audit
from tidegauge_lab.accountant.books import Books, CommittedLog, KeptRecord
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.replication_figures import figures_of
from tidegauge_lab.switches import Switches
from tidegauge_spark.marks import MARK_HEADER, Content, Mark
from tidegauge_spark.sink import Attempt, RowToWrite, TaskWriter
from tidegauge_spark.write_options import parse_write_options

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(1200)]

LOAD = """
def load(reader, topic, **options):
    reader = reader.format("tidegauge").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    return reader.options(**options).load()
def text(value):
    return None if value is None else bytes(value).decode()
def drain(topic, directory, **options):
    stream = load(spark.readStream, topic, startingOffsets="earliest", **options)
    rows = []
    def take(frame, batch_id):
        rows.extend([text(row.value), row.partition, row.offset] for row in frame.collect())
    query = stream.writeStream.foreachBatch(take).option("checkpointLocation", directory).trigger(availableNow=True)
    query.start().awaitTermination()
    return rows
"""


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkShell]:
    one = SparkShell(tmp_path_factory.mktemp("spark") / "spark.log")
    yield one
    one.close()


class Session:
    """The shell with the cluster's address."""

    def __init__(self, shell: SparkShell, cluster: LocalCluster) -> None:
        self._shell = shell
        self._servers = ",".join(cluster.bootstrap_servers)

    def run(self, code: str, **variables: Any) -> Any:
        return self._shell.run(LOAD + code, servers=self._servers, **variables)


@pytest.fixture
def session(shell: SparkShell, cluster: LocalCluster) -> Session:
    return Session(shell, cluster)


async def create(cluster: LocalCluster, topic: str, partitions: int = 2) -> None:
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(topic, partitions=partitions, replication_factor=3, timeout_ms=30_000)


async def produce(cluster: LocalCluster, topic: str, numbers: range, partition: int | None = None) -> None:
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in numbers:
            await producer.send(topic, b"v%d" % number, b"k%d" % number, partition=partition)


async def test_what_is_written_is_read_again(cluster: LocalCluster, session: Session) -> None:
    """All columns of Kafka's sink, and the columns that only this source has."""
    for topic in ("written-a", "written-b"):
        await create(cluster, topic)
    rows = session.run(
        """
schema = "key string, value binary, topic string, partition int, headers array<struct<key:string,value:binary>>, x int"
given = [("k1", b"v1", "written-a", 1, [("h", b"1"), ("h", None)], 7), (None, None, "written-b", 0, None, 7)]
frame = spark.createDataFrame(given, schema)
frame.write.format("tidegauge").option("kafka.bootstrap.servers", servers).mode("append").save()
read = load(spark.read, "written-a,written-b", includeHeaders="true", includeLeaderEpoch="true")
result = [
    [text(row.key), text(row.value), row.topic, row.partition, row.offset, row.leaderEpoch, row.highWatermark,
     row.headers and [[header.key, text(header.value)] for header in row.headers]]
    for row in read.orderBy("topic").collect()
]
"""
    )
    assert rows == [
        ["k1", "v1", "written-a", 1, 0, 0, 1, [["h", "1"], ["h", None]]],
        [None, None, "written-b", 0, 0, 0, 1, None],
    ]


async def test_a_sink_refuses_with_kafkas_sentences(session: Session) -> None:
    write = """
frame = spark.sql(query)
frame.write.format("tidegauge").option("kafka.bootstrap.servers", servers).options(**options).mode(mode).save()
"""

    def refusal(query: str, mode: str = "append", **options: str) -> str:
        return str(session.run(write, query=query, options=options, mode=mode))

    assert "topic option required when no 'topic' attribute is present" in refusal("select 'x' value")
    assert "Required attribute 'value' not found" in refusal("select 'x' key", topic="t")
    assert "value attribute unsupported type int. value must be a(n) string or binary" in refusal(
        "select 1 value", topic="t"
    )
    assert "contains a null topic" in refusal("select 'x' value, cast(null as string) topic")
    assert "Save mode overwrite not allowed" in refusal("select 'x' value", mode="overwrite", topic="t")
    assert "idempotent=true needs a micro-batch" in refusal("select 'x' value", topic="t", idempotent="true")


async def test_a_micro_batch_that_is_run_again_writes_nothing_twice(
    cluster: LocalCluster, session: Session, tmp_path: Path
) -> None:
    """Idempotent per query, batch and partition. A driver that dies after the write leaves no commit."""
    for topic in ("copy-from", "copy-to"):
        await create(cluster, topic)
    await produce(cluster, "copy-from", range(40))
    code = """
stream = load(spark.readStream, "copy-from", startingOffsets="earliest", maxOffsetsPerTrigger="20")
writer = stream.select("key", "value").writeStream.format("tidegauge").option("topic", "copy-to")
writer = writer.option("kafka.bootstrap.servers", servers).option("checkpointLocation", directory)
writer.trigger(availableNow=True).start().awaitTermination()
rows = load(spark.read, "copy-to", includeHeaders="true").collect()
result = [[text(row.value), [header.key for header in row.headers]] for row in rows]
"""
    first = session.run(code, directory=str(tmp_path))
    assert sorted(value for value, _ in first) == sorted(f"v{number}" for number in range(40))
    assert {tuple(headers) for _, headers in first} == {(MARK_HEADER,)}
    commits = sorted(int(file.name) for file in (tmp_path / "commits").iterdir() if file.name.isdigit())
    assert len(commits) >= 2, "the limit made several batches"
    for name in (str(commits[-1]), f".{commits[-1]}.crc"):
        (tmp_path / "commits" / name).unlink()
    await produce(cluster, "copy-from", range(40, 45))
    again = session.run(code, directory=str(tmp_path))
    assert Counter(value for value, _ in again) == Counter(f"v{number}" for number in range(45))


async def test_two_writes_of_one_micro_batch_need_names(
    cluster: LocalCluster, session: Session, tmp_path: Path
) -> None:
    """foreachBatch may write a topic twice: equal rows are written twice, or the second write is refused."""
    for topic in ("twice-from", "twice-to"):
        await create(cluster, topic)
    await produce(cluster, "twice-from", range(5))
    code = """
def write(name):
    def both(frame, _):
        for number in range(2):
            writer = frame.select("value").write.format("tidegauge").option("kafka.bootstrap.servers", servers)
            writer = writer.option("topic", "twice-to").option("idempotent", "true").mode("append")
            (writer.option("idempotentName", f"{name}{number}") if name else writer).save()
    return both

def run(directory, name):
    stream = load(spark.readStream, "twice-from", startingOffsets="earliest")
    writer = stream.coalesce(1).writeStream.foreachBatch(write(name)).option("checkpointLocation", directory)
    writer.trigger(availableNow=True).start().awaitTermination()

run(named, "write-")
values = [text(row.value) for row in load(spark.read, "twice-to").collect()]
try:
    run(unnamed, "")
    refusal = ""
except Exception as error:
    refusal = str(error)
result = [values, refusal]
"""
    values, refusal = session.run(code, named=str(tmp_path / "named"), unnamed=str(tmp_path / "unnamed"))
    assert Counter(values) == Counter(f"v{number}" for number in range(5) for _ in range(2))
    assert "writes topic twice-to twice" in refusal
    assert "option idempotentName" in refusal


async def test_a_task_that_died_half_way_is_completed(cluster: LocalCluster) -> None:
    """The second attempt gives the rows in another order and writes only the missing ones; no Spark needed."""
    await create(cluster, "half")
    given = {"kafka.bootstrap.servers": ",".join(cluster.bootstrap_servers), "topic": "half"}
    options = parse_write_options(given, streaming=True)
    rows = [RowToWrite(Content("half", None, b"v%d" % (number // 2), ()), None) for number in range(60)]

    def attempt(batch_id: int, number: int, some: list[RowToWrite]) -> TaskWriter:
        writer = TaskWriter(options, Attempt(Mark("query", batch_id, 0, "run"), number))
        writer.write(some)
        return writer

    def tell() -> None:
        assert attempt(0, 0, rows[:10]).sent == 10
        assert attempt(1, 0, rows[:33]).sent == 33
        second = attempt(1, 1, rows[::-1])
        assert (second.sent, second.skipped) == (27, 33)
        assert attempt(1, 2, rows).sent == 0

    await asyncio.to_thread(tell)  # a worker has no event loop; this test has


@pytest.mark.long
async def test_retention_behind_the_reader(cluster: LocalCluster, session: Session, tmp_path: Path) -> None:
    """failOnDataLoss: true fails with a sentence about it, false goes on where the log begins."""
    topic = "aged"
    await create(cluster, topic, 1)
    await produce(cluster, topic, range(10))
    assert len(session.run("result = drain(topic, directory)", topic=topic, directory=str(tmp_path))) == 10
    await produce(cluster, topic, range(10, 30))
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.delete_records({TopicPartition(topic, 0): 20})
    problem = session.run("result = drain(topic, directory)", topic=topic, directory=str(tmp_path))
    assert 'set the source option "failOnDataLoss" to "false"' in problem
    rows = session.run("result = drain(topic, directory, failOnDataLoss='false')", topic=topic, directory=str(tmp_path))
    assert [offset for _, _, offset in rows] == list(range(20, 30))


async def test_new_partitions_are_found_while_the_query_runs(
    cluster: LocalCluster, session: Session, tmp_path: Path
) -> None:
    """They begin at earliest, as in Kafka's source; ten of them share tasks. The listener tells the lag."""
    topic = "growing"
    await create(cluster, topic, 1)
    await produce(cluster, topic, range(5))
    started = session.run(
        """
import builtins
from tidegauge_spark.progress import lag_listener
builtins.lags = []
builtins.listener = lag_listener(lambda name, lag: lags.append([name, lag]))
spark.streams.addListener(listener)
stream = load(spark.readStream, topic, startingOffsets="earliest")
builtins.query = stream.writeStream.format("memory").queryName("growing_rows").start()
query.processAllAvailable()
result = spark.table("growing_rows").count()
""",
        topic=topic,
    )
    assert started == 5
    async with Admin(cluster.bootstrap_servers) as admin:
        await admin.create_partitions(topic, 10)
        await admin.wait_for_topic(topic, partitions=10)
    for partition in range(10):
        await produce(cluster, topic, range(4), partition)
    rows, lags = session.run(
        """
import time
end = time.monotonic() + 60
while spark.table("growing_rows").count() < 45 and time.monotonic() < end and query.isActive:
    query.processAllAvailable()
query.stop()
spark.streams.removeListener(listener)
result = [[[row.partition, row.offset] for row in spark.table("growing_rows").collect()], lags]
"""
    )
    assert Counter(map(tuple, rows)) == Counter(
        [(0, offset) for offset in range(9)] + [(one, offset) for one in range(1, 10) for offset in range(4)]
    )
    assert lags[-1][0] == "growing_rows"
    assert set(lags[-1][1]) == {"minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest"}


async def test_a_batch_query(cluster: LocalCluster, session: Session) -> None:
    """spark.read finds the installed source by itself (nothing registers it), with headers, ranges and clear errors."""
    topic = "spark-batch"
    await create(cluster, topic, 3)
    async with Producer(cluster.bootstrap_servers) as producer:
        futures = [
            await producer.send(topic, b"v%d" % number, partition=number % 3, headers=[("h", b"%d" % number)])
            for number in range(30)
        ]
        await producer.flush()
        expected = [
            [f"v{number}", number % 3, (await future).offset, [["h", f"{number}"]]]
            for number, future in enumerate(futures)
        ]
    response = session.run(
        """
def assigned(start, end, **more):
    limits = {f"{side}Offsets": json.dumps({topic: {"0": at}}) for side, at in (("starting", start), ("ending", end))}
    reader = spark.read.format("tidegauge").option("kafka.bootstrap.servers", servers)
    return reader.options(assign=json.dumps({topic: [0]}), **limits, **more).load()
def problem_of(call):
    try:
        call()
    except Exception as error:
        return str(error)
def problem(frame):
    return problem_of(frame.count)
pattern = spark.read.format("tidegauge").option("kafka.bootstrap.servers", servers)
rows = load(spark.read, topic, includeHeaders="true", minPartitions="6").collect()
result = {
    "rows": [[text(row.value), row.partition, row.offset, [[one.key, text(one.value)] for one in row.headers or []]]
             for row in rows],
    "some": sorted(row.offset for row in assigned(2, 5).collect()),
    "beyond": problem(assigned(11, -1, failOnDataLoss="false")),
    "unknown": problem(load(spark.read, "no-such-topic")),
    "at load": [problem_of(reader.format("tidegauge").option("subscribe", topic).load)
                for reader in (spark.read, spark.readStream)],
    "nothing": pattern.option("subscribePattern", "no-such.*").load().count(),
    "part": pattern.option("subscribePattern", "ark-bat").load().count(),
    "whole": pattern.option("subscribePattern", "^spark-bat$").load().count(),
    "named": pattern.option("subscribePattern", "spark-b.t.h").load().count(),
}
""",
        topic=topic,
    )
    assert sorted(response["rows"]) == sorted(expected)
    assert response["some"] == [2, 3, 4]
    assert (
        "start offset 11 is greater than the resolved end offset 10 for topic spark-batch partition 0"
        in (response["beyond"])
    )
    assert "This server does not host no-such-topic" in response["unknown"]
    assert all("Option 'kafka.bootstrap.servers' must be specified" in one for one in response["at load"])
    assert (response["nothing"], response["whole"], response["named"]) == (0, 0, 30)
    assert response["part"] == 30, "found anywhere in the name, as Spark's source looks for it"


@pytest.mark.long
async def test_reading_by_time(cluster: LocalCluster, session: Session) -> None:
    """A time goes before offsets and means the first record from then on; if there is none, the strategy decides."""
    topic, began_ms = "by-time", int(time.time() * 1000)
    await create(cluster, topic, 1)
    async with Producer(cluster.bootstrap_servers) as producer:
        for number in range(10):
            await producer.send(topic, b"x", timestamp_ms=began_ms + number * 1000)
    response = session.run(
        """
def at(number):
    return json.dumps({topic: {"0": number}})
def offsets(**options):
    try:
        return sorted(row.offset for row in load(spark.read, topic, **options).collect())
    except Exception as error:
        return str(error)
young = str(began_ms + 90_000)
result = [
    offsets(startingOffsetsByTimestamp=at(began_ms + 2500), endingTimestamp=str(began_ms + 6000)),
    offsets(startingTimestamp=str(began_ms + 7000), startingOffsetsByTimestamp=at(0), endingTimestamp=young),
    offsets(startingTimestamp=young, startingOffsets="earliest", startingOffsetsByTimestampStrategy="latest"),
    offsets(startingTimestamp=young, startingOffsets="earliest"),
]
""",
        topic=topic,
        began_ms=began_ms,
    )
    assert response[:3] == [[3, 4, 5], [7, 8, 9], []]
    assert "No offset matched from request of topic-partition by-time-0 and timestamp" in response[3]


@pytest.mark.long
async def test_what_was_never_committed_is_never_given(
    make_cluster: Callable[..., LocalCluster], shell: SparkShell, tmp_path: Path
) -> None:
    """Records that only the leader had are truncated when it returns; the stream has seen none and misses no other."""
    # Slow to shrink an ISR: held followers stay in it and may be elected.
    slow = {"replica.lag.time.max.ms": "600000", "auto.leader.rebalance.enable": "false"}
    brokers = make_cluster(brokers=3, settings=slow)
    topic, at = "cut-off", TopicPartition("cut-off", 0)
    code = """
stream = load(spark.readStream, topic, startingOffsets="earliest", includeLeaderEpoch="true")
result = []
def take(frame, batch_id):
    result.extend([text(row.value), row.offset, row.leaderEpoch] for row in frame.collect())
writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", directory)
writer.trigger(availableNow=True).start().awaitTermination()
"""

    async def write(values: list[str], acks: Any = "all") -> None:
        async with Producer(brokers.bootstrap_servers, acks=acks, idempotence=False) as producer:
            for value in values:
                await (await producer.send(topic, value.encode(), partition=0))

    async def drain() -> Any:
        return await asyncio.to_thread(Session(shell, brokers).run, code, topic=topic, directory=str(tmp_path / "c"))

    async with Admin(brokers.bootstrap_servers) as admin:
        await admin.create_topic(topic, assignment=[[0, 1, 2]])
        await admin.wait_for_topic(topic)
    await write(["a", "b"])
    seen = await drain()
    async with Switches.of_cluster(brokers.file) as switches:
        await switches.hold_fetch(at, [1, 2])
        await write(["lost-1", "lost-2", "lost-3"], acks=1)
        seen += await drain()
        assert seen == [["a", 0, 0], ["b", 1, 0]], "nothing above the high watermark"
        await asyncio.to_thread(brokers.kill, 0, expire=True)
        async with Admin(brokers.bootstrap_servers) as admin:
            await admin.wait_for_epochs({at: 1})
        for broker_id in (1, 2):
            await switches.clear(broker_id, holds=True)
    await write(["c"])
    await asyncio.to_thread(brokers.start, 0)
    await write(["d"])
    seen += await drain()
    assert [row[:2] for row in seen] == [["a", 0], ["b", 1], ["c", 2], ["d", 3]]
    assert min(epoch for _, offset, epoch in seen if offset >= 2) >= 1, "where the lost ones were, a later leader wrote"


def crooked_books(seed: int) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Histories of three producers and a log that keeps them badly: lines, and records of two partitions."""
    random = Random(seed)
    lines: list[dict[str, Any]] = []
    log: list[dict[str, Any]] = []
    ends = [0, 0]

    def keep(partition: int, key: str | None, value: str, timestamp_ms: int) -> int:
        log.append({"partition": partition, "offset": ends[partition], "key": key, "value": value, "ms": timestamp_ms})
        ends[partition] += 1
        return ends[partition] - 1

    for number in range(240):
        producer, partition, ms = f"p{number % 3}", random.randrange(2), 1_000 + number
        key, value = random.choice([None, "k"]), f"v{number}"
        identity = {"producer": producer, "number": number}
        asked = random.choice([None, partition])
        lines.append(
            {
                "type": "invoke",
                **identity,
                "time_us": number * 10,
                "topic": "t",
                "acks": random.choice(["all", "1", "0"]),
            }
            | {"idempotent": True, "partition": asked, "key": key, "value": value, "timestamp_ms": ms}
        )
        fate = random.random()
        response = {**identity, "time_us": number * 10 + random.choice([5, 25])}
        if fate < 0.75:
            offset = keep(partition, key, value, ms)
            if fate < 0.05:
                keep(partition, key, value, ms)
            if fate < 0.10:
                offset += random.choice([-1, 1, 500])
            lines.append({"type": "ok", **response, "partition": partition, "offset": offset})
        elif fate < 0.80:
            lines.append({"type": "ok", **response, "partition": partition, "offset": random.choice([3, 999])})
        elif fate < 0.90:
            if fate < 0.85:
                keep(partition, key, value, ms)
            lines.append({"type": "fail", **response, "error": "MESSAGE_TOO_LARGE"})
        elif fate < 0.95:
            keep(partition, key, value, ms)
        if fate > 0.97:
            keep(partition, None, f"stranger{number}", ms)
    for one, other in ((5, 40), (60, 64)):
        for name in ("key", "value", "ms"):
            log[one][name], log[other][name] = log[other][name], log[one][name]
    return lines, log


AUDIT = """
import datetime
from tidegauge_spark.audit_tables import Bounds, audit
rows = [
    (one["key"] and one["key"].encode(), one["value"].encode(), "t", one["partition"], one["offset"],
     datetime.datetime.fromtimestamp(one["ms"] / 1000, datetime.timezone.utc), 0)
    for one in log
]
schema = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
frame = spark.createDataFrame(rows, schema)
bounds = [Bounds("t", index, start, end, end + 2, "id") for index, (start, end) in enumerate(ends)]
found = audit(spark, spark.read.text(history), frame, bounds, ["t"], is_compacted=False)
counts = {}
for row in found.counts:
    counts[row["kind"]] = counts.get(row["kind"], 0) + row["count"]
left_out = [found.of_others, found.without_topic_id]
result = [found.accounts, counts, found.records, found.damaged_lines, [row["kind"] for row in found.examples], left_out]
"""


@pytest.mark.long
def test_the_audit_at_scale_finds_what_the_accountant_finds(session: Session, tmp_path: Path) -> None:
    """Books that do not balance, judged by the accountant and by Spark."""
    lines, log = crooked_books(7)
    history = tmp_path / "history.jsonl"
    begin = {"type": "begin", "producer": lines[0]["producer"], "topic": "t", "topic_id": "id", "cluster_id": "c"}
    other = {"type": "invoke", "producer": "other", "number": 0, "topic": "t", "partition": 0, "acks": "all"}
    other |= {"idempotent": True, "key": None, "value": "deleted", "timestamp_ms": 1, "time_us": 2}
    lines = [
        begin | {"time_us": 0},
        begin | {"time_us": 1, "producer": "other", "topic_id": "deleted"},
        *(other, {"type": "ok", "producer": "other", "number": 0, "time_us": 3, "partition": 0, "offset": 2}),
        *lines,
    ]
    history.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"type":"ok","prod', encoding="utf-8")
    ends = [(2, 1 + max(one["offset"] for one in log if one["partition"] == index)) for index in range(2)]
    log = [one for one in log if one["offset"] >= 2]
    accounts, counts, records, damaged, examples, left_out = session.run(
        AUDIT, log=log, ends=ends, history=str(history)
    )
    logs = {}
    for index, (start, end) in enumerate(ends):
        kept = [
            KeptRecord(one["offset"], one["key"] and one["key"].encode(), one["value"].encode(), one["ms"], 0)
            for one in log
            if one["partition"] == index
        ]
        logs[index] = CommittedLog(index, start, end, kept, log_end_offset=end + 2)
    sent = read_history([history], "t", TopicIdentity("id", "c"))
    assert left_out == [sent.of_others.total(), sent.without_identity] == [1, sent.without_identity]
    report = audit(Books("t", sent.records, logs))
    expected = {kind.value: tally.count for kind, tally in report.tallies.items() if tally.count}
    assert counts == expected
    assert set(expected) >= {
        "lost",
        "lost-tail",
        "duplicated",
        "misplaced",
        "phantom",
        "kept-though-failed",
        "reordered",
    }
    reported = {row.pop("acks"): row for row in accounts}
    assert reported == {level: asdict(account) for level, account in report.accounts.items()}
    assert (records, damaged) == (len(log), 1)
    assert max(Counter(examples).values()) <= 10


REPLICATION = """
from tidegauge_spark.replication_tables import hw_lag_of, replication_tables
lines = spark.createDataFrame([(json.dumps(event),) for event in events] + [("cut off",)], "value string")
tables = replication_tables(spark, lines, 2, [])
for row in tables["partitions"]:
    row["hw_lag"] = hw_lag_of(row)
result = tables
"""


@pytest.mark.long
def test_the_replication_report_adds_up(session: Session) -> None:
    """0 is killed at 1000, 1 leads from 1400 with itself alone, 2 is back at 1900; 2500 to 3000 there is no leader."""
    events = killed_leader()
    tables = session.run(REPLICATION, events=events)
    (partition,) = tables["partitions"]
    lag = partition.pop("hw_lag")
    assert partition == {
        "topic": "t",
        "partition": 0,
        "leader_changes": 2,
        "leaderless_ms": 400 + 500,
        "under_min_isr_ms": 500,
        "smallest_isr": 1,
        "hw_lag_max": 10,
    }
    assert (lag["p50"], lag["max"]) == (0, 10)
    assert tables["elections"] == [
        {"broker": 0, "strategy": "initial", "elections": 1},
        {"broker": 1, "strategy": "offline", "elections": 1},
        {"broker": 2, "strategy": "offline", "elections": 1},
    ]
    assert tables["truncations"] == [{"broker": 2, "truncations": 1, "records": 2}]
    assert tables["span"] == {"first_ms": 0, "last_ms": 4000, "events": 14}


@pytest.mark.long
def test_the_verb_report_has_the_figures_of_the_job(session: Session) -> None:
    """``tidegauge report`` computes in one process what Spark computes by SQL: of a story, and of random events."""
    report_of = runpy.run_path(str(Path(__file__).parents[2] / "spark_jobs/replication_report.py"))["report_of"]
    for events in (killed_leader(), *(random_events(seed) for seed in range(6))):
        tables = session.run(REPLICATION.replace('row["hw_lag"] = hw_lag_of(row)', "pass"), events=events)
        assert report_of(tables, 2) == figures_of(events, 2)
