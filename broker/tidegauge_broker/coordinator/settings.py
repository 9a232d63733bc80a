"""The settings of a broker that the group coordinator reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class GroupSettings:
    """A broker's settings as far as its group coordinator needs them; names and defaults are Kafka's.

    The shell makes it from the broker's settings (``offsets.retention.minutes`` in ms). All are static in Kafka.

    Attributes:
        partitions: of __consumer_offsets: of the topic where it exists, else offsets.topic.num.partitions.
        offsets_topic_compression_codec: number of the codec with which batches are written; 0 none.
    """

    partitions: int = 50
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_initial_rebalance_delay_ms: int = 3_000
    group_max_size: int = 2**31 - 1
    offset_metadata_max_bytes: int = 4_096
    offsets_retention_ms: int = 10_080 * 60_000
    offsets_retention_check_interval_ms: int = 600_000
    offsets_commit_timeout_ms: int = 5_000
    offsets_commit_required_acks: int = -1
    offsets_topic_compression_codec: int = 0
