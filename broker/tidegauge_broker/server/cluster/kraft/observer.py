"""The broker as an observer of the quorum: it fetches the metadata log, and has the image of what is committed in it.

The node never votes and flushes nothing that it fetches (``KafkaRaftClient.canBecomeVoter``). A record that can't be
replayed is reported and skipped, as Kafka's brokers do; no snapshot is written any more then, since it would hide the
record for good.
Source: ``SharedServer``, ``KafkaRaftManager``, ``MetadataLoader``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge_broker.log.files import DISK, Disk
from tidegauge_broker.metadata_log.meta_properties import NodeProperties
from tidegauge_broker.server.clock import Clock
from tidegauge_broker.server.quorum.committed_metadata import CommittedMetadata
from tidegauge_broker.server.quorum.driver import QuorumDriver
from tidegauge_broker.server.quorum.links import OpenChannel, QuorumLinks
from tidegauge_broker.server.quorum.metadata_store import MetadataStore
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_broker.server.quorum.snapshot_maker import SnapshotMaker
from tidegauge_controller.metadata.image import MetadataImage
from tidegauge_controller.metadata.loader import ReplayFault
from tidegauge_controller.raft import effects
from tidegauge_controller.raft.config import QuorumConfig
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.states import Follower
from tidegauge_controller.raft.values import ReplicaKey

LOG = logging.getLogger("tidegauge.quorum")


class QuorumObserver:
    """See the module. ``open``, ``start``, then ``close``.

    Args:
        node: the broker's settings.
        properties: of its metadata directory.
        clock: of the process.
        open_channel: makes the channels to controllers; None: plain ones.
        disk: changes the files of the metadata log.
    """

    def __init__(
        self,
        node: NodeSettings,
        properties: NodeProperties,
        clock: Clock,
        open_channel: OpenChannel | None = None,
        disk: Disk = DISK,
    ) -> None:
        self._settings = node
        self._properties = properties
        self._clock = clock
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="quorum")
        self._store = MetadataStore(Path(node.metadata_directory), node.values, clock, disk)
        timeout_seconds = node.values.integer("controller.quorum.request.timeout.ms") / 1000
        self._links = QuorumLinks(node.node_id, node.listener_name, timeout_seconds, open_channel)
        self._driver: QuorumDriver | None = None
        self._committed: CommittedMetadata | None = None
        self._snapshots: SnapshotMaker | None = None
        self._changed = asyncio.Event()
        self._on_image: Callable[[], None] = lambda: None

    @property
    def ended(self) -> asyncio.Event:
        """Set when the node can't go on; ``failure`` says why."""
        assert self._driver is not None, "open comes first"
        return self._driver.ended

    @property
    def failure(self) -> str | None:
        """Why the node can't go on; None: it can."""
        return None if self._driver is None else self._driver.failure

    @property
    def image(self) -> MetadataImage:
        """The image of all that is known to be committed."""
        assert self._committed is not None, "open comes first"
        return self._committed.image

    @property
    def epoch(self) -> int:
        """The quorum's epoch, as far as the node knows."""
        return 0 if self._driver is None else self._driver.node.state.epoch

    @property
    def kraft_version(self) -> int:
        """The level of kraft.version, which stands in control records."""
        return 0 if self._driver is None else self._driver.node.history.version

    @property
    def leader_id(self) -> int | None:
        """The quorum's leader, as far as the node knows; None: it knows none."""
        return None if self._driver is None else self._driver.node.state.leader_id

    def leader_address(self) -> str | None:
        """Return where the quorum's leader, the active controller, is reached; None: no leader is known."""
        state = None if self._driver is None else self._driver.node.state
        if not isinstance(state, Follower):
            return None
        endpoint = state.endpoints.get(state.leader_id)
        return None if endpoint is None else address_of(endpoint.host, endpoint.port)

    async def open(self) -> None:
        """Lock the metadata directory and read the log.

        Raises:
            TidegaugeError: the directory can't be used.
            OSError: the disk refused.
        """
        settings, values, loop = self._settings, self._settings.values, asyncio.get_running_loop()
        opened = await loop.run_in_executor(self._pool, self._store.open, settings.static_voters)
        assert self._properties.cluster_id is not None

        def quorum(name: str) -> int:
            return values.integer(f"controller.quorum.{name}")

        config = QuorumConfig(
            cluster_id=self._properties.cluster_id,
            me=ReplicaKey(settings.node_id, self._properties.directory_id),
            bootstrap_servers=settings.bootstrap_servers,
            can_become_voter=False,
            election_timeout_ms=quorum("election.timeout.ms"),
            fetch_timeout_ms=quorum("fetch.timeout.ms"),
            election_backoff_max_ms=quorum("election.backoff.max.ms"),
            append_linger_ms=quorum("append.linger.ms"),
            request_timeout_ms=quorum("request.timeout.ms"),
            retry_backoff_ms=quorum("retry.backoff.ms"),
            fetch_max_bytes=quorum("fetch.max.bytes"),
            fetch_snapshot_max_bytes=quorum("fetch.snapshot.max.bytes"),
        )
        node = RaftNode(config, opened.log, opened.history, opened.election)
        committed = self._committed = CommittedMetadata(node, self._store, self._image_changed, self._skipped)
        clock = self._clock
        self._driver = QuorumDriver(
            node, self._store, self._links.send, (committed, _Lines()), clock, clock.wall_ms, self._pool
        )
        self._snapshots = SnapshotMaker(committed, self._driver, self._store, values, clock, clock.wall_ms)

    def start(self) -> None:
        """Begin to fetch."""
        assert self._driver is not None, "open comes first"
        self._driver.start()

    def follow(self, on_image: Callable[[], None]) -> None:
        """Call a listener whenever there is another image."""
        self._on_image = on_image

    def _image_changed(self, _image: MetadataImage) -> None:
        if self._snapshots is not None:
            self._snapshots.consider()
        self._changed.set()
        self._on_image()

    def _skipped(self, fault: ReplayFault) -> None:
        LOG.error("The metadata record at offset %d is skipped: %s", fault.offset, fault.sentence)
        if self._snapshots is not None:
            self._snapshots.disable()

    async def until_caught_up(self) -> None:
        """Wait until all that is known to be committed is in the image, which is not empty (``MetadataLoader``).

        Raises:
            TidegaugeError: KAFKA_STORAGE_ERROR, the node can't go on.
        """
        assert self._committed is not None, "open comes first"
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

    async def close(self) -> None:
        """Fetch no more, and close the log."""
        if self._committed is not None:
            self._committed.close()
        if self._snapshots is not None:
            self._snapshots.close()
        if self._driver is not None:
            await self._driver.stop()
        self._links.close()
        await asyncio.get_running_loop().run_in_executor(self._pool, self._store.close)
        self._pool.shutdown()


class _Lines:
    """Lines of the broker's log about the quorum (``driver.Observer``)."""

    def state_changed(self, effect: effects.StateChanged) -> None:
        """Say whom the broker fetches the metadata log from."""
        leader = "nobody" if effect.leader_id is None else f"controller {effect.leader_id}"
        LOG.info("In epoch %d of the quorum the leader is %s: %s", effect.epoch, leader, effect.reason)

    def high_watermark_moved(self, effect: effects.HighWatermarkMoved) -> None:
        """Do nothing: it happens all the time."""

    def leadership_changed(self, effect: effects.LeadershipChanged) -> None:
        """Do nothing: a broker never leads the quorum, and ``state_changed`` says who does."""

    def proposal_decided(self, effect: effects.Proposed | effects.NotProposed) -> None:
        """Do nothing: a broker proposes nothing."""
