"""ZooKeeper for asyncio: kazoo's threads on one side, one event loop on the other.

Rules, each held by a test:
- kazoo's threads do nothing but ``loop.call_soon_threadsafe``. One exception, as in Kafka's ZooKeeperClient: when the
  session has expired, kazoo's connection thread waits until the loop has been notified, so that nothing of the old
  session can slip into the new one.
- A request that meets a connection loss is sent again after the reconnect, forever; every other response, an expired
  session included, goes to the caller (KafkaZkClient.retryRequestsUntilConnected). A create sent twice may meet its own
  first success. A write above ``LARGEST_REQUEST_BYTES`` is sent once: a server that takes no more closes the
  connection, and would close each one after it, so that nothing else of the session got through (Kafka sends it again).
- At most ``in_flight`` requests are with kazoo at a time (``zookeeper.max.in.flight.requests``); kazoo wakes its thread
  through a socket pair whose sends block when some hundreds are pending.
- kazoo forgets raw watches at each disconnect even if the session survives. ``Watch`` arms itself again after each
  firing and after each reconnect and calls its callback only once it is armed: no change is missed.
- An expired session gives EXPIRED, then, with the new session, CONNECTED. While ZooKeeper is unavailable there is only
  SUSPENDED: whether the session survived is known only after the reconnect.

A chroot is handled here (paths outside never show it), because kazoo can't create one of several levels.
Source: kafka.zookeeper.ZooKeeperClient, kazoo.client.KazooClient.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import threading
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any, assert_never

from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import Create
from kazoo.protocol.states import EventType, KazooState
from kazoo.retry import KazooRetry
from kazoo.security import OPEN_ACL_UNSAFE

from tidegauge.cluster_metadata import MembershipEnded, MetadataUnavailable
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge_controller.zookeeper.decisions.steps import (
    CheckVersion,
    CreateNode,
    DeleteNode,
    Operation,
    SetNode,
    ZnodeStat,
)

LOG = logging.getLogger(__name__)
_EXPIRY_HANDSHAKE_SECONDS = 10.0
LARGEST_REQUEST_BYTES = 0xFFFFF
"""The largest request of a server by default (``jute.maxbuffer``)."""


_SESSION_ENDED = "The broker's ZooKeeper session ended before the response; retry"


class SessionState(Enum):
    """The known state of the session."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "lost"


class ZooKeeperError(MetadataUnavailable):
    """A response of ZooKeeper other than success."""


class NoNode(ZooKeeperError):
    """The znode (or the parent of one to create) does not exist."""


class NodeExists(ZooKeeperError):
    """The znode exists."""


class BadPath(ZooKeeperError):
    """A path that is none, such as one with a name of ``..``; ZooKeeper was not asked."""


class BadVersion(ZooKeeperError):
    """The znode has another version than expected."""


class NotEmpty(ZooKeeperError):
    """The znode has children."""


class SessionExpired(ZooKeeperError, MembershipEnded):
    """The session ended before the response came."""

    sentence = _SESSION_ENDED


class TooLarge(ZooKeeperError):
    """ZooKeeper closed the connection at a write of more than ``LARGEST_REQUEST_BYTES``."""


class Closed(ZooKeeperError, MembershipEnded):
    """The client has been closed."""

    sentence = _SESSION_ENDED


class MultiFailed(ZooKeeperError):
    """One operation of a transaction failed, so none took effect.

    Attributes:
        index: the position of the operation.
        error: why.
    """

    def __init__(self, index: int, error: ZooKeeperError) -> None:
        super().__init__(f"operation {index}: {error!r}")
        self.index = index
        self.error = error


_ERRORS: tuple[tuple[type[Exception], type[ZooKeeperError]], ...] = (
    (NoNodeError, NoNode),
    (NodeExistsError, NodeExists),
    (BadVersionError, BadVersion),
    (NotEmptyError, NotEmpty),
    (SessionExpiredError, SessionExpired),
    (ConnectionClosedError, Closed),
    (ValueError, BadPath),
)


