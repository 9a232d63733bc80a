"""Stores in ZooKeeper for all brokers of a cluster, and the notifications of their changes.

Source: ZkConfigManager, ``DynamicConfigManager.ConfigChangedNotificationHandler``.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection

from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.settings import Values
from tidegauge.znodes import CONFIG
from tidegauge_broker.server.acls.access_control import authorizer_of
from tidegauge_broker.server.cluster.ports import Change, SettingsListener
from tidegauge_broker.server.cluster.zookeeper.acl_changes import acl_changes
from tidegauge_broker.server.cluster.zookeeper.acl_store import AclStore
from tidegauge_broker.server.cluster.zookeeper.client_quotas import ClientQuotas, entity_at
from tidegauge_broker.server.cluster.zookeeper.config_changes import ConfigChanges
from tidegauge_broker.server.cluster.zookeeper.scram_users import ScramUsers
from tidegauge_broker.server.configs.topic_configs import TopicConfigs
from tidegauge_controller.zookeeper.client import NodeExists, NoNode, ZooKeeper, ZooKeeperError
from tidegauge_controller.zookeeper.config_admin import ConfigAdmin

LOG = logging.getLogger("tidegauge.configs")
_TOPICS = "/config/topics"


class ZooKeeperSettings:
    """Settings under ``/config`` (``ports.SettingsStore``)."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._admin = ConfigAdmin(zookeeper)

    async def read(self, entity: str) -> dict[str, str]:
        """Return the entity's own settings; none if the znode does not exist.

        Raises:
            MalformedZnode: the znode does not hold settings.
        """
        return await self._admin.read(entity)

    async def names(self, kind: str) -> Collection[str]:
        """Return the entities of a kind with settings; none without its znode."""
        try:
            return await self._zookeeper.children(f"{CONFIG}/{kind}")
        except NoNode:
            return []

    async def _make_parent(self, entity: str) -> None:
        """Make the znode of a kind of entities that Kafka 3.9 does not make at its start: groups."""
        kind, _, _ = entity.partition("/")
        with contextlib.suppress(NodeExists):
            await self._zookeeper.create(f"{CONFIG}/{kind}", b"")

    async def alter(self, entity: str, change: Change) -> int:
        """Write what ``change`` makes of the settings, with the notification of all brokers; return its number.

        Raises:
            TidegaugeError: what ``change`` rejects, or UNKNOWN_SERVER_ERROR; nothing was written.
        """
        try:
            try:
                return await self._admin.alter(entity, change)
            except NoNode:
                await self._make_parent(entity)
                return await self._admin.alter(entity, change)
        except ZooKeeperError as problem:
            raise TidegaugeError(
                ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper did not take the change: {problem}; look and try again"
            ) from problem


class ZooKeeperStores:
    """The stores in ZooKeeper (``ports.MetadataStores``).

    Args:
        zookeeper: the session.
        settings: the broker's, changed in place.
        now_ms: wall clock.
    """

    def __init__(self, zookeeper: ZooKeeper, settings: Values, now_ms: Callable[[], int]) -> None:
        self.settings = ZooKeeperSettings(zookeeper)
        self.topics = TopicConfigs(self.settings.read, lambda: zookeeper.children(_TOPICS), settings)
        self.quotas = ClientQuotas(zookeeper)
        self.users = ScramUsers(zookeeper)
        authorizer = authorizer_of(settings)
        self.acls = None if authorizer is None else AclStore(zookeeper, authorizer)
        self._acl_changes = [] if self.acls is None else acl_changes(zookeeper, self.acls, now_ms)
        self._changes = ConfigChanges(zookeeper, self._apply, self._read_all, now_ms)
        self._listener: SettingsListener | None = None

    @property
    def applied_change(self) -> int:
        """The number of the last notification that is in force here; -1: none since the start."""
        return self._changes.applied

    def follow(self, listener: SettingsListener) -> None:
        """Notify a listener of changes from now on."""
        self._listener = listener
        self._changes.start()
        for changes in self._acl_changes:
            changes.start()

    async def close(self) -> None:
        """Follow no more."""
        await self._changes.close()
        for changes in self._acl_changes:
            await changes.close()

    async def _read_all(self) -> None:
        if self._listener is not None:
            await self._listener.read_all()

    async def _apply(self, entity: str) -> None:
        """Notify the listener of a changed entity, named by its path below ``/config``."""
        listener = self._listener
        if listener is None:
            return
        kind, _, name = entity.partition("/")
        match kind:
            case "topics":
                await listener.topic_changed(name)
            case "brokers":
                await listener.broker_changed(name)
            case "groups":
                await listener.group_changed(name)
            case "ips":
                await listener.addresses_changed()
            case "users" | "clients":
                quota = entity_at(entity)
                if quota is None:
                    LOG.warning("A notification is of no user and no client id, and is skipped: %s", entity)
                else:
                    await listener.quota_changed(quota)
                if kind == "users" and "/" not in name:
                    await listener.user_changed(name)
            case _:
                LOG.debug("The settings of %s are none of this broker's", entity)
