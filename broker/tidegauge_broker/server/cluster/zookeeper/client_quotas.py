"""Quotas of users, client ids and addresses in ZooKeeper: kept and listed, as in Kafka.

The quotas in force at this broker are in ``quotas_in_force.py``, and for addresses in ``address_quotas.py``.

Rules:
    1. An entity is a user, a client id, both, or an address; a name that is None is the default of its type.
    2. The entries of a request are altered one by one: one that is refused leaves the others as they are.
    3. A filter names types: each must be there, with this name, as the default, or with any name. Types that it does
       not name may be there, unless it is strict.
Source: ``ZkAdminManager.alterClientQuotas`` and ``describeClientQuotas``, ``DynamicConfig``, KIP-546, KIP-612.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections.abc import Mapping

from tidegauge.cluster_metadata import DEFAULT_ENTITY
from tidegauge.cluster_metadata.client_quotas import (
    CLIENT_ID,
    IP,
    TYPES,
    USER,
    Entity,
    Filter,
    Quota,
    matches,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.java_text import desanitized, double_text, sanitized
from tidegauge.znodes import CONFIG, MalformedZnode
from tidegauge_controller.zookeeper.client import NodeExists, NoNode, ZooKeeper
from tidegauge_controller.zookeeper.config_admin import ConfigAdmin

LOG = logging.getLogger("tidegauge.configs")

_WHOLE, _ANY_NUMBER = "LONG", "DOUBLE"
_INT = "INT"
_OF_CLIENTS = {
    "producer_byte_rate": _WHOLE,
    "consumer_byte_rate": _WHOLE,
    "request_percentage": _ANY_NUMBER,
    "controller_mutation_rate": _ANY_NUMBER,
}
_OF_ADDRESSES = {"connection_creation_rate": _INT}
_EPSILON = 1e-6
_LARGEST = {_WHOLE: 2**63 - 1, _INT: 2**31 - 1}


class ClientQuotas:
    """Quotas in ZooKeeper; see the module."""

    def __init__(self, zookeeper: ZooKeeper) -> None:
        self._zookeeper = zookeeper
        self._admin = ConfigAdmin(zookeeper)

    async def alter(self, entity: Entity, changes: Mapping[str, float | None], *, validate_only: bool) -> None:
        """Set quotas of an entity, or (None) remove them.

        Raises:
            TidegaugeError: INVALID_REQUEST; nothing was changed.
            ZooKeeperError: ZooKeeper did not take the change.
        """
        names = _checked(entity)
        path = _path(names)
        if IP in names and names[IP] != DEFAULT_ENTITY and not await _is_address(names[IP]):
            raise _refused(f"{names[IP]} is not a valid IP or resolvable host.")
        keys = _OF_ADDRESSES if IP in names else _OF_CLIENTS
        texts = {key: None if value is None else _text(key, value, keys) for key, value in changes.items()}

        def change(current: Mapping[str, str]) -> dict[str, str]:
            kept = {key: value for key, value in current.items() if key not in texts}
            return kept | {key: text for key, text in texts.items() if text is not None}

        if validate_only:
            change(await self._admin.read(path))
            return
        await self._make_parents(path)
        number = await self._admin.alter(path, change)
        LOG.info("Updated the quotas of %s, change %d", path, number)

    async def describe(self, wanted: Filter, *, strict: bool) -> list[Quota]:
        """Return the quotas of all entities that a filter matches (rule 3).

        Raises:
            TidegaugeError: INVALID_REQUEST, the filter names addresses and clients.
            ZooKeeperError: ZooKeeper could not be read.
        """
        if IP in wanted and len(wanted) > 1:
            raise _refused(
                "Invalid entity filter component combination, IP filter component should not be used with user or "
                "clientId filter component."
            )
        if strict and not wanted:
            return []
        paths: list[dict[str, str]] = []
        if IP not in wanted:
            users = await self._children("users")
            paths += [{USER: user} for user in users]
            paths += [{CLIENT_ID: client} for client in await self._children("clients")]
            for user in users:
                clients = await self._children(f"users/{user}/clients")
                paths += [{USER: user, CLIENT_ID: client} for client in clients]
        if not wanted.keys() - {IP}:
            paths += [{IP: address} for address in await self._children("ips")]
        found = [
            Quota(entity, await self._values(names))
            for names in paths
            if matches(entity := {kind: _name(text) for kind, text in names.items()}, wanted, strict=strict)
        ]
        return [quota for quota in found if quota.values]

    async def values(self, entity: Entity) -> dict[str, float]:
        """Return one entity's quotas, by key; empty if missing or unreadable.

        Raises:
            ZooKeeperError: ZooKeeper could not be read.
        """
        return await self._values({kind: _written(name) for kind, name in entity.items()})

    async def _values(self, names: Mapping[str, str]) -> dict[str, float]:
        keys = _OF_ADDRESSES if IP in names else _OF_CLIENTS
        try:
            values = await self._admin.read(_path(names))
            return {key: float(value) for key, value in values.items() if key in keys}
        except (MalformedZnode, ValueError) as problem:
            LOG.warning("The quotas of %s are unreadable and are left out: %s", _path(names), problem)
            return {}

    async def _children(self, path: str) -> list[str]:
        try:
            return await self._zookeeper.children(f"{CONFIG}/{path}")
        except NoNode:
            return []

    async def _make_parents(self, path: str) -> None:
        parts = path.split("/")
        for length in range(2, len(parts)):
            try:
                await self._zookeeper.create("/".join([CONFIG, *parts[:length]]), b"")
            except NodeExists:
                continue


def _refused(message: str) -> TidegaugeError:
    return TidegaugeError(ErrorCode.INVALID_REQUEST, message)


def _checked(entity: Entity) -> dict[str, str]:
    """Return the entity's names in the form of paths."""
    if not entity:
        raise _refused("Invalid empty client quota entity")
    for kind, name in entity.items():
        if kind not in TYPES:
            raise _refused(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _refused(f"Empty {kind} not supported")
    if IP in entity and len(entity) > 1:
        raise _refused("Invalid quota entity combination, IP entity should not be used with user/client ID entity.")
    return {kind: _written(name) for kind, name in entity.items()}


def _written(name: str | None) -> str:
    """Return a name in the form of a path."""
    return DEFAULT_ENTITY if name is None else sanitized(name)


def _name(text: str) -> str | None:
    return None if text == DEFAULT_ENTITY else desanitized(text)


def _path(names: Mapping[str, str]) -> str:
    if IP in names:
        return f"ips/{names[IP]}"
    if USER not in names:
        return f"clients/{names[CLIENT_ID]}"
    if CLIENT_ID not in names:
        return f"users/{names[USER]}"
    return f"users/{names[USER]}/clients/{names[CLIENT_ID]}"


def _text(key: str, value: float, keys: Mapping[str, str]) -> str:
    """Return a quota as it is written, of whole numbers without a point."""
    kind = keys.get(key)
    if kind is None:
        raise _refused(f"Invalid configuration key {key}")
    if kind == _ANY_NUMBER:
        return double_text(value)
    if value != value:  # noqa: PLR0124 - NaN, which Java's cast makes 0
        return "0"
    bound = float(_LARGEST[kind])
    whole = int(max(-bound, min(bound, value + _EPSILON)))
    if abs(whole - value) > _EPSILON:
        raise _refused(f"Configuration {key} must be a {kind} value")
    return str(whole)


async def _is_address(text: str) -> bool:
    """Whether this is an IP address, or the name of a host that has one."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        try:
            return bool(await asyncio.get_running_loop().getaddrinfo(text, None))
        except (OSError, UnicodeError):
            return False
    return True


def entity_at(path: str) -> Entity | None:
    """Return the entity of a quota path below ``/config``, or None.

    It is a user, a client id or a pair; None: the path is of another kind.

    Source: ``UserConfigHandler`` and ``ClientIdConfigHandler``.
    """
    match path.split("/"):
        case ["users", user]:
            return {USER: _name(user)}
        case ["clients", client]:
            return {CLIENT_ID: _name(client)}
        case ["users", user, "clients", client]:
            return {USER: _name(user), CLIENT_ID: _name(client)}
        case _:
            return None
