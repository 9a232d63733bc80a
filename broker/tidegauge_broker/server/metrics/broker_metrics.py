"""The metrics of one broker, put together; with no ``metrics.listener`` there is nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import chain

from tidegauge.errors import ErrorCode
from tidegauge.listeners import Listener
from tidegauge.partition import TopicPartition
from tidegauge.share_groups import SHARE_STATE_TOPIC
from tidegauge_broker.replica.messages import FetchedPartition
from tidegauge_broker.replica.partition import Partition
from tidegauge_broker.server.coordinators.partition_verifier import PartitionVerifier
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.metadata.metadata_cache import MetadataCache
from tidegauge_broker.server.metrics.collect import Replica, Snapshot, families
from tidegauge_broker.server.metrics.endpoint import MetricsEndpoint, parse_address
from tidegauge_broker.server.metrics.exposition import exposition
from tidegauge_broker.server.metrics.metered_requests import MeteredRequests
from tidegauge_broker.server.metrics.meters import LoadTimes, Meters
from tidegauge_broker.server.metrics.process_families import process_families
from tidegauge_broker.server.metrics.share_families import LedShareReading, ShareReading
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.middleware import Middleware, Responded
from tidegauge_controller.port import Controller


class BrokerMetrics:
    """A broker's meters, and the endpoint that serves them; both only where ``metrics.listener`` is set.

    Args:
        address: ``metrics.listener``; empty for no metrics.
        events: its notes are what ISR changes and elections are counted from.
        now_ms: wall clock.
    """

    def __init__(self, address: str, events: EventLogWriter, now_ms: Callable[[], int]) -> None:
        self._address = address
        self._now_ms = now_ms
        self._meters = Meters()
        self._requests = MeteredRequests(self._meters)
        self._endpoint = MetricsEndpoint(self._page)
        if address:
            events.observer = self._meters.noted

    def middleware(self) -> Sequence[Middleware]:
        """Return the middleware that records requests; none without ``metrics.listener``."""
        return (self._requests,) if self._address else ()

    def responded(self) -> Sequence[Responded]:
        """Return the recorders of responses; none without ``metrics.listener``."""
        return (self._requests.responded,) if self._address else ()

    def assembled(
        self,
        service: BrokerService,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        controller: Controller,
        verifier: PartitionVerifier,
    ) -> None:
        """Take over the broker's parts, which are put together and do not run yet."""
        self._service, self._replicas = service, replicas
        self._metadata, self._controller = metadata, controller
        if self._address:
            replicas.fetched = self._follower_fetched
            verifier.ended = self._verified
            service.groups.runner.loaded = partial(self._loaded, self._meters.group_loads)
            service.transactions.runner.loaded = partial(self._loaded, self._meters.transaction_loads)
            shares = service.groups.shares.runner
            shares.loaded = partial(self._loaded, self._meters.share_coordinator_loads)
            shares.wrote = partial(self._loaded, self._meters.share_writes)
            if service.share is not None:
                service.share.partitions.counts.loaded = partial(self._loaded, self._meters.share_loads)

    def _verified(self, milliseconds: float, failures: int) -> None:
        self._meters.verifications.took(milliseconds, failed=failures)

    def _loaded(self, loads: LoadTimes, milliseconds: float) -> None:
        loads.took(self._now_ms(), milliseconds)

    async def listen(self, first: Listener, connections: Callable[[], Mapping[str, int]]) -> None:
        """Serve the page; ``connections`` counts them by listener.

        Raises:
            TidegaugeError: the setting is wrong, or the address can't be bound.
        """
        self._connections = connections
        if self._address:
            await self._endpoint.start(*parse_address(self._address, first))

    async def close(self) -> None:
        """Serve it no more."""
        await self._endpoint.close()

    def _follower_fetched(self, leader: int, partitions: Sequence[FetchedPartition]) -> None:
        for fetched in partitions:
            partition = self._replicas.core.partition(fetched.topic_partition)
            if partition is not None:
                end = partition.log_end_offset
                self._meters.follower_fetched(fetched.topic_partition, leader, fetched.high_watermark, end)

    async def _page(self) -> str:
        groups = self._service.groups
        async with groups.runner.at_rest, groups.shares.runner.at_rest, self._service.transactions.runner.at_rest:
            return exposition(chain(families(self._snapshot()), process_families()))

    def _snapshot(self) -> Snapshot:
        core, logs = self._replicas.core, self._replicas.logs
        coordinator = self._service.groups.runner.coordinator
        replicas = []
        cluster = [one.state for topic in self._metadata.topics() for one in self._metadata.partitions(topic).values()]
        for view, on_disk in self._service.describe_replicas(self._now_ms(), ()):
            log, partition = logs.get(view.topic_partition), core.partition(view.topic_partition)
            min_isr = 1 if partition is None else partition.rules.min_insync_replicas
            replicas.append(
                Replica(
                    view,
                    on_disk.size_bytes,
                    0 if log is None else len(log.segments),
                    min_isr,
                    # UpdateMetadata does not name them over Kafka's protocol.
                    is_reassigning=partition is not None and partition.is_reassigning,
                    adding_count=0 if partition is None else len(partition.adding_replicas),
                    oldest_transaction_ms=-1 if partition is None else self._oldest_transaction_ms(partition),
                )
            )
        return Snapshot(
            replicas=replicas,
            cluster=cluster,
            live=self._metadata.live_brokers(),
            is_controller=self._controller.is_active,
            meters=self._meters,
            purgatories=core.waiting_operations(),
            offline_directories=len(logs.offline_directories),
            connections=self._connections(),
            groups=coordinator.gauges(),
            group_counters=coordinator.counters,
            transactions=self._service.transactions.runner.coordinator.gauges(),
            now_ms=(now_ms := self._now_ms()),
            wall_ms=core.wall.at(now_ms),
            max_transaction_timeout_ms=self._service.settings.integer("transaction.max.timeout.ms"),
            quotas=self._service.configs.quotas_in_force.readings(self._now_ms()),
            shares=self._shares(),
        )

    def _shares(self) -> ShareReading | None:
        """Return what there is of share groups; None: they are not served."""
        share, groups = self._service.share, self._service.groups
        states = groups.runner.coordinator.share_group_states()
        if share is None or not states:
            return None
        coordinator = groups.shares.runner.coordinator
        return ShareReading(
            led=[
                LedShareReading(
                    one.key.group_id,
                    one.at,
                    one.core.window.records_in_flight,
                    len(one.core.window.in_flight),
                    one.core.timed_out_count,
                )
                for one in share.partitions
            ],
            acknowledgements=share.partitions.counts.acknowledgements,
            sessions=len(share.sessions),
            session_partitions=share.sessions.partitions,
            groups=states,
            rebalances=groups.runner.coordinator.counters.share_group_rebalances,
            writes=coordinator.writes,
            pruned={
                TopicPartition(SHARE_STATE_TOPIC, one): offset for one, offset in coordinator.pruned_offsets().items()
            },
        )

    def _oldest_transaction_ms(self, partition: Partition) -> int:
        """Return the last time of the oldest open transaction's producer; -1: none."""
        if not partition.transactions or not len(partition.transactions):
            return -1
        found = self._replicas.core.describe_producers(partition.topic_partition)
        if isinstance(found, ErrorCode):
            return -1
        begun = [(one.transaction_start, one.last_timestamp_ms) for one in found if one.transaction_start is not None]
        return min(begun, default=(0, -1))[1]
