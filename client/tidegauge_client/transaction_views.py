"""Transactional ids as the brokers' Lab services show them: what no API of Kafka says."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from tidegauge.errors import TidegaugeError
from tidegauge.security import Security
from tidegauge.v1 import lab_pb2, lab_service_pb2_grpc
from tidegauge_client.channels import Channels, call
from tidegauge_client.cluster import PROBE_TIMEOUT_MS

if TYPE_CHECKING:
    from tidegauge.v1.lab_service_pb2_grpc import LabServiceAsyncStub


async def spoken_version(address: str, security: Security, transactional_id: str) -> int | None:
    """Return the transaction version of an id's last producer (KIP-890).

    Args:
        address: of the id's coordinator.
        security: of the connection.
        transactional_id: the id.

    Returns:
        1 or 2; 0 if the id's producer has begun none yet. None if the broker does not coordinate the id, has no lab, or
        does not respond in time.
    """
    channels = Channels(security)
    # The generated stub serves both kinds of channel; only its type stub distinguishes two classes.
    lab = cast("LabServiceAsyncStub", lab_service_pb2_grpc.LabServiceStub(channels.channel(address)))
    request = lab_pb2.ObserveTransactionsRequest(transactional_ids=[transactional_id])
    try:
        response = await call(lab.ObserveTransactions, request, timeout_ms=PROBE_TIMEOUT_MS, address=address)
    except TidegaugeError:
        return None
    finally:
        await channels.close()
    return next((one.transactions_version for one in response.transactions), None)
