"""A controller whole in one test's event loop: node, disk, queue and handlers; the only voter of its quorum.

Requests go through the codec and the handlers, as a connection's do. Flushes of the log wait while a test holds
them, and then nothing is committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.waiting import until_async

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.kafka.frames import codec_of
from tidegauge.kafka.kraft import apis
from tidegauge.kafka.kraft.apis import KRAFT_PROTOCOL
from tidegauge.kafka.kraft.messages import broker_heartbeat, broker_registration, create_topics
from tidegauge.principal import ANONYMOUS, Principal
from tidegauge_broker.log.files import DISK, Disk
from tidegauge_broker.metadata_log.formatting import Formatting
from tidegauge_broker.server.clock import Clock
from tidegauge_broker.server.quorum.calls import Call, Served
from tidegauge_broker.server.quorum.controller.bootstrap import read_bootstrap
from tidegauge_broker.server.quorum.controller.controller_parts import ControllerParts
from tidegauge_broker.server.quorum.controller_process import quorum_config
from tidegauge_broker.server.quorum.driver import QuorumDriver
from tidegauge_broker.server.quorum.metadata_store import MetadataStore
from tidegauge_broker.server.quorum.node_settings import read_node_settings
from tidegauge_broker.server.quorum.served_apis import served_apis
from tidegauge_controller.raft import effects
from tidegauge_controller.raft.messages import Response
from tidegauge_controller.raft.node import RaftNode
from tidegauge_controller.raft.values import Endpoint, ReplicaKey, Voter, VoterSet

NODE_ID = 3000
CLUSTER = "pQKNjKG6SIW1R46E3fVjJA"
KEY = ReplicaKey(NODE_ID, bytes([7]) * 16)
VOTERS = VoterSet.of([Voter(KEY, (Endpoint("CONTROLLER", "localhost", 9000),))])
SETTINGS = {
    "process.roles": "controller",
    "node.id": str(NODE_ID),
    "controller.listener.names": "CONTROLLER",
    "listeners": "CONTROLLER://localhost:9000",
    "controller.quorum.bootstrap.servers": "localhost:9000",
    "controller.quorum.election.timeout.ms": "20",
    "controller.quorum.append.linger.ms": "0",
    "metadata.max.idle.interval.ms": "0",
    "auto.leader.rebalance.enable": "false",
}
_FEATURES = {
    "metadata.version": (25, 30),
    "kraft.version": (0, 1),
    "eligible.leader.replicas.version": (0, 1),
    "group.version": (0, 1),
    "share.version": (0, 1),
    "streams.version": (0, 1),
    "transaction.version": (0, 2),
}


class HeldStore(MetadataStore):
    """A disk whose flushes wait until the test lets them pass."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.passes = threading.Event()
        self.passes.set()

    def flush(self) -> None:
        self.passes.wait()
        super().flush()


