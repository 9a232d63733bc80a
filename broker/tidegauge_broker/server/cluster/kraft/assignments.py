"""Reports the log directories of replicas to the controller (AssignReplicasToDirs, KIP-858).

One request is in flight, with at most ``MOST`` replicas; what the controller has not taken in is found again by the
next look. After a failure the next attempt waits, twice as long each time.
Source: ``AssignmentsManager``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.apis import ASSIGN_REPLICAS_TO_DIRS
from tidegauge.kafka.kraft.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    DirectoryData,
    PartitionData,
    TopicData,
)
from tidegauge.kafka.topic_ids import topic_id_bytes
from tidegauge_broker.server.cluster.kraft.controller_channel import ControllerChannel
from tidegauge_broker.server.cluster.kraft.directories import FindMisplaced, Misplaced

LOG = logging.getLogger("tidegauge.log-dirs")
MOST = 2250
"""``AssignReplicasToDirsRequest.MAX_ASSIGNMENTS_PER_REQUEST``."""
_LOOK_SECONDS = 1.0
"""Interval of looks at replicas that no image has changed: they may have moved between directories."""
_FIRST_BACKOFF_SECONDS, _LAST_BACKOFF_SECONDS = 0.1, 10.0


class DirectoryAssignments:
    """Reports the log directories of replicas to the controller.

    Args:
        broker_id: this broker.
        broker_epoch: its registration.
        channel: to the controller.
        find: returns the assignments to report.
        timeout_seconds: of a request.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        channel: ControllerChannel,
        find: FindMisplaced,
        timeout_seconds: float,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._channel = channel
        self._find = find
        self._timeout_seconds = timeout_seconds
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="directory-assignments")

    def look(self) -> None:
        """Look now: replicas have come, or the controller has assigned others."""
        self._wake.set()

    async def _run(self) -> None:
        backoff_seconds = _FIRST_BACKOFF_SECONDS
        while True:
            found = self._find(MOST)
            if not found:
                await self._until_woken()
                continue
            try:
                await self._report(found)
                backoff_seconds = _FIRST_BACKOFF_SECONDS
                await asyncio.sleep(_FIRST_BACKOFF_SECONDS)  # the image follows the response
            except TidegaugeError as problem:
                LOG.info("The log directories of %d replicas are reported again: %s", len(found), problem.message)
                await asyncio.sleep(backoff_seconds)
                backoff_seconds = min(2 * backoff_seconds, _LAST_BACKOFF_SECONDS)

    async def _until_woken(self) -> None:
        self._wake.clear()
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                await self._wake.wait()
        except TimeoutError:
            return

    async def _report(self, found: Sequence[Misplaced]) -> None:
        """Send one request.

        Raises:
            TidegaugeError: the controller refuses it, or one of the replicas, or does not respond.
        """
        directories: dict[str, dict[str, list[PartitionData]]] = {}
        for one in found:
            directories.setdefault(one.directory, {}).setdefault(one.topic_id, []).append(PartitionData(one.partition))
        message = AssignReplicasToDirsRequest(
            self._broker_id,
            self._broker_epoch(),
            [
                DirectoryData(
                    topic_id_bytes(directory), [TopicData(topic_id_bytes(topic), at) for topic, at in of.items()]
                )
                for directory, of in directories.items()
            ],
        )
        response = await self._channel.request(ASSIGN_REPLICAS_TO_DIRS, message, self._timeout_seconds)
        errors = [response.error_code]
        errors += [at.error_code for one in response.directories for topic in one.topics for at in topic.partitions]
        failed = [ErrorCode.of(error).name for error in errors if error]
        if failed:
            raise TidegaugeError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"the controller refuses {len(failed)} with {failed[0]}"
            )

    async def close(self) -> None:
        """Report nothing more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._channel.close()
