"""Share groups at the leaders of partitions (KIP-932): real clients, time-outs, deaths, and aborted transactions.

Members by hand (``share_members``) hold what no client shows: counts of deliveries, late acknowledgements, a leader
that is killed between an acknowledgement and its write.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.clients.programs import KAFKA_4, Unavailable, java_program_of, tool
from tests.integration.share_members import ACCEPT, REJECT, RELEASE, Member, Servers, acquired
from tests.waiting import until, until_async

from tidegauge.errors import ErrorCode
from tidegauge_client.cli.main import root
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Switches

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
from confluent_kafka import Producer  # noqa: E402 - it may be missing
from confluent_kafka.admin import (  # noqa: E402 - likewise
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
LIMIT_SECONDS = 120.0


@pytest.fixture(scope="module")
def kraft(tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers and three controllers; locks of records may be short."""
    made = LocalCluster.create(
        tmp_path_factory.mktemp("share") / "cluster",
        base_port=next_base_port(),
        mode="kraft",
        settings={"group.share.min.record.lock.duration.ms": "100"},
    )
    try:
        made.up()
        yield made
    finally:
        made.down(grace_seconds=0)


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


def admin(cluster: LocalCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers)})


def group_settings(cluster: LocalCluster, group: str, **values: str) -> None:
    """Set settings of a group's own, by names with underscores and without share."""
    entries = [
        ConfigEntry(f"share.{name.replace('_', '.')}", value, incremental_operation=AlterConfigOpType.SET)
        for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    client = admin(cluster)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(LIMIT_SECONDS)


@pytest.fixture
def topic(kraft: LocalCluster, request: pytest.FixtureRequest) -> str:
    """A topic of one partition on all brokers, whose name is the test's; its group has the same name."""
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    client = admin(kraft)
    for future in client.create_topics([NewTopic(name, 1, 3)]).values():
        future.result(LIMIT_SECONDS)
    return name


def produce(cluster: LocalCluster, topic: str, *values: str, transaction: bool | None = None) -> None:
    """Append records, each a batch of its own; in a transaction that is committed (True) or aborted (False)."""
    settings: dict[str, Any] = {"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers), "acks": "all"}
    if transaction is not None:
        settings["transactional.id"] = f"{topic}-{transaction}"
    producer = Producer(settings)
    if transaction is not None:
        producer.init_transactions(LIMIT_SECONDS)
        producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
        producer.flush(LIMIT_SECONDS)
    if transaction is not None:
        (producer.commit_transaction if transaction else producer.abort_transaction)(LIMIT_SECONDS)


async def verb(cluster: LocalCluster, *words: str) -> None:
    """Run a verb; in a thread, since it has an event loop of its own."""
    done = await asyncio.to_thread(CliRunner().invoke, root, [*words, "--dir", str(cluster.directory)])
    assert done.exit_code == 0, done.output


async def held(cluster: LocalCluster, brokers: list[int]) -> int:
    """Wait until one of the brokers holds a request; return how many they hold."""
    async with Switches.of_cluster(cluster.file) as switches:

        async def count() -> int:
            return sum([await switches.wait_held(one, 0) for one in brokers])

        return await until_async(count, LIMIT_SECONDS, "a request is held")


# By hand


def test_a_lock_times_out_and_the_last_delivery_archives_the_record(
    kraft: LocalCluster, topic: str, runner: asyncio.Runner
) -> None:
    """KIP-932, "In-flight records": the count is of deliveries; a late acknowledgement is refused."""
    group_settings(kraft, topic, record_lock_duration_ms="500", delivery_count_limit="3")
    produce(kraft, topic, "poison", "good")

    async def story() -> None:
        servers = Servers(kraft.kafka_bootstrap_servers)
        led = await servers.leader(topic)
        await servers.begin_group(topic, topic)
        first, second = Member(led, topic, "a"), Member(led, topic, "b")
        assert await first.fetch(max_records=1, exact=True) == [(0, 0, 1)]
        assert await second.fetch(max_records=1, exact=True) == [(1, 1, 1)]
        assert await second.acknowledge(1, 1, ACCEPT) is ErrorCode.NONE
        assert await second.fetch(max_records=1, exact=True) == [(0, 0, 2)]
        assert await first.acknowledge(0, 0, ACCEPT) is ErrorCode.INVALID_RECORD_STATE
        assert await second.acknowledge(0, 0, RELEASE) is ErrorCode.NONE
        assert await first.fetch(max_records=1, exact=True) == [(0, 0, 3)]
        assert await first.acknowledge(0, 0, RELEASE) is ErrorCode.NONE
        assert await first.fetch(wait_ms=200) == []
        first.close()
        second.close()

    runner.run(story())


def test_a_connection_that_closes_gives_its_records_back_at_once(
    kraft: LocalCluster, topic: str, runner: asyncio.Runner
) -> None:
    """ShareSessionCache's disconnect listener: the lock of 30 s is not waited for."""
    produce(kraft, topic, "x")

    async def story() -> None:
        servers = Servers(kraft.kafka_bootstrap_servers)
        led = await servers.leader(topic)
        await servers.begin_group(topic, topic)
        first, second = Member(led, topic, "a"), Member(led, topic, "b")
        assert await first.fetch() == [(0, 0, 1)]
        assert await second.fetch(wait_ms=0) == []
        waiting = asyncio.create_task(second.fetch())
        first.close()
        assert await waiting == [(0, 0, 2)]
        second.close()

    runner.run(story())


def test_a_group_that_reads_committed_records_gets_none_of_an_aborted_transaction(
    kraft: LocalCluster, topic: str, runner: asyncio.Runner
) -> None:
    """share.isolation.level: the records are archived in memory; markers are acquired, as gaps."""
    group_settings(kraft, topic, isolation_level="read_committed")
    produce(kraft, topic, "a", "b")
    produce(kraft, topic, "c", "d", transaction=False)
    produce(kraft, topic, "e", transaction=True)

    async def story() -> None:
        servers = Servers(kraft.kafka_bootstrap_servers)
        led = await servers.leader(topic)
        await servers.begin_group(topic, topic)
        await servers.begin_group(f"{topic}-all", topic)
        committed, everything = Member(led, topic, "a"), Member(led, f"{topic}-all", "a")
        assert await committed.fetch() == [(0, 1, 1), (4, 6, 1)]
        assert await everything.fetch() == [(0, 6, 1)]
        committed.close()
        everything.close()

    runner.run(story())


def test_a_leader_that_is_killed_before_its_write_has_the_records_delivered_again(
    kraft: LocalCluster, topic: str, runner: asyncio.Runner
) -> None:
    """The acknowledgement is in the leader's memory alone: the new leader knows nothing of it, nor of the delivery."""
    produce(kraft, topic, "x", "y")

    async def story() -> None:
        servers = Servers(kraft.kafka_bootstrap_servers)
        led = await servers.leader(topic)
        await servers.begin_group(topic, topic)
        member = Member(led, topic, "a")
        assert await member.fetch() == [(0, 1, 1)]
        assert await member.acknowledge(0, 0, ACCEPT) is ErrorCode.NONE
        for broker in (0, 1, 2):
            await verb(kraft, "hold-requests", str(broker), "--rpc", "WriteShareGroupState", "--group", topic)
        task = asyncio.create_task(member.acknowledge(1, 1, ACCEPT))
        assert await held(kraft, [0, 1, 2]) == 1
        await asyncio.to_thread(kraft.kill, led.broker_id)
        await asyncio.wait([task])
        assert task.exception() is not None
        survivors = [one for one in (0, 1, 2) if one != led.broker_id]
        for broker in survivors:
            await verb(kraft, "release-requests", str(broker))
        left = Servers([kraft.kafka_bootstrap_servers[one] for one in survivors])
        new = await left.leader(topic, other_than=led.broker_id)
        again = Member(new, topic, "a")

        async def delivered() -> list[tuple[int, int, int]]:
            return acquired(await again.ask_fetch(1000))

        assert await until_async(delivered, LIMIT_SECONDS, "the record is delivered again") == [(1, 1, 1)]
        assert await again.acknowledge(1, 1, REJECT) is ErrorCode.NONE
        again.close()
        member.close()

    try:
        runner.run(story())
    finally:
        kraft.up()


def test_the_lab_holds_and_fails_fetches_and_acknowledgements(
    kraft: LocalCluster, topic: str, runner: asyncio.Runner
) -> None:
    """hold-requests and inject-error by the names of the APIs, for a topic that a session has."""
    produce(kraft, topic, "x")

    async def story() -> None:
        servers = Servers(kraft.kafka_bootstrap_servers)
        led = await servers.leader(topic)
        await servers.begin_group(topic, topic)
        member, at = Member(led, topic, "a"), str(led.broker_id)
        assert await member.fetch() == [(0, 0, 1)]
        await verb(kraft, "inject-error", at, "--rpc", "ShareAcknowledge", "--error", "COORDINATOR_NOT_AVAILABLE")
        assert await member.acknowledge(0, 0, RELEASE) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        await verb(kraft, "hold-requests", at, "--rpc", "ShareFetch", "--topic", topic)
        fetching = Member(led, topic, "b")
        waiting = asyncio.create_task(fetching.fetch(wait_ms=0))
        assert await held(kraft, [led.broker_id]) == 1
        await verb(kraft, "release-requests", at)
        assert await waiting == []
        member.close()
        fetching.close()

    runner.run(story())


def test_zookeeper_mode_serves_them_by_its_extension(
    tmp_path: Path, next_base_port: Callable[[], int], runner: asyncio.Runner
) -> None:
    """tidegauge.zookeeper.group.protocols: no release of Kafka has share groups there."""
    made = LocalCluster.create(
        tmp_path / "cluster",
        base_port=next_base_port(),
        settings={"tidegauge.zookeeper.group.protocols": "classic,share"},
    )
    try:
        made.up()
        client = admin(made)
        for future in client.create_topics([NewTopic("t", 1, 3)]).values():
            future.result(LIMIT_SECONDS)
        produce(made, "t", "x", "y")

        async def story() -> None:
            servers = Servers(made.kafka_bootstrap_servers)
            led = await servers.leader("t")
            await servers.begin_group("g", "t")
            member = Member(led, "g", "a")
            assert await member.fetch(max_records=1, exact=True) == [(0, 0, 1)]
            assert await member.acknowledge(0, 0, ACCEPT) is ErrorCode.NONE
            assert await member.fetch() == [(1, 1, 1)]
            member.close()

        runner.run(story())
    finally:
        made.down(grace_seconds=0)


# Real clients


class Program:
    """A member that is a process, and the lines that it has printed."""

    def __init__(self, command: list[str]) -> None:
        self.lines: list[str] = []
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(iter(lambda: (self._process.stdout.readline() or "\0").rstrip("\n"), "\0"))  # type: ignore[union-attr] # as above

    @property
    def records(self) -> list[list[str]]:
        """Partition, offset, count of the delivery and value of each record."""
        return [line.split(" ", 3) for line in list(self.lines) if line[:1].isdigit()]

    def end(self) -> None:
        """Close the consumer, and wait for the end."""
        if self._process.poll() is None:
            assert self._process.stdin is not None
            self._process.stdin.write("\n")
            self._process.stdin.close()
        try:
            self._process.wait(60)
        finally:
            self._process.kill()
            self._reader.join(60)
            if self._process.stdout is not None:
                self._process.stdout.close()


def java_member(cluster: LocalCluster, topic: str, mode: str) -> Program:
    servers = ",".join(cluster.kafka_bootstrap_servers)
    try:
        return Program([*java_program_of(KAFKA_4, "ShareMember"), servers, topic, topic, mode])
    except Unavailable as missing:
        pytest.skip(str(missing))


def test_two_java_consumers_share_a_topic_and_say_what_becomes_of_each_record(kraft: LocalCluster, topic: str) -> None:
    """KafkaShareConsumer of 4.3.1: one explicit, with release and reject, one implicit."""
    group_settings(kraft, topic, auto_offset_reset="earliest")
    produce(kraft, topic, "accept", "release", "reject", "accept", "accept")
    explicit = java_member(kraft, topic, "explicit")
    implicit: Program | None = None
    try:
        until(lambda: len({one[1] for one in explicit.records}) == 5, LIMIT_SECONDS, "all are delivered")
        until(lambda: ["0", "1", "5", "release"] in explicit.records, LIMIT_SECONDS, "a fifth delivery is the last")
        counts = [int(one[2]) for one in explicit.records if one[1] == "1"]
        assert counts == [1, 2, 3, 4, 5]
        assert [one[2] for one in explicit.records if one[1] != "1"] == ["1"] * 4
        implicit = java_member(kraft, topic, "implicit")
        together = [*explicit.records]
        numbers = iter(range(1000))

        def both_have_some() -> bool:
            produce(kraft, topic, f"shared {next(numbers)}")
            assert implicit is not None
            return bool(implicit.records) and len(explicit.records) > len(together)

        until(both_have_some, LIMIT_SECONDS, "both get records of one partition")
    finally:
        explicit.end()
        if implicit is not None:
            implicit.end()
    assert implicit is not None
    later = [(one[1], one[2]) for one in (*explicit.records[len(together) :], *implicit.records)]
    assert len({offset for offset, _ in later}) == len([one for one in later if one[1] == "1"]), "each once, or again"
    assert "closed" in explicit.lines
    assert "committed" in explicit.lines


@pytest.mark.long
def test_the_console_share_consumer_reads_a_topic(kraft: LocalCluster, topic: str) -> None:
    """kafka-console-share-consumer.sh of 4.3.1."""
    group_settings(kraft, topic, auto_offset_reset="earliest")
    produce(kraft, topic, *(f"line {number}" for number in range(10)))
    servers = ",".join(kraft.kafka_bootstrap_servers)
    try:
        command = tool(KAFKA_4, "consumer.ConsoleShareConsumer")
    except Unavailable as missing:
        pytest.skip(str(missing))
    command += ["--bootstrap-server", servers, "--topic", topic, "--group", topic, "--max-messages", "10"]
    done = subprocess.run(
        [*command, "--timeout-ms", "100000"], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
    )
    assert sorted(done.stdout.split("\n"))[-10:] == [f"line {number}" for number in range(10)], done.stderr


def test_librdkafka_s_share_consumer_reads_a_topic(kraft: LocalCluster, topic: str) -> None:
    """It speaks version 1 of both APIs."""
    share_consumer = getattr(confluent_kafka, "ShareConsumer", None)
    if share_consumer is None:
        pytest.skip("this confluent-kafka has no ShareConsumer")
    group_settings(kraft, topic, auto_offset_reset="earliest")
    produce(kraft, topic, *(f"line {number}" for number in range(10)))
    consumer = share_consumer({"bootstrap.servers": ",".join(kraft.kafka_bootstrap_servers), "group.id": topic})
    consumer.subscribe([topic])
    found: list[bytes] = []

    def all_are_there() -> bool:
        found.extend(one.value() for one in consumer.poll(0.5) or () if one.error() is None)
        return len(found) >= 10

    until(all_are_there, LIMIT_SECONDS, "ten records")
    consumer.close()
    assert found == [b"line %d" % number for number in range(10)]
