"""Brokers of Apache Kafka 4.3.1 on three controllers of ours: what they need of a controller, and their own judgement.

A Kafka broker ends, or complains in its log, over a record that does not fit, an epoch that falls, or a response that
it does not expect. Needs Maven, or the jars that it brought before; if they can't be had, the test is skipped.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions, NewTopic
from tests.integration.kafka_brokers import KraftBroker
from tests.integration.quorum_nodes import OURS, Quorum, kafka_classpath, quorum_of
from tests.waiting import until

from tidegauge.errors import ErrorCode
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import (
    alter_partition_reassignments,
    describe_topic_partitions,
    elect_leaders,
    unregister_broker,
    update_features,
)
from tidegauge.kafka_channel import KafkaChannel

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TIMERS = {"broker.session.timeout.ms": "6000", "broker.heartbeat.interval.ms": "500"}
BATCH = 200
ROUNDS = 3
"""Rounds of the long test of kills, at least."""
KILL_SECONDS = float(os.environ.get("KILL_SECONDS", "0"))
"""For how long that test goes on (``make kraft-kills``)."""
KILL_SEED = int(os.environ.get("KILL_SEED", "7"))


class Cluster:
    """Three controllers, some brokers, and clients of them.

    Attributes:
        written: the records that were acknowledged, by topic.
    """

    def __init__(self, at: Path, quorum: Quorum, classpath: str, brokers: int) -> None:
        self.quorum = quorum
        self.brokers = [KraftBroker(one, at, quorum.servers, classpath, TIMERS) for one in range(brokers)]
        self.bootstrap = ",".join(one.address for one in self.brokers)
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
        self.written: dict[str, list[bytes]] = {}

    def start(self) -> None:
        """Start all brokers, and wait until they are unfenced."""
        for one in self.brokers:
            one.start()
        for one in self.brokers:
            one.wait_started()

    def produce(self, topic: str) -> None:
        """Write a batch under acks=all, and note the acknowledged records: all of them."""
        found = self.written.setdefault(topic, [])
        values = [f"{topic}-{len(found) + number}".encode() for number in range(BATCH)]
        errors: list[Any] = []
        producer = Producer({"bootstrap.servers": self.bootstrap, "acks": "all", "log_level": 0})
        for value in values:
            producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        producer.flush()
        assert errors == [None] * BATCH
        found += values

    def read(self, topic: str) -> list[bytes]:
        """All records of a topic, each partition from its begin to its end."""
        settings = {"bootstrap.servers": self.bootstrap, "group.id": "reader", "log_level": 0}
        consumer = Consumer(settings | {"enable.auto.commit": "false"})
        try:
            parts = [TopicPartition(topic, one, 0) for one in consumer.list_topics(topic).topics[topic].partitions]
            consumer.assign(parts)
            missing = sum(consumer.get_watermark_offsets(part)[1] for part in parts)
            values: list[bytes] = []
            while len(values) < missing:
                values += [one.value() for one in consumer.consume(missing, 1.0) if one.error() is None]
            return values
        finally:
            consumer.close()

    def ask(self, key: int, message: Any, *, at: KraftBroker | None = None) -> Any:
        """Send a request to a broker, which forwards it to the active controller."""
        broker = at or next(one for one in self.brokers if one.runs)

        async def send() -> Any:
            channel = KafkaChannel(broker.address, "test", protocol=KRAFT_PROTOCOL)
            try:
                return await channel.request(key, message, 60.0)
            finally:
                channel.close()

        return asyncio.run(send())

    def state(self, topic: str) -> list[Any]:
        """The partitions of a topic as a broker describes them (KIP-966)."""
        wanted = [describe_topic_partitions.TopicRequest(topic)]
        message = describe_topic_partitions.DescribeTopicPartitionsRequest(topics=wanted, cursor=None)
        partitions: list[Any] = self.ask(apis.DESCRIBE_TOPIC_PARTITIONS, message).topics[0].partitions
        return sorted(partitions, key=lambda one: one.partition_index)

    def leaders(self, topic: str) -> list[int]:
        return [one.leader_id for one in self.state(topic)]

    def wait_leaders(self, topic: str, *leaders: int) -> None:
        until(lambda: self.leaders(topic) == list(leaders), what=f"the leaders of {topic} are {leaders}")

    def wait_isrs(self, topic: str, *isrs: set[int]) -> None:
        def found() -> list[set[int]]:
            return [set(one.isr_nodes) for one in self.state(topic)]

        until(lambda: found() == list(isrs), what=f"the ISRs of {topic} are {isrs}")

    def create(self, name: str, *assignment: list[int], **config: str) -> None:
        dotted = {key.replace("_", "."): value for key, value in config.items()}
        topic = NewTopic(name, len(assignment), replica_assignment=list(assignment), config=dotted)
        living = ",".join(one.address for one in self.brokers if one.runs)
        admin = AdminClient({"bootstrap.servers": living, "log_level": 0})  # knows no broker that has died
        admin.create_topics([topic])[name].result()
        until(lambda: all(one.leader_id >= 0 for one in self.state(name)), what=f"{name} has leaders")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A cluster whose processes are killed in the end; its brokers' logs must have no complaint."""
    classpath = kafka_classpath()
    with quorum_of(tmp_path, [OURS] * 3, settings=TIMERS) as quorum:
        found = Cluster(tmp_path, quorum, classpath, 3)
        try:
            quorum.wait_leader()
            found.start()
            yield found
            assert all(node.runs for node in quorum.nodes), "a controller has ended"
            assert {one.id: one.complaints() for one in found.brokers} == {one.id: [] for one in found.brokers}
        finally:
            for one in found.brokers:
                one.end()


