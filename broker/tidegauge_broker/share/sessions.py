"""Share sessions: which partitions a member fetches at a broker, so that a request names changes only (KIP-932).

Contract: a broker has one session for each group and member. ShareFetch and ShareAcknowledge count its epoch together:
0 opens it, -1 ends it, every other request has the next number. A session has no timeout of its own: it ends with the
connection on which it was opened. A session that ends has its member's records released, by the caller.
Source: SharePartitionManager (newContext, acknowledgeSessionUpdate, releaseSession), ShareSessionCache, ShareSession.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegauge.errors import ErrorCode

INITIAL_EPOCH = 0
"""Epoch of a request that opens a session."""
FINAL_EPOCH = -1
"""Epoch of a request that ends a session."""
_MAX_EPOCH = 2**31 - 1


class SessionRefused(Exception):
    """A request is refused as a whole, before anything has changed.

    Attributes:
        error: INVALID_REQUEST, SHARE_SESSION_NOT_FOUND, INVALID_SHARE_SESSION_EPOCH or SHARE_SESSION_LIMIT_REACHED. The
            response with the last one is held back for as long as the request would wait for records, so that the
            client does not try again at once.
    """

    def __init__(self, error: ErrorCode) -> None:
        super().__init__(error.name)
        self.error = error


class SessionKey(NamedTuple):
    """The name of a session."""

    group_id: str
    member_id: str


class PartitionId(NamedTuple):
    """A partition by topic id."""

    topic_id: bytes
    partition: int


@dataclass(slots=True)
class ShareSession:
    """A session.

    Attributes:
        connection: anything hashable; the session ends with it.
        epoch: the next request's.
        partitions: in the order in which they were added, or last had records; each with whether the next response
            names it even without news: it was added since the session began, or had an error the last time.
    """

    key: SessionKey
    connection: object
    epoch: int = 1
    partitions: dict[PartitionId, bool] = field(default_factory=dict[PartitionId, bool])

    def change(self, added: Iterable[PartitionId], forgotten: Iterable[PartitionId]) -> None:
        """Take over which partitions a request adds and forgets, and count its epoch."""
        for one in added:
            self.partitions.setdefault(one, True)
        for one in forgotten:
            self.partitions.pop(one, None)
        self.count()

    def count(self) -> None:
        """Count the epoch of a request."""
        self.epoch = _following(self.epoch)


class News(NamedTuple):
    """A fetch's result for a partition, as far as it decides whether the response names it."""

    has_records: bool = False
    has_error: bool = False


@dataclass(frozen=True, slots=True)
class ShareFetchContext:
    """The context of a ShareFetch.

    Attributes:
        partitions: to fetch, in the order of the session; empty for the last request of a session.
        epoch: of the request.
        session: that it belongs to; None: the session ends, and the member's records are released after its
            acknowledgements.
    """

    partitions: tuple[PartitionId, ...]
    epoch: int
    session: ShareSession | None = None

    @property
    def is_final(self) -> bool:
        """Whether the session ends with the request."""
        return self.session is None

    @property
    def is_superseded(self) -> bool:
        """Whether another request of the session has come meanwhile: this one has INVALID_SHARE_SESSION_EPOCH then."""
        if self.session is None or self.epoch == INITIAL_EPOCH:
            return False
        return self.session.epoch != _following(self.epoch)

    def named(self, news: Mapping[PartitionId, News]) -> list[PartitionId]:
        """Return the partitions to name; in a session's first response all fetched.

        Later responses leave out a partition without records or an error, once they have named it since it was added,
        or since its last error. Source: CachedSharePartition.maybeUpdateResponseData.
        """
        session = self.session
        if session is None or self.epoch == INITIAL_EPOCH:
            return list(news)
        return [one for one, found in news.items() if found != _NOTHING or session.partitions.get(one, False)]

    def responded(self, news: Mapping[PartitionId, News]) -> None:
        """Take note that a response with the partitions of ``named`` is given: those with records are last from now."""
        session = self.session
        if session is None or self.epoch == INITIAL_EPOCH:
            return
        for one in self.named(news):
            if one in session.partitions:
                if news[one].has_records:
                    del session.partitions[one]
                session.partitions[one] = news[one].has_error


