"""AlterPartition (56), versions 0-3: a leader proposes in-sync replicas to the controller.

Source: ``KafkaApis.handleAlterPartitionRequest``, ``KafkaController.processAlterPartition``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_controller.kafka_wire import alter_partition


async def handle(message: AlterPartitionRequest, context: Context) -> AlterPartitionResponse:
    """Judge the proposals."""
    names = await context.service.controlled_topic_names(alter_partition.topic_ids_of(message))
    if names is None:
        return AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER)
    request, unknown = alter_partition.from_request(message, context.version, names.get)
    response = await context.service.alter_partition(request)
    return alter_partition.to_response(request, response, context.version, unknown)


API = ServedApi(apis.ALTER_PARTITION, handle, guard=whole.of_cluster(Operation.CLUSTER_ACTION), is_exempt=True)
