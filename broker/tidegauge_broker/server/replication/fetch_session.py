"""The leader's side of one follower's stream: which partitions it fetches, and which offsets it has been sent.

A request names only what changed since the last one; a response names only partitions with news: records, an error,
a diverging epoch, or a high watermark or log start offset that the follower has not been sent. A partition that
changed moves to the end of the order: it has brought records, and when a response is full the others come first next
time (Kafka keeps its cached partitions in the order of their last data).
Source: FetchSession, CachedPartition.maybeUpdateResponseData (KIP-227). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import FetchPartition, FetchRequest, FetchResult
from tidegauge_broker.replica.standing_fetch import StandingFetch

_NONE = (
    ErrorCode.NONE
)  # read for every partition of every response, and a member of an enumeration takes long to look up


@dataclass(slots=True)
class FetchSession:
    """One stream's memory.

    Attributes:
        standing: the fetched partitions, and those that the core has to look at.
        epochs: the leader epoch with which each partition is fetched.
        sent: high watermark and log start offset that the follower has been sent of each.
    """

    standing: StandingFetch = field(default_factory=StandingFetch)
    epochs: dict[TopicPartition, int | None] = field(default_factory=dict)
    sent: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

    def request(
        self,
        replica_id: int,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        changed: Iterable[FetchPartition],
        forgotten: Iterable[TopicPartition],
        replica_epoch: int = -1,
    ) -> FetchRequest:
        """Take in what changed; return the request, with the partitions that may have news."""
        for topic_partition in forgotten:
            self.standing.forget(topic_partition)
            self.epochs.pop(topic_partition, None)
            self.sent.pop(topic_partition, None)
        for wanted in changed:
            at = wanted.topic_partition
            if self.epochs.get(at) != wanted.current_leader_epoch:
                self.epochs[at] = wanted.current_leader_epoch
                self.sent.pop(at, None)
            self.standing.want(wanted)
            self.standing.move_to_the_end(at)
        partitions = self.standing.asked_by(replica_id, replica_epoch)
        return FetchRequest(
            replica_id, max_wait_ms, min_bytes, max_bytes, partitions, replica_epoch, standing=self.standing
        )

    def has_news(self, result: FetchResult, records: bytes) -> bool:
        """Whether the response must name this partition; remembers the offsets that it is sent."""
        self.standing.sent(result, records)
        offsets = (result.high_watermark, result.log_start_offset)
        if result.error is not _NONE or result.diverging is not None:
            self.sent.pop(result.topic_partition, None)
            return True
        news = self.sent.get(result.topic_partition) != offsets
        if records or news:
            self.sent[result.topic_partition] = offsets
            return True
        return False
