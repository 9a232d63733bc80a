"""When ``reassign-partitions`` sets throttles and removes them (ReassignPartitionsCommand), on a fake cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import pytest
from click.testing import CliRunner, Result

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client import reassignment_plan as plan
from tidegauge_client.cli.reassign_partitions import reassign_partitions
from tidegauge_client.metadata import BrokerInfo, ClusterInfo, PartitionInfo, TopicInfo
from tidegauge_client.ongoing_reassignment import OngoingReassignment

ORDERS, PAYMENTS = TopicPartition("orders", 0), TopicPartition("payments", 0)
REPLICAS = (plan.LEADER_REPLICAS, plan.FOLLOWER_REPLICAS)
MOVING = OngoingReassignment((3, 1, 2), (3,), (2,))

Altered = dict[str, dict[str, str | None]]
"""By topic or broker id, settings that were set, and (None) removed."""
Run = Callable[..., Result]


class Cluster:
    """Brokers and topics, and the ``Admin`` that asks them."""

    def __init__(self) -> None:
        self.live = {1, 2, 3}
        self.topics: dict[str, tuple[int, ...]] = {"orders": (1, 2), "payments": (1, 2)}
        self.ongoing: dict[TopicPartition, OngoingReassignment] = {}
        self.altered: Altered = {}
        self.begun: dict[TopicPartition, Sequence[int] | None] = {}

    def __call__(self, _bootstrap: object) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def metadata(self, topics: Collection[str]) -> ClusterInfo:
        known = {
            name: TopicInfo(name, partitions={0: PartitionInfo(name, 0, 1, 0, self.topics[name], self.topics[name])})
            for name in topics
            if name in self.topics
        }
        return ClusterInfo(brokers={at: BrokerInfo(at, "h", at, None) for at in sorted(self.live)}, topics=known)

    async def metadata_of_all(self, topics: Collection[str]) -> dict[int, ClusterInfo]:
        return {at: await self.metadata(topics) for at in self.live}

    async def list_partition_reassignments(
        self, partitions: Collection[TopicPartition] | None = None, **_: Any
    ) -> dict[TopicPartition, OngoingReassignment]:
        return {at: one for at, one in self.ongoing.items() if partitions is None or at in partitions}

    async def alter_partition_reassignments(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], **_: Any
    ) -> dict[TopicPartition, None]:
        self.begun |= targets
        return dict.fromkeys(targets)

    async def alter_broker_settings(
        self, broker_id: int, changes: Mapping[str, str], deleted: Collection[str] = ()
    ) -> int:
        if broker_id not in self.live:
            raise TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker {broker_id} is not alive")
        return self.alter(str(broker_id), changes, deleted)

    async def alter_topic_settings(self, topic: str, changes: Mapping[str, str], deleted: Collection[str] = ()) -> int:
        if topic not in self.topics:
            raise TidegaugeError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic {topic} does not exist.")
        return self.alter(topic, changes, deleted)

    def alter(self, entity: str, changes: Mapping[str, str], deleted: Collection[str]) -> int:
        self.altered[entity] = {**changes, **dict.fromkeys(deleted)}
        return len(self.altered)

    async def wait_for_change(self, _number: int) -> None:
        return None


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr("tidegauge_client.cli.reassign_partitions.Admin", made)
    monkeypatch.setattr("tidegauge_client.cli.reassign_partitions.SETTLE_SECONDS", 0)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the verb with a file of these targets."""

    def run(action: str, targets: Mapping[TopicPartition, Sequence[int]], *more: str) -> Result:
        path = tmp_path / "targets.json"
        path.write_text(plan.compact(plan.document_of(targets)), encoding="utf-8")
        arguments = [action, "--reassignment-json-file", str(path), "-b", "h:1", *more]
        return CliRunner().invoke(reassign_partitions, arguments)

    return run


def cleared(*brokers: int, topics: Collection[str] = ("orders",)) -> Altered:
    of_brokers: Altered = {str(at): dict.fromkeys(plan.BROKER_THROTTLES) for at in brokers}
    return of_brokers | {topic: dict.fromkeys(REPLICAS) for topic in topics}


