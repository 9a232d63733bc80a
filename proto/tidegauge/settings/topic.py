"""The table of topic settings: Kafka's names, defaults and ranges, each with its broker setting.

The lists of throttled replicas and the flags of tiered storage have none. All topic settings may be changed at any
time, for one topic, and take effect at once on every broker.
Source: Kafka's LogConfig, TopicConfig, ServerTopicConfigSynonyms.
"""

from __future__ import annotations

from tidegauge.settings.model import LONG_MAX, Setting
from tidegauge.settings.tables import flag, gzip_level, level, long, names, ratio, text, whole

WEEK_MS = 7 * 24 * 3_600_000
DAY_MS = 24 * 3_600_000

MESSAGE_FORMATS = (
    r"(?!(0\.8\.[0-2]|0\.9\.0|0\.10\.[0-2](-IV[01])?|0\.11\.0(-IV[0-2])?|1\.[01](-IV0)?|2\.[0-8](-IV[0-2])?"
    r"|3\.[0-9](-IV[0-4])?)(\.[0-9]+)?$).*",
    "Version {} is not a valid version",
)
"""Texts that name no version of Kafka up to 3.9 (``MetadataVersion.fromVersionString``)."""
_THROTTLED = (
    r"\*|[0-9]+:[0-9]+",
    "the literal '*' or a list of replicas in the following format: "
    "[partitionId]:[brokerId],[partitionId]:[brokerId],...",
)
_SETTINGS = (
    names(
        "cleanup.policy",
        ("delete",),
        "Delete old segments, compact by key, or both.",
        ("compact", "delete"),
        broker_key="log.cleanup.policy",
    ),
    gzip_level(broker_key="compression.gzip.level"),
    level("compression.lz4.level", 9, 1, 17, broker_key="compression.lz4.level"),
    text(
        "compression.type",
        "producer",
        "Compression of stored batches, by the leader; producer: as received.",
        ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        broker_key="compression.type",
    ),
    level("compression.zstd.level", 3, -131_072, 22, broker_key="compression.zstd.level"),
    long(
        "delete.retention.ms",
        DAY_MS,
        "ms",
        "How long a tombstone stays after its first compaction.",
        0,
        broker_key="log.cleaner.delete.retention.ms",
    ),
    long(
        "file.delete.delay.ms",
        60_000,
        "ms",
        "Delay before a deleted file is removed from the disk.",
        0,
        broker_key="log.segment.delete.delay.ms",
    ),
    long(
        "flush.messages",
        LONG_MAX,
        "records",
        "Records after which the log is flushed to disk.",
        1,
        broker_key="log.flush.interval.messages",
    ),
    long(
        "flush.ms",
        LONG_MAX,
        "ms",
        "Age of unflushed records at which the log is flushed to disk, checked every log.flush.scheduler.interval.ms.",
        0,
        broker_key="log.flush.interval.ms",
    ),
    names(
        "follower.replication.throttled.replicas",
        (),
        "Replicas that follower.replication.throttled.rate slows at the follower; * means all.",
        members=_THROTTLED,
    ),
    whole(
        "index.interval.bytes",
        4096,
        "bytes",
        "Log bytes between two index entries.",
        0,
        broker_key="log.index.interval.bytes",
    ),
    names(
        "leader.replication.throttled.replicas",
        (),
        "Replicas that leader.replication.throttled.rate slows at their leader; * means all.",
        members=_THROTTLED,
    ),
    long(
        "local.retention.bytes",
        -2,
        "bytes",
        "Size of a partition's local log with tiered storage (KIP-405), which is not emulated; -2: retention.bytes.",
        -2,
        broker_key="log.local.retention.bytes",
        has_effect=False,
    ),
    long(
        "local.retention.ms",
        -2,
        "ms",
        "Age of local segments with tiered storage (KIP-405), which is not emulated; -2: retention.ms.",
        -2,
        broker_key="log.local.retention.ms",
        has_effect=False,
    ),
    long(
        "max.compaction.lag.ms",
        LONG_MAX,
        "ms",
        "Maximum time that a record stays uncompacted, whatever the ratio.",
        1,
        broker_key="log.cleaner.max.compaction.lag.ms",
    ),
    whole("max.message.bytes", 1_048_588, "bytes", "Largest record batch.", 0, broker_key="message.max.bytes"),
    flag(
        "message.downconversion.enable",
        True,
        "Convert batches for fetches of versions 0 to 3; false: such fetches get UNSUPPORTED_VERSION.",
        broker_key="log.message.downconversion.enable",
    ),
    text(
        "message.format.version",
        "3.0-IV1",
        "Deprecated, and ignored by Kafka from inter.broker.protocol.version 3.0 on.",
        illegal=MESSAGE_FORMATS,
        broker_key="log.message.format.version",
        has_effect=False,
    ),
    long(
        "message.timestamp.after.max.ms",
        LONG_MAX,
        "ms",
        "Maximum distance of a record's timestamp into the future.",
        0,
        broker_key="log.message.timestamp.after.max.ms",
    ),
    long(
        "message.timestamp.before.max.ms",
        LONG_MAX,
        "ms",
        "Maximum age of a record's timestamp at the append.",
        0,
        broker_key="log.message.timestamp.before.max.ms",
    ),
    long(
        "message.timestamp.difference.max.ms",
        LONG_MAX,
        "ms",
        "Deprecated: message.timestamp.before.max.ms and message.timestamp.after.max.ms count instead.",
        0,
        broker_key="log.message.timestamp.difference.max.ms",
        has_effect=False,
    ),
    text(
        "message.timestamp.type",
        "CreateTime",
        "Timestamp of a record: the producer's, or the leader's at the append.",
        ("CreateTime", "LogAppendTime"),
        broker_key="log.message.timestamp.type",
    ),
    ratio(
        "min.cleanable.dirty.ratio",
        0.5,
        "Share of bytes not yet compacted above which the log is compacted.",
        broker_key="log.cleaner.min.cleanable.ratio",
    ),
    long(
        "min.compaction.lag.ms",
        0,
        "ms",
        "Minimum time that a record stays uncompacted.",
        0,
        broker_key="log.cleaner.min.compaction.lag.ms",
    ),
    whole(
        "min.insync.replicas",
        1,
        "",
        "In-sync replicas that acks=all needs, and below which the high watermark does not advance.",
        1,
        broker_key="min.insync.replicas",
    ),
    flag(
        "preallocate",
        False,
        "Allocate the full size of a new segment at once.",
        broker_key="log.preallocate",
        has_effect=False,
    ),
    flag(
        "remote.log.copy.disable",
        False,
        "Copy no more segments to tiered storage (KIP-405), which is not emulated.",
        has_effect=False,
    ),
    flag(
        "remote.log.delete.on.disable",
        False,
        "Delete the segments in tiered storage (KIP-405) once it is off; it is not emulated.",
        has_effect=False,
    ),
    flag(
        "remote.storage.enable",
        False,
        "Use tiered storage (KIP-405), which is not emulated: true is rejected, as by a broker without it.",
        has_effect=False,
    ),
    long(
        "retention.bytes",
        -1,
        "bytes",
        "Size of a partition above which old segments are deleted; negative: none.",
        broker_key="log.retention.bytes",
    ),
    long(
        "retention.ms",
        WEEK_MS,
        "ms",
        "Age at which segments are deleted; -1: never.",
        -1,
        broker_key="log.retention.ms",
    ),
    whole(
        "segment.bytes",
        1_073_741_824,
        "bytes",
        "Size at which a segment is rolled.",
        14,
        broker_key="log.segment.bytes",
    ),
    whole("segment.index.bytes", 10_485_760, "bytes", "Largest index file.", 4, broker_key="log.index.size.max.bytes"),
    long(
        "segment.jitter.ms",
        0,
        "ms",
        "Random time taken off segment.ms, so that not all segments roll at once.",
        0,
        broker_key="log.roll.jitter.ms",
    ),
    long("segment.ms", WEEK_MS, "ms", "Age at which a segment is rolled.", 1, broker_key="log.roll.ms"),
    flag(
        "unclean.leader.election.enable",
        False,
        "Allow a leader from outside the ISR; acknowledged records may be lost.",
        broker_key="unclean.leader.election.enable",
    ),
)

TOPIC_SETTINGS: dict[str, Setting] = {setting.name: setting for setting in _SETTINGS}
REMOVED_IN_KAFKA_4 = frozenset(
    {"message.downconversion.enable", "message.format.version", "message.timestamp.difference.max.ms"}
)
"""Settings of topics that Kafka 4 no longer has (KIP-724, KIP-937)."""
