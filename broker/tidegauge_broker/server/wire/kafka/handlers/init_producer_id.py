"""InitProducerId (22), versions 0-5: a producer id and epoch, of an idempotent producer or of a transactional id.

A producer id without its epoch, or the reverse, and an empty transactional id get INVALID_REQUEST. From version 3 on a
producer names what it has, to have its epoch raised (KIP-360). Versions 0 to 3 know INVALID_PRODUCER_EPOCH instead of
PRODUCER_FENCED.
Source: ``KafkaApis.handleInitProducerIdRequest``, ``TransactionCoordinator.handleInitProducerId``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import transactions
from tidegauge.errors import ErrorCode
from tidegauge.kafka import apis
from tidegauge.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.error_forms import Form
from tidegauge_broker.server.wire.kafka.handlers.common import known_fence
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_WITH_FENCED = 4


def handle(request: InitProducerIdRequest, context: Context) -> Any:
    """Return the producer id; of a transactional id when its record is committed."""
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        return InitProducerIdResponse(error_code=ErrorCode.INVALID_REQUEST, producer_epoch=-1)
    if request.transactional_id is not None:
        return begun(_transactional(request, context))
    error, _, producer_id = context.service.init_producer_id()
    return InitProducerIdResponse(0, error, producer_id, -1 if error is not ErrorCode.NONE else 0)


async def _transactional(request: InitProducerIdRequest, context: Context) -> InitProducerIdResponse:
    result = await context.service.transactions.ask(
        transactions.InitProducerId(
            request.transactional_id, request.transaction_timeout_ms, request.producer_id, request.producer_epoch
        )
    )
    error = known_fence(result.error, context, _FIRST_WITH_FENCED)
    return InitProducerIdResponse(0, error, result.producer_id, result.producer_epoch)


API = ServedApi(
    apis.INIT_PRODUCER_ID,
    handle,
    guard=whole.init_producer_id,
    form=Form(values={"producer_id": -1, "producer_epoch": -1}),
    is_small=True,
)
