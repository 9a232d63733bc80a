"""Puts images of the metadata in force at this broker, one after the other.

Rules (``BrokerMetadataPublisher.onMetadataUpdate``):
    1. The metadata for clients come first, then the roles of replicas, then settings, quotas, credentials and access
       control lists. A failure is logged, and the other changes take effect.
    2. States in between are skipped: the next image to publish is the newest.
    3. A large step is taken in portions, with turns of the event loop between.
    4. The offset in heartbeats is the offset of the last image that is completely in force. Before the first one, it is
       the offset of the loaded one, so that the broker may begin to recover its logs.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from tidegauge.metadata_update import ANY_BROKER, MetadataUpdate, ReportedPartition
from tidegauge.partition_state import PartitionState
from tidegauge_broker.server.cluster.kraft.metadata_source import MetadataSource
from tidegauge_broker.server.cluster.kraft.metadata_updates import (
    changed_partitions,
    fenced_brokers,
    leaving_brokers,
    live_brokers,
)
from tidegauge_broker.server.cluster.kraft.stores import KRaftStores
from tidegauge_broker.server.cluster.ports import Applied
from tidegauge_controller.metadata.image import EMPTY, LOST, MIGRATING, UNASSIGNED, MetadataImage
from tidegauge_controller.metadata.role_changes import role_changes

LOG = logging.getLogger("tidegauge.metadata")
_PORTION = 500
"""Partitions in one update of the metadata cache."""


class Publisher:
    """Puts images of the metadata in force.

    Args:
        broker_id: this broker.
        source: has the newest image.

    Attributes:
        image: the one that is in force, or is being put in force.
    """

    def __init__(self, broker_id: int, source: MetadataSource) -> None:
        self.image: MetadataImage = source.image
        self._broker_id = broker_id
        self._source = source
        self._published: MetadataImage = EMPTY
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._among_brokers = ""
        self._applied: Applied
        self._stores: KRaftStores
        self._place: Callable[[Sequence[PartitionState]], None]
        self._assigned: Callable[[], None]

    @property
    def applied_offset(self) -> int:
        """The offset that heartbeats report; rule 4."""
        image = self._source.image if self._published is EMPTY else self._published
        return image.provenance.offset

    def prepare(
        self,
        among_brokers: str,
        applied: Applied,
        stores: KRaftStores,
        place: Callable[[Sequence[PartitionState]], None],
        assigned: Callable[[], None],
    ) -> None:
        """Take over the parts to notify.

        Args:
            among_brokers: the listener that brokers use among themselves.
            applied: takes in what clients see, and the roles of replicas.
            stores: notify of settings and the like.
            place: is called before logs are made, which lie in the directories that the states name.
            assigned: is called when replicas may lie in other directories than the controller knows.
        """
        self._among_brokers = among_brokers
        self._applied = applied
        self._stores = stores
        self._place = place
        self._assigned = assigned

    async def begin(self) -> None:
        """Put the first image in force, then each that follows."""
        await self._publish()
        self._source.follow(self._wake.set)
        self._task = asyncio.get_running_loop().create_task(self._run(), name="metadata-publisher")
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._publish()

    async def _publish(self) -> None:
        old, new = self._published, self._source.image
        if new.provenance == old.provenance:
            return
        self.image = new
        for what, step in (
            ("what clients see", self._show),
            ("the roles of replicas", self._decide),
            ("settings", self._stores.published),
            ("the levels of features", self._take_levels),
        ):
            await self._guarded(what, step, old, new)
        self._published = new
        self._assigned()

    async def _guarded(
        self,
        what: str,
        step: Callable[[MetadataImage, MetadataImage], Awaitable[None]],
        old: MetadataImage,
        new: MetadataImage,
    ) -> None:
        try:
            await step(old, new)
        except Exception:
            LOG.exception("Error publishing metadata at offset %d: %s", new.provenance.offset, what)

    async def _show(self, old: MetadataImage, new: MetadataImage) -> None:
        """Update the metadata cache; live brokers go along with each portion."""
        live, fenced = live_brokers(new, self._among_brokers), fenced_brokers(new, self._among_brokers)
        epoch, leaving = new.provenance.epoch, leaving_brokers(new)

        def update(partitions: list[ReportedPartition]) -> None:
            self._applied.metadata_changed(MetadataUpdate(ANY_BROKER, epoch, live, partitions, leaving, fenced))

        portion: list[ReportedPartition] = []
        if old.topics is new.topics and old.brokers is new.brokers:
            return
        for partition in changed_partitions(old, new):
            portion.append(partition)
            if len(portion) == _PORTION:
                update(portion)
                portion = []
                await asyncio.sleep(0)
        update(portion)

    async def _take_levels(self, old: MetadataImage, new: MetadataImage) -> None:
        """Hand on the levels of features if they have changed."""
        if old.features != new.features:
            self._applied.levels_changed(new.features)

    async def _decide(self, old: MetadataImage, new: MetadataImage) -> None:
        """Take over the roles of this broker's replicas."""
        changes = role_changes(self._broker_id, old, new)
        if not changes:
            return
        broker = new.brokers.get(self._broker_id)
        online = () if broker is None else broker.log_dirs
        made = {
            state.topic_partition
            for state in (*changes.leaders, *changes.followers)
            if state.directory in {None, UNASSIGNED, MIGRATING, LOST} or state.directory in online
        }
        states = [*changes.leaders, *changes.followers]
        self._place(states)
        await self._applied.replicas_decided(changes.deletions, states, made)

    async def close(self) -> None:
        """Publish nothing more."""
        self._source.follow(lambda: None)
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
