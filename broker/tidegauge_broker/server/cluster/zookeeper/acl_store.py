"""Access control lists in ZooKeeper: read, followed, and written.

Rules:
    1. All lists are read at the start and with a new session; a change node names a list that is read again. A broker
       does not start on a list that is unreadable: it could hold a denial. Later the known content of such a list stays
       in force, and the log names it.
    2. A list is written expecting the version that was read, with the change node that notifies all brokers in the same
       transaction (in Kafka: after it). It is in force at this broker before the response.
Source: ``AclAuthorizer``, ``AclApis``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence

from tidegauge.cluster_metadata.access_lists import (
    CLUSTER_NAME,
    Binding,
    Entry,
    Filter,
    Pattern,
    PatternType,
    ResourceType,
)
from tidegauge.errors import ErrorCode, TidegaugeError
from tidegauge.principal import principal_of
from tidegauge.znodes import MalformedZnode
from tidegauge.znodes.access_lists import (
    KINDS,
    decode_list,
    encode_change,
    encode_list,
    path_of,
    paths,
    store_of,
)
from tidegauge_broker.security.acls.authorizer import AclAuthorizer
from tidegauge_broker.server.acls.access_control import AccessControl, Outcome
from tidegauge_controller.zookeeper.client import MultiFailed, NoNode, ZooKeeper, ZooKeeperError
from tidegauge_controller.zookeeper.decisions.steps import CreateNode, DeleteNode, SetNode
from tidegauge_controller.zookeeper.decisions.steps import Operation as ZnodeOperation

LOG = logging.getLogger("tidegauge.acls")
_RETRIES = 10
_BACKOFF_SECONDS = 0.1


class AclStore(AccessControl):
    """The lists of a cluster as one broker knows them; see the module.

    Args:
        zookeeper: the session.
        authorizer: decides.
    """

    def __init__(self, zookeeper: ZooKeeper, authorizer: AclAuthorizer) -> None:
        super().__init__(authorizer)
        self._zookeeper = zookeeper
        self._writing = asyncio.Lock()
        self._has_read = False

    # ZooKeeper

    async def read_all(self) -> None:
        """Read all lists; rule 1.

        Raises:
            ZooKeeperError: ZooKeeper could not be read.
            TidegaugeError: INVALID_CONFIG, a list is unreadable, and nothing was known before.
        """
        for path in paths():
            await self._zookeeper.ensure_path(path)
        found: dict[Pattern, Collection[Entry]] = {}
        for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
            for kind in KINDS:
                for name in await self._zookeeper.children(store_of(pattern_type, kind)):
                    pattern = Pattern(kind, name, pattern_type)
                    found[pattern] = await self._read(pattern)
        self.authorizer.replace(found)
        self._has_read = True

    async def read(self, pattern: Pattern) -> None:
        """Read the list of a pattern again.

        Raises:
            ZooKeeperError: ZooKeeper could not be read.
        """
        async with self._writing:
            entries = await self._read(pattern)
            self.authorizer.put(pattern, entries)
        LOG.info("Processing Acl change notification for %s: %d entries", pattern, len(entries))

    async def _read(self, pattern: Pattern) -> frozenset[Entry]:
        try:
            entries, _ = await self._get(pattern)
        except MalformedZnode as problem:
            if not self._has_read:
                raise TidegaugeError(
                    ErrorCode.INVALID_CONFIG,
                    f"The access control list {path_of(pattern)} can't be read: {problem}. Mend or delete the znode: "
                    "it could deny what would be allowed without it",
                ) from None
            LOG.error("The access control list %s stays as it was known: %s", path_of(pattern), problem)  # noqa: TRY400 - it says all
            return self.authorizer.entries(pattern)
        return entries

    async def _get(self, pattern: Pattern) -> tuple[frozenset[Entry], int | None]:
        """Return a list and its version; None: there is no znode."""
        try:
            data, stat = await self._zookeeper.get(path_of(pattern))
        except NoNode:
            return frozenset(), None
        return decode_list(data), stat.version

    # Alterations

    async def create(self, bindings: Sequence[Binding]) -> list[Outcome]:
        """Add entries, each pattern's in one write; return what became of each, in their order."""
        outcomes = [_refusal(binding) for binding in bindings]
        by_pattern: dict[Pattern, list[int]] = {}
        for at, binding in enumerate(bindings):
            if outcomes[at].error is ErrorCode.NONE:
                by_pattern.setdefault(binding.pattern, []).append(at)
        for pattern, positions in by_pattern.items():
            new = frozenset(bindings[at].entry for at in positions)
            outcome, _ = await self._alter(pattern, new.union)
            for at in positions:
                outcomes[at] = outcome
        return outcomes

    async def delete(self, filters: Sequence[Filter]) -> list[list[tuple[Binding, Outcome]]]:
        """Remove the entries that filters match; return each filter's entries. The first of several filters counts."""
        patterns = dict.fromkeys(self.authorizer.patterns())
        for one in filters:
            if one.is_of_one_name:
                patterns |= dict.fromkeys(_named(one))
        results: list[list[tuple[Binding, Outcome]]] = [[] for _ in filters]
        for pattern in patterns:
            meant = [(at, one) for at, one in enumerate(filters) if one.matches_pattern(pattern)]
            if not meant:
                continue
            remaining = _without(meant)
            outcome, before = await self._alter(pattern, remaining)
            for entry in sorted(before - remaining(before)):
                first = next(at for at, one in meant if one.matches_entry(entry))
                results[first].append((Binding(pattern, entry), outcome))
        return results

    async def _alter(
        self, pattern: Pattern, change: Callable[[frozenset[Entry]], frozenset[Entry]]
    ) -> tuple[Outcome, frozenset[Entry]]:
        """Write what ``change`` makes of a list; rule 2. Return the outcome, and the list as it was."""
        before: frozenset[Entry] = frozenset()
        async with self._writing:
            try:
                for _ in range(_RETRIES + 1):
                    before, version = await self._get(pattern)
                    after = change(before)
                    if after == before or await self._write(pattern, after, version):
                        self.authorizer.put(pattern, after)
                        LOG.info("Updated ACLs for %s: %d entries", pattern, len(after))
                        return Outcome(), before
                    await asyncio.sleep(_BACKOFF_SECONDS)
            except (ZooKeeperError, MalformedZnode) as problem:
                message = f"ZooKeeper did not take the change: {problem}; look and try again"
                return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, message), before
        message = f"Failed to update ACLs for {pattern} after trying a maximum of {_RETRIES} times"
        return Outcome(ErrorCode.UNKNOWN_SERVER_ERROR, message), before

    async def _write(self, pattern: Pattern, entries: frozenset[Entry], version: int | None) -> bool:
        """Write a list and its change node in one transaction; False: another broker was faster."""
        path = path_of(pattern)
        operation: ZnodeOperation
        if version is None:
            operation = CreateNode(path, encode_list(entries))
        elif entries:
            operation = SetNode(path, encode_list(entries), version)
        else:
            operation = DeleteNode(path, version)
        change_path, change = encode_change(pattern)
        try:
            await self._zookeeper.multi([operation, CreateNode(change_path, change, sequence=True)])
        except MultiFailed:
            return False
        return True


