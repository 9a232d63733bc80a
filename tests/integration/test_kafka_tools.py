"""Kafka's own command line tools, of 3.9 and of the newest Kafka 4, against a cluster.

They come from Maven Central as for ``make bench``; without Maven, or without access to its repository, the tests are
skipped. A shell script of Kafka's starts the class of the same tool that is started here.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.clients.programs import KAFKA, KAFKA_4, Unavailable, tool
from tests.clients.runs import LIMIT_SECONDS, Run
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
RECORDS = 240
FEW = 60
LINES = "".join(f"line-{number}\n" for number in range(FEW))


@pytest.fixture(params=[KAFKA, pytest.param(KAFKA_4, marks=[pytest.mark.long])])
def version(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> str:
    try:
        tool(request.param, "TopicCommand")
    except Unavailable as problem:
        pytest.skip(f"Kafka {request.param} can't be had here: {problem}")
    record_property("client", "Java: Kafka's tools")
    record_property("version", request.param)
    return str(request.param)


class Tools:
    """Kafka's tools of a version; each runs to its end."""

    def __init__(self, version: str, servers: str, directory: Path) -> None:
        self.version = version
        self._servers = servers
        self._directory = directory

    def run(self, name: str, *arguments: str, given: str = "") -> str:
        """Return its output; raise AssertionError if it fails."""
        command = [*tool(self.version, name), "--bootstrap-server", self._servers, *arguments]
        done = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
        assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    def file(self, content: object) -> str:
        """Return the path of a JSON file for an option."""
        path = self._directory / "option.json"
        path.write_text(json.dumps(content))
        return str(path)

    def offsets(self, topic: str, time: int = -1) -> dict[int, int]:
        """Return each partition's offset, as kafka-get-offsets.sh prints it."""
        lines = self.run("GetOffsetShell", "--topic", topic, "--time", str(time)).split()
        return {int(partition): int(offset) for _, partition, offset in (line.split(":") for line in lines)}


@pytest.fixture
def tools(version: str, cluster: LocalCluster, tmp_path: Path) -> Tools:
    return Tools(version, ",".join(cluster.kafka_bootstrap_servers), tmp_path)


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


@pytest.fixture
def run(cluster: LocalCluster, topic: str, tmp_path: Path) -> Iterator[Run]:
    made = Run(cluster, topic, tmp_path)
    yield made
    made.close()


def lines_of(text: str, start: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip().startswith(start)]


