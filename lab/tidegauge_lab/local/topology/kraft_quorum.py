"""Asks the quorum of a local cluster who leads it, for code without an event loop."""

from __future__ import annotations

from collections.abc import Sequence

from tidegauge.errors import TidegaugeError
from tidegauge_client.loop_thread import LoopThread
from tidegauge_client.quorum_admin import QuorumAdmin, QuorumView


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
