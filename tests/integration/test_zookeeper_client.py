"""ZooKeeper for asyncio against a real server: the traps of kazoo, and sessions as in Kafka's ZooKeeperClient."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sysconfig
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until_async

from tidegauge.errors import TidegaugeError
from tidegauge.java import java_program
from tidegauge_controller.zookeeper.client import (
    LARGEST_REQUEST_BYTES,
    BadPath,
    BadVersion,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionState,
    TooLarge,
    ZooKeeper,
)
from tidegauge_controller.zookeeper.decisions.steps import CheckVersion, CreateNode, SetNode

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1200)]


class Server:
    """A ZooKeeper process that can be killed and started again on its data."""

    def __init__(self, directory: Path, port: int) -> None:
        self.port = port
        self.directory = directory
        self.config = directory / "zoo.cfg"
        self.config.write_text(
            f"tickTime=500\nminSessionTimeout=1000\nmaxSessionTimeout=60000\ndataDir={directory / 'data'}\n"
            f"clientPort={self.port}\nclientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        jars = Path(sysconfig.get_paths()["purelib"]) / "pyspark" / "jars" / "*"
        flags = ["-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        with (self.directory / "zookeeper.log").open("ab") as log:
            self.process = subprocess.Popen(
                [java_program(), *flags, "-cp", str(jars), main, str(self.config)], stdout=log, stderr=log
            )

    def kill(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, next_base_port: Callable[[], int]) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("zookeeper"), next_base_port())
    made.start()
    yield made
    made.kill()


@pytest.fixture
async def zookeeper(server: Server) -> AsyncIterator[ZooKeeper]:
    client = await connect(server)
    yield client
    await client.close()


async def connect(server: Server, chroot: str = "", session_timeout_ms: int = 20_000) -> ZooKeeper:
    return await ZooKeeper.connect(
        server.address + chroot, session_timeout_ms=session_timeout_ms, connection_timeout_ms=120_000
    )


async def until(condition: Callable[[], bool], seconds: float = 150) -> None:
    async def holds() -> bool:
        return condition()

    await until_async(holds, seconds)


def unique(name: str) -> str:
    return f"/{name}-{os.urandom(4).hex()}"


async def test_requests_and_their_refusals(zookeeper: ZooKeeper) -> None:
    path = unique("requests")
    assert await zookeeper.exists(path) is None
    with pytest.raises(NoNode):
        await zookeeper.get(path)
    assert await zookeeper.create(path, None) == path
    with pytest.raises(NodeExists):
        await zookeeper.create(path, b"")
    assert (await zookeeper.get(path))[0] == b""
    assert (await zookeeper.set(path, b"one", 0)).version == 1
    with pytest.raises(BadVersion):
        await zookeeper.set(path, b"two", 0)
    first = await zookeeper.create(f"{path}/n_", b"", sequence=True)
    assert first == f"{path}/n_0000000000"
    assert await zookeeper.children(path) == ["n_0000000000"]
    await zookeeper.delete_recursively(path)
    assert await zookeeper.exists(path) is None


async def test_the_latest_value_is_read_when_the_server_has_caught_up(
    zookeeper: ZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server of an ensemble may be behind its leader until it has responded to a sync, and only until then."""
    path = unique("latest")
    with pytest.raises(NoNode):
        await zookeeper.get_latest(path)
    await zookeeper.create(path, b"one")
    kazoo = zookeeper._kazoo
    requests: list[tuple[str, str, Any]] = []
    sync, get = kazoo.sync_async, kazoo.get_async

    def seen(name: str, send: Callable[[str], Any]) -> Callable[[str], Any]:
        def sent(at: str) -> Any:
            response = send(at)
            requests.append((name, at, response))
            if name == "get":
                assert requests[0][2].ready(), "read before the sync's response"
            return response

        return sent

    monkeypatch.setattr(kazoo, "sync_async", seen("sync", sync))
    monkeypatch.setattr(kazoo, "get_async", seen("get", get))
    assert (await zookeeper.get_latest(path))[0] == b"one"
    assert [(name, at) for name, at, _ in requests] == [("sync", path), ("get", path)]
    await zookeeper.delete_recursively(path)


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_name_that_no_znode_can_have_is_an_error_of_zookeepers(zookeeper: ZooKeeper, name: str) -> None:
    """A client may call a user so; kazoo raises ValueError, which no caller expects."""
    path = f"/{name}/below"
    requests: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: zookeeper.get(path),
        lambda: zookeeper.get_latest(path),
        lambda: zookeeper.exists(path),
        lambda: zookeeper.children(path),
        lambda: zookeeper.create(path, b""),
        lambda: zookeeper.set(path, b""),
        lambda: zookeeper.delete(path),
        lambda: zookeeper.multi([SetNode(path, b"")]),
    )
    for request in requests:
        with pytest.raises(BadPath):
            await request()


