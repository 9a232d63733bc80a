"""A cluster whose metadata are in the log of a quorum of controllers (``ports.Cluster``).

Start (``BrokerServer.startup``): the broker fetches the metadata log up to its committed end. It registers
and sends heartbeats; meanwhile its logs are recovered. It takes over its replicas' states from the image; then it asks
to be unfenced. Its listeners for Kafka's protocol open when it is.
Stop: its leaders are moved away; when the controller lets it, it ends, and the heartbeats with it.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from tidegauge.cluster_metadata import BrokerRegistration, Leadership
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.kraft.features import KRAFT_VERSION, METADATA_VERSION
from tidegauge.kafka.releases import release_of
from tidegauge.listeners import PLAINTEXT, SECURITY_PROTOCOL_IDS
from tidegauge.partition import TopicPartition
from tidegauge.partition_state import PartitionState
from tidegauge.settings import Values
from tidegauge_broker.server.clock import Clock
from tidegauge_broker.server.cluster.kraft.admin import KRaftAdmin
from tidegauge_broker.server.cluster.kraft.assignments import DirectoryAssignments
from tidegauge_broker.server.cluster.kraft.controller_channel import ControllerChannel
from tidegauge_broker.server.cluster.kraft.directories import KRaftDirectories, Misplaced
from tidegauge_broker.server.cluster.kraft.forwarding import Forwarding
from tidegauge_broker.server.cluster.kraft.lifecycle import BrokerState, Lifecycle
from tidegauge_broker.server.cluster.kraft.membership import Identity, Membership
from tidegauge_broker.server.cluster.kraft.metadata_source import MetadataSource, OwnController, QuorumObserver
from tidegauge_broker.server.cluster.kraft.publisher import Publisher
from tidegauge_broker.server.cluster.kraft.requests import KRaftRequests
from tidegauge_broker.server.cluster.kraft.stores import KRaftStores
from tidegauge_broker.server.cluster.kraft.supported import SUPPORTED
from tidegauge_broker.server.cluster.ports import Features, Member, Session
from tidegauge_broker.server.quorum.node_lab import NodeLab
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_broker.server.quorum.way_to_controllers import way_to_controllers
from tidegauge_controller.metadata.image import MetadataImage, PartitionRegistration, RegisteredBroker, TopicImage
from tidegauge_controller.metadata.versions import supports_cordoned_directories

LOG = logging.getLogger("tidegauge.broker")
_SHUTDOWN_SECONDS = 300.0
"""Maximum time for the controller to move the leaders away (BrokerServer.shutdown: five minutes)."""
_SILENCE_MS = 10_000
"""Silence of a controller after which a broker that shuts down gives it up."""


_NOTED = {BrokerState.RECOVERY, BrokerState.RUNNING, BrokerState.PENDING_CONTROLLED_SHUTDOWN}
"""States of the lifecycle that are events of their own; the broker's process notes its start and its end."""


