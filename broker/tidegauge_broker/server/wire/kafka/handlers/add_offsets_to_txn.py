"""AddOffsetsToTxn (25), versions 0-4: a group whose offsets a transaction commits.

Versions 0 and 1 know INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
Source: ``KafkaApis.handleAddOffsetsToTxnRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge.kafka import apis
from tidegauge.kafka.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.handlers.common import known_fence
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_WITH_FENCED = 2


def handle(request: AddOffsetsToTxnRequest, context: Context) -> Any:
    """Add; the response comes when the transaction's record is committed."""
    return begun(_add(request, context))


async def _add(request: AddOffsetsToTxnRequest, context: Context) -> AddOffsetsToTxnResponse:
    result = await context.service.transactions.add_offsets(
        request.transactional_id, request.producer_id, request.producer_epoch, request.group_id
    )
    return AddOffsetsToTxnResponse(error_code=known_fence(result.error, context, _FIRST_WITH_FENCED))


API = ServedApi(apis.ADD_OFFSETS_TO_TXN, handle, guard=whole.add_offsets_to_txn, is_small=True)
