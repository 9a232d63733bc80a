"""Runs the pure transaction coordinator; the rules of ``runner``.

Producer ids come from the broker's block, leaders from its metadata cache. A partition that the cache lacks is deleted
if the controller has reported that, or ZooKeeper says so, else it waits for its leader; Kafka takes the cache's word,
and leaves its marker out. Markers go to the leaders, this broker itself included, one request in flight for each.
Retries and back-off are the coordinator's.
Source: TransactionCoordinator, TransactionStateManager, TransactionMarkerChannelManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.transactions import TRANSACTION_TOPIC, TransactionRequest, TransactionResult
from tidegauge.wall_time import WallTime
from tidegauge_broker.coordinator.effects import AllocateProducerId, Effect, FindLeaders, WriteMarkers
from tidegauge_broker.coordinator.events import (
    NO_BROKER,
    LeadersFound,
    MarkersWritten,
    ProducerIdAllocated,
    TransactionRequestArrived,
)
from tidegauge_broker.coordinator.settings import TransactionSettings
from tidegauge_broker.coordinator.transaction.coordinator import TransactionCoordinator
from tidegauge_broker.server.coordinators.runner import AnyEvent, CoordinatorRunner
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.replication.replica_manager import ReplicaManager

LOG = logging.getLogger("tidegauge.transactions")

Errors = Mapping[int, Mapping[TopicPartition, ErrorCode]]
"""The response to a request with markers: by producer id and partition."""
SendMarkers = Callable[[WriteMarkers], Awaitable[Errors | None]]
"""Sends markers to a broker; None: the request was not sent, or has no response."""


def transaction_settings(settings: Values, *, is_kafka_4: bool = False) -> TransactionSettings:
    """Return a broker's settings as the coordinator needs them.

    Args:
        settings: the broker's.
        is_kafka_4: whether the broker is one of Kafka 4 (KRaft mode).
    """
    return TransactionSettings(
        partitions=settings.integer("transaction.state.log.num.partitions"),
        transaction_max_timeout_ms=settings.integer("transaction.max.timeout.ms"),
        transactional_id_expiration_ms=settings.integer("transactional.id.expiration.ms"),
        abort_timed_out_interval_ms=settings.integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        remove_expired_interval_ms=settings.integer("transaction.remove.expired.transaction.cleanup.interval.ms"),
        max_message_bytes=settings.integer("message.max.bytes"),
        request_timeout_ms=settings.integer("request.timeout.ms"),
        is_kafka_4=is_kafka_4,
    )


@dataclass(frozen=True, slots=True)
class TransactionServices:
    """The parts of its broker that a transaction coordinator needs, beside its topic.

    Attributes:
        next_producer_id: takes an id from the broker's block; None: there is none at the moment.
        metadata: this broker's view of the cluster.
        deleted: returns the deleted ones of some partitions.
        send_markers: to a broker.
        transaction_version: returns the level of the feature that is in force; None: the cluster has no features
            (ZooKeeper mode).
    """

    next_producer_id: Callable[[], int | None]
    metadata: MetadataCache
    deleted: Callable[[Collection[TopicPartition]], Awaitable[Collection[TopicPartition]]]
    send_markers: SendMarkers
    transaction_version: Callable[[], int] | None = None


class TransactionRunner(CoordinatorRunner[TransactionCoordinator]):
    """Runs the transaction coordinator.

    Args:
        settings: this broker's.
        replicas: append to and read __transaction_state.
        around: the rest of the broker.
        events: the event log.
        now_ms: a clock that never goes back.
        halt: called with a defect in what all share; must end the process at once.
        wall: how far the wall clock is ahead of that clock.
    """

    def __init__(
        self,
        settings: Values,
        replicas: ReplicaManager,
        around: TransactionServices,
        events: EventLogWriter,
        now_ms: Callable[[], int],
        halt: Callable[[Exception], None],
        wall: WallTime | None = None,
    ) -> None:
        own = transaction_settings(settings, is_kafka_4=around.transaction_version is not None)
        self._own_settings = own
        self._around = around
        coordinator = TransactionCoordinator(own, now_ms(), wall)
        chunk_bytes = settings.integer("transaction.state.log.load.buffer.size")
        super().__init__(coordinator, own, TRANSACTION_TOPIC, chunk_bytes, replicas, events, now_ms, halt)
        self._executors |= {
            AllocateProducerId: self._allocate_producer_id,
            FindLeaders: self._find_leaders,
            WriteMarkers: self._write_markers,
        }

    def request(self, request: TransactionRequest) -> asyncio.Future[TransactionResult]:
        """Hand a request to the coordinator; the future is done with its response. Cancel it to forget the response."""
        return self._asked(lambda token: TransactionRequestArrived(token, request))

    def _decided(self, event: AnyEvent | None) -> list[Effect]:
        """Decide by the transaction.version that is in force now (TransactionStateManager.transactionVersionLevel)."""
        if self._around.transaction_version is not None:
            self._own_settings.transaction_version = self._around.transaction_version()
        return super()._decided(event)

    # Effects

    def _allocate_producer_id(self, effect: AllocateProducerId) -> None:
        producer_id = self._around.next_producer_id()
        if producer_id is None:
            self._put(ProducerIdAllocated(effect.allocation_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        else:
            self._put(ProducerIdAllocated(effect.allocation_id, ErrorCode.NONE, producer_id))

    def _find_leaders(self, effect: FindLeaders) -> None:
        metadata = self._around.metadata
        leaders: dict[TopicPartition, int] = {}
        for at in effect.partitions:
            if not metadata.was_deleted(at.topic):
                leader = metadata.leader_of(at)
                leaders[at] = NO_BROKER if leader is None else leader
        unknown = [at for at in leaders if not metadata.knows(at)]
        if unknown:
            self._in_background(self._without_deleted(effect.lookup_id, leaders, unknown), "deleted-partitions")
        else:
            self._put(LeadersFound(effect.lookup_id, leaders))

    async def _without_deleted(
        self, lookup_id: int, leaders: dict[TopicPartition, int], unknown: Collection[TopicPartition]
    ) -> None:
        """Report leaders, without the unknown partitions that are deleted."""
        try:
            for at in await self._around.deleted(unknown):
                del leaders[at]
        except Exception:
            LOG.exception("Asking for deleted partitions failed, which is a defect")
        self._put(LeadersFound(lookup_id, leaders))

    def _write_markers(self, effect: WriteMarkers) -> None:
        self._in_background(self._send(effect), f"markers-{effect.broker_id}")

    async def _send(self, effect: WriteMarkers) -> None:
        """Send, and report exactly one outcome."""
        errors: Errors | None = None
        try:
            errors = await self._around.send_markers(effect)
        except Exception:
            LOG.exception("Markers to broker %d failed, which is a defect", effect.broker_id)
        self._put(MarkersWritten(effect.request_id, errors))

    def _outcome_of_failed(self, effect: Effect) -> AnyEvent | None:
        match effect:
            case AllocateProducerId():
                return ProducerIdAllocated(effect.allocation_id, ErrorCode.UNKNOWN_SERVER_ERROR)
            case FindLeaders():
                return LeadersFound(effect.lookup_id, dict.fromkeys(effect.partitions, NO_BROKER))
            case WriteMarkers():
                return MarkersWritten(effect.request_id, None)
            case _:
                return super()._outcome_of_failed(effect)
