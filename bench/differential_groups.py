"""Kafka's kafka-consumer-groups on Apache Kafka 3.9.1 and on Tidegauge: ``make differential``.

The tools of 3.9.1 and of the newest Kafka 4 are run with the same commands on both clusters, after the same script: a
group with a member, the same group without, its offsets reset, deleted, and the group deleted. Their output must be
the same, line by line and column by column; only addresses, ids of brokers and the random part of member ids may
differ. Without Maven there are no tools to run, and the run says so. Exit 0: no difference; 1: one or more.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka_side
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from jars import KAFKA, KAFKA_4, kafka_jars
from tests.waiting import until

from tidegauge.java import java_program
from tidegauge_lab.local.cluster import LocalCluster

SETTINGS = {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "false",
}
"""On both sides."""
READY_SECONDS = 90.0
COMMAND_SECONDS = 120.0
TOPIC, GROUP, PARTITIONS, RECORDS = "orders", "app", 3, 10
MAIN = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TOOL_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256M")
ROOT = Path(__file__).parents[1]
MEMBER = ROOT / "tests" / "clients" / "group_member.py"

LOOKS = (
    ("--list",),
    ("--list", "--state"),
    ("--describe", "--group", GROUP),
    ("--describe", "--group", GROUP, "--members", "--verbose"),
    ("--describe", "--group", GROUP, "--state"),
    ("--describe", "--group", "unknown"),
)
"""Commands that change nothing: run by the tools of both versions."""
REFUSED = (
    ("--reset-offsets", "--group", GROUP, "--all-topics", "--to-earliest", "--execute"),
    ("--delete", "--group", GROUP),
)
"""Of a group that has members."""
CHANGES = (
    ("--reset-offsets", "--group", GROUP, "--all-topics", "--to-earliest", "--dry-run"),
    ("--reset-offsets", "--group", GROUP, "--topic", f"{TOPIC}:0,1", "--shift-by", "-3", "--execute"),
    ("--reset-offsets", "--group", GROUP, "--topic", f"{TOPIC}:2", "--to-offset", "4", "--execute"),
    ("--reset-offsets", "--group", GROUP, "--topic", f"{TOPIC}:2", "--to-offset", "99", "--execute"),
    ("--reset-offsets", "--group", GROUP, "--all-topics", "--to-current", "--export"),
    ("--describe", "--group", GROUP),
    ("--delete-offsets", "--group", GROUP, "--topic", f"{TOPIC}:1"),
    ("--describe", "--group", GROUP, "--offsets"),
    ("--describe", "--all-groups", "--state"),
    ("--delete", "--group", GROUP),
    ("--delete", "--group", GROUP),
    ("--describe", "--group", GROUP),
    ("--list",),
)
"""Of a group without members."""
_EQUAL = (
    (re.compile(r"127\.0\.0\.1:\d+\s+\(\d\)\s*"), "BROKER "),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "u" * 36),
    (re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\]"), "[TIME]"),
)

Facts = dict[str, list[str]]


def _note(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Tools:
    """kafka-consumer-groups of some versions against one cluster; what it printed is kept by step."""

    def __init__(self, name: str, servers: str, jars: dict[str, Path]) -> None:
        self.facts: Facts = {}
        self._name = name
        self._servers = servers
        self._jars = jars

    def run(self, when: str, version: str, arguments: Sequence[str]) -> str:
        """Run one command; return what it printed."""
        command = [java_program(), *TOOL_JVM, "-cp", f"{self._jars[version]}/*", MAIN]
        done = subprocess.run(
            [*command, "--bootstrap-server", self._servers, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=COMMAND_SECONDS,
        )
        # Kafka's jars bring two loggers, and the tools of 3.9 say so.
        shown = f"{done.stdout}\n" + re.sub(r"^SLF4J: .*\n?", "", done.stderr, flags=re.MULTILINE)
        for pattern, equal in _EQUAL:
            shown = pattern.sub(equal, shown)
        key = f"{len(self.facts):02} {version} {when}: {' '.join(arguments)}"
        self.facts[key] = [f"exit {done.returncode}", *shown.splitlines()]
        _note(f"{self._name}: {key}")
        return done.stdout

    def look(self, when: str) -> None:
        """Run what changes nothing, by the tools of each version."""
        for version in self._jars:
            for arguments in LOOKS:
                self.run(when, version, arguments)


class Member:
    """librdkafka's consumer in a process of its own, which commits all that it reads."""

    def __init__(self, servers: str) -> None:
        self.committed: dict[str, int] = {}
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(MEMBER), "confluent", servers, GROUP, TOPIC],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.committed |= json.loads(line).get("committed", {})

    def leave(self) -> None:
        """Leave the group, and end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(READY_SECONDS)
        finally:
            self._process.kill()
            self._process.wait()


def _prepare(servers: str) -> None:
    """Create the topic, and write its records."""
    admin: Any = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic(TOPIC, num_partitions=PARTITIONS, replication_factor=3)
    admin.create_topics([topic])[TOPIC].result(READY_SECONDS)
    producer: Any = confluent_kafka.Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(PARTITIONS * RECORDS):
        producer.produce(TOPIC, b"%d" % number, partition=number % PARTITIONS)
    if producer.flush(READY_SECONDS):
        raise RuntimeError("the records were not written in time")


def play(name: str, servers: str, jars: dict[str, Path]) -> Facts:
    """Play the script on a cluster; return what the tools printed."""
    tools = Tools(name, servers, jars)
    _prepare(servers)
    for version in jars:
        tools.run("no group", version, ("--list",))
        tools.run("no group", version, ("--describe", "--group", GROUP))
    member = Member(servers)
    try:
        wanted = {str(partition): RECORDS for partition in range(PARTITIONS)}
        until(lambda: member.committed == wanted, READY_SECONDS, "all is committed")
        tools.look("with a member")
        for arguments in REFUSED:
            tools.run("with a member", KAFKA, arguments)
    finally:
        member.leave()
    tools.look("without members")
    for arguments in CHANGES:
        tools.run("without members", KAFKA, arguments)
    return tools.facts


def theirs(directory: Path, jars: dict[str, Path]) -> Facts:
    """Return what the tools print of Apache Kafka."""
    side = kafka_side.Kafka(directory, SETTINGS)
    try:
        side.start()
        return play("Kafka", side.bootstrap, jars)
    finally:
        side.stop()


def ours(directory: Path, jars: dict[str, Path]) -> Facts:
    """Return what the tools print of Tidegauge."""
    cluster = LocalCluster.create(directory / "tidegauge", 3, profile="kafka", settings=SETTINGS)
    try:
        cluster.up(READY_SECONDS)
        return play("Tidegauge", ",".join(cluster.kafka_bootstrap_servers), jars)
    finally:
        cluster.down()


def differences(kafka: Facts, tidegauge: Facts) -> list[str]:
    """Return the commands whose output differs, with the differing lines."""
    found: list[str] = []
    for command in dict.fromkeys([*kafka, *tidegauge]):
        one, other = kafka.get(command, ["not run"]), tidegauge.get(command, ["not run"])
        if one != other:
            found.append(command)
            found += [f"    Kafka:     {line}" for line in one if line not in other]
            found += [f"    Tidegauge: {line}" for line in other if line not in one]
    return found


def main() -> int:
    """Run both, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--facts", type=Path, help="write what was printed on both to this file")
    options = parser.parse_args()
    try:
        jars = {version: kafka_jars(version) for version in (KAFKA, KAFKA_4)}
    except kafka_side.Unavailable as reason:
        print(f"kafka-consumer-groups can't be had here ({reason}): its output is not compared")
        return 0
    with tempfile.TemporaryDirectory(prefix="differential-groups-") as name:
        directory = Path(name)
        kafka, tidegauge = theirs(directory, jars), ours(directory, jars)
    if options.facts:
        options.facts.write_text(json.dumps({"kafka": kafka, "tidegauge": tidegauge}, indent=1))
    found = differences(kafka, tidegauge)
    print("\n".join(found))
    same = len(kafka) - sum(not line.startswith(" ") for line in found)
    print(f"kafka-consumer-groups of {KAFKA} and {KAFKA_4}: {same} of {len(kafka)} commands print the same on both")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
