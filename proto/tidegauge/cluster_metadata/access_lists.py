"""Resources, operations and entries of access control lists, and filters over them. Pure.

Numbers come from Kafka's protocol, names from its znodes and from ``kafka-acls``.
Source: ``ResourceType``, ``PatternType``, ``AclOperation``, ``AclPermissionType``, ``AclBindingFilter``.
"""

from __future__ import annotations

import enum
from typing import NamedTuple, TypeVar

WILDCARD = "*"
"""Name of a resource, and host of an entry, that stand for all."""
ANYONE = "User:*"
CLUSTER_NAME = "kafka-cluster"


class ResourceType(enum.IntEnum):
    """The kind of resource that an entry is about."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(enum.IntEnum):
    """The comparison of a pattern's name with a resource's."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(enum.IntEnum):
    """An operation on a resource."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(enum.IntEnum):
    """Whether an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Pattern(NamedTuple):
    """A resource, or all whose names begin so."""

    kind: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def __str__(self) -> str:
        """Return the form of the audit log, ``Topic:LITERAL:orders``."""
        return f"{camel(self.kind.name)}:{self.pattern_type.name}:{self.name}"


class Entry(NamedTuple):
    """One entry of a list.

    Attributes:
        principal: like ``User:alice``; ``User:*`` is anyone.
        host: an address; ``*`` is any.
        operation: ``ALL`` is any.
        permission: allow or deny.
    """

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Binding(NamedTuple):
    """An entry of the list of a pattern."""

    pattern: Pattern
    entry: Entry

    @property
    def is_definite(self) -> bool:
        """Whether all parts of it are known, and none is what only a filter may have."""
        return (
            self.pattern.kind > ResourceType.ANY
            and self.pattern.pattern_type in {PatternType.LITERAL, PatternType.PREFIXED}
            and self.entry.operation > Operation.ANY
            and self.entry.permission in {Permission.DENY, Permission.ALLOW}
        )


class Filter(NamedTuple):
    """A filter of entries; None and ``ANY`` match all.

    Attributes:
        pattern_type: ``MATCH``: patterns that are about the resource of this name; ``ANY``: of this very name.
    """

    kind: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches_pattern(self, pattern: Pattern) -> bool:
        """Return whether a pattern is meant (``ResourcePatternFilter.matches``)."""
        if self.kind not in {ResourceType.ANY, pattern.kind}:
            return False
        if self.pattern_type not in {PatternType.ANY, PatternType.MATCH, pattern.pattern_type}:
            return False
        if self.name is None:
            return True
        if self.pattern_type in {PatternType.ANY, pattern.pattern_type}:
            return self.name == pattern.name
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name in {self.name, WILDCARD}
        return pattern.pattern_type is PatternType.PREFIXED and self.name.startswith(pattern.name)

    def matches_entry(self, entry: Entry) -> bool:
        """Return whether an entry is meant (``AccessControlEntryFilter.matches``)."""
        return (
            self.principal in {None, entry.principal}
            and self.host in {None, entry.host}
            and self.operation in {Operation.ANY, entry.operation}
            and self.permission in {Permission.ANY, entry.permission}
        )

    @property
    def is_of_one_name(self) -> bool:
        """Whether it names the patterns that it can match, one of each type at most."""
        return (
            self.name is not None
            and self.kind not in {ResourceType.ANY, ResourceType.UNKNOWN}
            and self.pattern_type in {PatternType.LITERAL, PatternType.PREFIXED, PatternType.ANY}
        )


def camel(name: str) -> str:
    """Return the name of a member as znodes have it: ``TransactionalId`` for ``TRANSACTIONAL_ID``."""
    return "".join(part.capitalize() for part in name.split("_"))


Member = TypeVar("Member", bound=enum.IntEnum)


def by_number(kind: type[Member], number: int) -> Member:
    """Return the member of this number; ``UNKNOWN`` if there is none."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)
