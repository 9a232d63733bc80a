"""Gets an idempotent producer its producer id; a transactional one has its own from its coordinator (``transaction``).

Source: InitProducerId, as KafkaProducer's TransactionManager sends it without a transactional id.
"""

from __future__ import annotations

import asyncio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import INIT_PRODUCER_ID
from tidegauge.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tidegauge.v1 import produce_pb2
from tidegauge_client.channels import call
from tidegauge_client.cluster import PROBE_TIMEOUT_MS, Cluster
from tidegauge_client.partition_queue import Identity

FIRST_PAUSE_MS = 10.0
_NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of transactions that KafkaProducer sends if it has none."""


async def init_producer_id(cluster: Cluster, retry_backoff_ms: float) -> Identity:
    """Get a producer id from any broker; retry on COORDINATOR_LOAD_IN_PROGRESS and while brokers are dead.

    A broker that is asked for the first time has no ids yet and fetches some: it is asked again, soon. Another one
    would start from the same state.

    Args:
        cluster: the producer's.
        retry_backoff_ms: the longest pause; the first is shorter, and each is twice as long as the one before.

    Raises:
        TidegaugeError: the broker refuses, for a reason that is not retriable.
    """
    address = cluster.anyone()
    pause_ms = min(FIRST_PAUSE_MS, retry_backoff_ms)
    while True:
        try:
            response = await _ask(cluster, address)
        except TidegaugeError as error:
            cluster.note_failure(address)
            address = cluster.anyone()
            problem = error
        else:
            if isinstance(response, Identity):
                return response
            problem = response
        if not problem.retriable:
            raise problem
        await asyncio.sleep(pause_ms / 1000)
        pause_ms = min(2 * pause_ms, retry_backoff_ms)


async def _ask(cluster: Cluster, address: str) -> Identity | TidegaugeError:
    """Ask one broker, over the wire whose address it is; return the id, or why the broker has none.

    Raises:
        TidegaugeError: it does not respond.
    """
    if cluster.is_of_kafka(address):
        request = InitProducerIdRequest(None, _NO_TIMEOUT_MS)
        found: InitProducerIdResponse = await cluster.kafka.ask(address, INIT_PRODUCER_ID, request, PROBE_TIMEOUT_MS)
        if found.error_code:
            return TidegaugeError(ErrorCode.of(found.error_code))
        return Identity(found.producer_id, found.producer_epoch)
    ask = cluster.channels.broker(address).InitProducerId
    response = await call(ask, produce_pb2.InitProducerIdRequest(), timeout_ms=PROBE_TIMEOUT_MS, address=address)
    code = ErrorCode.of(response.error)
    if code is not ErrorCode.NONE:
        return TidegaugeError(code, response.error_message)
    return Identity(response.producer_id, response.producer_epoch)
