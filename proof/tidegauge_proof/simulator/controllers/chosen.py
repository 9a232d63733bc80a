"""The kind of controllers that a world has unless another one is asked for."""

from __future__ import annotations

from tidegauge_proof.simulator.controllers.ports import MakeStore
from tidegauge_proof.simulator.controllers.zookeeper import sim_controller
from tidegauge_proof.simulator.controllers.zookeeper.store import ZooKeeperStore

DEFAULT: MakeStore = ZooKeeperStore


def trusts_restarted_brokers() -> bool:
    """Return whether these controllers overlook a restart that none of them has seen, as Kafka's do."""
    return sim_controller.SETTINGS.trusts_restarted_brokers
