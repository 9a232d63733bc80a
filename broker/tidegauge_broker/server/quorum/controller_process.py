"""One controller process, from start to stop: its disk, its node, its controller, its listener and its links.

Start: the directory is locked and checked, the log recovered, the listener bound, then the node runs. Stop: the node
hands its leadership over, then listener, controller, links and log are closed.
Source: ``KafkaRaftServer``, ``SharedServer``, ``KafkaRaftManager``, ``ControllerServer``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegauge.event_log import file_name
from tidegauge_broker.metadata_log.formatting import check_owner
from tidegauge_broker.metadata_log.meta_properties import META_PROPERTIES
from tidegauge_broker.server.clock import Clock
from tidegauge_broker.server.quorum.committed_metadata import CommittedMetadata
from tidegauge_broker.server.quorum.controller.bootstrap import read_bootstrap
from tidegauge_broker.server.quorum.controller.controller_parts import ControllerParts
from tidegauge_broker.server.quorum.controller_metrics import ControllerMetrics
from tidegauge_broker.server.quorum.driver import QuorumDriver
from tidegauge_broker.server.quorum.known_nodes import KnownNodes
from tidegauge_broker.server.quorum.lab_in_use import lab_of
from tidegauge_broker.server.quorum.links import QuorumLinks
from tidegauge_broker.server.quorum.listener import QuorumListener
from tidegauge_broker.server.quorum.listener_security import security_of_listener
from tidegauge_broker.server.quorum.metadata_store import MetadataStore
from tidegauge_broker.server.quorum.node_lab import NodeLab
from tidegauge_broker.server.quorum.node_properties import read_node_properties
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_broker.server.quorum.quorum_events import QuorumEvents
from tidegauge_broker.server.quorum.served_apis import served_apis
from tidegauge_broker.server.quorum.way_to_controllers import way_to_controllers
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.values import ReplicaKey

LOG = logging.getLogger("tidegauge.quorum")
HALTED = 70
"""Exit status of a controller whose node can't continue (EX_SOFTWARE of sysexits.h)."""
SHUTDOWN_SECONDS = 5.0
"""Maximum time for a node to hand its leadership over (``KafkaRaftManager.shutdown``)."""


def quorum_config(settings: NodeSettings, cluster_id: str, directory_id: bytes) -> QuorumConfig:
    """Return the settings of a controller's node.

    Args:
        settings: the process's.
        cluster_id: by its meta.properties.
        directory_id: by the same.
    """
    values = settings.values

    def quorum(name: str) -> int:
        return values.integer(f"controller.quorum.{name}")

    return QuorumConfig(
        cluster_id=cluster_id,
        me=ReplicaKey(settings.node_id, directory_id),
        endpoints=settings.endpoints,
        bootstrap_servers=settings.bootstrap_servers,
        election_timeout_ms=quorum("election.timeout.ms"),
        fetch_timeout_ms=quorum("fetch.timeout.ms"),
        election_backoff_max_ms=quorum("election.backoff.max.ms"),
        append_linger_ms=quorum("append.linger.ms"),
        request_timeout_ms=quorum("request.timeout.ms"),
        retry_backoff_ms=quorum("retry.backoff.ms"),
        fetch_max_bytes=quorum("fetch.max.bytes"),
        fetch_snapshot_max_bytes=quorum("fetch.snapshot.max.bytes"),
    )


