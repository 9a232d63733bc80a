"""A session may expire at any point of a broker's start: the start goes on, and ends with a registered broker.

In Kafka a request that meets the end of its session fails the start; a session that ends between two requests does not
(ZooKeeperClient.reinitialize, KafkaZkClient.retryRequestsUntilConnected).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.listeners import parse_listeners
from tidegauge.settings import parse_broker_settings
from tidegauge.znodes import BROKER_IDS, CLUSTER_ID, BrokerNode, broker_path, encode_cluster_id
from tidegauge_broker.server.cluster.zookeeper import cluster as cluster_module
from tidegauge_broker.server.cluster.zookeeper.cluster import ZooKeeperCluster
from tidegauge_broker.server.cluster.zookeeper.config_changes import ConfigChanges
from tidegauge_broker.server.cluster.zookeeper.registration import Registration, prepare_cluster
from tidegauge_controller.zookeeper.client import (
    Closed,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    ZooKeeper,
)
from tidegauge_controller.zookeeper.decisions.steps import CreateNode, Operation, SetNode, ZnodeStat
from tidegauge_controller.zookeeper.over_sessions import over_sessions

LISTENERS = parse_listeners("PLAINTEXT://127.0.0.1:9092", "listeners")
NODE = BrokerNode(0, LISTENERS[0].host, LISTENERS[0].port, 1_700_000_000_000, None, LISTENERS)
BEFORE, AFTER, UNSEEN = "before", "after", "unseen"


class Tree:
    """A ZooKeeper whose session expires at the nth request.

    Args:
        at: which request; 0: none.
        when: ``before`` it is carried out, ``after`` it was and before its response, or ``unseen``: its response has
            come, and the expiry is reported before whoever waits for it goes on.
    """

    negotiated_session_timeout_ms = 20
    hosts = "h"

    def __init__(self, at: int = 0, when: str = BEFORE) -> None:
        self.session_id = 1
        self.requests = 0
        self.nodes: dict[str, tuple[bytes, ZnodeStat]] = {}
        self.expired_at: list[int] = []
        self._at, self._when = at, when
        self._listeners: list[Callable[[SessionState], None]] = []

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        self._listeners.append(listener)

    def expire(self) -> None:
        self.expired_at.append(self.requests)
        self.nodes = {path: one for path, one in self.nodes.items() if one[1].ephemeral_owner != self.session_id}
        self.session_id += 1
        for state in (SessionState.EXPIRED, SessionState.CONNECTED):
            for listener in list(self._listeners):
                listener(state)

    async def _request(self, carry_out: Callable[[], Any]) -> Any:
        self.requests += 1
        is_it = self.requests == self._at
        if is_it and self._when == BEFORE:
            self.expire()
            raise SessionExpired("before")
        try:
            found = carry_out()
        finally:
            if is_it:
                self.expire()
        if is_it and self._when == AFTER:
            raise SessionExpired("after")
        await asyncio.sleep(0)
        return found

    def _get(self, path: str) -> tuple[bytes, ZnodeStat]:
        if path not in self.nodes:
            raise NoNode(path)
        return self.nodes[path]

    def _create(self, path: str, data: bytes | None, owner: int) -> None:
        if path in self.nodes:
            raise NodeExists(path)
        self.nodes[path] = data or b"", ZnodeStat(1000 + self.requests, 0, 0, owner)

    async def get(self, path: str) -> Any:
        return await self._request(lambda: self._get(path))

    async def exists(self, path: str) -> Any:
        return await self._request(lambda: self.nodes[path][1] if path in self.nodes else None)

    async def create(self, path: str, data: bytes | None) -> None:
        await self._request(lambda: self._create(path, data, 0))

    async def ensure_path(self, path: str) -> None:
        await self._request(lambda: self.nodes.setdefault(path, (b"", ZnodeStat(0, 0, 0, 0))))

    async def children(self, path: str) -> Any:
        assert path == BROKER_IDS
        return await self._request(lambda: [one.rpartition("/")[2] for one in self.nodes if one.startswith(path + "/")])

    async def multi(self, operations: Sequence[Operation]) -> None:
        create, written = operations
        assert isinstance(create, CreateNode)
        assert isinstance(written, SetNode)

        def both() -> None:
            try:
                self._create(create.path, written.data, self.session_id)
            except NodeExists as problem:
                raise MultiFailed(0, problem) from None

        await self._request(both)

    async def close(self) -> None:
        """Nothing is kept."""


class Candidate:
    """A controller candidate that notes when it stands for election."""

    def __init__(self, tree: Tree) -> None:
        self.stood: list[bool] = []
        self._tree = tree

    def _stand(self) -> None:
        found = self._tree.nodes.get(broker_path(0))
        self.stood.append(found is not None and found[1].ephemeral_owner == self._tree.session_id)

    async def start(self) -> None:
        self._stand()

    def session_expired(self) -> None:
        """Resign."""

    async def session_restored(self) -> None:
        self._stand()


async def started(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> tuple[list[int], Candidate]:
    """Go through a start's requests in ZooKeeper; return the broker epochs, and the candidate."""

    async def connect(*_: Any, **__: Any) -> Tree:
        return tree

    monkeypatch.setattr(cluster_module.ZooKeeper, "connect", connect)
    settings: Any = parse_broker_settings({"broker.id": "0"})[0]
    cluster = await ZooKeeperCluster.connect(settings, 0, None)
    epochs: list[int] = []
    candidate: Any = Candidate(tree)
    cluster._registration = Registration(tree, NODE, epochs.append, lambda _: None)  # type: ignore[arg-type]
    cluster._controller = candidate

    async def read() -> None:
        for _ in range(3):
            await tree.exists(CLUSTER_ID)

    await cluster.read(read)
    await cluster.register()
    await asyncio.sleep(0)
    await cluster.take_part()
    for _ in range(30):
        await asyncio.sleep(0)
    return epochs, candidate


