"""A follower's session and its partitions that may have news: the leader's account of one fetch session.

A session names all partitions that a follower fetches, of which few have changed since the response before. This
account holds each partition's request, and the set *in question*: only these are looked at in a round; of all
others there is nothing to say.

Rules:
    1. A partition is in question from when the follower asks something else of it, or this broker's replica changes in
       anything that decides what a fetch gives or does (``Partition.mark_changed``), until rules 2 and 3 are fulfilled.
    2. A fetch *covers* a partition that it finds at the leader's log end, of a follower in the ISR, without an error.
       From then on each fetch of the session counts for it (KIP-227), though it is not looked at: the follower has
       all that the leader has at the time of the session's latest fetch.
    3. It leaves the question when the follower has been sent the offsets that it has had since it was covered.
    4. One session covers a follower's partition: a fetch of the same follower in another session, or in none, ends it.

A change of a replica ends the cover; a fetch that is parked then waits for that partition as for those in question.
Source: CachedPartition.maybeUpdateResponseData and Partition.fetchRecords, which Kafka calls for every partition.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from tidegauge.errors import ErrorCode

if TYPE_CHECKING:
    from tidegauge.partition import TopicPartition
    from tidegauge_broker.replica.messages import FetchPartition, FetchResult
    from tidegauge_broker.replica.remote_replica import RemoteReplica
    from tidegauge_broker.waiting.purgatory import Watchers

_NONE = ErrorCode.NONE  # a member of an enumeration takes long to look up
_NO_FOLLOWER = (-1, -1)


class StandingFetch:
    """One fetch session's account at the leader; the rules are at the head of this file.

    Attributes:
        time_ms: of the session's latest fetch.
    """

    __slots__ = ("_covered", "_in_question", "_last_place", "_parked", "_places", "_sender", "_wanted", "time_ms")

    def __init__(self) -> None:
        self.time_ms = 0
        self._wanted: dict[TopicPartition, FetchPartition] = {}
        self._places: dict[TopicPartition, int] = {}
        """Each partition's place in the order of a response; numbers rise, with gaps."""
        self._last_place = 0
        self._in_question: dict[TopicPartition, None] = {}
        self._covered: dict[TopicPartition, tuple[RemoteReplica, int, int]] = {}
        """The covered partitions: the follower as the leader knows it, high watermark and log start offset."""
        self._sender = _NO_FOLLOWER
        self._parked: Watchers | None = None

    def __len__(self) -> int:
        return len(self._wanted)

    # The session

    def want(self, wanted: FetchPartition) -> None:
        """Take in what the follower asks of a partition from now on."""
        at = wanted.topic_partition
        self.end_cover(at)
        if at not in self._wanted:
            self.move_to_the_end(at)
        self._wanted[at] = wanted
        self._in_question[at] = None

    def forget(self, at: TopicPartition) -> None:
        """Leave out a partition that is fetched no longer."""
        if self._wanted.pop(at, None) is not None:
            self.end_cover(at)
            del self._places[at]
            del self._in_question[at]

    def move_to_the_end(self, at: TopicPartition) -> None:
        """Let all other partitions come first from now on."""
        self._last_place += 1
        self._places[at] = self._last_place

    def look_at_all(self) -> None:
        """Put every partition in question."""
        for at in list(self._covered):
            self.end_cover(at)

    def asked_by(self, replica_id: int, replica_epoch: int) -> list[FetchPartition]:
        """Return the partitions to look at for this follower's fetch.

        They are all of them if the last fetch came from another process.
        """
        if self._sender != (replica_id, replica_epoch):
            self._sender = replica_id, replica_epoch
            self.look_at_all()
        return self.in_question()

    def in_question(self) -> list[FetchPartition]:
        """Return the partitions in question, in the order of a response."""
        wanted, names = self._wanted, self._in_question
        if len(names) > 1:
            return [wanted[at] for at in sorted(names, key=self._places.__getitem__)]
        return [wanted[at] for at in names]

    @property
    def names_in_question(self) -> Collection[TopicPartition]:
        """Return the partitions in question, in no order."""
        return self._in_question.keys()

    def sent(self, result: FetchResult, records: bytes) -> None:
        """Note what the follower has been sent of a partition, or need not be sent because it was before (rule 3)."""
        at = result.topic_partition
        covered = self._covered.get(at)
        if (
            covered is not None
            and not records
            and result.error is _NONE
            and result.diverging is None
            and covered[1] == result.high_watermark
            and covered[2] == result.log_start_offset
        ):
            self._in_question.pop(at, None)

    # The leader

    def cover(self, at: TopicPartition, remote: RemoteReplica, high_watermark: int, log_start_offset: int) -> None:
        """Let each fetch count for a partition until its cover ends (rule 2)."""
        remote.covered_by = self
        self._covered[at] = remote, high_watermark, log_start_offset

    def end_cover(self, at: TopicPartition) -> None:
        """Put a partition in question: it has changed, or another fetch counts for it."""
        covered = self._covered.pop(at, None)
        if covered is None:
            return
        remote = covered[0]
        remote.settle()
        remote.covered_by = None
        self._in_question[at] = None
        if self._parked is not None:
            self._parked.watch_also(self, at)

    def park_in(self, purgatory: Watchers) -> None:
        """Let fetches that are parked in a purgatory wait for what comes to be in question, too."""
        self._parked = purgatory
