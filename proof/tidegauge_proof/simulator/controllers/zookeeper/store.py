"""ZooKeeper as the store of a simulated cluster (``ports.Store``): the tree, and the terms of its controllers."""

from __future__ import annotations

from tidegauge.partition import TopicPartition
from tidegauge.znodes import LOG_DIR_EVENT_PREFIX, encode_log_dir_event, state_path
from tidegauge_proof.simulator.controllers.zookeeper.memory_zookeeper import MemoryZooKeeper
from tidegauge_proof.simulator.controllers.zookeeper.sim_controller import SimController


class ZooKeeperStore(MemoryZooKeeper):
    """The controllers' store in ZooKeeper mode."""

    @property
    def changes(self) -> int:
        """The number of the last transaction."""
        return self.zxid

    def term(self, broker_id: int, session: int) -> SimController:
        """Elect a broker; its fail-over is still to come."""
        return SimController(self, broker_id, session)

    def report_failed_replicas(self, broker_id: int) -> None:
        """Write a broker's notification for the controller."""
        self.create_sequential(LOG_DIR_EVENT_PREFIX, encode_log_dir_event(broker_id))

    def last_change_of(self, at: TopicPartition) -> int | None:
        """Return the transaction that wrote a partition's state; None: there is no znode."""
        node = self.nodes.get(state_path(*at))
        return None if node is None else node.mzxid
