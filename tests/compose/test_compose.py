"""`docker-compose up` starts ZooKeeper and three brokers; a broken container fails over and rejoins."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from signal import SIGCONT, SIGSTOP
from typing import Any

import pytest
from tests.compose.conftest import Project
from tests.waiting import pace, until, until_async

from tidegauge.partition import TopicPartition
from tidegauge_client import Admin, Consumer, Producer

pytestmark = pytest.mark.timeout(1200)
ALL = {0, 1, 2}
SERVICES = ("zookeeper", "broker-0", "broker-1", "broker-2")


async def create(admin: Admin, topic: str) -> None:
    await admin.create_topic(topic, partitions=3, replication_factor=3, configs={"min.insync.replicas": "2"})
    await admin.wait_for_topic(topic, timeout_ms=60_000)


async def leader_and_isr(admin: Admin, topic: str) -> tuple[int | None, set[int]]:
    (described,) = await admin.describe_topics([topic])
    partition = described.partitions[0]
    return partition.leader_id, set(partition.isr)


@asynccontextmanager
async def stream(project: Project, topic: str) -> AsyncIterator[set[bytes]]:
    """Acknowledged records of a producer that goes on through whatever happens inside the block."""
    acknowledged: set[bytes] = set()
    stopping = asyncio.Event()

    async def produce() -> None:
        number = 0
        async with Producer(project.bootstrap_servers, acks="all") as producer:
            while not stopping.is_set():
                futures = {}
                for _ in range(50):
                    value = b"%s-%d" % (topic.encode(), number)
                    futures[value] = await producer.send(topic, value, partition=number % 3)
                    number += 1
                for value, future in futures.items():
                    await future
                    acknowledged.add(value)
                await pace(0.02)

    task = asyncio.create_task(produce())
    try:
        yield acknowledged
    finally:
        stopping.set()
        await task


async def grows(acknowledged: set[bytes]) -> None:
    """Wait until more is acknowledged than now."""
    now = len(acknowledged)

    async def more() -> bool:
        return len(acknowledged) > now

    await until_async(more, 60, "something is acknowledged")


async def committed(project: Project, topic: str) -> list[bytes]:
    found: list[bytes] = []
    async with Consumer(project.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, index) for index in range(3)])
        await consumer.seek_to_beginning()
        while records := await consumer.poll(timeout_ms=3_000, max_records=10_000):
            found.extend(record.value or b"" for record in records)
    return found


@pytest.mark.parametrize("mode", ["project", "kraft_project"])
@pytest.mark.parametrize("fault", ["kill", "pause", "stop", "disconnect"])
async def test_a_leader_fails_over_and_rejoins(request: pytest.FixtureRequest, mode: str, fault: str) -> None:
    """The leader moves, the ISR shrinks, writes go on; healed it is in the ISR, and nothing acknowledged is lost."""
    project: Project = request.getfixturevalue(mode)
    topic = f"compose-{fault}"
    async with Admin(project.bootstrap_servers) as admin:
        await create(admin, topic)
        leader, isr = await leader_and_isr(admin, topic)
        assert isr == ALL
        service = f"broker-{leader}"
        break_, heal = drill(project, fault, service)
        async with stream(project, topic) as acknowledged:
            await grows(acknowledged)
            await asyncio.to_thread(break_)

            async def moved() -> bool:
                now, isr = await leader_and_isr(admin, topic)
                return now not in {leader, None} and isr == ALL - {leader}

            await until_async(moved, 90, "another broker leads, and the ISR is the rest")
            await grows(acknowledged)
            await asyncio.to_thread(heal)

            async def rejoined() -> bool:
                _, isr = await leader_and_isr(admin, topic)
                return isr == ALL

            await until_async(rejoined, 120, f"{service} is in the ISR again")
            await grows(acknowledged)
        await asyncio.to_thread(project.wait_healthy, service)
    found = await committed(project, topic)
    assert acknowledged <= set(found)
    assert len(found) == len(set(found)), "a record stands there twice"


def drill(project: Project, fault: str, service: str) -> tuple[Callable[[], object], Callable[[], object]]:
    """How to break a container, and how to heal it."""
    if fault == "pause":
        return lambda: project.pause(service), lambda: project.compose("unpause", service)
    if fault == "disconnect":
        network = f"{project.name}_default"
        container = project.container(service)
        return (
            lambda: project.docker("network", "disconnect", network, container),
            lambda: project.docker("network", "connect", "--alias", service, network, container),
        )
    return lambda: project.compose(fault, service), lambda: project.compose("start", service)


async def test_another_controller_is_active_when_the_first_one_is_killed(kraft_project: Project) -> None:
    """The quorum elects one of the other two, which makes topics; the dead one comes back as a follower."""

    def leader() -> int | None:
        asked = ("describe-quorum", "--bootstrap-controller", "controller-0:9392,controller-1:9392,controller-2:9392")
        found = json.loads(kraft_project.tools(*asked, "-o", "json"))
        return int(found["leader"])

    first = await asyncio.to_thread(leader)
    service = f"controller-{(first or 0) - 3000}"
    await asyncio.to_thread(kraft_project.compose, "kill", service)

    async def moved() -> bool:
        return await asyncio.to_thread(leader) not in {first, None}

    await until_async(moved, 90, "another controller is active")
    async with Admin(kraft_project.bootstrap_servers) as admin:
        await create(admin, "compose-controller")
    await asyncio.to_thread(kraft_project.compose, "start", service)
    await asyncio.to_thread(kraft_project.wait_healthy, service)


async def test_the_command_line_works_inside_and_outside(project: Project) -> None:
    """Each side gets addresses that it can reach."""
    inside = await asyncio.to_thread(project.tools, "describe-cluster", "-o", "json")
    assert {broker["address"] for broker in json.loads(inside)["brokers"]} == {
        "broker-0:19092", "broker-1:19092", "broker-2:19092",
    }  # fmt: skip
    async with Admin(project.bootstrap_servers) as admin:
        outside = await admin.metadata()
    assert {broker.address for broker in outside.brokers.values()} == set(project.bootstrap_servers)


KAFKA_CLIENT = """
import asyncio, json, sys
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