@pytest.mark.kafka_client("kafka-topics: creates, lists, describes, adds partitions, deletes")
def test_kafka_topics(tools: Tools, topic: str) -> None:
    command = "TopicCommand"
    created = tools.run(command, "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "3")
    assert f"Created topic {topic}." in created
    assert topic in tools.run(command, "--list").split()
    tools.run(command, "--alter", "--topic", topic, "--partitions", "4")
    described = lines_of(tools.run(command, "--describe", "--topic", topic), "Topic: ")
    assert "PartitionCount: 4\tReplicationFactor: 3" in described[0]
    assert len(described) == 5
    for line in described[1:]:
        found = re.search(r"Leader: (\d+)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)", line)
        assert found is not None
        leader, replicas, isr = found.groups()
        assert leader == replicas[0]
        assert sorted(replicas.split(",")) == sorted(isr.split(",")) == ["0", "1", "2"]
    tools.run(command, "--delete", "--topic", topic)
    until(lambda: topic not in tools.run(command, "--list").split(), what="the topic is deleted")


@pytest.mark.kafka_client("kafka-configs: topics, one broker, all brokers")
def test_kafka_configs(tools: Tools, topic: str) -> None:
    tools.run("TopicCommand", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "3")

    def configs(*arguments: str) -> str:
        return tools.run("ConfigCommand", *arguments)

    of_topic = ("--entity-type", "topics", "--entity-name", topic)
    configs("--alter", *of_topic, "--add-config", "retention.ms=86400000,cleanup.policy=[compact,delete]")
    described = configs("--describe", *of_topic)
    assert lines_of(described, "retention.ms=86400000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:")
    assert lines_of(described, "cleanup.policy=compact,delete ")
    configs("--alter", *of_topic, "--delete-config", "retention.ms,cleanup.policy")
    assert not lines_of(configs("--describe", *of_topic), "retention.ms")
    all_of_one = configs("--describe", "--all", "--entity-type", "brokers", "--entity-name", "0")
    assert len(lines_of(all_of_one, "")) > 100
    assert lines_of(all_of_one, "broker.id=0 ")
    defaults = ("--entity-type", "brokers", "--entity-default")
    configs("--alter", *defaults, "--add-config", "log.cleaner.threads=1")
    assert lines_of(configs("--describe", *defaults), "log.cleaner.threads=1 ")
    configs("--alter", *defaults, "--delete-config", "log.cleaner.threads")
    assert not lines_of(configs("--describe", *defaults), "log.cleaner.threads")


@pytest.mark.kafka_client("kafka-get-offsets by time, kafka-delete-records, kafka-log-dirs")
@pytest.mark.long
def test_offsets_deletions_and_log_directories(tools: Tools, topic: str) -> None:
    tools.run("TopicCommand", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "3")
    tools.run("ConsoleProducer", "--topic", topic, given=LINES)
    assert tools.offsets(topic) == {0: FEW}
    assert tools.offsets(topic, -2) == {0: 0}
    assert tools.offsets(topic, 0) == {0: 0}
    assert 0 <= tools.offsets(topic, -3)[0] < FEW
    wanted = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 40}]}
    assert "low_watermark: 40" in tools.run("DeleteRecordsCommand", "--offset-json-file", tools.file(wanted))
    assert tools.offsets(topic, -2) == {0: 40}
    read = tools.run(
        *("ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(FEW - 40), "--timeout-ms", "60000"),
    )
    assert read.split() == LINES.split()[40:]
    shown = tools.run("LogDirsCommand", "--describe", "--topic-list", topic)
    [document] = lines_of(shown, "{")
    sizes = {
        broker["broker"]: [one["size"] for logs in broker["logDirs"] for one in logs["partitions"]]
        for broker in json.loads(document)["brokers"]
    }
    assert sizes.keys() == {0, 1, 2}
    assert all(size > 0 for [size] in sizes.values())


@pytest.mark.kafka_client("kafka-reassign-partitions with a throttle, kafka-leader-election")
@pytest.mark.long
def test_reassignments_and_elections(tools: Tools, topic: str) -> None:
    tools.run("TopicCommand", "--create", "--topic", topic, "--replica-assignment", "0:1:2")
    tools.run("ConsoleProducer", "--topic", topic, given=LINES)
    command = "ReassignPartitionsCommand"
    topics = tools.file({"version": 1, "topics": [{"topic": topic}]})
    plan = tools.run(command, "--topics-to-move-json-file", topics, "--broker-list", "0,1,2", "--generate")
    assert json.loads(lines_of(plan, "{")[0])["partitions"][0]["replicas"] == [0, 1, 2]
    wanted = tools.file({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [2, 1]}]})
    started = tools.run(command, "--reassignment-json-file", wanted, "--execute", "--throttle", "10000000")
    assert f"Successfully started partition reassignment for {topic}-0" in started
    done = f"Reassignment of partition {topic}-0 is completed."
    until(lambda: done in tools.run(command, "--reassignment-json-file", wanted, "--verify"), what="it is completed")
    assert "No partition reassignments found." in tools.run(command, "--list")
    assert "throttled" not in tools.run(
        "ConfigCommand", "--describe", "--entity-type", "topics", "--entity-name", topic
    )
    described = tools.run("TopicCommand", "--describe", "--topic", topic)
    assert re.search(r"Leader: [12]\tReplicas: 2,1\t", described)
    elected = tools.run(
        *("LeaderElectionCommand", "--election-type", "preferred", "--topic", topic, "--partition", "0"),
    )
    assert re.search(f"(Successfully completed|Valid replica already) .*{topic}-0", elected)
    assert "Leader: 2\t" in tools.run("TopicCommand", "--describe", "--topic", topic)
    assert tools.offsets(topic) == {0: FEW}