class OneController:
    """A controller in one test's event loop, the only voter of its quorum.

    Args:
        directory: of its files; formatted if it is empty.
        has_static_voters: whether its voter is in its settings, under kraft.version 0.
        disk: of its metadata log.
        settings: beside ``SETTINGS``.
    """

    def __init__(self, directory: Path, *, has_static_voters: bool = False, disk: Disk = DISK, **settings: str) -> None:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        if has_static_voters:
            dotted["controller.quorum.voters"] = f"{NODE_ID}@localhost:9000"
        self.settings = read_node_settings(SETTINGS | {"log.dirs": str(directory)} | dotted, "localhost")
        voters = None if has_static_voters else VOTERS
        asked = Formatting(CLUSTER, NODE_ID, str(directory), initial_voters=voters)
        if not (directory / "meta.properties").exists():
            for name, data in asked.files_of(str(directory), KEY.directory_id or b"", asked.levels(), 1).items():
                (directory / name).parent.mkdir(exist_ok=True)
                (directory / name).write_bytes(data)
        self._clock = Clock()
        self.store = HeldStore(directory, self.settings.values, self._clock, disk)
        opened = self.store.open(self.settings.static_voters)
        self.node = RaftNode(
            quorum_config(self.settings, CLUSTER, KEY.directory_id or b""),
            opened.log,
            opened.history,
            opened.election,
        )
        bootstrap = read_bootstrap(directory)
        self.parts = ControllerParts(self.node, self.store, self.settings, CLUSTER, bootstrap, self._clock)
        self.controller = self.parts.controller
        self._pool = ThreadPoolExecutor(1)
        observers = (self.parts.committed, self.controller)
        clock = self._clock
        self.driver = QuorumDriver(self.node, self.store, no_peer, observers, clock, clock.wall_ms, self._pool)
        self.parts.start(self.driver, no_channel, clock.wall_ms)
        self.handlers: dict[int, Served] = served_apis(self.driver, self.controller, self.settings)

    async def begin(self) -> None:
        """Begin, and wait until the first records are committed."""
        self.driver.start()
        await until(lambda: self.controller.active is not None and not self.controller.image.is_empty)

    async def end(self) -> None:
        """End it, without a word to anyone."""
        self.store.passes.set()
        await self.parts.close()
        await self.driver.stop()
        self._pool.shutdown()
        self.store.close()

    def ask(
        self, key: int, message: Any, version: int | None = None, principal: Principal = ANONYMOUS
    ) -> asyncio.Future[Any]:
        """Send a request; the future gets its response, both through the codec."""
        at = KRAFT_PROTOCOL.apis[key].last if version is None else version
        codec = codec_of(key, at, KRAFT_PROTOCOL)
        response: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        request, _ = codec.decode_request(memoryview(b"".join(codec.encode(message))), 0)
        served = self.handlers[key]

        def respond(found: Any) -> None:
            decoded, _ = codec.decode_response(memoryview(b"".join(codec.encode(found))), 0)
            response.set_result(decoded)

        def refuse(error: ErrorCode, text: str) -> None:
            respond(served.refusal(at, request, error, text))

        served.handle(Call(key, at, request, respond, refuse, principal, "127.0.0.1"))
        return response

    async def register(self, broker_id: int, incarnation: int = 1) -> int:
        """Register a broker and let it be unfenced; return its epoch."""
        registered = await self.ask(apis.BROKER_REGISTRATION, registration(broker_id, incarnation))
        assert registered.error_code == 0
        epoch: int = registered.broker_epoch
        beaten = await self.heartbeat(broker_id, epoch)
        assert not beaten.is_fenced
        return epoch

    def heartbeat(self, broker_id: int, epoch: int, **fields: Any) -> asyncio.Future[Any]:
        """Send a heartbeat of a broker that knows all records."""
        message = broker_heartbeat.BrokerHeartbeatRequest(broker_id, epoch, self.node.log.end_offset, **fields)
        return self.ask(apis.BROKER_HEARTBEAT, message)

    def create(self, *names: str, partitions: int = 1, factor: int = 1) -> asyncio.Future[Any]:
        """Create topics."""
        topics = [create_topics.CreatableTopic(name, partitions, factor) for name in names]
        return self.ask(apis.CREATE_TOPICS, create_topics.CreateTopicsRequest(topics=topics))


def registration(broker_id: int, incarnation: int = 1) -> broker_registration.BrokerRegistrationRequest:
    """A broker's registration."""
    return broker_registration.BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id=CLUSTER,
        incarnation_id=bytes([incarnation]) * 16,
        listeners=[broker_registration.Listener("PLAINTEXT", "localhost", 9092 + broker_id, 0)],
        features=[broker_registration.Feature(name, *levels) for name, levels in _FEATURES.items()],
        rack=None,
        log_dirs=[bytes([broker_id + 100]) * 16],
    )


async def no_peer(_: effects.Send) -> Response:
    raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "there is no other node")


def no_channel(_: str) -> Any:
    raise TidegaugeError(ErrorCode.NETWORK_EXCEPTION, "there is no other node")


async def until(condition: Callable[[], object]) -> None:
    """Wait for a state."""

    async def look() -> bool:
        return bool(condition())

    await until_async(look)


@contextlib.asynccontextmanager
async def controller_at(
    directory: Path, *, has_static_voters: bool = False, disk: Disk = DISK, **settings: str
) -> AsyncIterator[OneController]:
    """A controller that is active, ended behind the block."""
    one = OneController(directory, has_static_voters=has_static_voters, disk=disk, **settings)
    try:
        await one.begin()
        yield one
    finally:
        await one.end()
