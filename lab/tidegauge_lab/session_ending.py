"""The end of a broker's membership, a session or (KRaft) being unfenced: the broker is asked while it can respond."""

from __future__ import annotations

import asyncio

from tidegauge_lab.ended_membership import EndedMembership
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.switches import Switches


async def expire_session(cluster: LocalCluster, switches: Switches, broker_id: int) -> EndedMembership:
    """End the membership of a broker that is up, paused or down.

    Raises:
        TidegaugeError: the broker or ZooKeeper does not respond, or the session is not known.
    """
    if cluster.state_of(broker_id) is ProcessState.UP:
        return await switches.expire_session(broker_id)
    return await asyncio.to_thread(cluster.expire_session, broker_id)