def test_kafkas_brokers_live_on_controllers_of_ours(cluster: Cluster):
    """Start, topics, settings, a controlled shutdown and the return, preferred election, reassignment, features.

    Then the active controller is killed, and the leader of a partition: acknowledged records are read in the end
    (KIP-500, KIP-590, KIP-631).
    """
    brokers = cluster.brokers
    cluster.create("t", [0, 1, 2], [1, 2, 0], min_insync_replicas="2")
    cluster.produce("t")
    change_settings(cluster)
    return_from_a_controlled_shutdown(cluster)
    reassign(cluster)
    upgrade_a_feature(cluster)
    active = cluster.quorum.node(cluster.quorum.wait_leader().leader_id)
    active.kill()
    cluster.quorum.wait_leader(other_than=active.id)
    cluster.produce("t")
    cluster.create("after", [2, 0])
    cluster.produce("after")
    active.start()
    brokers[1].kill()
    cluster.wait_isrs("t", {0, 2}, {0, 2})
    cluster.produce("t")
    brokers[1].start()
    brokers[1].wait_started()
    cluster.wait_isrs("t", {0, 1, 2}, {0, 1, 2})
    unregister(cluster)
    assert sorted(cluster.read("t")) == sorted(cluster.written["t"])
    assert sorted(cluster.read("after")) == sorted(cluster.written["after"])
    cluster.quorum.wait_equal()


