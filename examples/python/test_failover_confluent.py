"""A producer of confluent-kafka lives through a killed leader, and its records arrive once and in order."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from steering import Control


def create_topic(cluster: Control, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic(name, num_partitions=1, replication_factor=3)])[name].result(30)
    cluster.wait(in_sync=[name])


def read_all(cluster: Control, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "unused"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[str] = []
    while len(found) < count:
        message = consumer.poll(30)
        assert message is not None, f"only {len(found)} records in 30 s"
        assert message.error() is None, message.error()
        found.append(message.value().decode())
    consumer.close()
    return found


def test_no_record_is_lost_or_doubled_when_the_leader_is_killed(cluster: Control) -> None:
    create_topic(cluster, "orders")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    for number in range(50):
        producer.produce("orders", str(number), partition=0)
    assert producer.flush(30) == 0
    killed = cluster.kill("leader-of:orders-0")
    for number in range(50, 100):
        producer.produce("orders", str(number), partition=0)
    after = cluster.wait(leader={"orders-0": {"not": killed}})["actual"]["orders-0"]
    assert after["leader_confirms"]
    assert producer.flush(60) == 0
    cluster.start(killed)
    cluster.wait(isr={"orders-0": [0, 1, 2]})
    assert read_all(cluster, "orders", 100) == [str(number) for number in range(100)]


def test_a_produce_whose_response_is_lost_is_written_once(cluster: Control) -> None:
    """The broker appends the batch and closes the connection; an idempotent producer sends it again."""
    create_topic(cluster, "payments")
    lost = cluster.fault({"keys": ["Produce"], "topic": "payments", "disconnect": True, "after_effect": True})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    producer.produce("payments", b"one", partition=0)
    assert producer.flush(30) == 0
    assert cluster.wait_fault(lost, hits=1)["actual"]["hits"] == 1
    assert cluster.partition("payments")["high_watermark"] == 1


def test_too_few_replicas_is_an_error_that_the_producer_retries(cluster: Control) -> None:
    create_topic(cluster, "audit")
    refused = cluster.fault({"keys": ["Produce"], "error": "NOT_ENOUGH_REPLICAS", "count": 2})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True})
    producer.produce("audit", b"one", partition=0)
    assert producer.flush(30) == 0
    assert cluster.wait_fault(refused, hits=2)["actual"]["hits"] == 2
    assert read_all(cluster, "audit", 1) == ["one"]
