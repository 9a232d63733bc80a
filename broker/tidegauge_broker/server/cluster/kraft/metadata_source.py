"""The source of a broker's images: its node of the quorum, which observes it or is one of its controllers.

A broker that is no controller fetches the metadata log as an observer: its node never votes, and flushes nothing that
it fetches (``KafkaRaftClient.canBecomeVoter``). A record that can't be replayed is reported and skipped, as Kafka's
brokers do; no snapshot is written any more then, since it would hide the record for good. A process with both roles has
one node and one metadata log.
Source: ``SharedServer``, ``KafkaRaftServer``, ``KafkaRaftManager``, ``MetadataLoader``.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge_broker.metadata_log.meta_properties import NodeProperties
from tidegauge_broker.server.clock import Clock
from tidegauge_broker.server.quorum.committed_metadata import CommittedMetadata
from tidegauge_broker.server.quorum.controller_process import SHUTDOWN_SECONDS, ControllerProcess, quorum_config
from tidegauge_broker.server.quorum.driver import QuorumDriver
from tidegauge_broker.server.quorum.known_nodes import KnownNodes
from tidegauge_broker.server.quorum.links import QuorumLinks
from tidegauge_broker.server.quorum.metadata_store import MetadataStore
from tidegauge_broker.server.quorum.node_lab import NodeLab
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_broker.server.quorum.snapshot_maker import SnapshotMaker
from tidegauge_controller.metadata.image import MetadataImage
from tidegauge_controller.metadata.loader import ReplayFault
from tidegauge_controller.raft import effects
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.states import Follower

LOG = logging.getLogger("tidegauge.quorum")


class MetadataSource(ABC):
    """The source of a broker's images. ``begin``, then ``close``.

    Args:
        settings: the broker's as a node.
    """

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._changed = asyncio.Event()
        self._on_image: Callable[[], None] = lambda: None

    @property
    @abstractmethod
    def _driver(self) -> QuorumDriver:
        """The driver of the node; ``begin`` has returned."""

    @property
    @abstractmethod
    def _committed(self) -> CommittedMetadata:
        """The follower of committed records; ``begin`` has returned."""

    @abstractmethod
    async def begin(self) -> None:
        """Lock the metadata directory, read the log, and let the node run.

        Raises:
            TidegaugeError: the directory can't be used, or an address can't be bound.
            OSError: the disk refused.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop the node, and close the log."""

    @property
    def ended(self) -> asyncio.Event:
        """Set when the node can't continue; ``failure`` says why."""
        return self._driver.ended

    @property
    def failure(self) -> str | None:
        """Why the node can't continue; None: it can."""
        return self._driver.failure

    @property
    def image(self) -> MetadataImage:
        """The image of all that is known to be committed."""
        return self._committed.image

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version, as control records have it."""
        return self._driver.node.history.version

    @property
    def known_nodes(self) -> KnownNodes:
        """The controllers that the node knows."""
        return KnownNodes(self._driver.node, lambda: self.image)

    @property
    def leader_id(self) -> int | None:
        """The quorum's leader, as far as the node knows; None: it knows none."""
        return self._driver.node.state.leader_id

    def leader_address(self) -> str | None:
        """Return the address of the active controller; None: unknown."""
        state = self._driver.node.state
        endpoint = None
        if isinstance(state, Follower):
            endpoint = state.endpoints.get(state.leader_id)
        elif state.leader_id == self._settings.node_id:
            endpoint = self._settings.endpoints[0]
        return None if endpoint is None else address_of(endpoint.host, endpoint.port)

    def follow(self, on_image: Callable[[], None]) -> None:
        """Call a listener whenever there is another image."""
        self._on_image = on_image

    def _notify(self) -> None:
        self._changed.set()
        self._on_image()

    async def until_caught_up(self) -> None:
        """Wait until all that is known to be committed is in the image, which is not empty (``MetadataLoader``).

        Raises:
            TidegaugeError: KAFKA_STORAGE_ERROR, the node can't continue.
        """
        while not (self._committed.is_caught_up and not self.image.is_empty):
            self._changed.clear()
            waits = [asyncio.ensure_future(one.wait()) for one in (self._changed, self.ended)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for one in waits:
                    one.cancel()
            if self.ended.is_set():
                raise TidegaugeError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"The metadata log can't be followed: {self.failure}"
                )


