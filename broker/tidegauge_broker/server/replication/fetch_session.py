"""The leader's side of one follower's stream: which partitions stand, and what the follower has been told.

A request names only what changed since the last one; an answer names only partitions with something to tell:
records, an error, a diverging epoch, or a high watermark or log start offset that the follower has not been told.
A partition that changed goes to the end of the order: it has brought records, and when an answer is full the others
come first next time (in Kafka the cached partitions stand in the order of their last data).
Source: FetchSession, CachedPartition.maybeUpdateResponseData (KIP-227; kafka-behaviour 2.6). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tidegauge.errors import ErrorCode
from tidegauge.partition import TopicPartition
from tidegauge_broker.replica.messages import FetchPartition, FetchRequest, FetchResult

_NONE = (
    ErrorCode.NONE
)  # asked for every partition of every answer, and a member of an enumeration takes long to look up


@dataclass(slots=True)
class FetchSession:
    """One stream's memory."""

    standing: dict[TopicPartition, FetchPartition] = field(default_factory=dict)
    told: dict[TopicPartition, tuple[int, int]] = field(default_factory=dict)

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
        """Take in what changed, and make the whole request of it."""
        for topic_partition in forgotten:
            self.standing.pop(topic_partition, None)
            self.told.pop(topic_partition, None)
        for wanted in changed:
            before = self.standing.pop(wanted.topic_partition, None)
            if before is not None and before.current_leader_epoch != wanted.current_leader_epoch:
                self.told.pop(wanted.topic_partition, None)
            self.standing[wanted.topic_partition] = wanted
        standing = list(self.standing.values())
        return FetchRequest(replica_id, max_wait_ms, min_bytes, max_bytes, standing, replica_epoch)

    def is_worth_telling(self, result: FetchResult, records: bytes) -> bool:
        """Whether the answer must name this partition; remembers what it is told."""
        offsets = (result.high_watermark, result.log_start_offset)
        if result.error is not _NONE or result.diverging is not None:
            self.told.pop(result.topic_partition, None)
            return True
        news = self.told.get(result.topic_partition) != offsets
        if records or news:
            self.told[result.topic_partition] = offsets
            return True
        return False