class ControllerProcess:
    """A running controller. ``start``, then wait for ``stopping`` or ``driver.ended``, then ``stop``.

    Args:
        settings: the node's.
        clock: of the process, if it is a broker too; None: one of its own.
        lab: of the process, if it is a broker too; None: one of its own, if it has an address for that.

    Attributes:
        on_image: is called when there is another image of the committed metadata.

    Raises:
        TidegaugeError: INVALID_CONFIG, its settings for the way to the other controllers are incomplete.
    """

    def __init__(self, settings: NodeSettings, clock: Clock | None = None, lab: NodeLab | None = None) -> None:
        self.stopping = asyncio.Event()
        self.on_image: Callable[[], None] = lambda: None
        self._settings = settings
        self._now_ms = clock or Clock()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="metadata-log")
        self._store: MetadataStore | None = None
        self._driver: QuorumDriver | None = None
        self._listeners: list[QuorumListener] = []
        self._events: QuorumEvents | None = None
        self._parts: ControllerParts | None = None
        self._metrics: ControllerMetrics | None = None
        self._lab = lab or lab_of(settings.node_id, settings.values.text("lab.listener"))
        self._lab.way = way_to_controllers(settings)
        self._links = QuorumLinks(
            settings.listener_name,
            settings.values.integer("controller.quorum.request.timeout.ms") / 1000,
            lambda address: self._lab.open_channel(address, f"raft-client-{settings.node_id}"),
        )

    @property
    def driver(self) -> QuorumDriver:
        """The driver of the node; ``start`` has returned."""
        assert self._driver is not None
        return self._driver

    @property
    def committed(self) -> CommittedMetadata:
        """The follower of committed records; ``start`` has returned."""
        assert self._parts is not None
        return self._parts.committed

    async def start(self) -> None:
        """Open the disk, bind the listener, and let the node run.

        Raises:
            TidegaugeError: the directory is not this node's, a file can't be used, or the address can't be bound.
            OSError: the disk refused.
        """
        settings, values = self._settings, self._settings.values
        directory = Path(settings.metadata_directory)
        properties = read_node_properties(directory)
        assert properties.cluster_id is not None
        assert properties.directory_id is not None
        check_owner(properties, str(directory / META_PROPERTIES), properties.cluster_id, settings.node_id)
        store = self._store = MetadataStore(directory, values, self._now_ms, self._lab.disk_of(directory))
        opened = await asyncio.get_running_loop().run_in_executor(self._pool, store.open, settings.static_voters)
        config = quorum_config(settings, properties.cluster_id, properties.directory_id)
        node = RaftNode(config, opened.log, opened.history, opened.election)
        self._events = QuorumEvents(node, self._event_log(), settings.node_id, self._now_ms)
        bootstrap = read_bootstrap(directory)
        parts = self._parts = ControllerParts(node, store, settings, config.cluster_id, bootstrap, self._now_ms)
        self._driver = QuorumDriver(
            node,
            store,
            self._links.send,
            (self._events, parts.committed, parts.controller),
            self._now_ms,
            self._now_ms.wall_ms,
            self._pool,
        )
        self._metrics = ControllerMetrics(settings, node, parts)
        parts.on_image = self.on_image
        parts.on_decided = self._events.decided
        parts.start(self._driver, self._links.open_other, self._now_ms.wall_ms)
        handlers = self._lab.gated(served_apis(self._driver, parts.controller, settings))
        for at in settings.bound:
            limits = (values.integer("socket.request.max.bytes"), values.integer("connections.max.idle.ms") / 1000)
            security = security_of_listener(settings, at.name, lambda: self.committed.image, self._now_ms.wall)
            listener = QuorumListener(at, handlers, *limits, self._now_ms, security)
            await listener.open()
            self._listeners.append(listener)
        await self._metrics.listen()
        await self._lab.start(KnownNodes(node, lambda: self.committed.image), self._events.fault)
        self._driver.start()
        LOG.info(
            "Controller %d of cluster %s listens at %s", settings.node_id, config.cluster_id, settings.bound[0].address
        )

    def _event_log(self) -> Path | None:
        """Return the file of the controller's events, beside a broker's own."""
        text = self._settings.values.text("event.log.file")
        if not text:
            return None
        is_alone = len(self._settings.values["process.roles"]) == 1
        return Path(text) if is_alone else Path(text).with_name(file_name(f"controller-{self._settings.node_id}"))

    async def stop(self, limit_seconds: float = SHUTDOWN_SECONDS) -> int:
        """Hand the leadership over, close everything, and return the exit status.

        Args:
            limit_seconds: how long the node may take to hand its leadership over.
        """
        driver = self._driver
        if driver is not None and driver.failure is None:
            await driver.shut_down(limit_seconds)
        if self._metrics is not None:
            await self._metrics.close()
        await self._lab.close()
        for listener in self._listeners:
            await listener.close()
        if self._parts is not None:
            await self._parts.close()
        if driver is not None:
            await driver.stop()
        self._links.close()
        loop = asyncio.get_running_loop()
        if self._store is not None:
            await loop.run_in_executor(self._pool, self._store.close)
        self._pool.shutdown()
        if self._events is not None:
            self._events.close()
        return 0 if driver is None or driver.failure is None else HALTED
