"""Transactions under the instruments of the lab: faults and holds on each API, a hanging transaction found and ended.

Verification (KIP-890, part 1) is off, as before Kafka 3.6: only so a batch that arrives after its transaction has ended
opens one that no coordinator has.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.clients.programs import KAFKA, Unavailable, tool
from tests.waiting import until_async

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.v1 import produce_pb2
from tidegauge_client import Admin, Consumer, Producer
from tidegauge_client.admin_groups import OffsetAndMetadata
from tidegauge_client.channels import Channels
from tidegauge_client.group.group_consumer import GroupMetadata
from tidegauge_client.records import encode_batch
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.roles import TRANSACTION
from tidegauge_lab.switches import Switches

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]
SETTINGS = {
    "transaction.partition.verification.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
TIDEGAUGE = Path(sys.executable).with_name("tidegauge")
LIMIT_SECONDS = 120
LONG_AGO_MS = 20 * 60_000
"""Older than find-hanging's 15 minutes."""


def printed(cluster: LocalCluster, *words: str) -> str:
    """Return the output of a verb."""
    command = [str(TIDEGAUGE), *words, "-b", ",".join(cluster.bootstrap_servers)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS).stdout


def printed_by_kafka(cluster: LocalCluster, *words: str) -> str:
    """Return the output of 3.9's kafka-transactions.sh."""
    try:
        command = tool(KAFKA, "TransactionsCommand")
    except Unavailable as problem:
        pytest.skip(f"Kafka {KAFKA} can't be had here: {problem}")
    servers = ",".join(cluster.kafka_bootstrap_servers)
    done = subprocess.run(
        [*command, "--bootstrap-server", servers, *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT_SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
async def at(brokers: LocalCluster, lab: Switches, request: pytest.FixtureRequest) -> TopicPartition:
    """The only partition of a topic whose name is the test's."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    async with Admin(brokers.bootstrap_servers) as admin:
        await admin.create_topic(name, partitions=1, replication_factor=3, configs={"min.insync.replicas": "2"})
    return TopicPartition(name, 0)


async def read_committed(cluster: LocalCluster, at: TopicPartition, count: int) -> list[bytes]:
    """The first records that a reader of committed ones gets."""
    values: list[bytes] = []
    consumer = Consumer(cluster.bootstrap_servers, auto_offset_reset="earliest", isolation_level="read_committed")
    async with consumer:
        consumer.assign([at])
        while len(values) < count:
            values += [one.value or b"" for one in await consumer.poll(500)]
    return values


async def stable_offset(admin: Admin, at: TopicPartition) -> int:
    """The leader's last stable offset."""
    info = await admin.metadata([at.topic])
    said = await admin.describe_replicas_of(list(info.brokers.values()), [at.topic])
    leader = info.topics[at.topic].partitions[0].leader_id
    assert leader is not None
    [replica] = said[leader] or ()
    return replica.last_stable_offset


class Late(NamedTuple):
    """A late batch: its producer, and its place."""

    producer_id: int
    producer_epoch: int
    offset: int


async def write_late(cluster: LocalCluster, admin: Admin, at: TopicPartition, transactional_id: str) -> Late:
    """Append a batch of the last transaction of an id after its end, as a retry that the network has kept."""
    found = await admin.describe_transaction(transactional_id)
    [known] = [one for one in await admin.describe_producers(at) if one.producer_id == found.producer_id]
    batch = encode_batch(
        [(b"late", None, int(time.time() * 1000) - LONG_AGO_MS)],
        producer_id=found.producer_id,
        producer_epoch=known.producer_epoch,
        base_sequence=known.last_sequence + 1,
        is_transactional=True,
    )
    info = await admin.metadata([at.topic])
    leader = info.leader(at)
    assert leader is not None
    channels = Channels(admin.security)
    part = produce_pb2.ProducePartition(topic=at.topic, partition=at.partition, records=batch)
    request = produce_pb2.ProduceRequest(
        acks=-1, timeout_ms=30_000, partitions=[part], transactional_id=transactional_id
    )
    try:
        response = await channels.broker(leader.address).Produce(request, timeout=30)
    finally:
        await channels.close()
    assert ErrorCode.of(response.partitions[0].error) is ErrorCode.NONE, response
    return Late(found.producer_id, known.producer_epoch, response.partitions[0].base_offset)


def cells(text: str) -> list[list[str]]:
    """The cells of a table, its header first."""
    return [line.split() for line in text.splitlines() if line.strip()]


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table without its header."""
    return cells(text)[1:]


@pytest.mark.parametrize("by", [printed, printed_by_kafka], ids=["tidegauge", "kafka-transactions"])
async def test_a_hanging_transaction_is_found_and_ended(
    brokers: LocalCluster, at: TopicPartition, by: Callable[..., str]
) -> None:
    """KIP-664: readers of committed records stand still behind it, no timeout ends it, an ABORT marker does."""
    transactional_id = at.topic
    async with (
        Producer(brokers.bootstrap_servers, transactional_id=transactional_id) as producer,
        Admin(brokers.bootstrap_servers) as admin,
    ):
        await producer.init_transactions()
        await producer.begin_transaction()
        await producer.send(at.topic, b"committed")
        await producer.commit_transaction()

        async def has_ended() -> bool:
            return (await admin.describe_transaction(transactional_id)).state == "CompleteCommit"

        await until_async(has_ended)
        late = await write_late(brokers, admin, at, transactional_id)
        plain = Producer(brokers.bootstrap_servers)
        async with plain:
            await (await plain.send(at.topic, b"after"))
        assert await stable_offset(admin, at) == late.offset
        partition = ("--topic", at.topic, "--partition", "0")

        explained = json.loads(await asyncio.to_thread(printed, brokers, "explain", str(at), "-o", "json"))
        [sentence] = [one for one in explained["sentences"] if one["about"] == "transactions"]
        assert "its coordinator does not have (its id is CompleteCommit)" in sentence["text"]
        assert sentence["change"] == f"tidegauge abort-transaction {' '.join(partition)} --start-offset {late.offset}"

        found = await asyncio.to_thread(by, brokers, "find-hanging", "--topic", at.topic)
        [hanging] = rows(found)
        assert hanging[:4] == [at.topic, "0", str(late.producer_id), str(late.producer_epoch)]
        assert hanging[5] == str(late.offset)
        header, ours = cells(await asyncio.to_thread(printed, brokers, "find-hanging", "--topic", at.topic))
        assert (cells(found)[0], hanging[:7]) == (header, ours[:7])
        assert 20 <= int(hanging[7]) <= int(ours[7]), "minutes; ours were asked for later"
        described = await asyncio.to_thread(by, brokers, "describe-producers", *partition)
        assert cells(described) == cells(await asyncio.to_thread(printed, brokers, "describe-producers", *partition))

        verb = "abort-transaction" if by is printed else "abort"
        await asyncio.to_thread(by, brokers, verb, *partition, "--start-offset", str(late.offset))
        assert await read_committed(brokers, at, 2) == [b"committed", b"after"]
        assert rows(await asyncio.to_thread(by, brokers, "find-hanging", "--topic", at.topic)) == []
        with pytest.raises(subprocess.CalledProcessError) as refused:
            await asyncio.to_thread(printed, brokers, "abort-transaction", *partition, "--start-offset", "0")
        assert "No open transaction begins at offset 0" in refused.value.stderr


APIS = ["InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn", "WriteTxnMarkers"]
RETRIABLE = {"WriteTxnMarkers": "NOT_LEADER_OR_FOLLOWER"}


async def write_one(producer: Producer, at: TopicPartition) -> None:
    """One transaction with a record and an offset."""
    await producer.init_transactions()
    await producer.begin_transaction()
    await producer.send(at.topic, b"value")
    offsets = {at: OffsetAndMetadata(1)}
    await producer.send_offsets_to_transaction(offsets, GroupMetadata(f"group-of-{at.topic}", -1, "", None))
    await producer.commit_transaction()


async def assert_exactly_once(cluster: LocalCluster, at: TopicPartition) -> None:
    """The record is committed once, and the offset counts."""
    async with Admin(cluster.bootstrap_servers) as admin:

        async def is_committed() -> bool:
            found = await admin.committed_offsets(f"group-of-{at.topic}")
            return at in found and found[at].offset == 1 and await stable_offset(admin, at) >= 2

        await until_async(is_committed, what="the markers are written")
    assert await read_committed(cluster, at, 1) == [b"value"]


@pytest.mark.parametrize("after_effect", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("api", APIS)
async def test_an_error_of_each_api_is_met_and_survived(
    brokers: LocalCluster, lab: Switches, at: TopicPartition, api: str, after_effect: bool
) -> None:
    """Each of the six at every broker, over gRPC, as clients and as brokers among each other."""
    ids = [broker.id for broker in brokers.file.brokers]
    for broker in ids:
        error = RETRIABLE.get(api, "COORDINATOR_NOT_AVAILABLE")
        await lab.inject_error(broker, api, error, after_effect=after_effect)
    async with Producer(brokers.bootstrap_servers, transactional_id=at.topic) as producer:
        await write_one(producer, at)
    await assert_exactly_once(brokers, at)
    met = [fault.met for broker in ids for fault in (await lab.list_faults(broker)).faults]
    assert sum(met) > 0, "the fault met no request"


@pytest.mark.parametrize("api", APIS)
async def test_a_hold_of_each_api_is_a_barrier(
    brokers: LocalCluster, lab: Switches, at: TopicPartition, api: str
) -> None:
    """The request waits at the broker that is to respond, until it is released; nothing is lost or done twice."""
    ids = [broker.id for broker in brokers.file.brokers]
    for broker in ids:
        await lab.hold_requests(broker, api)
    async with Producer(brokers.bootstrap_servers, transactional_id=at.topic) as producer:
        writing = asyncio.ensure_future(write_one(producer, at))

        async def held() -> int:
            return sum([fault.held for broker in ids for fault in (await lab.list_faults(broker)).faults])

        await until_async(held, what=f"{api} is held")
        if api == "WriteTxnMarkers":
            await writing  # the decision is committed before any marker is written
            await assert_markers_are_awaited(brokers, at)
        for broker in ids:
            await lab.release_requests(broker)
        await writing
    await assert_exactly_once(brokers, at)


async def assert_markers_are_awaited(cluster: LocalCluster, at: TopicPartition) -> None:
    """Between the decision and the markers: what the coordinator, the partition and the explanations say."""
    async with Admin(cluster.bootstrap_servers) as admin:
        assert (await admin.describe_transaction(at.topic)).state == "PrepareCommit"
        assert await stable_offset(admin, at) == 0
    explained = json.loads(await asyncio.to_thread(printed, cluster, "explain", str(at), "-o", "json"))
    assert any("commit is decided" in one["text"] for one in explained["sentences"])
    whole = json.loads(await asyncio.to_thread(printed, cluster, "explain", f"transaction:{at.topic}", "-o", "json"))
    assert whole["state"] == "PrepareCommit"
    assert whole["coordinator"] == cluster.coordinator_of(at.topic, TRANSACTION)
    assert any(one["partition"] == str(at) for one in whole["sentences"])


def spark_reads(cluster: LocalCluster, topic: str, isolation_level: str) -> list[bytes]:
    """Return the records that a batch query's tasks read, without Spark around them."""
    from tidegauge_spark.options import parse_options  # noqa: PLC0415 - it needs pyarrow
    from tidegauge_spark.source import TidegaugeReader  # noqa: PLC0415 - and pyspark

    options = {
        "kafka.bootstrap.servers": ",".join(cluster.bootstrap_servers),
        "subscribe": topic,
        "kafka.isolation.level": isolation_level,
    }
    reader = TidegaugeReader(parse_options(options, streaming=False))
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


async def test_spark_reads_what_was_committed(brokers: LocalCluster, at: TopicPartition) -> None:
    """kafka.isolation.level as of Spark's own Kafka source: latest is the last stable offset, aborted records are not
    there; read_uncommitted gives all."""
    async with Producer(brokers.bootstrap_servers, transactional_id=at.topic) as producer:
        await producer.init_transactions()
        for number in range(6):
            await producer.begin_transaction()
            await producer.send(at.topic, b"%d" % number)
            await producer.flush()
            if number == 5:
                break
            await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        assert await read_committed(brokers, at, 3) == [b"0", b"2", b"4"]
        assert await asyncio.to_thread(spark_reads, brokers, at.topic, "read_committed") == [b"0", b"2", b"4"]
        whole = await asyncio.to_thread(spark_reads, brokers, at.topic, "read_uncommitted")
        assert whole == [b"%d" % number for number in range(6)]
        await producer.abort_transaction()


LINES = "".join(f"{number}\n" for number in range(5))


async def test_the_command_line_writes_transactions(brokers: LocalCluster, at: TopicPartition) -> None:
    """--commit-every, --abort and --leave-open; a new producer of the id ends the open transaction."""

    def produce(*options: str) -> dict[str, Any]:
        command = [str(TIDEGAUGE), "produce", at.topic, "--transactional-id", at.topic, *options, "-o", "json"]
        servers = ",".join(brokers.bootstrap_servers)
        done = subprocess.run(
            [*command, "-b", servers], input=LINES, capture_output=True, text=True, check=True, timeout=LIMIT_SECONDS
        )
        found: dict[str, Any] = json.loads(done.stdout)["transactions"]
        return found

    assert await asyncio.to_thread(produce, "--commit-every", "2", "--abort") == {
        "committed": 2, "aborted": 1, "open": 0,
    }  # fmt: skip
    assert await asyncio.to_thread(produce, "--leave-open") == {"committed": 0, "aborted": 0, "open": 1}
    assert await asyncio.to_thread(produce) == {"committed": 1, "aborted": 0, "open": 0}
    values = [str(number).encode() for number in (*range(4), *range(5))]
    assert await read_committed(brokers, at, len(values)) == values
