"""Sessions of brokers that can't be asked (sessions.py), on a fake of ZooKeeper's server."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_broker.server.cluster.zookeeper.cluster import ZooKeeperCluster
from tidegauge_broker.server.lab.zookeeper.session_note import keep_noted
from tidegauge_client.cluster_file import BrokerEntry, ClusterFile
from tidegauge_controller.zookeeper.client import SessionState
from tidegauge_lab.local import layout
from tidegauge_lab.local.cluster import ZOOKEEPER, LocalCluster
from tidegauge_lab.local.topology import zookeeper_sessions as sessions
from tidegauge_lab.local.topology.zookeeper import ZooKeeperTopology
from tidegauge_lab.session_ending import expire_session

SESSION, PASSWORD = -0x7EDC_BA98_7654_3210, b"\x00\xff" * 8


class FakeZooKeeper:
    """A broker's connection with ZooKeeper."""

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self.hosts = ""
        self.credentials = (SESSION, PASSWORD)
        self.listeners: list[Any] = []

    def on_session(self, listener: Any) -> None:
        self.listeners.append(listener)

    def change(self, state: SessionState, session_id: int) -> None:
        self.credentials = (session_id, PASSWORD)
        for listener in self.listeners:
            listener(state)


def make_cluster(directory: Path, zookeeper: str, *, managed: bool = False) -> LocalCluster:
    entries = [BrokerEntry(number, "127.0.0.1", 1 + number, "") for number in range(2)]
    file = ClusterFile(zookeeper, zookeeper_managed=managed, profile="fast", brokers=entries)
    layout.write(directory, file)
    return LocalCluster(directory)


def note(directory: Path, broker_id: int) -> FakeZooKeeper:
    fake: Any = FakeZooKeeper()
    keep_noted(ZooKeeperCluster(fake, "id", broker_id), layout.session_file(directory, broker_id))
    return fake


@contextmanager
def server(session_in_response: int) -> Iterator[tuple[str, list[bytes]]]:
    """Accept one connection, respond as ZooKeeper does to a ConnectRequest, and close; yield the received bytes."""
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(30)  # a caller that does not connect fails its test

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                received.append(connection.recv(4096))
                connection.sendall(struct.pack(">iiiq", 36, 0, 10_000, session_in_response) + b"\x00" * 20)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}", received
        thread.join()


def test_a_broker_notes_each_of_its_sessions_for_its_owner_alone(tmp_path: Path) -> None:
    """A client with id and password may end the session; a lost one stays noted until there is another."""
    directory = tmp_path / "cluster"
    make_cluster(directory, "127.0.0.1:1")
    fake = note(directory, 0)
    assert stat.S_IMODE(layout.session_file(directory, 0).stat().st_mode) == 0o600
    assert sessions.noted(directory, 0) == (SESSION, PASSWORD)
    fake.change(SessionState.EXPIRED, 0)
    assert sessions.noted(directory, 0).session_id == SESSION
    fake.change(SessionState.CONNECTED, 7)
    assert sessions.noted(directory, 0).session_id == 7


def test_a_note_that_can_not_be_written_leaves_the_broker_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    fake: Any = FakeZooKeeper()
    keep_noted(ZooKeeperCluster(fake, "id", 0), tmp_path / "missing" / "session.json")
    assert "can't be noted" in caplog.text


@pytest.mark.parametrize("known", [SESSION, 0])
def test_the_session_is_taken_over_and_closed(tmp_path: Path, known: int) -> None:
    """ConnectRequest with id and password, then closeSession (-11); one that has expired (id 0) is no error."""
    with server(known) as (address, received):
        cluster = make_cluster(tmp_path / "cluster", f"{address}/chroot")
        note(cluster.directory, 0)
        assert sessions.end(cluster.directory, cluster.file, 0) == SESSION
    [sent] = received
    assert struct.pack(">q", SESSION) in sent
    assert PASSWORD in sent
    assert sent.endswith(struct.pack(">ii", 1, -11))
    assert '"action":"expire-session"' in (cluster.logs / "lab.events.jsonl").read_text()


@pytest.mark.parametrize("verb", ["kill", "pause"])
def test_nothing_is_done_if_a_session_can_not_be_ended(
    tmp_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known, ZooKeeper is down, or the target is ZooKeeper."""
    monkeypatch.setattr(os, "kill", lambda *_: pytest.fail("a signal was sent"))
    cluster = make_cluster(tmp_path / "cluster", "127.0.0.1:1", managed=True)
    act = getattr(cluster, verb)
    with pytest.raises(TidegaugeError, match="broker 0 has noted no ZooKeeper session") as unknown:
        act(0, expire=True)
    assert unknown.value.code is ErrorCode.BROKER_NOT_AVAILABLE
    note(cluster.directory, 0)
    with pytest.raises(TidegaugeError, match="ZooKeeper is down"):
        act(0, expire=True)
    with pytest.raises(TidegaugeError, match="ZooKeeper keeps the sessions"):
        act(0, ZOOKEEPER, expire=True)


def test_the_lab_does_not_ask_a_broker_that_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server(SESSION) as (address, _):
        cluster = make_cluster(tmp_path / "cluster", address)
        monkeypatch.setattr(ZooKeeperTopology, "require_members", lambda *_: None)
        note(cluster.directory, 0)

        async def ask(_: int) -> int:
            raise AssertionError("broker 0 is down")

        switches: Any = SimpleNamespace(expire_session=ask)
        assert asyncio.run(expire_session(cluster, switches, 0)) == (SESSION, True)
