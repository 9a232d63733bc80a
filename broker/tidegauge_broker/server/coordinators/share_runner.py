"""Runs the pure share coordinator; the rules of ``runner``.

Records that later ones made needless are deleted as DeleteRecords deletes them: the log start offset is raised, here
and on the followers.
Source: ShareCoordinatorService, ShareCoordinatorShard, CoordinatorRuntime.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.share_groups import SHARE_STATE_TOPIC, ShareStateRequest, ShareStateResult, WriteShareState
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.consumer_group.topics import TopicDescription
from tidegauge_broker.coordinator.effects import PruneLog
from tidegauge_broker.coordinator.events import ShareStateRequestArrived, TopicsChanged
from tidegauge_broker.coordinator.settings import ShareStateSettings
from tidegauge_broker.coordinator.share_state.coordinator import ShareCoordinator
from tidegauge_broker.replica.messages import RecordsToDelete
from tidegauge_broker.server.coordinators.runner import CoordinatorRunner
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

LOG = logging.getLogger("tidegauge.share")
_PRUNE_TIMEOUT_MS = 30_000


def share_state_settings(settings: Values) -> ShareStateSettings:
    """Return a broker's settings as the share coordinator needs them."""
    return ShareStateSettings(
        partitions=settings.integer("share.coordinator.state.topic.num.partitions"),
        compression=settings.integer("share.coordinator.state.topic.compression.codec"),
        write_timeout_ms=settings.integer("share.coordinator.write.timeout.ms"),
        updates_per_snapshot=settings.integer("share.coordinator.snapshot.update.records.per.snapshot"),
        prune_interval_ms=settings.integer("share.coordinator.state.topic.prune.interval.ms"),
        cold_interval_ms=settings.integer("share.coordinator.cold.partition.snapshot.interval.ms"),
    )


class ShareRunner(CoordinatorRunner[ShareCoordinator]):
    """Runs the share coordinator.

    Args:
        settings: this broker's.
        replicas: append to and read __share_group_state.
        events: the event log.
        now_ms: a clock that never goes back.
        halt: called with a defect in what all share; must end the process at once.
        wall: how far the wall clock is ahead of that clock.

    Attributes:
        wrote: called with the time in ms that a write of a state took; None: it is not measured.
    """

    def __init__(
        self,
        settings: Values,
        replicas: ReplicaManager,
        events: EventLogWriter,
        now_ms: Callable[[], int],
        halt: Callable[[Exception], None],
        wall: WallTime | None = None,
    ) -> None:
        own = share_state_settings(settings)
        coordinator = ShareCoordinator(own, now_ms(), wall)
        chunk_bytes = settings.integer("share.coordinator.load.buffer.size")
        super().__init__(coordinator, own, SHARE_STATE_TOPIC, chunk_bytes, replicas, events, now_ms, halt)
        self._executors[PruneLog] = self._prune
        self.wrote: Callable[[float], None] | None = None

    def request(self, request: ShareStateRequest) -> asyncio.Future[ShareStateResult]:
        """Hand a request to the coordinator; the future is done with its response. Cancel it to forget the response."""
        future = self._asked(lambda token: ShareStateRequestArrived(token, request))
        if self.wrote is not None and isinstance(request, WriteShareState):
            future.add_done_callback(partial(self._wrote, self._now_ms()))
        return future

    def _wrote(self, begun_ms: int, future: asyncio.Future[ShareStateResult]) -> None:
        if self.wrote is not None and not future.cancelled() and future.result().error is ErrorCode.NONE:
            self.wrote(self._now_ms() - begun_ms)

    def topics_sent(self, topics: Mapping[str, TopicDescription | None]) -> None:
        """Take up topics as the controller has sent them; None: deleted. Those that are as before change nothing."""
        if topics:
            self._put(TopicsChanged(topics))

    def _prune(self, effect: PruneLog) -> None:
        self._in_background(self._pruned(effect), f"prune-{self.topic}-{effect.partition}")

    async def _pruned(self, effect: PruneLog) -> None:
        """Delete the records; a failure is logged only, since the next run asks for at least as much."""
        at = TopicPartition(self.topic, effect.partition)
        wanted = [RecordsToDelete(at, effect.before_offset)]
        try:
            (result,) = await self._replicas.delete_records(wanted, _PRUNE_TIMEOUT_MS)
        except Exception:
            LOG.exception("Pruning %s failed, which is a defect", at)
            return
        if result.error is ErrorCode.NONE:
            LOG.info("Pruned %s till offset %d", at, effect.before_offset)
        else:
            LOG.warning("%s was not pruned till offset %d: %s", at, effect.before_offset, result.message)
