"""Work that an expired session interrupts, and the next session repeats: what a broker does in ZooKeeper at its start.

Source: KafkaZkClient.retryRequestsUntilConnected waits for a connection and repeats a request whose connection was
lost. A request that meets the end of its session fails there, and with it a broker that starts; here it is repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidegauge_controller.zookeeper.client import SessionExpired

LOG = logging.getLogger(__name__)
Result = TypeVar("Result")


async def over_sessions(work: Callable[[], Awaitable[Result]]) -> Result:
    """Return the result of work that restarts whenever the session expires.

    Each request of the next attempt waits until there is a new session.

    Args:
        work: may be done twice.

    Raises:
        ZooKeeperError: any other than an expired session.
    """
    while True:
        try:
            return await work()
        except SessionExpired:
            LOG.info("The ZooKeeper session expired while the broker started; the next one goes on with the start")
