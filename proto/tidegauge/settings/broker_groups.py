"""Broker settings of consumer groups and their topic: Kafka's names, types, defaults and bounds.

The consumer and share group protocols (KIP-848, KIP-932) exist in KRaft alone. In ZooKeeper mode their settings count
if ``tidegauge.zookeeper.group.protocols`` serves the protocol, an extension of this mode.
Source: Kafka's GroupCoordinatorConfig and ShareGroupConfig.
"""

from __future__ import annotations

from tidegauge.settings.model import INT_MAX, Setting
from tidegauge.settings.tables import long, names, short, text, whole

_ASSIGNORS = tuple(f"org.apache.kafka.coordinator.group.assignor.{name}Assignor" for name in ("Uniform", "Range"))


def of_later_protocol(protocol: str) -> tuple[Setting, ...]:
    """Return the settings that the consumer and share protocols have alike."""
    rows = (
        ("session.timeout.ms", 45_000, "Session timeout of members"),
        ("min.session.timeout.ms", 45_000, "Smallest session timeout of a group"),
        ("max.session.timeout.ms", 60_000, "Largest session timeout of a group"),
        ("heartbeat.interval.ms", 5_000, "Interval between heartbeats of members"),
        ("min.heartbeat.interval.ms", 5_000, "Smallest heartbeat interval of a group"),
        ("max.heartbeat.interval.ms", 15_000, "Largest heartbeat interval of a group"),
    )
    return tuple(
        whole(
            f"group.{protocol}.{name}",
            default,
            "ms",
            f"{meaning}, {protocol} protocol.",
            1,
        )
        for name, default, meaning in rows
    )


GROUP_SETTINGS = (
    whole("group.min.session.timeout.ms", 6_000, "ms", "Smallest session timeout that a member may ask for."),
    whole("group.max.session.timeout.ms", 1_800_000, "ms", "Largest session timeout that a member may ask for."),
    whole(
        "group.initial.rebalance.delay.ms",
        3_000,
        "ms",
        "Time that the first rebalance of an empty group waits for more members.",
    ),
    whole("group.max.size", INT_MAX, "", "Maximum number of members of a group.", 1),
    whole(
        "offset.metadata.max.bytes", 4_096, "bytes", "Maximum length of a committed offset's metadata, in UTF-16 units."
    ),
    whole(
        "offsets.load.buffer.size",
        5_242_880,
        "bytes",
        "Bytes to read at a time when a coordinator loads a partition; a larger batch is read whole.",
        1,
    ),
    short("offsets.topic.replication.factor", 3, "Replicas of __consumer_offsets when it is created.", 1),
    whole("offsets.topic.num.partitions", 50, "", "Partitions of __consumer_offsets when it is created.", 1),
    whole("offsets.topic.segment.bytes", 104_857_600, "bytes", "Segment size of __consumer_offsets.", 1),
    Setting(
        "offsets.topic.compression.codec",
        "int",
        0,
        "Compression of batches in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        "",
        0,
        4,
    ),
    whole(
        "offsets.retention.minutes",
        10_080,
        "min",
        "Time after which the offsets of an empty group, or of a topic without subscribers, expire.",
        1,
    ),
    long("offsets.retention.check.interval.ms", 600_000, "ms", "Interval between checks for expired offsets.", 1),
    whole("offsets.commit.timeout.ms", 5_000, "ms", "Timeout of a commit's replication.", 1),
    short("offsets.commit.required.acks", -1, "Acks that a commit needs (deprecated by KIP-1041).", -1),
    names(
        "group.coordinator.rebalance.protocols",
        ("classic",),
        "Rebalance protocols that are enabled: classic alone; in KRaft mode consumer too (streams is not served).",
        ("classic",),
    ),
    whole("group.coordinator.threads", 1, "", "Threads of KRaft's group coordinator.", 1, has_effect=False),
    whole(
        "group.coordinator.append.linger.ms",
        10,
        "ms",
        "Time that KRaft's group coordinator gathers writes.",
        0,
        has_effect=False,
    ),
    *of_later_protocol("consumer"),
    whole("group.consumer.max.size", INT_MAX, "", "Maximum members, consumer protocol.", 1),
    names(
        "group.consumer.assignors",
        _ASSIGNORS,
        "Server-side assignors, consumer protocol; the first is the default.",
        (*_ASSIGNORS, "uniform", "range"),
    ),
    names(
        "tidegauge.zookeeper.group.protocols",
        ("classic",),
        "Group protocols that are served in ZooKeeper mode; consumer (KIP-848) and share (KIP-932), by the rules of "
        "Kafka 4.3, are extensions, since Kafka 3.9 serves classic alone there.",
        ("classic", "consumer", "share"),
    ),
    whole(
        "group.consumer.assignment.interval.ms",
        1_000,
        "ms",
        "Minimum time between two target assignments of a group, consumer protocol; 0: none. A setting of Kafka 4.3.",
        0,
    ),
    whole(
        "group.consumer.min.assignment.interval.ms",
        0,
        "ms",
        "Smallest assignment interval of a group, consumer protocol. A setting of Kafka 4.3.",
        0,
    ),
    whole(
        "group.consumer.max.assignment.interval.ms",
        15_000,
        "ms",
        "Largest assignment interval of a group, consumer protocol. A setting of Kafka 4.3.",
        0,
    ),
    text(
        "group.consumer.migration.policy",
        "bidirectional",
        "Which groups may change between the classic and the consumer protocol while they have members; the default "
        "is Kafka 4.3's.",
        ("disabled", "upgrade", "downgrade", "bidirectional"),
    ),
    whole(
        "group.consumer.regex.refresh.interval.ms",
        600_000,
        "ms",
        "Time after which regular expressions of subscriptions are resolved again, consumer protocol. A setting of "
        "Kafka 4.3.",
        10_000,
    ),
)
