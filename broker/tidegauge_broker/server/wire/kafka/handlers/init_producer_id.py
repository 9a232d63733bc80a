"""InitProducerId (22), versions 0-5: a producer id for an idempotent producer.

An empty transactional id, and a producer id without its epoch or the reverse, get INVALID_REQUEST. Transactions are not
served: a transactional id gets UNSUPPORTED_VERSION, which no client takes for a reason to try again.
Source: ``KafkaApis.handleInitProducerIdRequest``, ``TransactionCoordinator.handleInitProducerId``.
"""

from __future__ import annotations

from tidegauge.errors import ErrorCode
from tidegauge.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidegauge_broker.server.wire.kafka.request import Context


def handle(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    """Return a producer id with epoch 0."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is not None:
        is_empty = not request.transactional_id
        error = ErrorCode.INVALID_REQUEST if is_empty else ErrorCode.UNSUPPORTED_VERSION
        return InitProducerIdResponse(error_code=error, producer_epoch=-1)
    error, _, producer_id = context.service.init_producer_id()
    return InitProducerIdResponse(0, error, producer_id, -1 if error is not ErrorCode.NONE else 0)
