"""The parts of a controller's process around its node: committed image, controller, timers, snapshots, registration."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from tidegauge.cluster_metadata import new_uuid
from tidegauge.kafka.kraft.record_types import MetadataRecord
from tidegauge.kafka_channel import KafkaChannel
from tidegauge_broker.server.quorum.committed_metadata import CommittedMetadata
from tidegauge_broker.server.quorum.controller.own_registration import OwnRegistration
from tidegauge_broker.server.quorum.controller.quorum_controller import QuorumController
from tidegauge_broker.server.quorum.controller.timers import Timers, periodic_tasks
from tidegauge_broker.server.quorum.driver import QuorumDriver
from tidegauge_broker.server.quorum.metadata_store import MetadataStore
from tidegauge_broker.server.quorum.node_settings import NodeSettings
from tidegauge_broker.server.quorum.snapshot_maker import SnapshotMaker
from tidegauge_controller.metadata.decisions.view import ControllerSettings
from tidegauge_controller.metadata.image import EMPTY, MetadataImage
from tidegauge_controller.metadata.loader import ReplayFault
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.values import Endpoint

LOG = logging.getLogger("tidegauge.controller")


def controller_settings(settings: NodeSettings, cluster_id: str) -> ControllerSettings:
    """Return the settings that decisions are made by."""
    values = settings.values
    return ControllerSettings(
        settings.node_id,
        cluster_id,
        values.integer("broker.session.timeout.ms"),
        values.integer("default.replication.factor"),
        values.integer("num.partitions"),
        values.integer("min.insync.replicas"),
        values.flag("unclean.leader.election.enable"),
        of_groups=values,
    )


class ControllerParts:
    """The parts of a controller's process. ``committed``, then ``controller`` are observers of the driver.

    Args:
        node: the node.
        store: its disk.
        settings: the process's.
        cluster_id: by its meta.properties.
        bootstrap: the records of bootstrap.checkpoint.
        now_ms: the process's clock.

    Attributes:
        on_image: is called when there is another image, after the controller has taken it in.
        on_decided: is called with the image before and the new one while this controller is the active one.
        on_step: is called likewise, whether it is the active one or not.
    """

    def __init__(
        self,
        node: RaftNode,
        store: MetadataStore,
        settings: NodeSettings,
        cluster_id: str,
        bootstrap: Sequence[MetadataRecord],
        now_ms: Callable[[], int],
    ) -> None:
        self._node = node
        self._store = store
        self._settings = settings
        self._now_ms = now_ms
        self._snapshots: SnapshotMaker | None = None
        self._registration: OwnRegistration | None = None
        self._driver: QuorumDriver | None = None
        self.on_image: Callable[[], None] = lambda: None
        self.on_decided: Callable[[MetadataImage, MetadataImage], None] = lambda _old, _new: None
        self.on_step: Callable[[MetadataImage, MetadataImage], None] = lambda _old, _new: None
        self._image = EMPTY
        self.controller = QuorumController(node, controller_settings(settings, cluster_id), bootstrap, now_ms)
        self.committed = CommittedMetadata(node, store, self._on_image, self._on_fault)
        self.controller.committed = self.committed
        self._timers = Timers(periodic_tasks(settings.values), self.controller.write)
        self.controller.on_activation = self._timers.start
        self.controller.on_renouncement = self._timers.stop

    def start(
        self, driver: QuorumDriver, open_channel: Callable[[str], KafkaChannel], wall_ms: Callable[[], int]
    ) -> None:
        """Begin to take events.

        Args:
            driver: of the node.
            open_channel: makes the channel to the active controller.
            wall_ms: the wall clock.
        """
        self._driver = driver
        self.controller.give = driver.give
        self._snapshots = SnapshotMaker(
            self.committed, driver, self._store, self._settings.values, self._now_ms, wall_ms
        )
        self._registration = OwnRegistration(
            self.controller,
            new_uuid(os.urandom(16)),
            self._settings.endpoints,
            self._settings.protocols,
            self._leader,
            open_channel,
        )
        self.controller.start()

    def _leader(self) -> Endpoint | None:
        """Return where the quorum's leader is, this node included."""
        leader_id = self._node.state.leader_id
        if leader_id == self._settings.node_id:
            return self._settings.endpoints[0]
        return None if leader_id is None else self._node.history.current.endpoint(leader_id)

    def _on_image(self, image: MetadataImage) -> None:
        before, self._image = self._image, image
        self.on_step(before, image)
        if self.controller.active is not None:
            self.on_decided(before, image)
        self.controller.image_changed()
        if self._snapshots is not None:
            self._snapshots.consider()
        if self._registration is not None:
            self._registration.consider()
        self.on_image()

    def _on_fault(self, fault: ReplayFault) -> None:
        """End the process: a controller whose image lacks a record would decide wrongly (as Kafka's controllers do)."""
        assert self._driver is not None, "records are committed by a node that is driven"
        self._driver.fail(f"the metadata record at offset {fault.offset} can't be taken in: {fault.sentence}")

    async def close(self) -> None:
        """Stop everything; requests that wait get an error."""
        self._timers.stop()
        if self._registration is not None:
            self._registration.close()
        if self._snapshots is not None:
            self._snapshots.close()
        self.committed.close()
        await self.controller.close()
