"""The look at ZooKeeper's sessions: what it says before its client is connected, and when there is no ZooKeeper."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import kazoo.client
import pytest

from tidegauge_lab.watch.sessions import Sessions


class Client:
    """Kazoo's client, without a socket: it connects while its first connection is waited for."""

    reachable = True
    waits = 0

    def __init__(self, **_: Any) -> None:
        self.connected = False

    def start_async(self) -> Client:
        return self

    def wait(self, timeout: float) -> None:
        assert timeout > 0, "a look never waits without a limit"
        Client.waits += 1
        self.connected = Client.reachable

    def get_children_async(self, _: str) -> Any:
        return SimpleNamespace(get=lambda **_: ["0", "1"])

    def exists_async(self, path: str) -> Any:
        return SimpleNamespace(get=lambda **_: SimpleNamespace(ephemeralOwner=0xA0 + int(path[-1])))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    monkeypatch.setattr(kazoo.client, "KazooClient", Client)
    monkeypatch.setattr(Client, "reachable", True)
    monkeypatch.setattr(Client, "waits", 0)
    return Client


def test_the_first_look_waits_for_the_connection(client: type[Client]):
    """A page that has just been opened said of a healthy ZooKeeper that it does not respond."""
    sessions = Sessions("127.0.0.1:2181")
    assert sessions.owners() == {0: 0xA0, 1: 0xA1}
    assert sessions.owners() == {0: 0xA0, 1: 0xA1}
    assert client.waits == 1


def test_without_a_zookeeper_the_first_look_alone_waits(client: type[Client]):
    client.reachable = False
    sessions = Sessions("127.0.0.1:2181")
    assert [sessions.owners(), sessions.owners()] == [None, None]
    assert client.waits == 1
