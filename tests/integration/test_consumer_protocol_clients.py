"""Real clients as members of the consumer protocol (KIP-848), in KRaft mode.

Two members of a client read through a killed coordinator, a killed member, a paused one and a whole restart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import confluent_kafka
import pytest
from tests.clients.programs import KAFKA_4, Unavailable, go_client, kafka_jars, rust_client
from tests.integration.group_readers import GROUP, LIMIT_SECONDS, TOPIC, Readers, three_brokers
from tests.kafka_requests import ask
from tests.waiting import until

from tidegauge.kafka.apis import CONSUMER_GROUP_DESCRIBE
from tidegauge.kafka.kraft.broker_apis import KRAFT_BROKER_PROTOCOL
from tidegauge.kafka.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from tidegauge_client.cluster_file import KRAFT_MODE
from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

Start = Callable[[Readers, str], None]
"""Starts a member of a name."""


def java() -> tuple[str, str, Start]:
    kafka_jars(KAFKA_4)
    return "Java: kafka-clients", KAFKA_4, lambda readers, name: readers.java(name, "consumer")


def librdkafka() -> tuple[str, str, Start]:
    number = f"{version('confluent-kafka')} (librdkafka {confluent_kafka.libversion()[0]})"
    return "Python: confluent-kafka", number, lambda readers, name: readers.librdkafka(name, "consumer")


def franz() -> tuple[str, str, Start]:
    made = go_client("franz")
    return made.client, made.version, _program(made.produce[0])


def rdkafka() -> tuple[str, str, Start]:
    made = rust_client("rdkafka")
    return made.client, made.version, _program(made.produce[0])


def _program(binary: str) -> Start:
    return lambda readers, name: readers.start(name, [binary, "member", readers.servers, GROUP, TOPIC])


@pytest.fixture(params=[java, librdkafka, franz, rdkafka], ids=lambda make: make.__name__)
def start(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Start:
    """A client, whose name and version docs/clients.md has."""
    try:
        client, number, found = request.param()
    except Unavailable as problem:
        pytest.skip(f"{request.param.__name__} can't be had here: {problem}")
    record_property("client", client)
    record_property("version", number)
    record_property("mode", KRAFT_MODE)
    started: Start = found
    return started


@pytest.fixture
def cluster(tmp_path: Path, next_base_port: Callable[[], int]) -> Iterator[LocalCluster]:
    """Three brokers in KRaft mode; group.version is 1, as a new cluster has it."""
    with three_brokers(tmp_path / "cluster", next_base_port()) as made:
        yield made


def members(readers: Readers, cluster: LocalCluster) -> list[str]:
    """Return the ids of the group's members that speak the consumer protocol."""
    host = cluster.kafka_bootstrap_servers[readers.coordinator()]
    request = ConsumerGroupDescribeRequest([GROUP])
    [group] = ask(host, CONSUMER_GROUP_DESCRIBE, request, 1, protocol=KRAFT_BROKER_PROTOCOL).groups
    assert group.error_code == 0, group
    return [one.member_id for one in group.members if one.member_type == 1]


@pytest.mark.kafka_client(
    "members of the consumer protocol (KIP-848) through a killed coordinator, a killed and a paused member and a whole "
    "restart"
)
def test_a_group_of_the_consumer_protocol_reads_through_every_death(
    start: Start, cluster: LocalCluster, tmp_path: Path
) -> None:
    """Everything that was written is committed after each; no partition is left without a member, or has two."""
    readers = Readers(cluster, tmp_path)

    def reads_on() -> None:
        readers.write()
        readers.wait_read()

    try:
        start(readers, "a")
        start(readers, "b")
        readers.wait_shared("a", "b")
        assert len(members(readers, cluster)) == 2
        reads_on()

        killed = readers.coordinator()
        cluster.kill(killed)
        reads_on()
        readers.wait_shared("a", "b")
        cluster.start(killed)
        cluster.wait_ready(LIMIT_SECONDS)

        readers.children.pop("b").kill()
        readers.wait_shared("a")
        reads_on()
        start(readers, "c")
        readers.wait_shared("a", "c")

        readers.children["a"].pause()
        readers.wait_shared("c", paused="a")
        reads_on()
        readers.children["a"].resume()
        readers.wait_shared("a", "c")
        reads_on()

        brokers = range(3)
        cluster.kill(*brokers)
        [controller] = cluster.kill("controller")
        cluster.start(controller.target)
        cluster.start(*brokers)
        cluster.wait_ready(LIMIT_SECONDS)
        reads_on()
        readers.wait_shared("a", "c")
        for name in ("a", "c"):
            readers.end(name)
        until(lambda: members(readers, cluster) == [], LIMIT_SECONDS, "both have left")
        assert readers.written > 0
    finally:
        for child in readers.children.values():
            child.resume()
            child.kill()
