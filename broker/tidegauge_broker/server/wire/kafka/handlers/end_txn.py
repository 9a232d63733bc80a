"""EndTxn (26), versions 0-5: commit or abort; the response comes when the decision is committed, before any marker.

Version 5 belongs to transactions v2: the end raises the epoch, and the response has the producer id and epoch with
which the producer continues (KIP-890, part 2).
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
_FIRST_TO_RAISE_EPOCH = 5


def handle(request: EndTxnRequest, context: Context) -> Any:
    """End the transaction."""
    return begun(_end(request, context))


async def _end(request: EndTxnRequest, context: Context) -> EndTxnResponse:
    outcome = Outcome.COMMIT if request.committed else Outcome.ABORT
    result = await context.service.transactions.ask(
        transactions.EndTxn(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            outcome,
            raises_epoch=context.version >= _FIRST_TO_RAISE_EPOCH,
        )
    )
    error = known_fence(result.error, context, _FIRST_WITH_FENCED)
    return EndTxnResponse(0, error, result.producer_id, result.producer_epoch)


API = ServedApi(apis.END_TXN, handle, guard=whole.end_txn, is_small=True)