async def main(servers, topic, word, records, expected):
    async with AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True) as producer:
        for number in range(int(records)):
            await producer.send_and_wait(topic, f"{word}-{number}".encode())
        brokers = sorted(f"{one.host}:{one.port}" for one in producer.client.cluster.brokers())
    options = {"group_id": f"group-{word}", "auto_offset_reset": "earliest", "metadata_max_age_ms": 5_000}
    async with AIOKafkaConsumer(topic, bootstrap_servers=servers, **options) as consumer:
        found = [(await asyncio.wait_for(consumer.getone(), 120)).value.decode() for _ in range(int(expected))]
    print(json.dumps({"brokers": brokers, "found": found}))

asyncio.run(main(*sys.argv[1:]))
"""
"""Writes records, then reads the topic in a group of its own; prints the brokers' addresses and what it has read.

aiokafka 0.14 does not ask for new metadata when a leader that it asks for the first offset leads no more, as after the
first check of leader imbalance, 5 s into a controller's term: it needs metadata that end before its limit does."""


async def test_a_kafka_client_works_inside_and_outside_through_a_killed_leader(project: Project) -> None:
    """Each side has one address to begin with, gets those that it can reach, and reads what the other wrote."""
    topic, number = "compose-kafka", 20

    def inside(servers: str, word: str, expected: int) -> Any:
        words = ("run", "--rm", "-T", "--no-deps", "--entrypoint", "python", "tools", "-c", KAFKA_CLIENT)
        return json.loads(project.compose(*words, servers, topic, word, str(number), str(expected)))

    def outside(servers: str, word: str, expected: int) -> Any:
        command = [sys.executable, "-c", KAFKA_CLIENT, servers, topic, word, str(number), str(expected)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
        return json.loads(done.stdout)

    def written(*words: str) -> list[str]:
        return sorted(f"{word}-{index}" for word in words for index in range(number))

    async with Admin(project.bootstrap_servers) as admin:
        await create(admin, topic)
        first = await asyncio.to_thread(inside, "broker-0:9092", "inside", number)
        assert first["brokers"] == ["broker-0:9092", "broker-1:9092", "broker-2:9092"]
        assert sorted(first["found"]) == written("inside")
        second = await asyncio.to_thread(outside, project.kafka_bootstrap_servers[0], "outside", 2 * number)
        assert second["brokers"] == sorted(project.kafka_bootstrap_servers)
        assert sorted(second["found"]) == written("inside", "outside")
        leader, _ = await leader_and_isr(admin, topic)
        others = [index for index in ALL if index != leader]
        await asyncio.to_thread(project.compose, "kill", f"broker-{leader}")
        third = await asyncio.to_thread(inside, f"broker-{others[0]}:9092", "inside-again", 3 * number)
        assert sorted(third["found"]) == written("inside", "outside", "inside-again")
        await asyncio.to_thread(project.compose, "start", f"broker-{leader}")
        servers = project.kafka_bootstrap_servers[others[1]]
        fourth = await asyncio.to_thread(outside, servers, "outside-again", 4 * number)
        assert sorted(fourth["found"]) == written("inside", "outside", "inside-again", "outside-again")
        await asyncio.to_thread(project.wait_healthy, f"broker-{leader}")


async def test_no_container_runs_as_root(project: Project) -> None:
    for service in ("zookeeper", "broker-0"):
        assert (await asyncio.to_thread(project.compose, "exec", "-T", service, "id", "-u")).strip() != "0"


async def test_what_is_in_the_volumes_outlives_the_containers(project: Project) -> None:
    """`down` and `up` again is a restart: topics, records and the cluster's id are unchanged."""
    topic = "compose-volumes"
    async with Admin(project.bootstrap_servers) as admin:
        await create(admin, topic)
        (before,) = await admin.describe_topics([topic])
    async with stream(project, topic) as acknowledged:
        await grows(acknowledged)
    await asyncio.to_thread(project.compose, "down")
    await asyncio.to_thread(project.compose, "up", "-d")
    await asyncio.to_thread(project.wait_healthy, *SERVICES)
    async with Admin(project.bootstrap_servers) as admin:

        async def is_whole() -> bool:
            _, isr = await leader_and_isr(admin, topic)
            return isr == ALL

        await until_async(is_whole, 120, "all replicas are in sync again")
        (after,) = await admin.describe_topics([topic])
    assert after.topic_id == before.topic_id
    assert set(await committed(project, topic)) >= acknowledged


async def test_a_container_is_healthy_when_its_broker_responds(project: Project) -> None:
    """The health check is `tidegauge health`: a frozen broker is not ready, and it is again when it goes on."""
    health = ("exec", "-T", "broker-1", "tidegauge", "health", "-b", "127.0.0.1:19092")
    signal = "import os, sys; [os.kill(int(p), int(sys.argv[1])) for p in os.listdir('/proc') if p.isdecimal() and "
    signal += "b'--environment' in open(f'/proc/{p}/cmdline', 'rb').read() and int(p) not in (1, os.getpid())]"
    send = ("exec", "-T", "broker-1", "python", "-c", signal)
    checked = (await asyncio.to_thread(project.inspect, "broker-1"))["Config"]["Healthcheck"]["Test"]
    assert checked == ["CMD", *health[3:]]
    assert "ready" in await asyncio.to_thread(project.compose, *health)
    await asyncio.to_thread(project.compose, *send, str(int(SIGSTOP)))
    try:
        with pytest.raises(AssertionError, match="does not respond"):
            await asyncio.to_thread(project.compose, *health)
    finally:
        await asyncio.to_thread(project.compose, *send, str(int(SIGCONT)))
    await asyncio.to_thread(project.wait_healthy, "broker-1")


async def test_addresses_that_cannot_work_are_refused_at_start(project: Project) -> None:
    """One that is unreachable, and one that is another broker's: in a sentence, and the container ends."""
    for address, words in (
        ("GRPC://0.0.0.0:19092", "is not a reachable address"),
        ("GRPC://broker-0:19092", "already registered by broker 0"),
    ):
        changed = ("-e", "KAFKA_BROKER_ID=7", "-e", "KAFKA_LOG_DIRS=/tmp/data")
        changed += ("-e", f"KAFKA_ADVERTISED_LISTENERS={address}")
        with pytest.raises(AssertionError, match=words):
            await asyncio.to_thread(project.compose, "run", "--rm", "-T", *changed, "broker-2")


@pytest.mark.long
async def test_the_demo_balances_its_books(project: Project) -> None:
    """The profile `demo`: a cluster of its own, in one container."""
    reported = await asyncio.to_thread(project.compose, "--profile", "demo", "run", "--rm", "-T", "--no-deps", "demo")
    assert "336776" in reported.replace(",", "")


async def test_the_spark_job_reads_on_through_a_killed_leader(project: Project) -> None:
    """The job in its container writes every acknowledged record, once."""
    topic = "compose-spark"
    project.variable("TOPIC", topic)
    async with Admin(project.bootstrap_servers) as admin:
        await create(admin, topic)
        await asyncio.to_thread(project.compose, "--profile", "spark", "up", "-d", "--no-deps", "spark")
        async with stream(project, topic) as acknowledged:
            await asyncio.to_thread(until, lambda: rows(project, topic) > 0, 240, "a first batch")
            leader, _ = await leader_and_isr(admin, topic)
            await asyncio.to_thread(project.compose, "kill", f"broker-{leader}")
            seen = rows(project, topic)
            await asyncio.to_thread(until, lambda: rows(project, topic) > seen, 120, "a batch after the kill")
            await asyncio.to_thread(project.compose, "start", f"broker-{leader}")
            await grows(acknowledged)
        await asyncio.to_thread(until, lambda: rows(project, topic) >= len(acknowledged), 120, "all that was written")
        await asyncio.to_thread(project.compose, "--profile", "spark", "stop", "spark")
    values = parquet_values(project, topic)
    assert acknowledged <= set(values)
    assert len(values) == len(set(values))


def rows(project: Project, topic: str) -> int:
    """Return the rows that the job has committed, by its progress file."""
    progress = f"/var/lib/tidegauge/{topic}-progress.jsonl"
    lines = project.compose("--profile", "spark", "exec", "-T", "spark", "sh", "-c", f"cat {progress} || true")
    return sum(json.loads(line)["rows"] for line in lines.splitlines() if line.endswith("}"))


def parquet_values(project: Project, topic: str) -> list[bytes]:
    """Return the values that any Parquet reader finds, inside the job's own image."""
    program = (
        "import json, pathlib, pyarrow.parquet as pq\n"
        f"folder = pathlib.Path('/var/lib/tidegauge/{topic}')\n"
        "files = sorted(folder.glob('part-*.parquet')) if folder.is_dir() else []\n"
        "print(json.dumps([v.decode() for f in files for v in pq.read_table(f).column('value').to_pylist()]))\n"
    )
    output = project.docker(
        "run", "--rm", "-v", f"{project.name}_spark:/var/lib/tidegauge", "tidegauge-spark", "python", "-c", program
    )
    return [value.encode() for value in json.loads(output)]
