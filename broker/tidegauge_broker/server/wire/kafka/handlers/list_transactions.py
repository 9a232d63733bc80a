"""ListTransactions (66), versions 0-2: the transactional ids that this broker coordinates; a client asks every broker.

Version 1 filters by how long a transaction has been running (KIP-994); version 2, which KRaft mode has, by a pattern of
the transactional id (KIP-1152).
Source: ``KafkaApis.handleListTransactionsRequest``.
"""

from __future__ import annotations

from typing import Any

from tidegauge import transactions
from tidegauge.kafka import apis
from tidegauge.kafka.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from tidegauge_broker.server.wire.kafka.authorization import listed
from tidegauge_broker.server.wire.kafka.eager import begun
from tidegauge_broker.server.wire.kafka.request import Context
from tidegauge_broker.server.wire.kafka.served_api import ServedApi
from tidegauge_broker.server.wire.kafka.turns import converted


def handle(request: ListTransactionsRequest, context: Context) -> Any:
    """List the transactional ids."""
    return begun(_list(request, context))


async def _list(request: ListTransactionsRequest, context: Context) -> ListTransactionsResponse:
    wanted = transactions.ListTransactions(
        tuple(request.state_filters), tuple(request.producer_id_filters), request.duration_filter
    )
    result = await context.service.transactions.list_matching(wanted, request.transactional_id_pattern)
    return ListTransactionsResponse(
        error_code=result.error,
        unknown_state_filters=list(result.unknown_state_filters),
        transaction_states=await converted(
            lambda one: TransactionState(one.transactional_id, one.producer_id, one.state), result.transactions
        ),
    )


API = ServedApi(apis.LIST_TRANSACTIONS, handle, guard=listed.list_transactions, only_reads=True, is_counted=True)
