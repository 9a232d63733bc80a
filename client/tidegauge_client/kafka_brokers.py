"""Sentences about Apache Kafka's brokers, which have no gRPC listener, in a mixed cluster (docs/mixed-clusters.md).

Nothing here sends a request.

Rules:
    1. Such a broker is alive: it leads, follows, controls and coordinates. No verb calls it dead, or its partitions
       leaderless.
    2. A request for it alone is refused at once, with its address for Kafka clients: no retry can help until a
       Tidegauge broker has its role.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge_client.metadata import BrokerInfo, ClusterInfo


class OnKafkaBroker(TidegaugeError):
    """LISTENER_NOT_FOUND because an Apache Kafka broker has the role that is needed: it is not retried (rule 2)."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.LISTENER_NOT_FOUND, message)

    @property
    def retriable(self) -> bool:
        """Return False: the roles must move first."""
        return False


def named(broker: BrokerInfo) -> str:
    """Return ``broker ID at HOST:PORT``, and what it is."""
    return f"broker {broker.id} at {broker.address}, an Apache Kafka broker without a gRPC listener"


def led_by(at: TopicPartition, broker: BrokerInfo) -> OnKafkaBroker:
    """Return the error for a leader's request if a Kafka broker leads."""
    return OnKafkaBroker(
        f"{at} is led by {named(broker)}; a Kafka client at {broker.address} reads and writes it, and `tidegauge` does "
        "when a Tidegauge broker leads it (`tidegauge reassign-partitions`, `tidegauge elect-leaders`)"
    )


def own_words(broker: BrokerInfo, tool: str) -> OnKafkaBroker:
    """Return the error for a request to a Kafka broker, with Kafka's tool."""
    return OnKafkaBroker(f"{named(broker)}, can't be asked; `{tool} --bootstrap-server {broker.address}` asks it")


def no_leader(info: ClusterInfo, at: TopicPartition) -> TidegaugeError:
    """Return why a partition has no leader to ask: none, or a Kafka broker."""
    part = info.partition(at)
    broker = None if part is None or part.leader_id is None else info.kafka_brokers.get(part.leader_id)
    if broker is not None:
        return led_by(at, broker)
    return TidegaugeError(ErrorCode.LEADER_NOT_AVAILABLE, f"{at} has no leader at the moment")


def on_kafka_brokers(info: ClusterInfo, topics: Collection[str] | None = None) -> dict[TopicPartition, BrokerInfo]:
    """Return the partitions led by Kafka brokers, with leaders; ``topics`` None: all."""
    return {
        part.topic_partition: info.kafka_brokers[part.leader_id]
        for topic in info.topics.values()
        if topics is None or topic.name in topics
        for part in topic.partitions.values()
        if part.leader_id is not None and part.leader_id in info.kafka_brokers
    }


def note_of_partitions(topic: str, led: Mapping[int, BrokerInfo], lacks: str) -> str:
    """Return the sentence about a topic's partitions that Kafka brokers lead.

    Args:
        topic: its name.
        led: the leaders by partition index; not empty.
        lacks: what can't be done, before the partitions' names.
    """
    names = ", ".join(f"{topic}-{index}" for index in sorted(led))
    return note({broker.id: broker for broker in led.values()}, f"{lacks} {names}", shows=False)


def note(brokers: Mapping[int, BrokerInfo], lacks: str, *, shows: bool = True) -> str:
    """Return the sentence about the parts that are missing because of Kafka brokers.

    Args:
        brokers: the Kafka brokers; not empty.
        lacks: the missing part, such as "what replicas hold there"; or, without ``shows``, the end of the sentence.
        shows: whether the verb is one that shows something.
    """
    names = ", ".join(f"{one.id} ({one.address})" for _, one in sorted(brokers.items()))
    are = (
        f"Broker {names} is an Apache Kafka broker and has"
        if len(brokers) == 1
        else f"Brokers {names} are Apache Kafka brokers and have"
    )
    end = f"{lacks} can't be shown; Kafka's own tools show it" if shows else lacks
    return f"{are} no gRPC listener: {end}"
