"""A broker stops, returns and leads again, as a user would type it: line by line, znode by znode, file by file.

Brokers 0, 1, 2 and a topic of four partitions; broker 0 is stopped, restarted, and gets its partition again: once by a
preferred election on demand, once by the automatic rebalance. The lines are ``kafka-topics.sh --describe``'s.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from tests.typed import typed
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]

TOPIC = "secondTopic"
ASSIGNED = ("1,0,2", "0,2,1", "2,1,0", "1,2,0")


class Shell:
    """Runs verbs in a cluster's directory."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster

    def __call__(self, verb: str, *arguments: object) -> str:
        """The standard output of a verb that succeeds."""
        done = typed(verb, *arguments, "--dir", self.cluster.directory)
        assert done.code == 0, f"{verb} {arguments}: {done.stderr}"
        return done.stdout

    def znodes(self) -> dict[str, Any]:
        """Every znode by its path."""
        return {znode["path"]: znode for znode in json.loads(self("zk-tree", "-o", "json"))["znodes"]}

    def state(self, partition: int) -> dict[str, Any]:
        """The payload of a partition's state znode, and its version as ``partition_epoch``."""
        znode = self.znodes()[f"/brokers/topics/{TOPIC}/partitions/{partition}/state"]
        return json.loads(znode["data"]) | {"partition_epoch": znode["version"]}

    def epochs_on_disk(self, broker: int, partition: int) -> list[str]:
        """The lines of ``leader-epoch-checkpoint``."""
        data = self.cluster.directory / f"broker-{broker}" / "data"
        return (data / f"{TOPIC}-{partition}" / "leader-epoch-checkpoint").read_text().splitlines()


def described(topic_id: str, leaders: Sequence[int], isrs: Sequence[str]) -> str:
    """Return the lines that Kafka prints."""
    head = f"Topic: {TOPIC}\tTopicId: {topic_id}\tPartitionCount: 4\tReplicationFactor: 3\tConfigs: \n"
    return head + "".join(
        f"\tTopic: {TOPIC}\tPartition: {partition}\tLeader: {leader}\tReplicas: {replicas}\tIsr: {isr}"
        "\tElr: N/A\tLastKnownElr: N/A\n"
        for partition, (leader, replicas, isr) in enumerate(zip(leaders, ASSIGNED, isrs, strict=True))
    )


def create(shell: Shell) -> str:
    """Create the topic with its assignment; return its id."""
    made = shell("create-topic", TOPIC, "--replica-assignment", "1:0:2,0:2:1,2:1:0,1:2:0")
    assert made == f"Created topic {TOPIC}.\n"
    payload = json.loads(shell.znodes()[f"/brokers/topics/{TOPIC}"]["data"])
    assert payload == {
        "partitions": {"0": [1, 0, 2], "1": [0, 2, 1], "2": [2, 1, 0], "3": [1, 2, 0]},
        "topic_id": payload["topic_id"],
        "adding_replicas": {},
        "removing_replicas": {},
        "version": 3,
    }
    return str(payload["topic_id"])


def test_broker_0_stops_returns_and_leads_again_on_demand(make_cluster) -> None:
    """A preferred election on demand, with ``auto.leader.rebalance.enable=false``."""
    shell = Shell(make_cluster(settings={"auto.leader.rebalance.enable": "false"}))
    topic_id = create(shell)
    assert shell("describe-topic", TOPIC) == described(topic_id, (1, 0, 2, 1), ASSIGNED)
    for partition, leader in enumerate((1, 0, 2, 1)):
        assert shell.state(partition) == {
            "controller_epoch": 1,
            "leader": leader,
            "version": 1,
            "leader_epoch": 0,
            "isr": [int(replica) for replica in ASSIGNED[partition].split(",")],
            "partition_epoch": 0,
        }

    shell("stop", 0)
    without_0 = described(topic_id, (1, 2, 2, 1), ("1,2", "2,1", "2,1", "1,2"))
    until(lambda: shell("describe-topic", TOPIC) == without_0)  # the broker asked may learn of it a moment later
    assert [shell.state(partition)["leader_epoch"] for partition in range(4)] == [1, 1, 1, 1]
    assert "/brokers/ids/0" not in shell.znodes()

    shell("start", 0)
    shell("wait", "--in-sync", TOPIC)
    isrs = ("1,2,0", "2,1,0", "2,1,0", "1,2,0")
    until(lambda: shell("describe-topic", TOPIC) == described(topic_id, (1, 2, 2, 1), isrs))
    assert shell.epochs_on_disk(2, 1) == ["0", "1", "1 0"], "its leader since broker 0 stopped"
    assert [shell.state(partition)["leader_epoch"] for partition in range(4)] == [1, 1, 1, 1], "a return costs none"

    elect = ("elect-leaders", "--election-type", "preferred", "--topic", TOPIC, "--partition", 1)
    assert shell(*elect) == f"Successfully completed leader election (PREFERRED) for partitions {TOPIC}-1\n"
    back = described(topic_id, (1, 0, 2, 1), isrs)
    until(lambda: shell("describe-topic", TOPIC) == back)
    until(lambda: shell.epochs_on_disk(0, 1) == ["0", "1", "2 0"])
    assert shell.state(1)["leader_epoch"] == 2
    assert shell.state(1)["isr"] == [2, 1, 0], "a preferred election leaves the ISR and its order alone"
    assert shell(*elect) == f"Valid replica already elected for partitions {TOPIC}-1\n"
    assert shell("describe-topic", TOPIC) == back


def test_the_automatic_rebalance_brings_broker_0_back_by_itself(make_cluster) -> None:
    """First 5 s after the controller's election, then at each interval; one of one partition is above 10 %."""
    cluster = make_cluster(settings={"leader.imbalance.check.interval.seconds": "1"})
    shell = Shell(cluster)
    topic_id = create(shell)
    shell("stop", 0)
    assert shell.state(1)["leader"] == 2
    shell("start", 0)
    until(lambda: shell.state(1)["leader"] == 0, timeout=150)
    assert (shell.state(1)["leader_epoch"], shell.state(1)["isr"]) == (2, [2, 1, 0])
    shell("wait", "--leader", f"{TOPIC}-1=0")
    isrs = ("1,2,0", "2,1,0", "2,1,0", "1,2,0")
    shell("wait", "--in-sync", TOPIC)
    until(lambda: shell("describe-topic", TOPIC) == described(topic_id, (1, 0, 2, 1), isrs))
    until(lambda: shell.epochs_on_disk(0, 1) == ["0", "1", "2 0"])
