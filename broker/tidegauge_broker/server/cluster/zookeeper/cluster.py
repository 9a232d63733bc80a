"""A cluster whose metadata are in ZooKeeper (``ports.Cluster``). Each broker offers itself as the controller."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial

from tidegauge.cluster_metadata import BrokerRegistration, Leadership, new_uuid
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.partition import TopicPartition
from tidegauge.settings import Values
from tidegauge.znodes import BrokerNode, MalformedZnode, PartitionStateNode, state_path
from tidegauge_broker.server.cluster.ports import Dial, Member, Session
from tidegauge_broker.server.cluster.zookeeper.control_plane import open_link_by
from tidegauge_broker.server.cluster.zookeeper.deleted_partitions import deleted_partitions, topic_ids
from tidegauge_broker.server.cluster.zookeeper.log_dir_events import LogDirEvents
from tidegauge_broker.server.cluster.zookeeper.registration import Registration, prepare_cluster
from tidegauge_broker.server.cluster.zookeeper.stores import ZooKeeperStores
from tidegauge_broker.server.registration.controller_client import ControllerClient
from tidegauge_controller.zookeeper.client import NoNode, SessionState, ZooKeeper
from tidegauge_controller.zookeeper.controller import Controller
from tidegauge_controller.zookeeper.over_sessions import over_sessions

_DEFAULT_CONNECTION_TIMEOUT_MS = 18_000


class ZooKeeperCluster:
    """A cluster in ZooKeeper mode. Use ``connect``.

    Args:
        zookeeper: the session.
        cluster_id: of the cluster.
        broker_id: this broker.
    """

    def __init__(self, zookeeper: ZooKeeper, cluster_id: str, broker_id: int) -> None:
        self.cluster_id = cluster_id
        self._zookeeper = zookeeper
        self._log_dir_events = LogDirEvents(zookeeper, broker_id)
        self._controller: Controller
        self._registration: Registration
        self._requests: ControllerClient

    @classmethod
    async def connect(cls, settings: Values, broker_id: int, dial: Dial | None) -> ZooKeeperCluster:
        """Open a session, and create what a new cluster lacks, its id included.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, ZooKeeper did not respond in time; INVALID_REQUEST, what it holds is no
                cluster's.
        """
        zookeeper = await ZooKeeper.connect(
            settings.text("zookeeper.connect"),
            session_timeout_ms=settings.integer("zookeeper.session.timeout.ms"),
            connection_timeout_ms=settings["zookeeper.connection.timeout.ms"] or _DEFAULT_CONNECTION_TIMEOUT_MS,
            in_flight=settings.integer("zookeeper.max.in.flight.requests"),
            dial=dial,
        )
        try:
            make_id = partial(new_uuid, secrets.token_bytes(16))
            cluster_id = await over_sessions(partial(prepare_cluster, zookeeper, make_id))
        except BaseException:
            await zookeeper.close()
            raise
        return cls(zookeeper, cluster_id, broker_id)

    @property
    def forwarding(self) -> None:
        """Nothing: clients ask the controller themselves."""

    @property
    def requests(self) -> ControllerClient:
        """The requests of this broker to the controller, which is one of the brokers."""
        return self._requests

    @property
    def log_owner(self) -> None:
        """Nothing: the log directories have meta.properties of version 0, which the first start writes."""

    def features(self) -> None:
        """Return nothing: ZooKeeper mode has no features."""

    def is_stray(self, at: TopicPartition, topic_id: str) -> bool:
        """Return False: in ZooKeeper mode the controller requests the deletion of strays."""
        del at, topic_id
        return False

    def stores(self, settings: Values, now_ms: Callable[[], int]) -> ZooKeeperStores:
        """Return what ZooKeeper keeps for all brokers."""
        return ZooKeeperStores(self._zookeeper, settings, now_ms)

    async def read(self, work: Callable[[], Awaitable[None]]) -> None:
        """Read from ``stores``, in the next session again if one expires meanwhile."""
        await over_sessions(work)

    def prepare(self, member: Member) -> Controller:
        """Make the registration and the controller candidate of this broker."""
        self._controller = Controller(
            endpoint=member.endpoint,
            control_plane_listener=member.control_plane_listener,
            zookeeper=self._zookeeper,
            settings=member.settings,
            metadata=member.metadata,
            note=member.note,
            now_ms=member.now_ms,
            random_bytes=member.random_bytes,
            open_link=open_link_by(member.to_brokers),
        )

        def session_changed(state: SessionState) -> None:
            member.note("session", "ZooKeeper", {"state": state.value})

        self._requests = ControllerClient(
            member.registration.broker_id,
            member.broker_epoch,
            lambda: self._controller.active_controller_id,
            member.metadata,
            member.to_controller,
            member.settings,
        )
        node = BrokerNode.of(member.registration)
        self._registration = Registration(self._zookeeper, node, member.registered, session_changed)
        return self._controller

    async def register(self) -> None:
        """Create the broker's znode, once the znode of an older session is deleted."""
        await over_sessions(self._registration.register)

    async def take_part(self) -> None:
        """Stand for election as the controller, and register again whenever the session has expired."""
        await self._registration.until_registered()
        await self._controller.start()
        self._registration.keep(self._controller)

    async def advertise(self, registration: BrokerRegistration) -> None:
        """Write these addresses into the broker's znode."""
        await self._registration.advertise(BrokerNode.of(registration))

    async def leave(self) -> None:
        """Register no more, and resign; the znodes are deleted with the session."""
        await self._registration.close()
        await self._controller.stop()

    async def close(self) -> None:
        """End the session."""
        await self._zookeeper.close()

    async def leadership(self, at: TopicPartition) -> Leadership | None:
        """Return the state in a partition's znode at ZooKeeper's leader, or None.

        None: there is no readable state.

        Raises:
            ZooKeeperError: ZooKeeper did not respond, or the session ended.
        """
        path = state_path(*at)
        try:
            data, stat = await self._zookeeper.get_latest(path)
            return PartitionStateNode.decode(path, data).at_version(stat.version)
        except (NoNode, MalformedZnode):
            return None

    async def deleted_partitions(self, partitions: Collection[TopicPartition]) -> frozenset[TopicPartition]:
        """Return the partitions without assignment; unreadable topics count as existing."""
        return await deleted_partitions(self._zookeeper, partitions)

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, str]:
        """Return the ids in readable topics' znodes, empty without one."""
        return await topic_ids(self._zookeeper, topics)

    def report_failed_replicas(self) -> None:
        """Write a notification for the controller, again and again until ZooKeeper has taken it."""
        self._log_dir_events.report()

    def stop_reporting(self) -> None:
        """Give up the notifications that ZooKeeper has not taken."""
        self._log_dir_events.close()

    async def fence(self) -> None:
        """Refuse: in ZooKeeper mode a session is ended at the servers."""
        raise TidegaugeError(ErrorCode.UNSUPPORTED_VERSION, "ZooKeeper mode fences no broker; end its session")

    def session(self) -> Session:
        """Return the session's id and password, with which any client may end it."""
        return Session(self._zookeeper.hosts, *self._zookeeper.credentials)

    def on_session(self, listener: Callable[[Session], None]) -> None:
        """Call a listener with the session of this broker: now, and whenever there is another one."""

        def changed(state: SessionState) -> None:
            session = self.session()
            if state is SessionState.CONNECTED and session.session_id:
                listener(session)

        self._zookeeper.on_session(changed)
        changed(self._zookeeper.state)
