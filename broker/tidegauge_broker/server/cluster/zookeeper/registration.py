"""This broker in ZooKeeper: its znode ``/brokers/ids/N``, its broker epoch, and a new session after an expired one.

Rules:
- The broker epoch is the czxid of the znode. As in Kafka (KafkaZkClient.registerBroker), the znode is created with null
  data and set in one transaction, so its version is 1.
- A znode of another session is never deleted: after ``kill -9`` the old one stays until its session expires. Kafka
  gives up then; a broker here waits until it is deleted, and logs that (docs/not-emulated.md). One with another address
  is waited for as long as a session of this broker's previous incarnation may last: its address may have been altered
  since. Then it is another broker's.
- At its start, not at a renewal, a broker refuses to advertise an address that another registered broker advertises
  (KafkaServer.createBrokerInfo): clients of one broker would reach the other.
- Addresses that change while the broker runs are written into the znode that is there, whose epoch stays; those that
  another broker advertises are logged, and the former ones stay registered (KafkaController.updateBrokerInfo).
- An expired session takes the znode with it. The controller candidate resigns at once; once there is a new session
  the broker registers again, with a new broker epoch, and only then stands for controller again (KafkaController's
  RegisterBrokerAndReelect). That holds from the first registration on, while the broker still starts; a session that
  expires before it is over is followed by another attempt (``over_sessions``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.host_addresses import address_of
from tidegauge.znodes import (
    BROKER_IDS,
    CLUSTER_ID,
    PERSISTENT_PATHS,
    BrokerNode,
    MalformedZnode,
    broker_path,
    decode_cluster_id,
    encode_cluster_id,
)
from tidegauge_controller.zookeeper.client import (
    Closed,
    MultiFailed,
    NodeExists,
    NoNode,
    SessionExpired,
    SessionState,
    ZooKeeper,
    ZooKeeperError,
)
from tidegauge_controller.zookeeper.decisions.steps import CreateNode, SetNode

LOG = logging.getLogger("tidegauge.registration")
_EXPIRY_ALLOWANCE = 1.5
"""Multiple of the session timeout within which ZooKeeper has expired a session that is not kept alive."""
RETRY_SECONDS = 1.0
"""Pause between two attempts to register in a new session."""


class Candidate(Protocol):
    """The part of the controller candidate that a session's end concerns."""

    def session_expired(self) -> None:
        """Resign at once."""

    async def session_restored(self) -> None:
        """Stand for election again."""


async def prepare_cluster(zookeeper: ZooKeeper, make_cluster_id: Callable[[], str]) -> str:
    """Create the persistent znodes that are missing; return the cluster's id, which the first broker makes.

    Raises:
        TidegaugeError: INVALID_REQUEST, the znode has no cluster id.
    """
    await _ensure_paths(zookeeper, PERSISTENT_PATHS)
    try:
        data, _ = await zookeeper.get(CLUSTER_ID)
    except NoNode:
        await zookeeper.ensure_path(CLUSTER_ID.rpartition("/")[0])
        try:
            await zookeeper.create(CLUSTER_ID, encode_cluster_id(make_cluster_id()))
        except NodeExists:
            LOG.debug("Another broker was quicker to name the cluster")
        data, _ = await zookeeper.get(CLUSTER_ID)
    try:
        return decode_cluster_id(data)
    except MalformedZnode as problem:
        raise TidegaugeError(
            ErrorCode.INVALID_REQUEST,
            f"The cluster id in ZooKeeper is malformed: {problem}; repair {CLUSTER_ID}, or choose another path in "
            "zookeeper.connect",
        ) from None


async def _ensure_paths(zookeeper: ZooKeeper, paths: Sequence[str]) -> None:
    """Make missing persistent znodes and their parents, with two round trips, not two for each.

    Requests of a session are carried out in their order, so a parent comes before its child. If a connection broke
    in between and that did not hold, the paths are made one after the other.
    """
    stats = await asyncio.gather(*(zookeeper.exists(path) for path in paths))
    missing = [path for path, stat in zip(paths, stats, strict=True) if stat is None]
    ways = [path.split("/") for path in missing]
    nodes = dict.fromkeys("/".join(way[:length]) for way in ways for length in range(2, len(way) + 1))
    made = await asyncio.gather(*(zookeeper.create(node, None) for node in nodes), return_exceptions=True)
    problems = [problem for problem in made if isinstance(problem, BaseException)]
    for problem in problems:
        if not isinstance(problem, NodeExists | NoNode):
            raise problem
    if any(isinstance(problem, NoNode) for problem in problems):
        for path in missing:
            await zookeeper.ensure_path(path)


