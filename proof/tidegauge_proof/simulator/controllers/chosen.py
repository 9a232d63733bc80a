"""The kind of controllers that a world has unless another one is asked for."""

from __future__ import annotations

from tidegauge_proof.simulator.controllers.ports import MakeStore
from tidegauge_proof.simulator.controllers.zookeeper.store import ZooKeeperStore

DEFAULT: MakeStore = ZooKeeperStore
