"""Gets an idempotent producer its producer id; a transactional one has its own from its coordinator (``transaction``).

Source: InitProducerId, as KafkaProducer's TransactionManager sends it without a transactional id.
"""

from __future__ import annotations

import asyncio

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.v1 import produce_pb2
from tidegauge_client.channels import call
from tidegauge_client.cluster import PROBE_TIMEOUT_MS, Cluster
from tidegauge_client.partition_queue import Identity

FIRST_PAUSE_MS = 10.0


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
    address = cluster.addresses()[0]
    pause_ms = min(FIRST_PAUSE_MS, retry_backoff_ms)
    while True:
        stub = cluster.channels.broker(address)
        try:
            response = await call(
                stub.InitProducerId,
                produce_pb2.InitProducerIdRequest(),
                timeout_ms=PROBE_TIMEOUT_MS,
                address=address,
            )
            problem = TidegaugeError(ErrorCode.of(response.error), response.error_message)
        except TidegaugeError as error:
            cluster.note_failure(address)
            address = cluster.addresses()[0]
            problem = error
        else:
            if problem.code is ErrorCode.NONE:
                return Identity(response.producer_id, response.producer_epoch)
        if not problem.retriable:
            raise problem
        await asyncio.sleep(pause_ms / 1000)
        pause_ms = min(2 * pause_ms, retry_backoff_ms)
