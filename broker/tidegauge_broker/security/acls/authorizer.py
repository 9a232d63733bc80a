"""Whether a principal may do something with a resource, by access control lists. Pure: lists in, decisions out.

Rules (Kafka's AclAuthorizer):
    1. A super user may do everything.
    2. The lists of a resource are the lists of its own name, of ``*``, and of all prefixes of its name. Without a
       single entry there, ``allow.everyone.if.no.acl.found`` decides.
    3. An entry is about a request if it has the principal or ``User:*``, the host or ``*``, the operation or ALL. One
       that denies overrules all that allow; without one that allows, it is not allowed. An IPv6 host is compared in
       Java's form, however the entry writes it (Kafka compares texts, so that ``::1`` there is no client's host).
    4. A principal that may READ, WRITE, DELETE or ALTER may DESCRIBE; ALTER_CONFIGS implies DESCRIBE_CONFIGS. A denial
       has no such consequence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from tidegauge.cluster_metadata.access_lists import (
    ANYONE,
    WILDCARD,
    Binding,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from tidegauge.host_addresses import java_host
from tidegauge.principal import Principal, principal_of

_IMPLIED_BY: Mapping[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (
        Operation.DESCRIBE,
        Operation.READ,
        Operation.WRITE,
        Operation.DELETE,
        Operation.ALTER,
    ),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
OPERATIONS: Mapping[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE),
    ResourceType.CLUSTER: (
        *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
        *(Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.IDEMPOTENT_WRITE),
    ),
}
"""The operations that there are for a kind of resource (``AclEntry.supportedOperations``)."""
OPERATIONS_IN_KRAFT: Mapping[ResourceType, tuple[Operation, ...]] = {
    **OPERATIONS,
    ResourceType.GROUP: (*OPERATIONS[ResourceType.GROUP], Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}
"""Likewise of Kafka 4, whose groups have settings."""


class Rules(NamedTuple):
    """The settings of an authorizer.

    Attributes:
        super_users: rule 1.
        allows_without_lists: rule 2.
    """

    super_users: frozenset[Principal] = frozenset()
    allows_without_lists: bool = False

    @classmethod
    def of(cls, super_users: str, *, allows_without_lists: bool) -> Rules:
        """Return the rules by ``super.users``, with semicolons between principals.

        Raises:
            ValueError: one of them is no principal.
        """
        names = [text.strip() for text in super_users.split(";")] if super_users.strip() else []
        return cls(frozenset(principal_of(name) for name in names), allows_without_lists)


class AclAuthorizer:
    """The lists in force, and what follows from them; see the module."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._lists: dict[Pattern, frozenset[Entry]] = {}
        self._prefixes: dict[ResourceType, frozenset[str]] = {}

    # The lists

    def entries(self, pattern: Pattern) -> frozenset[Entry]:
        """Return a pattern's list, which may be empty."""
        return self._lists.get(pattern, frozenset())

    def patterns(self) -> list[Pattern]:
        """Return the patterns that have a list."""
        return list(self._lists)

    def put(self, pattern: Pattern, entries: Collection[Entry]) -> None:
        """Set the list of a pattern; an empty one removes it."""
        if entries:
            self._lists[pattern] = frozenset(entries)
        else:
            self._lists.pop(pattern, None)
        self._find_prefixes()

    def replace(self, lists: Mapping[Pattern, Collection[Entry]]) -> None:
        """Set all lists."""
        self._lists = {pattern: frozenset(entries) for pattern, entries in lists.items() if entries}
        self._find_prefixes()

    def change(self, removed: Iterable[Binding], added: Iterable[Binding]) -> None:
        """Remove entries, then add others; a reader in another thread sees the lists before or after it."""
        gone, come = by_pattern(removed), by_pattern(added)
        changed = {
            pattern: self.entries(pattern).difference(gone.get(pattern, ())).union(come.get(pattern, ()))
            for pattern in gone.keys() | come.keys()
        }
        lists = self._lists | changed
        for pattern, entries in changed.items():
            if not entries:
                del lists[pattern]
        self._lists = lists
        if any(pattern.pattern_type is PatternType.PREFIXED for pattern in changed):
            self._find_prefixes()

    def _find_prefixes(self) -> None:
        found: dict[ResourceType, set[str]] = {}
        for pattern in self._lists:
            if pattern.pattern_type is PatternType.PREFIXED:
                found.setdefault(pattern.kind, set()).add(pattern.name)
        self._prefixes = {kind: frozenset(names) for kind, names in found.items()}

    def lists(self) -> list[tuple[Pattern, frozenset[Entry]]]:
        """Return all lists as they are now, by pattern."""
        return list(self._lists.items())

    # Decisions

    def allows(self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether a principal at a host may do an operation with a resource.

        Args:
            principal: of the request.
            host: its address in Java's form.
            operation: a definite one.
            kind: of the resource.
            name: of the resource.
        """
        if principal in self._rules.super_users:
            return True
        entries = self._about(kind, name)
        if not entries:
            return self._rules.allows_without_lists
        who = str(principal)
        if _has(entries, Permission.DENY, who, host, (operation,)):
            return False
        return _has(entries, Permission.ALLOW, who, host, _IMPLIED_BY.get(operation, (operation,)))

    def _about(self, kind: ResourceType, name: str) -> list[Entry]:
        """Return the entries of all lists that are about a resource; rule 2."""
        found = [*self.entries(Pattern(kind, WILDCARD)), *self.entries(Pattern(kind, name))]
        for prefix in self._prefixes.get(kind, ()):
            if name.startswith(prefix):
                found += self.entries(Pattern(kind, prefix, PatternType.PREFIXED))
        return found

    def allows_somewhere(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Whether a principal may do an operation with any resource of a kind (KIP-679).

        As in ``AclAuthorizer.authorizeByResourceType``: nothing implies the operation here, and a denial for a
        name or a prefix of it only removes permissions for that name, or for a prefix that begins so.
        """
        if principal in self._rules.super_users:
            return True
        who = (str(principal), host, operation, kind)
        denied = self._names(*who, Permission.DENY, PatternType.LITERAL)
        if WILDCARD in denied:
            return False
        if self._rules.allows_without_lists:
            return True
        denied_prefixes = self._names(*who, Permission.DENY, PatternType.PREFIXED)
        allowed = self._names(*who, Permission.ALLOW, PatternType.LITERAL)
        allowed_prefixes = self._names(*who, Permission.ALLOW, PatternType.PREFIXED)

        def is_overruled(name: str) -> bool:
            return any(name.startswith(prefix) for prefix in denied_prefixes if prefix)

        if any(not is_overruled(prefix) for prefix in allowed_prefixes):
            return True
        return any(name == WILDCARD or (name not in denied and not is_overruled(name)) for name in allowed)

    def _names(
        self,
        who: str,
        host: str,
        operation: Operation,
        kind: ResourceType,
        permission: Permission,
        pattern_type: PatternType,
    ) -> set[str]:
        return {
            pattern.name
            for pattern, entries in self._lists.items()
            if pattern.kind is kind
            and pattern.pattern_type is pattern_type
            and _has(entries, permission, who, host, (operation,))
        }


def _has(
    entries: Iterable[Entry], permission: Permission, who: str, host: str, operations: Collection[Operation]
) -> bool:
    """Return whether an entry is about this; rule 3."""
    return any(
        entry.permission is permission
        and entry.principal in {who, ANYONE}
        and java_host(entry.host) in {host, WILDCARD}
        and (entry.operation in operations or entry.operation is Operation.ALL)
        for entry in entries
    )


def by_pattern(bindings: Iterable[Binding]) -> dict[Pattern, list[Entry]]:
    """Return entries as lists by pattern."""
    found: dict[Pattern, list[Entry]] = {}
    for pattern, entry in bindings:
        found.setdefault(pattern, []).append(entry)
    return found
