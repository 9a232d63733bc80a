"""The znodes of access control lists: their paths and Kafka's payloads. Pure.

    /kafka-acl/Topic/orders                  {"version":1,"acls":[{"principal":"User:a","permissionType":"Allow",...}]}
    /kafka-acl-extended/prefixed/Topic/ord   the same, for names that begin so
    /kafka-acl-changes/acl_changes_N         TOPIC:orders
    /kafka-acl-extended-changes/acl_changes_N
                                             {"version":1,"resourceType":"TOPIC","name":"ord","patternType":"PREFIXED"}

Source: ``ZkAclStore``, ``ZkAclChangeStore``, ``ResourceZNode``, ``AclEntry``, ``ExtendedAclChangeEvent``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tidegauge.cluster_metadata.access_lists import (
    Entry,
    Member,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    camel,
)
from tidegauge.principal import principal_of
from tidegauge.znodes import MalformedZnode

CHANGES = "/kafka-acl-changes"
EXTENDED_CHANGES = "/kafka-acl-extended-changes"
CHANGE_PREFIX = "acl_changes_"
_STORES = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}
KINDS = tuple(kind for kind in ResourceType if kind > ResourceType.ANY)
_VERSION = 1


def store_of(pattern_type: PatternType, kind: ResourceType) -> str:
    """Return the path above the lists of a type and kind."""
    return f"{_STORES[pattern_type]}/{camel(kind.name)}"


def path_of(pattern: Pattern) -> str:
    """Return the path of a pattern's list."""
    return f"{store_of(pattern.pattern_type, pattern.kind)}/{pattern.name}"


def paths() -> list[str]:
    """Return the paths that there are before any list is."""
    return [CHANGES, EXTENDED_CHANGES, *(store_of(one, kind) for one in _STORES for kind in KINDS)]


def encode_list(entries: Iterable[Entry]) -> bytes:
    """Return the payload of a list."""
    acls = [
        {
            "principal": one.principal,
            "permissionType": camel(one.permission.name),
            "operation": camel(one.operation.name),
            "host": one.host,
        }
        for one in sorted(entries)
    ]
    return _json({"version": _VERSION, "acls": acls})


def decode_list(data: bytes) -> frozenset[Entry]:
    """Read the payload of a list; an empty one is a list without entries.

    Raises:
        MalformedZnode: it is none that Kafka writes.
    """
    if not data:
        return frozenset()
    try:
        found = _object(data)
        return frozenset(_entry(one) for one in found["acls"])
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as problem:
        raise MalformedZnode(f"not an access control list: {problem!r}") from None


def _entry(one: Any) -> Entry:
    operation, permission = _member(Operation, one["operation"]), _member(Permission, one["permissionType"])
    if permission not in {Permission.ALLOW, Permission.DENY} or operation <= Operation.ANY:
        raise ValueError("neither allowed nor denied")
    return Entry(str(principal_of(one["principal"])), str(one["host"]), operation, permission)


def encode_change(pattern: Pattern) -> tuple[str, bytes]:
    """Return the path prefix of a new change node, and its payload."""
    if pattern.pattern_type is PatternType.LITERAL:
        return f"{CHANGES}/{CHANGE_PREFIX}", f"{pattern.kind.name}:{pattern.name}".encode()
    payload = {
        "version": _VERSION,
        "resourceType": pattern.kind.name,
        "name": pattern.name,
        "patternType": pattern.pattern_type.name,
    }
    return f"{EXTENDED_CHANGES}/{CHANGE_PREFIX}", _json(payload)


def decode_change(data: bytes) -> Pattern:
    """Read the payload of a change node of either kind.

    Raises:
        MalformedZnode: it names no pattern.
    """
    try:
        text = data.decode()
        if not text.startswith("{"):
            kind, separator, name = text.partition(":")
            if not separator:
                raise ValueError("no colon")
            return Pattern(_member(ResourceType, kind), name)
        found = _object(data)
        pattern_type = _member(PatternType, found["patternType"])
        if pattern_type not in _STORES:
            raise ValueError("not a type of pattern that has lists")
        return Pattern(_member(ResourceType, found["resourceType"]), str(found["name"]), pattern_type)
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as problem:
        raise MalformedZnode(f"not a change of an access control list: {problem!r}") from None


def _member(kind: type[Member], name: str) -> Member:
    """Return a member by its name, in either form: ``TransactionalId`` or ``TRANSACTIONAL_ID``."""
    for member in kind:
        if name.replace("_", "").lower() == member.name.replace("_", "").lower() and member:
            return member
    raise ValueError(f"no {kind.__name__} is called {name[:40]!r}")


def _object(data: bytes) -> dict[str, Any]:
    found = json.loads(data)
    if not isinstance(found, dict) or found.get("version", _VERSION) != _VERSION:
        raise ValueError("not an object of version 1")
    return found


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