def test_verify_removes_all_throttles_at_the_end(cluster: Cluster, run: Run) -> None:
    """Also throttles of moves between log directories, which Kafka's tool may have set."""
    done = run("--verify", {ORDERS: (1, 2)})
    assert done.exit_code == 0
    assert cluster.altered == cleared(1, 2, 3)


@pytest.mark.parametrize("output", ["text", "json"])
def test_verify_leaves_throttles_while_other_partitions_are_being_reassigned(
    cluster: Cluster, run: Run, output: str
) -> None:
    """The rates belong to brokers: the other reassignment, which its file does not name, would lose its throttle."""
    cluster.ongoing[PAYMENTS] = MOVING
    done = run("--verify", {ORDERS: (1, 2)}, "-o", output)
    assert done.exit_code == 0
    assert cluster.altered == {}
    assert "Throttles stay: payments-0 is being reassigned" in done.stderr
    if output == "json":
        assert json.loads(done.stdout)["throttles_cleared"] is False
    else:
        assert done.stdout == (
            "Status of partition reassignment:\nReassignment of partition orders-0 is completed.\n\n"
        ), "as Kafka's"


def test_verify_says_nothing_of_others_while_its_own_partitions_are_being_reassigned(
    cluster: Cluster, run: Run
) -> None:
    cluster.ongoing |= {ORDERS: MOVING, PAYMENTS: MOVING}
    done = run("--verify", {ORDERS: (3, 1)})
    assert (done.exit_code, done.stderr, cluster.altered) == (0, "", {})


@pytest.mark.parametrize("action", ["--verify", "--cancel"])
def test_a_dead_broker_keeps_no_other_throttle_from_being_removed_and_is_named(
    cluster: Cluster, run: Run, action: str
) -> None:
    """Its rate stays in ZooKeeper and is in force at its return: to pass over it in silence would hide that."""
    cluster.topics["orders"] = (3, 1)
    cluster.live.discard(3)
    done = run(action, {ORDERS: (3, 1)})
    assert done.exit_code == 1
    assert "Clearing broker-level throttles on brokers 1,2,3\n" in done.stdout
    assert cluster.altered == cleared(1, 2)
    assert "Not all throttles were cleared" in done.stderr
    assert "Broker 3 is not alive" in done.stderr


@pytest.mark.parametrize("action", ["--verify", "--cancel"])
def test_a_deleted_topic_keeps_no_other_throttle_from_being_removed(cluster: Cluster, run: Run, action: str) -> None:
    del cluster.topics["orders"]
    done = run(action, {ORDERS: (1, 2), PAYMENTS: (1, 2)}, "-o", "json")
    assert done.exit_code == 1
    assert cluster.altered == cleared(1, 2, 3, topics=["payments"])
    assert json.loads(done.stdout)["throttles_cleared"] is False
    assert "Topic orders does not exist." in done.stderr


def test_a_dead_broker_that_is_replaced_needs_no_throttle(cluster: Cluster, run: Run) -> None:
    """Most reassignments replace one. It was found dead after the topics' throttles were set, and nothing was begun."""
    cluster.live.discard(2)
    done = run("--execute", {ORDERS: (1, 3)}, "--throttle", "1000")
    assert done.exit_code == 0, done.stderr
    rates = {plan.LEADER_RATE: "1000", plan.FOLLOWER_RATE: "1000"}
    lists = {plan.LEADER_REPLICAS: "0:1,0:2", plan.FOLLOWER_REPLICAS: "0:3"}
    assert cluster.altered == {"orders": lists, "1": rates, "3": rates}
    assert cluster.begun == {ORDERS: (1, 3)}
    assert "Broker 2 is not alive, so its throttle is not set" in done.stderr


def test_without_a_throttle_a_dead_broker_is_not_spoken_of(cluster: Cluster, run: Run) -> None:
    cluster.live.discard(2)
    done = run("--execute", {ORDERS: (1, 3)})
    assert (done.exit_code, done.stderr, cluster.altered) == (0, "", {})


def test_an_empty_list_of_replicas_is_refused_before_a_throttle_is_set(cluster: Cluster, run: Run) -> None:
    done = run("--execute", {ORDERS: (1, 3), PAYMENTS: ()}, "--throttle", "1000")
    assert done.exit_code == 2
    assert "Partition replica list cannot be empty: payments-0" in done.stderr
    assert cluster.altered == {}
