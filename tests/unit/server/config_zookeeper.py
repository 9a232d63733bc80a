"""A ZooKeeper of dictionaries, as far as settings need it: versions, sequence numbers, transactions, sessions."""

from __future__ import annotations

import asyncio
from typing import Any

from tidegauge.settings import BrokerSettings, parse_broker_settings
from tidegauge.znodes import CONFIG_CHANGES, PERSISTENT_PATHS
from tidegauge_broker.server.cluster.zookeeper.stores import ZooKeeperStores
from tidegauge_broker.server.configs.dynamic_configs import DynamicConfigs
from tidegauge_controller.zookeeper.client import BadPath, BadVersion, MultiFailed, NodeExists, NoNode, SessionState
from tidegauge_controller.zookeeper.decisions.steps import CheckVersion, CreateNode, SetNode, ZnodeStat


class FakeZooKeeper:
    """Nothing here waits; ``before_multi`` lets a test be quicker than a write."""

    def __init__(self, now_ms: int = 0) -> None:
        self.nodes: dict[str, tuple[bytes, ZnodeStat]] = {}
        self.now_ms = now_ms
        self.before_multi = None
        self._listeners = []
        self._watches = []
        self._sequence = 0
        for path in ("/config", *(path for path in PERSISTENT_PATHS if path.startswith("/config/"))):
            self.put(path, b"")

    def put(self, path: str, data: bytes) -> None:
        version = self.nodes[path][1].version + 1 if path in self.nodes else 0
        self.nodes[path] = (data, ZnodeStat(1, 1, version, 0, self.now_ms))

    @staticmethod
    def _check(path: str) -> None:
        if {".", ".."} & set(path.split("/")):
            raise BadPath(path)

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        self._check(path)
        if path not in self.nodes:
            raise NoNode(path)
        return self.nodes[path]

    async def exists(self, path: str) -> ZnodeStat | None:
        return self.nodes[path][1] if path in self.nodes else None

    async def children(self, path: str) -> list[str]:
        return sorted(name.rpartition("/")[2] for name in self.nodes if name.rpartition("/")[0] == path)

    async def create(self, path: str, data: bytes, *, ephemeral: bool = False, sequence: bool = False) -> str:
        self._check(path)
        if sequence:
            path = f"{path}{self._sequence:010d}"
            self._sequence += 1
        if path in self.nodes:
            raise NodeExists(path)
        self.put(path, data)
        self.fire()
        return path

    async def delete(self, path: str, version: int = -1) -> None:
        if path not in self.nodes:
            raise NoNode(path)
        del self.nodes[path]

    async def multi(self, operations) -> list[str | None]:
        if self.before_multi is not None:
            self.before_multi()
        for index, operation in enumerate(operations):
            there = self.nodes.get(operation.path)
            if isinstance(operation, CreateNode):
                if there is not None:
                    raise MultiFailed(index, NodeExists(operation.path))
                if operation.path.rpartition("/")[0] not in self.nodes:
                    raise MultiFailed(index, NoNode(operation.path))
            elif there is None:
                raise MultiFailed(index, NoNode(operation.path))
            elif operation.version not in {-1, there[1].version}:
                raise MultiFailed(index, BadVersion(operation.path))
        results = [self._carry_out(operation) for operation in operations]
        self.fire()
        return results

    def _carry_out(self, operation) -> str | None:
        if isinstance(operation, CheckVersion):
            return None
        assert isinstance(operation, CreateNode | SetNode)
        path = operation.path
        if isinstance(operation, CreateNode) and operation.sequence:
            path = f"{path}{self._sequence:010d}"
            self._sequence += 1
        self.put(path, operation.data)
        return path if isinstance(operation, CreateNode) else None

    def on_session(self, listener) -> None:
        self._listeners.append(listener)

    def watch_children(self, path: str, callback):
        assert path == CONFIG_CHANGES
        self._watches.append(callback)
        callback()
        return self

    def cancel(self) -> None:
        self._watches.clear()

    def fire(self) -> None:
        for callback in self._watches:
            callback()

    def expire(self) -> None:
        for state in (SessionState.EXPIRED, SessionState.CONNECTED):
            for listener in self._listeners:
                listener(state)
        self.fire()


async def settle() -> None:
    """Let all tasks go on until they wait for something outside."""
    for _ in range(50):
        await asyncio.sleep(0)


class Broker:
    """One broker's dynamic settings, and what it was to bring into force."""

    def __init__(self, zookeeper, broker_id: int = 0, **static: str) -> None:
        values, _ = parse_broker_settings({key.replace("_", "."): text for key, text in static.items()})
        self.settings = BrokerSettings(values)
        stores = ZooKeeperStores(zookeeper, self.settings.live, lambda: zookeeper.now_ms)
        self.configs = DynamicConfigs(stores, broker_id, self.settings, lambda topic: topic in {"t", "u"})
        self.topics: dict[str, int] = {}
        self.groups: dict[str, Any] = {}
        self.unclean: list[str | None] = []
        self.broker_changes = 0
        self.advertised: list[str | None] = []

    async def start(self) -> Broker:
        await self.configs.read_all()
        self.configs.follow(self)
        await settle()
        return self

    def topic_settings_changed(self, topic, values) -> None:
        self.topics[topic] = values.integer("min.insync.replicas")

    def broker_settings_changed(self) -> None:
        self.broker_changes += 1

    def unclean_election_enabled(self, topic) -> None:
        self.unclean.append(topic)

    def group_settings_changed(self, group_id, values) -> None:
        self.groups[group_id] = values

    async def advertise(self) -> None:
        self.advertised.append(self.settings.live["advertised.listeners"])
