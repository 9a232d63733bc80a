"""Kafka's own tools that test a cluster, each as one test: org.apache.kafka.tools of the release that is emulated."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jars import kafka_jars

from outside.results import TEXT_LIMIT, Outcome, Result
from tidegauge.java import java_program

JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
LIMIT_SECONDS = 240.0
RECORDS = 100


def prepare() -> Path:
    """Return the directory of Kafka's jars.

    Raises:
        Unavailable: no Maven or no Java, or its repository can't be reached.
    """
    return kafka_jars()


class Wrong(Exception):
    """A tool did not do what it is expected to; the text says what it printed."""


@dataclass(frozen=True, slots=True)
class Tools:
    """Runs the tools against one cluster.

    Attributes:
        jars: Kafka's.
        servers: the brokers' addresses, with commas.
        brokers: how many there are.
    """

    jars: Path
    servers: str
    brokers: int

    def run(self, name: str, *arguments: str, status: int = 0) -> str:
        """Return what a tool prints.

        Raises:
            Wrong: it ends with another status, or not in time.
        """
        command = self.command(name, *arguments)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            raise Wrong(f"{name} did not end in {LIMIT_SECONDS:.0f} s") from None
        if done.returncode != status:
            raise Wrong(f"{name} ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-TEXT_LIMIT:]}")
        return done.stdout

    def command(self, name: str, *arguments: str) -> list[str]:
        """Return a tool's command."""
        return [java_program(), *JVM, "-cp", f"{self.jars}/*", f"org.apache.kafka.tools.{name}", *arguments]

    def create(self, topic: str, partitions: int = 1) -> None:
        """Create a topic by kafka-topics.sh.

        Raises:
            Wrong: it is refused.
        """
        counts = ["--partitions", str(partitions), "--replication-factor", str(min(3, self.brokers))]
        self.run(
            "TopicCommand", "--bootstrap-server", self.servers, "--create", "--if-not-exists", "--topic", topic, *counts
        )

    def fill(self, topic: str, records: int = RECORDS) -> list[dict[str, Any]]:
        """Write records by kafka-verifiable-producer.sh; return what it printed.

        Raises:
            Wrong: it fails.
        """
        arguments = ["--topic", topic, "--max-messages", str(records), "--acks", "-1"]
        return _objects(self.run("VerifiableProducer", "--bootstrap-server", self.servers, *arguments))


def _objects(output: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


def _client_compatibility(tools: Tools) -> None:
    """Let Kafka's test of its client pass: it produces, consumes, looks at times, ids, topics, configs."""
    tools.create("outside-compatibility")
    supported = ("offsets-for-times", "cluster-id", "create-topics", "describe-acls", "describe-configs")
    supported += ("idempotent-producer",)
    flags = [word for name in supported for word in (f"--{name}-supported", "true")]
    flags += ["--expect-record-too-large-exception", "false"]
    nodes = ["--num-cluster-nodes", str(tools.brokers)]
    arguments = ["--bootstrap-server", tools.servers, "--topic", "outside-compatibility", *nodes, *flags]
    if "SUCCESS." not in (said := tools.run("ClientCompatibilityTest", *arguments)):
        raise Wrong(f"it did not print SUCCESS.: {said.strip()[-TEXT_LIMIT:]}")


def _verifiable_producer(tools: Tools) -> None:
    """Each record of the producer of Kafka's system tests is acknowledged."""
    tools.create("outside-verifiable", 3)
    [summary] = [one for one in tools.fill("outside-verifiable") if one["name"] == "tool_data"]
    if (summary["sent"], summary["acked"]) != (RECORDS, RECORDS):
        raise Wrong(f"sent and acknowledged: {summary['sent']}, {summary['acked']}")


def _verifiable_consumer(tools: Tools) -> None:
    """Let the consumer of Kafka's system tests read all records in a group, and commit."""
    tools.create("outside-consumed", 3)
    tools.fill("outside-consumed")
    arguments = ["--topic", "outside-consumed", "--group-id", "outside-consumed", "--reset-policy", "earliest"]
    said = tools.run(
        "VerifiableConsumer", "--bootstrap-server", tools.servers, *arguments, "--max-messages", str(RECORDS)
    )
    read = sum(one["count"] for one in _objects(said) if one["name"] == "records_consumed")
    committed = [one["success"] for one in _objects(said) if one["name"] == "offsets_committed"]
    if read != RECORDS or not committed or not all(committed):
        raise Wrong(f"{read} of {RECORDS} records were read; commits: {committed}")


def _message_copier(tools: Tools) -> None:
    """Let the copier of Kafka's system tests read, write and commit in transactions (KIP-98, KIP-447)."""
    for topic in ("outside-copied", "outside-copy"):
        tools.create(topic)
    tools.fill("outside-copied")
    topics = ["--input-topic", "outside-copied", "--input-partition", "0", "--output-topic", "outside-copy"]
    names = ["--transactional-id", "outside-copier", "--consumer-group", "outside-copier"]
    said = tools.run(
        "TransactionalMessageCopier", "--broker-list", tools.servers, *topics, *names, "--max-messages", str(RECORDS)
    )
    last = _objects(said)[-1]
    if last.get("shutdown_complete") is None and last.get("stage") != "ShutdownComplete":
        raise Wrong(f"it ended with {last}")


def _end_to_end_latency(tools: Tools) -> None:
    """Each record that Kafka's EndToEndLatency sends comes back to its consumer."""
    said = tools.run("EndToEndLatency", tools.servers, "outside-latency", str(RECORDS), "all", "100")
    if "Percentiles" not in said:
        raise Wrong(f"it printed no percentiles: {said.strip()[-TEXT_LIMIT:]}")


def _replica_verification(tools: Tools) -> None:
    """Kafka's ReplicaVerificationTool reads all replicas, as a replica does, and finds no lag; it has no end."""
    tools.create("outside-verified", 3)
    tools.fill("outside-verified")
    arguments = ["--broker-list", tools.servers, "--topics-include", "outside-verified", "--report-interval-ms", "1000"]
    with subprocess.Popen(
        tools.command("ReplicaVerificationTool", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        said = []
        out_of_time = threading.Timer(LIMIT_SECONDS, process.kill)
        out_of_time.start()
        try:
            for line in process.stdout or ():
                said.append(line)
                if "max lag is 0 for partition" in line:
                    return
        finally:
            out_of_time.cancel()
            process.kill()
    raise Wrong(f"it has seen no lag of 0: {''.join(said).strip()[-TEXT_LIMIT:]}")


TESTS: Sequence[tuple[str, Callable[[Tools], None]]] = (
    ("ClientCompatibilityTest", _client_compatibility),
    ("VerifiableProducer", _verifiable_producer),
    ("VerifiableConsumer", _verifiable_consumer),
    ("TransactionalMessageCopier", _message_copier),
    ("EndToEndLatency", _end_to_end_latency),
    ("ReplicaVerificationTool", _replica_verification),
)


def run(jars: Path, servers: str, tests: Sequence[str], brokers: int) -> Iterator[Result]:
    """Run the tools, or those that are named; yield a result for each."""
    for name, test in TESTS:
        if tests and name not in tests:
            continue
        began = time.monotonic()
        try:
            test(Tools(jars, servers, brokers))
        except Wrong as problem:
            yield Result(name, Outcome.FAILED, " ".join(str(problem).split())[:TEXT_LIMIT], time.monotonic() - began)
        else:
            yield Result(name, Outcome.PASSED, "", round(time.monotonic() - began, 3))
