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

_NONE = (
    ErrorCode.NONE
)  # read for every partition of every response, and a member of an enumeration takes long to look up


@dataclass(slots=True)
class FetchSession:
    """One stream's memory."""

    standing: dict[TopicPartition, FetchPartition] = field(default_factory=dict)
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
        """Take in what changed; return the complete request."""
        for topic_partition in forgotten:
            self.standing.pop(topic_partition, None)
            self.sent.pop(topic_partition, None)
        for wanted in changed:
            before = self.standing.pop(wanted.topic_partition, None)
            if before is not None and before.current_leader_epoch != wanted.current_leader_epoch:
                self.sent.pop(wanted.topic_partition, None)
            self.standing[wanted.topic_partition] = wanted
        standing = list(self.standing.values())
        return FetchRequest(replica_id, max_wait_ms, min_bytes, max_bytes, standing, replica_epoch)

    def has_news(self, result: FetchResult, records: bytes) -> bool:
        """Return whether the response must name this partition, and remember the offsets that it is sent."""
        offsets = (result.high_watermark, result.log_start_offset)
        if result.error is not _NONE or result.diverging is not None:
            self.sent.pop(result.topic_partition, None)
            return True
        news = self.sent.get(result.topic_partition) != offsets
        if records or news:
            self.sent[result.topic_partition] = offsets
            return True
        return False
