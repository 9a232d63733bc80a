"""The follower's side of a fetch session of Kafka's protocol: the content of the next request (KIP-227). Pure.

Rules (FetchSessionHandler):
    1. The first fetch is full, with epoch 0; the leader's response names the session, or 0 if it gives none. Then
       requests name changed and removed partitions; their epochs are 1, 2, ..., after 2147483647 again 1.
    2. After a failure, and after an error of the session, the next fetch is full and closes the session that was.
    3. A session is about topic ids or about names, as its first fetch was: a change ends it. A partition whose topic id
       changed is forgotten by the old id.
    4. A request for a round that differs from the one before in known partitions is made from these alone.
    5. A partition that began to follow again without any change in its request ends the session too: the leader's
       memory of it no longer holds. (By Kafka's handler the leader would not repeat its offsets.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import FetchPartition, FetchRound

NO_SESSION = 0
INITIAL_EPOCH = 0
LAST_EPOCH = 2**31 - 1
NO_ID = ""


class Named(NamedTuple):
    """A partition, and its topic's id; empty: it is named by the topic's name."""

    topic_partition: TopicPartition
    topic_id: str


class SessionFetch(NamedTuple):
    """The content of the next request.

    Attributes:
        wanted: to be sent, in order.
        forgotten: fetched no longer.
    """

    session_id: int
    epoch: int
    uses_ids: bool
    wanted: Sequence[tuple[Named, FetchPartition]]
    forgotten: Sequence[Named]

    @property
    def is_full(self) -> bool:
        """Whether it names everything."""
        return self.epoch == INITIAL_EPOCH


@dataclass(slots=True)
class FollowerSession:
    """One session, from the request that opens it on; see the module."""

    _id: int = NO_SESSION
    _epoch: int = INITIAL_EPOCH
    _uses_ids: bool = False
    _standing: dict[TopicPartition, tuple[str, FetchPartition]] = field(default_factory=dict)
    _round: int = 0
    """Number of the round that the latest request was for."""

    def __contains__(self, at: TopicPartition) -> bool:
        return at in self._standing

    def next_round(self, chosen: FetchRound, topic_id_of: Callable[[TopicPartition], str]) -> SessionFetch:
        """Return the next request, for this round, and count it as sent.

        Args:
            chosen: the round.
            topic_id_of: returns the id of a partition's topic; empty: it has none.
        """
        asked = self._next_changed(chosen, topic_id_of)
        if asked is None:
            one_of = {one.topic_partition.topic: one.topic_partition for one in chosen.partitions}
            topic_ids = {topic: topic_id_of(at) for topic, at in one_of.items()}
            asked = self.next(chosen.partitions, topic_ids, chosen.first_fetches)
        self._round = chosen.request_id
        return asked

    def _next_changed(self, chosen: FetchRound, topic_id_of: Callable[[TopicPartition], str]) -> SessionFetch | None:
        """Return the next request from this round's changes (rule 4), or None.

        None: it takes the complete round.
        """
        if not chosen.follows or chosen.follows != self._round or self._epoch == INITIAL_EPOCH or not self._uses_ids:
            return None
        standing = self._standing
        changed: dict[TopicPartition, tuple[str, FetchPartition]] = {}
        forgotten: list[Named] = []
        for item in chosen.changed:
            at = item.topic_partition
            entry, before = (topic_id_of(at), item), standing.get(at)
            if not entry[0] or (before == entry and at in chosen.first_fetches):
                return None
            if before is not None and before[0] != entry[0]:
                forgotten.append(Named(at, before[0]))
            if before != entry:
                changed[at] = entry
        forgotten += [Named(at, standing.pop(at)[0]) for at in chosen.left_out if at in standing]
        standing |= changed
        wanted = [(Named(at, topic_id), item) for at, (topic_id, item) in changed.items()]
        return SessionFetch(self._id, self._epoch, True, wanted, forgotten)

    def next(
        self,
        partitions: Sequence[FetchPartition],
        topic_ids: Mapping[str, str],
        first_fetches: Collection[TopicPartition] = (),
    ) -> SessionFetch:
        """Return the next request, and take it as sent.

        Args:
            partitions: all that are to be fetched.
            topic_ids: of their topics; if one is missing or empty, all are named by their names.
            first_fetches: those that began to follow since the last request.
        """
        uses_ids = all(topic_ids.get(topic) for topic in {item.topic_partition.topic for item in partitions})
        wanted = {
            item.topic_partition: (topic_ids[item.topic_partition.topic] if uses_ids else NO_ID, item)
            for item in partitions
        }
        if uses_ids != self._uses_ids or any(self._standing.get(at) == wanted.get(at) for at in first_fetches):
            self.failed()
        before, self._standing, self._uses_ids = self._standing, wanted, uses_ids
        if self._epoch == INITIAL_EPOCH:
            named = [(Named(at, topic_id), item) for at, (topic_id, item) in wanted.items()]
            return SessionFetch(self._id, self._epoch, uses_ids, named, ())
        changed = [
            (Named(at, topic_id), item) for at, (topic_id, item) in wanted.items() if before.get(at) != (topic_id, item)
        ]
        forgotten = [
            Named(at, topic_id) for at, (topic_id, _) in before.items() if at not in wanted or wanted[at][0] != topic_id
        ]
        return SessionFetch(self._id, self._epoch, uses_ids, changed, forgotten)

    def responded(self, session_id: int) -> None:
        """Take in a response without an error: the session that it names, and the epoch that comes next."""
        if session_id == NO_SESSION or (self._epoch != INITIAL_EPOCH and session_id != self._id):
            self._id, self._epoch = session_id, INITIAL_EPOCH
            return
        self._id = session_id
        self._epoch = 1 if self._epoch == LAST_EPOCH else self._epoch + 1

    def failed(self, *, is_lost: bool = False) -> None:
        """Begin again with a full fetch.

        Args:
            is_lost: the leader does not know the session any more.
        """
        self._epoch = INITIAL_EPOCH
        if is_lost:
            self._id = NO_SESSION
