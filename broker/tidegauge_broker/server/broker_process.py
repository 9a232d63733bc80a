"""One broker process, from start to stop.

Start, in the order of Kafka's KafkaServer.startup: the cluster's metadata (``cluster.chosen``) and its id, topics'
settings, logs loaded and recovered, sockets bound, registration (which gives the broker epoch), controller candidate.
So recovery is over before the broker can be seen, and the controller's first requests find it listening. In KRaft mode
the registration begins before the logs are recovered, and clients are served once the broker is not fenced
(``cluster.kraft.cluster``).

Stop, in the order of KafkaServer.shutdown: leaders moved away by the controller, no more requests, fetchers ended, high
watermarks and logs written, the controller resigned, the membership of the cluster ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from tidegauge.cluster_metadata import BrokerRegistration
from tidegauge.control import IsrProposal
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import TRANSACTION_VERSION
from tidegauge.listeners import GRPC
from tidegauge.logical_clock import LogicalClock
from tidegauge.machine_code import IN_USE
from tidegauge.metadata_update import MetadataUpdate
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState, ReplicaStop
from tidegauge.settings import BrokerSettings, Values, listeners_of
from tidegauge_broker.log.files import StorageError
from tidegauge_broker.log.manager import LogManager
from tidegauge_broker.replica.broker import BrokerCore
from tidegauge_broker.replica.effects import LeadershipChanged
from tidegauge_broker.replica.quota import ReplicationQuota
from tidegauge_broker.replica.verification import ProducerBatch, VerificationGuard
from tidegauge_broker.server.among_brokers import OverGrpc, OverKafka, metadata_of, protocols_among_brokers
from tidegauge_broker.server.broker_identity import BrokerIdentity
from tidegauge_broker.server.clock import Clock
from tidegauge_broker.server.cluster import chosen
from tidegauge_broker.server.cluster.ports import Applied, Member
from tidegauge_broker.server.configs.dynamic_configs import DynamicConfigs
from tidegauge_broker.server.configs.in_force import InForce
from tidegauge_broker.server.coordinators.group_runner import GroupRunner
from tidegauge_broker.server.coordinators.leadership_proof import LeadershipProof, SharedProofs
from tidegauge_broker.server.coordinators.partition_verifier import PartitionVerifier
from tidegauge_broker.server.coordinators.share_latest_offsets import LatestOffsets, own_latest
from tidegauge_broker.server.coordinators.share_runner import ShareRunner
from tidegauge_broker.server.coordinators.transaction_peers import TransactionPeers
from tidegauge_broker.server.coordinators.transaction_runner import TransactionRunner, TransactionServices
from tidegauge_broker.server.core_settings import core_settings
from tidegauge_broker.server.event_log_writer import EventLogWriter
from tidegauge_broker.server.metadata.auto_topics import AutoTopics
from tidegauge_broker.server.metadata.metadata_cache import CoreMetadata
from tidegauge_broker.server.metrics.broker_metrics import BrokerMetrics
from tidegauge_broker.server.periodic import Periodic
from tidegauge_broker.server.periodic_tasks import begin_periodic_tasks
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_broker.server.registration.controller_client import AlterPartitionManager, ProducerIds
from tidegauge_broker.server.replication.effect_host import Outlets
from tidegauge_broker.server.replication.fetchers import Fetchers
from tidegauge_broker.server.replication.grpc_links import GrpcLinks
from tidegauge_broker.server.replication.kafka_peers import KafkaPeers
from tidegauge_broker.server.replication.leader_link import FetcherIdentity
from tidegauge_broker.server.replication.log_dir_moves import MoveLimits
from tidegauge_broker.server.replication.peers import Peers
from tidegauge_broker.server.replication.replica_manager import ReplicaManager
from tidegauge_broker.server.seams import Parts
from tidegauge_broker.server.seams_in_use import seams_of
from tidegauge_broker.server.service.broker_service import BrokerService
from tidegauge_broker.server.service.group_service import GroupService
from tidegauge_broker.server.service.produce_verification import OffsetsVerification, ProduceVerification, Retries
from tidegauge_broker.server.service.request_log import RequestLog
from tidegauge_broker.server.service.share_group_service import ShareGroupService
from tidegauge_broker.server.service.transaction_service import TransactionService
from tidegauge_broker.server.share.assembly import share_service
from tidegauge_broker.server.share.persister import Persister
from tidegauge_broker.server.wire.grpc.offered_services import OfferedServices
from tidegauge_broker.server.wire.kafka.by_mode import serving_of
from tidegauge_broker.server.wire.listeners import WireListeners

LOG = logging.getLogger("tidegauge.broker")
HALTED = 70
"""Exit status of a broker that met a defect in its core, outside any partition (EX_SOFTWARE of sysexits.h)."""


class BrokerProcess:
    """A running broker. ``start``, then wait for ``stopping``, then ``stop``.

    Args:
        identity: its id and listeners.
        settings: its own.
        node: the same as a node of a KRaft cluster; None: it runs in ZooKeeper mode.
    """

    def __init__(self, identity: BrokerIdentity, settings: Values, node: NodeSettings | None = None) -> None:
        self.stopping = asyncio.Event()
        self.exit_code = 0
        self._identity = identity
        self._node = node
        self._layers = BrokerSettings(settings)
        self._settings = self._layers.live
        self._now_ms = Clock()
        self._pool = ThreadPoolExecutor(max_workers=2, thread_name_prefix="log")
        self._metadata = metadata_of(identity.listeners)
        self._logical_clock = LogicalClock(self._now_ms.machine_us)
        self._seams = seams_of(
            settings,
            identity.broker_id,
            self._metadata,
            identity.to_brokers,
            identity.to_brokers_over_kafka,
            self._logical_clock,
        )
        self._now_ms.shown_ms = self._seams.shown_ms()
        self._peers = Peers(self._seams.open_channel)
        self._among_brokers = protocols_among_brokers(
            identity.listeners,
            OverGrpc(self._seams.open_channel, self._peers, self._metadata, self._settings, self._logical_clock),
            OverKafka(identity.broker_id, self._seams.open_kafka_channel, self._metadata, self._settings),
        )
        event_log = settings.text("event.log.file")
        self._events = EventLogWriter(
            Path(event_log) if event_log else None,
            f"broker-{identity.broker_id}",
            self._now_ms.machine_ms,
            asyncio.get_running_loop().call_later,
            logical_clock=self._logical_clock,
        )
        self._metrics = BrokerMetrics(settings.text("metrics.listener"), self._events, self._now_ms)
        self._resources = contextlib.AsyncExitStack()
        self._stops_in_order = False
        self._broker_epoch = -1
        self._has_replicas = False
        self._tasks: list[Periodic] = []

    # Start

    async def start(self) -> None:
        """Start; see the module.

        Raises:
            TidegaugeError: with one sentence that says what prevents the start.
        """
        self._note_state("starting")
        try:
            await self._start()
        except BaseException:
            await self._resources.aclose()
            raise
        self._ready_task = asyncio.get_running_loop().create_task(self._say_when_ready(), name="ready")

    async def _start(self) -> None:
        """Take one resource after the other, and say how each is given back."""
        resources = self._resources
        resources.callback(self._events.close)
        resources.callback(self._note_stopped)
        resources.callback(self._pool.shutdown)
        resources.push_async_callback(self._peers.close)
        resources.callback(self._among_brokers.close)
        resources.push_async_callback(self._seams.close)
        self._cluster = await chosen.connect(
            self._settings,
            self._identity.broker_id,
            self._now_ms,
            self._node,
            self._seams.dial(),
            self._seams.node_lab(),
        )
        resources.push_async_callback(self._cluster.close)
        stores = self._cluster.stores(self._settings, self._now_ms.wall_ms)
        self._configs = DynamicConfigs(stores, self._identity.broker_id, self._layers, self._metadata.knows_topic)
        await self._cluster.read(self._configs.read_all)
        self._controller = self._cluster.prepare(self._member())
        resources.push_async_callback(self._cluster.leave)
        await self._open_logs()
        resources.push_async_callback(self._close_logs)
        self._assemble()
        resources.push_async_callback(self._close_replicas)
        resources.push_async_callback(self._close_coordinators)
        parts = (self._replicas, self._controller, self._advertise, self._group_runner)
        self._configs.follow(InForce(self._settings, *parts))
        resources.push_async_callback(self._metrics.close)
        self._listeners = self._bind()
        resources.push_async_callback(self._stop_listeners)
        await self._listeners.start()
        await self._metrics.listen(self._identity.listeners.bound_by(GRPC)[0], self._listeners.counts)
        resources.push_async_callback(self._stop_own_requests)
        await self._cluster.register()
        self._listeners.open_to_controller()
        await self._cluster.take_part()
        self._replicas.start()
        self._tasks = begin_periodic_tasks(self._settings, self._replicas, self._logs, self._in_pool)

    def _member(self) -> Member:
        """Return what this broker is in its cluster."""
        identity = self._identity
        return Member(
            endpoint=identity.endpoint,
            control_plane_listener=identity.listeners.control_plane.name,
            registration=self._registration(),
            settings=self._settings,
            metadata=self._metadata,
            to_brokers=self._among_brokers.to_brokers(),
            to_controller=self._among_brokers.to_controller(),
            broker_epoch=lambda: self._broker_epoch,
            registered=self._registered,
            complete=self._completed,
            applied=Applied(
                self._metadata_changed, self._replicas_decided, self._levels_changed, lambda: self._logs, self._end
            ),
            note=self._note,
            now_ms=self._now_ms.wall_ms,
            random_bytes=os.urandom,
        )

    def _registration(self) -> BrokerRegistration:
        """Return what this broker registers, by the settings in force: advertised.listeners may change."""
        listeners, rack = listeners_of(self._settings), self._identity.rack
        known = listeners.registered
        at = known.host, known.port, self._now_ms.wall_ms()
        return BrokerRegistration(self._identity.broker_id, *at, rack, listeners.advertised, listeners.protocols)

    async def _open_logs(self) -> None:
        directories = [Path(text) for text in self._settings["log.dirs"]]
        self._logs = await asyncio.get_running_loop().run_in_executor(
            self._pool,
            lambda: LogManager.open(
                directories,
                broker_id=self._identity.broker_id,
                cluster_id=self._cluster.cluster_id,
                broker=self._settings,
                topic_values=self._configs.topics.known,
                now_ms=self._now_ms,
                disk_of=self._seams.disk_of,
                wall=self._now_ms.wall,
                owner=self._cluster.log_owner,
            ),
        )
        await self._in_pool(lambda: self._logs.set_strays_aside(self._cluster.is_stray))
        LOG.info("Cluster ID = %s; %d logs loaded", self._cluster.cluster_id, len(self._logs.logs))

    def _assemble(self) -> None:
        """Put the parts together; nothing runs yet."""
        self._assemble_replication()
        self._assemble_coordinators()
        self._service = self._new_service()
        around = self._replicas, self._persister, self._service.list_offset, self._configs.groups.values_of
        self._share = self._service.share = share_service(
            *around, self._settings, self._now_ms, self._now_ms.wall, self._events.note
        )
        self._metrics.assembled(
            self._service, self._replicas, self._metadata, self._controller, self._partition_verifier
        )
        self._seams.assembled(
            Parts(
                self._service,
                self._replicas,
                self._fetchers,
                self._grpc_links,
                self._logs,
                self._cluster,
                self._in_pool,
                self._now_ms,
                self._note,
            )
        )

    def _new_core(self) -> BrokerCore:
        settings = self._settings
        by_rack = settings.text("replica.selector.class").endswith(".RackAwareReplicaSelector")
        return BrokerCore(
            self._identity.broker_id,
            core_settings(settings, is_kafka_4=self._cluster.forwarding is not None),
            self._logs,
            CoreMetadata(self._metadata),
            rack_of=self._metadata.rack_of if by_rack else None,
            leader_quota=ReplicationQuota(lambda: settings.integer("leader.replication.throttled.rate")),
            follower_quota=ReplicationQuota(lambda: settings.integer("follower.replication.throttled.rate")),
            wall=self._now_ms.wall,
        )

    def _assemble_replication(self) -> None:
        """Put together what keeps this broker's replicas, asks the controller and fetches from leaders."""
        settings, identity = self._settings, self._identity
        core = self._new_core()
        outlets = Outlets(
            propose_isr=self._propose_isr,
            fetchers_changed=self._fetchers_changed,
            leadership_changed=self._leadership_changed,
            log_dir_failed=self._log_dir_failed,
            replicas_failed=self._cluster.report_failed_replicas,
            halt=self._halt,
        )
        limits = MoveLimits(
            lambda: settings.integer("replica.alter.log.dirs.io.max.bytes.per.second"),
            settings.integer("replica.fetch.max.bytes"),
        )
        self._replicas = ReplicaManager(core, self._logs, self._events, self._now_ms, self._in_pool, outlets, limits)
        core.set_broker_epoch(self._broker_epoch)
        self._has_replicas = True
        requests = self._cluster.requests
        self._alter_partition = AlterPartitionManager(requests, self._replicas.isr_verdict)
        self._producer_ids = ProducerIds(requests)
        follower = FetcherIdentity(identity.broker_id, self._cluster.cluster_id, lambda: core.broker_epoch)
        self._grpc_links = GrpcLinks(self._metadata.grpc_address, self._peers, follower, settings, self._logical_clock)
        links = self._among_brokers.to_leaders(self._grpc_links, follower, self._replicas.topic_id)
        self._fetchers = Fetchers(self._replicas, links, settings, self._now_ms)

    def _assemble_coordinators(self) -> None:
        """Put together what coordinates groups and transactions, and what proves that this broker leads (KIP-447)."""
        settings, identity, core = self._settings, self._identity, self._replicas.core
        self._auto_topics = AutoTopics(self._cluster.requests.create_topic, settings)
        self._group_runner = GroupRunner(
            settings,
            self._replicas,
            self._events,
            self._now_ms,
            self._halt,
            self._now_ms.wall,
            has_features=self._cluster.forwarding is not None,
        )
        self._assemble_transactions()
        fetch_wait_ms = partial(settings.integer, "replica.fetch.wait.max.ms")
        proof = LeadershipProof(identity.broker_id, core, self._cluster.leadership, self._now_ms, fetch_wait_ms)
        proofs = SharedProofs(proof.holds)
        shares = self._assemble_shares(proofs)
        self._groups = GroupService(
            self._group_runner, self._transactions, self._metadata, self._auto_topics.create, proofs.holds, shares
        )

    def _assemble_shares(self, proofs: SharedProofs) -> ShareGroupService:
        """Assemble the share coordinator, and the client of other brokers' share coordinators (KIP-932)."""
        identity, replicas, now_ms = self._identity, self._replicas, self._now_ms
        self._share_runner = ShareRunner(self._settings, replicas, self._events, now_ms, self._halt, now_ms.wall)
        listener = identity.listeners.kafka_among_brokers
        shares = ShareGroupService(
            self._share_runner,
            self._group_runner,
            self._metadata,
            self._auto_topics.create,
            proofs.holds,
            partial(own_latest, replicas.core),
            "" if listener is None else listener.name,
        )
        self._share_peers = KafkaPeers(identity.broker_id, self._seams.open_kafka_channel)
        self._persister = Persister(identity.broker_id, shares, self._share_peers, self._seams.gate())
        self._group_runner.persister = shares.persister = self._persister
        shares.latest = LatestOffsets(identity.broker_id, shares, self._share_peers)
        return shares

    def _assemble_transactions(self) -> None:
        """Put the transaction coordinator together, and what verifies transactional appends with the others."""
        settings, replicas, metadata = self._settings, self._replicas, self._metadata
        others = self._among_brokers.to_coordinators()
        peers = TransactionPeers(self._identity.broker_id, others, self._seams.gate())
        around = TransactionServices(
            self._producer_ids.next,
            metadata,
            self._cluster.deleted_partitions,
            peers.send_markers,
            None if self._cluster.forwarding is None else self._transaction_version,
        )
        self._transaction_runner = TransactionRunner(
            settings, replicas, around, self._events, self._now_ms, self._halt, self._now_ms.wall
        )
        self._transactions = peers.service = TransactionService(
            self._transaction_runner, self._group_runner, replicas, metadata, settings, self._now_ms.wall_ms
        )
        self._partition_verifier = PartitionVerifier(self._transactions.coordinator_of, peers.send_verifications)
        offsets = OffsetsVerification(self._begin_verification, self._partition_verifier.verify)
        self._group_runner.verify = offsets.verify

    def _new_service(self) -> BrokerService:
        settings = self._settings
        log = [RequestLog()] if settings.flag("request.log.enable") else []
        return BrokerService(
            cluster_id=self._cluster.cluster_id,
            settings=settings,
            replicas=self._replicas,
            metadata=self._metadata,
            controller=self._controller,
            producer_ids=self._producer_ids,
            configs=self._configs,
            create_topic=self._auto_topics.create,
            control_plane_listener=self._identity.listeners.control_plane.name,
            groups=self._groups,
            transactions=self._transactions,
            verification=ProduceVerification(
                self._begin_verification, self._partition_verifier.verify, Retries.of(settings, self._now_ms)
            ),
            gate=self._seams.gate(),
            middleware=[*self._metrics.middleware(), *log],
            responded=[*self._metrics.responded(), *(one.responded for one in log)],
            stored_topic_ids=self._cluster.topic_ids,
        )

    def _transaction_version(self) -> int:
        """Return the level of transaction.version that is in force."""
        features = self._cluster.features()
        return 0 if features is None else features.finalized.get(TRANSACTION_VERSION, 0)

    def _begin_verification(self, at: TopicPartition, batch: ProducerBatch) -> VerificationGuard | ErrorCode | None:
        return self._replicas.core.begin_verification(at, batch, self._now_ms())

    def _bind(self) -> WireListeners:
        identity = self._identity
        return WireListeners(
            identity.listeners,
            self._service,
            OfferedServices(
                self._service, self._replicas, self._now_ms, self._seams.add_services, identity.listeners.kafka_beside
            ),
            self._settings,
            identity.security,
            self._now_ms,
            self._logical_clock,
            self._configs.addresses.rate_of,
            serving_of(
                self._cluster.forwarding,
                self._cluster.features,
                serves_consumer_groups=self._groups.serves_consumer_groups,
                serves_share_groups=self._groups.serves_share_groups,
                as_kafka=self._settings.text("tidegauge.as.kafka"),
            ),
        )

    async def _open_to_clients(self) -> None:
        """Serve Kafka clients once there is metadata; where their port is taken meanwhile, stop the broker."""
        try:
            await self._listeners.open_to_clients(self._metadata)
        except TidegaugeError as problem:
            LOG.error("%s", problem.message)  # noqa: TRY400 - the sentence says it all
            self.exit_code = 1
            self.stopping.set()

    async def _say_when_ready(self) -> None:
        await self._open_to_clients()
        await self._service.until_startup_complete()
        await self._listeners.set_ready(is_ready=True)
        LOG.info(
            "[KafkaServer id=%d] started at %s%s",
            self._identity.broker_id,
            ", ".join(map(str, listeners_of(self._settings).advertised)),
            IN_USE.remark,
        )

    # While it runs

    async def _in_pool(self, call: Callable[[], None]) -> None:
        """Run a blocking call of the log manager; a disk error takes its log directory offline."""
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, call)
        except StorageError as problem:
            LOG.error("%s", problem.message)  # noqa: TRY400 - the sentence says it all
            for directory in self._logs.offline_directories:
                self._replicas.directory_failed(directory)

    def _propose_isr(self, proposal: IsrProposal) -> None:
        self._alter_partition.propose(proposal)

    def _fetchers_changed(self, leaders: Sequence[int]) -> None:
        self._fetchers.changed(leaders)

    def _leadership_changed(self, change: LeadershipChanged) -> None:
        for runner in (self._group_runner, self._transaction_runner, self._share_runner):
            runner.leadership_changed(change.topic_partition, leads=change.leads, leader_epoch=change.leader_epoch)
        self._share.leadership_changed(change.topic_partition, leads=change.leads)

    def _registered(self, broker_epoch: int) -> None:
        self._broker_epoch = broker_epoch
        if self._has_replicas:  # in KRaft mode the registration may come before them
            self._replicas.core.set_broker_epoch(broker_epoch)
        self._note_state("registered", broker_epoch)

    def _completed(self, broker_epoch: int) -> None:
        self._service.startup_completed(broker_epoch)

    def _metadata_changed(self, update: MetadataUpdate) -> None:
        self._service.metadata_changed(update)

    def _levels_changed(self, levels: Mapping[str, int]) -> None:
        self._share.levels_changed(levels)

    async def _replicas_decided(
        self, deletions: Sequence[ReplicaStop], states: Sequence[PartitionState], new: Collection[TopicPartition]
    ) -> None:
        await self._replicas.decided.apply(deletions, states, new, self._configs.topics.read_values)

    def _end(self, why: str) -> None:
        """Stop the broker: it can't continue as a member of its cluster."""
        LOG.error("%s", why)
        self.exit_code = 1
        self.stopping.set()

    async def _advertise(self) -> None:
        """Register the addresses that are advertised now, where others are registered."""
        await self._cluster.advertise(self._registration())

    def _note(self, kind: str, cause: str, fields: dict[str, Any]) -> None:
        self._events.note(kind, cause, fields)

    def _note_state(self, state: str, broker_epoch: int = -1) -> None:
        self._events.note("broker", "Lifecycle", {"state": state, "broker_epoch": broker_epoch})

    def _log_dir_failed(self, directory: Path) -> None:
        """Report an offline log directory to the controller; with the last one stop the broker, as Kafka halts."""
        LOG.error("Stopping serving logs in dir %s", directory)
        if len(self._logs.offline_directories) == len(self._settings["log.dirs"]):
            LOG.error("Shutdown broker because all log dirs have failed: %s", "; ".join(self._logs.failures))
            self.exit_code = 1
            self.stopping.set()
            return
        self._cluster.report_failed_replicas()

    def _halt(self, problem: Exception) -> None:
        """End the process at once, as kill -9 does: the state in memory cannot be trusted, the state on disk can."""
        LOG.critical(
            "Halting broker %d: a decision about its replicas, groups or transactions failed unexpectedly with %r, so "
            "their state in memory is unknown. That is a defect of Tidegauge; the lines below say where. After a "
            "restart the broker goes on from its logs, as after a kill",
            self._identity.broker_id,
            problem,
            exc_info=problem,
        )
        self._events.close()
        logging.shutdown()
        os._exit(HALTED)

    # Stop

    async def stop(self) -> None:
        """Stop in Kafka's order; see the module."""
        self._note_state("shutting-down", self._replicas.core.broker_epoch)
        LOG.info("[KafkaServer id=%d] shutting down", self._identity.broker_id)
        self._ready_task.cancel()
        await self._listeners.set_ready(is_ready=False)
        if self._settings.flag("controlled.shutdown.enable") and self.exit_code == 0:
            if await self._cluster.requests.controlled_shutdown():
                LOG.info("Controlled shutdown request returned successfully")
            else:
                LOG.warning("Proceeding to do an unclean shutdown as all the controlled shutdown attempts failed")
        self._stops_in_order = True
        await self._resources.aclose()
        LOG.info("[KafkaServer id=%d] shut down completed", self._identity.broker_id)

    # How resources are given back; a start that failed gives back what it had taken

    async def _stop_own_requests(self) -> None:
        """Send nothing more to other brokers, and run no more periodic tasks."""
        await self._configs.close()
        await self._fetchers.close()
        await self._alter_partition.close()
        await self._producer_ids.close()
        await self._auto_topics.close()
        self._cluster.stop_reporting()
        for task in self._tasks:
            await task.close()

    async def _stop_listeners(self) -> None:
        self._transaction_runner.shut_down()
        self._group_runner.shut_down()
        self._share_runner.shut_down()
        self._seams.stopping()
        await (self._listeners.stop() if self._stops_in_order else self._listeners.stop(grace_seconds=None))
        self._service.responses.close()
        self._service.records_pool.close()

    async def _close_coordinators(self) -> None:
        await self._share.close()
        await self._partition_verifier.close()
        await self._transaction_runner.close()
        await self._transactions.close()
        await self._group_runner.close()
        await self._persister.close()
        await self._share_runner.close()
        self._share_peers.close()

    async def _close_replicas(self) -> None:
        await self._replicas.until_quiet()
        await self._replicas.moves.close()
        self._replicas.close()
        await self._fetchers.close()
        await self._configs.close()

    async def _close_logs(self) -> None:
        high_watermarks = self._replicas.core.high_watermarks() if self._stops_in_order else {}
        is_clean = self._stops_in_order and self.exit_code == 0
        epoch = -1 if self._node is None else self._broker_epoch
        await self._in_pool(lambda: self._logs.close(high_watermarks, clean=is_clean, broker_epoch=epoch))

    def _note_stopped(self) -> None:
        if self._stops_in_order:
            self._note_state("stopped")
