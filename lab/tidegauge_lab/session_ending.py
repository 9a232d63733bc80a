"""The end of a broker's membership, a session or (KRaft) being unfenced: the broker is asked while it can respond."""

from __future__ import annotations

import asyncio

from tidegauge_client.cluster_file import KRAFT_MODE
from tidegauge_lab.local.cluster import LocalCluster
from tidegauge_lab.local.processes import ProcessState
from tidegauge_lab.switches import Switches


async def expire_session(cluster: LocalCluster, switches: Switches, broker_id: int) -> int:
    """End the session of a broker that is up, paused or down; return its id.

    Raises:
        TidegaugeError: the broker or ZooKeeper does not respond, or the session is not known.
    """
    if cluster.state_of(broker_id) is ProcessState.UP:
        return await switches.expire_session(broker_id)
    return await asyncio.to_thread(cluster.expire_session, broker_id)


def ended_words(mode: str | None, membership_id: int, name: str) -> str:
    """Return what is said of an ended membership.

    Args:
        mode: the cluster's; None: it is not known.
        membership_id: the session's id, or the broker epoch.
        name: of the broker's process.
    """
    if mode == KRAFT_MODE:
        return f"The active controller has fenced {name} (broker epoch {membership_id})"
    return f"Ended the {'ZooKeeper ' if mode else ''}session 0x{membership_id:x} of {name}"
