"""Replicas move between the log directories of a broker (AlterReplicaLogDirs, KIP-113), also through a kill."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests import kafka_requests
from tests.clients.programs import KAFKA, Unavailable, tool
from tests.integration.conftest import MakeCluster
from tests.waiting import until

from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from tidegauge.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tidegauge.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from tidegauge.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
admin_module = pytest.importorskip("confluent_kafka.admin")
pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]
LIMIT_SECONDS = 60.0
BATCHES = 30
TOPIC = "moved"
THROTTLE = "replica.alter.log.dirs.io.max.bytes.per.second"


class Mover:
    """One broker with two log directories, and a topic of one partition in one of them, written batch by batch."""

    def __init__(self, make_cluster: MakeCluster) -> None:
        self.cluster: LocalCluster = make_cluster(up=False, brokers=1, settings={"replica.fetch.max.bytes": "1"})
        first = self.cluster.directory / "broker-0" / "data"
        self.directories = [first, first.with_name("data-2")]
        self.directories[1].mkdir(parents=True)
        self.cluster.up(LIMIT_SECONDS)
        [self.address] = self.cluster.kafka_bootstrap_servers
        producer = confluent_kafka.Producer({"bootstrap.servers": self.address})
        admin = admin_module.AdminClient({"bootstrap.servers": self.address})
        for future in admin.create_topics([admin_module.NewTopic(TOPIC, 1, 1)]).values():
            future.result(LIMIT_SECONDS)
        for number in range(BATCHES):
            producer.produce(TOPIC, b"%d" % number)
            assert producer.flush(LIMIT_SECONDS) == 0
        self.home = next(path for path in self.directories if (path / f"{TOPIC}-0").exists())
        self.target = next(path for path in self.directories if path != self.home)

    def ask(self, key: int, message: Any, version: int) -> Any:
        return kafka_requests.ask(self.address, key, message, version)

    def throttle(self, rate: int) -> None:
        entry = AlterableConfig(THROTTLE, 0, str(rate))
        change = IncrementalAlterConfigsRequest([AlterConfigsResource(4, "0", [entry])])
        assert self.ask(apis.INCREMENTAL_ALTER_CONFIGS, change, 1).responses[0].error_code == 0
        asked = DescribeConfigsRequest([DescribeConfigsResource(4, "0", [THROTTLE])])

        def is_in_force() -> bool:
            [config] = self.ask(apis.DESCRIBE_CONFIGS, asked, 1).results[0].configs
            return str(config.value) == str(rate)

        until(is_in_force, timeout=LIMIT_SECONDS, what="the throttle is in force")

    def move(self, target: Path) -> int:
        topics = [AlterReplicaLogDirTopic(TOPIC, [0])]
        request = AlterReplicaLogDirsRequest([AlterReplicaLogDir(str(target), topics)])
        return int(self.ask(apis.ALTER_REPLICA_LOG_DIRS, request, 2).results[0].partitions[0].error_code)

    def shown(self) -> dict[str, tuple[bool, int]]:
        """Return by directory whether its replica is a future one, and its lag."""
        found = self.ask(apis.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4).results
        return {
            one.log_dir: (partition.is_future_key, partition.offset_lag)
            for one in found
            for topic in one.topics
            for partition in topic.partitions
            if topic.name == TOPIC
        }

    def has_moved(self) -> bool:
        return self.shown() == {str(self.target): (False, 0)}

    def read(self) -> list[int]:
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.address, "group.id": "unused"})
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        found: list[int] = []
        while len(found) < BATCHES:
            message = until(lambda: consumer.poll(1.0), timeout=LIMIT_SECONDS, what="a record")
            assert message.error() is None
            found.append(int(message.value()))
        consumer.close()
        return found


@pytest.fixture
def mover(make_cluster: MakeCluster) -> Mover:
    return Mover(make_cluster)


def test_a_move_goes_on_after_the_broker_was_killed_in_the_midst(mover: Mover) -> None:
    """Held up by its quota, killed, started again: the copy is found and finished, and no record is lost."""
    mover.throttle(1)
    assert mover.move(Path("/nowhere")) == 57
    assert mover.move(mover.target) == 0
    lag = until(lambda: mover.shown().get(str(mover.target)), timeout=LIMIT_SECONDS, what="the copy begins")
    assert lag is not None
    assert lag[0]
    assert 0 < lag[1] <= BATCHES
    assert mover.shown()[str(mover.home)] == (False, 0)
    mover.cluster.kill(0, expire=True)
    mover.cluster.up(LIMIT_SECONDS)
    mover.cluster.wait_ready(LIMIT_SECONDS)
    again = until(lambda: mover.shown().get(str(mover.target)), timeout=LIMIT_SECONDS, what="the copy goes on")
    assert again is not None
    assert again[0], "the current log stays in place until its copy has all of it"
    mover.throttle(100_000_000)
    until(mover.has_moved, timeout=LIMIT_SECONDS, what="it has moved")
    assert not (mover.home / f"{TOPIC}-0").exists()
    assert mover.read() == list(range(BATCHES))


@pytest.mark.long
def test_kafkas_tools_move_a_replica(mover: Mover, tmp_path: Path) -> None:
    try:
        tool(KAFKA, "TopicCommand")
    except Unavailable as problem:
        pytest.skip(f"Kafka {KAFKA} can't be had here: {problem}")

    def run(name: str, *arguments: str) -> str:
        command = [*tool(KAFKA, name), "--bootstrap-server", mover.address, *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS * 2)
        assert done.returncode == 0, f"{name} {' '.join(arguments)}\n{done.stdout}{done.stderr}"
        return done.stdout

    wanted = tmp_path / "wanted.json"
    partition = {"topic": TOPIC, "partition": 0, "replicas": [0], "log_dirs": [str(mover.target)]}
    wanted.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    command = ("ReassignPartitionsCommand", "--reassignment-json-file", str(wanted))
    mover.throttle(1)  # the tool does not wait until its throttle is in force
    started = run(*command, "--execute", "--replica-alter-log-dirs-throttle", "1")
    assert f"to {mover.target} for replica {TOPIC}-0 with broker 0" in started
    described = run("LogDirsCommand", "--describe", "--topic-list", TOPIC)
    [document] = [line for line in described.splitlines() if line.startswith("{")]
    futures = [
        one["isFuture"]
        for broker in json.loads(document)["brokers"]
        for logs in broker["logDirs"]
        for one in logs["partitions"]
    ]
    assert sorted(futures) == [False, True]
    assert f"Reassignment of replica {TOPIC}-0-0 is still in progress." in run(*command, "--verify")
    run(*command, "--execute", "--additional", "--replica-alter-log-dirs-throttle", "100000000")
    until(mover.has_moved, timeout=LIMIT_SECONDS, what="it has moved")
    assert f"Reassignment of replica {TOPIC}-0-0 completed successfully." in run(*command, "--verify")
    configs = run("ConfigCommand", "--describe", "--entity-type", "brokers", "--entity-name", "0")
    assert THROTTLE not in configs, "--verify removes the throttle"
    assert mover.read() == list(range(BATCHES))
