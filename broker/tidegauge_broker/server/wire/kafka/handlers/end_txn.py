"""EndTxn (26), versions 0-4: commit or abort; the response comes when the decision is committed, before any marker.

Versions 0 and 1 know INVALID_PRODUCER_EPOCH instead of PRODUCER_FENCED.
Source: ``KafkaApis.handleEndTxnRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import transactions
from tidegauge.kafka import apis
from tidegauge.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from tidegauge.transaction_marker import Outcome
from tidegauge_broker.server.wire.kafka.authorization import whole
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.handlers.common import known_fence
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi

_FIRST_WITH_FENCED = 2


def handle(request: EndTxnRequest, context: Context) -> Any:
    """End the transaction."""
    return begun(_end(request, context))


async def _end(request: EndTxnRequest, context: Context) -> EndTxnResponse:
    outcome = Outcome.COMMIT if request.committed else Outcome.ABORT
    result = await context.service.transactions.ask(
        transactions.EndTxn(request.transactional_id, request.producer_id, request.producer_epoch, outcome)
    )
    return EndTxnResponse(error_code=known_fence(result.error, context, _FIRST_WITH_FENCED))


API = ServedApi(apis.END_TXN, handle, guard=whole.end_txn, is_small=True)