async def test_a_start_without_an_expiry_registers_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Tree()
    epochs, candidate = await started(tree, monkeypatch)
    assert len(epochs) == 1
    assert candidate.stood == [True]


@pytest.mark.parametrize("when", [BEFORE, AFTER, UNSEEN])
async def test_a_session_that_expires_at_any_request_of_a_start(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is registered in the last session, knows its epoch, and stood for election only as a member."""
    whole = Tree()
    await started(whole, monkeypatch)
    for at in range(1, whole.requests + 1):
        tree = Tree(at, when)
        epochs, candidate = await started(tree, monkeypatch)
        assert tree.expired_at == [at]
        _, stat = tree.nodes[broker_path(0)]
        assert stat.ephemeral_owner == tree.session_id, f"{when} request {at}"
        assert epochs[-1] == stat.czxid, f"{when} request {at}"
        assert candidate.stood[-1:] == [True], f"{when} request {at}"
        assert False not in candidate.stood, f"{when} request {at}"


async def test_a_session_that_expires_between_registration_and_candidacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was notified then: the broker stayed without its znode for good, and said that it was up."""
    tree = Tree()
    epochs: list[int] = []
    made = Registration(tree, NODE, epochs.append, lambda _: None)  # type: ignore[arg-type]
    await made.register()
    tree.expire()
    await made.until_registered()
    assert epochs[-1] == tree.nodes[broker_path(0)][1].czxid
    assert len(epochs) == 2


async def test_settings_that_were_read_in_an_expired_session_are_read_again() -> None:
    """Notifications may have been purged between the first reads and the watch."""
    tree = Tree()
    read: list[int] = []

    async def read_all() -> None:
        read.append(tree.session_id)

    async def apply(_: str) -> None:
        """Nothing has changed."""

    async def children(_: str) -> list[str]:
        return []

    tree.children = children  # type: ignore[method-assign]
    changes: ConfigChanges[str] = ConfigChanges(tree, apply, read_all, lambda: 0)  # type: ignore[arg-type]
    tree.expire()
    await changes.look()
    assert read == [2]


async def test_a_client_that_is_closed_ends_a_start() -> None:
    async def work() -> None:
        raise Closed("closed")

    with pytest.raises(Closed):
        await over_sessions(work)


async def test_a_chroot_is_made_over_sessions() -> None:
    attempts: list[str] = []

    async def ensure_path(path: str) -> None:
        attempts.append(path)
        if len(attempts) < 3:
            raise SessionExpired("again")

    made: Any = SimpleNamespace(_chroot="/c", ensure_path=ensure_path)
    await ZooKeeper._create_chroot(made)
    assert attempts == ["/c"] * 3
    assert made._chroot == "/c"


async def test_a_cluster_is_named_once_over_sessions() -> None:
    """The attempt that an expiry interrupted may have named it."""
    tree = Tree(at=0)
    names = iter(["a" * 22, "b" * 22])
    work: Callable[[], Awaitable[str]] = lambda: prepare_cluster(tree, lambda: next(names))  # type: ignore[arg-type] # noqa: E731
    assert await over_sessions(work) == "a" * 22
    assert await over_sessions(work) == "a" * 22
    assert tree.nodes[CLUSTER_ID][0] == encode_cluster_id("a" * 22)
