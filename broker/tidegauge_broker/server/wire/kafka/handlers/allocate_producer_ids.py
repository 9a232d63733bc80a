"""AllocateProducerIds (67), version 0: a broker asks the controller for a block of producer ids.

Source: ``KafkaApis.handleAllocateProducerIdsRequest``.
"""

from __future__ import annotations

from tidegauge.kafka.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from tidegauge_broker.server.wire.kafka.request import Context


async def handle(request: AllocateProducerIdsRequest, context: Context) -> AllocateProducerIdsResponse:
    """Allocate a block."""
    error, first, count = await context.service.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(0, error, first, count)
