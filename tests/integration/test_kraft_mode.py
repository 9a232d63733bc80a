"""Brokers in KRaft mode: on Tidegauge's controllers, and on Apache Kafka 4.3.1's beside one of its brokers.

The judge are Kafka's controllers: they register, fence and lead the brokers, and complain of nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import (  # type: ignore[attr-defined] # it names no exports
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from tests.integration.kraft_nodes import FEATURES, KRaftBrokers, brokers_of, combined_of
from tests.integration.quorum_nodes import KAFKA, LIMIT_SECONDS, OURS, Quorum, kafka_classpath, quorum_of
from tests.waiting import until

TOPIC = "orders"
KILLED_BY_TERM = 143
"""Exit status of a JVM that SIGTERM has ended, after its shutdown."""
OF_DEAD_BROKERS = (
    "Disconnecting from node",
    "could not be established",
    "was disconnected",
    "may not be available",
    "Error in response for fetch request",
    "marked as failed",
)
"""Lines of Kafka's controllers and brokers about a broker that the test has killed or stopped.

A partition is marked as failed where the former leader has the next epoch before its follower; the follower fetches
again when it has it, too. Any other reason is logged as an error besides.
"""
OF_TWO_AT_ONCE = ("topic creation failed for __consumer_offsets with error 'TOPIC_ALREADY_EXISTS'",)
"""Line of one of two Kafka brokers that ask for the topic at the same time (``DefaultAutoTopicCreationManager``)."""


@pytest.fixture(scope="module")
def classpath() -> str:
    """The class path of Kafka 4.3.1; skips without Maven."""
    return kafka_classpath()


def make_topic(brokers: KRaftBrokers) -> None:
    """Make a topic of two partitions with replicas at every broker, led by the first and the second one."""
    ids = [node.id for node in brokers.nodes]
    replicas = [ids, [*ids[1:], ids[0]]]
    done = brokers.admin.create_topics([NewTopic(TOPIC, len(replicas), replica_assignment=replicas)])
    done[TOPIC].result(60)
    for partition in range(len(replicas)):
        brokers.wait_isr(TOPIC, ids, partition)


def consumed(brokers: KRaftBrokers, count: int) -> list[str]:
    """Return what a member of a group reads and commits."""
    consumer = Consumer({"bootstrap.servers": brokers.servers, "group.id": "readers", "auto.offset.reset": "earliest"})
    consumer.subscribe([TOPIC])
    found: list[str] = []

    def is_all() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode())
        return len(found) >= count

    try:
        until(is_all, LIMIT_SECONDS, f"{count} records are read")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return sorted(found)


def tell_the_story(brokers: KRaftBrokers) -> None:
    """Records survive a leader that is killed and comes back, and a broker that stops the controlled way."""
    ids = [node.id for node in brokers.nodes]
    first, second = brokers.nodes[:2]
    make_topic(brokers)
    brokers.produce(TOPIC, [f"a{number}" for number in range(20)])
    first.kill()
    brokers.produce(TOPIC, [f"b{number}" for number in range(20)])
    assert brokers.partition(TOPIC)[0] in ids[1:]
    first.start()
    first.wait_started()
    brokers.wait_isr(TOPIC, ids)
    assert second.stop() == (0 if second.kind == OURS else KILLED_BY_TERM)
    mark = json.loads((second.directories[0] / ".kafka_cleanshutdown").read_text())
    assert mark["brokerEpoch"] > 0, "it ended under its registration (KIP-966)"
    assert second.id not in brokers.partition(TOPIC, 1)[1]
    brokers.produce(TOPIC, [f"c{number}" for number in range(20)], partition=1)
    second.start()
    second.wait_started()
    brokers.wait_isr(TOPIC, ids, 1)
    expected = [f"{story}{number}" for story in "abc" for number in range(20)]
    assert consumed(brokers, len(expected)) == sorted(expected)


def alter_a_setting(brokers: KRaftBrokers) -> None:
    """A setting goes to the controller by way of any broker, and each broker's image has it."""
    entry = ConfigEntry("retention.ms", "123456", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[entry])
    brokers.admin.incremental_alter_configs([resource])[resource].result(60)
    asked = ConfigResource(ResourceType.TOPIC, TOPIC)
    until(
        lambda: brokers.admin.describe_configs([asked])[asked].result(60)["retention.ms"].value == "123456",
        LIMIT_SECONDS,
        "a broker's image has the setting",
    )