def objects(lines: Sequence[str], name: str) -> list[dict[str, Any]]:
    """Return the JSON objects with this name that a verifiable client printed."""
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [one for one in found if one["name"] == name]


@pytest.mark.kafka_client("kafka-verifiable-producer through a killed leader")
def test_what_the_verifiable_producer_counts_as_acknowledged_is_in_the_log(
    version: str, tools: Tools, topic: str, run: Run
) -> None:
    """It never retries, so some records may fail; each that is acknowledged lies where the response said, once."""
    command = [*tool(version, "VerifiableProducer"), "--bootstrap-server", "{servers}", "--topic", "{topic}"]
    producer = run.start([*command, "--max-messages", str(RECORDS), "--throughput", "50", "--acks", "-1"])
    until(lambda: len(objects(producer.lines(), "producer_send_success")) >= FEW, what="records are acknowledged")
    with run.killed_leader():
        pass
    lines = producer.end()
    reported = {one["offset"]: one["value"] for one in objects(lines, "producer_send_success")}
    failed = {one["value"] for one in objects(lines, "producer_send_error")}
    assert len(reported) + len(failed) == RECORDS
    assert run.high_watermark() >= len(reported) >= FEW
    log = tools.run(
        *("ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "earliest"),
        *("--max-messages", str(run.high_watermark()), "--timeout-ms", "60000"),
    ).split()
    assert {offset: log[offset] for offset in reported} == reported
    assert [value for value, times in Counter(log).items() if times > 1] == []


@pytest.mark.long
@pytest.mark.kafka_client("kafka-producer-perf-test through a killed leader")
def test_the_producer_performance_test_writes_each_record_once(version: str, run: Run) -> None:
    """Idempotent and with retries, which are its defaults."""
    command = [*tool(version, "ProducerPerformance"), "--topic", "{topic}", "--num-records", str(RECORDS)]
    command += ["--record-size", "100", "--throughput", "30", "--producer-props", "bootstrap.servers={servers}"]
    producer = run.start(command)
    until(lambda: run.high_watermark() >= FEW, what="records are written", timeout=LIMIT_SECONDS)
    with run.killed_leader():
        pass
    [*_, last] = producer.end()
    assert last.startswith(f"{RECORDS} records sent, ")
    assert run.high_watermark() == RECORDS


@pytest.mark.long
@pytest.mark.kafka_client("kafka-consumer-perf-test")
def test_the_consumer_performance_test_reads_all(tools: Tools, topic: str) -> None:
    tools.run("TopicCommand", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "3")
    tools.run("ConsoleProducer", "--topic", topic, given=LINES)
    limit = "--num-records" if tools.version.startswith("4") else "--messages"
    shown = tools.run("ConsumerPerformance", "--topic", topic, limit, str(FEW), "--timeout", "60000")
    header, values = (line.split(", ") for line in shown.splitlines() if ", " in line)
    assert int(values[header.index("data.consumed.in.nMsg")]) == FEW


@pytest.mark.long
@pytest.mark.kafka_client("kafka-verifiable-consumer in a group through a killed leader")
def test_the_verifiable_consumer_reads_through_a_killed_leader(
    version: str, tools: Tools, topic: str, run: Run
) -> None:
    tools.run("ConsoleProducer", "--topic", topic, given=LINES)
    command = [*tool(version, "VerifiableConsumer"), "--bootstrap-server", "{servers}", "--topic", "{topic}"]
    consumer = run.start([*command, "--group-id", topic, "--verbose", "--max-messages", str(2 * FEW)])
    until(lambda: len(objects(consumer.lines(), "record_data")) == FEW, what="the first records are read")
    with run.killed_leader():
        pass
    tools.run("ConsoleProducer", "--topic", topic, given=LINES)
    read = objects(consumer.end(), "record_data")
    # A group that loses its coordinator before it has committed reads again what it had read.
    assert sorted({one["offset"] for one in read}) == list(range(2 * FEW))
    assert {one["offset"]: one["value"] for one in read} == dict(enumerate([*LINES.split(), *LINES.split()]))


@pytest.mark.long
@pytest.mark.kafka_client("kafka-consumer-groups: lists, describes, resets, deletes; kafka-groups (4.x)")
def test_kafka_consumer_groups(tools: Tools, topic: str) -> None:
    command = "ConsumerGroupCommand"
    tools.run("TopicCommand", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "3")
    tools.run("ConsoleProducer", "--topic", topic, given=LINES)
    read = (*("ConsoleConsumer", "--topic", topic, "--group", topic), *("--timeout-ms", "60000"))
    assert tools.run(*read, "--from-beginning", "--max-messages", str(FEW)).split() == LINES.split()
    assert topic in tools.run(command, "--list").split()
    if tools.version.startswith("4"):
        [listed] = lines_of(tools.run("GroupsCommand", "--list"), topic)
        assert listed.split() == [topic, "Classic", "consumer"]
    described = ("--describe", "--group", topic)

    def row(name: str, *options: str) -> dict[str, str]:
        lines = [line.split() for line in tools.run(command, *described, *options).splitlines() if line.strip()]
        [header] = [line for line in lines if line[0] == "GROUP"]
        [values] = [line for line in lines if line[0] == name]
        return dict(zip(header, values, strict=False))

    assert row(topic)["CURRENT-OFFSET"] == row(topic)["LOG-END-OFFSET"] == str(FEW)
    assert "Empty" in tools.run(command, *described, "--state")
    of_topic = ("--group", topic, "--topic", topic)
    shown = tools.run(command, "--reset-offsets", *of_topic, "--to-offset", "40", "--execute")
    assert shown.split()[-1] == "40", shown
    assert row(topic)["LAG"] == str(FEW - 40)
    assert tools.run(*read, "--max-messages", str(FEW - 40)).split() == LINES.split()[40:]
    assert row(topic)["LAG"] == "0"
    tools.run(command, "--delete-offsets", *of_topic)
    assert topic not in tools.run(command, "--list").split(), "an empty group without offsets ends"
    tools.run(command, "--reset-offsets", *of_topic, "--to-earliest", "--execute")
    tools.run(command, "--delete", "--group", topic)
    assert topic not in tools.run(command, "--list").split()


@pytest.mark.long  # it gives itself ten seconds, which a busy machine may not have
@pytest.mark.kafka_client("Kafka's ClientCompatibilityTest")
def test_kafkas_own_test_of_compatibility_succeeds(tools: Tools, topic: str) -> None:
    tools.run("TopicCommand", "--create", "--topic", topic, "--partitions", "1", "--replication-factor", "3")
    tools.run("TopicCommand", "--delete", "--if-exists", "--topic", "newtopic")  # the test leaves it behind
    until(lambda: "newtopic" not in tools.run("TopicCommand", "--list").split(), what="the topic is deleted")
    yes = (
        "offsets-for-times",
        "cluster-id",
        "create-topics",
        "describe-acls",
        "describe-configs",
        "idempotent-producer",
    )
    options = [word for name in yes for word in (f"--{name}-supported", "true")]
    options += ["--expect-record-too-large-exception", "false", "--num-cluster-nodes", "3", "--topic", topic]
    assert "SUCCESS." in tools.run("ClientCompatibilityTest", *options)