class Registration:
    """Keeps the broker's znode.

    Args:
        zookeeper: the session.
        node: what the znode says.
        registered: called with each new broker epoch.
        session_changed: called with each change of the session.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        node: BrokerNode,
        registered: Callable[[int], None],
        session_changed: Callable[[SessionState], None],
    ) -> None:
        self._zookeeper = zookeeper
        self._node = node
        self._registered = registered
        self._session_changed = session_changed
        self._candidate: Candidate | None = None
        self._was_registered = False
        self._is_registered = asyncio.Event()
        self._expiries = 0
        self._must_renew = False
        self._renewal: asyncio.Task[None] | None = None
        zookeeper.on_session(self._on_session)

    def keep(self, candidate: Candidate) -> None:
        """Notify a candidate of expired sessions, and of the next registration."""
        self._candidate = candidate

    async def until_registered(self) -> None:
        """Wait until the znode is there: its session may have expired since ``register``."""
        await self._is_registered.wait()

    def _on_session(self, state: SessionState) -> None:
        self._session_changed(state)
        if state is SessionState.EXPIRED:
            self._expiries += 1
            self._is_registered.clear()
            if not self._was_registered:
                return  # ``register`` is repeated
            LOG.warning("The ZooKeeper session has expired: broker %d is out of the cluster", self._node.broker_id)
            self._must_renew = True
            if self._candidate is not None:
                self._candidate.session_expired()
        elif state is SessionState.CONNECTED and self._must_renew:
            self._must_renew = False
            if self._renewal is not None:
                self._renewal.cancel()
            self._renewal = asyncio.get_running_loop().create_task(self._renew(), name="registration")

    async def _renew(self) -> None:
        """Register in a new session, and again until it succeeds: a broker without a znode is out of the cluster."""
        logged = ""
        while True:
            try:
                await self.register()
                if self._candidate is not None:
                    await self._candidate.session_restored()
            except (SessionExpired, Closed):
                LOG.info("The session ended during the registration; the next one will repeat it")
            except Exception as problem:
                text = problem.message if isinstance(problem, TidegaugeError) else repr(problem)
                if text != logged:
                    logged = text
                    is_known = isinstance(problem, TidegaugeError | ZooKeeperError)
                    LOG.error(  # noqa: TRY400 - a known problem says it all
                        "Broker %d is out of the cluster and tries to register again: %s",
                        self._node.broker_id,
                        text,
                        exc_info=None if is_known else problem,
                    )
                await asyncio.sleep(RETRY_SECONDS)
                continue
            return

    async def register(self) -> None:
        """Create the znode, once the znode of an older session is deleted.

        Raises:
            TidegaugeError: INVALID_REQUEST, another broker with this id and another address is alive, or the znode in
                its place cannot be read, or another broker advertises an address of this one.
            SessionExpired: the session ended meanwhile, and the znode with it.
        """
        expiries = self._expiries
        if not self._was_registered:
            await self._refuse_taken_addresses(self._node)
        path = broker_path(self._node.broker_id)
        while True:
            try:
                await self._zookeeper.multi(
                    [CreateNode(path, None, ephemeral=True), SetNode(path, self._node.encode(), 0)]
                )
            except MultiFailed as failure:
                if not isinstance(failure.error, NodeExists):
                    raise
                if await self._is_ours(path):
                    break
                await self._wait_until_deleted(path)
                continue
            break
        stat = await self._zookeeper.exists(path)
        if stat is None or expiries != self._expiries:
            raise SessionExpired(f"{path} was deleted right after its creation")
        LOG.info("Registered broker %d at path %s with broker epoch %d", self._node.broker_id, path, stat.czxid)
        self._was_registered = True
        self._is_registered.set()
        self._registered(stat.czxid)

    async def advertise(self, node: BrokerNode) -> None:
        """Register these addresses in place of those that the znode has; return when they are written.

        A session that has expired has no znode: the renewal writes them.
        """
        if (node.listeners, node.host, node.port) == (self._node.listeners, self._node.host, self._node.port):
            return
        try:
            await self._refuse_taken_addresses(node)
        except TidegaugeError as problem:
            LOG.error("%s; the former addresses stay registered", problem.message)  # noqa: TRY400 - it says it all
            return
        self._node = node
        path = broker_path(node.broker_id)
        try:
            if await self._is_ours(path):
                await self._zookeeper.set(path, node.encode())
                LOG.info("Updated broker %d at path %s with addresses: %s", node.broker_id, path, _shown(node))
        except NoNode:
            LOG.info("%s is registered again with the next session", path)

    async def _refuse_taken_addresses(self, node: BrokerNode) -> None:
        ours = {listener.address for listener in node.listeners}
        for child in await self._zookeeper.children(BROKER_IDS):
            if not child.isdecimal() or int(child) == self._node.broker_id:
                continue
            try:
                data, _ = await self._zookeeper.get(broker_path(int(child)))
                other = BrokerNode.decode(int(child), data)
            except (NoNode, MalformedZnode):
                continue  # it has just been deleted, or holds no address
            if taken := sorted(ours & {listener.address for listener in other.listeners}):
                raise TidegaugeError(
                    ErrorCode.INVALID_REQUEST,
                    f"Configured end points {','.join(taken)} in advertised listeners are already registered by broker "
                    f"{other.broker_id}; give each broker a host or port of its own in advertised.listeners",
                )

    async def _is_ours(self, path: str) -> bool:
        """Whether this session made the znode: a create that was sent twice meets its own first success."""
        stat = await self._zookeeper.exists(path)
        return stat is not None and stat.ephemeral_owner == self._zookeeper.session_id

    async def _wait_until_deleted(self, path: str) -> None:
        try:
            data, stat = await self._zookeeper.get(path)
        except NoNode:
            return
        other = self._other(data)
        is_same = (other.host, other.port) == (self._node.host, self._node.port)
        limit_seconds = None if is_same else _EXPIRY_ALLOWANCE * self._zookeeper.negotiated_session_timeout_ms / 1000
        LOG.warning(
            "The znode %s still belongs to session 0x%x of this broker's previous incarnation; waiting for its expiry",
            path,
            stat.ephemeral_owner,
        )
        deleted = asyncio.Event()

        async def look() -> None:
            now = await self._zookeeper.exists(path)
            if now is None or now.ephemeral_owner != stat.ephemeral_owner:
                deleted.set()

        looks: set[asyncio.Task[None]] = set()

        def look_again() -> None:
            task = asyncio.get_running_loop().create_task(look())
            looks.add(task)
            task.add_done_callback(looks.discard)

        watch = self._zookeeper.watch_data(path, look_again)
        try:
            async with asyncio.timeout(limit_seconds):
                await deleted.wait()
        except TimeoutError:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"Broker id {self._node.broker_id} is taken: a broker at {address_of(other.host, other.port)} is "
                "registered under it; every broker needs a broker.id of its own",
            ) from None
        finally:
            watch.cancel()

    def _other(self, data: bytes) -> BrokerNode:
        """Return the broker that holds this id; raise if it is unreadable.

        Its znode is not waited for then: it may be another broker's.
        """
        try:
            return BrokerNode.decode(self._node.broker_id, data)
        except MalformedZnode as problem:
            raise TidegaugeError(
                ErrorCode.INVALID_REQUEST,
                f"Broker id {self._node.broker_id} is taken by a registration that cannot be read: {problem}; "
                "remove it",
            ) from None

    async def close(self) -> None:
        """Stop renewing the registration."""
        self._candidate = None
        if self._renewal is not None:
            self._renewal.cancel()
            await asyncio.wait([self._renewal])


def _shown(node: BrokerNode) -> str:
    return ", ".join(map(str, node.listeners))
