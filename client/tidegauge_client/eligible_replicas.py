"""Which replicas of a partition may lead besides the ISR (KIP-966), by DescribeTopicPartitions of Kafka 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tidegauge.errors import TidegaugeError
from tidegauge.kafka.kraft.apis import DESCRIBE_TOPIC_PARTITIONS, KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from tidegauge.kafka_channel import Dialer, KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge.security import Security

_CLIENT_ID = "tidegauge"
_LIMIT_SECONDS = 2.0


class EligibleReplicas(NamedTuple):
    """The eligible leaders of a partition; None where brokers have no such thing.

    Attributes:
        elr: broker ids that may lead besides the ISR.
        last_known: the last leader, if ISR and ``elr`` are empty.
    """

    elr: tuple[int, ...] | None = None
    last_known: tuple[int, ...] | None = None


NOT_KNOWN = EligibleReplicas()


async def eligible_replicas(
    addresses: Sequence[str], security: Security, topics: Sequence[str]
) -> Mapping[TopicPartition, EligibleReplicas]:
    """Return the eligible leaders of each partition of topics, as the first broker that responds has them.

    Args:
        addresses: of brokers, for Kafka clients.
        security: of the connection.
        topics: names.

    Returns:
        by partition; nothing if no broker responds, or if the brokers lack the API.
    """
    for address in addresses:
        channel = KafkaChannel(address, _CLIENT_ID, Dialer(security), security.login, protocol=KRAFT_PROTOCOL)
        try:
            return await _asked(channel, topics)
        except TidegaugeError:
            continue
        finally:
            channel.close()
    return {}


async def _asked(channel: KafkaChannel, topics: Sequence[str]) -> Mapping[TopicPartition, EligibleReplicas]:
    found: dict[TopicPartition, EligibleReplicas] = {}
    named = [TopicRequest(name) for name in sorted(topics)]
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(named, cursor=cursor)
        response: DescribeTopicPartitionsResponse = await channel.request(
            DESCRIBE_TOPIC_PARTITIONS, request, _LIMIT_SECONDS
        )
        for topic in response.topics:
            for one in topic.partitions:
                found[TopicPartition(topic.name or "", one.partition_index)] = EligibleReplicas(
                    _ids(one.eligible_leader_replicas), _ids(one.last_known_elr)
                )
        if response.next_cursor is None or response.next_cursor == cursor:
            return found
        cursor = response.next_cursor


def _ids(ids: Sequence[int] | None) -> tuple[int, ...] | None:
    return None if ids is None else tuple(ids)
