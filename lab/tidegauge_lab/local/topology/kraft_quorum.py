"""Asks the quorum of a local cluster who leads it, for code without an event loop, and finds a node in the response."""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.errors import TidegaugeError
from tidegauge_client.loop_thread import LoopThread
from tidegauge_client.quorum_admin import QuorumAdmin, QuorumReplica, QuorumView

_NO_DIRECTORY = bytes(16)


def described(addresses: Sequence[str], limit_seconds: float) -> QuorumView | None:
    """Return the quorum as its leader describes it; None: no leader responds.

    Args:
        addresses: of the controllers to ask.
        limit_seconds: for all of it.
    """
    if not addresses:
        return None
    loop = LoopThread("tidegauge-quorum")
    try:
        return loop.run(_described(addresses, limit_seconds))
    finally:
        loop.close()


async def _described(addresses: Sequence[str], limit_seconds: float) -> QuorumView | None:
    try:
        async with QuorumAdmin(addresses, limit_seconds) as admin:
            return await admin.describe()
    except TidegaugeError:
        return None


def place_of(view: QuorumView, node_id: int, directory_id: bytes | None) -> tuple[QuorumReplica, str] | None:
    """Return a node as the leader sees it, and its role.

    The role is leader, follower or observer; None: no such node fetches. A voter is an id with a directory (KIP-853): a
    node that lost its disk fetches as an observer beside the voter that it was.

    Args:
        view: the quorum as its leader describes it.
        node_id: the node.
        directory_id: the id of its directory; None if it can't be read, so that the node's id has to do.
    """
    for replicas, role in ((view.voters, "follower"), (view.observers, "observer")):
        for one in replicas:
            if one.id == node_id and (directory_id is None or one.directory_id in {directory_id, _NO_DIRECTORY}):
                return one, "leader" if (one.id, role) == (view.leader_id, "follower") else role
    return None
