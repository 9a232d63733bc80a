"""AllocateProducerIds (67), version 0: a broker asks the controller for a block of producer ids.

Source: ``KafkaApis.handleAllocateProducerIdsRequest``.
"""

from __future__ import annotations

from tidegauge.cluster_metadata.access_lists import Operation
from tidegauge.kafka import apis
from tidegauge.kafka.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi


async def handle(request: AllocateProducerIdsRequest, context: Context) -> AllocateProducerIdsResponse:
    """Allocate a block."""
    error, first, count = await context.service.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(0, error, first, count)


API = ServedApi(apis.ALLOCATE_PRODUCER_IDS, handle, guard=whole.of_cluster(Operation.CLUSTER_ACTION))
