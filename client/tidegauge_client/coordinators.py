"""Finds the broker that coordinates a group or a transactional id, over Kafka's protocol.

Source: FindCoordinator (KIP-699), ``CoordinatorStrategy``, ``AbstractCoordinator.lookupCoordinator``.
"""

from __future__ import annotations

from typing import NamedTuple

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.apis import FIND_COORDINATOR
from tidegauge.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from tidegauge_client.cluster import PROBE_TIMEOUT_MS, Cluster
from tidegauge_client.kafka_wire import raise_for
from tidegauge_client.metadata import ClusterInfo

GROUP, TRANSACTION = 0, 1
"""Kafka's numbers for the kinds of coordinators (``FindCoordinatorRequest.CoordinatorType``)."""
_FIRST_WITH_SEVERAL_KEYS = 4


class Coordinator(NamedTuple):
    """A coordinator: its broker id, and its address for Kafka's protocol."""

    broker_id: int
    address: str


async def find_coordinator(cluster: Cluster, info: ClusterInfo, key_type: int, key: str) -> Coordinator:
    """Return the coordinator of a key, by the first broker that responds.

    Args:
        cluster: whose brokers are asked.
        info: its metadata.
        key_type: GROUP or TRANSACTION.
        key: the group or transactional id.

    Raises:
        NoKafkaListener: no broker, or not the coordinator, serves this client over Kafka's protocol.
        TidegaugeError: COORDINATOR_NOT_AVAILABLE for now, or another error of the broker; NETWORK_EXCEPTION or
            REQUEST_TIMED_OUT, no broker responds.
    """
    problem = TidegaugeError(ErrorCode.BROKER_NOT_AVAILABLE, "no broker responds")
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    for address in cluster.in_turn(cluster.kafka.reachable(info).values()):
        try:
            response: FindCoordinatorResponse = await cluster.kafka.ask(
                address, FIND_COORDINATOR, request, PROBE_TIMEOUT_MS, at_least=_FIRST_WITH_SEVERAL_KEYS
            )
        except TidegaugeError as error:
            cluster.note_failure(address)
            problem = error
            continue
        [found] = response.coordinators
        raise_for(found.error_code, found.error_message)
        if found.node_id not in info.live:  # it is newer than the metadata
            cluster.request_refresh()
            raise TidegaugeError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return Coordinator(found.node_id, cluster.kafka.address(info, found.node_id))
    raise problem
