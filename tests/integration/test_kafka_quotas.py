"""Client quotas on running brokers: Kafka's tool sets them, real clients are throttled, and nothing is lost by it.

Each test waits for what it wants to see: a client that reports a throttle time, a topic that is refused. None concludes
anything from how long something takes.
"""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.programs import KAFKA, Unavailable, tool
from tests.integration.conftest import metadata_at
from tests.modes import IS_KRAFT
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]
LIMIT_SECONDS = 150.0
METRICS = "+500"
RECORD = b"x" * 10_000


@pytest.fixture(scope="module")
def cluster(
    zookeeper: str, tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]
) -> Iterator[LocalCluster]:
    made = LocalCluster.create(
        tmp_path_factory.mktemp("quotas"),
        2,
        **metadata_at(zookeeper, "quotas"),
        base_port=next_base_port(),
        settings={"metrics.listener": METRICS},
    )
    made.up(60.0)
    yield made
    made.down(grace_seconds=0)


@pytest.fixture
def configs(cluster: LocalCluster) -> Callable[..., str]:
    """kafka-configs of Kafka 3.9; returns what it prints."""
    try:
        command = [*tool(KAFKA, "ConfigCommand"), "--bootstrap-server", servers(cluster)]
    except Unavailable as problem:
        pytest.skip(f"Kafka's tools can't be had here: {problem}")

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [*command, *arguments], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
        )
        assert done.returncode == 0, f"{arguments}\n{done.stdout}{done.stderr}"
        return done.stdout

    return run


def servers(cluster: LocalCluster) -> str:
    return ",".join(cluster.kafka_bootstrap_servers)


def metrics_of(cluster: LocalCluster, broker_id: int) -> list[str]:
    host, _, port = cluster.bootstrap_servers[broker_id].partition(":")
    with urllib.request.urlopen(f"http://{host}:{int(port) + int(METRICS)}/metrics", timeout=LIMIT_SECONDS) as page:
        return list(page.read().decode().splitlines())


def is_throttled(cluster: LocalCluster, kind: str, client_id: str) -> bool:
    """Whether a broker's metric says that it throttled a client within the last half a minute or so."""
    name = f'kafka_server_quota_throttle_time{{resource="{kind}",clientId="{client_id}"}}'
    lines = [line for number in range(2) for line in metrics_of(cluster, number)]
    return any(float(line.rsplit(" ", 1)[1]) > 0 for line in lines if line.startswith(name))


def create(cluster: LocalCluster, topic: str, partitions: int = 1, client_id: str = "admin") -> str | None:
    """Create a topic; return the name of the error."""
    admin = AdminClient({"bootstrap.servers": servers(cluster), "client.id": client_id})
    [future] = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
    try:
        future.result(LIMIT_SECONDS)
    except KafkaException as problem:
        return str(problem.args[0].name())
    return None


def test_kafka_configs_sets_describes_and_removes(configs: Callable[..., str]) -> None:
    """kafka-configs.sh of 3.9: users, clients, pairs, defaults and addresses, with names that need encoding."""
    of_pair = (
        "--entity-type",
        "users",
        "--entity-name",
        "al ice/1",
        "--entity-type",
        "clients",
        "--entity-name",
        "app",
    )
    of_default = ("--entity-type", "clients", "--entity-default")
    of_address = ("--entity-type", "ips", "--entity-name", "10.1.2.3")
    configs("--alter", *of_pair, "--add-config", "producer_byte_rate=1024,request_percentage=12.5")
    configs("--alter", *of_default, "--add-config", "consumer_byte_rate=2048")
    configs("--alter", *of_address, "--add-config", "connection_creation_rate=7")
    described = configs("--describe", *of_pair)
    assert "Quota configs for user-principal 'al ice/1', client-id 'app' are" in described
    assert set(re.findall(r"\w+=[0-9.]+", described)) == {"producer_byte_rate=1024.0", "request_percentage=12.5"}
    assert "the default client-id are consumer_byte_rate=2048.0" in configs("--describe", *of_default)
    assert "connection_creation_rate=7.0" in configs("--describe", *of_address)
    for entity, key in ((of_pair, "producer_byte_rate,request_percentage"), (of_default, "consumer_byte_rate")):
        configs("--alter", *entity, "--delete-config", key)
        assert "=" not in configs("--describe", *entity)
    configs("--alter", *of_address, "--delete-config", "connection_creation_rate")