def change_settings(cluster: Cluster) -> None:
    """KIP-339, KIP-195, and what a refused request does: nothing."""
    entry = ConfigEntry("retention.ms", "3600000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "t", incremental_configs=[entry])
    cluster.admin.incremental_alter_configs([resource])[resource].result()

    def shown() -> str:
        described = cluster.admin.describe_configs([ConfigResource("topic", "t")])
        return str(next(iter(described.values())).result()["retention.ms"].value)

    until(lambda: shown() == "3600000", what="the setting is shown")
    cluster.create("small", [0])
    cluster.admin.create_partitions([NewPartitions("small", 3)])["small"].result()
    until(lambda: len(cluster.state("small")) == 3, what="there are three partitions")
    cluster.produce("small")
    cluster.admin.delete_topics(["small"])["small"].result()
    until(lambda: "small" not in cluster.admin.list_topics().topics, what="the topic is gone")


def return_from_a_controlled_shutdown(cluster: Cluster) -> None:
    """KIP-631: leaderships move first, a clean return joins the ISR again, ElectLeaders gives them back (KIP-460)."""
    stopped = cluster.brokers[1]
    assert stopped.stop() in {0, 143}
    cluster.wait_leaders("t", 0, 2)
    cluster.wait_isrs("t", {0, 2}, {0, 2})
    cluster.produce("t")
    stopped.start()
    stopped.wait_started()
    cluster.wait_isrs("t", {0, 1, 2}, {0, 1, 2})
    wanted = [elect_leaders.TopicPartitions("t", [1])]
    message = elect_leaders.ElectLeadersRequest(topic_partitions=wanted)
    elected = cluster.ask(apis.ELECT_LEADERS, message).replica_election_results[0].partition_result[0]
    assert elected.error_code == ErrorCode.NONE
    cluster.wait_leaders("t", 0, 1)


def reassign(cluster: Cluster) -> None:
    """KIP-455: the new replica joins the ISR, then the old one leaves; the leader moves with it."""
    cluster.create("moved", [0, 1])
    cluster.produce("moved")
    parts = [alter_partition_reassignments.ReassignablePartition(0, [2, 1])]
    message = alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        topics=[alter_partition_reassignments.ReassignableTopic("moved", parts)]
    )
    response = cluster.ask(apis.ALTER_PARTITION_REASSIGNMENTS, message)
    assert response.responses[0].partitions[0].error_code == ErrorCode.NONE
    until(lambda: list(cluster.state("moved")[0].replica_nodes) == [2, 1], what="the reassignment is complete")
    cluster.wait_leaders("moved", 2)
    assert sorted(cluster.read("moved")) == sorted(cluster.written["moved"])


def upgrade_a_feature(cluster: Cluster) -> None:
    """KIP-584: a level that all nodes support is finalised; one beyond is refused with the node's name."""
    for level, upgrade_type in ((0, 2), (1, 1)):
        update = update_features.FeatureUpdateKey("group.version", level, upgrade_type=upgrade_type)
        message = update_features.UpdateFeaturesRequest(feature_updates=[update])
        assert cluster.ask(apis.UPDATE_FEATURES, message).error_code == ErrorCode.NONE
    update = update_features.FeatureUpdateKey("metadata.version", 31)
    refused = cluster.ask(apis.UPDATE_FEATURES, update_features.UpdateFeaturesRequest(feature_updates=[update]))
    assert refused.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "only supports versions 25-30" in refused.error_message


def unregister(cluster: Cluster) -> None:
    """KIP-631: a broker that never comes back is forgotten; one that is unknown is refused."""
    unknown = cluster.ask(apis.UNREGISTER_BROKER, unregister_broker.UnregisterBrokerRequest(99))
    assert unknown.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    gone = cluster.brokers[2]
    assert gone.stop() in {0, 143}
    cluster.wait_isrs("t", {0, 1}, {0, 1})
    response = cluster.ask(apis.UNREGISTER_BROKER, unregister_broker.UnregisterBrokerRequest(2))
    assert response.error_code == ErrorCode.NONE


