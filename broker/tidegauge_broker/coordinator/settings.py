"""The settings of a broker that its coordinators read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class ConsumerGroupTimes(NamedTuple):
    """Times of a consumer or share group, in ms: the broker's, or the group's own (GroupConfig)."""

    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000
    assignment_interval_ms: int = 1_000


_DEFAULT_TIMES = ConsumerGroupTimes()


@dataclass(slots=True)
class GroupSettings:
    """A broker's settings as far as its group coordinator needs them; names and defaults are Kafka's.

    The shell makes it from the broker's settings (``offsets.retention.minutes`` in ms). All are static in Kafka but the
    assignment intervals.

    Attributes:
        partitions: of __consumer_offsets: of the topic if it exists, else offsets.topic.num.partitions.
        offsets_topic_compression_codec: number of the codec with which batches are written; 0 none.
        serves_consumer_groups: whether groups of the consumer protocol (KIP-848) are served; without, their records are
            skipped, as a broker of 3.9 does.
        consumer_times: of groups without settings of their own.
        consumer_assignors: group.consumer.assignors; the first is the default.
        consumer_migration_policy: disabled, upgrade, downgrade or bidirectional.
        is_kafka_4: whether the coordinator is one of Kafka 4 (KRaft mode): an offset is committed with its topic's id.
        share_times: of share groups without settings of their own.
        serves_share_groups: whether groups of the share protocol (KIP-932) are served, likewise.
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
    serves_consumer_groups: bool = False
    consumer_times: ConsumerGroupTimes = _DEFAULT_TIMES
    consumer_max_size: int = 2**31 - 1
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    consumer_regex_refresh_interval_ms: int = 600_000
    consumer_migration_policy: str = "bidirectional"
    serves_share_groups: bool = False
    share_times: ConsumerGroupTimes = _DEFAULT_TIMES
    share_initialize_retry_interval_ms: int = 30_000
    share_max_size: int = 200
    is_kafka_4: bool = False


@dataclass(slots=True)
class TransactionSettings:
    """A broker's settings as far as its transaction coordinator needs them; names and defaults are Kafka's.

    Attributes:
        partitions: of __transaction_state: of the topic if it exists, else transaction.state.log.num.partitions.
        abort_timed_out_interval_ms: transaction.abort.timed.out.transaction.cleanup.interval.ms.
        remove_expired_interval_ms: transaction.remove.expired.transaction.cleanup.interval.ms.
        max_message_bytes: of __transaction_state: limit of a batch of tombstones (max.message.bytes).
        request_timeout_ms: timeout of the append of tombstones (request.timeout.ms).
        transaction_version: finalised level of the feature: from 1 on records are flexible, at 2 the coordinator's own
            aborts raise the epoch as EndTxn v5 does (KIP-890, part 2). A cluster in ZooKeeper mode has none: 0.
        is_kafka_4: whether the coordinator is one of Kafka 4 (KRaft mode): partitions that a broker adds belong to a
            producer of transactions v2, and a pending state comes before the producer's id and epoch, which may be
            about to change (handleAddPartitionsToTransaction).
    """

    partitions: int = 50
    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 604_800_000
    abort_timed_out_interval_ms: int = 10_000
    remove_expired_interval_ms: int = 3_600_000
    max_message_bytes: int = 1_048_588
    request_timeout_ms: int = 30_000
    transaction_version: int = 0
    is_kafka_4: bool = False


@dataclass(slots=True)
class ShareStateSettings:
    """A broker's settings as far as its share coordinator needs them; defaults are Kafka's.

    Attributes:
        partitions: of __share_group_state; before it exists share.coordinator.state.topic.num.partitions.
        compression: number of the codec of share.coordinator.state.topic.compression.codec; 0 none.
        write_timeout_ms: share.coordinator.write.timeout.ms.
        updates_per_snapshot: share.coordinator.snapshot.update.records.per.snapshot.
        prune_interval_ms: share.coordinator.state.topic.prune.interval.ms.
        cold_interval_ms: share.coordinator.cold.partition.snapshot.interval.ms.
    """

    partitions: int = 50
    compression: int = 0
    write_timeout_ms: int = 5_000
    updates_per_snapshot: int = 500
    prune_interval_ms: int = 300_000
    cold_interval_ms: int = 300_000