class ShareSessions:
    """The sessions of a broker.

    Args:
        max_sessions: group.share.max.share.sessions.
    """

    def __init__(self, max_sessions: int) -> None:
        self.max_sessions = max_sessions
        self._sessions: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def partitions_of(self, key: SessionKey) -> tuple[PartitionId, ...]:
        """Return the partitions of a session; none if there is no such session."""
        session = self._sessions.get(key)
        return () if session is None else tuple(session.partitions)

    def has_group(self, group_id: str) -> bool:
        """Whether a member of a group has a session: without one its share partitions may be forgotten."""
        return any(key.group_id == group_id for key in self._sessions)

    def fetch(
        self,
        key: SessionKey,
        epoch: int,
        added: Sequence[PartitionId],
        forgotten: Sequence[PartitionId],
        connection: object,
        *,
        acknowledges: bool,
    ) -> ShareFetchContext:
        """Take the session's part of a ShareFetch.

        Args:
            key: the group and the member.
            epoch: of the request.
            added: partitions that the request names.
            forgotten: partitions that it fetches no longer.
            connection: on which the request came.
            acknowledges: whether the request has acknowledgements.

        Raises:
            SessionRefused: see its ``error``.
        """
        if epoch == INITIAL_EPOCH:
            return self._open(key, added, connection, acknowledges=acknowledges)
        session = self._session(key)
        if epoch == FINAL_EPOCH:
            return ShareFetchContext((), epoch)
        self._check(session, epoch)
        session.change(added, forgotten)
        return ShareFetchContext(tuple(session.partitions), epoch, session)

    def acknowledge(self, key: SessionKey, epoch: int) -> bool:
        """Take the session's part of a ShareAcknowledge, and return whether it is the last request of the session.

        Raises:
            SessionRefused: see its ``error``.
        """
        if epoch == INITIAL_EPOCH:
            raise SessionRefused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        session = self._session(key)
        if epoch == FINAL_EPOCH:
            return True
        self._check(session, epoch)
        session.count()
        return False

    def end(self, key: SessionKey) -> ShareSession | None:
        """End a session, and return it; None if there is none."""
        return self._sessions.pop(key, None)

    def clear(self) -> None:
        """End all sessions."""
        self._sessions.clear()

    def connection_closed(self, connection: object) -> list[ShareSession]:
        """End the sessions that were opened on a connection, and return them."""
        ended = [session for session in self._sessions.values() if session.connection == connection]
        for session in ended:
            del self._sessions[session.key]
        return ended

    def _open(
        self, key: SessionKey, partitions: Sequence[PartitionId], connection: object, *, acknowledges: bool
    ) -> ShareFetchContext:
        if acknowledges:
            raise SessionRefused(ErrorCode.INVALID_REQUEST)
        former = self._sessions.pop(key, None)
        if former is None and len(self._sessions) >= self.max_sessions:
            raise SessionRefused(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        made = ShareSession(key, connection, partitions=dict.fromkeys(partitions, False))
        self._sessions[key] = made
        return ShareFetchContext(tuple(made.partitions), INITIAL_EPOCH, made)

    def _session(self, key: SessionKey) -> ShareSession:
        session = self._sessions.get(key)
        if session is None:
            raise SessionRefused(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def _check(self, session: ShareSession, epoch: int) -> None:
        if session.epoch != epoch:
            raise SessionRefused(ErrorCode.INVALID_SHARE_SESSION_EPOCH)


def rotated(partitions: tuple[PartitionId, ...], epoch: int) -> tuple[PartitionId, ...]:
    """Return the partitions rotated, so that each comes first in turn (KIP-932).

    Args:
        partitions: in the order of the session, without those that have an error before they are fetched.
        epoch: of the request; the first and the last one of a session have the order of the session.
    """
    if len(partitions) < 2 or epoch < 1:
        return partitions
    first = epoch % len(partitions)
    return partitions[first:] + partitions[:first]


def _following(epoch: int) -> int:
    """Return the epoch after another; 1 comes after the highest."""
    return 1 if epoch == _MAX_EPOCH else epoch + 1


_NOTHING = News()
