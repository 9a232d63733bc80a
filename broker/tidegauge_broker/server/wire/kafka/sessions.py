"""Incremental fetch sessions of Kafka's clients, and the cache that holds them. Pure.

A full fetch (epoch 0) may open a session; an incremental one names only what changed, and its response only partitions
that have records, an error, a diverging epoch, or another high watermark or log start offset than the response before.
Epochs begin at 1 and follow one another; 2147483647 is followed by 1. A session belongs to requests with topic names or
to requests with topic ids, never to both. A partition that gave records goes to the end of the session's order, so that
the others come first when the next response is full.
A full cache gives up a session that was idle for ``EVICTION_MS``, or a smaller one that is as old; otherwise the client
gets no session and continues with full fetches. Followers' sessions are privileged: one takes the place of any
consumer's session, and yields only to a larger one of another follower.
A partition that is named by its topic's id has the name that the id had when it entered the session, until it is
forgotten, even if the metadata change later; one whose id was unknown gets its name as soon as the id is known. So
after a deletion its error is UNKNOWN_TOPIC_OR_PARTITION, and INCONSISTENT_TOPIC_ID once a topic of that name is there
again.
Source: FetchSession, FetchSessionCache, FetchManager.newContext; CachedPartition.maybeUpdateResponseData (KIP-227) and
maybeResolveUnknownName (KIP-516).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import FetchPartition, FetchResult
from tidegauge_broker.replica.standing_fetch import StandingFetch

EVICTION_MS = 120_000
_NO_ERROR = ErrorCode.NONE  # a member of an enumeration takes long to look up, and it is asked for every partition
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_SESSION = 0
MAX_EPOCH = 2**31 - 1

Topic: TypeAlias = "str | bytes"
"""A topic's name, or (Fetch v13 and later) its id."""


class Place(NamedTuple):
    """A partition as the request names it."""

    topic: Topic
    partition: int


class WantedPartition(NamedTuple):
    """A client's request for a partition. Epochs are -1 if the client knows none."""

    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int
    log_start_offset: int


@dataclass(slots=True)
class StandingPlaces:
    """A follower's session as the core knows it, where all its topics have names.

    Attributes:
        topic_ids: the topics' ids, by how the session names them; empty if that is by name.
        places: how the session names each partition.
    """

    fetch: StandingFetch = field(default_factory=StandingFetch)
    topic_ids: dict[Topic, str] = field(default_factory=dict)
    places: dict[TopicPartition, Place] = field(default_factory=dict)


@dataclass(slots=True)
class FetchSession:
    """One client's requested partitions, and the offsets that it has been sent.

    Attributes:
        names: the topic's name of each partition that is named by an id, since the id was known.
        standing: a follower's partitions as the core knows them, and which of them it must look at; None: all of them.
        known: the core's request for a partition, beside the client's, so that an unchanged one is not
            translated again.
    """

    id: int
    uses_ids: bool
    created_ms: int
    used_ms: int
    is_privileged: bool = False
    epoch: int = 1
    partitions: dict[Place, WantedPartition] = field(default_factory=dict)
    sent: dict[Place, tuple[int, int]] = field(default_factory=dict)
    known: dict[Place, tuple[WantedPartition, FetchPartition]] = field(default_factory=dict)
    names: dict[Place, str] = field(default_factory=dict)
    standing: StandingPlaces | None = None

    def update(self, asked: Mapping[Place, WantedPartition], forgotten: Iterable[Place]) -> None:
        """Take in an incremental request."""
        for place, wanted in asked.items():
            before = self.partitions.get(place)
            if before is not None and before.current_leader_epoch != wanted.current_leader_epoch:
                self.sent.pop(place, None)
            self.partitions[place] = wanted
        for place in forgotten:
            self.partitions.pop(place, None)
            self.sent.pop(place, None)
            self.known.pop(place, None)
            self.names.pop(place, None)

    def name_of(self, place: Place, current: str | None) -> str | None:
        """Return the topic name of an id-named partition; the first known counts.

        Args:
            place: the partition.
            current: the name that the id has now; None if it is unknown.
        """
        name = self.names.get(place)
        if name is None and current is not None:
            name = self.names[place] = current
        return name

    def would_have_news(self, place: Place, result: FetchResult, records: bytes) -> bool:
        """Return whether a response would name this partition, and change nothing."""
        if records or result.error is not _NO_ERROR or result.diverging is not None:
            return True
        offsets = (result.high_watermark, result.log_start_offset)
        return result.preferred_read_replica is not None or self.sent.get(place) != offsets

    def has_news(self, place: Place, result: FetchResult, records: bytes) -> bool:
        """Return whether the response must name this partition, and remember what it says."""
        offsets = (result.high_watermark, result.log_start_offset)
        if result.error is not _NO_ERROR or result.diverging is not None:
            self.sent.pop(place, None)
            return True
        if result.preferred_read_replica is not None:
            return True
        changed = self.sent.get(place) != offsets
        if changed:
            self.sent[place] = offsets
        if records and place in self.partitions:  # another request may have made the session forget it meanwhile
            self.partitions[place] = self.partitions.pop(place)
            if self.standing is not None:
                self.standing.fetch.move_to_the_end(result.topic_partition)
        return changed or bool(records)


