"""Admin requests of unmodified Kafka clients: topics, settings, records, elections, reassignments, log directories.

Admin clients find the controller by themselves; at another broker every request for the controller is NOT_CONTROLLER.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests import kafka_requests
from tests.waiting import until

from tidegauge.kafka import apis
from tidegauge.kafka.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tidegauge.kafka.messages.describe_cluster import DescribeClusterRequest
from tidegauge.kafka.messages.describe_log_dirs import DescribeLogDirsRequest
from tidegauge.kafka.messages.describe_producers import DescribeProducersRequest, TopicRequest
from tidegauge.kafka.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tidegauge.kafka.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from tidegauge_lab.local.cluster import LocalCluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="pip install -e '.[dev]' brings it")
admin_module = pytest.importorskip("confluent_kafka.admin")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
LIMIT_SECONDS = 30.0
CONFLUENT = {
    "client": "Python: confluent-kafka",
    "version": f"{confluent_kafka.__version__} (librdkafka {confluent_kafka.libversion()[0]})",
}


@pytest.fixture
def admin(cluster: LocalCluster) -> Any:
    return admin_module.AdminClient({"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers)})


def done(futures: dict[Any, Any]) -> list[Any]:
    return [future.result(LIMIT_SECONDS) for future in futures.values()]


def code_of(futures: dict[Any, Any]) -> int:
    """The error of the only request."""
    [future] = futures.values()
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        future.result(LIMIT_SECONDS)
    return int(caught.value.args[0].code())


def ask(cluster: LocalCluster, broker_id: int, key: int, message: Any, version: int) -> Any:
    """One request on a connection of its own."""
    return kafka_requests.ask(cluster.kafka_bootstrap_servers[broker_id], key, message, version)


@pytest.mark.kafka_client("AdminClient: topics and partitions", **CONFLUENT)
def test_topics_are_created_grown_described_and_deleted(cluster: LocalCluster, admin: Any) -> None:
    new = admin_module.NewTopic
    done(admin.create_topics([new("made", num_partitions=2, replication_factor=3, config={"retention.ms": "7200000"})]))
    error = confluent_kafka.KafkaError
    assert code_of(admin.create_topics([new("made", num_partitions=2)])) == error.TOPIC_ALREADY_EXISTS
    assert code_of(admin.create_topics([new("too many", num_partitions=1)])) == error.TOPIC_EXCEPTION
    assert code_of(admin.create_topics([new("wide", replication_factor=9)])) == error.INVALID_REPLICATION_FACTOR
    done(admin.create_topics([new("only-checked", num_partitions=1)], validate_only=True))
    done(admin.create_partitions([admin_module.NewPartitions("made", 4)]))
    assert code_of(admin.create_partitions([admin_module.NewPartitions("made", 1)])) == error.INVALID_PARTITIONS
    deadline = time.monotonic() + LIMIT_SECONDS
    # A broker that the controller has not reached yet still shows the partitions of before.
    while len((topics := admin.list_topics(timeout=LIMIT_SECONDS).topics)["made"].partitions) < 4:
        assert time.monotonic() < deadline
    assert "only-checked" not in topics
    assert sorted(topics["made"].partitions) == [0, 1, 2, 3]
    assert all(sorted(one.replicas) == [0, 1, 2] for one in topics["made"].partitions.values())
    done(admin.delete_topics(["made"]))
    assert code_of(admin.delete_topics(["made"])) == error.UNKNOWN_TOPIC_OR_PART
    until(lambda: "made" not in admin.list_topics(timeout=LIMIT_SECONDS).topics, what="the topic is deleted")


@pytest.mark.kafka_client("AdminClient: settings", **CONFLUENT)
def test_settings_are_described_with_their_sources_and_altered(cluster: LocalCluster, admin: Any) -> None:
    done(admin.create_topics([admin_module.NewTopic("set", num_partitions=1, replication_factor=1)]))
    kind = admin_module.ResourceType.TOPIC

    def described() -> dict[str, Any]:
        [entries] = done(admin.describe_configs([admin_module.ConfigResource(kind, "set")]))
        return {name: (entry.value, entry.source) for name, entry in entries.items()}

    source = admin_module.ConfigSource
    until(lambda: "set" in admin.list_topics(timeout=LIMIT_SECONDS).topics, what="the described broker knows the topic")
    assert described()["retention.ms"] == ("604800000", source.DEFAULT_CONFIG.value)

    def alter(*entries: tuple[str, Any, str]) -> dict[Any, Any]:
        configs = [
            admin_module.ConfigEntry(name, value, incremental_operation=operation) for name, operation, value in entries
        ]
        resource = admin_module.ConfigResource(kind, "set", incremental_configs=configs)
        return dict(admin.incremental_alter_configs([resource]))

    operation = admin_module.AlterConfigOpType
    done(alter(("retention.ms", operation.SET, "1000"), ("cleanup.policy", operation.APPEND, "compact")))
    until(lambda: described()["retention.ms"] == ("1000", source.DYNAMIC_TOPIC_CONFIG.value), what="it is in force")
    assert described()["cleanup.policy"][0] == "delete,compact"
    error = confluent_kafka.KafkaError
    assert code_of(alter(("retention.ms", operation.APPEND, "1"))) == error.INVALID_CONFIG
    assert code_of(alter(("nope", operation.SET, "1"))) == error.INVALID_CONFIG
    done(alter(("retention.ms", operation.DELETE, "")))
    until(lambda: described()["retention.ms"][1] == source.DEFAULT_CONFIG.value, what="it is the default again")


@pytest.mark.kafka_client("AdminClient: delete_records", **CONFLUENT)
def test_records_below_an_offset_are_deleted(cluster: LocalCluster, admin: Any) -> None:
    done(admin.create_topics([admin_module.NewTopic("shorter", num_partitions=1, replication_factor=3)]))
    producer = confluent_kafka.Producer({"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers)})
    for number in range(10):
        producer.produce("shorter", str(number))
    assert producer.flush(LIMIT_SECONDS) == 0
    at = confluent_kafka.TopicPartition
    [deleted] = done(admin.delete_records([at("shorter", 0, 4)]))
    assert deleted.low_watermark == 4
    assert code_of(admin.delete_records([at("shorter", 0, 99)])) == confluent_kafka.KafkaError.OFFSET_OUT_OF_RANGE


@pytest.mark.zookeeper_mode("any broker forwards what is the controller's")
def test_a_broker_that_is_not_the_controller_says_so(cluster: LocalCluster) -> None:
    controller = ask(cluster, 0, apis.DESCRIBE_CLUSTER, DescribeClusterRequest(), 1).controller_id
    other = next(broker.id for broker in cluster.file.brokers if broker.id != controller)
    created = ask(cluster, other, apis.CREATE_TOPICS, CreateTopicsRequest([CreatableTopic("t", -1, -1)]), 7)
    assert [(topic.error_code, topic.error_message) for topic in created.topics] == [(41, "")]
    asked = ElectLeadersRequest(0, [TopicPartitions("t", [0])])
    elected = ask(cluster, other, apis.ELECT_LEADERS, asked, 2)
    assert elected.error_code == 0
    assert [(one.partition_id, one.error_code) for one in elected.replica_election_results[0].partition_result] == [
        (0, 41)
    ]
    listed = ask(cluster, other, apis.LIST_PARTITION_REASSIGNMENTS, ListPartitionReassignmentsRequest(), 0)
    assert (listed.error_code, list(listed.topics)) == (41, [])


def test_elections_reassignments_log_directories_and_producers(cluster: LocalCluster, admin: Any) -> None:
    done(admin.create_topics([admin_module.NewTopic("looked-at", num_partitions=1, replication_factor=3)]))
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": ",".join(cluster.kafka_bootstrap_servers), "enable.idempotence": True}
    )
    producer.produce("looked-at", b"x" * 1_000)
    assert producer.flush(LIMIT_SECONDS) == 0
    view = ask(cluster, 0, apis.DESCRIBE_CLUSTER, DescribeClusterRequest(), 1)
    assert [broker.broker_id for broker in view.brokers] == [0, 1, 2]
    assert [f"{broker.host}:{broker.port}" for broker in view.brokers] == cluster.kafka_bootstrap_servers
    elected = ask(
        cluster, view.controller_id, apis.ELECT_LEADERS, ElectLeadersRequest(0, [TopicPartitions("looked-at", [0])]), 2
    )
    assert elected.replica_election_results[0].partition_result[0].error_code == 84
    everything = ask(cluster, view.controller_id, apis.ELECT_LEADERS, ElectLeadersRequest(0, None), 2)
    results = [one.partition_result for one in everything.replica_election_results]
    assert not any(results), "those that need no election are left out"
    leader = cluster.leader_of("looked-at", 0)
    asked = DescribeProducersRequest([TopicRequest("looked-at", [0])])
    [partition] = ask(cluster, leader, apis.DESCRIBE_PRODUCERS, asked, 0).topics[0].partitions
    assert [(one.producer_epoch, one.last_sequence) for one in partition.active_producers] == [(0, 0)]
    [directory] = ask(cluster, leader, apis.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(None), 4).results
    sizes = {topic.name: topic.partitions[0].partition_size for topic in directory.topics}
    assert directory.error_code == 0
    assert sizes["looked-at"] > 1_000
    assert 0 < directory.usable_bytes <= directory.total_bytes