@pytest.mark.long
def test_eligible_leader_replicas_save_what_was_acknowledged(cluster: Cluster):
    """KIP-966: a replica that leaves an ISR below min.insync.replicas stays eligible; a clean one may lead again.

    All replicas die; the last one to come back cleanly leads, and every acknowledged record is there.
    """
    brokers = cluster.brokers
    cluster.create("t", [0, 1, 2], min_insync_replicas="2")
    cluster.produce("t")
    brokers[2].kill()
    cluster.wait_isrs("t", {0, 1})
    assert brokers[1].stop() in {0, 143}
    cluster.wait_isrs("t", {0})
    assert list(cluster.state("t")[0].eligible_leader_replicas) == [1]
    brokers[0].kill()
    brokers[2].start()
    brokers[2].wait_started()

    def leaderless() -> bool:
        found = cluster.state("t")[0]
        return found.leader_id == -1 and set(found.eligible_leader_replicas) == {0, 1}

    until(leaderless, what="there is no leader, and two are eligible")
    assert list(cluster.state("t")[0].last_known_elr) == [0]
    brokers[1].start()
    brokers[1].wait_started()
    cluster.wait_leaders("t", 1)
    assert list(cluster.state("t")[0].eligible_leader_replicas) == [0]
    cluster.wait_isrs("t", {1, 2})
    brokers[0].start()
    brokers[0].wait_started()
    cluster.wait_isrs("t", {0, 1, 2})
    cluster.produce("t")
    assert sorted(cluster.read("t")) == sorted(cluster.written["t"])


@pytest.mark.long
def test_every_broker_and_controller_is_restarted_in_turn_and_a_stale_replica_elected_on_demand(cluster: Cluster):
    """A rolling restart under acks=all loses nothing; while its only member is down, a topic gets an unclean leader."""
    cluster.create("t", [0, 1, 2], [1, 2, 0], min_insync_replicas="2")
    for node in cluster.brokers:
        assert node.stop() in {0, 143}
        cluster.produce("t")
        node.start()
        node.wait_started()
        cluster.wait_isrs("t", {0, 1, 2}, {0, 1, 2})
    for controller in cluster.quorum.nodes:
        controller.kill()
        cluster.quorum.wait_leader(other_than=controller.id)
        cluster.produce("t")
        controller.start()
    cluster.create("stale", [0, 1])
    cluster.produce("stale")
    cluster.brokers[1].kill()
    cluster.wait_isrs("stale", {0})
    cluster.brokers[0].kill()
    cluster.brokers[1].start()
    cluster.brokers[1].wait_started()
    cluster.wait_leaders("stale", -1)
    parts = [elect_leaders.TopicPartitions("stale", [0])]
    message = elect_leaders.ElectLeadersRequest(election_type=1, topic_partitions=parts)
    elected = cluster.ask(apis.ELECT_LEADERS, message).replica_election_results[0].partition_result[0]
    assert elected.error_code == ErrorCode.NONE
    cluster.wait_leaders("stale", 1)
    cluster.brokers[0].start()
    cluster.brokers[0].wait_started()
    cluster.wait_isrs("t", {0, 1, 2}, {0, 1, 2})
    assert sorted(cluster.read("t")) == sorted(cluster.written["t"])


@pytest.mark.long
@pytest.mark.timeout(900 + KILL_SECONDS)
def test_kills_of_brokers_and_controllers_lose_nothing(cluster: Cluster):
    """Rounds of kills with acks=all; each process that was killed returns. Acknowledged records are read in the end."""
    rng = random.Random(KILL_SEED)
    end = time.monotonic() + KILL_SECONDS
    cluster.create("t", [0, 1, 2], [1, 2, 0], [2, 0, 1], min_insync_replicas="2")
    for number in itertools.count():
        if number >= ROUNDS and time.monotonic() > end:
            break
        cluster.produce("t")
        broker, node = rng.choice(cluster.brokers), rng.choice(cluster.quorum.nodes)
        broker.kill()
        node.kill()
        cluster.quorum.wait_leader()
        cluster.wait_isrs("t", *[{0, 1, 2} - {broker.id}] * 3)
        cluster.create(f"after-{number}", [one.id for one in cluster.brokers if one.runs])
        cluster.produce("t")
        node.start()
        broker.start()
        broker.wait_started()
        cluster.wait_isrs("t", *[{0, 1, 2}] * 3)
    assert sorted(cluster.read("t")) == sorted(cluster.written["t"])
    cluster.quorum.wait_equal()
    print(f"{number} brokers and {number} controllers killed, {len(cluster.written['t'])} records, none lost")