async def test_a_write_that_is_too_large_for_the_server_holds_up_no_other_request(zookeeper: ZooKeeper) -> None:
    """The server closes the connection at it; sent again and again it would keep the session from everything else."""
    path = unique("large")
    large = b"x" * (LARGEST_REQUEST_BYTES + 1)
    await zookeeper.create(path, b"")
    writes: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: zookeeper.create(f"{path}/n", large),
        lambda: zookeeper.set(path, large),
        lambda: zookeeper.multi([SetNode(path, large)]),
    )
    for write in writes:
        with pytest.raises(TooLarge, match="maxbuffer"):
            await write()
        assert (await zookeeper.get(path))[0] == b""
    fits = b"x" * (LARGEST_REQUEST_BYTES - 1_000)
    await zookeeper.set(path, fits)
    assert (await zookeeper.get(path))[0] == fits
    await zookeeper.delete(path)


async def test_a_transaction_does_all_or_nothing_and_says_what_failed(zookeeper: ZooKeeper) -> None:
    path = unique("multi")
    made = await zookeeper.multi([CreateNode(path, None, ephemeral=True), SetNode(path, b"x", 0)])
    assert made[0] == path
    stat = await zookeeper.exists(path)
    assert made[1] == stat  # the set returns the stat; its czxid is what a broker takes as its epoch
    assert stat is not None
    assert stat.ephemeral_owner == zookeeper.session_id
    with pytest.raises(MultiFailed) as failed:
        await zookeeper.multi([SetNode(path, b"y"), CheckVersion(path, 7), SetNode(path, b"z")])
    assert failed.value.index == 1
    assert isinstance(failed.value.error, BadVersion)
    assert (await zookeeper.get(path))[0] == b"x"


async def test_the_chroot_is_created_and_never_shows(server: Server, zookeeper: ZooKeeper) -> None:
    chroot = unique("deep") + "/er"
    client = await connect(server, chroot)
    try:
        assert await client.create("/a", b"1") == "/a"
        assert await client.children("/") == ["a"]
        assert (await zookeeper.get(f"{chroot}/a"))[0] == b"1"
        assert (await client.multi([CreateNode("/b", b"2")])) == ["/b"]
    finally:
        await client.close()


async def test_the_granted_session_timeout_is_known(server: Server) -> None:
    client = await connect(server, session_timeout_ms=100)
    try:
        assert client.negotiated_session_timeout_ms == 1000
    finally:
        await client.close()


async def test_an_unreachable_server_is_one_sentence(next_base_port: Callable[[], int]) -> None:
    with pytest.raises(TidegaugeError, match="did not respond within 300 ms"):
        await ZooKeeper.connect(f"127.0.0.1:{next_base_port()}", session_timeout_ms=1000, connection_timeout_ms=300)


async def test_a_thousand_requests_at_once_have_responses(zookeeper: ZooKeeper) -> None:
    path = unique("many")
    await zookeeper.create(path, None)
    async with asyncio.timeout(150):
        made = await asyncio.gather(*(zookeeper.create(f"{path}/{i}", None) for i in range(1000)))
    assert len(set(made)) == 1000
    await zookeeper.delete_recursively(path)


