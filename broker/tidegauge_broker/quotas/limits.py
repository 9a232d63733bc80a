"""Whose quota is whose: the limits of users and client ids, and which of them holds for a client. Pure.

Rules (``ClientQuotaManager.DefaultQuotaCallback``), of a user U with a client id C the first that is set:
    1. user U, client id C
    2. user U, default client id
    3. user U
    4. default user, client id C
    5. default user, default client id
    6. default user
    7. client id C
    8. default client id

All clients of a user share the limits of 3 and 6, all users of a client id the limits of 7 and 8; each pair has the
other limits for itself. A client without a client id has the limit of its user alone.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple


class Default(Enum):
    """The default of a type of entity."""

    DEFAULT = auto()


DEFAULT = Default.DEFAULT
Name = str | Default | None
"""A name, the default of its type, or None: the entity has no part of this type."""


class QuotaEntity(NamedTuple):
    """The entity that a quota is set for."""

    user: Name
    client_id: Name


class Sharers(NamedTuple):
    """The clients that are measured together: of a user, of a client id, or of both; empty: of any."""

    user: str
    client_id: str


_USERS, _CLIENTS, _PAIRS = 1, 2, 4
_ALL_OF_USER_DEFAULT = QuotaEntity(DEFAULT, None)
_PAIR_OF_DEFAULTS = QuotaEntity(DEFAULT, DEFAULT)


class Limits:
    """The limits of one kind of quota."""

    def __init__(self) -> None:
        self._limits: dict[QuotaEntity, float] = {}
        self._kinds = 0

    @property
    def were_set(self) -> bool:
        """Whether a limit was ever set or removed: then clients without one are measured too, as in Kafka."""
        return self._kinds != 0

    def entities(self) -> set[QuotaEntity]:
        """Return the entities with a limit."""
        return set(self._limits)

    def set(self, entity: QuotaEntity, limit: float | None) -> None:
        """Set a limit, or (None) remove it; what kinds of entities there are is kept until the restart, as in Kafka."""
        if entity.user is None:
            self._kinds |= _CLIENTS
        else:
            self._kinds |= _USERS if entity.client_id is None else _PAIRS
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit

    def sharers(self, user: str, client_id: str) -> Sharers:
        """Return the clients that share one limit with this client."""
        if self._kinds in {0, _CLIENTS}:
            return Sharers("", client_id)
        if self._kinds == _USERS:
            return Sharers(user, "")
        if self._kinds == _PAIRS:
            return Sharers(user, client_id)
        limits = self._limits
        if QuotaEntity(user, client_id) in limits or QuotaEntity(user, DEFAULT) in limits:
            return Sharers(user, client_id)
        if QuotaEntity(user, None) in limits:
            return Sharers(user, "")
        if QuotaEntity(DEFAULT, client_id) in limits or _PAIR_OF_DEFAULTS in limits:
            return Sharers(user, client_id)
        return Sharers(user, "") if _ALL_OF_USER_DEFAULT in limits else Sharers("", client_id)

    def limit(self, sharers: Sharers) -> float | None:
        """Return the limit of clients that are measured together; None: they have none."""
        user, client_id = sharers
        candidates: tuple[QuotaEntity, ...] = ()
        if user and client_id:
            candidates = (
                QuotaEntity(user, client_id),
                QuotaEntity(user, DEFAULT),
                QuotaEntity(DEFAULT, client_id),
                _PAIR_OF_DEFAULTS,
            )
        elif user:
            candidates = QuotaEntity(user, None), _ALL_OF_USER_DEFAULT
        elif client_id:
            candidates = QuotaEntity(None, client_id), QuotaEntity(None, DEFAULT)
        return next((self._limits[one] for one in candidates if one in self._limits), None)
