"""The verbs in a mixed cluster: what an Apache Kafka broker leads, controls or coordinates is reported as it is.

A request for it alone is refused at once, with its address (docs/mixed-clusters.md). The first test is short and
part of ``make test``; the others have each verb, beside one Kafka broker and beside two.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from tests.integration.conftest import MakeCluster
from tests.waiting import until

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")

from confluent_kafka import TopicPartition as Position
from tests.integration.apache_kafka import Unavailable
from tests.integration.mixed_cluster import MixedCluster
from tests.integration.swap_clients import LIMIT_SECONDS, Writer, consumer_of, retried

from tidegauge_client.cli.main import root
from tidegauge_lab.watch.sources import LabSource, RemoteSource, Source
from tidegauge_lab.watch.view import view_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]
ROUND = "0:1:2,1:2:0,2:0:1"
"""Three partitions, one led by each broker."""
LISTENER_NOT_FOUND = "LISTENER_NOT_FOUND (72)"


class Verbs:
    """Runs verbs on a cluster, in this process."""

    def __init__(self, mixed: MixedCluster) -> None:
        self.mixed = mixed
        self._directory = str(mixed.cluster.directory)

    def __call__(self, *words: object, exit_code: int = 0) -> str:
        """Run a verb; return what it prints."""
        verb, *rest = map(str, words)
        result = CliRunner().invoke(root, [verb, "--dir", self._directory, *rest])
        assert result.exit_code == exit_code, (words, result.output, result.exception)
        return result.output

    def json(self, *words: object) -> Any:
        """Run a verb; return its document."""
        verb, *rest = map(str, words)
        result = CliRunner().invoke(root, [verb, "--dir", self._directory, "-o", "json", *rest])
        assert result.exit_code == 0, (words, result.output, result.exception)
        return json.loads(result.stdout)

    def refused(self, *words: object) -> str:
        """Run a verb that an Apache Kafka broker's role prevents: it fails, with that broker's address."""
        said = self(*words, exit_code=1)
        assert "Apache Kafka broker" in said, (words, said)
        assert any(f"127.0.0.1:{self.mixed.kafka(one).port}" in said for one in self.mixed.kafkas), (words, said)
        return said


def started(make_cluster: MakeCluster, kafka_port: int, directory: Path, kafkas: tuple[int, ...]) -> MixedCluster:
    """Start a mixed cluster, or skip where Apache Kafka can't be had."""
    try:
        made = MixedCluster(make_cluster, kafka_port, directory, kafkas)
    except Unavailable as problem:
        pytest.skip(f"Apache Kafka can't be had here: {problem}")
    made.start(*made.ids)
    return made


def test_a_kafka_broker_leads_and_verbs_say_so(
    make_cluster: MakeCluster, next_base_port: Callable[[], int], tmp_path: Path
) -> None:
    """The short story: one Apache Kafka broker of three, its partition described, written past, waited for."""
    mixed = started(make_cluster, next_base_port(), tmp_path / "kafka", (2,))
    run = Verbs(mixed)
    try:
        assert "Created topic orders." in run("create-topic", "orders", "--replica-assignment", ROUND)
        look_at_a_topic(run, 2)
        assert "; Apache Kafka has its id, at 127.0.0.1:" in run("status")
        run.refused("produce", "orders", "--count", 5, "--partition", 2)
        assert "30 acknowledged" in run("produce", "orders", "--count", 30)
        assert "Processed a total of 30" in run("consume", "orders", "--from-beginning", "--max-messages", 30)
        assert "is left alone" in run("kill", 2)
        assert "such as one of Apache Kafka; stop it first" in run("down", "--purge", exit_code=1)
        run.refused("inject-error", 2, "--rpc", "Produce", "--error", "NOT_ENOUGH_REPLICAS")
    finally:
        mixed.end()


def look_at_a_topic(run: Verbs, kafka: int) -> None:
    """Each broker leads one partition of ``orders``, all replicas are in sync, and every instrument says so."""
    run("wait", "--in-sync", "orders")
    lines = run("describe-topic", "orders").splitlines()
    assert [line.split("\t")[3] for line in lines[1:]] == ["Leader: 0", "Leader: 1", "Leader: 2"], lines
    assert run("describe-topic", "orders", "--unavailable-partitions") == ""
    assert run("describe-topic", "orders", "--under-min-isr-partitions") == ""
    table = run("describe-topic", "orders", "--replicas")
    assert f"\t\t{kafka}       kafka     yes  -" in table
    assert "what replicas hold there can't be shown" in table
    run("wait", "--leader", f"orders-{kafka}={kafka}")
    assert f"Broker {kafka}, an Apache Kafka broker, leads" in run("explain", f"orders-{kafka}")
    [described] = [line for line in run("describe-cluster").splitlines() if line.startswith(f"Broker: {kafka}")]
    assert "State: kafka" in described
    assert kafka in {one["id"] for one in run.json("status")["kafka_brokers"]}


@pytest.fixture(params=[(2,), (1, 2)], ids=["one-kafka", "two-kafka"])
def mixed(
    request: pytest.FixtureRequest, make_cluster: MakeCluster, next_base_port: Callable[[], int], tmp_path: Path
) -> Iterator[MixedCluster]:
    made = started(make_cluster, next_base_port(), tmp_path / "kafka", request.param)
    yield made
    made.end()


