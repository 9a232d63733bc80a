"""ControlledShutdown (7), versions 0-3: a broker that stops has its leaders moved away by the controller.

The response names the partitions with several replicas that it still leads. Source:
``KafkaApis.handleControlledShutdownRequest``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


async def handle(request: ControlledShutdownRequest, context: Context) -> ControlledShutdownResponse:
    """Move a broker's leaders away."""
    error, remaining = await context.service.controlled_shutdown(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(error, [RemainingPartition(at.topic, at.partition) for at in remaining])


API = ServedApi(apis.CONTROLLED_SHUTDOWN, handle, guard=whole.of_cluster(Operation.CLUSTER_ACTION), is_exempt=True)
