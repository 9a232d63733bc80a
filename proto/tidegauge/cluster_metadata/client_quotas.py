"""Client quotas as plain values: entities, their quotas, and filters over them. Pure.

An entity is a user, a client id, both, or an address; a name that is None is the default of its type.
Source: KIP-546, KIP-612, ``ClientQuotaEntity``, ``ClientQuotaFilter``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

USER, CLIENT_ID, IP = "user", "client-id", "ip"
TYPES = frozenset({USER, CLIENT_ID, IP})
Entity = Mapping[str, str | None]
"""Names by type; None is the default."""


class AnyName:
    """Matches every name of a type, and its default."""


ANY_NAME = AnyName()
Filter = Mapping[str, "str | AnyName | None"]


class Quota(NamedTuple):
    """One entity's quotas, by key."""

    entity: Entity
    values: Mapping[str, float]


def matches(entity: Entity, wanted: Filter, *, strict: bool) -> bool:
    """Whether an entity has each type of a filter, and no other type if ``strict``."""
    if strict and entity.keys() - wanted.keys():
        return False
    return all(kind in entity and (isinstance(name, AnyName) or entity[kind] == name) for kind, name in wanted.items())


def entity_of(parts: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
    """Return a request's entity; of types named twice the last counts."""
    return dict(parts)