class Throttled:
    """A librdkafka client that is throttled as soon as it says so."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, event: Any) -> None:
        self.times.append(event.throttle_time)


def test_a_producer_and_a_consumer_of_librdkafka_are_throttled_and_lose_nothing(
    cluster: LocalCluster, configs: Callable[..., str]
) -> None:
    """The clients report throttle times, another client id is left alone, and the metrics say it, too."""
    assert create(cluster, "throttled") is None
    slow = ("--entity-type", "clients", "--entity-name", "slow")
    configs("--alter", *slow, "--add-config", "producer_byte_rate=20000")
    throttled, sent, delivered = Throttled(), list[bytes](), list[bool]()
    producer = Producer(
        {"bootstrap.servers": servers(cluster), "client.id": "slow", "throttle_cb": throttled, "linger.ms": 0}
    )

    def produce(one: Producer) -> bool:
        one.produce("throttled", RECORD, on_delivery=lambda error, _: delivered.append(error is None))
        sent.append(RECORD)
        one.poll(0.01)
        return bool(throttled.times)

    until(lambda: produce(producer), timeout=LIMIT_SECONDS)
    assert max(throttled.times) > 0
    until(lambda: produce(producer) and is_throttled(cluster, "Produce", "slow"), timeout=LIMIT_SECONDS)
    configs("--alter", *slow, "--add-config", "producer_byte_rate=100000000,consumer_byte_rate=20000")
    assert producer.flush(LIMIT_SECONDS) == 0
    assert delivered == [True] * len(sent)

    of_consumer = Throttled()
    settings = {"bootstrap.servers": servers(cluster), "group.id": "slow", "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"client.id": "slow", "throttle_cb": of_consumer, "fetch.wait.max.ms": 10})
    consumer.subscribe(["throttled"])
    read: list[bytes] = []

    def consume() -> bool:
        message = consumer.poll(0.05)
        if message is not None and message.error() is None:
            read.append(message.value())
        elif not of_consumer.times:
            produce(free)  # the burst that a quota allows passes before anything is throttled
        return bool(of_consumer.times)

    free = Producer({"bootstrap.servers": servers(cluster), "client.id": "free"})
    until(consume, timeout=LIMIT_SECONDS)
    configs("--alter", *slow, "--delete-config", "producer_byte_rate,consumer_byte_rate")
    assert free.flush(LIMIT_SECONDS) == 0
    assert delivered == [True] * len(sent)
    until(lambda: consume() and len(read) == len(sent), timeout=LIMIT_SECONDS, what="every record is read once")
    consumer.close()


def test_a_java_producer_reports_its_throttle_time(
    cluster: LocalCluster, configs: Callable[..., str], tmp_path: Path
) -> None:
    """kafka-producer-perf-test of 3.9 ends with all records, and its metrics have produce-throttle-time-max."""
    assert create(cluster, "java") is None
    configs("--alter", "--entity-type", "clients", "--entity-name", "java", "--add-config", "producer_byte_rate=150000")
    properties = tmp_path / "producer.properties"
    properties.write_text(f"bootstrap.servers={servers(cluster)}\nclient.id=java\nbatch.size=16384\n")
    wanted = ["--topic", "java", "--num-records", "250", "--record-size", "10000", "--throughput", "-1"]
    command = [*tool(KAFKA, "ProducerPerformance"), *wanted, "--producer.config", str(properties), "--print-metrics"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert "250 records sent" in done.stdout
    found = re.search(r"produce-throttle-time-max:\{[^}]*\}\s*:\s*([0-9.]+)", done.stdout)
    assert found is not None, done.stdout
    assert float(found[1]) > 0


def test_topics_above_the_quota_are_refused_and_older_clients_are_throttled(
    cluster: LocalCluster, configs: Callable[..., str], tmp_path: Path
) -> None:
    """KIP-599: the burst passes, then THROTTLING_QUOTA_EXCEEDED; another client id is left alone.

    librdkafka asks with CreateTopics 4, so its topics are created, and its connection is muted.
    """
    maker = ("--entity-type", "clients", "--entity-name", "maker")
    configs("--alter", *maker, "--add-config", "controller_mutation_rate=0.0001")
    properties = tmp_path / "maker.properties"
    properties.write_text("client.id=maker\n")
    command = [
        *tool(KAFKA, "TopicCommand"),
        "--bootstrap-server",
        servers(cluster),
        "--command-config",
        str(properties),
    ]
    numbers = iter(range(1000))

    def refusal() -> str:
        wanted = ("--create", "--topic", f"mutated-{next(numbers)}", "--partitions", "1", "--replication-factor", "1")
        done = subprocess.run([*command, *wanted], capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
        return done.stdout + done.stderr if done.returncode else ""

    assert "The throttling quota has been exceeded." in until(refusal, timeout=LIMIT_SECONDS)
    assert "The throttling quota has been exceeded." in refusal(), "there are no tokens for hours"
    assert create(cluster, "of-another", 5) is None
    assert create(cluster, "of-an-older-client", 1, "maker") is None
    assert IS_KRAFT or is_throttled(cluster, "ControllerMutation", "maker"), "in KRaft mode a controller throttles it"
    configs("--alter", *maker, "--delete-config", "controller_mutation_rate")
    until(lambda: not refusal(), timeout=LIMIT_SECONDS, what="the controller knows of no quota any more")


def test_a_request_percentage_throttles_a_client_that_only_asks(
    cluster: LocalCluster, configs: Callable[..., str]
) -> None:
    """KIP-124: the time of any request counts; a client that asks for metadata again and again is throttled."""
    configs("--alter", "--entity-type", "clients", "--entity-name", "asker", "--add-config", "request_percentage=0.001")
    admin = AdminClient({"bootstrap.servers": servers(cluster), "client.id": "asker"})

    def asks() -> bool:
        admin.list_topics(timeout=LIMIT_SECONDS)
        return is_throttled(cluster, "Request", "asker")

    until(asks, timeout=LIMIT_SECONDS)
