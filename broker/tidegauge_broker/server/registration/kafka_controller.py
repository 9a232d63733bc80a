"""Requests to the controller over Kafka's own protocol, in the versions of ``inter.broker.protocol.version`` 3.9.

Requests of one kind wait for one another at the controller, requests of different kinds do not: each kind has a
connection of its own.
Source: NodeToControllerChannelManager, DefaultAlterPartitionManager, RPCProducerIdManager, KafkaServer
(controlledShutdown), DefaultAutoTopicCreationManager.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidegauge.control import AlterPartitionRequest, AlterPartitionResponse, Endpoint
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka import apis
from tidegauge.kafka.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidegauge.kafka.messages.controlled_shutdown import ControlledShutdownRequest
from tidegauge.kafka.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tidegauge.kafka_channel import KafkaChannel
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge_broker.server.registration.to_controller import NoResponse
from tidegauge_controller.admin import NewTopic
from tidegauge_controller.kafka_wire import alter_partition

_BROKERS_DEFAULT = -1
_FIRST_WITH_BROKER_EPOCH = 2
"""The version of ControlledShutdown."""
_FIRST_WITH_DEFAULTS = 4
"""The version of CreateTopics from which counts may be -1 (KIP-464)."""


class KafkaController:
    """See ``ToController``.

    Args:
        channel_to: returns the channel to an address for a purpose.
        settings: broker settings.
    """

    def __init__(self, channel_to: Callable[[str, str], KafkaChannel], settings: Values) -> None:
        self._channel_to = channel_to
        self._timeout_ms = settings.integer("request.timeout.ms")

    async def alter_partition(self, to: Endpoint, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Propose in-sync replicas."""
        message = alter_partition.to_request(request)
        response = await self._request(to, apis.ALTER_PARTITION, message, at_least=alter_partition.VERSION)
        return alter_partition.from_response(request, response)

    async def controlled_shutdown(
        self, to: Endpoint, broker_id: int, broker_epoch: int
    ) -> tuple[ErrorCode, list[TopicPartition]]:
        """Have a broker's leaders moved away."""
        message = ControlledShutdownRequest(broker_id, broker_epoch)
        response = await self._request(to, apis.CONTROLLED_SHUTDOWN, message, at_least=_FIRST_WITH_BROKER_EPOCH)
        remaining = [TopicPartition(one.topic_name, one.partition_index) for one in response.remaining_partitions]
        return ErrorCode.of(response.error_code), remaining

    async def allocate_producer_ids(
        self, to: Endpoint, broker_id: int, broker_epoch: int
    ) -> tuple[ErrorCode, int, int]:
        """Ask for a block of producer ids."""
        message = AllocateProducerIdsRequest(broker_id, broker_epoch)
        response = await self._request(to, apis.ALLOCATE_PRODUCER_IDS, message)
        return ErrorCode.of(response.error_code), response.producer_id_start, response.producer_id_len

    async def create_topic(self, to: Endpoint, topic: NewTopic) -> tuple[ErrorCode, str]:
        """Have a topic created."""
        count, factor = topic.partition_count, topic.replication_factor
        wanted = CreatableTopic(
            topic.name,
            _BROKERS_DEFAULT if count is None else count,
            _BROKERS_DEFAULT if factor is None else factor,
            configs=[CreatableTopicConfig(name, value) for name, value in topic.configs.items()],
        )
        message = CreateTopicsRequest([wanted], self._timeout_ms)
        response = await self._request(to, apis.CREATE_TOPICS, message, at_least=_FIRST_WITH_DEFAULTS)
        for one in response.topics:
            return ErrorCode.of(one.error_code), one.error_message or ""
        return ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's response names no topic"

    async def _request(self, to: Endpoint, key: int, message: Any, *, at_least: int = 0) -> Any:
        channel = self._channel_to(to.address, apis.snake(apis.APIS[key].name).replace("_", "-"))
        try:
            return await channel.request(key, message, self._timeout_ms / 1000, at_least=at_least)
        except TidegaugeError as problem:
            raise NoResponse(problem.message) from problem
