"""The history of commits: none that was acknowledged is lost or goes back, through what happens to brokers and members.

A watch reads the committed offsets all the time, over gRPC by any broker, and compares each read with the commits that
were acknowledged to members before it began: what a read returns is at least the largest of these in each partition.
The Java members are Kafka's VerifiableConsumer, which commits after each poll (commitSync).
"""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.programs import KAFKA, Unavailable, tool
from tests.integration.test_groups import (
    LIMIT_SECONDS,
    PARTITIONS,
    ask,
    committed,
    described,
    kill_coordinator,
    members,
    on_its_own,
    produce,
    until_committed,
    until_stable,
    verb,
)
from tests.integration.test_groups import topic as topic  # noqa: PLC0414 - a fixture
from tests.waiting import until

from tidegauge.errors import TidegaugeError
from tidegauge.groups import OFFSETS_TOPIC, partition_of
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.switches import Switches

pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
pytest.importorskip("kafka", reason="pip install -e '.[dev]' brings kafka-python")

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900)]
SESSION_MS = 30_000
"""The session of kafkatest's rolling restarts."""


def java_tool(name: str) -> list[str]:
    try:
        return tool(KAFKA, name)
    except Unavailable as problem:
        pytest.skip(f"Kafka {KAFKA} can't be had here: {problem}")


