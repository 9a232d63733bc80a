"""The committed offsets of one group: materialised, pending, and pending in a transaction.

A commit is pending from its append until the batch is committed. Which of two commits wins is decided by the offset of
their batches in the log, so that it is the same live and after a load (KAFKA-14505); for a transactional commit that is
the batch of the commit, not of the marker. A marker ends the commits whose batches lie before it in the log.
Source: the offset part of Kafka's GroupMetadata. Three flaws of it are not repeated. Kafka keeps the last pending
commit of a partition only, so when a second commit fails while the first is in flight, the first is acknowledged, not
returned; and of a transaction the first is lost until the next load. Its removeExpiredOffsets looks at plain pending
commits alone: the tombstone that it writes behind a transactional one makes compaction remove that one, which is
committed later. And its completePendingTxnOffsetCommit does not know where the marker is: one that was sent again also
ends the commits behind it (or throws IllegalStateException and forgets them, while they are being appended), and the
next load returns something else.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from tidegauge.groups import NO_LEADER_EPOCH
from tidegauge.kafka.fields import NIL_UUID
from tidegauge.partition import TopicPartition
from tidegauge.transaction_marker import Outcome


class CommittedOffset(NamedTuple):
    """The committed offset of a partition.

    Attributes:
        expire_timestamp_ms: from the retention time of OffsetCommit v2 to v4; None: offsets.retention.minutes counts.
        topic_id: of the partition's topic, from Kafka 4 on; zero: it is not known.
    """

    offset: int
    leader_epoch: int = NO_LEADER_EPOCH
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None
    topic_id: bytes = NIL_UUID

    def may_be_of(self, topic_id: bytes) -> bool:
        """Whether no other topic is known to have been meant (OffsetMetadataManager.isMismatchedTopicId)."""
        return NIL_UUID in {topic_id, self.topic_id} or topic_id == self.topic_id


class LoggedOffset(NamedTuple):
    """A commit and the offset of its batch in __consumer_offsets."""

    batch_offset: int
    committed: CommittedOffset


class AppendingOffset:
    """A transactional commit whose batch is being appended.

    Attributes:
        markers: the outcomes of its producer's markers that were committed meanwhile, by their offsets.
    """

    __slots__ = ("committed", "markers")

    def __init__(self, committed: CommittedOffset) -> None:
        self.committed = committed
        self.markers: dict[int, Outcome] = {}

    def outcome(self, batch_offset: int) -> Outcome | None:
        """Return the outcome of the first marker behind the batch, or None."""
        behind = [offset for offset in self.markers if offset > batch_offset]
        return self.markers[min(behind)] if behind else None


class Offsets:
    """The offsets of a group by partition.

    Attributes:
        pending: plain commits whose batch is being appended.
        appending_transactional: transactional ones, by producer id.
        pending_transactional: those that are in the log, by producer id, until the transaction's marker.
    """

    def __init__(self) -> None:
        self.materialised: dict[TopicPartition, LoggedOffset] = {}
        self.pending: dict[TopicPartition, list[CommittedOffset]] = {}
        self.appending_transactional: dict[int, dict[TopicPartition, list[AppendingOffset]]] = {}
        self.pending_transactional: dict[int, dict[TopicPartition, LoggedOffset]] = {}

    @property
    def has_any(self) -> bool:
        """Whether there is an offset of any kind: such a group is not removed."""
        return bool(self.materialised or self.pending or self.appending_transactional or self.pending_transactional)

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that have an offset of any kind."""
        found = dict.fromkeys((*self.materialised, *self.pending))
        for appending in self.appending_transactional.values():
            found |= dict.fromkeys(appending)
        for pending in self.pending_transactional.values():
            found |= dict.fromkeys(pending)
        return list(found)

    def get(self, topic_partition: TopicPartition) -> CommittedOffset | None:
        """Return the materialised offset of a partition."""
        logged = self.materialised.get(topic_partition)
        return None if logged is None else logged.committed

    def is_unstable(self, topic_partition: TopicPartition) -> bool:
        """Whether a commit for the partition is in flight, plain or transactional (KIP-447)."""
        return topic_partition in self.pending or any(
            topic_partition in offsets
            for by_producer in (self.appending_transactional, self.pending_transactional)
            for offsets in by_producer.values()
        )

    def prepare(self, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Take commits that are being appended."""
        for topic_partition, committed in commits.items():
            self.pending.setdefault(topic_partition, []).append(committed)

    def complete(self, commits: Mapping[TopicPartition, CommittedOffset], batch_offset: int) -> None:
        """Materialise commits whose batch is committed, unless a newer batch came first.

        A partition that has no pending commit any more was deleted meanwhile: its offset does not come back.
        """
        for topic_partition, committed in commits.items():
            if self._settle(topic_partition, committed):
                self._materialise(topic_partition, LoggedOffset(batch_offset, committed))

    def fail(self, commits: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Forget commits whose append failed; others of the same partitions stay pending."""
        for topic_partition, committed in commits.items():
            self._settle(topic_partition, committed)

    # Transactions

    def prepare_transactional(
        self, producer_id: int, commits: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, AppendingOffset]:
        """Take a producer's commits that are being appended, and return them for their outcome."""
        appending = {topic_partition: AppendingOffset(committed) for topic_partition, committed in commits.items()}
        offsets = self.appending_transactional.setdefault(producer_id, {})
        for topic_partition, one in appending.items():
            offsets.setdefault(topic_partition, []).append(one)
        return appending

    def log_transactional(
        self, producer_id: int, appending: Mapping[TopicPartition, AppendingOffset], batch_offset: int
    ) -> None:
        """Keep commits whose batch is committed until the marker; one behind it that has come already counts at once.

        A partition whose offsets were deleted meanwhile stays without.
        """
        for topic_partition, one in appending.items():
            if not self._settle_transactional(producer_id, topic_partition, one):
                continue
            assert batch_offset >= 0, "its batch is in the log"
            logged, outcome = LoggedOffset(batch_offset, one.committed), one.outcome(batch_offset)
            if outcome is Outcome.COMMIT:
                self._materialise(topic_partition, logged)
            elif outcome is None:
                offsets = self.pending_transactional.setdefault(producer_id, {})
                current = offsets.get(topic_partition)
                if current is None or current.batch_offset < batch_offset:
                    offsets[topic_partition] = logged

    def fail_transactional(self, producer_id: int, appending: Mapping[TopicPartition, AppendingOffset]) -> None:
        """Forget commits whose append failed; earlier ones of the transaction stay pending."""
        for topic_partition, one in appending.items():
            self._settle_transactional(producer_id, topic_partition, one)

    def complete_transaction(self, producer_id: int, outcome: Outcome, marker_offset: int) -> bool:
        """Materialise or drop a producer's pending commits before its marker, which is committed.

        Of commits that are being appended it is not known yet on which side of the marker they lie.

        Returns:
            Whether something of the producer is left for its next marker.
        """
        assert marker_offset >= 0, "the marker is in the log"
        left: dict[TopicPartition, LoggedOffset] = {}
        for topic_partition, logged in self.pending_transactional.pop(producer_id, {}).items():
            if logged.batch_offset > marker_offset:
                left[topic_partition] = logged
            elif outcome is Outcome.COMMIT:
                self._materialise(topic_partition, logged)
        if left:
            self.pending_transactional[producer_id] = left
        appending = self.appending_transactional.get(producer_id, {})
        for commits in appending.values():
            for one in commits:
                one.markers[marker_offset] = outcome
        return bool(left or appending)

    def remove(
        self, partitions: Iterable[TopicPartition], topic_ids: Mapping[str, bytes] = MappingProxyType({})
    ) -> list[TopicPartition]:
        """Remove all offsets of these partitions; return those that had a materialised one, for tombstones.

        Args:
            partitions: they may have no offset.
            topic_ids: ids of deleted topics by name: offsets of another topic of that name stay.
        """
        removed: list[TopicPartition] = []
        for topic_partition in partitions:
            topic_id = topic_ids.get(topic_partition.topic, NIL_UUID)
            for committed in list(self.pending.get(topic_partition, ())):
                if committed.may_be_of(topic_id):
                    self._settle(topic_partition, committed)
            for offsets in self.pending_transactional.values():
                offsets.pop(topic_partition, None)
            for appending in self.appending_transactional.values():
                appending.pop(topic_partition, None)
            materialised = self.get(topic_partition)
            if materialised is not None and materialised.may_be_of(topic_id):
                del self.materialised[topic_partition]
                removed.append(topic_partition)
        return removed

    def expire(
        self,
        now_ms: int,
        retention_ms: int,
        retained_since_ms: Callable[[CommittedOffset], int],
        subscribed_topics: Collection[str] = (),
    ) -> list[TopicPartition]:
        """Remove the offsets whose retention has passed and return their partitions.

        One with a commit in flight, plain or transactional, stays: its tombstone would lie behind that in the log.

        Args:
            now_ms: the time.
            retention_ms: offsets.retention.minutes, in ms.
            retained_since_ms: gives the time from which an offset's retention counts.
            subscribed_topics: topics whose offsets stay.
        """
        expired = [
            topic_partition
            for topic_partition, (_, committed) in self.materialised.items()
            if topic_partition.topic not in subscribed_topics
            and (
                now_ms - retained_since_ms(committed) >= retention_ms
                if committed.expire_timestamp_ms is None
                else now_ms >= committed.expire_timestamp_ms
            )
            and not self.is_unstable(topic_partition)
        ]
        for topic_partition in expired:
            del self.materialised[topic_partition]
        return expired

    def _settle(self, topic_partition: TopicPartition, committed: CommittedOffset) -> bool:
        """Take a commit out of the pending ones; return whether it was there."""
        pending = self.pending.get(topic_partition, [])
        if committed not in pending:
            return False
        pending.remove(committed)
        if not pending:
            del self.pending[topic_partition]
        return True

    def _settle_transactional(self, producer_id: int, topic_partition: TopicPartition, one: AppendingOffset) -> bool:
        """Take a transactional commit out of those being appended; return whether it was there."""
        offsets = self.appending_transactional.get(producer_id, {})
        appending = offsets.get(topic_partition, [])
        was_there = one in appending
        if was_there:
            appending.remove(one)
            if not appending:
                del offsets[topic_partition]
        if not offsets:
            self.appending_transactional.pop(producer_id, None)
        return was_there

    def _materialise(self, topic_partition: TopicPartition, logged: LoggedOffset) -> None:
        assert logged.batch_offset >= 0, "its batch is in the log"
        current = self.materialised.get(topic_partition)
        if current is None or current.batch_offset < logged.batch_offset:
            self.materialised[topic_partition] = logged
