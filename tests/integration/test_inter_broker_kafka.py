"""Controller and brokers over Kafka's own protocol: three brokers whose inter-broker listener speaks it.

The outcomes are the same as over gRPC: elections, controlled shutdowns, topics created and deleted,
reassignments, a controller that dies, its successor's roles and ISRs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.conftest import metadata_at, of_a_file
from tests.modes import IS_KRAFT
from tests.typed import typed
from tests.waiting import until

from tidegauge_lab.local.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

ASSIGNED = "2:0:1,0:1:2,1:2:0"


@pytest.fixture
def cluster(zookeeper: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with of_a_file(
        metadata_at(zookeeper, "inter-broker"), tmp_path_factory, {"inter.broker.listener.name": "PLAINTEXT"}
    ) as made:
        yield made


def tidegauge(cluster: LocalCluster, verb: str, *arguments: object) -> str:
    """The standard output of a verb that succeeds."""
    done = typed(verb, *arguments, "--dir", cluster.directory)
    assert done.code == 0, f"{verb} {arguments}: {done.stderr}{done.stdout}"
    return done.stdout


def directories_of(cluster: LocalCluster, topic: str) -> list[str]:
    """The partition directories of a topic on all brokers' disks, those to be deleted left out."""
    found = cluster.directory.glob(f"broker-*/data/{topic}-*")
    return sorted(path.name for path in found if not path.name.endswith("-delete"))


def test_the_first_leaders_are_the_preferred_ones_and_all_replicas_follow(cluster: LocalCluster) -> None:
    """LeaderAndIsr with its topic ids, UpdateMetadata to all, and the start-up that is over for each broker."""
    tidegauge(cluster, "create-topic", "orders", "--replica-assignment", ASSIGNED)
    tidegauge(cluster, "produce", "orders", "--count", 300)
    tidegauge(cluster, "wait", "--in-sync", "orders")
    described = tidegauge(cluster, "describe-topic", "orders")
    assert [line.split("\tLeader: ")[1][0] for line in described.splitlines()[1:]] == ["2", "0", "1"]


def test_a_leader_dies_and_returns(cluster: LocalCluster) -> None:
    """Election, the survivors' roles, the return into the ISR by AlterPartition, and the preferred election."""
    tidegauge(cluster, "create-topic", "orders", "--replica-assignment", ASSIGNED)
    tidegauge(cluster, "produce", "orders", "--count", 300)
    tidegauge(cluster, "kill", "--leader-of", "orders-0")
    tidegauge(cluster, "wait", "--leader", "orders-0=0")
    tidegauge(cluster, "wait", "--isr", "orders-0=0,1")
    tidegauge(cluster, "produce", "orders", "--count", 300)
    tidegauge(cluster, "start", 2)
    tidegauge(cluster, "wait", "--in-sync", "orders")
    tidegauge(cluster, "elect-leaders", "--all-topic-partitions", "--election-type", "preferred")
    tidegauge(cluster, "wait", "--leader", "orders-0=2")


def test_a_broker_that_stops_hands_its_leaders_over_first(cluster: LocalCluster) -> None:
    """ControlledShutdown: the partition never lacks a leader, and the broker says that it succeeded."""
    tidegauge(cluster, "create-topic", "orders", "--replica-assignment", ASSIGNED)
    controller = 0 if IS_KRAFT else cluster.status()["controller"]["broker"]
    other = next(one for one in (0, 1, 2) if one != controller)
    for stopped in (other, controller):
        tidegauge(cluster, "stop", stopped)
        log = (cluster.directory / "logs" / f"broker-{stopped}.log").read_text()
        assert "Controlled shutdown request returned successfully" in log
        tidegauge(cluster, "start", stopped)
        tidegauge(cluster, "wait", "--in-sync", "orders")


def test_the_controller_dies_in_the_midst_of_topics_that_come_and_go(cluster: LocalCluster, tmp_path: Path) -> None:
    """The successor knows unfinished work; a deletion ends when the dead broker is back (TopicDeletionManager)."""
    for topic in ("orders", "returns"):
        tidegauge(cluster, "create-topic", topic, "--replica-assignment", ASSIGNED)
    tidegauge(cluster, "delete-topic", "returns")
    until(lambda: directories_of(cluster, "returns") == [], 60, "returns is deleted on all disks")
    tidegauge(cluster, "produce", "orders", "--count", 300)
    dead = cluster.status()["controller"]["broker"]
    tidegauge(cluster, "kill", "--controller")
    until(lambda: cluster.status()["controller"]["broker"] not in {None, dead}, 60, "another broker is the controller")
    for partition in range(3):
        tidegauge(cluster, "wait", "--leader", f"orders-{partition}!={dead}")
    tidegauge(cluster, "start", dead)
    tidegauge(cluster, "wait", "--in-sync", "orders")
    moved = tmp_path / "moved.json"
    # A leader that is among the targets stays the leader (KafkaController.moveReassignedPartitionLeaderIfRequired).
    first, second = sorted({0, 1, 2} - {cluster.leader_of("orders", 0)}, reverse=True)
    targets = [{"topic": "orders", "partition": 0, "replicas": [first, second]}]
    moved.write_text(json.dumps({"version": 1, "partitions": targets}))
    tidegauge(cluster, "reassign-partitions", "--execute", "--reassignment-json-file", moved)
    tidegauge(cluster, "wait", "--leader", f"orders-0={first}")
    tidegauge(cluster, "wait", "--isr", f"orders-0={second},{first}")
    assert directories_of(cluster, "orders").count("orders-0") >= 2
    until(lambda: directories_of(cluster, "orders").count("orders-0") == 2, 60, "the third replica is deleted")