def _refusal(binding: Binding) -> Outcome:
    """Return why an entry cannot be created (``AclApis``, ``AclAuthorizer.validateAclBinding``); no error: it can."""
    pattern = binding.pattern
    if pattern.kind is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return Outcome(ErrorCode.INVALID_REQUEST, f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not pattern.name:
        return Outcome(ErrorCode.INVALID_REQUEST, "Invalid empty resource name")
    if not binding.is_definite or _is_no_path(pattern.name):
        return Outcome(ErrorCode.INVALID_REQUEST, "Failed to create ACL")
    try:
        principal_of(binding.entry.principal)
    except ValueError as problem:
        return Outcome(ErrorCode.INVALID_REQUEST, str(problem))
    return Outcome()


def _is_no_path(name: str) -> bool:
    """Return whether ZooKeeper takes no znode of this name."""
    return name in {".", ".."} or any(character == "/" or not character.isprintable() for character in name)


def _named(one: Filter) -> list[Pattern]:
    types = (PatternType.LITERAL, PatternType.PREFIXED)
    name = one.name or ""
    if not name or _is_no_path(name):
        return []
    return [Pattern(one.kind, name, kind) for kind in types if one.pattern_type in {PatternType.ANY, kind}]


def _without(meant: Sequence[tuple[int, Filter]]) -> Callable[[frozenset[Entry]], frozenset[Entry]]:
    def remaining(entries: frozenset[Entry]) -> frozenset[Entry]:
        return frozenset(entry for entry in entries if not any(one.matches_entry(entry) for _, one in meant))

    return remaining