class Opened(NamedTuple):
    """The content of a fetch request.

    Attributes:
        session: to filter the response with and to name in it; None: the response is full and names no session.
        partitions: all that is to be fetched, in order; as the session has it, so that the next request changes it.
        is_new: whether the session begins with this request, so that its response is full.
    """

    session: FetchSession | None
    partitions: Mapping[Place, WantedPartition]
    is_new: bool = False


class FetchSessionCache:
    """All sessions of a broker.

    Args:
        slots: maximum number of sessions.
        random_id: a random integer from 1 to 2147483647.
    """

    def __init__(self, slots: int, random_id: Callable[[], int]) -> None:
        self._slots = slots
        self._random_id = random_id
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session_id: int,
        session_epoch: int,
        asked: Mapping[Place, WantedPartition],
        forgotten: Iterable[Place],
        *,
        uses_ids: bool,
        now_ms: int,
        is_privileged: bool = False,
    ) -> Opened | ErrorCode:
        """Return what a request is about, or the request's error."""
        if session_epoch in {INITIAL_EPOCH, FINAL_EPOCH}:
            self._sessions.pop(session_id, None)
            if session_epoch == FINAL_EPOCH:
                return Opened(None, asked)
            session = self._new_session(len(asked), uses_ids=uses_ids, now_ms=now_ms, is_privileged=is_privileged)
            if session is not None:
                session.partitions = dict(asked)
            return Opened(session, asked, is_new=True)
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        session.update(asked, forgotten)
        if not session.partitions:
            del self._sessions[session_id]
            return Opened(None, asked)  # what the request both names and forgets (FetchManager.newContext)
        session.epoch = 1 if session.epoch == MAX_EPOCH else session.epoch + 1
        # The least recently used session comes first.
        self._sessions[session_id] = self._sessions.pop(session_id)
        session.used_ms = now_ms
        return Opened(session, session.partitions)

    def forget(self, session_id: int) -> None:
        """End a session: the response that was to open it was not given."""
        self._sessions.pop(session_id, None)

    def standing(self, session_id: int) -> Collection[Place]:
        """Return a session's partitions; none for an unknown session."""
        session = self._sessions.get(session_id)
        return () if session is None else session.partitions.keys()

    def _new_session(self, size: int, *, uses_ids: bool, now_ms: int, is_privileged: bool) -> FetchSession | None:
        if len(self._sessions) >= self._slots and not self._evict(size, now_ms, is_privileged=is_privileged):
            return None
        session_id = self._random_id()
        while session_id in self._sessions:
            session_id = self._random_id()
        session = FetchSession(session_id, uses_ids, now_ms, now_ms, is_privileged)
        self._sessions[session_id] = session
        return session

    def _evict(self, size: int, now_ms: int, *, is_privileged: bool) -> bool:
        """Give up a session for a new one of this size, if one may go (``FetchSessionCacheShard.tryEvict``)."""
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > EVICTION_MS:
            del self._sessions[oldest.id]
            return True
        weakest = min(
            (
                (one.is_privileged, len(one.partitions), one.id)
                for one in self._sessions.values()
                if now_ms - one.created_ms > EVICTION_MS or (is_privileged and not one.is_privileged)
            ),
            default=None,
        )
        if weakest is None or (is_privileged, size, NO_SESSION) < weakest:
            return False
        del self._sessions[weakest[2]]
        return True
