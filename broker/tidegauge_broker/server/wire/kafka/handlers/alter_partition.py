"""AlterPartition (56), versions 0-3: a leader proposes in-sync replicas to the controller.

Source: ``KafkaApis.handleAlterPartitionRequest``, ``KafkaController.processAlterPartition``.
"""

from __future__ import annotations

from tidegauge.kafka.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_controller.kafka_wire import alter_partition


async def handle(message: AlterPartitionRequest, context: Context) -> AlterPartitionResponse:
    """Judge the proposals."""
    request, unknown = alter_partition.from_request(message, context.version, context.service.controlled_topic_name)
    response = await context.service.alter_partition(request)
    return alter_partition.to_response(request, response, context.version, unknown)