class KRaftCluster:
    """A cluster in KRaft mode. Use ``connect``.

    Args:
        node: the broker's settings.
        directories: its log directories.
        source: its node of the quorum.
        clock: of the process.
        lab: opens the channels to controllers.
        as_kafka: the release that the broker passes for; empty: none.
        forwarding_seconds: limit of one attempt to hand a client's request on to the controller.
    """

    def __init__(
        self,
        node: NodeSettings,
        directories: KRaftDirectories,
        source: MetadataSource,
        clock: Clock,
        lab: NodeLab,
        as_kafka: str,
        forwarding_seconds: float,
    ) -> None:
        release = release_of(as_kafka, is_kraft=True)
        self._supported = SUPPORTED if release is None else release.supported(SUPPORTED)
        self._lab = lab
        self.cluster_id = directories.cluster_id
        self.log_owner = directories
        self._node = node
        self._directories = directories
        self._metadata_directory = Path(node.metadata_directory).absolute()
        self._source = source
        self._clock = clock
        self._previous_epoch = directories.previous_epoch()
        self._timeout_seconds = node.values.integer("controller.quorum.request.timeout.ms") / 1000
        self._heartbeats = self._channel("heartbeat")
        forwarding = self._channel("forwarding", forwarding_seconds)
        self.forwarding = Forwarding(forwarding, str(node.node_id), self._heartbeats.versions)
        self._publisher = Publisher(node.node_id, source)
        self._stores: KRaftStores
        self._member: Member
        self._membership: Membership
        self._assignments: DirectoryAssignments
        self._requests: KRaftRequests
        self._watch: asyncio.Task[None] | None = None

    @classmethod
    async def connect(cls, settings: Values, node: NodeSettings, clock: Clock, lab: NodeLab) -> KRaftCluster:
        """Follow the metadata log until all that is committed is known.

        Raises:
            TidegaugeError: a directory is not this broker's, its way to the controllers is not whole, or the metadata
                log can't be followed.
            OSError: a disk refused.
        """
        lab.way = way_to_controllers(node)
        metadata_directory = Path(node.metadata_directory)
        paths = [Path(text) for text in settings["log.dirs"]]
        read = partial(KRaftDirectories.read, metadata_directory, paths, node.node_id, clock.wall_ms())
        directories = await asyncio.to_thread(read)
        source: MetadataSource = (
            OwnController(node, clock, lab)
            if node.is_controller
            else QuorumObserver(node, directories.properties, clock, lab)
        )
        try:
            await source.begin()
            await lab.start(source.known_nodes, lambda _: None)
            LOG.info("Waiting for the metadata of cluster %s", directories.cluster_id)
            await source.until_caught_up()
        except BaseException:
            await source.close()
            raise
        forwarding_seconds = settings.integer("controller.socket.timeout.ms") / 1000
        return cls(node, directories, source, clock, lab, settings.text("tidegauge.as.kafka"), forwarding_seconds)

    def _channel(self, purpose: str, attempt_seconds: float | None = None) -> ControllerChannel:
        """Return a channel to the controller; each purpose has a connection of its own."""
        leader, client_id = self._source.leader_address, str(self._node.node_id)
        return ControllerChannel(
            purpose, client_id, leader, self._lab.open_channel, attempt_seconds or self._timeout_seconds
        )

    # The cluster's stores

    @property
    def _image(self) -> MetadataImage:
        return self._publisher.image

    def stores(self, settings: Values, now_ms: Callable[[], int]) -> KRaftStores:
        """Return what the metadata log keeps for all brokers."""
        del now_ms
        self._stores = KRaftStores(lambda: self._image, self.forwarding, settings)
        return self._stores

    async def read(self, work: Callable[[], Awaitable[None]]) -> None:
        """Read from ``stores``."""
        await work()

    def features(self) -> Features:
        """Return the features that are in force."""
        image = self._image
        finalized = dict(image.features)
        if image.metadata_version is not None:
            finalized[METADATA_VERSION] = image.metadata_version
        if self._source.kraft_version > 0:
            finalized[KRAFT_VERSION] = self._source.kraft_version
        return Features(image.provenance.offset, finalized, self._supported)

    def _partition(self, at: TopicPartition) -> tuple[TopicImage, PartitionRegistration] | None:
        topic = self._image.topic_named(at.topic)
        found: PartitionRegistration | None = None if topic is None else topic.partitions.get(at.partition)
        return None if topic is None or found is None else (topic, found)

    async def leadership(self, at: TopicPartition) -> Leadership | None:
        """Return a partition's state by this broker's image; None: it has none.

        The image may be older than the call: a broker has no way to read the newest state, in Kafka neither.
        """
        found = self._partition(at)
        if found is None:
            return None
        state = found[1]
        epoch = self._image.provenance.epoch
        return Leadership(state.leader, state.leader_epoch, state.isr, state.recovering, state.partition_epoch, epoch)

    async def deleted_partitions(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions that the image does not have."""
        return frozenset(at for at in partitions if self._partition(at) is None)

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids of topics; without those that there are not."""
        ids = self._image.topic_ids
        return {topic: ids[topic] for topic in topics if topic in ids}

    def is_stray(self, at: TopicPartition, topic_id: str) -> bool:
        """Whether this broker has no replica of the partition, or its topic has another id (KIP-858)."""
        state = None if not topic_id else self._image.partition(topic_id, at.partition)
        return state is None or self._node.node_id not in state.replicas

    # Membership

    def prepare(self, member: Member) -> KRaftAdmin:
        """Begin to register; return what asks the controller for gRPC clients."""
        self._member = member
        values = self._node.values
        lifecycle = Lifecycle(
            values.integer("broker.heartbeat.interval.ms"),
            values.integer("initial.broker.registration.timeout.ms"),
            values.integer("log.dir.failure.timeout.ms"),
        )
        self._membership = Membership(
            self._identity(member.registration),
            lifecycle,
            self._heartbeats,
            lambda: self._publisher.applied_offset,
            lambda: supports_cordoned_directories(self._image.metadata_version or 0),
            member.registered,
            self._state_changed,
            self._clock,
            self._timeout_seconds,
            self._silence_ms(),
        )
        admin = KRaftAdmin(self.forwarding, member.metadata, lambda: self._source.leader_id)
        self._assignments = DirectoryAssignments(
            self._node.node_id,
            lambda: self._membership.broker_epoch,
            self._channel("directory-assignments"),
            self._misplaced,
            self._timeout_seconds,
        )
        self._publisher.prepare(
            member.control_plane_listener, member.applied, self._stores, self._place, self._assignments.look
        )
        timeout_ms = member.settings.integer("request.timeout.ms")
        self._requests = KRaftRequests(
            self._node.node_id,
            lambda: self._membership.broker_epoch,
            self._epoch_of,
            self._channel("alter-partition"),
            self._channel("producer-ids"),
            lambda topics: admin.create_topics(topics, timeout_ms),
            lambda: self._membership.shut_down(_SHUTDOWN_SECONDS),
            timeout_ms / 1000,
        )
        self._membership.start()
        self._watch = asyncio.get_running_loop().create_task(self._watch_source(), name="metadata-log")
        return admin

    def _silence_ms(self) -> int:
        """Return the controller's longest silence at the end, in ms.

        It is the time of two elections, if this node could stand for election.

        A node with both roles knows then that the other controllers have ended before it, so that no leader is elected.
        """
        if not self._node.is_controller:
            return _SILENCE_MS
        return min(_SILENCE_MS, self._node.two_elections_ms)

    def _identity(self, registration: BrokerRegistration) -> Identity:
        protocols = registration.protocols
        return Identity(
            registration.broker_id,
            self.cluster_id,
            secrets.token_bytes(16),
            [
                (one.name, one.host, one.port, SECURITY_PROTOCOL_IDS[protocols.get(one.name, PLAINTEXT)])
                for one in registration.listeners
            ],
            self._supported,
            registration.rack,
            self._directories.id_bytes(),
            self._previous_epoch,
        )

    @property
    def requests(self) -> KRaftRequests:
        """The requests of this broker to the controller."""
        return self._requests

    def _epoch_of(self, broker_id: int) -> int:
        if broker_id == self._node.node_id:
            return self._membership.broker_epoch
        broker: RegisteredBroker | None = self._image.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def _state_changed(self, state: BrokerState) -> None:
        if state in _NOTED:
            fields = {"state": state.value.replace(" ", "-"), "broker_epoch": self._membership.broker_epoch}
            self._member.note("broker", "Heartbeat", fields)
        if state is BrokerState.SHUTTING_DOWN and self._membership.failure:
            self._member.applied.failed(self._membership.failure)

    async def _watch_source(self) -> None:
        """End the broker when its metadata log can't be followed any more."""
        await self._source.ended.wait()
        self._member.applied.failed(f"The metadata log can't be followed any more: {self._source.failure}")

    async def register(self) -> None:
        """Become a member whose replicas have their roles, and which is not fenced.

        Raises:
            TidegaugeError: INVALID_REQUEST, the controller has not accepted the registration in time.
        """
        await self._membership.until({BrokerState.RECOVERY})
        self._check_membership()
        await self._publisher.begin()
        self._membership.ready_to_unfence()
        await self._membership.until({BrokerState.RUNNING})
        self._check_membership()

    def _check_membership(self) -> None:
        if self._membership.failure:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, self._membership.failure)

    async def take_part(self) -> None:
        """Report the log directories of replicas; all is there that the registration brings."""
        self._assignments.start()
        self._member.complete(self._membership.broker_epoch)

    async def advertise(self, registration: BrokerRegistration) -> None:
        """Do nothing: a broker in KRaft mode registers its addresses at its start alone."""
        del registration

    async def leave(self) -> None:
        """Follow the metadata no more, and send no heartbeats."""
        if self._watch is not None:
            self._watch.cancel()
        await self._publisher.close()
        await self._assignments.close()
        await self._membership.close()
        self._requests.close()

    async def close(self) -> None:
        """Fetch the metadata log no more."""
        self.forwarding.close()
        await self._source.close()

    # Log directories

    def report_failed_replicas(self) -> None:
        """Report the log directories that have failed; a single replica that fails is not reported, as in Kafka.

        The metadata directory ends the broker, whatever failed in it (``ReplicaManager.handleLogDirFailure``).
        """
        for path in self._member.applied.logs().offline_directories:
            if path.absolute() == self._metadata_directory:
                self._member.applied.failed(f"Shutdown broker because the metadata log dir {path} has failed")
                return
            directory = self._directories.ids.get(path)
            if directory is not None:
                self._membership.directory_failed(directory)

    def stop_reporting(self) -> None:
        """Do nothing: the heartbeats report, until they end."""

    def _place(self, states: Sequence[PartitionState]) -> None:
        """Have the logs that are missing made in the directories that their states name (KIP-858)."""
        logs, paths = self._member.applied.logs(), {one: path for path, one in self._directories.ids.items()}
        for state in states:
            path = None if state.directory is None else paths.get(state.directory)
            if path is not None and logs.get(state.topic_partition) is None:
                logs.futures.remember(state.topic_partition, logs.directory_at(str(path.absolute())))

    def _misplaced(self, most: int) -> list[Misplaced]:
        """Return replicas of which the controller knows another directory than theirs."""
        found: list[Misplaced] = []
        for at, log in self._member.applied.logs().logs.items():
            directory = self._directories.ids.get(log.log_directory.path)
            known = self._partition(at)
            if directory is None or known is None or log.log_directory.offline or known[0].topic_id != log.topic_id:
                continue
            topic, state = known
            if self._node.node_id in state.replicas and state.directory(self._node.node_id) != directory:
                found.append(Misplaced(topic.topic_id, at.partition, directory))
                if len(found) == most:
                    break
        return found

    # The lab

    async def fence(self) -> None:
        """Have the controller fence this broker at once; its next heartbeat asks to be unfenced."""
        if not await self._membership.fence(self._timeout_seconds):
            raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "No controller has responded to the heartbeat")

    def session(self) -> Session:
        """Return the broker epoch in the place of a session."""
        return Session("", self._membership.broker_epoch, b"")

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Call a listener with the counterpart of a session."""
        listener(self.session())