def changes_of_partitions(quorum: Quorum) -> str:
    """Return the changes of partitions in the metadata log, as text."""
    lines = quorum.nodes[0].dump().splitlines()
    return "\n".join(line for line in lines if "PARTITION_CHANGE_RECORD" in line)


def without_complaint(nodes: Sequence[object]) -> Iterator[str]:
    """Yield the complaints of processes, but for those about killed brokers, and about a topic that two ask for."""
    for node in nodes:
        complaints = getattr(node, "complaints")()  # noqa: B009 - controllers and brokers both have it
        yield from (line for line in complaints if not any(one in line for one in (*OF_DEAD_BROKERS, *OF_TWO_AT_ONCE)))


def test_brokers_on_tidegauges_controllers(tmp_path: Path) -> None:
    """A cluster without ZooKeeper and without Java."""
    with quorum_of(tmp_path, [OURS], features=FEATURES) as quorum:
        quorum.wait_leader()
        with brokers_of(quorum, [OURS, OURS]) as brokers:
            brokers.start()
            tell_the_story(brokers)
            alter_a_setting(brokers)
            assert '"directories":[' in changes_of_partitions(quorum), (
                "the broker with two log directories has reported them (KIP-858)"
            )
            brokers.admin.delete_topics([TOPIC])[TOPIC].result(60)
            until(
                lambda: not any((node.directories[0] / f"{TOPIC}-0").exists() for node in brokers.nodes),
                LIMIT_SECONDS,
                "the replicas of a deleted topic are deleted",
            )


@pytest.mark.long
def test_processes_with_both_roles_lose_their_leader(tmp_path: Path) -> None:
    """One node of the quorum and one metadata log for both: the others lead quorum and partitions on."""
    with combined_of(tmp_path, 3) as brokers:
        brokers.start()
        make_topic(brokers)
        brokers.produce(TOPIC, ["a"] * 10)
        first = brokers.nodes[0]
        first.kill()
        brokers.produce(TOPIC, ["b"] * 10)
        first.start()
        first.wait_started()
        brokers.wait_isr(TOPIC, [0, 1, 2])
        assert first.stop() == 0


def judge(tmp_path: Path, classpath: str, controllers: int, kinds: Sequence[str]) -> None:
    with quorum_of(tmp_path, [KAFKA] * controllers, classpath, features=FEATURES) as quorum:
        quorum.wait_leader()
        with brokers_of(quorum, kinds, classpath) as brokers:
            brokers.start()
            tell_the_story(brokers)
            if controllers > 1:
                lose_the_controller(quorum, brokers)
            alter_a_setting(brokers)
            assert list(without_complaint(quorum.nodes)) == []
            assert list(without_complaint([node for node in brokers.nodes if node.kind == KAFKA])) == []


def lose_the_controller(quorum: Quorum, brokers: KRaftBrokers) -> None:
    """A topic is made by the next controller, and its leader takes records."""
    leader = quorum.wait_leader().leader_id
    quorum.node(leader).kill()
    brokers.admin.create_topics([NewTopic("later", 1, len(brokers.nodes))])["later"].result(90)
    brokers.wait_isr("later", [node.id for node in brokers.nodes])
    brokers.produce("later", ["d"] * 10)


@pytest.mark.long
def test_brokers_of_both_kinds_on_kafkas_controller(tmp_path: Path, classpath: str) -> None:
    """Tidegauge's leads and follows Kafka's, and the other way round."""
    judge(tmp_path, classpath, 1, [OURS, KAFKA])


@pytest.mark.long
@pytest.mark.parametrize("kinds", [(OURS, OURS, OURS), (OURS, OURS, KAFKA), (KAFKA, OURS, KAFKA)])
def test_brokers_of_both_kinds_through_a_change_of_controllers(
    tmp_path: Path, classpath: str, kinds: Sequence[str]
) -> None:
    judge(tmp_path, classpath, 3, kinds)
