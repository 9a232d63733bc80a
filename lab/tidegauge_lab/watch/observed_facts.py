"""Facts of brokers from their responses: for the page, and for ``tidegauge status``, which needs no more than this."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from tidegauge.v1 import lab_pb2, metadata_pb2
from tidegauge_client.cluster_file import ClusterFile
from tidegauge_lab.observation import Observation, Observer
from tidegauge_lab.watch.facts import BrokerFacts
from tidegauge_lab.watch.view import status_view


def broker_facts(
    known: BrokerFacts,
    response: Observation,
    *,
    last_said: Sequence[metadata_pb2.ReplicaDescription] | None,
    last_groups: Sequence[lab_pb2.ObservedGroup] | None = None,
    session: int | None = None,
    session_state: str = "",
    session_left_ms: float | None = None,
) -> BrokerFacts:
    """Return a broker's facts; without a response, its last reported replicas."""
    return BrokerFacts(
        id=known.id,
        address=known.address,
        state=known.state,
        pid=known.pid,
        metadata=response.metadata,
        replicas=last_said,
        responded=response.replicas is not None,
        faults=[fault.text for fault in response.switches.faults] if response.switches is not None else (),
        held=response.held,
        session=session,
        session_state=session_state,
        session_left_ms=session_left_ms,
        groups=last_groups,
        groups_responded=response.groups is not None,
        shares=response.shares,
    )


async def status_now(file: ClusterFile, up: Collection[int]) -> dict[str, Any]:
    """Return ``status_view`` of a cluster of the lab, from responding brokers.

    Args:
        file: names the cluster's brokers.
        up: those whose processes run.
    """
    addresses = {broker.id: broker.address for broker in file.brokers}
    observer = Observer.of(addresses, has_switches=True, security=file.security)
    try:
        responses = await observer.ask(up, with_switches=False, with_groups=True)
    finally:
        await observer.close()
    return status_view(
        [
            broker_facts(
                BrokerFacts(broker_id, addresses[broker_id], "up"),
                response,
                last_said=response.replicas,
                last_groups=response.groups,
            )
            for broker_id, response in responses.items()
        ]
    )