class QuorumObserver(MetadataSource):
    """The node of a broker that is no controller.

    Args:
        settings: the broker's as a node.
        properties: of its metadata directory.
        clock: of the process.
        lab: opens the channels to the controllers, and changes files.
    """

    def __init__(self, settings: NodeSettings, properties: NodeProperties, clock: Clock, lab: NodeLab) -> None:
        super().__init__(settings)
        self._properties = properties
        self._clock = clock
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quorum")
        directory = Path(settings.metadata_directory)
        self._store = MetadataStore(directory, settings.values, clock, lab.disk_of(directory))
        timeout_seconds = settings.values.integer("controller.quorum.request.timeout.ms") / 1000
        client_id = f"raft-client-{settings.node_id}"
        self._links = QuorumLinks(
            settings.listener_name,
            timeout_seconds,
            lambda address: lab.open_channel(address, client_id),
        )
        self._driving: QuorumDriver | None = None
        self._following: CommittedMetadata | None = None
        self._snapshots: SnapshotMaker | None = None

    @property
    def _driver(self) -> QuorumDriver:
        assert self._driving is not None, "begin comes first"
        return self._driving

    @property
    def _committed(self) -> CommittedMetadata:
        assert self._following is not None, "begin comes first"
        return self._following

    async def begin(self) -> None:
        """Lock the metadata directory, read the log, and begin to fetch."""
        settings, clock, properties = self._settings, self._clock, self._properties
        opened = await asyncio.get_running_loop().run_in_executor(self._pool, self._store.open, settings.static_voters)
        assert properties.cluster_id is not None
        assert properties.directory_id is not None
        config = quorum_config(settings, properties.cluster_id, properties.directory_id)
        node = RaftNode(replace(config, can_become_voter=False), opened.log, opened.history, opened.election)
        committed = self._following = CommittedMetadata(node, self._store, self._image_changed, self._skipped)
        observers = (committed, _Lines())
        self._driving = driver = QuorumDriver(
            node, self._store, self._links.send, observers, clock, clock.wall_ms, self._pool
        )
        self._snapshots = SnapshotMaker(committed, driver, self._store, settings.values, clock, clock.wall_ms)
        driver.start()

    def _image_changed(self, _image: MetadataImage) -> None:
        if self._snapshots is not None:
            self._snapshots.consider()
        self._notify()

    def _skipped(self, fault: ReplayFault) -> None:
        LOG.error("The metadata record at offset %d is skipped: %s", fault.offset, fault.sentence)
        if self._snapshots is not None:
            self._snapshots.disable()

    async def close(self) -> None:
        """Fetch no more, and close the log."""
        if self._following is not None:
            self._following.close()
        if self._snapshots is not None:
            self._snapshots.close()
        if self._driving is not None:
            await self._driving.stop()
        self._links.close()
        await asyncio.get_running_loop().run_in_executor(self._pool, self._store.close)
        self._pool.shutdown()


class OwnController(MetadataSource):
    """The node of a broker whose process is one of the controllers, too.

    Args:
        settings: the broker's as a node.
        clock: of the process.
        lab: of the process.
    """

    def __init__(self, settings: NodeSettings, clock: Clock, lab: NodeLab) -> None:
        super().__init__(settings)
        self._controller = ControllerProcess(settings, clock, lab)
        self._controller.on_image = self._notify

    @property
    def _driver(self) -> QuorumDriver:
        return self._controller.driver

    @property
    def _committed(self) -> CommittedMetadata:
        return self._controller.committed

    async def begin(self) -> None:
        """Start the controller."""
        await self._controller.start()

    async def close(self) -> None:
        """Hand the leadership over, and stop the controller: other voters take it within two elections, if any do."""
        await self._controller.stop(min(SHUTDOWN_SECONDS, self._settings.two_elections_ms / 1000))


class _Lines:
    """Lines of the broker's log about the quorum (``driver.Observer``)."""

    def state_changed(self, effect: effects.StateChanged) -> None:
        """Log the node that the broker fetches the metadata log from."""
        leader = "not known" if effect.leader_id is None else f"controller {effect.leader_id}"
        LOG.info("In epoch %d of the quorum the leader is %s: %s", effect.epoch, leader, effect.reason)

    def high_watermark_moved(self, effect: effects.HighWatermarkMoved) -> None:
        """Do nothing: it happens all the time."""

    def leadership_changed(self, effect: effects.LeadershipChanged) -> None:
        """Do nothing: a broker never leads the quorum, and ``state_changed`` says who does."""

    def proposal_decided(self, effect: effects.Proposed | effects.NotProposed) -> None:
        """Do nothing: a broker proposes nothing."""
