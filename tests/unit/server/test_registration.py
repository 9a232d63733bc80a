"""A broker's znode: other addresses in it while the broker runs, and the znode of a previous incarnation in its place.

Holds KafkaController.updateBrokerInfo, KafkaZkClient.updateBrokerInfo and KafkaServer.createBrokerInfo.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.listeners import parse_listeners
from tidegauge.znodes import BROKER_IDS, BrokerNode, broker_path
from tidegauge_broker.server.cluster.zookeeper import registration
from tidegauge_broker.server.cluster.zookeeper.registration import Registration
from tidegauge_controller.zookeeper.client import MultiFailed, NodeExists, NoNode, SessionState
from tidegauge_controller.zookeeper.decisions.steps import CreateNode, Operation, SetNode, ZnodeStat

SESSION, OTHER_SESSION = 1, 2


class Tree:
    """Registrations by path: their data, and the session that owns each; versions and epochs count writes."""

    negotiated_session_timeout_ms = 20

    def __init__(self) -> None:
        self.session_id = SESSION
        self.nodes: dict[str, tuple[bytes, ZnodeStat]] = {}
        self.writes = 0
        self._listeners: list[Callable[[SessionState], None]] = []
        self._watches: list[Callable[[], None]] = []

    def put(self, node: BrokerNode, owner: int) -> None:
        path = broker_path(node.broker_id)
        self.writes += 1
        was = self.nodes.get(path)
        czxid, version = (self.writes, 1) if was is None else (was[1].czxid, was[1].version + 1)
        self.nodes[path] = node.encode(), ZnodeStat(czxid, self.writes, version, owner)

    def node(self, broker_id: int) -> BrokerNode:
        return BrokerNode.decode(broker_id, self.nodes[broker_path(broker_id)][0])

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        if path not in self.nodes:
            raise NoNode(path)
        return self.nodes[path]

    async def exists(self, path: str) -> ZnodeStat | None:
        return self.nodes[path][1] if path in self.nodes else None

    async def children(self, path: str) -> list[str]:
        assert path == BROKER_IDS
        return [name.rpartition("/")[2] for name in self.nodes]

    async def set(self, path: str, data: bytes, version: int = -1) -> None:
        if path not in self.nodes:
            raise NoNode(path)
        self.put(BrokerNode.decode(int(path.rpartition("/")[2]), data), self.session_id)

    async def multi(self, operations: Sequence[Operation]) -> None:
        create, written = operations
        assert isinstance(create, CreateNode)
        assert isinstance(written, SetNode)
        if create.path in self.nodes:
            raise MultiFailed(0, NodeExists(create.path))
        self.put(BrokerNode.decode(int(create.path.rpartition("/")[2]), written.data), self.session_id)

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def watch_data(self, path: str, callback: Callable[[], None]) -> Tree:
        self._watches.append(callback)
        callback()
        return self

    def cancel(self) -> None:
        self._watches.clear()

    def remove(self, broker_id: int) -> None:
        del self.nodes[broker_path(broker_id)]
        for callback in list(self._watches):
            callback()

    def expire(self) -> None:
        self.nodes.pop(broker_path(0), None)
        self.session_id += 10
        for state in (SessionState.EXPIRED, SessionState.CONNECTED):
            for listener in self._listeners:
                listener(state)


class Candidate:
    def session_expired(self) -> None: ...

    async def session_restored(self) -> None: ...


def node_at(listeners: str, broker_id: int = 0) -> BrokerNode:
    found = parse_listeners(listeners, "listeners")
    return BrokerNode(broker_id, found[0].host, found[0].port, 1_700_000_000_000, None, found)


HERE = node_at("PLAINTEXT://127.0.0.1:9092,GRPC://127.0.0.1:19092")
MOVED = node_at("PLAINTEXT://localhost:9092,GRPC://127.0.0.1:19092")


@pytest.fixture
def tree() -> Tree:
    return Tree()


def registration_of(tree: Tree, node: BrokerNode = HERE) -> tuple[Registration, list[int]]:
    anything: Any = tree
    epochs: list[int] = []
    return Registration(anything, node, epochs.append, lambda _: None), epochs


async def test_other_addresses_are_written_into_the_znode_that_is_there(tree: Tree) -> None:
    """Its czxid, the broker epoch, stays: the broker has not restarted."""
    made, epochs = registration_of(tree)
    await made.register()
    before = tree.nodes[broker_path(0)][1]
    await made.advertise(replace(MOVED, timestamp_ms=1_700_000_000_001))
    after = tree.nodes[broker_path(0)][1]
    assert tree.node(0).listeners == MOVED.listeners
    assert (tree.node(0).host, tree.node(0).timestamp_ms) == ("localhost", 1_700_000_000_001)
    assert (after.czxid, after.version, after.ephemeral_owner) == (before.czxid, before.version + 1, SESSION)
    assert epochs == [before.czxid]
    await made.advertise(replace(MOVED, timestamp_ms=1_700_000_000_002))
    assert tree.writes == 2, "what is advertised already is not written again"


async def test_a_new_session_registers_the_latest_addresses(tree: Tree) -> None:
    made, epochs = registration_of(tree)
    await made.register()
    made.keep(Candidate())
    await made.advertise(MOVED)
    tree.expire()
    await _until(lambda: len(epochs) == 2)
    assert tree.node(0).listeners == MOVED.listeners
    await made.close()


async def test_addresses_that_change_while_there_is_no_session_are_registered_with_the_next(tree: Tree) -> None:
    made, epochs = registration_of(tree)
    await made.register()
    made.keep(Candidate())
    tree.nodes.clear()
    await made.advertise(MOVED)
    assert tree.nodes == {}, "only a registration makes the znode"
    tree.expire()
    await _until(lambda: len(epochs) == 2)
    assert tree.node(0).listeners == MOVED.listeners
    await made.close()


async def test_the_znode_of_another_session_is_not_touched(tree: Tree) -> None:
    made, _ = registration_of(tree)
    tree.put(HERE, OTHER_SESSION)
    await made.advertise(MOVED)
    assert tree.node(0).listeners == HERE.listeners


async def test_addresses_of_another_broker_are_not_registered(tree: Tree, caplog: pytest.LogCaptureFixture) -> None:
    """DynamicListenerConfig.reconfigure fails then in Kafka, too: the setting is altered, the registration is not."""
    tree.put(node_at("PLAINTEXT://localhost:9092", 1), OTHER_SESSION)
    made, _ = registration_of(tree)
    await made.register()
    await made.advertise(MOVED)
    assert tree.node(0).listeners == HERE.listeners
    assert "Configured end points localhost:9092 in advertised listeners are already registered by broker 1" in (
        caplog.text
    )
    tree.remove(1)
    await made.advertise(MOVED)
    assert tree.node(0).listeners == MOVED.listeners


async def test_a_previous_incarnation_at_another_address_is_waited_for(tree: Tree) -> None:
    """Killed after the setting was written and before the registration was: its session expires in time."""
    tree.negotiated_session_timeout_ms = 3_600_000
    tree.put(HERE, OTHER_SESSION)
    made, epochs = registration_of(tree, MOVED)
    registering = asyncio.ensure_future(made.register())
    await _turns()
    assert not registering.done()
    tree.remove(0)
    await registering
    assert (tree.node(0).listeners, len(epochs)) == (MOVED.listeners, 1)


async def test_a_broker_of_the_same_id_at_another_address_is_refused(tree: Tree) -> None:
    """When no session of a previous incarnation can be left: every broker needs an id of its own."""
    tree.put(HERE, OTHER_SESSION)
    made, _ = registration_of(tree, MOVED)
    with pytest.raises(TidegaugeError, match=r"Broker id 0 is taken: a broker at 127\.0\.0\.1:9092") as caught:
        await made.register()
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    assert tree.node(0).listeners == HERE.listeners


async def test_a_registration_that_fails_in_a_new_session_is_tried_again(
    tree: Tree, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker without its znode serves its clients and is in no metadata; in Kafka it stays so."""
    monkeypatch.setattr(registration, "RETRY_SECONDS", 0)
    made, epochs = registration_of(tree)
    await made.register()
    made.keep(Candidate())
    tree.expire()
    tree.put(MOVED, OTHER_SESSION)  # another broker was faster; what it wrote is unreadable
    tree.nodes[broker_path(0)] = b"rubbish", tree.nodes[broker_path(0)][1]
    await _until(lambda: "out of the cluster and tries to register again" in caplog.text)
    await _turns()
    assert caplog.text.count("tries to register again") == 1, "it says the same once"
    tree.remove(0)
    await _until(lambda: len(epochs) == 2)
    assert tree.node(0).listeners == HERE.listeners
    await made.close()


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def _until(holds: Callable[[], bool]) -> None:
    for _ in range(100):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never holds")
