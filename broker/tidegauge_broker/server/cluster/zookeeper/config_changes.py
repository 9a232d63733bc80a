"""Follows ``/config/changes``: every broker learns of every alteration of settings, in the order they were made.

Rules:
    1. A notification only names an entity; its settings are read again, so a repeated or late notification does no
       harm. After a start all existing notifications are applied, whichever broker wrote them.
    2. Notifications are applied in ascending order, each once; a malformed one is logged and skipped.
    3. With a new session everything is read again: notifications may have been purged meanwhile.
    4. A broker that sees a notification older than 15 minutes deletes it.

Source: ZkNodeChangeNotificationListener, ZkConfigManager.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from tidegauge.znodes import CONFIG_CHANGES, MalformedZnode, change_number, decode_config_change
from tidegauge_controller.zookeeper.client import (
    Closed,
    NoNode,
    SessionExpired,
    SessionState,
    Watch,
    ZooKeeper,
    ZooKeeperError,
)

LOG = logging.getLogger("tidegauge.configs")
EXPIRATION_MS = 15 * 60 * 1000


Changed = TypeVar("Changed")


class ConfigChanges(Generic[Changed]):
    """Calls back for each changed entity, or for what else notifications of this kind are about.

    Args:
        zookeeper: the session.
        apply: takes what changed: an entity's path below /config, like ``topics/T``.
        read_all: reads everything again (rule 3).
        now_ms: wall clock.
        path: where the notifications are.
        decode: reads a notification.
        number_of: returns a notification's number by its name.
    """

    def __init__(
        self,
        zookeeper: ZooKeeper,
        apply: Callable[[Changed], Awaitable[None]],
        read_all: Callable[[], Awaitable[None]],
        now_ms: Callable[[], int],
        path: str = CONFIG_CHANGES,
        decode: Callable[[bytes], Changed] = decode_config_change,  # type: ignore[assignment] # of the default path
        number_of: Callable[[str], int] = change_number,
    ) -> None:
        self.applied = -1
        """The number of the last notification that is in force here."""
        self._path = path
        self._decode = decode
        self._number_of = number_of
        self._zookeeper = zookeeper
        self._apply = apply
        self._read_all = read_all
        self._now_ms = now_ms
        self._made_at_ms: dict[str, int] = {}
        self._missed_something = False
        self._wake = asyncio.Event()
        self._watch: Watch | None = None
        self._task: asyncio.Task[None] | None = None
        zookeeper.on_session(self._on_session)  # reads before ``start`` may belong to an expired session

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="config-changes")
        self._watch = self._zookeeper.watch_children(self._path, self._wake.set)

    async def close(self) -> None:
        """End."""
        if self._watch is not None:
            self._watch.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def _on_session(self, state: SessionState) -> None:
        if state is SessionState.EXPIRED:
            self._missed_something = True

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self.look()
            except (SessionExpired, Closed):
                LOG.info("The ZooKeeper session ended while settings were read; the next one reads them again")
            except ZooKeeperError as problem:
                LOG.warning("Changed settings could not be read: %r", problem)
            except Exception:
                LOG.exception("Changed settings could not be applied; they are looked at again with the next change")

    async def look(self) -> None:
        """Apply new changes, and purge old ones.

        Raises:
            ZooKeeperError: the session ended meanwhile.
        """
        if self._missed_something:
            await self._read_all()
            self._missed_something = False
        names = await self._zookeeper.children(self._path)
        present = frozenset(names)
        self._made_at_ms = {name: at_ms for name, at_ms in self._made_at_ms.items() if name in present}
        for name in sorted(names):
            if name not in self._made_at_ms:
                await self._take(name)
        await self._purge()

    async def _take(self, name: str) -> None:
        try:
            data, stat = await self._zookeeper.get(f"{self._path}/{name}")
        except NoNode:
            return  # purged by another broker
        try:
            number = self._number_of(name)
            await self._apply(self._decode(data))
            self.applied = number
        except MalformedZnode as problem:
            LOG.warning("A notification of changed settings is unreadable and is skipped: %s", problem)
        self._made_at_ms[name] = stat.ctime_ms

    async def _purge(self) -> None:
        now_ms = self._now_ms()
        for name, made_at_ms in list(self._made_at_ms.items()):
            if now_ms - made_at_ms > EXPIRATION_MS:
                try:
                    await self._zookeeper.delete(f"{self._path}/{name}")
                except NoNode:
                    LOG.debug("Another broker has purged %s", name)
                del self._made_at_ms[name]
