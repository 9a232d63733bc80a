"""Reports failed replicas to the controller: a znode that has it ask which replicas of the broker are offline.

Source: ``ReplicaManager.LogDirFailureHandler``, ``KafkaZkClient.propagateLogDirEvent``.
"""

from __future__ import annotations

import asyncio
import logging

from tidegauge.znodes import LOG_DIR_EVENT_PREFIX, encode_log_dir_event
from tidegauge_controller.zookeeper.client import ZooKeeper, ZooKeeperError

LOG = logging.getLogger("tidegauge.broker")
_BACKOFF_SECONDS = 0.5


class LogDirEvents:
    """Writes one znode for each report, and tries again until ZooKeeper has taken it.

    Args:
        zookeeper: the broker's connection.
        broker_id: whose replicas have failed.
    """

    def __init__(self, zookeeper: ZooKeeper, broker_id: int) -> None:
        self._zookeeper = zookeeper
        self._broker_id = broker_id
        self._reports: set[asyncio.Task[None]] = set()

    def report(self) -> None:
        """Begin to report, from the event loop."""
        task = asyncio.get_running_loop().create_task(self._write(), name="log-dir-event")
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    def close(self) -> None:
        """Give up the reports that ZooKeeper has not taken."""
        for report in list(self._reports):
            report.cancel()

    async def _write(self) -> None:
        written = False
        while not written:
            try:
                await self._zookeeper.create(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(self._broker_id), sequence=True)
                written = True
            except ZooKeeperError as problem:
                LOG.warning("The controller could not be notified of the failed replicas yet: %r", problem)
                await asyncio.sleep(_BACKOFF_SECONDS)
