"""Settings of single groups: read and followed, described, and altered for admins.

They exist where the consumer protocol (KIP-848) or the share protocol (KIP-932) is served. A group need not exist to
have settings; its coordinator takes them up when the group's next heartbeat arrives, whichever broker it is, and the
leaders of a share group's partitions when they next acquire records.
Source: GroupConfigManager, ControllerConfigurationValidator, ConfigHelper.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Protocol

from tidegauge.cluster_metadata import MalformedMetadata
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.java_text import desanitized, sanitized
from tidegauge.settings import (
    BrokerSettings,
    ListChange,
    SettingView,
    Values,
    altered,
    check_group_configs,
    group_values,
    usable_group_configs,
)
from tidegauge_broker.server.cluster.ports import SettingsStore

LOG = logging.getLogger("tidegauge.configs")
GROUPS = "groups"
"""Kafka's name of this kind of entity."""


class Affected(Protocol):
    """The part that is notified of a group's settings."""

    def group_settings_changed(self, group_id: str, values: Values | None) -> None:
        """Take over a group's settings; None: it has none of its own any more."""


class GroupConfigs:
    """The settings of single groups.

    Args:
        store: of settings.
        settings: this broker's.
    """

    def __init__(self, store: SettingsStore, settings: BrokerSettings) -> None:
        self._store = store
        self._settings = settings
        self._own: dict[str, dict[str, str]] = {}
        self._affected: Affected | None = None

    def follow(self, affected: Affected) -> None:
        """Notify a part of the known settings, and of changes from now on."""
        self._affected = affected
        for group_id in self._own:
            self._tell(group_id)

    async def read_all(self) -> None:
        """Read the settings of all groups that have some, and forget those that have none any more."""
        there = [desanitized(name) for name in await self._store.names(GROUPS)]
        for group_id in self._own.keys() - set(there):
            self._take(group_id, {})
        for group_id in there:
            await self.read(group_id)

    async def changed(self, name: str) -> None:
        """Take over the settings of a group, by its entity's name."""
        await self.read(desanitized(name))

    async def read(self, group_id: str) -> None:
        """Read a group's own settings; unusable ones are logged and left out."""
        try:
            texts = await self._store.read(entity_of(group_id))
        except MalformedMetadata as problem:
            LOG.warning("The settings of group %s are unreadable and are ignored: %s", group_id, problem)
            texts = {}
        usable, left_out = usable_group_configs(texts)
        for why in left_out:
            LOG.warning("Group %s: %s", group_id, why)
        self._take(group_id, usable)

    def _take(self, group_id: str, own: dict[str, str]) -> None:
        if own:
            self._own[group_id] = own
        elif self._own.pop(group_id, None) is None:
            return
        self._tell(group_id)

    def _tell(self, group_id: str) -> None:
        own = self._own.get(group_id)
        values = None if own is None else group_values(own, self._settings.live)
        LOG.info("The settings of group %s are now: %s", group_id, own or "the broker's")
        if self._affected is not None:
            self._affected.group_settings_changed(group_id, values)

    def broker_changed(self) -> None:
        """Take over the broker's changed settings: they count for groups as far as these have none of their own."""
        if self._affected is not None:
            for group_id, own in self._own.items():
                self._affected.group_settings_changed(group_id, group_values(own, self._settings.live))

    @property
    def ids(self) -> list[str]:
        """The groups that have settings of their own."""
        return list(self._own)

    def values_of(self, group_id: str) -> Values:
        """Return a group's settings in force now, with or without its own."""
        return group_values(self._own.get(group_id, {}), self._settings.live)

    # Requests of admins

    async def describe(self, group_id: str) -> list[SettingView]:
        """Return a group's settings in force, even of an unknown group.

        Raises:
            TidegaugeError: INVALID_REQUEST, the name is empty.
        """
        if not group_id:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return self._settings.group_views(await self._store.read(entity_of(group_id)))

    async def alter(
        self,
        group_id: str,
        changes: Mapping[str, str | ListChange],
        deleted: Collection[str] | None,
        *,
        validate_only: bool = False,
    ) -> int:
        """Alter a group's settings; return the change's number.

        Args:
            group_id: of a group, which need not exist.
            changes: new texts.
            deleted: names that return to the broker's; None: all that are not among the changes.
            validate_only: change nothing.

        Raises:
            TidegaugeError: INVALID_REQUEST, INVALID_CONFIG; nothing was changed.
        """
        if not group_id:
            raise TidegaugeError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")

        def change(current: Mapping[str, str]) -> dict[str, str]:
            wanted = altered(current, changes, current.keys() - changes.keys() if deleted is None else deleted)
            check_group_configs(wanted, self._settings.live)
            return wanted

        entity = entity_of(group_id)
        if validate_only:
            change(await self._store.read(entity))
            return -1
        number = await self._store.alter(entity, change)
        LOG.info("Updated the settings of group %s, change %d", group_id, number)
        return number


def entity_of(group_id: str) -> str:
    """Return a group's entity name: its id, sanitized as users' names are."""
    return f"{GROUPS}/{sanitized(group_id)}"
