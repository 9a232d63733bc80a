"""A broker's preparation of ZooKeeper at its start (KafkaServer.startup, KafkaZkClient)."""

from __future__ import annotations

from typing import Any

import pytest

from tidegauge.znodes import CLUSTER_ID, PERSISTENT_PATHS
from tidegauge_broker.server.cluster.zookeeper.registration import prepare_cluster
from tidegauge_controller.zookeeper.client import NodeExists, NoNode, SessionExpired


class Tree:
    """A ZooKeeper without time: names and data; it may lose its temper once."""

    def __init__(self, *there: str) -> None:
        self.nodes: dict[str, bytes | None] = dict.fromkeys(["", *there])
        self.created: list[str] = []
        self.refuses: dict[str, Exception] = {}

    async def exists(self, path: str) -> object | None:
        return path if path in self.nodes else None

    async def create(self, path: str, data: bytes | None) -> str:
        if path in self.refuses:
            raise self.refuses.pop(path)
        if path in self.nodes:
            raise NodeExists(path)
        if path.rpartition("/")[0] not in self.nodes:
            raise NoNode(path)
        self.nodes[path] = data
        self.created.append(path)
        return path

    async def ensure_path(self, path: str) -> None:
        way = path.split("/")
        for length in range(2, len(way) + 1):
            self.nodes.setdefault("/".join(way[:length]), None)

    async def get(self, path: str) -> tuple[bytes, object]:
        if path not in self.nodes:
            raise NoNode(path)
        return self.nodes[path] or b"", path


async def prepare(tree: Tree) -> str:
    zookeeper: Any = tree
    return await prepare_cluster(zookeeper, lambda: "a" * 22)


def assert_whole(tree: Tree) -> None:
    assert set(PERSISTENT_PATHS) <= set(tree.nodes)
    assert all(tree.nodes[path] is None for path in PERSISTENT_PATHS), "null data, as Kafka's"


async def test_a_new_cluster_gets_all_paths_with_their_parents_and_an_id() -> None:
    tree = Tree()
    assert await prepare(tree) == "a" * 22
    assert_whole(tree)
    places = {path: place for place, path in enumerate(tree.created)}
    assert [place for path, place in places.items() if places.get(path.rpartition("/")[0], -1) > place] == []
    assert len(places) == len(tree.created), "each once"


async def test_what_is_there_is_not_made_again() -> None:
    tree = Tree()
    cluster_id = await prepare(tree)
    tree.created.clear()
    assert await prepare(tree) == cluster_id
    assert tree.created == []


async def test_another_broker_may_be_quicker_with_some_of_it() -> None:
    tree = Tree()
    tree.nodes["/brokers"] = None
    tree.refuses["/config"] = NodeExists("/config")
    tree.nodes["/config"] = None
    await prepare(tree)
    assert_whole(tree)


async def test_a_parent_that_came_late_over_a_new_connection_leaves_nothing_out() -> None:
    tree = Tree()
    tree.refuses["/brokers/ids"] = NoNode("/brokers/ids")
    await prepare(tree)
    assert_whole(tree)


async def test_any_other_failure_is_reported() -> None:
    tree = Tree()
    tree.refuses["/admin"] = SessionExpired("gone")
    with pytest.raises(SessionExpired):
        await prepare(tree)


async def test_the_id_is_the_one_that_stands_there() -> None:
    tree = Tree()
    tree.nodes |= {"/cluster": None, CLUSTER_ID: b'{"version":"1","id":"bbbbbbbbbbbbbbbbbbbbbb"}'}
    assert await prepare(tree) == "b" * 22