def _translate(problem: BaseException) -> ZooKeeperError:
    for theirs, ours in _ERRORS:
        if isinstance(problem, theirs):
            return ours(str(problem))
    return ZooKeeperError(f"{type(problem).__name__}: {problem}")


def _stat(stat: Any) -> ZnodeStat:
    return ZnodeStat(stat.czxid, stat.mzxid, stat.version, stat.ephemeralOwner, stat.ctime)


def _size_bytes(path: str, data: bytes | None) -> int:
    """Return a write's variable size: the rest has some tens of bytes."""
    return len(path) + len(data or b"")


def split_chroot(connect: str) -> tuple[str, str]:
    """Split ``host:port,.../chroot`` into hosts and chroot; the chroot is empty or begins with a slash."""
    hosts, _, chroot = connect.partition("/")
    chroot = chroot.strip("/")
    return hosts, f"/{chroot}" if chroot else ""


Dial = Callable[[Callable[[], socket.socket]], socket.socket]
"""Opens a connection by calling its argument, and returns the socket that kazoo is to use."""


class _DialingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads and sockets, with connections opened through ``Dial``."""

    def __init__(self, dial: Dial) -> None:
        super().__init__()
        self._dial = dial

    def create_connection(self, *arguments: Any, **named: Any) -> Any:
        """Open a connection; called on kazoo's connection thread."""
        return self._dial(partial(super().create_connection, *arguments, **named))


class Watch:
    """A lasting watch: calls its callback whenever something may have changed.

    The callback runs on the loop, without arguments, once after the first arming (``armed`` is done then), after each
    change and after each reconnect. Several changes may cause one call.
    """

    def __init__(self, zookeeper: ZooKeeper, path: str, callback: Callable[[], None], *, children: bool) -> None:
        self.path = path
        self.armed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._zookeeper = zookeeper
        self._callback = callback
        self._children = children
        self._generation = 0
        self._cancelled = False
        self._task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """End the watch."""
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
        if not self.armed.done():
            self.armed.set_exception(Closed(f"The watch of {self.path} was cancelled"))
            self.armed.exception()  # possibly no task waits for it
        self._zookeeper.forget(self)

    def arm(self) -> None:
        """Set the watch in ZooKeeper again; an older arming no longer counts."""
        if self._cancelled:
            return
        self._generation += 1
        if self._task is not None:
            self._task.cancel()
        self._task = asyncio.get_running_loop().create_task(self._arm(self._generation))

    async def _arm(self, generation: int) -> None:
        fired = partial(self._zookeeper.from_kazoo, self._fired, generation)
        try:
            await self._zookeeper.arm(self.path, fired, children=self._children)
        except (SessionExpired, Closed):
            return  # armed again with the next session
        except ZooKeeperError:
            LOG.exception("Could not watch %s", self.path)
            return
        if self._cancelled or generation != self._generation:
            return
        if not self.armed.done():
            self.armed.set_result(None)
        self._callback()

    def _fired(self, generation: int, event: Any) -> None:
        # kazoo reports NONE when it forgets a watch at a disconnect: the reconnect arms it again.
        if generation == self._generation and event.type != EventType.NONE:
            self.arm()