@pytest.mark.long
def test_topics_and_records(mixed: MixedCluster, tmp_path: Path) -> None:
    """A Kafka broker's partitions are described as led, waited for by followers, neither written nor read here."""
    run = Verbs(mixed)
    mixed.make_controller(0)
    run("create-topic", "orders", "--replica-assignment", ROUND, "--config", "min.insync.replicas=2")
    for kafka in mixed.kafkas:
        look_at_a_topic(run, kafka)
    writer = Writer(mixed.servers, "writer", tmp_path / "history")
    for partition in range(3):
        for _ in range(5):
            writer.send("orders", partition, b"k")
    writer.flush()
    for partition in range(3):
        run("wait", "--hw", f"orders-{partition}=5")
        assert "5" in run("wait", "--hw", f"orders-{partition}=6", "--timeout-ms", 300, exit_code=4)
    offsets = run("get-offsets", "orders")
    assert "orders:0:5" in offsets
    for kafka in mixed.kafkas:
        assert f"Skip getting offsets for topic-partition orders-{kafka}" in offsets
        run.refused("consume", "orders", "--partition", kafka, "--from-beginning")
        assert "ProducerId" in run("describe-producers", "--topic", "orders", "--partition", kafka)
        run.refused("describe-config", "--broker", kafka)
        run.refused("describe-log-dirs", "--broker", kafka)
        run("find-hanging", "--broker-id", kafka)
        run.refused("kill", "--leader-of", f"orders-{kafka}")
        run.refused("isolate", kafka, "--from", "clients")
        run.refused("hold-fetch", "orders-0", "--broker", kafka)
        run("hold-fetch", f"orders-{kafka}", "--broker", 0)
        assert "has none, and its followers can be held" in run(
            "step-fetch", f"orders-{kafka}", "--broker", 0, exit_code=1
        )
        run("hold-fetch", f"orders-{kafka}", "--broker", 0, "--release")
    run.refused("verify", "orders")
    assert "what lies in log directories there can't be shown" in run("describe-log-dirs")
    assert "is an Apache Kafka broker: the lab is not inside it" in run("faults")
    assert "registered at 127.0.0.1:" in run("health", exit_code=1)
    servers = [one.address for one in mixed.cluster.file.brokers if not mixed.is_kafkas(one.id)]
    for source in (LabSource(mixed.cluster.directory), RemoteSource(servers)):
        brokers = asyncio.run(seen_by(source))["brokers"]
        assert {int(one) for one, shown in brokers.items() if shown["state"] == "kafka"} == mixed.kafkas
        assert all(shown["leads"] == 1 for shown in brokers.values()), brokers


async def seen_by(source: Source) -> dict[str, Any]:
    """Return what the page shows."""
    try:
        return view_of(await source.look())
    finally:
        await source.close()


@pytest.mark.long
def test_what_the_controller_does(mixed: MixedCluster, tmp_path: Path) -> None:
    """Topics, elections and reassignments, whichever kind of broker is the controller."""
    run = Verbs(mixed)
    for controller in (0, min(mixed.kafkas)):
        mixed.make_controller(controller)
        topic = f"of-{controller}"
        until(lambda: run.json("status")["controller"]["broker"] == controller, LIMIT_SECONDS, "known")  # noqa: B023
        assert f"Created topic {topic}." in run("create-topic", topic, "--replica-assignment", ROUND)
        assert "exists" in run("create-topic", topic, exit_code=1)
        run("alter-topic", topic, "--partitions", 4)
        assert "PartitionCount: 4" in run("describe-topic", topic)
        run("wait", "--in-sync", topic)
        assert "Valid replica already elected" in run(
            "elect-leaders", "--election-type", "preferred", "--topic", topic, "--partition", 2
        )
        moves = tmp_path / f"{topic}.json"
        target = {"topic": topic, "partition": 0, "replicas": [2, 0]}
        moves.write_text(json.dumps({"version": 1, "partitions": [target]}))
        run("reassign-partitions", "--execute", "--reassignment-json-file", moves)
        until(
            lambda: "is completed" in run("reassign-partitions", "--verify", "--reassignment-json-file", moves),  # noqa: B023
            LIMIT_SECONDS,
            "the reassignment is completed",
        )
        assert "No partition reassignments found" in run("reassign-partitions", "--list")
        run("elect-leaders", "--election-type", "preferred", "--all-topic-partitions")
        run("wait", "--leader", f"{topic}-0=2")
        run("delete-topic", topic)
        assert topic not in run("list-topics").split()


@pytest.mark.long
def test_groups_and_transactional_ids(mixed: MixedCluster) -> None:
    """Groups are asked over Kafka's protocol, so those that an Apache Kafka broker coordinates are shown, too."""
    run = Verbs(mixed)
    run("create-topic", "orders", "--replica-assignment", "0:1:2")
    run("produce", "orders", "--count", 10)
    names = [f"group-{number}" for number in range(9)]
    for name in names:
        consumer = consumer_of(mixed.servers, name, committed=True)
        retried(lambda: consumer.commit(offsets=[Position("orders", 0, 5)], asynchronous=False))  # noqa: B023
        consumer.close()
    listed = run("list-groups").split()
    coordinators = set()
    for name in names:
        assert name in listed
        assert name in run("describe-group", name)
        assert name in run("explain", f"group:{name}")
        state = run("describe-group", name, "--state")
        coordinators |= {one.id for one in mixed.cluster.file.brokers if f"({one.id})" in state}
    assert {mixed.is_kafkas(one) for one in coordinators} == {True, False}, "brokers of both kinds coordinate"
