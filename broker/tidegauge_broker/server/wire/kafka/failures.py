"""The response to a request whose handler failed with an exception that it does not expect.

Rules (``KafkaApis.handle``, ``RequestHandlerHelper.handleError``):
    1. The exception is logged once, with client id, correlation id, API and version, and with its traceback unless it
       is an error of the table, which has a sentence; the content of the request is not logged.
    2. The response has the error of the exception, UNKNOWN_SERVER_ERROR if it is none of Kafka's, in the form of the
       request's own API (``error_forms``). The words of an unknown exception stay in the log.
    3. A Produce with acks=0 has no response: its connection is closed, since nothing else could notify the client.
    4. Nothing else on the connection ends: requests before and behind it are responded to in their order.
"""

from __future__ import annotations

import logging
from typing import Any

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import FETCH
from tidegauge_broker.server.wire.kafka.fetch_reader import is_followers
from tidegauge_broker.server.wire.kafka.slot import Slot

LOG = logging.getLogger("tidegauge.kafka")


def log_failure(slot: Slot, host: str, problem: BaseException) -> None:
    """Write the exception of a request to the log; rule 1."""
    header = slot.header
    is_known = isinstance(problem, TidegaugeError)
    LOG.log(
        logging.WARNING if is_known else logging.ERROR,
        "A request failed: client id %r at %s, correlation id %d, %s v%d%s",
        header.client_id,
        host,
        header.correlation_id,
        slot.api.name,
        header.version,
        f": {problem}" if is_known else "",
        exc_info=None if is_known else problem,
    )


def failure_response(slot: Slot, problem: BaseException) -> Any:
    """Return the response to a failed request; None: rule 3.

    Args:
        slot: of the request; its message is decoded.
        problem: the exception of its handler, or of making its response.
    """
    code, message = ErrorCode.UNKNOWN_SERVER_ERROR, None
    if isinstance(problem, TidegaugeError):
        code, message = problem.code, problem.message
    response = slot.api.refusal(slot.codec.version, slot.request, code, message)
    quotas = None if slot.context is None else slot.context.quotas
    return response if quotas is None or response is None else quotas.failed(slot.request, response)


def measured_name(slot: Slot) -> str:
    """Return a failed request's name for metrics: consumers' and followers' Fetch differ."""
    if slot.header.key != FETCH:
        return slot.api.name
    return "FetchFollower" if is_followers(slot.request, slot.header.version) else "FetchConsumer"
