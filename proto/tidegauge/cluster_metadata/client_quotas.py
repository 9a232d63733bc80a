"""Client quotas as plain values: entities, what is set for them, and filters over them. Pure.

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
    """What is set for one entity, by key."""

    entity: Entity
    values: Mapping[str, float]


def matches(entity: Entity, wanted: Filter, *, strict: bool) -> bool:
    """Return whether a filter means an entity: it must have each type of the filter, and no other if ``strict``."""
    if strict and entity.keys() - wanted.keys():
        return False
    return all(kind in entity and (isinstance(name, AnyName) or entity[kind] == name) for kind, name in wanted.items())


def entity_of(parts: Sequence[tuple[str, str | None]]) -> dict[str, str | None]:
    """Return an entity of a request; of a type that is named twice the last name counts, as in Kafka."""
    return dict(parts)