class ZooKeeper:
    """One session with ZooKeeper, kept as long as the broker runs and renewed when it expires. Use ``connect``."""

    def __init__(self, connect: str, *, session_timeout_ms: int, in_flight: int, dial: Dial | None = None) -> None:
        hosts, self._chroot = split_chroot(connect)
        self.hosts = hosts
        self.negotiated_session_timeout_ms = session_timeout_ms
        self.session_id = 0
        self.state = SessionState.SUSPENDED
        self._loop = asyncio.get_running_loop()
        self._connected = asyncio.Event()
        self._slots = asyncio.Semaphore(in_flight)
        self._listeners: list[Callable[[SessionState], None]] = []
        self._watches: dict[Watch, None] = {}
        self._in_flight: set[asyncio.Future[Any]] = set()
        self._closing = False
        self._expiries = 0
        self._kazoo = KazooClient(
            hosts=hosts,
            timeout=session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=0.3),
            handler=None if dial is None else _DialingHandler(dial),
        )
        self._kazoo.add_listener(self._on_kazoo_state)
        self._learn_negotiated_timeout()

    @classmethod
    async def connect(
        cls,
        hosts: str,
        *,
        session_timeout_ms: int,
        connection_timeout_ms: int,
        in_flight: int = 10,
        dial: Dial | None = None,
    ) -> ZooKeeper:
        """Open a session, and create the chroot if the address has one.

        ``dial`` may replace how kazoo opens each connection; it is called on kazoo's thread.

        Raises:
            TidegaugeError: NETWORK_EXCEPTION, ZooKeeper did not respond in time.
        """
        zookeeper = cls(hosts, session_timeout_ms=session_timeout_ms, in_flight=in_flight, dial=dial)
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                zookeeper._kazoo.start_async()
                await zookeeper._connected.wait()
                await zookeeper._create_chroot()
        except TimeoutError:
            await zookeeper.close()
            raise TidegaugeError(
                ErrorCode.NETWORK_EXCEPTION,
                f"ZooKeeper at {hosts} did not respond within {connection_timeout_ms} ms; start it, or give its "
                "address in zookeeper.connect",
            ) from None
        except BaseException:
            await zookeeper.close()
            raise
        return zookeeper

    async def close(self) -> None:
        """End the session: its ephemeral znodes are deleted at once. Idempotent."""
        if self._closing:
            return
        self._closing = True
        for watch in list(self._watches):
            watch.cancel()
        await asyncio.to_thread(self._stop)
        self._fail_in_flight(Closed("The ZooKeeper client has been closed"))
        self._connected.set()  # every caller that waits for a connection learns from kazoo that there will be none

    def _stop(self) -> None:
        with contextlib.suppress(Exception):
            self._kazoo.stop()
            self._kazoo.close()

    # Session

    @property
    def credentials(self) -> tuple[int, bytes]:
        """Return the session's id and password, by which clients can end it."""
        session_id, password = self._kazoo.client_id or (0, b"")
        return session_id or 0, password

    def on_session(self, listener: Callable[[SessionState], None]) -> None:
        """Call the listener, on the loop, at each change of the session's state."""
        self._listeners.append(listener)

    def _learn_negotiated_timeout(self) -> None:
        # kazoo keeps the timeout that the server granted to itself: read it where the response to connect comes in.
        connection = self._kazoo._connection  # noqa: SLF001 - no public way
        invoke = connection._invoke  # noqa: SLF001 - the same

        def invoke_and_learn(*arguments: Any, **named: Any) -> Any:
            response = invoke(*arguments, **named)
            granted = getattr(response[0], "time_out", 0) if isinstance(response, tuple) else 0
            if granted > 0:
                self.negotiated_session_timeout_ms = int(granted)
            return response

        connection._invoke = invoke_and_learn  # noqa: SLF001 - the same

    def _on_kazoo_state(self, state: Any) -> None:
        """Handle kazoo's state on its connection thread."""
        if self._closing:
            return
        if state == KazooState.LOST:
            heard = threading.Event()
            if self._post(self._on_state, SessionState.EXPIRED, heard):
                heard.wait(_EXPIRY_HANDSHAKE_SECONDS)
        elif state == KazooState.SUSPENDED:
            self._post(self._on_state, SessionState.SUSPENDED, None)
        else:
            self._post(self._on_state, SessionState.CONNECTED, None)

    def _post(self, call: Callable[..., None], *arguments: Any) -> bool:
        try:
            self._loop.call_soon_threadsafe(call, *arguments)
        except RuntimeError:
            return False  # the loop has ended
        return True

    def from_kazoo(self, call: Callable[..., None], *arguments: Any) -> None:
        """Bring a call from one of kazoo's threads to the loop."""
        self._post(call, *arguments)

    def _on_state(self, state: SessionState, heard: threading.Event | None) -> None:
        try:
            self._change_state(state)
        finally:
            if heard is not None:
                heard.set()

    def _change_state(self, state: SessionState) -> None:
        if self._closing:
            return
        self.state = state
        if state is SessionState.CONNECTED:
            client_id = self._kazoo.client_id
            self.session_id = client_id[0] if client_id else 0
            self._connected.set()
        else:
            self._connected.clear()
        if state is SessionState.EXPIRED:
            self._expiries += 1
            self._fail_in_flight(SessionExpired("The ZooKeeper session has expired"))
        for listener in list(self._listeners):
            try:
                listener(state)
            except Exception:
                LOG.exception("A listener of the ZooKeeper session failed")
        if state is SessionState.CONNECTED:
            for watch in list(self._watches):
                watch.arm()

    def _fail_in_flight(self, problem: ZooKeeperError) -> None:
        for future in list(self._in_flight):
            if not future.done():
                future.set_exception(problem)

    # Requests

    async def _request(self, start: Callable[[], Any], size_bytes: int = 0) -> Any:
        """Send a request until its response is other than connection loss; a large write once."""
        expiries = self._expiries
        async with self._slots:
            while True:
                await self._connected.wait()
                if self._closing:
                    raise Closed("The ZooKeeper client has been closed")
                if expiries != self._expiries:
                    raise SessionExpired("The ZooKeeper session expired while the request waited for a connection")
                future: asyncio.Future[Any] = self._loop.create_future()
                self._in_flight.add(future)
                try:
                    self._started(start).rawlink(partial(self._responded, future))
                    return await future
                except ConnectionLoss:
                    if size_bytes > LARGEST_REQUEST_BYTES:
                        raise TooLarge(
                            f"the connection was lost at a write of {size_bytes} bytes; ZooKeeper's jute.maxbuffer is "
                            f"{LARGEST_REQUEST_BYTES} by default"
                        ) from None
                    await asyncio.sleep(0)  # let the notification of the lost connection arrive before looking at it
                finally:
                    self._in_flight.discard(future)

    @staticmethod
    def _started(start: Callable[[], Any]) -> Any:
        """Hand a request to kazoo, which normalizes its paths."""
        try:
            return start()
        except ValueError as problem:
            raise BadPath(str(problem)) from None

    def _responded(self, future: asyncio.Future[Any], result: Any) -> None:
        """Handle a response on kazoo's completion thread."""
        self._post(self._settle, future, result)

    @staticmethod
    def _settle(future: asyncio.Future[Any], result: Any) -> None:
        if future.done():
            return
        problem = result.exception
        if problem is None:
            future.set_result(result.value)
        elif isinstance(problem, ConnectionLoss):
            future.set_exception(problem)
        else:
            future.set_exception(_translate(problem))

    def _real(self, path: str) -> str:
        return (self._chroot + path).rstrip("/") or "/"

    def _shown(self, path: str) -> str:
        return path.removeprefix(self._chroot) or "/"

    async def get(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Return a znode's data (null reads as empty) and stat; raises NoNode."""
        data, stat = await self._request(lambda: self._kazoo.get_async(self._real(path)))
        return data or b"", _stat(stat)

    async def get_latest(self, path: str) -> tuple[bytes, ZnodeStat]:
        """Do the same as ``get``, when the server has caught up with the leader of its ensemble."""
        await self._request(lambda: self._kazoo.sync_async(self._real(path)))
        return await self.get(path)

    async def exists(self, path: str) -> ZnodeStat | None:
        """Return a znode's stat, or None."""
        stat = await self._request(lambda: self._kazoo.exists_async(self._real(path)))
        return None if stat is None else _stat(stat)

    async def children(self, path: str) -> list[str]:
        """Return the names of a znode's children, sorted; raises NoNode."""
        names = await self._request(lambda: self._kazoo.get_children_async(self._real(path)))
        return sorted(names)

    async def create(self, path: str, data: bytes | None, *, ephemeral: bool = False, sequence: bool = False) -> str:
        """Create a znode and return its path; raises NodeExists, NoNode (no parent)."""
        value: Any = data  # kazoo's type hints do not allow a znode without data
        made = await self._request(
            lambda: self._kazoo.create_async(self._real(path), value, None, ephemeral, sequence),
            _size_bytes(path, data),
        )
        return self._shown(str(made))

    async def set(self, path: str, data: bytes, version: int = -1) -> ZnodeStat:
        """Set a znode's data; raises NoNode, BadVersion."""
        written = await self._request(
            lambda: self._kazoo.set_async(self._real(path), data, version), _size_bytes(path, data)
        )
        return _stat(written)

    async def delete(self, path: str, version: int = -1) -> None:
        """Delete a znode; raises NoNode, BadVersion, NotEmpty."""
        await self._request(lambda: self._kazoo.delete_async(self._real(path), version))

    async def ensure_path(self, path: str) -> None:
        """Create a persistent znode and its parents if they are missing, with null data as Kafka does."""
        parts = [part for part in path.split("/") if part]
        if await self.exists(path) is not None:
            return
        for length in range(1, len(parts) + 1):
            with contextlib.suppress(NodeExists):
                await self.create("/" + "/".join(parts[:length]), None)

    async def delete_recursively(self, path: str) -> None:
        """Delete a znode and its descendants; a missing one is no error."""
        try:
            for child in await self.children(path):
                await self.delete_recursively(f"{path}/{child}")
            await self.delete(path)
        except NoNode:
            return

    async def multi(self, operations: Sequence[Operation]) -> list[str | ZnodeStat | None]:
        """Run a transaction. The result of a create is its path, of a set the new stat, of the others None.

        Raises:
            MultiFailed: an operation failed, and which.
        """

        def start() -> Any:
            transaction = self._kazoo.transaction()
            for operation in operations:
                self._add(transaction, operation)
            return transaction.commit_async()

        size_bytes = sum(_size_bytes(one.path, getattr(one, "data", None)) for one in operations)
        responses = await self._request(start, size_bytes)
        for index, response in enumerate(responses):
            # Operations before the failed one are rolled back, those after it were not tried.
            if isinstance(response, Exception) and not isinstance(response, RolledBackError | RuntimeInconsistency):
                raise MultiFailed(index, _translate(response))
        return [self._multi_response(response) for response in responses]

    def _multi_response(self, response: Any) -> str | ZnodeStat | None:
        if isinstance(response, str):
            return self._shown(response)
        return _stat(response) if hasattr(response, "czxid") else None

    def _add(self, transaction: Any, operation: Operation) -> None:
        path = self._real(operation.path)
        match operation:
            case CheckVersion():
                transaction.check(path, operation.version)
            case CreateNode():
                flags = (1 if operation.ephemeral else 0) | (2 if operation.sequence else 0)
                # kazoo's own method rejects null data, which Kafka writes.
                transaction.operations.append(Create(path, operation.data, OPEN_ACL_UNSAFE, flags))
            case SetNode():
                transaction.set_data(path, operation.data, operation.version)
            case DeleteNode():
                transaction.delete(path, operation.version)
            case _:
                assert_never(operation)

    async def _create_chroot(self) -> None:
        chroot, self._chroot = self._chroot, ""
        try:
            while chroot:
                with contextlib.suppress(SessionExpired):  # the next session goes on with it
                    await self.ensure_path(chroot)
                    break
        finally:
            self._chroot = chroot

    # Watches

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back when the znode is created, changed or deleted."""
        return self._watch(Watch(self, path, callback, children=False))

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Call back when the znode's set of children changes, or the znode is created or deleted."""
        return self._watch(Watch(self, path, callback, children=True))

    def _watch(self, watch: Watch) -> Watch:
        self._watches[watch] = None
        if self.state is SessionState.CONNECTED:
            watch.arm()
        return watch

    def forget(self, watch: Watch) -> None:
        """Remove a watch; called by ``Watch.cancel``."""
        self._watches.pop(watch, None)

    async def arm(self, path: str, fired: Callable[[Any], None], *, children: bool) -> None:
        """Set one raw watch; a watch of children on a missing znode waits for its creation."""
        real = self._real(path)
        while True:
            if children:
                with contextlib.suppress(NoNode):
                    await self._request(lambda: self._kazoo.get_children_async(real, watch=fired))
                    return
            stat = await self._request(lambda: self._kazoo.exists_async(real, watch=fired))
            if stat is None or not children:
                return
            # It was created between the two requests: a data watch alone would not see its children.
