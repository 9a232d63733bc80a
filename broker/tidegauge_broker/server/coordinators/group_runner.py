"""Runs the pure group coordinator; the rules of ``runner``.

Offsets that are committed in a transaction are verified before they are appended, as transactional batches of clients
are (KIP-890), and take effect when the transaction's marker has been written (``transaction_completed``).
Source: GroupCoordinator, GroupMetadataManager.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence

from tidegauge.errors import ErrorCode
from tidegauge.groups import OFFSETS_TOPIC, GroupRequest, GroupResult, JoinGroup
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.transaction_marker import Outcome
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.coordinator import GroupCoordinator
from tidegauge_broker.coordinator.effects import Effect, VerifyTransaction
from tidegauge_broker.coordinator.events import (
    PartitionsDeleted,
    RequestArrived,
    TransactionCompleted,
    TransactionVerified,
)
from tidegauge_broker.coordinator.settings import GroupSettings
from tidegauge_broker.replica.verification import VerificationGuard
from tidegauge_broker.server.coordinators.runner import AnyEvent, CoordinatorRunner
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

LOG = logging.getLogger("tidegauge.coordinators")
_MS_PER_MINUTE = 60_000

Verify = Callable[[VerifyTransaction], Awaitable[tuple[ErrorCode, VerificationGuard | None]]]
"""Asks a transaction coordinator whether a partition of __consumer_offsets is in a transaction."""


def group_settings(settings: Values) -> GroupSettings:
    """Return a broker's settings as the coordinator needs them."""
    return GroupSettings(
        partitions=settings.integer("offsets.topic.num.partitions"),
        group_min_session_timeout_ms=settings.integer("group.min.session.timeout.ms"),
        group_max_session_timeout_ms=settings.integer("group.max.session.timeout.ms"),
        group_initial_rebalance_delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
        group_max_size=settings.integer("group.max.size"),
        offset_metadata_max_bytes=settings.integer("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.integer("offsets.retention.minutes") * _MS_PER_MINUTE,
        offsets_retention_check_interval_ms=settings.integer("offsets.retention.check.interval.ms"),
        offsets_commit_timeout_ms=settings.integer("offsets.commit.timeout.ms"),
        offsets_commit_required_acks=settings.integer("offsets.commit.required.acks"),
        offsets_topic_compression_codec=settings.integer("offsets.topic.compression.codec"),
    )


class GroupRunner(CoordinatorRunner[GroupCoordinator]):
    """See the module.

    Args:
        settings: this broker's.
        replicas: append to and read __consumer_offsets.
        events: the event log.
        now_ms: a clock that never goes back.
        halt: called with a defect in what all share; must end the process at once.
        wall: how far the wall clock is ahead of that clock.

    Attributes:
        verify: asks the transaction coordinator; set before the first request.
    """

    verify: Verify

    def __init__(
        self,
        settings: Values,
        replicas: ReplicaManager,
        events: EventLogWriter,
        now_ms: Callable[[], int],
        halt: Callable[[Exception], None],
        wall: WallTime | None = None,
    ) -> None:
        own = group_settings(settings)
        coordinator = GroupCoordinator(own, now_ms(), wall)
        chunk_bytes = settings.integer("offsets.load.buffer.size")
        super().__init__(coordinator, own, OFFSETS_TOPIC, chunk_bytes, replicas, events, now_ms, halt)
        self._wall = WallTime() if wall is None else wall
        self._executors[VerifyTransaction] = self._verify

    @property
    def time_ms(self) -> int:
        """Return the time now, by the clock of the coordinator's deadlines, in ms."""
        return self._now_ms()

    @property
    def wall_ms(self) -> int:
        """Return the wall-clock time, in ms: the times of groups' states and commits are in it."""
        return self._wall.at(self._now_ms())

    def request(self, request: GroupRequest) -> asyncio.Future[GroupResult]:
        """Hand a request to the coordinator; the future is done with its response. Cancel it to forget the response."""
        member_uuid = str(uuid.uuid4()) if isinstance(request, JoinGroup) else ""
        return self._asked(lambda token: RequestArrived(token, request, member_uuid))

    def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Take up that partitions of other topics were deleted: their offsets are removed."""
        deleted = [at for at in partitions if at.topic != OFFSETS_TOPIC]
        if deleted:
            self._put(PartitionsDeleted(deleted))

    def transaction_completed(
        self, producer_id: int, marker_offsets: Mapping[int, int], outcome: Outcome
    ) -> asyncio.Future[GroupResult]:
        """Take up that a transaction's marker is committed in partitions of __consumer_offsets.

        The future is done when its offsets count, or are dropped.

        Args:
            producer_id: of the marker.
            marker_offsets: where the marker is, by partition.
            outcome: what it says.
        """
        return self._asked(lambda token: TransactionCompleted(token, producer_id, marker_offsets, outcome))

    def _verify(self, effect: VerifyTransaction) -> None:
        self._in_background(self._verified(effect), f"verify-{effect.transactional_id}")

    async def _verified(self, effect: VerifyTransaction) -> None:
        """Verify, and report exactly one outcome."""
        error: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
        guard: VerificationGuard | None = None
        try:
            error, guard = await self.verify(effect)
        except Exception:
            LOG.exception("Verifying %s failed, which is a defect", effect.transactional_id)
        self._put(TransactionVerified(effect.verification_id, error, guard))

    def _outcome_of_failed(self, effect: Effect) -> AnyEvent | None:
        if isinstance(effect, VerifyTransaction):
            return TransactionVerified(effect.verification_id, ErrorCode.UNKNOWN_SERVER_ERROR)
        return super()._outcome_of_failed(effect)