async def test_a_watch_lasts_over_changes(server: Server, zookeeper: ZooKeeper) -> None:
    path = unique("watched")
    looks: list[str] = []
    data = zookeeper.watch_data(path, lambda: looks.append("data"))
    children = zookeeper.watch_children(path, lambda: looks.append("children"))
    await asyncio.gather(data.armed, children.armed)
    looks.clear()
    await zookeeper.create(path, b"")  # the missing node of both comes into being
    await until(lambda: {"data", "children"} <= set(looks))
    for number in range(3):
        await until_quiet(zookeeper)
        looks.clear()
        await zookeeper.set(path, str(number).encode())
        await until(lambda: "data" in looks)
        await zookeeper.create(f"{path}/{number}", b"")
        await until(lambda: "children" in looks)
    data.cancel()
    children.cancel()
    await until_quiet(zookeeper)
    looks.clear()
    await zookeeper.set(path, b"last")
    await until_quiet(zookeeper)
    assert looks == []


async def until_quiet(zookeeper: ZooKeeper) -> None:
    """Some round trips: what ZooKeeper had to say about earlier writes has arrived, since it responds in order."""
    for _ in range(5):
        await zookeeper.exists("/")


async def test_watches_and_requests_survive_a_bounce_of_the_server(
    tmp_path: Path, next_base_port: Callable[[], int]
) -> None:
    """The session survives, kazoo has forgotten its raw watches: a change after the bounce must still be seen."""
    server = Server(tmp_path, next_base_port())
    server.start()
    other: ZooKeeper | None = None
    client = await connect(server, session_timeout_ms=20_000)
    try:
        path = unique("bounced")
        await client.create(path, b"0")
        await client.create(f"{path}/own", b"", ephemeral=True)
        seen: list[bytes] = []
        children: list[list[str]] = []
        tasks: set[asyncio.Task[None]] = set()

        async def look() -> None:
            seen.append((await client.get(path))[0])

        async def look_children() -> None:
            children.append(await client.children(path))

        def start(make: Callable[[], object]) -> None:
            task = asyncio.ensure_future(make())  # type: ignore[arg-type]  # a coroutine in both uses
            tasks.add(task)

        data_watch = client.watch_data(path, lambda: start(look))
        children_watch = client.watch_children(path, lambda: start(look_children))
        await asyncio.gather(data_watch.armed, children_watch.armed)
        states: list[SessionState] = []
        client.on_session(states.append)
        session = client.session_id
        server.kill()
        await until(lambda: SessionState.SUSPENDED in states)
        waiting = asyncio.ensure_future(client.set(path, b"1"))  # made without a server: sent after the reconnect
        server.start()
        await until(lambda: states[-1] is SessionState.CONNECTED)
        assert SessionState.EXPIRED not in states
        assert client.session_id == session
        await waiting
        other = await connect(server)
        await other.set(path, b"2")
        await until(lambda: b"2" in seen)
        await other.create(f"{path}/new", b"")
        await until(lambda: any("new" in names for names in children))
        assert await client.children(path) == ["new", "own"]
        await asyncio.gather(*tasks)
    finally:
        await client.close()
        if other is not None:
            await other.close()
        server.kill()


async def test_an_expired_session_is_notified_before_the_new_one_begins(server: Server) -> None:
    """EXPIRED, then CONNECTED with another session; ephemerals are deleted, watches work again."""
    client = await connect(server)
    observer = await connect(server)
    try:
        path = unique("expiring")
        await client.create(path, b"", ephemeral=True)
        looks: list[None] = []
        watch = client.watch_data(path, lambda: looks.append(None))
        await watch.armed
        states: list[SessionState] = []
        client.on_session(states.append)
        first = client.session_id
        expire_session(client)
        await until(lambda: bool(states) and states[-1] is SessionState.CONNECTED and client.session_id != first)
        assert states[-2:] == [SessionState.EXPIRED, SessionState.CONNECTED]
        await until(watch.armed.done)
        assert await observer.exists(path) is None
        looks.clear()
        await observer.create(path, b"back")
        await until(lambda: bool(looks))
        await client.delete(path)
    finally:
        await client.close()
        await observer.close()


def expire_session(client: ZooKeeper) -> None:
    """End the session behind the client's back: a second connection takes it over and closes it."""
    session_id, password = client._kazoo.client_id
    from kazoo.client import KazooClient  # noqa: PLC0415 - only here

    thief = KazooClient(hosts=client.hosts, client_id=(session_id, password), timeout=4)
    thief.start()
    thief.stop()
    thief.close()