class JavaMember:
    """A VerifiableConsumer's process, and the commits that its coordinator has acknowledged."""

    library = "java"

    def __init__(self, cluster: LocalCluster, topic: str) -> None:
        servers = ",".join(cluster.kafka_bootstrap_servers)
        command = [*java_tool("VerifiableConsumer"), "--bootstrap-server", servers, "--topic", topic]
        command += ["--group-id", topic, "--session-timeout", "6000", "--reset-policy", "earliest"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.commits: list[tuple[int, int]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            event: dict[str, Any] = json.loads(line)
            if event["name"] == "offsets_committed" and event["success"]:
                self.commits += ((one["partition"], one["offset"]) for one in event["offsets"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join(LIMIT_SECONDS)
        assert self.process.stdout is not None
        self.process.stdout.close()


class Watch:
    """Reads the committed offsets until it is closed; what went back is kept."""

    def __init__(self, cluster: LocalCluster, group: str, running: list[Any]) -> None:
        self._cluster = cluster
        self._group = group
        self._running = running
        self._ended = threading.Event()
        self.reads = 0
        self.wrong: list[str] = []
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _acknowledged(self) -> dict[int, int]:
        largest: dict[int, int] = {}
        for one in self._running:
            for partition, offset in list(one.commits):
                largest[partition] = max(offset, largest.get(partition, 0))
        return largest

    def _look(self) -> None:
        while not self._ended.is_set():
            before = self._acknowledged()
            try:
                now = committed(self._cluster, self._group)
            except TidegaugeError:
                continue  # the coordinator moves
            self.reads += 1
            self.wrong += [
                f"{partition}: {offset} was acknowledged, {now.get(partition)} is read"
                for partition, offset in before.items()
                if now.get(partition, -1) < offset
            ]

    def close(self) -> None:
        self._ended.set()
        self._thread.join(LIMIT_SECONDS)


@contextlib.contextmanager
def watched(cluster: LocalCluster, group: str, running: list[Any]) -> Iterator[Watch]:
    watch = Watch(cluster, group, running)
    try:
        yield watch
    finally:
        watch.close()
    assert watch.wrong == []
    assert watch.reads > 0


def test_java_consumers_and_three_libraries_share_a_group_through_killed_coordinators_and_members(
    cluster: LocalCluster, topic: str
) -> None:
    """Every coordinator in turn and a member of each kind are killed; no acknowledged commit is lost or goes back."""
    java_tool("VerifiableConsumer")
    produce(cluster, topic, 300)
    with members(cluster, topic) as libraries:
        java = [JavaMember(cluster, topic), JavaMember(cluster, topic)]
        try:
            with watched(cluster, topic, [*libraries, *java]):
                until_stable(cluster, topic, 5)
                until_committed(cluster, topic, 50)
                for turn in (1, 2, 3):
                    killed = kill_coordinator(cluster, topic)
                    produce(cluster, topic, 300)
                    until_committed(cluster, topic, 50 + 50 * turn)
                    cluster.start(killed)
                    cluster.wait_ready()
                java[0].kill()
                libraries[0].kill()
                until_stable(cluster, topic, 3)
                produce(cluster, topic, 300)
                until_committed(cluster, topic, 250)
        finally:
            for one in java:
                if one.process.returncode is None:
                    one.kill()


def test_a_rolling_restart_with_a_session_of_30_s_costs_no_rebalance(cluster: LocalCluster, topic: str) -> None:
    """As kafkatest's test_consumer_bounce wants it: every broker is restarted in order, the generation stays."""
    produce(cluster, topic, 300)
    with members(cluster, topic, session_ms=SESSION_MS) as running, watched(cluster, topic, running):
        until_committed(cluster, topic, 50)
        before = until_stable(cluster, topic, 3)
        for turn, broker in enumerate((0, 1, 2), 1):
            cluster.stop(broker)
            cluster.start(broker)
            cluster.wait_ready()
            produce(cluster, topic, 300)
            until_committed(cluster, topic, 50 + 50 * turn)
        after = until_stable(cluster, topic, 3)
    assert after.generation == before.generation
    assert {one.member_id for one in after.members} == {one.member_id for one in before.members}


async def held_requests(cluster: LocalCluster, broker: int) -> int:
    """Wait until the broker holds a request; return how many it holds."""
    async with Switches.of_cluster(cluster.file) as switches:
        return await switches.wait_held(broker, limit_seconds=LIMIT_SECONDS)


@pytest.mark.parametrize("rpc", ["JoinGroup", "SyncGroup", "OffsetCommit"])
def test_a_member_waits_at_its_coordinator_until_it_is_released_and_others_do_not(
    cluster: LocalCluster, topic: str, rpc: str
) -> None:
    """hold-requests --coordinator-of group:G: the held group makes no progress; another group goes on."""
    produce(cluster, topic, 60)
    ask(cluster, lambda admin: admin.find_coordinator(topic))
    address = ("--dir", str(cluster.directory))
    target = ("--coordinator-of", f"group:{topic}")
    code, shown = verb(cluster, "hold-requests", *target, "--rpc", rpc, "--group", topic, own=address)
    assert code == 0, shown
    broker = cluster.coordinator_of(topic)
    with members(cluster, topic, ("confluent",)):
        assert on_its_own(held_requests(cluster, broker)) == 1
        with members(cluster, topic, ("aiokafka",), group=f"{topic}-2"):
            until_committed(cluster, f"{topic}-2", 10)
        assert committed(cluster, topic) == {}
        assert described(cluster, topic).state == {"SyncGroup": "CompletingRebalance", "OffsetCommit": "Stable"}.get(
            rpc, "Dead"
        )
        code, shown = verb(cluster, "release-requests", *target, "--after", "1", own=address)
        assert code == 0, shown
        # One, or two where the client's own request timeout has passed meanwhile and it has sent the commit again.
        assert re.search(r"released [12]\b", shown), shown
        until_committed(cluster, topic, 10)


def test_kafkas_log_dump_decodes_our_offsets_topic(cluster: LocalCluster, topic: str) -> None:
    """kafka-dump-log.sh --offsets-decoder of 3.9.1: the group's metadata, each commit, and no record that it can't."""
    command = java_tool("DumpLogSegments")
    produce(cluster, topic, 60)
    with members(cluster, topic, ("confluent",)) as running:
        until_committed(cluster, topic, 10)
        until_stable(cluster, topic, 1)
        running[0].leave()
    count = ask(cluster, lambda admin: admin.metadata([OFFSETS_TOPIC])).topics[OFFSETS_TOPIC].partitions
    number = partition_of(topic, len(count))
    logs = [layout.broker_data(cluster.directory, broker) / f"{OFFSETS_TOPIC}-{number}" for broker in (0, 1, 2)]
    [name, *_] = [one for one in logs if one.exists()]

    def dumped() -> str:
        files = ",".join(map(str, sorted(Path(name).glob("*.log"))))
        done = subprocess.run(
            [*command, "--files", files, "--offsets-decoder"], capture_output=True, text=True, check=True, timeout=120
        )
        return done.stdout

    until(lambda: f'"group":"{topic}"' in dumped(), timeout=LIMIT_SECONDS, what="the group's records are dumped")
    text = dumped()
    keys = [line for line in text.splitlines() if f'"group":"{topic}"' in line]
    commits = [line for line in keys if '"topic":"' in line]
    assert len(commits) >= PARTITIONS
    assert any('"protocolType":"consumer"' in line and '"protocol":"range"' in line for line in keys)
    assert all("payload:" in line for line in keys)
    for partition in range(PARTITIONS):
        assert any(f'"partition":{partition}' in line and '"offset":10' in line for line in commits), partition
